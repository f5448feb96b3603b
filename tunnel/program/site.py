"""
The web site of an observability listener: a few pages, without request bodies, and with
limits.

It uses `tunnel.http1`, like everything that serves many clients.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import attrs
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IProtocol, IReactorTime
from twisted.internet.protocol import ServerFactory
from twisted.logger import Logger
from twisted.python.failure import Failure

from tunnel.http1 import Exchange, HttpServerFactory, HttpServerLimits
from tunnel.transport.sockets import is_local

__all__ = [
    "LIMITS",
    "MAX_CONNECTIONS",
    "RESERVED",
    "Make",
    "Page",
    "Site",
    "as_json",
    "exposition",
    "plain",
]

#: Maximum number of concurrent connections from other machines.  Probes and scrapes
#: need a handful; more would take a few KiB each, and descriptors that agents need.
MAX_CONNECTIONS = 256

#: Maximum number of concurrent connections from this machine, for probes and kasctl, in
#: addition to connections from other machines.
RESERVED = 32

LIMITS = HttpServerLimits(
    max_header_bytes=16 * 1024,  # no cookies, no tokens
    idle_seconds=75.0,  # scrapes come every minute, and reuse their connection
    body_seconds=10.0,  # for a response that the client does not read
    max_connections=MAX_CONNECTIONS,
)


@attrs.frozen
class Page:
    """One response."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    #: Additional header lines, each preceded by CRLF.
    fields: bytes = b""


#: Function that creates the page for one request, at once or later.
Make = Callable[[], Page | Coroutine[Any, Any, Page]]


def plain(text: str, status: int = 200) -> Page:
    return Page(f"{text}\n".encode(), status=status)


def as_json(content: Any) -> Page:
    return Page(json.dumps(content).encode() + b"\n", "application/json")


def exposition(metrics: CollectorRegistry) -> Page:
    """Return the metrics in the format of Prometheus."""
    return Page(generate_latest(metrics), CONTENT_TYPE_LATEST)


class Site(ServerFactory):
    """
    A factory that serves pages by their paths.

    It creates a page for each GET or HEAD.  A request with a body is refused, and the
    bytes of the body are dropped.  When the site has too many connections, it closes
    the connection that has been idle longest; connections from this machine count
    separately.

    :param pages: the pages by path, as configured.
    """

    noisy = False
    _log = Logger()

    def __init__(
        self,
        pages: Mapping[str, Make],
        clock: IReactorTime,
    ) -> None:
        self._pages = {path.encode(): make for path, make in pages.items()}
        reserved = attrs.evolve(LIMITS, max_connections=RESERVED)
        self.others = HttpServerFactory(
            self, clock, limits=LIMITS, render_error=_refusal
        )
        self.local = HttpServerFactory(
            self, clock, limits=reserved, render_error=_refusal
        )
        #: The number of pages that are being created.
        self.making = 0

    def buildProtocol(self, addr: IAddress | None) -> IProtocol:  # type: ignore[override]
        return (self.local if is_local(addr) else self.others).buildProtocol(addr)

    def request_received(self, exchange: Exchange) -> None:
        made = self._make(exchange)
        if isinstance(made, Page):
            _answer(exchange, made)
            return

        self.making += 1

        def made_one(result: object) -> None:
            self.making -= 1

        def failed(failure: Failure) -> None:
            self._log.failure("creating a page failed", failure)
            _answer(exchange, plain("an internal error", 500))

        making: Deferred[Page] = Deferred.fromCoroutine(made)
        making.addCallback(lambda page: _answer(exchange, page)).addErrback(failed)
        making.addBoth(made_one)

    def _make(self, exchange: Exchange) -> Page | Coroutine[Any, Any, Page]:
        head = exchange.head
        if head.length:
            return plain("requests must not have a body here", 413)
        path = unquote_to_bytes(head.target.partition(b"?")[0])
        make = self._pages.get(path)
        if make is None:
            return plain("this page does not exist", 404)
        if head.method not in (b"GET", b"HEAD"):
            page = plain("only GET is supported here", 405)
            return attrs.evolve(page, fields=b"\r\nAllow: GET")
        return make()


def _answer(exchange: Exchange, page: Page) -> None:
    fields = page.fields + b"\r\nContent-Type: " + page.content_type.encode()
    exchange.respond(page.status, fields, page.body)


def _refusal(status: int, message: str) -> tuple[bytes, bytes]:
    page = plain(message, status)
    return b"\r\nContent-Type: " + page.content_type.encode(), page.body
