"""The other kas of the fleet, and the other workers of this kas."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

import attrs
from google.protobuf.descriptor import ServiceDescriptor
from zope.interface import Interface

from tunnel.api.calls import IServiceClient

__all__ = ["IPeers", "OtherKas"]


@attrs.frozen
class OtherKas:
    """
    Another process of kas.

    :ivar address: the address at which this process reaches it.
    :ivar is_worker: whether it is a worker of this kas, and has the same folders.
    """

    address: str
    is_worker: bool = False


class IPeers(Interface):
    """
    Calls between the kas of a fleet: `IServerModuleApi.peers`.

    The kas of a fleet trust each other: a call has no user, and the module that sends
    the call has checked the rights of its user.
    """

    def handle(service: ServiceDescriptor, implementation: object) -> None:
        """
        Handle the calls of other kas to a service, as `ICalls.handle` does.

        Without the setting ``private_api``, no other kas can call the service.
        """

    def others() -> Sequence[OtherKas]:
        """Return the other kas that are alive; empty if this kas is alone."""

    def client(
        other: OtherKas, service: ServiceDescriptor
    ) -> Awaitable[IServiceClient]:
        """
        Return a client of *service* at another kas, after connecting to it.

        :raises tunnel.errors.CallError: UNAVAILABLE if the other kas cannot be reached.
            A call fails with UNIMPLEMENTED if the other kas does not have the module.
        """
