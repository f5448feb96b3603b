"""The server half: kas' own web page."""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs
from twisted.web.util import Redirect
from zope.interface import implementer, provider

from modules.web_page.server.agents import ReachedAgents
from modules.web_page.server.assets import FOLDER, Assets
from modules.web_page.server.authenticator import SessionAuthenticator
from modules.web_page.server.metrics import PageMetrics
from modules.web_page.server.operators import PAGE_SESSIONS, SessionOperators
from modules.web_page.server.sessions import UserSession, UserSessions
from modules.web_page.server.sign_in import HOME, TOKEN, PageSignIn
from modules.web_page.server.site import PREFIX, PageRoutes
from tunnel import __version__
from tunnel.api import (
    CredentialRevoked,
    IServerModule,
    IServerModuleApi,
    IServerModuleFactory,
)
from tunnel.config import field
from tunnel.toolkit.for_each import for_each

__all__ = ["WebPageServer", "WebPageSettings"]


@attrs.frozen(kw_only=True)
class WebPageSettings:
    """Section ``modules.web_page`` of kas' configuration."""

    enabled: bool = field(default=True, doc="whether kas serves the page")


@provider(IServerModuleFactory)
@implementer(IServerModule)
class WebPageServer:
    """The server half of the module ``web_page``."""

    configuration = WebPageSettings

    def __init__(
        self, api: IServerModuleApi, now: Callable[[], float] = time.time
    ) -> None:
        self.name = api.name
        self._api = api
        settings: WebPageSettings = api.configuration
        self._is_enabled = settings.enabled
        self._sessions = UserSessions(
            api.stores.open("sessions"), api.clock, now, self._ended
        )
        self._authenticator = SessionAuthenticator(
            api, self._sessions, now, self._end_connections
        )
        if not settings.enabled:
            return
        api.users.add_authenticator(self._authenticator)
        api.users.recheck(self._authenticator.credential_ids)
        api.events.subscribe(CredentialRevoked, self._revoked)
        self._metrics = PageMetrics(self._sessions.all)
        sign_ins = self._metrics.sign_ins
        site = PageRoutes(
            api,
            Assets(FOLDER),
            PageSignIn(
                api,
                self._sessions,
                self._authenticator,
                now,
                lambda *labels: sign_ins.update([labels]),
            ),
            self._authenticator,
            ReachedAgents(api.agents, api.clock, now),
            __version__,
            now,
        )
        api.calls.handle_external(PAGE_SESSIONS, SessionOperators(api, self._sessions))
        api.web.mount(PREFIX, site.resource())
        api.web.mount("/", Redirect(HOME.encode()))

    async def start(self) -> None:
        """Follow the sessions of all kas."""
        if self._is_enabled:
            self._sessions.start()
            self._authenticator.start()
            self._api.metrics.register(self._metrics)

    async def stop(self) -> None:
        """End following."""
        if self._is_enabled:
            self._authenticator.stop()
            self._sessions.stop()
            self._api.metrics.unregister(self._metrics)

    def _ended(self, session: UserSession) -> None:
        """End the connections of a session that has ended."""
        self._authenticator.forget(session)
        self._end_connections(session)

    def _end_connections(self, session: UserSession) -> None:
        self._api.events.publish(CredentialRevoked(f"session:{session.id}"))

    def _revoked(self, event: CredentialRevoked) -> None:
        """End the sessions whose token was revoked."""
        found = [
            one
            for one in self._sessions.all()
            if one.credential_id == event.credential_id and one.method == TOKEN
        ]
        for_each(found, self._sessions.end_later, "ending a session")
