"""
The front door: agent, credential, target and user of a request.

A request can name its agent in three ways: in the credential, ``Bearer
<kind>:<agent>:<token>``; in the path, ``/agents/<agent>/api/…`` with ``Bearer
<token>``; or together with the cookie of a browser's GitLab session.  All other parts
are the same.  The functions in this file are pure, without lookups.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import attrs

from modules.kubernetes_api.browsers import cut_query, session
from modules.kubernetes_api.websocket_tokens import REQUEST, WebSocketTokens
from tunnel.api import (
    CSRF_FIELD,
    PAGE_SESSION,
    SESSION_COOKIE,
    Access,
    Impersonation,
    is_page_csrf,
    page_session,
)
from tunnel.errors import TunnelError
from tunnel.http1 import HeadNote, RequestHead, RequestParser
from tunnel.kubernetes import escapes_root, impersonation_fields

__all__ = [
    "MAX_NOTED",
    "PAGE_PREFIX",
    "Entry",
    "OutgoingFields",
    "Refused",
    "parse_page_request",
    "parse_request",
    "request_parser",
]

# Names of agents are DNS labels; their ids are numbers, or texts of an authenticator.
_AGENT: Final = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_BEARER: Final = re.compile(
    rb"[Bb]earer +(?:([a-z_]{1,32}):(%b):)?([!-~]+)" % _AGENT.pattern
)
#: Kind, agent and token; the first two are empty if the token does not name an agent.
_PARTS: Final[HeadNote[tuple[str, str, str]]] = HeadNote()

_AGENTS: Final = b"/agents/"

#: Prefix of the requests of kas' own page, at the listener for pages.
PAGE_PREFIX: Final = "/agents"

_ALLOWED: Final = re.compile(rb"impersonate-(?:user|group|uid|extra-.+)")
_SINGLE: Final = (b"impersonate-user", b"impersonate-uid")

# Maximum number of proxies: a request with more is in an undetected loop.
_MAX_HOPS: Final = 16

#: Maximum bytes of fields that are cached for credentials in use: 10,000 credentials
#: with a few hundred bytes each, or 80 with the 3,000 groups that GitLab may give a
#: user.
MAX_CACHED: Final = 16 * 1024 * 1024

#: Bytes that a cache entry takes in addition to its fields.
_OVERHEAD: Final = 256

#: Maximum bytes of fields that are stored with a cached head: enough for the longest
#: such head with the identity of a user in a hundred groups.  Longer fields would be
#: stored for each head of each connection.
MAX_NOTED: Final = 8192


#: Fields in which browsers say where a request comes from, and what for.
_FETCHED: Final = re.compile(rb"\r\nsec-fetch-(site|dest):[ \t]*([^\r]*)")


class Refused(TunnelError):
    """Error for a request that is not forwarded, with the response to its client."""

    def __init__(self, status: int, message: str, fields: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.fields = fields


@attrs.define(eq=False)
class Entry:
    """Target, agent and credential of a request."""

    kind: str
    agent: str
    token: str
    #: The target for the cluster, with the client's unchanged query except for the
    #: parameters for kas.
    target: bytes
    #: Whether the client requests a token for a WebSocket at *target*, instead of the
    #: cluster.
    wants_token: bool = False
    #: Identifier of the WebSocket token, see `UsedTokens`; empty without such a token.
    sealed_in: str = ""


def request_parser(max_count: int, cross_origin: bool = False) -> RequestParser:
    """
    Return a parser that removes from a request the fields that are only for kas.

    :param cross_origin: whether to also remove the fields that `browsers.CrossOrigin`
        reads.
    """
    more = [b"origin", b"access-control-request-headers"] if cross_origin else []
    return RequestParser(
        taken=[
            *more,
            b"authorization",
            b"cookie",
            CSRF_FIELD.encode(),
            b"gitlab-agent-id",
            b"x-csrf-token",
            b"impersonate-*",
            # API servers trust these fields if they come with some client certificates.
            b"x-remote-*",
            # Otherwise clients could choose the id that kas' audit log shares with the
            # API server's.
            b"audit-id",
            b"via",
            # Some servers behind an API server use these fields in place of the method.
            b"x-http-method*",
            b"x-method-override",
            b"txkas-*",
        ],
        protected=[
            b"impersonate-*",
            b"audit-id",
            b"gitlab-agent-id",
            b"x-csrf-token",
            b"sec-websocket-*",
            b"user-agent",
            b"txkas-*",
        ],
        max_count=max_count,
    )


def unauthorized(message: str) -> Refused:
    """
    Return a 401 response from kas that differs from a 401 response from the cluster.
    """
    return Refused(
        401,
        f"client -> kas: {message}",
        b"\r\nWWW-Authenticate: Bearer\r\nGitlab-Unauthorized: true",
    )


def parse_request(
    head: RequestHead, prefix: bytes, tokens: WebSocketTokens | None = None
) -> Entry:
    """
    Read the credential and the target.

    :param prefix: the configured path prefix, with a slash at its end.
    :param tokens: decrypts tokens of WebSockets.
    :raises Refused: with 400 or 401.
    """
    path, mark, query = head.target.partition(b"?")
    if len(prefix) > 1:
        if path.startswith(prefix):
            path = path[len(prefix) - 1 :]
        elif path == prefix[:-1]:
            path = b"/"
        else:
            raise Refused(
                400,
                "client -> kas: the path does not begin with "
                f"{prefix.decode()}; correct the server's URL in the kubeconfig",
            )
    named = b""
    if path.startswith(_AGENTS):
        named, path = _agent_in(path)
    _check_root(path)
    ours: dict[bytes, list[bytes]] = {}
    wants_token = False
    if b"gitlab-" in query or REQUEST in query:
        query, ours = cut_query(query)
        mark = b"?" if query else b""
        wants_token = ours.get(REQUEST) == [b"true"] and head.method == b"GET"
    values = head.taken.get(b"authorization", ())
    bearer = _PARTS.read(head)
    if bearer is None and len(values) == 1:
        match = _BEARER.fullmatch(values[0])
        if match is not None:
            parts = [part.decode("ascii") for part in match.groups(b"")]
            bearer = (parts[0], parts[1], parts[2])
            _PARTS.write(head, bearer)
    if bearer is None:
        entry = None if values else _of_page(head, named, ours, path, tokens)
        # A session of kas' own page counts only at the page's own door.
        if entry is None or entry.kind == PAGE_SESSION:
            raise _no_bearer(values)
        entry.target = path + mark + query
        entry.wants_token = wants_token
        return entry
    kind, agent, token = bearer
    if kind:
        if named and agent != named.decode("ascii"):
            raise Refused(
                400, "client -> kas: the path and the credential name different agents"
            )
    elif token.count(":") > 1:
        raise unauthorized("the bearer token is not <kind>:<agent id>:<token>")
    elif named:
        agent = named.decode("ascii")
    else:
        raise unauthorized(
            "neither the bearer token (<kind>:<agent id>:<token>) nor the path "
            "(/agents/<name>/) names an agent; 'kasctl kubeconfig' makes a file with "
            "both from a user's token; an agent's token is for agentk only"
        )
    return Entry(kind, agent, token, path + mark + query, wants_token)


def _agent_in(path: bytes) -> tuple[bytes, bytes]:
    """Return the agent that a path names, and the path in its cluster."""
    named, _, rest = path.removeprefix(_AGENTS).partition(b"/")
    if not path.startswith(_AGENTS) or _AGENT.fullmatch(named) is None:
        raise Refused(
            400,
            "client -> kas: /agents/ is not followed by the name or id of an agent",
        )
    return named, b"/" + rest


def _check_root(path: bytes) -> None:
    """Refuse a path that leads out of the cluster."""
    if escapes_root(path):
        raise Refused(
            400, "client -> kas: the dot segments of the path lead out of the cluster"
        )


def parse_page_request(head: RequestHead, tokens: WebSocketTokens) -> Entry:
    """
    Read session and target of a request of kas' own page.

    The page, and the clusters of all agents, are one origin for a browser.  So only
    scripts of the page may read responses, and a browser must not show them: it says
    where a request comes from, and what for.

    :param tokens: decrypts tokens of WebSockets, for which browsers say neither.
    :raises Refused: with 400, 401 or 403.
    """
    path, mark, query = head.target.partition(b"?")
    named, path = _agent_in(path)
    _check_root(path)
    if head.upgrade.lower() == b"websocket":
        entry = _of_page(head, named, {}, path, tokens)
        if entry is None or entry.kind != PAGE_SESSION:
            raise unauthorized("a WebSocket of the page needs a token")
        entry.target = path + mark + query
        return entry
    cookies = [one.decode("latin-1") for one in head.taken.get(b"cookie", ())]
    token = page_session(cookies)
    if not token:
        raise unauthorized("sign in to the page")
    said = dict(_FETCHED.findall(b"\r\n" + head.fields.lower()))
    if said != {b"site": b"same-origin", b"dest": b"empty"}:
        raise Refused(403, "client -> kas: only scripts of kas' own page may ask this")
    csrf = head.taken.get(CSRF_FIELD.encode(), [b""])[0].decode("latin-1")
    if head.method not in (b"GET", b"HEAD") and not is_page_csrf(token, csrf):
        raise Refused(403, f"client -> kas: {CSRF_FIELD} is missing or wrong")
    ours: dict[bytes, list[bytes]] = {}
    if REQUEST in query:
        query, ours = cut_query(query)
        mark = b"?" if query else b""
    wants_token = ours.get(REQUEST) == [b"true"] and head.method == b"GET"
    return Entry(PAGE_SESSION, named.decode(), token, path + mark + query, wants_token)


def _of_page(
    head: RequestHead,
    named: bytes,
    query: dict[bytes, list[bytes]],
    path: bytes,
    tokens: WebSocketTokens | None,
) -> Entry | None:
    """
    Return the credential of a GitLab page: the token of its WebSocket, or its session.
    """
    try:
        if tokens is not None and head.upgrade.lower() == b"websocket":
            sealed = tokens.credential(head, path)
            if sealed is not None:
                if named and sealed.agent != named.decode("ascii"):
                    raise ValueError("the path and the token name different agents")
                if REQUEST in query:
                    # Otherwise a leaked token could be renewed endlessly.
                    raise ValueError(
                        "a WebSocket token cannot be used to get another one"
                    )
                return Entry(
                    sealed.kind,
                    sealed.agent,
                    sealed.token,
                    path,
                    sealed_in=sealed.sealed_in,
                )
        if b"cookie" not in head.taken:
            return None
        found = session(head, named, query)
    except ValueError as error:
        raise unauthorized(str(error)) from None
    if found is None:
        return None
    return Entry(SESSION_COOKIE, found.agent, found.token, path)


def _no_bearer(values: Sequence[bytes]) -> Refused:
    """
    Return the 401 that explains why *values* of ``Authorization`` are not a credential.
    """
    if not values:
        return unauthorized("no valid credentials provided; send Authorization: Bearer")
    if len(values) > 1:
        return unauthorized("more than one Authorization header")
    return unauthorized("only Bearer is accepted in Authorization")


class OutgoingFields(HeadNote[tuple[Access, bytes]]):
    """
    Builder of the header fields that kas forwards: the client's fields, ``Via`` and
    ``Impersonate-*``.

    The ``Impersonate-*`` fields of a credential are always the same, so they are
    created once.

    :param name: name of this kas in ``Via``; a request that already contains it has
        come back to kas.
    """

    def __init__(self, name: bytes) -> None:
        self._name = name
        self._via = b"\r\nVia: 1.1 " + name
        self._cached: dict[str, tuple[Impersonation, bytes]] = {}
        self._cached_bytes = 0

    def of(self, head: RequestHead, access: Access) -> bytes:
        """
        Return all fields of the forwarded request; the client's hop-by-hop fields are
        removed before the identity is added.

        :raises Refused: if the client requests an impersonation that the client may not
            use, or if the request is in a loop.
        """
        noted = self.read(head)
        if noted is not None and noted[0] is access:
            return noted[1]
        fields = self._made(head, access)
        if len(fields) <= MAX_NOTED:
            self.write(head, (access, fields))
        return fields

    def _made(self, head: RequestHead, access: Access) -> bytes:
        hops = head.taken.get(b"via")
        via = self._via if hops is None else self._behind(hops)
        fields = head.fields + via
        wanted = [name for name in head.taken if name.startswith(b"impersonate-")]
        impersonation = access.impersonation
        if impersonation is None:
            return fields + _own_impersonation(head, wanted) if wanted else fields
        if wanted:
            raise Refused(
                400,
                "client -> kas: nested impersonation is not supported: requests of "
                f"{access.who} already run as {impersonation.username}; "
                "leave out --as and --as-group",
            )
        cached = self._cached.get(access.credential_id)
        if cached is not None and cached[0] is impersonation:
            return fields + cached[1]
        try:
            identity = impersonation_fields(impersonation)
        except ValueError as error:
            raise Refused(500, f"kas: {error} in this credential") from None
        if cached is not None:
            self._cached_bytes -= len(cached[1]) + _OVERHEAD
        self._cached_bytes += len(identity) + _OVERHEAD
        if self._cached_bytes > MAX_CACHED:
            self._cached.clear()
            self._cached_bytes = len(identity) + _OVERHEAD
        self._cached[access.credential_id] = (impersonation, identity)
        return fields + identity

    def _behind(self, hops: list[bytes]) -> bytes:
        """Return the ``Via`` field of a request that came through other proxies."""
        joined = b", ".join(hops)
        if self._name in joined or joined.count(b",") >= _MAX_HOPS:
            raise Refused(
                508,
                "kas -> agent: the request came back to kas; the agent's "
                "kubeconfig must name the API server itself",
            )
        return b"\r\nVia: %b, 1.1 %b" % (joined, self._name)


def _own_impersonation(head: RequestHead, names: list[bytes]) -> bytes:
    """Return the client's own impersonation headers, which the API server checks."""
    lines = []
    for name in names:
        values = head.taken[name]
        if _ALLOWED.fullmatch(name) is None or (name in _SINGLE and len(values) > 1):
            raise Refused(400, f"client -> kas: {name.decode()} is unknown or repeated")
        lines += [b"\r\n%b: %b" % (name, value) for value in values]
    return b"".join(lines)
