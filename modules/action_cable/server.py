"""kas' half: accepts connections of ActionCable, for the channels of other modules."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, Final

import attrs
from twisted.logger import Logger
from zope.interface import implementer, provider

from modules.action_cable.connection import (
    MAX_COMMAND_BYTES,
    SOCKET_LIMIT,
    UNREAD_SECONDS,
    CableConnection,
)
from modules.action_cable.credentials import CableCredential, credential_in
from modules.action_cable.hub import CableHub
from modules.action_cable.messages import PROTOCOL, Disconnect
from tunnel.api import (
    AcceptedWebSocket,
    CableStarted,
    CredentialRevoked,
    ICable,
    IServerModule,
    IServerModuleApi,
    IServerModuleFactory,
    WebSocketRequest,
)
from tunnel.config import field, is_positive
from tunnel.errors import CallError, Status
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.texts import excerpt

__all__ = ["ActionCableServer", "ActionCableSettings"]

PATH: Final = "/-/cable"

#: Maximum characters of a client's ``User-Agent``, which each connection keeps.
MAX_PROGRAM = 256

#: Periods of pings of the WebSocket without a response, after which kas cuts it.
_PERIODS: Final = 3

#: Maximum number of origins whose first refusal is logged, because any page may try.
MAX_ORIGINS: Final = 100

_ORIGIN: Final = re.compile(r"https?://[^/?#\s@]+")


def _are_origins(instance: object, attribute: object, value: tuple[str, ...]) -> None:
    for one in value:
        if _ORIGIN.fullmatch(one) is None or one != one.lower():
            raise ValueError(f"{one!r} is not an origin; write https://host[:port]")


@attrs.frozen(kw_only=True)
class ActionCableSettings:
    """``modules.action_cable``."""

    allowed_origins: tuple[str, ...] = field(
        default=(),
        validator=_are_origins,
        doc="origins of pages that may connect, in addition to kas' own and GitLab's",
    )
    max_connections_per_credential: int = field(
        default=100,
        validator=is_positive,
        doc="connections that one credential may have open, at all workers together",
    )


@provider(IServerModuleFactory)
@implementer(IServerModule)
class ActionCableServer:
    """
    Server of ``/-/cable``.

    :param now: returns the time of day.
    """

    _log = Logger()
    name = "action_cable"
    configuration = ActionCableSettings

    def __init__(
        self,
        api: IServerModuleApi,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.api = api
        settings: ActionCableSettings = api.configuration
        most = settings.max_connections_per_credential
        self._hub = CableHub(
            api.users,
            api.clock,
            now,
            api.random,
            most,
            api.workers.count_together("connections", most),
        )
        self._origins = {*api.web.page_origins, *settings.allowed_origins}
        self._refused_origins: set[str] = set()
        api.capabilities.provide(ICable, self._hub)
        api.users.recheck(self._credentials)
        api.events.subscribe(CredentialRevoked, self._revoked)
        api.web.web_socket(PATH, self.accept)

    async def start(self) -> None:
        """Let other modules serve their channels."""
        self.api.metrics.register(self._hub.metrics)
        self.api.events.publish(CableStarted())

    async def stop(self) -> None:
        """Remove the metrics; the connections have ended."""
        self.api.metrics.unregister(self._hub.metrics)

    def accept(self, request: WebSocketRequest) -> AcceptedWebSocket:
        """
        Decide about a connection.

        A credential that is refused does not refuse the WebSocket, because browsers
        hide the status from the page, whose client would repeat the request endlessly.

        :raises CallError: NOT_FOUND for pages of other origins, as Rails responds.
        """
        if request.path:
            raise CallError(Status.NOT_FOUND, f"connect to {PATH}")
        if request.origin and not self._is_allowed(request):
            self._log_origin(request)
            raise CallError(Status.NOT_FOUND, "pages of this origin may not connect")
        offered = request.subprotocols
        if offered and PROTOCOL not in offered:
            text = f"offer the subprotocol {PROTOCOL}"
            raise CallError(Status.INVALID_ARGUMENT, text)
        credential: CableCredential | None = None
        malformed = False
        try:
            credential = credential_in(request)
        except CallError:
            if not request.origin:
                raise
            malformed = True
        return AcceptedWebSocket(
            CableConnection(
                self._hub,
                request.peer_address,
                credential,
                malformed,
                request.headers.get("user-agent", ("",))[0][:MAX_PROGRAM],
            ),
            PROTOCOL if offered else "",
            max_message_bytes=MAX_COMMAND_BYTES,
            max_unsent_bytes=SOCKET_LIMIT,
            ping_seconds=UNREAD_SECONDS / _PERIODS,
        )

    def _is_allowed(self, request: WebSocketRequest) -> bool:
        return request.origin == request.own_origin or request.origin in self._origins

    def _log_origin(self, request: WebSocketRequest) -> None:
        origin = request.origin
        if origin not in self._refused_origins:
            if len(self._refused_origins) >= MAX_ORIGINS:
                return
            self._refused_origins.add(origin)
            self._log.info(
                "refused a page of {origin}, because kas is {own} for it; if a proxy "
                "is in front, name it in web.trusted_proxies",
                origin=excerpt(origin.encode()),
                own=excerpt(request.own_origin.encode()),
            )

    def _credentials(self) -> set[str]:
        """Return the ids of the credentials with open connections."""
        connections: Any = self._hub.connections
        return {name for one in connections for name in one.credential_ids}

    def _revoked(self, event: CredentialRevoked) -> None:
        connections: Any = self._hub.connections
        held = [one for one in connections if event.credential_id in one.credential_ids]
        for_each(
            held,
            lambda one: one.disconnect(Disconnect.UNAUTHORIZED, False),
            "ending a connection",
        )
