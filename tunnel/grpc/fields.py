"""Header fields of calls: metadata, timeouts, and outcomes."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote, unquote

from tunnel.details import encode_status
from tunnel.errors import CallError, Status
from tunnel.rpc.fields import encode_fields
from tunnel.toolkit.texts import clean

__all__ = [
    "CONTENT_TYPES",
    "MAX_TRAILERS",
    "Headers",
    "encode_timeout",
    "http_error",
    "media_type",
    "metadata_from",
    "metadata_to",
    "parse_timeout",
    "request_headers",
    "trailers_block",
    "trailers_of",
]

Headers = Sequence[tuple[bytes, bytes]]

#: Content types of requests: messages must be protobuf.
CONTENT_TYPES = ("application/grpc", "application/grpc+proto")

#: Seconds of each unit of a deadline.
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")

#: Maximum number of characters of a message: many clients accept only 8 KiB for all
#: trailers together, and each character may take three bytes.
MAX_TEXT = 2048

#: Maximum size of a block of trailers in bytes, plus 32 for each field as in RFC 9113:
#: this is the default limit of clients such as grpcio, which drop a larger block as a
#: whole.
MAX_TRAILERS = 8192

_FIELD_OVERHEAD = 32

# The size of ":status: 200", which is not among the fields of a call.
_STATUS_SIZE = 42

_SAFE = "".join(chr(c) for c in range(0x20, 0x7F) if chr(c) != "%")


# Fields of HTTP, of the protocols, and of the token, which modules do not need.
_NOT_METADATA = re.compile(
    r":.*|(grpc|connect)-.*|x-forwarded-.*|authorization|cookie|host|te|trailer|accept"
    r"|accept-encoding|connection|content-.*|keep-alive|proxy-.*|transfer-encoding"
    r"|upgrade|date|server"
)
# Fields of HTTP and of the protocol; a client sends its credentials as metadata.
_NOT_OF_CLIENTS = re.compile(
    r":.*|grpc-.*|host|te|trailer|accept-encoding|connection|content-.*|keep-alive"
    r"|proxy-.*|transfer-encoding|upgrade"
)
_NAME = re.compile(r"[a-z0-9_.-]+")
_NOT_PRINTABLE = re.compile(r"[^ -~]")


def parse_timeout(text: str | None) -> float | None:
    """
    Parse ``grpc-timeout`` as seconds.

    :raises CallError: if a header is malformed.
    """
    if text is None:
        return None
    found = _TIMEOUT.fullmatch(text)
    if found is None:
        raise CallError(Status.INVALID_ARGUMENT, "grpc-timeout is malformed")
    return int(found[1]) * _UNITS[found[2]]


def encode_timeout(seconds: float) -> bytes:
    """
    Return *seconds* as ``grpc-timeout``: at most eight digits, in the finest unit.
    """
    for unit in "umSMH":
        count = round(seconds / _UNITS[unit])
        if count < 10**8:
            return b"%d%b" % (max(1, count), unit.encode())
    return b"99999999H"


def media_type(headers: Mapping[str, str]) -> str:
    """Return the media type of a body, without parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def metadata_from(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers that a handler may see; values of the same name are joined."""
    metadata: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if _NOT_METADATA.fullmatch(name) is None:
            known = metadata.get(name)
            metadata[name] = value if known is None else f"{known},{value}"
    return metadata


def metadata_to(metadata: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return a handler's headers for sending, without names that it may not use."""
    return _fields_of(metadata, _NOT_METADATA)


def _fields_of(
    metadata: Mapping[str, str], without: re.Pattern[str]
) -> list[tuple[bytes, bytes]]:
    return [
        (name.encode("ascii"), _NOT_PRINTABLE.sub("?", value).strip().encode("ascii"))
        for name, value in metadata.items()
        if _NAME.fullmatch(name) and without.fullmatch(name) is None
    ]


def trailers_of(error: CallError | None, before: Headers = ()) -> Headers:
    """
    Return the fields that end a call.

    :param error: None if the call succeeded.
    :param before: other fields of the same block; details are omitted if the whole
        block would exceed the limit of clients.
    """
    block = [*before, *_status_fields(error)]
    if error is not None and error.details:
        field = (b"grpc-status-details-bin", _details(error))
        if _size([*block, field]) <= MAX_TRAILERS:
            block.append(field)
    return block


def trailers_block(headers: Headers) -> bytes:
    """Return the trailers of a server as `tunnel.rpc` reads them."""
    fields = {name.decode("latin-1"): v.decode("latin-1") for name, v in headers}
    found = {"status": fields.get("grpc-status", "")}
    found.update(
        (name, value)
        for name, value in metadata_from(headers).items()
        if name not in ("status", "message", "details")
    )
    if "grpc-message" in fields:
        found["message"] = unquote(fields["grpc-message"], errors="replace")
    if "grpc-status-details-bin" in fields:
        found["details"] = fields["grpc-status-details-bin"]
    return encode_fields(found)


def request_headers(
    scheme: bytes, authority: bytes, method: str, metadata: Mapping[str, str]
) -> list[tuple[bytes, bytes]]:
    """Return the head of a call, with the part of *metadata* that a client may send."""
    return [
        (b":method", b"POST"),
        (b":scheme", scheme),
        (b":path", method.encode("ascii")),
        (b":authority", authority),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc+proto"),
        (b"grpc-accept-encoding", b"identity"),
        *_fields_of(metadata, _NOT_OF_CLIENTS),
    ]


#: HTTP statuses as gRPC statuses, for responses without a gRPC status (gRPC's
#: http-grpc-status-mapping.md).
_OF_HTTP = {
    400: Status.INTERNAL,
    401: Status.UNAUTHENTICATED,
    403: Status.PERMISSION_DENIED,
    404: Status.UNIMPLEMENTED,
    429: Status.UNAVAILABLE,
    502: Status.UNAVAILABLE,
    503: Status.UNAVAILABLE,
    504: Status.UNAVAILABLE,
}


def http_error(status: int, kind: str) -> CallError:
    """Return the error for a response that is not gRPC."""
    return CallError(
        _OF_HTTP.get(status, Status.UNKNOWN),
        f"the response is not gRPC: HTTP status {status}, {clean(kind, 100)!r}",
    )


def _status_fields(error: CallError | None) -> list[tuple[bytes, bytes]]:
    status = Status.OK if error is None else error.status
    trailers = [(b"grpc-status", str(int(status)).encode())]
    if error is not None and error.message:
        text = quote(error.message[:MAX_TEXT], safe=_SAFE)
        trailers.append((b"grpc-message", text.encode()))
    return trailers


def _details(error: CallError) -> bytes:
    message = error.message[:MAX_TEXT]
    encoded = encode_status(error.details, int(error.status), message)
    return base64.b64encode(encoded).rstrip(b"=")


def _size(fields: list[tuple[bytes, bytes]]) -> int:
    sizes = (len(name) + len(value) + _FIELD_OVERHEAD for name, value in fields)
    return _STATUS_SIZE + sum(sizes)
