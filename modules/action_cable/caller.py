"""The credential of a connection, and its rights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IAddress
from zope.interface import implementer

from modules.action_cable.credentials import CableCredential
from tunnel.api import Access, ICableCaller, IUsers, Reach

__all__ = ["CableCaller"]


@implementer(ICableCaller)
class CableCaller:
    """
    Client of one connection.

    :param authorized: called after each check that accepted the credential.
    :param program: the client's ``User-Agent``.
    """

    def __init__(
        self,
        users: IUsers,
        credential: CableCredential,
        peer_address: IAddress,
        authorized: Callable[[], object],
        program: str = "",
    ) -> None:
        self._users = users
        self.credential = credential
        self.peer_address = peer_address
        #: See `tunnel.api.program_of`.
        self.program = program
        self._authorized = authorized
        #: Ids of the accepted credentials: see `tunnel.api.Access`.
        self.credential_ids: set[str] = set()
        #: Owner of the budget of commands; the credential until it was accepted.
        self.budget_owner = f"credential:{credential.key}"

    async def authorize(self, agent: str) -> Access:
        """Return the rights of the credential at an agent."""
        credential = self.credential
        authorize: Any = self._users.authorize
        access: Access = await maybeDeferred(
            authorize, credential.kind, agent, credential.token, self
        )
        self.credential_ids.add(access.credential_id)
        self.budget_owner = access.budget_owner
        self._authorized()
        return access

    async def reach(self) -> Reach:
        """Return the agents that the credential gives access to."""
        credential = self.credential
        reach: Any = self._users.reach
        found: Reach = await maybeDeferred(
            reach, credential.kind, credential.token, self
        )
        return found if not credential.agent else found.only(credential.agent)
