"""
Header fields that both halves write: errors and ``Via``; and what else they agree on.
"""

from __future__ import annotations

import json
from typing import Final

from tunnel.http1 import ResponseHead
from tunnel.util.texts import clean

__all__ = [
    "FAILED_HOP",
    "MAX_BLOCK",
    "METHOD",
    "error_block",
    "passed_by",
    "status_answer",
]

#: The method of the stream that carries one request.
METHOD: Final = "/txkas.kubernetes_api.v1.KubernetesApi/Request"

#: Bytes of a header block: what the tunnel takes in one frame, less what OPEN carries
#: beside it.
MAX_BLOCK: Final = 60 * 1024

#: Set by the agent half on an answer of its own, never on one of the API server's.
FAILED_HOP: Final = b"txkas-failed-hop"

# k8s.io/apimachinery, metav1.StatusReason
_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}

_PHRASES: Final = {502: b"Bad Gateway", 503: b"Service Unavailable"}


#: Clients of Kubernetes ask these first, and drop the text of an error that they get:
#: "the server is currently unable to handle the request" is all that kubectl prints.
_DISCOVERY: Final = (b"/api", b"/apis")

#: Characters of a warning; clients cut at 4096 for all of them.
_MAX_WARNING: Final = 1000


def status_answer(code: int, message: str, target: bytes) -> tuple[bytes, bytes]:
    """
    Fields and body of an error, as kubectl prints it.

    :param target: what was asked for; where clients drop the text of the body, it is
        sent as a warning as well, which they show.
    """
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS.get(code, ""),
        "code": code,
    }
    fields = b"\r\nContent-Type: application/json\r\nCache-Control: no-store"
    if target.partition(b"?")[0].endswith(_DISCOVERY):
        text = clean(message, _MAX_WARNING, " ").replace("\\", "/").replace('"', "'")
        fields += b'\r\nWarning: 299 - "%b"' % text.encode("ascii", "replace")
    return fields, json.dumps(status).encode() + b"\n"


def error_block(
    code: int, message: str, hop: bytes, target: bytes
) -> tuple[bytes, bytes]:
    """A whole answer of the agent half: block and body."""
    fields, body = status_answer(code, message, target)
    phrase = _PHRASES.get(code, b"Gateway Timeout")
    block = b"HTTP/1.1 %d %b%b\r\n%b: %b\r\nContent-Length: %d\r\n" % (
        code,
        phrase,
        fields,
        FAILED_HOP,
        hop,
        len(body),
    )
    return block, body


def passed_by(head: ResponseHead, name: bytes) -> bytes:
    """The ``Via`` field of an answer that *name* passes on."""
    return b"\r\nVia: " + b", ".join([*head.taken.get(b"via", ()), b"1.1 " + name])
