"""
HTTP/2 on the h2 library, both sides.

    limits.py       limits of a connection, each with its reason
    flood.py        budgets of a peer's frames, counted before h2 reads them
    stream.py       one request and its response, and data that waits to be sent
    connection.py   common parts of both sides: turns, windows, PINGs, the end
    server.py       the server side: starts calls, and asks clients to leave
    client.py       the client side: opens streams

The library is one of the server's extras: agentk never imports this package.
"""
