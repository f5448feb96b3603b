"""Credentials of users, including those with open connections."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from zope.interface import implementer
from zope.interface.verify import verifyObject

from kas.identity.authenticators import Authenticators
from tunnel.api import IAuthenticator, ISignInProvider, IUsers, Usage
from tunnel.hosting.scope import ModuleScope
from tunnel.toolkit.for_each import for_each

__all__ = ["HeldCredentials", "ModuleUsers"]

_Look = Callable[[], Collection[str]]


class HeldCredentials:
    """
    Set of the credentials whose connections modules hold open.

    If a module fails to name its credentials, those that it named before stay in the
    set: otherwise, kas would not check them any more.
    """

    def __init__(self) -> None:
        self._looks: dict[object, _Look] = {}
        #: The last result of each function.
        self._last: dict[object, frozenset[str]] = {}

    def add(self, look: _Look) -> Callable[[], object]:
        """
        Include the ids that *look* returns; return a function that removes *look*.
        """
        key = object()
        self._looks[key] = look
        self._last[key] = frozenset()

        def remove() -> None:
            self._looks.pop(key, None)
            self._last.pop(key, None)

        return remove

    def ids(self) -> set[str]:
        """Return the ids of all these credentials now."""
        for_each(tuple(self._looks), self._look, "asking a module for open credentials")
        return set().union(*self._last.values())

    def _look(self, key: object) -> None:
        if (look := self._looks.get(key)) is not None:
            self._last[key] = frozenset(look())


@implementer(IUsers)
class ModuleUsers:
    """
    Implementation of `IUsers` for one module.

    :param count_usage: function that counts a use for reports to GitLab; None if kas
        sends no reports.
    """

    def __init__(
        self,
        scope: ModuleScope,
        authenticators: Authenticators,
        held: HeldCredentials,
        count_usage: Callable[[Usage], None] | None,
        sign_in_providers: Sequence[ISignInProvider] = (),
    ) -> None:
        self._scope = scope
        self._authenticators = authenticators
        self._held = held
        #: Function that checks a credential; called for each request.
        self.authorize = authenticators.authorize_user
        #: Function that lists the agents of a credential.
        self.reach = authenticators.reach_of_user
        #: Function that counts a use; None if kas sends no reports.
        self.count_usage = count_usage
        #: Providers that sign users in with a browser.
        self.sign_in_providers = sign_in_providers

    def add_authenticator(self, authenticator: IAuthenticator) -> None:
        """Add an authenticator for further kinds of credentials."""
        verifyObject(IAuthenticator, authenticator)
        self._scope.on_release(self._authenticators.add(authenticator))

    def recheck(self, held: _Look) -> None:
        """Check the credentials whose ids *held* returns again and again, until the
        module stops."""
        self._scope.on_release(self._held.add(held))
