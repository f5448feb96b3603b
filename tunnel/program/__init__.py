"""
What kas and agentk share around their services.

    command.py      the commands ``kas`` and ``agentk``
    maker.py        both as plugins of twistd
    reactor.py      the reactor that both run in
    options.py      options that both have
    startup.py      errors at start, signals
    tuning.py       the process: memory, clock
    logs.py         the log: text, JSON lines, levels
    log_writer.py   its bytes, written by a thread
    sdnotify.py     notifications for systemd
    listening.py    ports, from the configuration to a TLS listener
    opened.py       what others are told of them
    sockets.py      sockets that listen, for other processes or at the path of a file
    handed.py       a port of one, from which other processes may accept
    handshakes.py   TLS handshakes that failed, counted, and logged once a minute
    site.py         small HTTP sites: health, metrics, the control socket
    profile.py      where the process spends its time
    tracing.py      spans for OpenTelemetry
    sentry.py       failures for Sentry
    farewell.py     what both have left to do at the end
    process_metrics.py  metrics of the process and its certificates
"""
