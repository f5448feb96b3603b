"""
Common parts of the programs kas and agentk.

    command.py      the commands ``kas`` and ``agentk``
    maker.py        both programs as plugins of twistd
    reactor.py      the reactor of both programs
    options.py      common options
    runtime.py      clock, randomness, metrics and others that most parts use
    parts.py        parts: started in order, drained by phases, stopped in reverse
    service.py      a program that consists of parts, as a service of twistd
    startup.py      startup errors, signals
    tuning.py       the process: memory, clock
    logs.py         the log: text, JSON lines, levels
    log_writer.py   the thread that writes the log
    sdnotify.py     notifications for systemd
    listening.py    ports, from the configuration to a TLS listener
    module_ports.py  ports that modules open
    opened.py       descriptions of open ports for other processes
    sockets.py      listening sockets, for other processes or at the path of a file
    inherited_port.py  a port on another process's socket, shared by several processes
    handshakes.py   failed TLS handshakes: counted, and logged once a minute
    site.py         small HTTP sites: health, metrics, the control socket
    profile.py      the profiler of the process
    tracing.py      spans for OpenTelemetry
    sentry.py       failures for Sentry
    telemetry.py    traces and failures as parts of a program
    shutdown.py     the last work of a library at shutdown
    process_metrics.py  metrics of the process and its certificates
    metrics_registry.py  registry in which a failing collector hides no other metrics
"""
