"""As whom the API server shall see a request."""

from __future__ import annotations

import re
from urllib.parse import quote

from modules.kubernetes_api.frontdoor import Refused
from tunnel.http1 import RequestHead, is_value
from tunnel.interfaces import Access, Impersonation

__all__ = ["Impersonations", "own_impersonation"]

# What client-go leaves as it is in the name of an extra; "%" begins an escape.
_LEGAL = "!#$&'*+-.^_`|~"

_ALLOWED = re.compile(rb"impersonate-(?:user|group|uid|extra-.+)")
_SINGLE = (b"impersonate-user", b"impersonate-uid")

# Credentials in use at one time; an entry is a few hundred bytes.
_MAX_CACHED = 10_000


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
        wanted = [name for name in head.taken if name.startswith(b"impersonate-")]
        impersonation = access.impersonation
        if impersonation is None:
            return own_impersonation(head, wanted) if wanted else b""
        if wanted:
            raise Refused(
                400,
                "client -> kas: nested impersonation is not supported: requests of "
                f"{access.credential_id} already run as {impersonation.username}; "
                "leave out --as and --as-group",
            )
        cached = self._cached.get(access.credential_id)
        if cached is not None and cached[0] is impersonation:
            return cached[1]
        fields = _fields(impersonation)
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        self._cached[access.credential_id] = (impersonation, fields)
        return fields


def own_impersonation(head: RequestHead, names: list[bytes]) -> bytes:
    """The client's own headers; the API server decides whether it may."""
    lines = []
    for name in names:
        values = head.taken[name]
        if _ALLOWED.fullmatch(name) is None or (name in _SINGLE and len(values) > 1):
            raise Refused(400, f"client -> kas: {name.decode()} is unknown or repeated")
        lines += [b"\r\n%b: %b" % (name, value) for value in values]
    return b"".join(lines)


def _fields(impersonation: Impersonation) -> bytes:
    # Without a user the request would run as the agent itself.
    required = [("User", impersonation.username)]
    if impersonation.uid:
        required.append(("Uid", impersonation.uid))
    required += [("Group", group) for group in impersonation.groups]
    lines = [_line(name, value) for name, value in required if value or _empty(name)]
    for key, values in impersonation.extra.items():
        name = f"Extra-{quote(key, safe=_LEGAL)}" if key else _empty("Extra")
        lines += [_line(name, value) for value in values]
    return b"".join(lines)


def _line(name: str, value: str) -> bytes:
    encoded = value.encode()
    # A server would cut spaces off, and see somebody else.
    if not is_value(encoded) or encoded != encoded.strip():
        raise Refused(500, f"kas: Impersonate-{name} of this credential is malformed")
    return b"\r\nImpersonate-%b: %b" % (name.encode(), encoded)


def _empty(name: str) -> str:
    raise Refused(500, f"kas: Impersonate-{name} of this credential is empty")
