"""The browser of a user, for limits and for the audit log: `tunnel.api.HasPeer`."""

from __future__ import annotations

import attrs
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IAddress

from modules.web_page.server.sessions import UserSession

__all__ = ["Browser"]


@attrs.frozen
class Browser:
    """
    A browser.

    :ivar program: see `tunnel.api.program_of`.
    """

    peer_address: IAddress
    program: str

    @classmethod
    def at_sign_in(cls, session: UserSession) -> Browser:
        """
        Return the browser in which a session began, so that the audit log has one
        sign-in of it.
        """
        return cls(IPv4Address("TCP", session.address, 0), session.program)
