"""Pages, webhooks and WebSockets of modules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import attrs
from twisted.internet.interfaces import IAddress, IProtocolFactory
from zope.interface import Attribute, Interface

if TYPE_CHECKING:
    # agentk serves no pages, and need not import twisted.web.
    from twisted.web.resource import IResource

__all__ = [
    "AcceptedWebSocket",
    "IWeb",
    "IWebSocket",
    "WebSocketReceiver",
    "WebSocketRequest",
]

#: Maximum bytes of a message from a client, if the module does not name another limit.
MAX_MESSAGE_BYTES = 64 * 1024

#: Maximum bytes that wait for a slow client, if the module does not name another limit.
MAX_UNSENT_BYTES = 4 * 1024 * 1024

#: Seconds between two pings of kas, if the module does not name another period.
PING_SECONDS = 20.0


@attrs.frozen
class WebSocketRequest:
    """Request of a client that wants to open a WebSocket."""

    #: Decoded names of the path below the prefix.
    path: tuple[str, ...]
    #: Values by name, both decoded.
    query: Mapping[str, tuple[str, ...]] = attrs.field(repr=False)
    #: Values by name in lower case.
    headers: Mapping[str, tuple[str, ...]] = attrs.field(repr=False)
    #: Offered subprotocols; they may contain credentials.
    subprotocols: tuple[str, ...] = attrs.field(repr=False)
    #: Origin of the page that opens the WebSocket; empty without a page.
    origin: str
    #: Origin of kas itself, as the client reaches it: scheme, host and port.
    own_origin: str
    #: Address of the client; behind a proxy in ``web.trusted_proxies``, the address
    #: from ``X-Forwarded-For``.
    peer_address: IAddress


class IWebSocket(Interface):
    """
    An open WebSocket.

    A text is a text message, bytes are a binary message.
    """

    subprotocol: str = Attribute("The selected subprotocol; empty without one.")
    unsent: int = Attribute("Number of bytes that the client has not accepted yet.")

    def send(message: str | bytes) -> None:
        """
        Send one message; a message after `close` is dropped.

        If more than ``max_unsent_bytes`` wait for the client, kas cuts the connection.
        """

    def pause_reading() -> None:
        """
        Deliver no messages until `resume_reading`; the client has to wait, too.
        """

    def resume_reading() -> None:
        """Deliver messages again, beginning in the next turn of the reactor."""

    def close(code: int = 1000, reason: str = "") -> None:
        """
        Close the WebSocket after the messages that were sent.

        :param code: 1000, 1001, 1008, 1011, 1013, or 3000 to 4999.
        :param reason: at most 123 bytes in UTF-8; the rest is cut off.
        """

    def abort() -> None:
        """Cut the connection, because the client does not behave."""


class WebSocketReceiver:
    """
    Base class of the receiver of one WebSocket; each method does nothing by default.

    An exception of a method closes the WebSocket with 1011 and is logged.
    """

    #: The WebSocket, from `opened` on.
    socket: Any = None

    def opened(self) -> None:
        """Handle the beginning; `socket` can send from now on."""

    def message_received(self, message: str | bytes) -> None:
        """Handle one complete message."""

    def paused(self) -> None:
        """
        Stop sending, if possible, because data waits that the client has not accepted.
        """

    def resumed(self) -> None:
        """Send again, because the client has accepted all data."""

    def draining(self, seconds: float) -> None:
        """
        Say goodbye, because kas stops, and close the WebSocket within *seconds*.

        By default, the WebSocket is closed with 1001 at once.
        """
        self.socket.close(1001, "kas stops")

    def closed(self, code: int, reason: str) -> None:
        """
        Handle the end; no other method is called afterwards.

        :param code: the client's code, or kas' own; 1006 if the connection was lost,
            1012 if the module stops.
        """


@attrs.frozen
class AcceptedWebSocket:
    """
    Decision of a module to open a WebSocket.

    :ivar receiver: receives the messages.
    :ivar subprotocol: the selected one of `WebSocketRequest.subprotocols`.
    :ivar max_message_bytes: maximum size of a message from the client, which is in
        memory as a whole; a larger one closes the WebSocket with 1009.
    :ivar max_unsent_bytes: see `IWebSocket.send`.
    :ivar ping_seconds: period of pings; kas cuts the connection if the client sends
        nothing during three periods and reads nothing of the data that waits for it.
    """

    receiver: WebSocketReceiver
    subprotocol: str = ""
    max_message_bytes: int = MAX_MESSAGE_BYTES
    max_unsent_bytes: int = MAX_UNSENT_BYTES
    ping_seconds: float = PING_SECONDS


class IWeb(Interface):
    """kas' listener for pages and webhooks: `IServerModuleApi.web`."""

    page_origins: Collection[str] = Attribute(
        "Origins of pages that may send requests from a user's browser: GitLab's."
    )

    def mount(prefix: str, resource: IResource) -> None:
        """
        Serve *resource* below *prefix*, until the module stops.

        If ``web`` is not configured, no client can reach *resource*.  kas does not
        check credentials at this listener, so *resource* must check them, with
        `tunnel.api.PageCaller` or by itself.  Its requests have the attribute
        ``own_origin``: see `WebSocketRequest`.  ``request.args`` has the fields of the
        query and of an urlencoded form of at most 64 KiB; *resource* parses other
        bodies, from ``request.content``.

        :param prefix: ``/name`` or deeper, without a slash at its end; ``/`` serves
            only this path.
        :raises ValueError: the prefix is invalid, or a module already serves this
            prefix, or a prefix above or below it.
        """

    def hand_over(prefix: str, factory: IProtocolFactory) -> None:
        """
        Let a protocol handle each request below *prefix*, until the module stops.

        The protocol gets the client's connection, from the first byte of the request
        on, for this request only: kas adds ``Connection: close`` to the request, so
        that the client sends further ones on other connections.  The limits of the
        listener on sizes and times do not apply to the request, and the factory has to
        drain its protocols when kas stops.  The conditions of `mount` apply.
        """

    def web_socket(
        prefix: str,
        accept: Callable[
            [WebSocketRequest], AcceptedWebSocket | Awaitable[AcceptedWebSocket]
        ],
    ) -> None:
        """
        Open WebSockets at *prefix* and below, until the module stops.

        The conditions of `mount` apply.  Browsers let pages of any origin open
        WebSockets, so *accept* must check the origin, too.

        :param accept: decides about each request, within 20 seconds.  To refuse, it
            raises a `tunnel.errors.CallError`, whose message the client gets, with
            status UNAUTHENTICATED (401), PERMISSION_DENIED (403), NOT_FOUND (404),
            INVALID_ARGUMENT (400), RESOURCE_EXHAUSTED (429) or UNAVAILABLE (503).  If
            the client leaves, kas cancels it.
        """
