"""
The external API: what GitLab and other systems call, by gRPC and by Connect.

    services.py   which module answers which method
    own_services.py  the version and the health of kas itself
    auth.py       who may call: the token in front of every call
    front.py      from an HTTP request to a call: protocol, token, method
    connect.py    Connect's way to write a call down: JSON or protobuf
    http1.py      HTTP/1.1 requests
    listener.py   the listener: takes both kinds of HTTP, and drains them
    part.py       the services and the listener, as a part of kas
    limits.py     every bound of HTTP/1.1, with its reason

HTTP/2 and gRPC themselves are in `tunnel.http2` and `tunnel.grpc`::

    HTTP/2   -> tunnel.http2 --+-> tunnel.grpc --+
                               |                 +--> services --> module
    HTTP/1.1 ----------> http1 +-> connect ------+
"""
