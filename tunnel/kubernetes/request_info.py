"""
A parser of requests to a Kubernetes API server, by the API server's own rules.

The rules are those in `RequestInfo` of k8s.io/apiserver
(pkg/endpoints/request/requestinfo.go). All code that depends on a request's verb or
resource uses this parser: the read-only check, watches and other long requests, audit.
tests/integration compares it with the audit log of a real API server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final
from urllib.parse import quote, unquote_to_bytes

import attrs

from tunnel.api import Access

__all__ = [
    "Lasts",
    "RequestInfo",
    "escapes_root",
    "excluded_namespace",
    "is_discovery",
    "is_self_review",
    "lasts",
    "only_reads",
    "opens_session",
    "query_flag",
    "query_value",
    "readings",
    "request_info",
    "why_refused",
]

_VERBS: Final = {
    b"POST": "create",
    b"GET": "get",
    b"HEAD": "get",
    b"PUT": "update",
    b"PATCH": "patch",
    b"DELETE": "delete",
}

#: Verbs that may precede the resource in the path.
_PATH_VERBS: Final = frozenset({"proxy", "watch"})

#: Parts after the name of a namespace that belong to the namespace itself.
_OF_NAMESPACES: Final = frozenset({"status", "finalize"})


@attrs.frozen
class RequestInfo:
    """
    One request, as the API server's authorizer and audit log see it.

    Texts are decoded as UTF-8, with U+FFFD for invalid bytes.
    """

    #: ``get``, ``list``, ``watch``, ``create``, …; for non-resource requests, the
    #: method in lower case; empty for a method that resources do not support.
    verb: str
    #: The decoded path, without the query.
    path: str
    #: Whether the path names a resource; if not, all following fields are empty.
    is_resource: bool = False
    #: ``api`` or ``apis``.
    prefix: str = ""
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    #: Resource, name, subresource, and the rest of the path.
    parts: tuple[str, ...] = ()


def request_info(method: bytes, target: bytes) -> RequestInfo:
    """
    Parse one request.

    :param target: the path and query as sent, without the prefix of a proxy.
    """
    raw, _, query = target.partition(b"?")
    path = unquote_to_bytes(raw).decode("utf-8", "replace")
    plain = RequestInfo(method.decode("latin-1").lower(), path)
    stripped = path.strip("/")
    parts = stripped.split("/") if stripped else []
    if len(parts) < 3 or parts[0] not in ("api", "apis"):
        return plain
    prefix, *parts = parts
    group = ""
    if prefix == "apis":
        if len(parts) < 3:
            return plain
        group, *parts = parts
    version, *parts = parts
    if parts[0] in _PATH_VERBS:
        verb, *parts = parts
        if not parts:
            # The API server responds with 500; no rule permits this verb.
            return attrs.evolve(plain, verb="")
    else:
        verb = _VERBS.get(method, "")
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _OF_NAMESPACES:
            parts = parts[2:]
    name = parts[1] if len(parts) > 1 else ""
    if not name:
        if verb == "get":
            verb = "watch" if query_flag(query, b"watch") else "list"
            name = _selected_name(query)
        elif verb == "delete":
            verb = "deletecollection"
    return RequestInfo(
        verb,
        path,
        True,
        prefix,
        group,
        version,
        namespace,
        parts[0],
        name,
        parts[2] if len(parts) > 2 and verb != "proxy" else "",
        tuple(parts),
    )


#: Parts of paths that servers resolve in different ways.
_AMBIGUOUS: Final = re.compile(rb"//|[%\\;]|/\.|/\Z")


def readings(method: bytes, target: bytes) -> Iterator[tuple[RequestInfo, bytes]]:
    """
    Yield the possible interpretations of a request: by the API server, and by a server
    in front of it.

    :param target: as in `request_info`.
    """
    yield request_info(method, target), target
    raw, mark, query = target.partition(b"?")
    if _AMBIGUOUS.search(raw) is None:
        return
    path = unquote_to_bytes(raw)
    parts: list[bytes] = []
    for segment in path.replace(b"\\", b"/").split(b"/"):
        name = segment.partition(b";")[0]
        if name == b"..":
            del parts[-1:]
        elif name not in (b"", b"."):
            parts.append(name)
    plain = b"/" + b"/".join(parts)
    if plain != path:
        read = quote(plain).encode("ascii") + mark + query
        yield request_info(method, read), read


# The query, parsed as in Go and k8s.io/apimachinery.

_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def _values(query: bytes) -> Iterator[tuple[bytes, bytes]]:
    for pair in query.split(b"&"):
        if pair and b";" not in pair and _BAD_ESCAPE.search(pair) is None:
            key, _, value = pair.replace(b"+", b" ").partition(b"=")
            yield unquote_to_bytes(key), unquote_to_bytes(value)


def query_value(query: bytes, name: bytes) -> bytes | None:
    """
    Return the first value of *name* in a query; None if the query does not contain
    *name*.
    """
    return next((value for key, value in _values(query) if key == name), None)


def query_flag(query: bytes, name: bytes) -> bool:
    """
    Tell whether the query sets *name*.

    Any first value except ``false`` and ``0`` does so (Convert_Slice_string_To_bool in
    k8s.io/apimachinery).
    """
    value = query_value(query, name)
    return value is not None and value.lower() not in (b"false", b"0")


_TERM: Final = re.compile(r"((?:(?!!=|=).)*)(!=|==|=)(.*)", re.DOTALL)
_NUMBER: Final = re.compile(rb"[+-]?[0-9]+")


def _selected_name(query: bytes) -> str:
    """
    Return the name that the ``fieldSelector`` of a list selects; empty if it does not
    select a name.
    """
    selector = query_value(query, b"fieldSelector")
    if not selector:
        return ""
    for option in (b"limit", b"timeoutSeconds"):
        number = query_value(query, option)
        # If one option is malformed, the API server ignores all of them.
        if number is not None and _NUMBER.fullmatch(number) is None:
            return ""
    found = ""
    for term in sorted(re.split(r"(?<!\\),", selector.decode("utf-8", "replace"))):
        if not term:
            continue
        match = _TERM.fullmatch(term)
        value = None if match is None else _unescaped(match[3])
        if match is None or value is None:
            return ""
        if match[1] == "metadata.name" and match[2] != "!=" and not found:
            found = value
    if found in (".", "..") or "/" in found or "%" in found:
        return ""
    return found


def excluded_namespace(query: bytes) -> str:
    """
    Return the namespace that the ``fieldSelector`` of a query excludes; empty if it
    excludes none, or has several.
    """
    selector = query_value(query, b"fieldSelector") or b""
    found = ""
    for term in re.split(r"(?<!\\),", selector.decode("utf-8", "replace")):
        match = _TERM.fullmatch(term)
        value = None if match is None else _unescaped(match[3])
        if match is None or value is None:
            return ""
        if match[1] == "metadata.namespace" and match[2] == "!=":
            found = value
    return found


def _unescaped(value: str) -> str | None:
    if re.fullmatch(r"(?:[^\\,=]|\\[\\,=])*", value, re.DOTALL) is None:
        return None
    return re.sub(r"\\(.)", r"\1", value)


# Paths that lead out of the API server's root.

# Characters that some servers read as a slash or a dot; they may drop the rest after ;.
_SLASH = re.compile(rb"/|\\|%2f|%5c", re.IGNORECASE)
_DOT = re.compile(rb"%2e", re.IGNORECASE)
_PARAMETERS = re.compile(rb"(?:;|%3b).*", re.IGNORECASE | re.DOTALL)


def escapes_root(path: bytes) -> bool:
    """
    Tell whether a server could resolve *path* to a place above its root.

    On some servers, other clusters are above the root.  Servers differ in what they
    read as a slash, so ``..`` counts after any spelling of a slash, but only a real
    slash adds a level.
    """
    # Dots are rare in paths, so the detailed check is rarely needed.
    if b".." not in path and b"%2" not in path:
        return False
    depth = 0
    for segment in path.split(b"/"):
        parts = [_DOT.sub(b".", _PARAMETERS.sub(b"", p)) for p in _SLASH.split(segment)]
        depth -= parts.count(b"..")
        if depth < 0:
            return True
        if any(part not in (b"", b".", b"..") for part in parts):
            depth += 1
    return False


# Long-running requests.


class Lasts(Enum):
    """Reason why a response may continue until one side ends it."""

    #: The response ends as soon as the API server has responded.
    NO = 0
    #: The response consists of events.
    WATCH = 1
    #: The response is a log that is followed: ``logs -f``.
    LOG = 2


def lasts(method: bytes, target: bytes) -> Lasts:
    """
    Return whether and why a response may continue until one side ends it.

    :param target: as in `request_info`.
    """
    # This comparison excludes nearly every request; an escape may hide the words.
    if method != b"GET" or not (
        b"watch" in target or b"follow" in target or b"%" in target
    ):
        return Lasts.NO
    info = request_info(method, target)
    if info.verb == "watch":
        return Lasts.WATCH
    if info.subresource == "log" and query_flag(target.partition(b"?")[2], b"follow"):
        return Lasts.LOG
    return Lasts.NO


#: Subresources that run programs in a container, or connect to one.  A proxied request
#: to a node or a pod can do the same through the kubelet.
_SESSIONS: Final = frozenset(
    {"attach", "ephemeralcontainers", "exec", "portforward", "proxy"}
)


def opens_session(method: bytes, target: bytes, upgrade: bool = False) -> bool:
    """
    Tell whether a request opens a connection to a program in the cluster: ``exec``,
    ``attach``, ``port-forward``, an ephemeral container, a proxied request, or any
    other upgraded connection except for a watch.

    :param target: as in `request_info`.
    :param upgrade: whether the client requests an upgrade to another protocol.
    """
    if upgrade:
        return not only_reads(method, target, upgrade)
    # This comparison excludes nearly every request; an escape may hide the words.
    if not (
        b"exec" in target
        or b"proxy" in target
        or b"attach" in target
        or b"portforward" in target
        or b"ephemeralcontainers" in target
        or b"%" in target
    ):
        return False
    info = request_info(method, target)
    return info.verb == "proxy" or info.subresource in _SESSIONS


# Read-only access.

_READING_VERBS: Final = frozenset({"get", "list", "watch"})

#: Subresources that can be read without effects.  Other subresources run programs, open
#: connections, or belong to servers whose GET may have effects.
_READABLE: Final = frozenset({"", "log", "status", "scale"})

#: Non-resource paths that the ClusterRole ``system:discovery`` of Kubernetes permits,
#: and probes.
_DISCOVERY: Final = re.compile(
    r"/(?:api|apis|openapi)(?:/.*)?|/version/?|/(?:healthz|livez|readyz)(?:/.*)?"
)

#: Reviews of the client's own permissions, which are sent as objects and not stored:
#: ``kubectl auth can-i`` and ``whoami``.
_QUESTIONS: Final = frozenset(
    {
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
    }
)


def is_self_review(group: str, resource: str) -> bool:
    """Tell whether objects of a kind ask for the client's own permissions."""
    return (group, resource) in _QUESTIONS


def is_discovery(method: bytes, info: RequestInfo, upgrade: bool = False) -> bool:
    """
    Tell whether a request only asks for discovery, OpenAPI, version, health, or the
    client's own permissions.
    """
    segments = info.path.strip("/").split("/")
    if not info.is_resource:
        return (
            method in (b"GET", b"HEAD")
            and not upgrade
            and _DISCOVERY.fullmatch(info.path) is not None
            # A server behind the API server may read a path with dots differently.
            and not {".", ".."} & set(segments)
        )
    return (
        method == b"POST"
        and is_self_review(info.group, info.resource)
        and len(info.parts) == 1
        and not info.namespace
        and not upgrade
        and not {"", ".", ".."} & set(segments)
    )


def only_reads(method: bytes, target: bytes, upgrade: bool = False) -> bool:
    """
    Tell whether a request certainly changes nothing.

    Only the following requests are known to change nothing: get, list and watch of
    resources and of their subresources log, status and scale; requests for discovery,
    OpenAPI, version and health; and reviews of the client's own permissions.  Only a
    watch may be upgraded.

    :param target: as in `request_info`.
    :param upgrade: whether the client requests an upgrade to another protocol.
    """
    info = request_info(method, target)
    if not info.is_resource or method == b"POST":
        return is_discovery(method, info, upgrade)
    if {"", ".", ".."} & set(info.path.strip("/").split("/")):
        return False
    return (
        method in (b"GET", b"HEAD")
        and info.verb in _READING_VERBS
        and info.subresource in _READABLE
        and len(info.parts) <= 3
        and (not upgrade or info.verb == "watch")
    )


def why_refused(
    access: Access, method: bytes, target: bytes, upgrade: bool = False
) -> str | None:
    """
    Return why *access*, which is read-only, does not permit a request; None if *access*
    permits it.

    :param target: as in `request_info`; *upgrade* as in `only_reads`.
    """
    if not only_reads(method, target, upgrade):
        return (
            f"{access.who} is read-only: only get, list and watch are permitted, not "
            "requests that change an object or run a command"
        )
    if not access.secrets:
        info = request_info(method, target)
        if (info.group, info.resource) == ("", "secrets"):
            return f"{access.who} is read-only and may not read Secrets"
    return None
