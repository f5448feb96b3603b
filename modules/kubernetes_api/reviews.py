"""
``kubectl auth can-i`` of users who are read-only.

The API server knows nothing of what kas refuses, and would promise more.  kas answers
itself where it would refuse the request that is asked about, and passes on the other
questions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from tunnel.interfaces import Access
from tunnel.kubernetes import request_info, why_refused

__all__ = ["MAX_REVIEW", "ReviewError", "is_review", "refusal"]

#: Bytes of a question: those of kubectl have 300, and a name has 253 at most.
MAX_REVIEW: Final = 16 * 1024

_GROUP: Final = "authorization.k8s.io"
_REVIEW: Final = "selfsubjectaccessreviews"
_RULES: Final = "selfsubjectrulesreviews"


class ReviewError(Exception):
    """A question that kas cannot answer; *status* is of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def is_review(method: bytes, target: bytes) -> bool:
    """Whether a request asks for one's own rights in the cluster."""
    # Nearly every request is told from these by a search alone.
    if method != b"POST":
        return False
    info = request_info(method, target)
    return info.group == _GROUP and info.resource in (_REVIEW, _RULES)


def refusal(access: Access, target: bytes, body: bytes) -> bytes | None:
    """
    The answer that denies the right asked for; None: the cluster decides.

    :raises ReviewError: the question cannot be read, or is not about one right.
    """
    info = request_info(b"POST", target)
    if info.resource == _RULES:
        raise ReviewError(
            403,
            f"{access.who} is read-only, and kas cannot list what is left of the "
            "rights in the cluster: ask for one, as in 'kubectl auth can-i list pods'",
        )
    try:
        review = json.loads(body)
        spec = review["spec"]
        why = _why(access, spec)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ReviewError(
            400, f"kas reads a question of {access.who} for rights only as JSON"
        ) from None
    if why is None:
        return None
    answer = {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": f"{_GROUP}/{info.version}",
        "metadata": {},
        "spec": spec,
        "status": {"allowed": False, "denied": True, "reason": f"kas: {why}"},
    }
    return json.dumps(answer).encode()


def _why(access: Access, spec: Mapping[str, Any]) -> str | None:
    """Why kas would refuse the request that a review asks about."""
    resource = spec.get("resourceAttributes")
    if resource is None:
        other = spec["nonResourceAttributes"]
        method, path = other["verb"].upper(), other["path"]
    else:
        method, path = _request(resource, access.secrets)
    return why_refused(access, method.encode(), quote(path, safe="/?=").encode())


def _request(asked: Mapping[str, Any], secrets: bool) -> tuple[str, str]:
    """Method and target of a request that needs a right."""
    verb = asked.get("verb", "")
    if verb not in ("get", "list", "watch"):
        # Whatever it is, it does not read only.
        return "DELETE", "/api/v1/namespaces/x"
    group, name = asked.get("group", ""), asked.get("resource", "")
    if name == "*" and group in ("", "*") and not secrets:
        # Secrets are among all resources.
        group, name = "", "secrets"
    parts = [f"/apis/{group}/v1" if group else "/api/v1"]
    if asked.get("namespace"):
        parts += ["namespaces", asked["namespace"]]
    parts.append(name)
    if verb == "get" or asked.get("name") or asked.get("subresource"):
        parts.append(asked.get("name") or "x")
    if asked.get("subresource"):
        parts.append(asked["subresource"])
    return "GET", "/".join(parts)
