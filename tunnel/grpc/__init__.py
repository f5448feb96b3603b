"""
gRPC over `tunnel.http2`, both sides, with the calls of `tunnel.rpc`.

    messages.py   messages with flags and a length before each
    fields.py     metadata, time limits, and how a call went, as header fields
    memory.py     what incomplete requests may hold, all together
    server.py     the server side of a call, and what other protocols share with it
    client.py     the client side: a channel to one server

::

    ServiceClient -> client -> http2   ~~~   http2 -> server -> ServerCall -> handler
"""
