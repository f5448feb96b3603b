"""As whom the API server shall see a request."""

from __future__ import annotations

import re

from modules.kubernetes_api.frontdoor import Refused
from tunnel.http1 import RequestHead
from tunnel.interfaces import Access, Impersonation
from tunnel.kubernetes import impersonation_fields

__all__ = ["Impersonations", "own_impersonation"]

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


def own_impersonation(head: RequestHead, names: list[bytes]) -> bytes:
    """The client's own headers; the API server decides whether it may."""
    lines = []
    for name in names:
        values = head.taken[name]
        if _ALLOWED.fullmatch(name) is None or (name in _SINGLE and len(values) > 1):
            raise Refused(400, f"client -> kas: {name.decode()} is unknown or repeated")
        lines += [b"\r\n%b: %b" % (name, value) for value in values]
    return b"".join(lines)
