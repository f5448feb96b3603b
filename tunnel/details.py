"""
Details of a call's error, for programs, in addition to its status and text.

    raise CallError(Status.INVALID_ARGUMENT, "size has to be above 0",
                    [bad_request({"size": "has to be above 0"})])

The details of a `tunnel.errors.CallError` are the details of gRPC and Connect: messages
in `Any`.  This module creates Google's most common ones; any other message works, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from google.protobuf.any_pb2 import Any
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message

from tunnel.pb import status_pb2 as pb

__all__ = [
    "DOMAIN",
    "bad_request",
    "decode_details",
    "encode_status",
    "error_info",
    "readable",
    "retry_info",
]

#: The domain of the reasons in `error_info`.
DOMAIN = "txkas"

_PREFIX = "type.googleapis.com/google.rpc."

_KNOWN: dict[str, type[Message]] = {
    f"{_PREFIX}{kind.DESCRIPTOR.name}": kind
    for kind in (pb.ErrorInfo, pb.RetryInfo, pb.BadRequest)
}


def error_info(reason: str, metadata: Mapping[str, str]) -> Any:
    """
    Return a ``google.rpc.ErrorInfo``: the reason, in CAPITALS_LIKE_THIS, and its
    details.
    """
    return _packed(pb.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata))


def retry_info(seconds: float) -> Any:
    """
    Return a ``google.rpc.RetryInfo``: the seconds after which a retry is worthwhile.
    """
    info = pb.RetryInfo()
    info.retry_delay.FromMilliseconds(round(seconds * 1000))
    return _packed(info)


def bad_request(violations: Mapping[str, str]) -> Any:
    """Return a ``google.rpc.BadRequest``, given the problem of each field."""
    return _packed(
        pb.BadRequest(
            field_violations=[
                pb.BadRequest.FieldViolation(field=name, description=text)
                for name, text in violations.items()
            ]
        )
    )


def encode_status(details: Iterable[Any], code: int = 0, message: str = "") -> bytes:
    """Encode details as a ``google.rpc.Status``, their form in messages."""
    status = pb.Status(code=code, message=message, details=details)
    encoded: bytes = status.SerializeToString()
    return encoded


def decode_details(data: bytes) -> tuple[Any, ...]:
    """Return the details in a ``google.rpc.Status``; none if it is malformed."""
    try:
        return tuple(pb.Status.FromString(data).details)
    except DecodeError:
        return ()


def readable(detail: Any) -> object:
    """Return a detail as JSON data for users; None if its type is unknown here."""
    kind = _KNOWN.get(detail.type_url)
    if kind is None:
        return None
    try:
        return MessageToDict(kind.FromString(detail.value))
    except (DecodeError, ValueError):
        return None


def _packed(message: Message) -> Any:
    # `Any.Pack` is not used, because it would write the name of the package in this
    # program.
    url = f"{_PREFIX}{message.DESCRIPTOR.name}"
    return Any(type_url=url, value=message.SerializeToString())
