"""
HTTP/2 on the h2 library, both sides.

limits.py       all limits of a connection, with their reasons flood.py        budgets
for a peer's frames, checked before h2 handles them stream.py       one request, its
response, and data that waits to be sent connection.py   common parts of both sides:
turns, windows, PINGs, the end server.py       the server side: starts calls, and sends
clients away client.py the client side: opens streams

The library is one of the server's extras: agentk never imports this package.
"""
