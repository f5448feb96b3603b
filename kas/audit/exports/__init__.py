"""
Exports of the audit log to other systems, from its files.

    part.py         one exporter for each entry of the configuration
    exporter.py     sends events, in order, until the receiver has accepted them
    reader.py       reads the events after a place in the log
    cursor.py       the place, in the state directory
    formats.py      events as syslog messages, OpenTelemetry logs and signed webhooks
    receivers.py    sends events by HTTP, or by syslog over TLS
    dead.py         events that a receiver does not accept

    files -> reader -> exporter -> receiver
                          |
                          cursor
"""
