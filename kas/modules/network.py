"""Listeners of modules, and their requests to other servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from twisted.web.iweb import IAgent
from zope.interface import implementer

from kas.http_client import make_agent
from tunnel.api import INetwork, IRedisPublisher
from tunnel.config import RedisConnection
from tunnel.hosting.scope import ModuleScope
from tunnel.program.module_ports import ModuleListeners, ModulePorts

__all__ = ["ModuleNetwork"]


@implementer(INetwork)
class ModuleNetwork(ModuleListeners):
    """
    Implementation of `INetwork` for one module.

    :param environ: the environment of the process, which may name a proxy.
    :param random: returns a number between 0 and 1, for jitter.
    """

    def __init__(
        self,
        scope: ModuleScope,
        ports: ModulePorts,
        reactor: Any,
        environ: Mapping[str, str],
        random: Callable[[], float],
    ) -> None:
        super().__init__(scope, ports)
        self._reactor = reactor
        self._random = random
        self._environ = environ

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
            settings, self._reactor, self._random, purpose, while_down, available
        )
        self._scope.on_release(publisher.stop)
        return publisher
