"""
Users of pages: by a bearer token, or by a session of kas' own page (`IWeb.mount`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from typing import Any, Final

import attrs
from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IAddress

from tunnel.api.users import PAGE_SESSION, Access, IUsers, Reach
from tunnel.errors import CallError, Status

__all__ = [
    "CSRF_FIELD",
    "PAGE_COOKIE",
    "PageCaller",
    "is_page_csrf",
    "page_csrf",
    "page_session",
]

#: Cookie of a session of kas' own page.  With this prefix, browsers accept the cookie
#: only over TLS and only from the host of kas, and send it to no other host, but to all
#: ports of this host.
PAGE_COOKIE: Final = "__Host-kas"

#: Header field with `page_csrf`.
CSRF_FIELD: Final = "x-kas-csrf"

#: Maximum characters of the name of a client's program.
MAX_PROGRAM = 256

#: Methods that change nothing.
_SAFE: Final = (b"GET", b"HEAD")


def page_session(cookies: Iterable[str]) -> str:
    """
    Return the value of `PAGE_COOKIE`; empty without it.

    :param cookies: values of the header field ``Cookie``.
    """
    pairs = (pair.strip().partition("=") for pair in ";".join(cookies).split(";"))
    found = [value for name, _, value in pairs if name == PAGE_COOKIE]
    return found[0] if len(found) == 1 else ""


def page_csrf(session: str) -> str:
    """
    Return the CSRF token of a session, which only kas' own page knows: it sends the
    token with each change, in the header field `CSRF_FIELD`.

    :param session: the value of `PAGE_COOKIE`.
    """
    digest = hashlib.sha256(b"kas page csrf:" + session.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def is_page_csrf(session: str, token: str) -> bool:
    """Return whether *token* is the `page_csrf` of a session."""
    return hmac.compare_digest(page_csrf(session).encode(), token.encode())


def _is_own_page(origin: str, own_origin: str, site: str) -> bool:
    """
    Return whether a request that a browser adds `PAGE_COOKIE` to comes from kas' own
    page.

    :param origin: ``Origin``; empty without it, as for reading requests of one origin.
    :param own_origin: as in `tunnel.api.web.WebSocketRequest`.
    :param site: ``Sec-Fetch-Site``; empty for old browsers.
    """
    if origin:
        return origin.lower() == own_origin
    return site in ("", "same-origin", "none")


@attrs.frozen
class PageCaller:
    """
    The user of one request for a page, for checks at one agent after the other.

    A token may name the agent that it is for: ``<kind>:<agent>:<token>``.
    """

    _users: IUsers
    _request: Any
    _token: str = attrs.field(repr=False)
    _kind: str = ""

    @classmethod
    def of(cls, users: IUsers, request: Any) -> PageCaller:
        """
        Return the user of a request of ``twisted.web``.

        :raises CallError: UNAUTHENTICATED if the request has neither a bearer token nor
            a session; PERMISSION_DENIED if it has a session, and is from a page of
            another origin.
        """
        headers = request.requestHeaders
        values = headers.getRawHeaders("authorization", [])
        session = page_session(headers.getRawHeaders("cookie", []))
        if not values and session:
            origin, site = (
                ",".join(headers.getRawHeaders(name, []))
                for name in ("origin", "sec-fetch-site")
            )
            # Browsers send the origin with every request that may change something.
            missing = not origin and request.method not in _SAFE
            if missing or not _is_own_page(origin, request.own_origin, site):
                raise CallError(
                    Status.PERMISSION_DENIED,
                    "a session may only be used by pages of kas itself; if a proxy is "
                    "in front of kas, name it in web.trusted_proxies",
                )
            return cls(users, request, session, PAGE_SESSION)
        if len(values) != 1 or not values[0].lower().startswith("bearer "):
            raise CallError(
                Status.UNAUTHENTICATED,
                "send the header field Authorization: Bearer TOKEN",
            )
        return cls(users, request, values[0].partition(" ")[2].strip())

    @property
    def digest(self) -> bytes:
        """Return a digest of the token, as its key in tables."""
        return hashlib.sha256(self._token.encode()).digest()

    @property
    def peer_address(self) -> IAddress:
        """The address of the client, for limits on refused credentials."""
        address: IAddress = self._request.getClientAddress()
        return address

    @property
    def program(self) -> str:
        """Return the client's ``User-Agent``: see `program_of`."""
        values = self._request.requestHeaders.getRawHeaders("user-agent", [""])
        return str(values[0])[:MAX_PROGRAM]

    async def access_of(self, name: str) -> Access:
        """
        Return the rights of the user at an agent.

        :param name: name or id of the agent.
        :raises CallError: see `IUsers.authorize`.
        """
        kind, agent, token = self._parts()
        authorize: Any = self._users.authorize
        access: Access = await maybeDeferred(
            authorize, kind, agent or name, token, self
        )
        if name not in (access.agent_id, access.agent_name):
            raise CallError(Status.PERMISSION_DENIED, "the token is for another agent")
        return access

    async def reach(self) -> Reach:
        """
        Return the agents that the user may reach.

        :raises CallError: see `IUsers.reach`.
        """
        kind, agent, token = self._parts()
        reach: Any = self._users.reach
        found: Reach = await maybeDeferred(reach, kind, token, self)
        return found.only(agent) if agent else found

    def _parts(self) -> tuple[str, str, str]:
        """Return kind, agent and secret; kind and agent are empty if unknown."""
        if not self._kind and self._token.count(":") > 1:
            kind, agent, token = self._token.split(":", 2)
            if " " in kind:
                raise CallError(Status.UNAUTHENTICATED, "the bearer token is malformed")
            return kind, agent, token
        return self._kind, "", self._token
