"""
gRPC over `tunnel.http2`, both sides, with the calls of `tunnel.rpc`.

    messages.py   messages, each preceded by its flags and length
    fields.py     metadata, timeouts, and outcomes of calls, as header fields
    memory.py     the memory limit of all incomplete requests
    server.py     the server side of a call, and a base class for similar protocols
    client.py     the client side: a channel to one server

::

    ServiceClient -> client -> http2   ~~~   http2 -> server -> ServerCall -> handler
"""
