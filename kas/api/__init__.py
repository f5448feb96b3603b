"""
The external API: what GitLab and other systems call, by gRPC and by Connect.

    services.py   which module answers which method
    auth.py       who may call: the token in front of every call
    calls.py      one call: a stream, for the machinery of `tunnel.rpc`, over HTTP
    envelopes.py  messages with a length before each, which both have
    grpc.py       gRPC's way to write a call down
    connect.py    Connect's way to do so: JSON or protobuf, for clients without gRPC
    http2.py      HTTP/2 connections: what arrives, and how they end
    sender.py     what leaves one: its streams take turns
    machine.py    the protocol's state machine below them, of the h2 library
    life.py       how long they last
    stream.py     one request on one of them
    meter.py      what a peer may do on one of them, counted before h2 sees it
    http1.py      HTTP/1.1 requests
    listener.py   the listener: takes both kinds of HTTP, and drains them
    held.py       what requests that are not whole may hold, all together
    limits.py     every bound, with its reason

::

    HTTP/2   -> meter -> http2 --+-> grpc ----+
                                 |            +--> calls --> services --> module
    HTTP/1.1 ----------> http1 --+-> connect -+
"""
