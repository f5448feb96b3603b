"""
One call: a stream, for the machinery of `tunnel.rpc`, over an HTTP request.

`ServerCall` reads and writes messages with four bytes of length before each, and ends
with a block of trailers.  A `Codec` turns these into what gRPC or Connect want to see;
an `Exchange` is the HTTP request below, of either version.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from twisted.internet.interfaces import IConsumer, IPushProducer
from zope.interface import implementer

from kas.api.held import Held, Holder
from kas.api.services import ExternalServices
from tunnel.errors import CallError, ErrorCode, StreamReset, TunnelError
from tunnel.interfaces import ConnectedAgent, IStream, IStreamReceiver
from tunnel.rpc.fields import decode_fields
from tunnel.rpc.messages import MAX_MESSAGE
from tunnel.rpc.status import error_from_trailers, is_trailers

__all__ = [
    "Codec",
    "Exchange",
    "Headers",
    "media_type",
    "metadata_from",
    "metadata_to",
]

Headers = Sequence[tuple[bytes, bytes]]

LENGTH = struct.Struct(">I")

# Of HTTP, of the protocols, and the token: no module has any use for them.
_NOT_METADATA = re.compile(
    r":.*|(grpc|connect)-.*|x-forwarded-.*|authorization|cookie|host|te|trailer|accept"
    r"|accept-encoding|connection|content-.*|keep-alive|proxy-.*|transfer-encoding"
    r"|upgrade|date|server"
)
_NAME = re.compile(r"[a-z0-9_.-]+")
_NOT_PRINTABLE = re.compile(r"[^ -~]")


class Exchange(Protocol):
    """One HTTP request, and where its answer goes."""

    def start(self, status: int, headers: Headers, end: bool = False) -> None:
        """Send the head of the answer; with *end*, nothing follows."""

    def write(self, data: bytes) -> None:
        """Send a part of the body."""

    def end(self, trailers: Headers = ()) -> None:
        """The answer is complete; HTTP/1.1 has no trailers."""

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


@implementer(IStream, IConsumer, IPushProducer)
class Codec:
    """
    A call between `ServerCall` above and an `Exchange` below.

    The exchange calls `body`, `body_ended` and `gone`; what derives from this sends.
    """

    #: No agent calls here.
    agent: ConnectedAgent | None = None

    def __init__(
        self, exchange: Exchange, held: Held, headers: Mapping[str, str]
    ) -> None:
        self.exchange = exchange
        self.content_type = media_type(headers)
        #: What this call holds of a request that is not whole.
        self.holder = Holder(held)
        self._receiver: IStreamReceiver | None = None
        #: Initial metadata of the answer, until that has begun.
        self.metadata: dict[str, str] = {}
        self.ended = False

    @property
    def limit(self) -> int:
        """Bytes of one request; more end the call."""
        return MAX_MESSAGE

    # For the derived classes.

    def open(
        self,
        services: ExternalServices,
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
                parts += (LENGTH.pack(len(one)), one)
            self._receiver.data_received(b"".join(parts))

    def requests_ended(self) -> None:
        """It sends no more."""
        if self._receiver is not None:
            self._receiver.fin_received()

    def refuse(self, error: CallError) -> None:
        """End the call, whether it has begun or not."""
        if not self.ended:
            self.ended = True
            self.finished(error)
            self._close(error)

    def respond(self, message: bytes) -> None:
        """Send one message."""
        raise NotImplementedError

    def finished(self, error: CallError | None) -> None:
        """Send how the call went; called once."""
        raise NotImplementedError

    # From the exchange.

    def body(self, data: bytes) -> None:
        """A part of the request."""
        raise NotImplementedError

    def body_ended(self) -> None:
        """The request is complete."""
        raise NotImplementedError

    def gone(self, reason: TunnelError) -> None:
        """The client gave up, or its connection is lost."""
        self.ended = True
        self._close(reason)

    def drop(self) -> None:
        """Forget what is not whole."""

    def decode(self, message: bytes) -> bytes:
        """A request as protobuf; :raises CallError: it cannot be read."""
        return message

    def encode(self, message: bytes) -> bytes:
        """A response as the client wants it."""
        return message

    def _close(self, reason: Exception | None) -> None:
        self.holder.release()
        self.drop()
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.stream_closed(reason)

    # IStream, for ServerCall.

    def send_headers(self, block: bytes, fin: bool = False) -> None:
        """Initial metadata, or the trailers."""
        if self.ended:
            return
        if is_trailers(block):
            self.ended = True
            self.finished(error_from_trailers(block))
            self._close(None)
        else:
            self.metadata = decode_fields(block)

    def write(self, data: bytes) -> None:
        """One message with its length before it: `Outlet` writes them as a whole."""
        if not self.ended:
            self.respond(data[LENGTH.size :])

    def finish(self) -> None:
        """`ServerCall` ends with trailers."""

    def reset(self, code: int = ErrorCode.CANCELLED, message: str = "") -> None:
        """Abort."""
        if not self.ended:
            self.ended = True
            self.exchange.reset()
            self._close(StreamReset(ErrorCode(code), message, by_peer=False))

    def pauseProducing(self) -> None:
        self.exchange.pauseProducing()

    def resumeProducing(self) -> None:
        self.exchange.resumeProducing()

    def stopProducing(self) -> None:
        self.reset()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self.exchange.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        self.exchange.unregisterProducer()


def media_type(headers: Mapping[str, str]) -> str:
    """What a body is, without what may stand behind it."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def metadata_from(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """What a handler may see of the headers; those of one name are joined."""
    metadata: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if _NOT_METADATA.fullmatch(name) is None:
            known = metadata.get(name)
            metadata[name] = value if known is None else f"{known},{value}"
    return metadata


def metadata_to(metadata: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers that a handler wants to send, without those that are not its own."""
    return [
        (name.encode("ascii"), _NOT_PRINTABLE.sub("?", value).strip().encode("ascii"))
        for name, value in metadata.items()
        if _NAME.fullmatch(name) and _NOT_METADATA.fullmatch(name) is None
    ]
