"""
Writer of ``Impersonate-*`` fields, which make the API server run a request as a user.

`modules.kubernetes_api` decides which of these fields a client may send.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from tunnel.api import Impersonation
from tunnel.http1 import is_value

__all__ = ["impersonation_fields"]

#: Characters that client-go does not escape in the name of an extra; "%" begins an
#: escape.
_LEGAL: Final = "!#$&'*+-.^_`|~"


def impersonation_fields(impersonation: Impersonation) -> bytes:
    """
    Return the header lines of *impersonation*, each preceded by CR LF.

    :raises ValueError: a value is empty, or not permitted in a header; without a user,
        the request would run as the agent itself.
    """
    required = [("User", impersonation.username)]
    if impersonation.uid:
        required.append(("Uid", impersonation.uid))
    required += [("Group", group) for group in impersonation.groups]
    lines = [_line(name, value) for name, value in required]
    for key, values in impersonation.extra.items():
        if not key:
            raise ValueError("Impersonate-Extra has no name")
        name = f"Extra-{quote(key, safe=_LEGAL)}"
        lines += [_line(name, value, may_be_empty=True) for value in values]
    return b"".join(lines)


def _line(name: str, value: str, may_be_empty: bool = False) -> bytes:
    encoded = value.encode()
    if not value and not may_be_empty:
        raise ValueError(f"Impersonate-{name} is empty")
    # A server would strip spaces, and use another user name.
    if not is_value(encoded) or encoded != encoded.strip():
        raise ValueError(f"Impersonate-{name} is malformed")
    return b"\r\nImpersonate-%b: %b" % (name.encode(), encoded)
