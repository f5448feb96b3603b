"""Users of pages who send a bearer token: `IWeb.mount`."""

from __future__ import annotations

import hashlib
from typing import Any

import attrs
from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IAddress

from tunnel.api.users import Access, IUsers
from tunnel.errors import CallError, Status

__all__ = ["PageCaller"]

#: Maximum characters of the name of a client's program.
MAX_PROGRAM = 256


@attrs.frozen
class PageCaller:
    """
    The user of one request for a page, for checks at one agent after the other.

    A token may name the agent that it is for: ``<kind>:<agent>:<token>``.
    """

    _users: IUsers
    _request: Any
    _token: str = attrs.field(repr=False)

    @classmethod
    def of(cls, users: IUsers, request: Any) -> PageCaller:
        """
        Return the user of a request of ``twisted.web``.

        :raises CallError: UNAUTHENTICATED if the request has no bearer token.
        """
        values = request.requestHeaders.getRawHeaders("authorization", [])
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
        kind, agent, token = "", name, self._token
        if token.count(":") > 1:
            kind, agent, token = token.split(":", 2)
        authorize: Any = self._users.authorize
        access: Access = await maybeDeferred(authorize, kind, agent, token, self)
        if name not in (access.agent_id, access.agent_name):
            raise CallError(Status.PERMISSION_DENIED, "the token is for another agent")
        return access
