"""Listeners of a server half, and its requests to other servers, in tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.web.iweb import IAgent
from zope.interface import implementer

from tunnel.api import INetwork, ISharedCount, IWorkers
from tunnel.config import Listen

__all__ = ["FakeNetwork", "FakeWorkers"]


@implementer(IListeningPort)
class _Port:
    """Result of `FakeNetwork.listen`, which opens nothing."""

    def startListening(self) -> None:
        pass

    def stopListening(self) -> None:
        pass

    def getHost(self) -> IAddress:
        return IPv4Address("TCP", "127.0.0.1", 40000)


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
            raise AssertionError(f"{setting}: give ModulePair the IAgent to be asked")
        return self._http


@implementer(IWorkers)
class FakeWorkers:
    """`IWorkers` of a kas with a single process."""

    def count_together(self, limit: str, most: int) -> ISharedCount | None:
        return None
