"""
Header fields and constants that both halves share: errors, ``Via`` and limits.

The block of a request has to fit into one frame of the tunnel. The block of a user with
thousands of groups does not, and is compressed and sent with a separate method. An
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
    "BY_OWNER",
    "FAILED_HOP",
    "MAX_BLOCK",
    "MAX_HEAD",
    "MAX_LINES",
    "METHOD",
    "PACKED_METHOD",
    "audit_field",
    "error_block",
    "fitted",
    "packed_block",
    "passed_by",
    "unpacked_block",
]

#: Method of the stream that carries one request.
METHOD: Final = "/txkas.kubernetes_api.v1.KubernetesApi/Request"

#: Method of the stream that carries one request with a compressed block.
PACKED_METHOD: Final = "/txkas.kubernetes_api.v1.KubernetesApi/PackedRequest"

#: Maximum bytes of a header block: the limit of a frame of the tunnel, minus the rest
#: of OPEN.
MAX_BLOCK: Final = 60 * 1024

#: Maximum bytes of a request's block before it is compressed.  GitLab grants an agent
#: to at most 500 projects and 500 groups, and a user has up to three roles in each:
#: 3,000 groups of 64 bytes are 190 KiB.  An API server accepts 1 MiB.
MAX_HEAD: Final = 512 * 1024

#: Maximum number of header lines between kas and agentk.  `MAX_HEAD` is the effective
#: limit, because a line has at least four bytes.  Only kas' configuration limits the
#: lines of clients.
MAX_LINES: Final = MAX_HEAD // 4

#: Header field of agentk's own responses, never of the API server's responses.
FAILED_HOP: Final = b"txkas-failed-hop"

#: Value of this field if the policy of the cluster's owner denied the request.
BY_OWNER: Final = b"owner"

_PHRASES: Final = {
    400: b"Bad Request",
    403: b"Forbidden",
    406: b"Not Acceptable",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
}


def audit_field(event_id: str) -> bytes:
    """
    Return the header line that makes an API server use *event_id* in its own audit log,
    preceded by CR LF.
    """
    return b"\r\nAudit-ID: " + event_id.encode("ascii")


def fitted(block: bytes) -> tuple[str, bytes] | None:
    """Return the method and the metadata for *block*; None if it is too large."""
    if len(block) <= MAX_BLOCK:
        return METHOD, block
    packed = packed_block(block) if len(block) <= MAX_HEAD else b""
    return (PACKED_METHOD, packed) if 0 < len(packed) <= MAX_BLOCK else None


def packed_block(block: bytes) -> bytes:
    """
    Return the ``traceparent`` of *block*, an empty line, and *block* in compressed
    form.

    A gateway between two kas reads the ``traceparent``.
    """
    trace = traceparent_in(block)
    line = "" if trace is None else f"{TRACEPARENT}: {trace}\r\n"
    return line.encode("ascii") + b"\r\n" + pack(block)


def unpacked_block(packed: bytes) -> bytes:
    """
    Return the original block.

    :raises ValueError: if the data is damaged, or the block is larger than `MAX_HEAD`.
    """
    if packed.startswith(b"\r\n"):
        return unpack(packed[2:], MAX_HEAD)
    return unpack(packed.partition(b"\r\n\r\n")[2], MAX_HEAD)


def error_block(
    code: int, message: str, hop: bytes, target: bytes, fields: bytes
) -> tuple[bytes, bytes]:
    """
    Return a complete response of the agent half: block and body.

    :param fields: the fields of the request.
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
    """Return the ``Via`` field of a response that the proxy *name* forwards."""
    return b"\r\nVia: " + b", ".join([*head.taken.get(b"via", ()), b"1.1 " + name])
