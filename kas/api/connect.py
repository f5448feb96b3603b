"""
The encoding of calls in Connect: JSON or protobuf over plain HTTP.

Unary calls are ordinary POST requests with an HTTP status; other calls have messages in
envelopes, and the last envelope contains the status.
https://connectrpc.com/docs/protocol
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from tunnel.details import readable
from tunnel.errors import CallError, Status
from tunnel.grpc.fields import Headers, metadata_to
from tunnel.grpc.memory import RequestMemory
from tunnel.grpc.messages import COMPRESSED, envelope
from tunnel.grpc.server import CallTransport, Codec, EnvelopeCodec
from tunnel.rpc.message_buffer import Pieces
from tunnel.rpc.messages import MAX_MESSAGE

__all__ = [
    "CONTENT_TYPES",
    "ConnectCall",
    "StreamingCall",
    "UnaryCall",
    "parse_timeout",
]

#: Content types of requests, for ``Accept-Post``.
CONTENT_TYPES = (
    "application/json",
    "application/proto",
    "application/connect+json",
    "application/connect+proto",
)

#: HTTP status and name of each status of a call, as Connect defines them.
_CODES = {
    Status.CANCELLED: (499, "canceled"),
    Status.UNKNOWN: (500, "unknown"),
    Status.INVALID_ARGUMENT: (400, "invalid_argument"),
    Status.DEADLINE_EXCEEDED: (504, "deadline_exceeded"),
    Status.NOT_FOUND: (404, "not_found"),
    Status.ALREADY_EXISTS: (409, "already_exists"),
    Status.PERMISSION_DENIED: (403, "permission_denied"),
    Status.RESOURCE_EXHAUSTED: (429, "resource_exhausted"),
    Status.FAILED_PRECONDITION: (400, "failed_precondition"),
    Status.ABORTED: (409, "aborted"),
    Status.OUT_OF_RANGE: (400, "out_of_range"),
    Status.UNIMPLEMENTED: (501, "unimplemented"),
    Status.INTERNAL: (500, "internal"),
    Status.UNAVAILABLE: (503, "unavailable"),
    Status.DATA_LOSS: (500, "data_loss"),
    Status.UNAUTHENTICATED: (401, "unauthenticated"),
}

_TIMEOUT = re.compile(r"[0-9]{1,10}")
_END = 0x2

#: Maximum bytes of a message as JSON: JSON may be longer than the message, because
#: bytes are encoded in base64.
MAX_JSON = MAX_MESSAGE // 3 * 4 + 64 * 1024

#: Maximum characters of a JSON parser's message about a request, which may contain
#: parts of the request.
MAX_COMPLAINT = 200


def parse_timeout(text: str | None) -> float | None:
    """
    Return the seconds in ``Connect-Timeout-Ms``.

    :raises CallError: if the timeout is not valid.
    """
    if text is None:
        return None
    if _TIMEOUT.fullmatch(text) is None:
        raise CallError(Status.INVALID_ARGUMENT, "Connect-Timeout-Ms is not valid")
    return int(text) / 1000


def error_object(error: CallError) -> dict[str, Any]:
    _, name = _CODES[error.status]
    described: dict[str, Any] = {"code": name}
    if error.message:
        described["message"] = error.message
    if error.details:
        described["details"] = [_detail(one) for one in error.details]
    return described


def _detail(detail: AnyMessage) -> dict[str, Any]:
    value = base64.b64encode(detail.value).decode("ascii").rstrip("=")
    described = {"type": detail.type_url.rpartition("/")[2], "value": value}
    debug = readable(detail)
    return described if debug is None else {**described, "debug": debug}


class ConnectCall(Codec):
    """
    Common part of both kinds of calls: the encoding (JSON or protobuf), and the
    headers.
    """

    #: Whether the class is for calls with one request and one response.
    unary: bool
    #: Method of the call; set before the call is opened.
    method: MethodDescriptor | None = None

    @property
    def json(self) -> bool:
        """Whether messages are in JSON."""
        return self.content_type.endswith("json")

    @property
    def limit(self) -> int:
        return MAX_JSON if self.json else MAX_MESSAGE

    def check_encoding(self) -> None:
        """
        Check that the client does not use compression.

        :raises CallError: if the client uses compression.
        """
        if self.encoding not in ("", "identity"):
            raise CallError(
                Status.UNIMPLEMENTED,
                f"the encoding {self.encoding[:40]!r}: only identity is supported",
            )

    def decode(self, data: bytes) -> bytes:
        """
        Return a request as protobuf.

        :raises CallError: if the request is malformed.
        """
        if not self.json:
            return data
        assert self.method is not None
        kind = self.method.input_type
        message = _new(kind)
        try:
            json_format.Parse(data, message, ignore_unknown_fields=True)
        except (json_format.ParseError, ValueError, TypeError, RecursionError) as error:
            text = " ".join(str(error).split())[:MAX_COMPLAINT]
            raise CallError(
                Status.INVALID_ARGUMENT, f"not a {kind.full_name} in JSON: {text}"
            ) from None
        encoded: bytes = message.SerializeToString()
        return encoded

    def encode(self, data: bytes) -> bytes:
        """Return a response in the client's encoding."""
        if not self.json:
            return data
        assert self.method is not None
        message = _new(self.method.output_type)
        try:
            message.ParseFromString(data)
            return json_format.MessageToJson(message, indent=None).encode()
        except (DecodeError, ValueError, TypeError) as error:
            raise CallError(
                Status.INTERNAL, "the response cannot be written as JSON"
            ) from error


class UnaryCall(ConnectCall):
    """A call with one request and one response: an ordinary POST."""

    unary = True
    encoding_field = "content-encoding"

    def __init__(
        self,
        transport: CallTransport,
        memory: RequestMemory,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(transport, memory, headers)
        self._pieces = Pieces()
        self._response = b""

    def body(self, data: bytes) -> None:
        if self.ended:
            return
        self._pieces.append(data)
        if len(self._pieces) > self.limit:
            message = f"the request has more than {self.limit} bytes"
            self.refuse(CallError(Status.RESOURCE_EXHAUSTED, message))
            return
        try:
            self.share.hold(len(self._pieces))
        except CallError as error:
            self.refuse(error)

    def drop(self) -> None:
        self._pieces.clear()

    def body_ended(self) -> None:
        if self.ended:
            return
        try:
            message = self.decode(bytes(self._pieces.joined()))
        except CallError as error:
            self.refuse(error)
            return
        finally:
            self._pieces.clear()
            self.share.release()
        self.request(message)
        self.requests_ended()

    def respond(self, message: bytes) -> None:
        """
        Keep the response until the call has succeeded, because only then the HTTP
        status is known.
        """
        self._response = self.encode(message)

    def finished(self, error: CallError | None) -> None:
        """Send the response."""
        headers = metadata_to(self.metadata)
        if error is None:
            status, kind, body = 200, self.content_type, self._response
        else:
            status, kind = _CODES[error.status][0], "application/json"
            body = json.dumps(error_object(error)).encode()
            if error.status is Status.UNAUTHENTICATED:
                headers.append((b"www-authenticate", b"Bearer"))
            if error.status is Status.UNIMPLEMENTED:
                headers.append((b"accept-encoding", b"identity"))
        headers.append((b"content-type", kind.encode("ascii")))
        headers.append((b"content-length", str(len(body)).encode()))
        self.transport.start(status, headers)
        self.transport.write(body)
        self.transport.end()


class StreamingCall(EnvelopeCodec, ConnectCall):
    """A call with messages in envelopes; the last envelope contains the status."""

    unary = False
    encoding_field = "connect-content-encoding"
    unreadable = Status.INVALID_ARGUMENT

    def not_plain(self, flags: int) -> CallError:
        """Return the error for a message with unsupported *flags*."""
        if flags == COMPRESSED:
            message = "compressed messages: only identity is supported"
            return CallError(Status.UNIMPLEMENTED, message)
        return super().not_plain(flags)

    def finished(self, error: CallError | None) -> None:
        """Send the last envelope, which contains the status of the call."""
        end: dict[str, Any] = {} if error is None else {"error": error_object(error)}
        self._begin()
        self.transport.write(envelope(json.dumps(end).encode(), _END))
        self.transport.end()

    def _head(self) -> Headers:
        return [
            (b"content-type", self.content_type.encode("ascii")),
            (b"connect-accept-encoding", b"identity"),
            *metadata_to(self.metadata),
        ]


def _new(kind: Descriptor) -> Any:
    return GetMessageClass(kind)()
