"""
Mark of requests that agentk sends as a user, for admission in the cluster.

Admission sees only the user that agentk impersonates.  An extra field of this user,
``txkas.dev/via``, shows that the request came through agentk.
"""

from __future__ import annotations

import json
import re
from typing import Final
from urllib.parse import unquote

import attrs

__all__ = ["VIA", "Via", "via_condition"]

#: Key of the extra field.
VIA: Final = "txkas.dev/via"

_EXTRA: Final = re.compile(
    rb"\r\nimpersonate[-_]extra[-_]([^:\r\n]*):[^\r\n]*", re.IGNORECASE
)
_IMPERSONATES: Final = re.compile(rb"\r\nimpersonate[-_]user:", re.IGNORECASE)


def via_condition(namespace: str) -> str:
    """
    Return whether agentk impersonated the user of a request, in CEL.

    :param namespace: agentk's own namespace.
    """
    extra, key = "request.userInfo.extra", json.dumps(VIA)
    own = json.dumps(namespace)
    return f"has({extra}) && {key} in {extra} && {own} in {extra}[{key}]"


@attrs.frozen
class Via:
    """
    Writer of the mark.

    :param namespace: agentk's own namespace, which is the value of the mark.
    """

    namespace: str

    def marked(self, fields: bytes) -> bytes:
        """
        Return the fields of a request with the mark, if the request impersonates a
        user.

        Marks that kas wrote are removed.

        :param fields: header lines, each preceded by CR LF.
        """
        if _IMPERSONATES.search(fields) is None:
            return fields
        without = _EXTRA.sub(_kept, fields)
        name = VIA.replace("/", "%2F").encode()
        return b"%b\r\nImpersonate-Extra-%b: %b" % (
            without,
            name,
            self.namespace.encode(),
        )


def _kept(found: re.Match[bytes]) -> bytes:
    """Return a line, unless it is a mark."""
    key = unquote(found[1].strip().decode("latin-1")).lower()
    return b"" if key == VIA else found[0]
