"""
The protocol without I/O: bytes in, events out; commands in, bytes out.

    limits.py    limits of a connection, each with its reason
    framing.py   bytes -> frames and back
    window.py    the size of a connection's windows
    stream.py    one stream: states, credit and waiting data; the table of all streams
    events.py    events that a session returns to its owner
    outbox.py    data that waits to be sent on a connection, and its order
    session.py   all streams of a connection: commands of our side, frames of the peer

This package reads no clock, uses no transport, and raises no exception for errors of
the peer.  docs/protocol.rst is the specification; section numbers in comments refer to
it.
"""
