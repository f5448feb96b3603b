"""Listeners of modules, and their requests to other servers."""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort
from twisted.web.iweb import IAgent
from zope.interface import implementer

from kas.http_client import make_agent
from tunnel.api import INetwork, IRedisPublisher
from tunnel.config import RedisConnection
from tunnel.hosting.scope import ModuleScope
from tunnel.program.listening import Listening

__all__ = ["ModuleNetwork", "ModulePorts"]


class ModulePorts:
    """Table of the ports that modules have opened, by module."""

    def __init__(self, listening: Listening) -> None:
        self.listening = listening
        self._ports: dict[str, list[IListeningPort]] = {}

    def add(self, module: str, port: IListeningPort) -> None:
        """Record a port that a module has opened."""
        self._ports.setdefault(module, []).append(port)

    async def close(self) -> None:
        """Close all ports, so that no client connects any more."""
        for ports in tuple(self._ports.values()):
            for port in ports:
                await self.listening.close(port)

    def release(self, module: str) -> None:
        """Close the ports of a module."""
        for port in self._ports.pop(module, []):
            Deferred.fromCoroutine(self.listening.close(port))


@implementer(INetwork)
class ModuleNetwork:
    """
    Implementation of `INetwork` for one module.

    :param environ: the environment of the process, which may name a proxy.
    """

    def __init__(
        self,
        scope: ModuleScope,
        ports: ModulePorts,
        reactor: Any,
        environ: Mapping[str, str],
    ) -> None:
        self._scope = scope
        self._ports = ports
        self._reactor = reactor
        self._environ = environ
        scope.on_release(lambda: ports.release(scope.name))

    def listen(
        self, endpoint: Any, factory: Any, path: str = ""
    ) -> Deferred[IListeningPort]:
        """Listen until the module stops."""
        scope = self._scope
        configured = endpoint is getattr(scope.configuration, "listen", None)
        setting = f"{scope.path}.listen.address" if configured and scope.path else ""

        async def opened() -> IListeningPort:
            port = await self._ports.listening.listen(
                endpoint,
                factory,
                what=scope.name,
                setting=setting,
                alpn=("http/1.1",),
                # Permit TLS 1.2, because kubectl and other HTTP clients may not support
                # 1.3 yet.
                minimum=ssl.TLSVersion.TLSv1_2,
                path=path,
            )
            self._ports.add(scope.name, port)
            return port

        return Deferred.fromCoroutine(opened())

    def http_agent(
        self,
        setting: str,
        ca_certificate_file: Path | None = None,
        *,
        connections: int = 2,
    ) -> IAgent:
        """Return an HTTP client for another server."""
        return make_agent(
            ca_certificate_file,
            setting,
            self._reactor,
            self._environ,
            connections=connections,
        )

    def redis_publisher(
        self,
        settings: RedisConnection,
        *,
        purpose: str,
        while_down: str,
        available: Callable[[], object],
    ) -> IRedisPublisher:
        """Connect to a Redis of another system."""
        # Import it here, because the import installs the reactor.
        from kas.modules.redis_publisher import RedisPublisher

        publisher = RedisPublisher(
            settings, self._reactor, random.random, purpose, while_down, available
        )
        self._scope.on_release(publisher.stop)
        return publisher
