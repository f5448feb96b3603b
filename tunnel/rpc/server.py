"""One call, on the responding side."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextvars import Context, copy_context
from typing import Any

import attrs
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from tunnel.api import (
    Access,
    ConnectedAgent,
    ISpan,
    IStream,
    IStreamReceiver,
    ITracer,
    SpanKind,
)
from tunnel.errors import CallError, ErrorCode, ProtocolError, Status
from tunnel.pb import tunnel_pb2 as pb
from tunnel.rpc.access import take_access
from tunnel.rpc.fields import decode_fields, encode_fields
from tunnel.rpc.held_requests import CALL_SIZE, MAX_HELD, HeldRequests
from tunnel.rpc.messages import LENGTH_SIZE, Inbox, Outlet
from tunnel.rpc.status import error_for_caller, error_from_end, trailers
from tunnel.toolkit.timers import cancel_call
from tunnel.toolkit.traces import CURRENT, TRACEPARENT, trace_id_of

# Position before a capital after a small letter, and before the last of several
# capitals, unless only the s of a plural follows it.
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z](?!s(?![a-z]))[a-z])")


def snake_case(name: str) -> str:
    """
    Convert ``GetPodList`` to ``get_pod_list``, and ``ListURIsByID`` to
    ``list_uris_by_id``.
    """
    return _WORD.sub("_", name).lower()


_TOO_MUCH = (
    f"requests of this agent take more than {MAX_HELD // 1024**2} MiB, or than its "
    "part of the limit for all agents; wait for their responses"
)

#: Maximum number of bytes of the metadata of an agent's call: agentk sends the id of a
#: trace.
MAX_AGENT_METADATA = 8192


@attrs.frozen(eq=False)
class CallSettings:
    """
    The settings of all calls of a `tunnel.rpc.dispatch.Dispatcher`.

    :ivar from_kas: whether all streams come from kas, whose `Access` for a call is
        trusted.
    :ivar tracer: creates a span for each call.
    """

    clock: IReactorTime
    from_kas: bool
    tracer: ITracer | None
    memory: HeldRequests


def acceptor(
    method: MethodDescriptor, function: Callable[..., Any], settings: CallSettings
) -> Callable[[IStream, pb.Open], IStreamReceiver]:
    """
    Return the acceptor for a method of a service, as `Dispatcher.handle_stream` needs
    it.
    """

    def accept(stream: IStream, open_: pb.Open) -> IStreamReceiver:
        return ServerCall(method, function, stream, open_, settings)

    return accept


@implementer(IStreamReceiver)
class ServerCall:
    """
    A call in progress, as its handler sees it, and the stream of the call.

    The handler starts as soon as the call is open.  When the caller leaves, or the
    deadline passes, the handler is cancelled where it waits.
    """

    _log = Logger()

    def __init__(
        self,
        method: MethodDescriptor,
        function: Callable[..., Any],
        stream: IStream,
        open_: pb.Open,
        settings: CallSettings,
    ) -> None:
        #: The method, as ``/package.Service/Method``.
        self.method = open_.method
        #: The caller's metadata, with names in lower case.
        self.metadata: dict[str, str] = {}
        #: In agentk, the user on whose behalf kas calls; see `IKubernetes.acting_for`.
        self.access: Access | None = None
        self._from_kas = settings.from_kas
        self._descriptor = method
        self._function = function
        self._stream = stream
        self._clock = clock = settings.clock
        self._memory = settings.memory
        #: Number of bytes of this call's requests that are counted for the agent.
        self._counted = 0
        #: Number of bytes of the call itself that are counted for the agent.
        self._call_size = 0
        #: Whether the stream is closed.
        self._closed = False
        #: Whether the call has ended, even if its caller continues to send.
        self._over = False
        self._request_class = GetMessageClass(method.input_type)
        self._inbox = Inbox()
        self._inbox.stream = stream
        self._take_metadata(open_.metadata)
        self._outlet = Outlet(stream)
        self._deadline: float | None = None
        self._timer: IDelayedCall | None = None
        self._timed_out = False
        if open_.timeout_ms:
            seconds = open_.timeout_ms / 1000
            self._deadline = clock.seconds() + seconds
            self._timer = clock.callLater(seconds, self._late)
        self._span: ISpan | None = None
        self._running: Deferred[None] | None = None
        running = self._traced(settings.tracer).run(Deferred.fromCoroutine, self._run())
        self._running = running
        running.addErrback(self._failed)

    def _take_metadata(self, block: bytes) -> None:
        """
        Count and read the metadata of the call.

        :raises ProtocolError: the metadata of an agent's call is too large, or the
            agent's requests exceed its limit.  The stream ends at once, because
            otherwise data that the caller sends on an open stream would not be counted.
        """
        if self.agent is not None and len(block) > MAX_AGENT_METADATA:
            text = f"metadata of an agent may have at most {MAX_AGENT_METADATA} bytes"
            raise ProtocolError(ErrorCode.MEMORY, text)
        if self.agent is not None:
            size = CALL_SIZE + len(block)
            if not self._memory.open_call(self.agent.agent_id, size):
                raise ProtocolError(ErrorCode.MEMORY, _TOO_MUCH)
            self._call_size = size
        self.metadata = decode_fields(block)

    def _traced(self, tracer: ITracer | None) -> Context:
        """
        Return the context for the handler, so that the handler's own calls continue the
        trace.
        """
        context = copy_context()
        parent = self.metadata.get(TRACEPARENT)
        if trace_id_of(parent) is None:
            parent = None
        if tracer is not None:
            name = self.method.removeprefix("/")
            self._span = tracer.begin(name, SpanKind.SERVER, parent)
            if self._span is not None:
                parent = self._span.traceparent
        context.run(CURRENT.set, parent)
        return context

    @property
    def agent(self) -> ConnectedAgent | None:
        """
        The calling agent, according to its credential, not its own claim; None in
        agentk.
        """
        agent: ConnectedAgent | None = self._stream.agent
        return agent

    @property
    def time_left(self) -> float | None:
        """Seconds until the deadline; None without one."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - self._clock.seconds())

    def send_metadata(self, fields: dict[str, str]) -> None:
        """
        Send initial metadata of the response; call this method only before the first
        response.
        """
        self._stream.send_headers(encode_fields(fields))

    def cancel(self, reason: str) -> None:
        """
        End the call with CANCELLED, and drop the responses that wait to be sent; does
        nothing once its stream is closed.

        The handler is cancelled where it waits, as if the caller had left.
        """
        self._stream.reset(ErrorCode.CANCELLED, reason)

    # Methods of IStreamReceiver

    def headers_received(self, block: bytes) -> None:
        """Reset the stream, because a caller must not send headers after OPEN."""
        self._stream.reset(ErrorCode.PROTOCOL, "headers from the caller")

    def data_received(self, data: bytes) -> None:
        try:
            self._count(len(data))
            self._inbox.feed(data)
        except CallError as error:
            self._inbox.end(error)

    def _count(self, size: int) -> None:
        agent = self.agent
        if agent is not None and not self._over:
            if not self._memory.take(agent.agent_id, size):
                raise CallError(Status.RESOURCE_EXHAUSTED, _TOO_MUCH)
            self._counted += size

    def _uncount(self, size: int) -> None:
        """Give back bytes of requests that are no longer held."""
        if self._counted and self.agent is not None:
            size = min(size, self._counted)
            self._counted -= size
            self._memory.give_back(self.agent.agent_id, size)

    def _uncount_call(self) -> None:
        """
        Give back the call's own bytes after the call has ended and its stream was
        closed.
        """
        if self._over and self._closed and self.agent is not None:
            size, self._call_size = self._call_size, 0
            self._memory.close_call(self.agent.agent_id, size)

    def _close(self) -> None:
        """Drop all further data from the caller."""
        self._over = True
        self._inbox.close()
        self._uncount(self._counted)
        self._uncount_call()

    def fin_received(self) -> None:
        self._inbox.end()

    def stream_closed(self, reason: Exception | None) -> None:
        """End the call, because the caller has finished or is gone."""
        cancel_call(self._timer)
        self._closed = True
        self._uncount_call()
        if reason is not None:
            if self._span is not None:
                self._span.end("the caller gave up")
            self._inbox.end(error_from_end(reason))
            if self._running is not None:
                self._running.cancel()

    # The handler.

    async def _requests(self) -> AsyncIterator[Message]:
        while (data := await self._inbox.next()) is not None:
            # The handler holds one request of a stream at a time.
            self._uncount(len(data) + LENGTH_SIZE)
            yield self._parse(data)

    def _parse(self, data: bytes) -> Message:
        try:
            return self._request_class.FromString(data)
        except DecodeError:
            raise CallError(
                Status.INVALID_ARGUMENT,
                f"not a {self._descriptor.input_type.full_name}",
            ) from None

    async def _run(self) -> None:
        self.access = take_access(self.metadata, self._from_kas)
        if self._descriptor.client_streaming:
            argument: Any = self._requests()
        else:
            data = await self._inbox.next()
            if data is None:
                raise CallError(Status.INVALID_ARGUMENT, "a request is missing")
            argument = self._parse(data)
        if self._descriptor.server_streaming:
            responses = self._function(argument, self)
            try:
                async for response in responses:
                    await self._outlet.send(response)
            except GeneratorExit:
                # The garbage collector also closes *responses*.
                raise
            except BaseException:
                # A call that ends between two responses must not leave the handler's
                # resources to the garbage collector.
                if (close := getattr(responses, "aclose", None)) is not None:
                    await close()
                raise
        else:
            await self._outlet.send(await self._function(argument, self))
        self._end(None)

    def _failed(self, failure: Failure) -> None:
        error = failure.value
        assert error is not None
        shown = error_for_caller(error)
        if self._timed_out:
            shown = CallError(Status.DEADLINE_EXCEEDED, "the deadline passed")
        if shown.status is Status.INTERNAL and shown is not error:
            self._log.failure(
                "{method} failed",
                failure,
                method=self.method,
                trace_id=trace_id_of(self.metadata.get(TRACEPARENT)),
            )
        else:
            # Break the cycle between the error and the frames of its traceback: until
            # the garbage collector runs, each cancelled call would keep its response.
            error.__traceback__ = failure.tb = None
        self._end(shown)

    def _end(self, error: CallError | None) -> None:
        self._running = None
        self._close()
        if self._span is not None:
            self._span.end("" if error is None else str(error))
        self._stream.unregisterProducer()
        self._stream.send_headers(trailers(error), fin=True)

    def _late(self) -> None:
        self._timed_out = True
        if self._running is not None:
            self._running.cancel()
