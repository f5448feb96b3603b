"""
HTTP/2 on the h2 library, both sides.

    limits.py       every bound of a connection, with its reason
    flood.py        what a peer may do, counted before h2 sees it
    stream.py       one request and its answer, and what waits to be sent
    connection.py   what both sides share: turns, windows, PINGs, the end
    server.py       the server side: begins calls, and sends clients away
    client.py       the client side: opens streams

The library is one of the server's extras: agentk never imports this package.
"""
