"""
External API, which GitLab and other systems call by gRPC and by Connect.

    services.py   table of the methods and their modules
    own_services.py  the version and the health of kas itself
    auth.py       authentication: the token of every call
    front.py      conversion of an HTTP request to a call: protocol, token, method
    connect.py    Connect's encoding of calls: JSON or protobuf
    http1.py      HTTP/1.1 requests
    listener.py   the listener for both versions of HTTP, and draining
    part.py       the services and the listener, as a part of kas
    limits.py     every limit of HTTP/1.1, with its reason

HTTP/2 and gRPC themselves are in `tunnel.http2` and `tunnel.grpc`::

    HTTP/2   -> tunnel.http2 --+-> tunnel.grpc --+
                               |                 +--> services --> module
    HTTP/1.1 ----------> http1 +-> connect ------+
"""
