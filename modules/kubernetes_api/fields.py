"""
Header fields that both halves write: errors and ``Via``; and what else they agree on.
"""

from __future__ import annotations

from typing import Final

from modules.kubernetes_api.statuses import status_answer
from tunnel.http1 import ResponseHead

__all__ = [
    "FAILED_HOP",
    "MAX_BLOCK",
    "METHOD",
    "error_block",
    "passed_by",
]

#: The method of the stream that carries one request.
METHOD: Final = "/txkas.kubernetes_api.v1.KubernetesApi/Request"

#: Bytes of a header block: what the tunnel takes in one frame, less what OPEN carries
#: beside it.
MAX_BLOCK: Final = 60 * 1024

#: Set by the agent half on an answer of its own, never on one of the API server's.
FAILED_HOP: Final = b"txkas-failed-hop"

_PHRASES: Final = {
    406: b"Not Acceptable",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
}


def error_block(
    code: int, message: str, hop: bytes, target: bytes, fields: bytes
) -> tuple[bytes, bytes]:
    """
    A whole answer of the agent half: block and body.

    :param fields: of the request.
    """
    code, lines, body = status_answer(code, message, target, fields)
    phrase = _PHRASES.get(code, b"Gateway Timeout")
    block = b"HTTP/1.1 %d %b%b\r\n%b: %b\r\nContent-Length: %d\r\n" % (
        code,
        phrase,
        lines,
        FAILED_HOP,
        hop,
        len(body),
    )
    return block, body


def passed_by(head: ResponseHead, name: bytes) -> bytes:
    """The ``Via`` field of an answer that *name* passes on."""
    return b"\r\nVia: " + b", ".join([*head.taken.get(b"via", ()), b"1.1 " + name])
