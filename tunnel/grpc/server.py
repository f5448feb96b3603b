"""
The server side of a call: a stream, for `tunnel.rpc`, over an HTTP request.

`ServerCall` reads and writes messages with four bytes of length before each, and ends
with a block of trailers.  A `Codec` turns these into what its protocol sends; a
`CallTransport` is the HTTP request below.  `GrpcCall` is gRPC's; what else has messages
in envelopes can be made from `EnvelopeCodec`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from twisted.internet.interfaces import IConsumer, IPushProducer
from zope.interface import implementer

from tunnel.api import ConnectedAgent, ISpan, IStream, IStreamReceiver
from tunnel.errors import CallError, ErrorCode, Status, StreamReset, TunnelError
from tunnel.grpc.fields import Headers, media_type, metadata_to, trailers_of
from tunnel.grpc.memory import RequestMemory, RequestShare
from tunnel.grpc.messages import COMPRESSED, Envelopes, envelope
from tunnel.rpc.fields import decode_fields
from tunnel.rpc.messages import MAX_MESSAGE
from tunnel.rpc.status import error_from_trailers, is_trailers

__all__ = ["CallTransport", "Codec", "EnvelopeCodec", "GrpcCall", "Services"]

_LENGTH = struct.Struct(">I")


class CallTransport(Protocol):
    """One HTTP request, and where its answer goes."""

    def start(self, status: int, headers: Headers, end: bool = False) -> None:
        """Send the head of the answer; with *end*, nothing follows."""

    def write(self, data: bytes) -> None:
        """Send a part of the body."""

    def end(self, trailers: Headers = ()) -> None:
        """End the response; HTTP/1.1 has no trailers."""

    def reset(self) -> None:
        """Abort."""

    def pauseProducing(self) -> None:
        """Deliver no more of the request."""

    def resumeProducing(self) -> None:
        """Go on with it."""

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Pause *producer* while the answer cannot leave."""

    def unregisterProducer(self) -> None:
        """Nothing more comes of it."""


class Services(Protocol):
    """Begins calls of the methods that are answered."""

    def open(
        self,
        stream: IStream,
        path: str,
        metadata: Mapping[str, str],
        timeout: float | None,
    ) -> IStreamReceiver: ...


def _as_it_is(error: CallError) -> CallError:
    return error


@implementer(IStream, IConsumer, IPushProducer)
class Codec:
    """
    A call between `ServerCall` above and an `CallTransport` below.

    The transport calls `body`, `body_ended` and `gone`; what derives from this sends.
    """

    #: No agent calls here.
    agent: ConnectedAgent | None = None
    #: The field that says how messages are compressed.
    encoding_field = "grpc-encoding"

    def __init__(
        self,
        transport: CallTransport,
        memory: RequestMemory,
        headers: Mapping[str, str],
    ) -> None:
        self.transport = transport
        self.content_type = media_type(headers)
        self.encoding = headers.get(self.encoding_field, "identity")
        #: Memory that this call holds for an incomplete request.
        self.share = RequestShare(memory)
        self._receiver: IStreamReceiver | None = None
        #: Converts an error for the client, and logs it.
        self.told: Callable[[CallError], CallError] = _as_it_is
        #: Initial metadata of the answer, until that has begun.
        self.metadata: dict[str, str] = {}
        self.ended = False
        #: Ended with the call.
        self.span: ISpan | None = None

    @property
    def limit(self) -> int:
        """Bytes of one request; more end the call."""
        return MAX_MESSAGE

    # For the derived classes.

    def open(
        self,
        services: Services,
        path: str,
        metadata: Mapping[str, str],
        timeout: float | None,
    ) -> None:
        """Begin the call."""
        receiver = services.open(self, path, metadata, timeout)
        if self.ended:
            # The handler is done without having waited for anything.
            receiver.stream_closed(None)
        else:
            self._receiver = receiver

    def request(self, *messages: bytes) -> None:
        """Messages of the client, all that came at once: there may be thousands."""
        if self._receiver is not None and messages:
            parts: list[bytes] = []
            for one in messages:
                parts += (_LENGTH.pack(len(one)), one)
            self._receiver.data_received(b"".join(parts))

    def requests_ended(self) -> None:
        """Note that the client sends no more requests."""
        if self._receiver is not None:
            self._receiver.fin_received()

    def refuse(self, error: CallError) -> None:
        """End the call, whether it has begun or not."""
        if not self.ended:
            self.ended = True
            told = self.told(error)
            self.finished(told)
            self._close(error, str(told))

    def respond(self, message: bytes) -> None:
        raise NotImplementedError

    def finished(self, error: CallError | None) -> None:
        """Send how the call went; called once."""
        raise NotImplementedError

    # From the transport.

    def body(self, data: bytes) -> None:
        raise NotImplementedError

    def body_ended(self) -> None:
        raise NotImplementedError

    def gone(self, reason: TunnelError) -> None:
        """End a call whose client gave up or lost its connection."""
        self.ended = True
        self._close(reason, str(reason))

    def drop(self) -> None:
        """Forget what is not whole."""

    def decode(self, message: bytes) -> bytes:
        """
        Return a request as protobuf.

        :raises CallError: it cannot be read.
        """
        return message

    def encode(self, message: bytes) -> bytes:
        """Return a response in the client's encoding."""
        return message

    def _close(self, reason: Exception | None, problem: str = "") -> None:
        self.share.release()
        self.drop()
        if self.span is not None:
            self.span.end(problem)
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.stream_closed(reason)

    # IStream, for ServerCall.

    def send_headers(self, block: bytes, fin: bool = False) -> None:
        """Send initial metadata, or the trailers."""
        if self.ended:
            return
        if is_trailers(block):
            self.ended = True
            error = error_from_trailers(block)
            told = None if error is None else self.told(error)
            self.finished(told)
            self._close(None, "" if told is None else str(told))
        else:
            self.metadata = decode_fields(block)

    def write(self, data: bytes) -> None:
        """One message with its length before it: `Outlet` writes them as a whole."""
        if not self.ended:
            self.respond(data[_LENGTH.size :])

    def finish(self) -> None:
        """`ServerCall` ends with trailers."""

    def reset(self, code: int = ErrorCode.CANCELLED, message: str = "") -> None:
        if not self.ended:
            self.ended = True
            self.transport.reset()
            self._close(StreamReset(ErrorCode(code), message, by_peer=False), message)

    def pauseProducing(self) -> None:
        self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        self.transport.resumeProducing()

    def stopProducing(self) -> None:
        self.reset()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self.transport.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        self.transport.unregisterProducer()


class EnvelopeCodec(Codec):
    """
    A call with messages in envelopes, both ways; the HTTP status is always 200.

    :ivar unreadable: what the call ends with when its body makes no sense.
    """

    unreadable: Status

    def __init__(
        self,
        transport: CallTransport,
        memory: RequestMemory,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(transport, memory, headers)
        self._envelopes = Envelopes(self.limit)
        self._begun = False

    def body(self, data: bytes) -> None:
        """Take a part of the requests."""
        if self.ended:
            return
        try:
            found = self._envelopes.feed(data)
            self.share.hold(self._envelopes.waiting)
            for flags, _ in found:
                if flags:
                    raise self.not_plain(flags)
            self.request(*[self.decode(message) for _, message in found])
        except CallError as error:
            self.refuse(error)

    def body_ended(self) -> None:
        if self._envelopes.waiting:
            self.refuse(CallError(self.unreadable, "cut within a message"))
        self.requests_ended()

    def drop(self) -> None:
        self._envelopes.clear()

    def not_plain(self, flags: int) -> CallError:
        """Why a message with such *flags* is not taken."""
        message = "a message with flags that mean nothing here"
        return CallError(self.unreadable, message)

    def respond(self, message: bytes) -> None:
        data = self.encode(message)
        self._begin()
        self.transport.write(envelope(data))

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self.transport.start(200, self._head())

    def _head(self) -> Headers:
        """Headers of the answer."""
        raise NotImplementedError


class GrpcCall(EnvelopeCodec):
    """One call of gRPC: messages in envelopes, and the outcome in trailers."""

    unreadable = Status.INTERNAL

    def not_plain(self, flags: int) -> CallError:
        """Why a message with such *flags* is not taken."""
        if flags == COMPRESSED and self.encoding != "identity":
            return CallError(
                Status.UNIMPLEMENTED,
                f"messages in {self.encoding[:40]!r}: only identity is taken",
            )
        return super().not_plain(flags)

    def finished(self, error: CallError | None) -> None:
        """Trailers; where nothing was sent before them, they are all there is."""
        if self._begun:
            self.transport.end(trailers_of(error))
        else:
            self.transport.start(200, trailers_of(error, self._head()), end=True)

    def _head(self) -> list[tuple[bytes, bytes]]:
        return [
            (b"content-type", b"application/grpc+proto"),
            (b"grpc-accept-encoding", b"identity"),
            *metadata_to(self.metadata),
        ]
