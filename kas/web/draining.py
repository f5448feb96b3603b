"""A listener that ends in order: what runs may finish, and nothing new begins."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from zope.interface import implementer

from tunnel.config import Listen
from tunnel.program.listening import Listening
from tunnel.util.until import until

__all__ = ["DrainingFactory", "DrainingListener"]

#: Seconds that the last bytes get to leave at the end.
CLOSE_TIME = 1.0


@implementer(IProtocolFactory)
class DrainingFactory(ABC, Factory):
    """What makes the connections of such a listener, and knows them."""

    noisy = False

    @property
    @abstractmethod
    def calls(self) -> int:
        """How many requests are under way."""

    @property
    @abstractmethod
    def connections(self) -> int:
        """How many connections there are."""

    @abstractmethod
    def room(self) -> int:
        """How many more there may be; who is in a TLS handshake counts already."""

    @abstractmethod
    def drain(self, grace: float) -> None:
        """Close connections without requests, and the others after theirs."""

    @abstractmethod
    def close(self) -> None:
        """Close every connection once what was written is sent."""

    @abstractmethod
    def abort(self) -> None:
        """Cut every connection."""


class DrainingListener:
    """
    One listener, from its section of the configuration.

    :param what: is listened for.
    :param setting: where the address is configured.
    """

    def __init__(
        self,
        settings: Listen,
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
        self._what = what
        self._setting = setting
        self._alpn = alpn
        self._port: IListeningPort | None = None

    async def start(self) -> None:
        """Listen."""
        self._port = await self._listening.listen(
            self._settings,
            self.factory,
            what=self._what,
            setting=self._setting,
            alpn=self._alpn,
            # Clients of HTTP may not speak 1.3 yet: Ruby's gRPC of older GitLabs.
            minimum=ssl.TLSVersion.TLSv1_2,
            room=self.factory.room,
        )

    async def drain(self) -> None:
        """
        Accept nothing more, send clients away, and let what runs finish.

        Connections are taken for a while yet: load balancers still send them.
        """
        grace = self._settings.listen_grace_period
        if grace:
            await deferLater(self._reactor, grace)
        await self._close_port()
        left = self._settings.shutdown_grace_period
        self.factory.drain(left)
        await until(lambda: not self.factory.calls, self._reactor, left)

    async def stop(self) -> None:
        """Cut what is left."""
        await self._close_port()
        self.factory.close()
        await until(lambda: not self.factory.connections, self._reactor, CLOSE_TIME)
        self.factory.abort()

    async def _close_port(self) -> None:
        port, self._port = self._port, None
        if port is not None:
            await self._listening.close(port)
