"""The end of a call, as trailers and as exceptions."""

from __future__ import annotations

import base64

from twisted.internet.defer import CancelledError

from tunnel.details import decode_details, encode_status, error_info, retry_info
from tunnel.errors import (
    AgentUnavailable,
    CallError,
    ErrorCode,
    SessionClosed,
    Status,
    StreamReset,
)
from tunnel.rpc.fields import decode_fields, encode_fields
from tunnel.toolkit.texts import clean

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


#: Maximum number of bytes of all details of one call.  They must fit, in base64, into
#: trailers, and HTTP/2 clients accept trailers of 8 KiB including the text; larger
#: details are omitted.
MAX_DETAILS = 4096

#: Maximum number of characters of a message, in both directions.  Longer trailers would
#: not fit into a block of headers, and a call does not end without trailers.
MAX_TEXT = 4096

#: Seconds after which a client should repeat a call to a disconnected agent: kas has
#: already waited for the agent, and agentk tries to connect every few seconds.
RETRY_AFTER = 5.0


def trailers(error: CallError | None = None) -> bytes:
    """Return the block that ends a call; success if *error* is None."""
    if error is None:
        return encode_fields({"status": "0"})
    fields = {"status": str(int(error.status))}
    if error.message:
        fields["message"] = error.message[:MAX_TEXT]
    if error.details:
        details = encode_status(error.details)
        if len(details) <= MAX_DETAILS:
            fields["details"] = base64.b64encode(details).decode("ascii")
    return encode_fields(fields)


def is_trailers(block: bytes) -> bool:
    """Tell whether a block is the trailers of a call, not its initial metadata."""
    return block.startswith(b"status:")


def error_from_trailers(block: bytes) -> CallError | None:
    """Return the error in the trailers; None for OK."""
    fields = decode_fields(block)
    try:
        status = Status(int(fields.get("status", "2")))
    except ValueError:
        status = Status.UNKNOWN
    if status is Status.OK:
        return None
    try:
        # Padding may be missing, so some padding is added; the decoder ignores excess
        # padding.
        details = base64.b64decode(fields.get("details", "") + "==")
    except ValueError:
        details = b""
    message = clean(fields.get("message", ""), MAX_TEXT, " ")
    return CallError(status, message, decode_details(details))


def error_from_end(reason: Exception | None) -> CallError:
    """Return the error of a call whose stream ended without trailers."""
    if isinstance(reason, StreamReset):
        return CallError(_BY_CODE.get(reason.code, Status.INTERNAL), str(reason))
    if isinstance(reason, AgentUnavailable):
        about = error_info(reason.reason, {"agent_id": reason.agent})
        details = [about, retry_info(RETRY_AFTER)]
        return CallError(Status.UNAVAILABLE, str(reason), details)
    if isinstance(reason, SessionClosed):
        return CallError(Status.UNAVAILABLE, str(reason))
    if isinstance(reason, CallError):
        return reason
    return CallError(Status.INTERNAL, "the call ended without a status")


def error_for_caller(error: BaseException) -> CallError:
    """
    Return the error for the caller from an exception of the handler.

    Only the text of a `CallError` reaches the caller; the text of any other exception
    may contain data that the caller must not see, and goes to the log instead.
    """
    if isinstance(error, CallError):
        return error
    if isinstance(error, CancelledError):
        return CallError(Status.CANCELLED, "cancelled")
    return CallError(Status.INTERNAL, "the handler failed; see its log")
