"""Other kas of a server half, in tests: the halves of several `ModulePair`."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from google.protobuf.descriptor import ServiceDescriptor
from twisted.internet.task import Clock
from zope.interface import implementer

from tunnel.api import IPeers, IServiceClient, OtherKas
from tunnel.errors import CallError, Status
from tunnel.rpc.dispatch import Dispatcher
from tunnel.testing.ends import End, connected
from tunnel.testing.memory import Pipe

__all__ = ["FakePeers"]


@implementer(IPeers)
@attrs.define(eq=False)
class FakePeers:
    """
    `IPeers` of a kas whose peers a test chooses.

    :ivar unreachable: addresses of kas that cannot be reached now.
    """

    clock: Clock
    unreachable: set[str] = attrs.field(factory=set)
    _dispatcher: Dispatcher = attrs.field(init=False)
    _sessions: dict[OtherKas, tuple[End, Pipe]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._dispatcher = Dispatcher(self.clock)

    def join(self, other: FakePeers, address: str, is_worker: bool = False) -> None:
        """Make *other* a peer of this kas, in this direction only."""
        near, far, pipe = connected(self.clock)
        far.dispatcher = other._dispatcher
        self._sessions[OtherKas(address, is_worker)] = near, pipe

    def flush(self) -> bool:
        """Deliver the data in transit; return whether there was any."""
        return any(pipe.step() for _, pipe in self._sessions.values())

    def handle(self, service: ServiceDescriptor, implementation: object) -> None:
        self._dispatcher.handle("test", service, implementation)

    def others(self) -> Sequence[OtherKas]:
        return list(self._sessions)

    async def client(
        self, other: OtherKas, service: ServiceDescriptor
    ) -> IServiceClient:
        if other.address in self.unreachable:
            raise CallError(Status.UNAVAILABLE, "cannot be reached")
        end, _ = self._sessions[other]
        client: IServiceClient = end.client(service)
        return client
