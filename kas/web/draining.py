"""Listener that drains: running requests may finish, and no new requests begin."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from twisted.internet.interfaces import (
    IAddress,
    IListeningPort,
    IProtocol,
    IProtocolFactory,
)
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from tunnel.config import DrainingListen
from tunnel.program.listening import Listening
from tunnel.program.parts import Part, Phase
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.until import until
from tunnel.transport.negotiation import abort

__all__ = ["DrainingFactory", "DrainingListener", "OpenConnection"]

#: Maximum seconds for sending the last bytes before connections are cut.
CLOSE_TIME = 1.0


class OpenConnection(Protocol):
    """
    Interface of a connection of a `DrainingFactory`; the connection calls
    `DrainingFactory.lost` at its end.
    """

    @property
    def transport(self) -> Any:
        """The underlying transport."""

    def close(self) -> None:
        """Close the connection after the written data has been sent."""


@implementer(IProtocolFactory)
class DrainingFactory(ABC, Factory):
    """
    Factory of connections, which keeps a table of the open connections.

    :param what: the purpose of the connections, for the log.
    :param limit: the maximum number of connections.
    """

    _log = Logger()
    noisy = False

    def __init__(self, what: str, limit: int) -> None:
        self.limit = limit
        #: Accepted connections, in any state.
        self.open: set[OpenConnection] = set()
        #: Connections over HTTP/1.1 with a request in progress.
        self.busy: set[object] = set()
        self._what = what
        self._draining = False
        self._complained = False

    @abstractmethod
    def connect(self, address: IAddress) -> Any:
        """Return the protocol for one connection; None if the connection is refused."""

    def buildProtocol(self, address: IAddress) -> IProtocol | None:  # type: ignore[override]
        """
        Return the protocol for one connection; None if there are too many connections.
        """
        if self.room() <= 0:
            if not self._complained:
                self._log.warn(
                    "more than {count} connections for {what}: closing new ones",
                    count=self.limit,
                    what=self._what,
                )
            self._complained = True
            return None
        self._complained = False
        made = self.connect(address)
        if made is not None:
            self.open.add(made)
        return made  # type: ignore[no-any-return]

    def lost(self, connection: OpenConnection) -> None:
        """Forget a connection that has ended."""
        self.open.discard(connection)

    @property
    def calls(self) -> int:
        """Number of requests in progress."""
        return len(self.busy)

    @property
    def unfinished(self) -> int:
        """Number of requests and upgraded connections that draining waits for."""
        return self.calls

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self.open)

    def room(self) -> int:
        """
        Return the number of further connections that are allowed; clients in a TLS
        handshake already count.
        """
        return self.limit - len(self.open)

    def leaves(self, channel: Any) -> bool:
        """Return whether a connection over HTTP/1.1 ends after its next response."""
        return self._draining

    def idle(self, connection: Any) -> bool:
        """Return whether a connection has no request in progress."""
        return connection not in self.busy

    def drain(self, grace: float) -> None:
        """
        Close idle connections now, and all other connections after their requests.
        """
        self._draining = True
        idle = [one for one in self.open if self.idle(one)]
        for_each(idle, lambda one: one.close(), "ending a connection")

    def close(self) -> None:
        """Close all connections after the written data has been sent."""
        for_each(tuple(self.open), lambda one: one.close(), "ending a connection")

    def abort(self) -> None:
        """Abort all connections."""
        for_each(
            tuple(self.open),
            lambda one: abort(one.transport),
            "ending a connection",
        )


class DrainingListener(Part):
    """
    Listener that is configured by one section, as a part of kas.

    :param what: the purpose of the listener.
    :param setting: the name of the setting that contains the address of the listener.
    """

    def __init__(
        self,
        settings: DrainingListen,
        factory: DrainingFactory,
        listening: Listening,
        reactor: Any,
        *,
        what: str,
        setting: str,
        alpn: Sequence[str],
    ) -> None:
        self.factory = factory
        self._settings = settings
        self._listening = listening
        self._reactor = reactor
        self.name = what
        self._setting = setting
        self._alpn = alpn
        self._port: IListeningPort | None = None

    async def start(self) -> None:
        """Open the listener."""
        self._port = await self._listening.listen(
            self._settings,
            self.factory,
            what=self.name,
            setting=self._setting,
            alpn=self._alpn,
            # Permit TLS 1.2, because some HTTP clients do not support 1.3, such as
            # Ruby's gRPC in older GitLabs.
            minimum=ssl.TLSVersion.TLSv1_2,
            room=self.factory.room,
        )

    async def drain(self, phase: Phase) -> None:
        """Wait until the requests have finished, and abort the rest."""
        if phase is Phase.REQUESTS:
            await self.finish_requests()
            await self.stop()

    async def finish_requests(self) -> None:
        """
        Stop accepting requests, send clients away, and let running requests finish.

        Connections are still accepted for a while, because load balancers continue to
        open them.
        """
        grace = self._settings.listen_grace_period
        if grace:
            await deferLater(self._reactor, grace)
        await self._close_port()
        left = self._settings.shutdown_grace_period
        self.factory.drain(left)
        await until(lambda: not self.factory.unfinished, self._reactor, left)

    async def stop(self) -> None:
        """Abort the connections that are still open."""
        await self._close_port()
        self.factory.close()
        await until(lambda: not self.factory.connections, self._reactor, CLOSE_TIME)
        self.factory.abort()

    async def _close_port(self) -> None:
        port, self._port = self._port, None
        if port is not None:
            await self._listening.close(port)
