"""
The server side of a call: a stream, for `tunnel.rpc`, over an HTTP request.

`ServerCall` reads and writes messages with four bytes of length before each, and ends
with a block of trailers.  A `Codec` converts these for its protocol; a `CallTransport`
is the underlying HTTP request. `GrpcCall` is the codec for gRPC; other protocols with
messages in envelopes can be derived from `EnvelopeCodec`.
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
    """One HTTP request, and its response."""

    def start(self, status: int, headers: Headers, end: bool = False) -> None:
        """Send the head of the response; with *end*, nothing follows."""

    def write(self, data: bytes) -> None:
        """Send a part of the body."""

    def end(self, trailers: Headers = ()) -> None:
        """End the response; HTTP/1.1 has no trailers."""

    def reset(self) -> None:
        """Abort the request."""

    def pauseProducing(self) -> None:
        """Pause delivery of the request."""

    def resumeProducing(self) -> None:
        """Resume delivery of the request."""

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Register *producer*, which is paused while the response cannot be sent."""

    def unregisterProducer(self) -> None:
        """Forget the producer."""


class Services(Protocol):
    """The services whose methods can be called."""

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
    Converter of a call between `ServerCall` and an underlying `CallTransport`.

    The transport calls `body`, `body_ended` and `gone`; subclasses send responses.
    """

    #: None, because the caller is not an agent.
    agent: ConnectedAgent | None = None
    #: Name of the header field with the compression of messages.
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
        #: Function that logs an error, and returns it for the client.
        self.error_for_client: Callable[[CallError], CallError] = _as_it_is
        #: Initial metadata of the response; empty once the response has begun.
        self.metadata: dict[str, str] = {}
        self.ended = False
        #: The span of the call, which ends with the call.
        self.span: ISpan | None = None

    @property
    def limit(self) -> int:
        """
        The maximum number of bytes of one request; a larger request ends the call.
        """
        return MAX_MESSAGE

    # Methods for subclasses.

    def open(
        self,
        services: Services,
        path: str,
        metadata: Mapping[str, str],
        timeout: float | None,
    ) -> None:
        """Start the call."""
        receiver = services.open(self, path, metadata, timeout)
        if self.ended:
            # The handler has finished without waiting for anything.
            receiver.stream_closed(None)
        else:
            self._receiver = receiver

    def request(self, *messages: bytes) -> None:
        """Handle messages of the client; thousands of them may arrive at once."""
        if self._receiver is not None and messages:
            parts: list[bytes] = []
            for one in messages:
                parts += (_LENGTH.pack(len(one)), one)
            self._receiver.data_received(b"".join(parts))

    def requests_ended(self) -> None:
        """Record that the client sends no more requests."""
        if self._receiver is not None:
            self._receiver.fin_received()

    def refuse(self, error: CallError) -> None:
        """End the call with *error*, whether or not it has started."""
        if not self.ended:
            self.ended = True
            shown = self.error_for_client(error)
            self.finished(shown)
            self._close(error, str(shown))

    def respond(self, message: bytes) -> None:
        raise NotImplementedError

    def finished(self, error: CallError | None) -> None:
        """Send the outcome of the call; this method is called once."""
        raise NotImplementedError

    # Callbacks of the transport.

    def body(self, data: bytes) -> None:
        raise NotImplementedError

    def body_ended(self) -> None:
        raise NotImplementedError

    def gone(self, reason: TunnelError) -> None:
        """End a call whose client cancelled it or lost its connection."""
        self.ended = True
        self._close(reason, str(reason))

    def drop(self) -> None:
        """Forget an incomplete message."""

    def decode(self, message: bytes) -> bytes:
        """
        Return a request as protobuf.

        :raises CallError: if the message is malformed.
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

    # Methods of IStream, for ServerCall.

    def send_headers(self, block: bytes, fin: bool = False) -> None:
        """Send initial metadata, or the trailers."""
        if self.ended:
            return
        if is_trailers(block):
            self.ended = True
            error = error_from_trailers(block)
            shown = None if error is None else self.error_for_client(error)
            self.finished(shown)
            self._close(None, "" if shown is None else str(shown))
        else:
            self.metadata = decode_fields(block)

    def write(self, data: bytes) -> None:
        """
        Send one message, which begins with its length: `Outlet` writes whole messages.
        """
        if not self.ended:
            self.respond(data[_LENGTH.size :])

    def finish(self) -> None:
        """Do nothing: `ServerCall` ends with trailers."""

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
    Codec of a call with messages in envelopes in both directions; the HTTP status is
    always 200.

    :ivar unreadable: the status of a call with a malformed body.
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
        """Handle a part of the requests."""
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
            self.refuse(CallError(self.unreadable, "the stream ended within a message"))
        self.requests_ended()

    def drop(self) -> None:
        self._envelopes.clear()

    def not_plain(self, flags: int) -> CallError:
        """Return the error for a message with unsupported *flags*."""
        message = "a message with unknown flags"
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
        """Return the headers of the response."""
        raise NotImplementedError


class GrpcCall(EnvelopeCodec):
    """Codec of a gRPC call: messages in envelopes, and the outcome in trailers."""

    unreadable = Status.INTERNAL

    def not_plain(self, flags: int) -> CallError:
        """Return the error for a message with unsupported *flags*."""
        if flags == COMPRESSED and self.encoding != "identity":
            return CallError(
                Status.UNIMPLEMENTED,
                f"messages in {self.encoding[:40]!r}: only identity is supported",
            )
        return super().not_plain(flags)

    def finished(self, error: CallError | None) -> None:
        """
        Send the trailers, which are the whole response if nothing was sent before.
        """
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
