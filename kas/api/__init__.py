"""
The external API, which GitLab and other systems call by gRPC and Connect.

services.py   assigns methods to modules own_services.py  the version and the health of
kas itself auth.py       authentication: the token of every call front.py      converts
HTTP requests to calls: protocol, token, method connect.py    the encoding of calls in
Connect: JSON or protobuf http1.py      HTTP/1.1 requests listener.py   the listener:
accepts both versions of HTTP, and drains them part.py       the services and the
listener, as a part of kas limits.py     all limits of HTTP/1.1, with their reasons

HTTP/2 and gRPC themselves are in `tunnel.http2` and `tunnel.grpc`::

HTTP/2   -> tunnel.http2 --+-> tunnel.grpc --+ |                 +--> services -->
module HTTP/1.1 ----------> http1 +-> connect ------+
"""
