"""
``kubectl auth can-i`` of users who are read-only.

The API server does not know the requests that kas refuses, so its response would
promise too much. kas itself responds if it would refuse the request in question, and
forwards all other reviews.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from tunnel.api import Access
from tunnel.kubernetes import request_info, why_refused

__all__ = ["MAX_REVIEW", "ReviewError", "is_review", "refusal"]

#: Maximum bytes of a review: kubectl's have 300, and a name has at most 253.
MAX_REVIEW: Final = 16 * 1024

_GROUP: Final = "authorization.k8s.io"
_REVIEW: Final = "selfsubjectaccessreviews"
_RULES: Final = "selfsubjectrulesreviews"


#: Prefix of an object in protobuf, as kubectl sends it; a `runtime.Unknown` follows.
_PROTOBUF: Final = b"k8s\0"

#: Fields of the attributes of a review, by their numbers in protobuf.
_RESOURCE: Final = {
    1: "namespace", 2: "verb", 3: "group", 5: "resource", 6: "subresource", 7: "name"
}  # fmt: skip
_OTHER: Final = {1: "path", 2: "verb"}


class ReviewError(Exception):
    """
    Error for a review that kas cannot answer; *status* is the status of the response.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def is_review(method: bytes, target: bytes) -> bool:
    """Return whether a request asks for the client's own permissions in the cluster."""
    # A single comparison excludes nearly every request.
    if method != b"POST":
        return False
    info = request_info(method, target)
    return info.group == _GROUP and info.resource in (_REVIEW, _RULES)


def refusal(access: Access, target: bytes, body: bytes) -> bytes | None:
    """
    Return the response that denies the requested permission; None if the cluster
    decides.

    :raises ReviewError: if the review cannot be read, or is not about a single
        permission.
    """
    info = request_info(b"POST", target)
    if info.resource == _RULES:
        raise ReviewError(
            403,
            f"{access.who} is read-only, and kas cannot list the remaining "
            "permissions in the cluster: ask for a single permission, as in 'kubectl "
            "auth can-i list pods'",
        )
    try:
        if body.startswith(_PROTOBUF):
            spec = _spec(body.removeprefix(_PROTOBUF))
        else:
            spec = json.loads(body)["spec"]
        why = _why(access, spec)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ReviewError(
            400, f"kas cannot parse the access review of {access.who}"
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
    """Return why kas would refuse the request in a review; None if it would not."""
    resource = spec.get("resourceAttributes")
    if resource is None:
        other = spec["nonResourceAttributes"]
        method, path = other["verb"].upper(), other["path"]
    else:
        method, path = _request(resource, access.secrets)
    return why_refused(access, method.encode(), quote(path, safe="/?=").encode())


def _request(asked: Mapping[str, Any], secrets: bool) -> tuple[str, str]:
    """
    Return the method and target of a request that needs the permission in a review.
    """
    verb = asked.get("verb", "")
    if verb not in ("get", "list", "watch"):
        # Any other verb is treated as a write.
        return "DELETE", "/api/v1/namespaces/x"
    group, name = asked.get("group", ""), asked.get("resource", "")
    # Names of resources have no dot: "secrets.*" includes a group.
    name, _, more = name.partition(".")
    group = more or group
    if name in ("*", "secrets") and group in ("", "*") and not secrets:
        # A permission for all resources includes Secrets, and all groups include their
        # group.
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


# Parsing of protobuf: a review contains only strings and messages.


def _spec(unknown: bytes) -> dict[str, Any]:
    """Return the ``spec`` of a review in protobuf, in its JSON form."""
    review = _messages(_messages(unknown)[2])
    spec = _messages(review[2])
    found: dict[str, Any] = {}
    for number, key, names in (
        (1, "resourceAttributes", _RESOURCE),
        (2, "nonResourceAttributes", _OTHER),
    ):
        if number in spec:
            fields = _messages(spec[number])
            texts = {names[one]: text for one, text in fields.items() if one in names}
            found[key] = {name: text.decode() for name, text in texts.items()}
    return found


def _messages(data: bytes) -> dict[int, bytes]:
    """Return the fields of a message that are strings or messages, by their numbers."""
    found: dict[int, bytes] = {}
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        kind = tag & 7
        if kind == 2:
            size, place = _varint(data, place)
            if size > len(data) - place:
                raise ValueError("a field ends behind its message")
            found[tag >> 3] = data[place : place + size]
            place += size
        elif kind == 0:
            _, place = _varint(data, place)
        else:
            raise ValueError(f"fields of wire type {kind} are not supported")
    return found


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return the number that begins at *place*, and the position after it."""
    number = 0
    for shift in range(0, 64, 7):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
    raise ValueError("a varint is incomplete, or longer than 64 bits")
