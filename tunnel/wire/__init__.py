"""
The protocol without I/O: bytes in, events out; commands in, bytes out.

limits.py    all limits of a connection, with their reasons framing.py   bytes -> frames
and back window.py    the sizes of a connection's windows stream.py    one stream:
states, credit, waiting data; and the table of all streams events.py    events from a
session to its owner outbox.py    data that waits to be sent on a connection, and its
order session.py   the whole: commands to a connection, and bytes from its peer

This package neither reads a clock nor uses a transport, and errors of the peer do not
raise exceptions. docs/protocol.rst is the specification; section numbers in comments
refer to it.
"""
