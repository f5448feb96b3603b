"""One call, on the requesting side."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

from tunnel.api import (
    Access,
    IClientCall,
    IServiceClient,
    IStream,
    IStreamReceiver,
    IWaitingStream,
)
from tunnel.errors import CallError, ErrorCode, Status, TunnelError
from tunnel.rpc.access import RESERVED, access_fields
from tunnel.rpc.fields import decode_fields, encode_fields
from tunnel.rpc.messages import Inbox, Outlet
from tunnel.rpc.status import error_from_end, error_from_trailers, is_trailers
from tunnel.toolkit.timers import cancel_call
from tunnel.toolkit.traces import CURRENT, TRACEPARENT


class StreamOpener(Protocol):
    """A function that opens a stream to the destination of a client's calls."""

    def __call__(
        self,
        method: str,
        receiver: IStreamReceiver,
        *,
        metadata: bytes = b"",
        timeout: float = 0,
    ) -> IStream: ...


@implementer(IServiceClient)
class ServiceClient:
    """
    A client of one service.

        client = api.client(DESCRIPTOR.services_by_name["Echo"], agent_id)
        answer = await client.call("Say", SayRequest(text="hello"), timeout=5)
        async for event in client.stream("Watch", WatchRequest()):
            ...

    Every failure is a `tunnel.errors.CallError`.

    :param access: the user for whom calls are made; None if this side makes calls on
        its own behalf.
    """

    def __init__(
        self,
        service: ServiceDescriptor,
        opener: StreamOpener,
        clock: IReactorTime,
        access: Access | None = None,
    ) -> None:
        self._service = service
        self._opener = opener
        self._clock = clock
        self._access = {} if access is None else access_fields(access)

    async def call(
        self,
        method: str,
        request: Message,
        *,
        timeout: float = 0,
        metadata: Mapping[str, str] | None = None,
    ) -> Any:
        """
        Send one request and return its response.

        :param timeout: seconds until DEADLINE_EXCEEDED; 0 for no limit.
        """
        call = self.open(method, timeout=timeout, metadata=metadata)
        try:
            await call.send(request)
            call.finish()
            return await call.response()
        finally:
            call.cancel()

    async def stream(
        self,
        method: str,
        request: Message,
        *,
        timeout: float = 0,
        metadata: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Any, None]:
        """
        Send one request and yield its responses; leaving the loop cancels the call.
        """
        call = self.open(method, timeout=timeout, metadata=metadata)
        try:
            await call.send(request)
            call.finish()
            async for response in call:
                yield response
        finally:
            call.cancel()

    def open(
        self,
        method: str,
        *,
        timeout: float = 0,
        metadata: Mapping[str, str] | None = None,
    ) -> ClientCall:
        """Begin a call with streams of requests and responses."""
        descriptor = self._service.methods_by_name[method]
        # A module may forward fields of its own callers; these must not be treated as
        # an access.
        fields = {
            name: value
            for name, value in (metadata or {}).items()
            if not name.lower().startswith(RESERVED)
        }
        current = CURRENT.get()
        if current is not None:
            fields.setdefault(TRACEPARENT, current)
        return ClientCall(
            descriptor,
            self._opener,
            self._clock,
            metadata=encode_fields({**fields, **self._access}),
            timeout=timeout,
        )


@implementer(IClientCall, IStreamReceiver)
class ClientCall:
    """A call: it sends requests, and returns responses."""

    def __init__(
        self,
        method: MethodDescriptor,
        opener: StreamOpener,
        clock: IReactorTime,
        *,
        metadata: bytes,
        timeout: float,
    ) -> None:
        #: Initial metadata of the response; empty until it arrives.
        self.metadata: dict[str, str] = {}
        #: Further fields of the trailers, once the call has ended.
        self.trailers: dict[str, str] = {}
        self._response_class = GetMessageClass(method.output_type)
        self._inbox = Inbox()
        self._trailers: bytes | None = None
        self._closed = False
        self._timer: IDelayedCall | None = None
        try:
            self._stream = opener(
                f"/{method.containing_service.full_name}/{method.name}",
                self,
                metadata=metadata,
                timeout=timeout,
            )
        except TunnelError as error:
            raise error_from_end(error) from error
        self._inbox.stream = self._stream
        self._outlet = Outlet(self._stream)
        if timeout and not self._closed:
            self._timer = clock.callLater(timeout, self._late)

    async def send(self, request: Message) -> None:
        """
        Send one request when there is room.

        :raises CallError: the call is over.
        """
        try:
            await self._outlet.send(request)
        except CallError:
            if self._outlet.closed:
                # Raise the reason why the call ended instead of an error about the
                # missing stream.
                await self._inbox.next()
            raise

    def finish(self) -> None:
        self._stream.unregisterProducer()
        self._stream.finish()

    async def response(self) -> Any:
        """Return the response of a call that has exactly one."""
        data = await self._inbox.next()
        if data is None:
            raise CallError(Status.INTERNAL, "the call ended without a response")
        # The trailers decide: if the call failed, its response is ignored.
        if await self._inbox.next() is not None:
            raise CallError(Status.INTERNAL, "more than one response")
        return self._parse(data)

    def __aiter__(self) -> ClientCall:
        return self

    async def __anext__(self) -> Any:
        data = await self._inbox.next()
        if data is None:
            raise StopAsyncIteration
        return self._parse(data)

    def cancel(self) -> None:
        """Cancel the call; does nothing if it is over."""
        if not self._closed:
            self._stream.reset(ErrorCode.CANCELLED)

    # Methods of IStreamReceiver

    def headers_received(self, block: bytes) -> None:
        """Handle initial metadata, or the trailers."""
        if is_trailers(block):
            self._trailers = block
            fields = decode_fields(block)
            self.trailers = {
                name: value
                for name, value in fields.items()
                if name not in ("status", "message", "details")
            }
        else:
            self.metadata = decode_fields(block)

    def data_received(self, data: bytes) -> None:
        try:
            self._inbox.feed(data)
        except CallError as error:
            self._inbox.end(error)
            self.cancel()

    def fin_received(self) -> None:
        """Handle the end of the response; the trailers contain its status."""
        if self._trailers is None:
            self._inbox.end(error_from_end(None))
        else:
            self._inbox.end(error_from_trailers(self._trailers))
        if not self._closed:
            self.finish()

    def stream_closed(self, reason: Exception | None) -> None:
        self._closed = True
        cancel_call(self._timer)
        self._inbox.end(error_from_end(reason))

    def _parse(self, data: bytes) -> Message:
        try:
            return self._response_class.FromString(data)
        except DecodeError:
            raise CallError(Status.INTERNAL, "a malformed response") from None

    def _late(self) -> None:
        error = CallError(Status.DEADLINE_EXCEEDED, "no response within the given time")
        # In kas, the stream may still wait for its agent, and can then give the reason.
        stream = self._stream
        if IWaitingStream.providedBy(stream) and (away := stream.absence()) is not None:
            error = error_from_end(away)
        self._inbox.end(error)
        self._stream.reset(ErrorCode.DEADLINE)
