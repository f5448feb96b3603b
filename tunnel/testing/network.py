"""Listeners of a server half, and its requests to other servers, in tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.web.iweb import IAgent
from zope.interface import implementer

from tunnel.api import INetwork, IRedisPublisher, ISharedCount, IWorkers
from tunnel.config import Listen, RedisConnection
from tunnel.errors import CallError, Status

__all__ = ["FakeNetwork", "FakeRedisPublisher", "FakeWorkers"]


@implementer(IListeningPort)
class _Port:
    """Result of `FakeNetwork.listen`, which opens nothing."""

    def startListening(self) -> None:
        pass

    def stopListening(self) -> None:
        pass

    def getHost(self) -> IAddress:
        return IPv4Address("TCP", "127.0.0.1", 40000)


@implementer(IRedisPublisher)
class FakeRedisPublisher:
    """
    Redis in memory.

    :ivar published: the channels and messages so far.
    :ivar answers: whether Redis responds; `respond` sends the missing responses.
    """

    def __init__(
        self, settings: RedisConnection, available: Callable[[], object]
    ) -> None:
        self.settings = settings
        self.published: list[tuple[str, bytes]] = []
        self.answers = True
        self._up = True
        self._available = available
        self._waiting: list[Deferred[None]] = []

    @property
    def is_up(self) -> bool:
        return self._up

    def publish(self, channel: str, message: bytes) -> Deferred[None]:
        if not self._up:
            return fail(CallError(Status.UNAVAILABLE, "Redis is down: a test"))
        self.published.append((channel, message))
        if self.answers:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting

    def respond(self) -> None:
        """Respond to the messages that wait for it, and to all later ones."""
        self.answers = True
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.callback(None)

    def set_up(self, up: bool) -> None:
        """Begin or end an outage, during which messages without a response fail."""
        self._up = up
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.errback(CallError(Status.UNAVAILABLE, "the connection was lost"))
        if up:
            self._available()


@implementer(INetwork)
class FakeNetwork:
    """
    `INetwork` that opens nothing.

    :param http: responds to requests of the module to other servers.
    """

    def __init__(self, http: IAgent | None = None) -> None:
        self._http = http
        #: Listeners of the module: endpoint string -> factory.
        self.listening: dict[str, Any] = {}
        #: Connections of the module to Redis, by purpose.
        self.redis: dict[str, FakeRedisPublisher] = {}

    def listen(self, endpoint: Any, factory: Any, path: str = "") -> Deferred[Any]:
        if isinstance(endpoint, Listen):
            endpoint = endpoint.endpoint_string()
        self.listening[endpoint] = factory
        return succeed(_Port())

    def http_agent(
        self,
        setting: str,
        ca_certificate_file: Path | None = None,
        *,
        connections: int = 2,
    ) -> IAgent:
        if self._http is None:
            raise AssertionError(f"{setting}: pass an IAgent to ModulePair")
        return self._http

    def redis_publisher(
        self,
        settings: RedisConnection,
        *,
        purpose: str,
        while_down: str,
        available: Callable[[], object],
    ) -> IRedisPublisher:
        self.redis[purpose] = made = FakeRedisPublisher(settings, available)
        return made


@implementer(IWorkers)
class FakeWorkers:
    """`IWorkers` of a kas with a single process."""

    def count_together(self, limit: str, most: int) -> ISharedCount | None:
        return None
