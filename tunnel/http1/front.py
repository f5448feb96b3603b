"""
An HTTP/1.1 server for requests that are passed on, not rendered.

`FrontFactory` makes one `FrontProtocol` (`tunnel.http1.server`) per connection; each
request becomes one `Exchange` (`tunnel.http1.exchange`) for the factory's handler.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Protocol

import attrs
from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import ServerFactory

from tunnel.http1.exchange import Exchange, RequestReceiver
from tunnel.http1.head import RequestParser
from tunnel.http1.server import FrontProtocol
from tunnel.http1.transport import Turn, Writer

__all__ = ["FrontFactory", "FrontLimits", "Handler"]


class Handler(Protocol):
    """What a front does with requests."""

    def request_received(self, exchange: Exchange) -> RequestReceiver | None:
        """
        A request began.  Its body, if ``exchange.head.length`` is not 0, goes to the
        receiver; a handler that answered at once may return None.
        """


@attrs.frozen
class FrontLimits:
    """Everything that a client can spend here."""

    max_header_bytes: int = 64 * 1024  # tokens and cookies are long; nothing else is
    max_header_count: int = 200  # kubectl sends ten, a chain of proxies forty
    header_seconds: float = 10.0  # from the first byte of a head to its last
    idle_seconds: float = 60.0  # a kept-alive connection between two requests
    body_seconds: float = 60.0  # without one byte of a body, or of answers being read
    drain_seconds: float = 5.0  # for the client to notice an early answer
    half_closed_seconds: float = 60.0  # a raw connection with one end, nothing moving
    max_connections: int = 20_000  # 2 KiB each when idle; the idlest gives way to more


def _plain(status: int, message: str) -> tuple[bytes, bytes]:
    body = json.dumps({"code": status, "message": message}).encode()
    return b"\r\nContent-Type: application/json", body


class FrontFactory(ServerFactory):
    """
    Accepts connections and hands requests to *handler*.

    :param parser: what to cut out of heads; see `RequestParser`.
    :param write: how to write to a transport, when not by its own ``write``.
    :param render_error: fields and body for what is refused before a handler sees it.
    """

    noisy = False

    def __init__(
        self,
        handler: Handler,
        clock: IReactorTime,
        *,
        parser: RequestParser | None = None,
        limits: FrontLimits | None = None,
        write: Writer | None = None,
        render_error: Callable[[int, str], tuple[bytes, bytes]] = _plain,
    ) -> None:
        self.handler = handler
        self.limits = limits or FrontLimits()
        self.parser = parser or RequestParser(max_count=self.limits.max_header_count)
        self.render_error = render_error
        #: Every connection there is.
        self.connections: set[FrontProtocol] = set()
        #: Those without a request under way, the longest idle first.
        self.idle: dict[FrontProtocol, None] = {}
        #: Set by `drain`: no connection is kept for another request.
        self.draining = False
        self.turn = Turn(clock, self.connections, write)

    def buildProtocol(  # type: ignore[override]
        self, addr: IAddress | None
    ) -> FrontProtocol:
        return FrontProtocol(self)

    def make_room(self) -> bool:
        """Drop the connection that is idle for longest; False: all are busy."""
        for longest in self.idle:
            longest.give_way()
            return True
        return False

    def drain(self) -> None:
        """Close idle connections now, and every other after its present answer."""
        self.draining = True
        for connection in list(self.connections):
            connection.close_if_idle()

    def abort_all(self) -> None:
        """Drop every connection as it is."""
        for connection in list(self.connections):
            connection.abort()
