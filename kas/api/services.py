"""Table of the methods of the external API, and of the modules that implement them."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from twisted.internet.interfaces import IReactorTime

from tunnel.api import IStream, IStreamReceiver, ITracer
from tunnel.pb import tunnel_pb2 as pb
from tunnel.rpc.dispatch import Dispatcher
from tunnel.rpc.fields import encode_fields

__all__ = ["MAX_TIMEOUT", "ExternalServices"]

#: Maximum timeout of a call, in seconds.  No call takes longer than a day, but gRPC
#: allows 11,000 years.
MAX_TIMEOUT = 86400.0


class ExternalServices:
    """
    Table of the services that modules registered as external.

    External clients cannot call the methods for agents, which are in another table.
    """

    def __init__(self, clock: IReactorTime, tracer: ITracer | None = None) -> None:
        self.clock = clock
        #: Tracer that creates a span for each call.
        self.tracer = tracer
        self._dispatcher = Dispatcher(clock)
        self._methods: dict[str, tuple[str, MethodDescriptor]] = {}

    def handle(
        self, owner: str, service: ServiceDescriptor, implementation: object
    ) -> None:
        """Register the methods of *service*; see `tunnel.rpc.dispatch.Dispatcher`."""
        self._dispatcher.handle(owner, service, implementation)
        for method in service.methods:
            self._methods[f"/{service.full_name}/{method.name}"] = (owner, method)

    def withdraw(self, owner: str) -> None:
        """Remove everything that *owner* registered."""
        self._dispatcher.withdraw(owner)
        self._methods = {
            path: entry for path, entry in self._methods.items() if entry[0] != owner
        }

    @property
    def names(self) -> list[str]:
        """Full names of the registered services."""
        return self._dispatcher.services

    def method(self, path: str) -> MethodDescriptor | None:
        """
        Return the method ``/package.Service/Method``; None if no module implements it.
        """
        entry = self._methods.get(path)
        return None if entry is None else entry[1]

    def open(
        self,
        stream: IStream,
        path: str,
        metadata: Mapping[str, str],
        timeout: float | None,
    ) -> IStreamReceiver:
        """
        Begin a call.

        :param timeout: maximum seconds of the call; None for no limit.
        """
        open_ = pb.Open(method=path, metadata=encode_fields(metadata))
        if timeout is not None:
            # A timeout of 0 would mean no limit.
            open_.timeout_ms = max(1, round(min(timeout, MAX_TIMEOUT) * 1000))
        return self._dispatcher.accept(stream, open_)
