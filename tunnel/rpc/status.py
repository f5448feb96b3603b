"""How a call ended: trailers and exceptions, each made from the other."""

from __future__ import annotations

from twisted.internet.defer import CancelledError

from tunnel.errors import (
    AgentUnavailable,
    CallError,
    ErrorCode,
    SessionClosed,
    Status,
    StreamReset,
)
from tunnel.rpc.fields import decode_fields, encode_fields

_BY_CODE = {
    ErrorCode.REFUSED: Status.UNAVAILABLE,
    ErrorCode.CANCELLED: Status.CANCELLED,
    ErrorCode.UNKNOWN_METHOD: Status.UNIMPLEMENTED,
    ErrorCode.DEADLINE: Status.DEADLINE_EXCEEDED,
    ErrorCode.FLOOD: Status.RESOURCE_EXHAUSTED,
    ErrorCode.MEMORY: Status.RESOURCE_EXHAUSTED,
    ErrorCode.UNAUTHENTICATED: Status.UNAUTHENTICATED,
    ErrorCode.SHUTDOWN: Status.UNAVAILABLE,
    ErrorCode.NOT_RESUMABLE: Status.UNAVAILABLE,
    ErrorCode.PATH_LOST: Status.UNAVAILABLE,
}


def trailers(status: Status, message: str = "") -> bytes:
    """The block that ends a call."""
    fields = {"status": str(int(status))}
    if message:
        fields["message"] = message
    return encode_fields(fields)


def is_trailers(block: bytes) -> bool:
    """Tell the last block of a call from its initial metadata."""
    return block.startswith(b"status:")


def error_from_trailers(block: bytes) -> CallError | None:
    """What the trailers say; None for OK."""
    fields = decode_fields(block)
    try:
        status = Status(int(fields.get("status", "2")))
    except ValueError:
        status = Status.UNKNOWN
    if status is Status.OK:
        return None
    return CallError(status, fields.get("message", ""))


def error_from_end(reason: Exception | None) -> CallError:
    """Why a stream ended without trailers, in terms of a call."""
    if isinstance(reason, StreamReset):
        return CallError(_BY_CODE.get(reason.code, Status.INTERNAL), str(reason))
    if isinstance(reason, SessionClosed | AgentUnavailable):
        return CallError(Status.UNAVAILABLE, str(reason))
    if isinstance(reason, CallError):
        return reason
    return CallError(Status.INTERNAL, "the call ended without a status")


def status_of(error: BaseException) -> tuple[Status, str]:
    """
    What the caller is told about an exception of the one who answered.

    Only a `CallError` speaks to the caller; the text of any other exception may hold
    what is none of its business, and goes to the log instead.
    """
    if isinstance(error, CallError):
        return error.status, error.message
    if isinstance(error, CancelledError):
        return Status.CANCELLED, "cancelled"
    return Status.INTERNAL, "the handler failed; its log says how"
