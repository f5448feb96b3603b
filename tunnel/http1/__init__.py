"""
HTTP/1.1 for proxies: streamed, strict, and cheap per request.

* `head` and `fields`: header blocks, read without making an object of each line;
* `chunked`: the chunked coding;
* `transport`: what both ends share: one write per turn, one timer for all;
* `front`, `server` and `exchange`: the server side, one `Exchange` per request for a
  handler;
* `upstream`, `client` and `request`: the client side, a pool of connections to one
  origin.

The rules kept everywhere: what two readers could understand differently is refused;
nothing but heads is ever buffered; back-pressure goes through Twisted's producers.
"""

from tunnel.http1.exchange import Exchange, RequestReceiver
from tunnel.http1.fields import HeadError, clean_trailers, is_value
from tunnel.http1.front import FrontFactory, FrontLimits, Handler
from tunnel.http1.head import (
    CHUNKED,
    UNTIL_CLOSE,
    RequestHead,
    RequestParser,
    ResponseHead,
    ResponseParser,
    encode_request,
)
from tunnel.http1.request import ResponseReceiver, UpstreamError, UpstreamRequest
from tunnel.http1.server import ClientGone
from tunnel.http1.upstream import UpstreamLimits, UpstreamPool

__all__ = [
    "CHUNKED",
    "UNTIL_CLOSE",
    "ClientGone",
    "Exchange",
    "FrontFactory",
    "FrontLimits",
    "Handler",
    "HeadError",
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
