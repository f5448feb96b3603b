"""
HTTP/1.1 for proxies: streamed, strict, and cheap per request.

The names that this package exports are public, also for third-party modules, and stay
stable.  Other names in its files may change at any time.

    head.py         start lines and fields, read and written strictly
    chunked.py      the chunked coding
    connection.py   common to both sides: one write per turn, one timer for all
    server.py       `HttpServerFactory`: each request is an `Exchange` for a handler;
                    ends connections that are silent or half-closed for too long
    client.py       `UpstreamRequest`, and one connection to an upstream, with timeouts
    pool.py         `UpstreamPool`: chooses the connection for a request; 502, 503 and
                    504 if it has none

These rules apply everywhere: input that two parsers could interpret differently is
refused; only heads are ever buffered; flow control uses Twisted's producers.
"""

from tunnel.http1.client import (
    NotConnected,
    ResponseReceiver,
    UpstreamError,
    UpstreamLimits,
    UpstreamRequest,
)
from tunnel.http1.head import (
    CHUNKED,
    UNTIL_CLOSE,
    HeadError,
    HeadNote,
    RequestHead,
    RequestParser,
    ResponseHead,
    ResponseParser,
    clean_trailers,
    encode_request,
    is_value,
)
from tunnel.http1.pool import UpstreamPool
from tunnel.http1.server import (
    ClientGone,
    Exchange,
    HttpServerFactory,
    HttpServerLimits,
    RequestHandler,
    RequestReceiver,
)

__all__ = [
    "CHUNKED",
    "UNTIL_CLOSE",
    "ClientGone",
    "Exchange",
    "HeadError",
    "HeadNote",
    "HttpServerFactory",
    "HttpServerLimits",
    "NotConnected",
    "RequestHandler",
    "RequestHead",
    "RequestParser",
    "RequestReceiver",
    "ResponseHead",
    "ResponseParser",
    "ResponseReceiver",
    "UpstreamError",
    "UpstreamLimits",
    "UpstreamPool",
    "UpstreamRequest",
    "clean_trailers",
    "encode_request",
    "is_value",
]
