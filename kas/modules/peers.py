"""Calls of one module between the kas of a fleet."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.descriptor import ServiceDescriptor
from zope.interface import implementer

from kas.fleet.fleet import Fleet
from tunnel.api import IPeers, IServiceClient, OtherKas
from tunnel.hosting.scope import ModuleScope

__all__ = ["ModulePeers"]


@implementer(IPeers)
class ModulePeers:
    """Implementation of `IPeers` for one module."""

    def __init__(self, scope: ModuleScope, fleet: Fleet) -> None:
        self._name = scope.name
        self._fleet = fleet
        if fleet.dispatcher is not None:
            dispatcher = fleet.dispatcher
            scope.on_release(lambda: dispatcher.withdraw(scope.name))

    @classmethod
    def of_kas(cls, name: str, fleet: Fleet) -> ModulePeers:
        """Return the other kas for a part of kas itself, which never stops."""
        return cls(ModuleScope(name, None, lambda _: None), fleet)

    def handle(self, service: ServiceDescriptor, implementation: object) -> None:
        """Register a service for calls of other kas."""
        if self._fleet.dispatcher is not None:
            self._fleet.dispatcher.handle(self._name, service, implementation)

    def others(self) -> Sequence[OtherKas]:
        """Return the other kas, and the other workers of this kas."""
        siblings = self._fleet.sibling_urls
        return [
            OtherKas(one.url, one.url in siblings)
            for one in self._fleet.directory.living()
        ]

    async def client(
        self, other: OtherKas, service: ServiceDescriptor
    ) -> IServiceClient:
        """Return a client of another kas."""
        return await self._fleet.client(other.address, service)
