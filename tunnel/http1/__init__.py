"""
HTTP/1.1 for proxies: streamed, strict, and cheap per request.

Public: the names that this package exports, for modules of third parties too.  They
stay as they are; what a file has besides them may change at any time.

    head.py         start lines and fields, read and written strictly
    chunked.py      the chunked coding
    connection.py   what both sides share: one write per turn, one timer for all
    server.py       `HttpServerFactory`: each request is an `Exchange` for a handler;
                    ends what is silent or half-closed for too long
    client.py       `UpstreamRequest`, and one connection to an upstream, likewise
    pool.py         `UpstreamPool`: which connection a request gets; 502, 503 and 504
                    where it gets none

The rules kept everywhere: what two readers could understand differently is refused;
nothing but heads is ever buffered; back-pressure goes through Twisted's producers.
"""

from tunnel.http1.client import (
    ResponseReceiver,
    UpstreamError,
    UpstreamLimits,
    UpstreamRequest,
)
from tunnel.http1.head import (
    CHUNKED,
    UNTIL_CLOSE,
    HeadError,
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
    "HttpServerFactory",
    "HttpServerLimits",
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
