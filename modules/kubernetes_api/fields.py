"""
Header fields that the halves write: errors, ``Via``, and as whom a request comes.

Both halves use this file; what else they have to agree on is here, too.
"""

from __future__ import annotations

import json
import re
from typing import Final

from tunnel.errors import TunnelError
from tunnel.http1 import RequestHead, ResponseHead
from tunnel.interfaces import Access, Impersonation
from tunnel.kubernetes import impersonation_fields
from tunnel.util.texts import clean

__all__ = [
    "FAILED_HOP",
    "MAX_BLOCK",
    "METHOD",
    "Impersonations",
    "Refused",
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

_ALLOWED = re.compile(rb"impersonate-(?:user|group|uid|extra-.+)")
_SINGLE = (b"impersonate-user", b"impersonate-uid")

# Credentials in use at one time; an entry is a few hundred bytes.
_MAX_CACHED = 10_000


class Refused(TunnelError):
    """A request that goes no further, and the answer to its client."""

    def __init__(self, status: int, message: str, fields: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.fields = fields


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


class Impersonations:
    """
    The `Impersonate-*` fields of credentials.

    They are the same for each request of a credential, so they are made once.
    """

    def __init__(self) -> None:
        self._cached: dict[str, tuple[Impersonation, bytes]] = {}

    def fields(self, access: Access, head: RequestHead) -> bytes:
        """
        What to add to a request of *access*.

        :raises Refused: when the client wants to impersonate and may not.
        """
        # A comprehension would be one more call for each request.
        wanted = []
        for name in head.taken:
            if name.startswith(b"impersonate-"):
                wanted.append(name)
        impersonation = access.impersonation
        if impersonation is None:
            return _own_impersonation(head, wanted) if wanted else b""
        if wanted:
            raise Refused(
                400,
                "client -> kas: nested impersonation is not supported: requests of "
                f"{access.who} already run as {impersonation.username}; "
                "leave out --as and --as-group",
            )
        cached = self._cached.get(access.credential_id)
        if cached is not None and cached[0] is impersonation:
            return cached[1]
        try:
            fields = impersonation_fields(impersonation)
        except ValueError as error:
            raise Refused(500, f"kas: {error} in this credential") from None
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        self._cached[access.credential_id] = (impersonation, fields)
        return fields


def _own_impersonation(head: RequestHead, names: list[bytes]) -> bytes:
    """The client's own headers; the API server decides whether it may."""
    lines = []
    for name in names:
        values = head.taken[name]
        if _ALLOWED.fullmatch(name) is None or (name in _SINGLE and len(values) > 1):
            raise Refused(400, f"client -> kas: {name.decode()} is unknown or repeated")
        lines += [b"\r\n%b: %b" % (name, value) for value in values]
    return b"".join(lines)
