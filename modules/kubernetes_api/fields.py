"""
Header fields that both halves write: errors and ``Via``; and what else they agree on.

The block of a request has to fit into one frame of the tunnel.  The block of a user
with thousands of groups does not, and travels deflated then, by a method of its own: an
agent half that does not know the method refuses the request, and never sends it without
its ``Impersonate-*``.
"""

from __future__ import annotations

from typing import Final

from modules.kubernetes_api.statuses import status_answer
from tunnel.http1 import ResponseHead
from tunnel.toolkit.packing import pack, unpack
from tunnel.toolkit.traces import TRACEPARENT, traceparent_in

__all__ = [
    "FAILED_HOP",
    "MAX_BLOCK",
    "MAX_HEAD",
    "MAX_LINES",
    "METHOD",
    "PACKED_METHOD",
    "error_block",
    "fitted",
    "packed_block",
    "passed_by",
    "unpacked_block",
]

#: The method of the stream that carries one request.
METHOD: Final = "/txkas.kubernetes_api.v1.KubernetesApi/Request"

#: The method of the stream that carries one request whose block is packed.
PACKED_METHOD: Final = "/txkas.kubernetes_api.v1.KubernetesApi/PackedRequest"

#: Bytes of a header block: what the tunnel takes in one frame, less what OPEN carries
#: beside it.
MAX_BLOCK: Final = 60 * 1024

#: Bytes of a request's block before it is packed.  GitLab grants an agent to 500
#: projects and 500 groups at most, and a user has up to three roles in each: 3,000
#: groups of 64 bytes are 190 KiB.  An API server takes 1 MiB.
MAX_HEAD: Final = 512 * 1024

#: Header lines between kas and agentk: no limit of its own, because `MAX_HEAD` is one,
#: and a line has four bytes at least.  How many lines clients may send is configured in
#: kas alone.
MAX_LINES: Final = MAX_HEAD // 4

#: Set by the agent half on an answer of its own, never on one of the API server's.
FAILED_HOP: Final = b"txkas-failed-hop"

_PHRASES: Final = {
    406: b"Not Acceptable",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
}


def fitted(block: bytes) -> tuple[str, bytes] | None:
    """Return the method and the metadata for *block*; None: it is too large."""
    if len(block) <= MAX_BLOCK:
        return METHOD, block
    packed = packed_block(block) if len(block) <= MAX_HEAD else b""
    return (PACKED_METHOD, packed) if 0 < len(packed) <= MAX_BLOCK else None


def packed_block(block: bytes) -> bytes:
    """
    Return *block* deflated, behind its ``traceparent`` and an empty line.

    A gateway between two kas reads the trace there.
    """
    trace = traceparent_in(block)
    line = "" if trace is None else f"{TRACEPARENT}: {trace}\r\n"
    return line.encode("ascii") + b"\r\n" + pack(block)


def unpacked_block(packed: bytes) -> bytes:
    """
    Return the block that was packed.

    :raises ValueError: it is damaged, or larger than `MAX_HEAD`.
    """
    if packed.startswith(b"\r\n"):
        return unpack(packed[2:], MAX_HEAD)
    return unpack(packed.partition(b"\r\n\r\n")[2], MAX_HEAD)


def error_block(
    code: int, message: str, hop: bytes, target: bytes, fields: bytes
) -> tuple[bytes, bytes]:
    """
    Return a whole response of the agent half: block and body.

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
    """Return the ``Via`` field of a response that *name* passes on."""
    return b"\r\nVia: " + b", ".join([*head.taken.get(b"via", ()), b"1.1 " + name])
