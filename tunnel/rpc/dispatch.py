"""Assignment of streams from the other side to the handlers of their methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from twisted.internet.interfaces import IReactorTime

from tunnel.api import IStream, IStreamReceiver, ITracer
from tunnel.errors import ErrorCode, ProtocolError
from tunnel.pb import tunnel_pb2 as pb
from tunnel.rpc.held_requests import HeldRequests
from tunnel.rpc.server import CallSettings, acceptor, snake_case
from tunnel.toolkit.texts import clean

Accept = Callable[[IStream, Any], IStreamReceiver]


class Dispatcher:
    """
    A table of methods and their handlers.

    `withdraw` removes all handlers that were registered under a module's name, so that
    a module can restart while the tunnels stay.

    :param from_kas: whether all streams come from kas, whose `Access` for a call is
        trusted.
    :param tracer: creates a span for each call.
    """

    def __init__(
        self,
        clock: IReactorTime,
        *,
        from_kas: bool = False,
        tracer: ITracer | None = None,
    ) -> None:
        self._clock = clock
        self._from_kas = from_kas
        self._memory = HeldRequests()
        self.tracer = tracer
        self._accepts: dict[str, tuple[str, Accept]] = {}

    def handle(
        self,
        owner: str,
        service: ServiceDescriptor,
        implementation: object,
        ready: Callable[[], None] | None = None,
    ) -> None:
        """
        Register *implementation* for each method of *service*, by the method's name in
        snake_case.

        :param ready: raises a CallError if calls cannot be handled now.  Such calls are
            refused, so that kas tries another agentk of the agent.
        :raises ValueError: a method is missing, or is handled by another module.
        """
        settings = CallSettings(self._clock, self._from_kas, self.tracer, self._memory)
        for method in service.methods:
            function = getattr(implementation, snake_case(method.name), None)
            if function is None:
                raise ValueError(
                    f"{type(implementation).__name__} has no method "
                    f"{snake_case(method.name)}, which {service.full_name} requires"
                )
            name = f"/{service.full_name}/{method.name}"
            accept = acceptor(method, function, settings)
            if ready is not None:
                accept = _where(ready, accept)
            self.handle_stream(owner, name, accept)

    def handle_stream(self, owner: str, method: str, accept: Accept) -> None:
        """
        Register a handler of raw streams for *method*.

        :raises ValueError: if *method* is handled by another module.
        """
        taken = self._accepts.get(method)
        if taken is not None and taken[0] != owner:
            raise ValueError(f"{method} is already handled by the module {taken[0]}")
        self._accepts[method] = (owner, accept)

    def withdraw(self, owner: str) -> None:
        """Remove everything that *owner* registered."""
        self._accepts = {
            name: entry for name, entry in self._accepts.items() if entry[0] != owner
        }

    @property
    def services(self) -> list[str]:
        """The full names of the registered services, for HELLO and WELCOME."""
        return sorted({name.rsplit("/", 1)[0].lstrip("/") for name in self._accepts})

    def accept(self, stream: IStream, open_: pb.Open) -> IStreamReceiver:
        """
        Return the receiver for a stream.

        :raises ProtocolError: no handler is registered.
        """
        entry = self._accepts.get(open_.method)
        if entry is None:
            raise ProtocolError(
                ErrorCode.UNKNOWN_METHOD,
                f"{clean(open_.method, 200)} is not served here",
            )
        return entry[1](stream, open_)


def _where(ready: Callable[[], None], accept: Accept) -> Accept:
    def accept_if_ready(stream: IStream, open_: pb.Open) -> IStreamReceiver:
        ready()
        return accept(stream, open_)

    return accept_if_ready
