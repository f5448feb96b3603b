"""Which requests change nothing, for users who may only look."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_to_bytes

__all__ = ["changes_nothing"]

_READS: Final = frozenset({b"GET", b"HEAD", b"OPTIONS"})

#: They run programs and open connections, whatever the method: a WebSocket begins with
#: a GET (KEP-4006, kubernetes#78741).
_TOUCHING: Final = frozenset({b"exec", b"attach", b"portforward", b"proxy"})

#: Asked by `kubectl auth can-i` and `whoami`: a POST that is a question.
_QUESTIONS: Final = (
    b"/apis/authorization.k8s.io/v1/selfsubject",
    b"/apis/authentication.k8s.io/v1/selfsubjectreviews",
)


def changes_nothing(method: bytes, target: bytes) -> bool:
    """
    Tell a request that only looks from one that acts.

    Decided by the path as the API server will read it, so after decoding it.  A name
    that is one of the subresources is taken for one, except that of a namespace: to
    refuse too much is a nuisance, to let too much through is not.

    :param target: path and query.
    """
    path = unquote_to_bytes(target.partition(b"?")[0])
    if method == b"POST":
        return path.startswith(_QUESTIONS)
    if method not in _READS:
        return False
    before = b""
    for segment in path.split(b"/"):
        if segment.lower() in _TOUCHING and before != b"namespaces":
            return False
        before = segment
    return True
