"""
gRPC over `tunnel.http2`, both sides, with the calls of `tunnel.rpc`.

messages.py   messages with flags and a length before each fields.py     metadata,
timeouts, and the outcome of a call, as header fields memory.py     the memory limit of
all incomplete requests server.py     the server side of a call, with parts for other
protocols client.py     the client side: a channel to one server

::

    ServiceClient -> client -> http2   ~~~   http2 -> server -> ServerCall -> handler
"""
