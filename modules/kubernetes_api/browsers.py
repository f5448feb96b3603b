"""
Requests of browsers: sessions of GitLab, and pages of other origins.

A page of GitLab sends the cookie of its user's session, which the browser adds by
itself, and a CSRF token, which only that page knows. The functions in this file are
pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final
from urllib.parse import unquote_plus

import attrs

from modules.kubernetes_api.websocket_tokens import REQUEST
from tunnel.http1 import RequestHead

__all__ = [
    "ISOLATED",
    "CrossOrigin",
    "PageSession",
    "cut_query",
    "not_passed",
    "session",
]

_COOKIE: Final = b"_gitlab_kas"

#: Query parameters of WebSockets, for which browsers cannot set headers.
AGENT_ID: Final = b"gitlab-agent-id"
CSRF_TOKEN: Final = b"gitlab-csrf-token"

#: Header fields that only responses to sessions need: for a browser, the clusters of
#: all agents are one origin, and a page of one cluster must not act in that origin.
ISOLATED: Final = (
    b"\r\nContent-Security-Policy: sandbox\r\nX-Content-Type-Options: nosniff"
)

#: Response fields that reach a browser: the API server's own fields.  Fields for kas or
#: for this hop were removed earlier.
_PASSED: Final = (
    "accept-ranges",
    "age",
    "allow",
    "audit-id",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-range",
    "content-security-policy",
    "content-type",
    "date",
    "etag",
    "expires",
    "last-modified",
    "location",
    "pragma",
    "retry-after",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
    "vary",
    "warning",
    "www-authenticate",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
    "x-remotecommand-stream-protocol-version",
    "x-stream-protocol-version",
)

_PRINTS = re.compile("[!-~]+")

_METHODS: Final = b"GET, HEAD, POST, PUT, DELETE, CONNECT, OPTIONS, TRACE, PATCH"


@attrs.frozen
class PageSession:
    """
    A session of GitLab and the requested agent.

    :ivar token: see `tunnel.api.SESSION_COOKIE`.
    """

    agent: str
    token: str = attrs.field(repr=False)


def cut_query(query: bytes) -> tuple[bytes, dict[bytes, list[bytes]]]:
    """
    Split a query into the part that kas forwards, and the values of the parameters that
    are meant for kas.
    """
    kept = []
    taken: dict[bytes, list[bytes]] = {}
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        if name in (AGENT_ID, CSRF_TOKEN, REQUEST):
            taken.setdefault(name, []).append(value)
        else:
            kept.append(part)
    return b"&".join(kept), taken


def session(
    head: RequestHead, named: bytes, query: dict[bytes, list[bytes]]
) -> PageSession | None:
    """
    Return the GitLab session of a request; None if the request has no session cookie.

    :param named: the agent in the path; empty if the path names none.
    :param query: the parameters that were removed from the query.
    :raises ValueError: if the session is invalid.
    """
    pairs = b";".join(head.taken.get(b"cookie", ())).split(b";")
    named_pairs = (pair.strip(b" \t").partition(b"=") for pair in pairs)
    cookies = [value for name, _, value in named_pairs if name == _COOKIE]
    if not cookies:
        return None
    agent = _one(head.taken.get(b"gitlab-agent-id"), "Gitlab-Agent-Id")
    if not agent:
        agent = _escaped(query.get(AGENT_ID), "gitlab-agent-id")
    if not agent:
        agent = named.decode("ascii")
    if not agent:
        raise ValueError("Gitlab-Agent-Id is missing")
    if named and agent != named.decode("ascii"):
        raise ValueError("the path and Gitlab-Agent-Id name different agents")
    csrf = _one(head.taken.get(b"x-csrf-token"), "X-Csrf-Token")
    if not csrf:
        csrf = _escaped(query.get(CSRF_TOKEN), "gitlab-csrf-token")
    if not csrf:
        raise ValueError("X-Csrf-Token is missing")
    return PageSession(agent, f"{csrf} {_escaped(cookies, 'the cookie _gitlab_kas')}")


def not_passed(more: Iterable[str], but: Collection[str] = ()) -> re.Pattern[bytes]:
    """
    Return an expression that matches the names of response fields that kas does not
    send to browsers.

    :param more: names of further fields that kas sends to browsers.
    :param but: names, in lower case, of fields that it does not send in any case.
    """
    passed = (name for name in (*_PASSED, *more) if name.lower() not in but)
    names = "|".join(map(re.escape, passed))
    return re.compile(rb"\r\n(?!(?:%b):)[^\r]*+" % names.encode(), re.IGNORECASE)


def _one(values: Sequence[bytes] | None, what: str) -> str:
    if not values:
        return ""
    if len(values) > 1:
        raise ValueError(f"{what} is repeated")
    return _checked(values[0].decode("latin-1"), what)


def _escaped(values: Sequence[bytes] | None, what: str) -> str:
    if not values:
        return ""
    if len(values) > 1:
        raise ValueError(f"{what} is repeated")
    return _checked(unquote_plus(values[0].decode("latin-1"), "latin-1"), what)


def _checked(text: str, what: str) -> str:
    if _PRINTS.fullmatch(text) is None:
        raise ValueError(f"{what} is malformed")
    return text


class CrossOrigin:
    """
    Rules for pages of other origins that may send requests, by the Fetch standard
    (CORS).

    :param origins: the origins of those pages, such as ``https://gitlab.example.com``.
    """

    def __init__(self, origins: Collection[str]) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)

    def fields(self, head: RequestHead) -> bytes | None:
        """
        Return the CORS fields of every response to the request; None if its page may
        not send requests.

        The request's own ``Origin`` is forwarded to the cluster, which may check it,
        too.
        """
        origins = head.taken.get(b"origin")
        if origins is None:
            return b""
        if len(origins) > 1 or origins[0] not in self._origins:
            return None
        head.fields += b"\r\nOrigin: " + origins[0]
        return (
            b"\r\nAccess-Control-Allow-Origin: %b"
            b"\r\nAccess-Control-Allow-Credentials: true"
            b"\r\nVary: Origin"
        ) % origins[0]

    def preflight(self, head: RequestHead) -> bytes:
        """
        Return the fields that the response to an OPTIONS request has in addition; they
        permit any request.
        """
        wanted = head.taken.get(b"access-control-request-headers", ())
        fields = b"".join(
            b"\r\nAccess-Control-Allow-Headers: " + value for value in wanted
        )
        return (
            fields
            + b"\r\nAccess-Control-Allow-Methods: "
            + _METHODS
            + b"\r\nAccess-Control-Max-Age: 86400"
        )
