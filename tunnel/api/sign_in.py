"""Sign-in of users in a browser, for modules that serve pages with sessions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

import attrs
from zope.interface import Attribute, Interface

__all__ = ["ISignInProvider", "LoggedOut", "SignInBegun", "SignedIn"]

_IS_TEXT = attrs.validators.instance_of(str)


@attrs.frozen(kw_only=True)
class SignInBegun:
    """
    Sign-in that has begun, until the provider redirects the browser back.

    :ivar url: the provider's URL, to which the module redirects the browser.
    :ivar state: random text that the provider adds to the redirect.
    :ivar secret: opaque value for `ISignInProvider.finish`; only the module and the
        browser that began the sign-in may have it, and only the module reads it.
    """

    url: str = attrs.field(repr=False)
    state: str = attrs.field(repr=False)
    secret: bytes = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class SignedIn:
    """
    Credential of a user who signed in.

    :ivar kind: kind of the credential for `IUsers.authorize`.
    :ivar token: token for `IUsers.authorize`.
    :ivar refresh_token: secret for `ISignInProvider.renew`; empty if the credential
        cannot be renewed.
    :ivar expires_at: expiry of the token, in seconds since 1970.
    :ivar name: name of the user for display.
    :ivar subject: stable id of the user at the provider, at most 255 characters.
    :ivar session: id of the user's session at the provider, at most 255 characters;
        empty if the provider names none.
    """

    kind: str = attrs.field(validator=_IS_TEXT)
    token: str = attrs.field(validator=_IS_TEXT, repr=False)
    refresh_token: str = attrs.field(default="", validator=_IS_TEXT, repr=False)
    expires_at: float = attrs.field(converter=float)
    name: str = attrs.field(validator=_IS_TEXT)
    subject: str = attrs.field(validator=_IS_TEXT)
    session: str = attrs.field(default="", validator=_IS_TEXT)

    def to_bytes(self) -> bytes:
        """Return all attributes, including the secrets, for a sealed store."""
        return json.dumps(attrs.asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> SignedIn:
        """
        Return the credential from `to_bytes`, also of another version of kas.

        :raises ValueError: if *data* is not a credential; the text does not quote it.
        """
        try:
            found: Any = json.loads(data)
            names = [one.name for one in attrs.fields(cls) if one.name in found]
            return cls(**{name: found[name] for name in names})
        except (ValueError, TypeError, LookupError, RecursionError):
            raise ValueError("these bytes are not a credential") from None


class HasSubject(Protocol):
    """What `SignedIn` says of the user; a module's own session may say the same."""

    @property
    def subject(self) -> str:
        """Return `SignedIn.subject`."""

    @property
    def session(self) -> str:
        """Return `SignedIn.session`."""


@attrs.frozen(kw_only=True)
class LoggedOut:
    """
    Sign-out that the provider reported.

    :ivar subject: `SignedIn.subject` of the user; empty if the provider names none.
    :ivar session: `SignedIn.session` that ended; empty for all sessions of the user.
    :ivar issued_at: latest time of the sign-out, in seconds since 1970, with the
        tolerated difference of the clocks; sessions that began later continue.
    """

    subject: str
    session: str
    issued_at: float

    def ends(self, signed_in: HasSubject) -> bool:
        """
        Tell whether *signed_in*, a `SignedIn` or a session made of one, has ended.
        """
        if self.subject and self.subject != signed_in.subject:
            return False
        if self.session and signed_in.session:
            return self.session == signed_in.session
        # One of both does not name its session: end all sessions of the user.
        return bool(self.subject)


class ISignInProvider(Interface):
    """
    Provider that signs users in with a browser: an entry of
    `IUsers.sign_in_providers`.

    Each failure is a `tunnel.errors.CallError`.  UNAUTHENTICATED: the user is not
    signed in, or not any longer, and the message with the reason may be shown.
    UNAVAILABLE and RESOURCE_EXHAUSTED: try again later; a credential stays valid until
    it expires.  Messages contain no secrets.
    """

    name: str = Attribute("Stable id of the provider, such as oidc.")
    title: str = Attribute("Name of the provider for users: the text of a button.")

    def begin(redirect_uri: str) -> Awaitable[SignInBegun]:
        """
        Begin a sign-in.

        :param redirect_uri: https URL of the module, registered at the provider, to
            which the provider redirects the browser.
        """

    def finish(
        begun_secret: bytes, state: str, answer: Mapping[str, str], redirect_uri: str
    ) -> Awaitable[SignedIn]:
        """
        Finish a sign-in within ten minutes.

        The module deletes its copy of *begun_secret* before it calls this method, so
        that each sign-in can finish once.

        :param begun_secret: `SignInBegun.secret`, of the browser that began the
            sign-in.
        :param state: `SignInBegun.state` that belongs to it.
        :param answer: the query parameters of the redirect.
        :param redirect_uri: the same URL as for `begin`.
        """

    def renew(signed_in: SignedIn) -> Awaitable[SignedIn]:
        """
        Renew a credential, for the same user.

        Many providers accept a refresh token once only, and end the session if it
        comes twice: the module renews a credential once at a time, and stores the
        result before it uses it.  It does not cancel a renewal when a client leaves,
        because the provider may already have replaced the refresh token.
        """

    def end_url(signed_in: SignedIn, back: str) -> Awaitable[str]:
        """
        Return the provider's URL that ends the user's session there, to which the
        module redirects the browser; empty if the provider has none.

        The module first ends its own session, because this method fails if the
        provider does not respond.

        :param back: URL of a page of the module, registered at the provider, to which
            the provider redirects the browser.
        """

    def logged_out(logout_token: str) -> Awaitable[LoggedOut]:
        """
        Verify a message of the provider that a user's session ended there (OpenID
        Connect Back-Channel Logout).

        The provider may repeat a message.

        :param logout_token: the form field ``logout_token`` of the provider's request.
        """
