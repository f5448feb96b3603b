"""gRPC's way to write a call down, over HTTP/2."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from urllib.parse import quote

from kas.api.calls import Exchange, metadata_to
from kas.api.envelopes import COMPRESSED, EnvelopeCodec
from kas.api.held import Held
from tunnel.details import encode_status
from tunnel.errors import CallError, Status

__all__ = ["CONTENT_TYPES", "GrpcCall", "parse_timeout"]

#: What a request is in: messages have to be protobuf.
CONTENT_TYPES = ("application/grpc", "application/grpc+proto")

#: Seconds of each unit that a deadline can have.
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")

#: Characters of a message: all trailers together have to fit into what clients take,
#: which is 8 KiB with many of them, and each may become three.
MAX_TEXT = 2048

#: Bytes of a last header block, each field with the 32 that RFC 9113 adds: what clients
#: take by default, grpcio among them.  Of one that would be larger they take nothing.
MAX_TRAILERS = 8192

_FIELD_OVERHEAD = 32

# ":status: 200", which is not among the fields that a call sends.
_STATUS_SIZE = 42

_SAFE = "".join(chr(c) for c in range(0x20, 0x7F) if chr(c) != "%")


def parse_timeout(text: str | None) -> float | None:
    """
    Seconds in ``grpc-timeout``.

    :raises CallError: it is none.
    """
    if text is None:
        return None
    found = _TIMEOUT.fullmatch(text)
    if found is None:
        raise CallError(Status.INVALID_ARGUMENT, "grpc-timeout cannot be read")
    return int(found[1]) * _UNITS[found[2]]


class GrpcCall(EnvelopeCodec):
    """One call of gRPC: messages in envelopes, and the outcome in trailers."""

    unreadable = Status.INTERNAL

    def __init__(
        self, exchange: Exchange, held: Held, headers: Mapping[str, str]
    ) -> None:
        super().__init__(exchange, held, headers)
        self._encoding = headers.get("grpc-encoding", "identity")

    def not_plain(self, flags: int) -> CallError:
        """Why a message with such *flags* is not taken."""
        if flags == COMPRESSED and self._encoding != "identity":
            return CallError(
                Status.UNIMPLEMENTED,
                f"messages in {self._encoding[:40]!r}: only identity is taken",
            )
        return super().not_plain(flags)

    def finished(self, error: CallError | None) -> None:
        """Trailers; where nothing was sent before them, they are all there is."""
        head = [] if self._begun else self._head()
        block = [*head, *_trailers(error)]
        if error is not None and error.details:
            field = (b"grpc-status-details-bin", _status(error))
            if _size([*block, field]) <= MAX_TRAILERS:
                block.append(field)
        if self._begun:
            self.exchange.end(block)
        else:
            self.exchange.start(200, block, end=True)

    def _head(self) -> list[tuple[bytes, bytes]]:
        return [
            (b"content-type", b"application/grpc+proto"),
            (b"grpc-accept-encoding", b"identity"),
            *metadata_to(self.metadata),
        ]


def _trailers(error: CallError | None) -> list[tuple[bytes, bytes]]:
    status = Status.OK if error is None else error.status
    trailers = [(b"grpc-status", str(int(status)).encode())]
    if error is not None and error.message:
        text = quote(error.message[:MAX_TEXT], safe=_SAFE)
        trailers.append((b"grpc-message", text.encode()))
    return trailers


def _status(error: CallError) -> bytes:
    message = error.message[:MAX_TEXT]
    encoded = encode_status(error.details, int(error.status), message)
    return base64.b64encode(encoded).rstrip(b"=")


def _size(fields: list[tuple[bytes, bytes]]) -> int:
    sizes = (len(name) + len(value) + _FIELD_OVERHEAD for name, value in fields)
    return _STATUS_SIZE + sum(sizes)
