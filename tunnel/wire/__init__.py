"""
The protocol without I/O: bytes in, events out; commands in, bytes out.

    limits.py    every bound of a connection, each with its reason
    framing.py   bytes -> frames and back
    window.py    how large the windows of a connection should be
    stream.py    one stream: states, credit, what waits; and the table of all of them
    events.py    what a session tells its owner
    outbox.py    what waits to be sent on a connection, and who is next
    session.py   all of it: what a connection is asked to do, and what its peer does

Nothing in here reads a clock, touches a transport or raises for what a peer did.
docs/protocol.rst is the specification; section numbers in comments refer to it.
"""
