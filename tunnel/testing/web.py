"""Requests for modules' pages, and WebSockets of modules, without a socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

import attrs
from twisted.internet.address import IPv4Address
from twisted.internet.testing import StringTransport
from twisted.web.pages import notFound
from twisted.web.resource import Resource, getChildForRequest
from twisted.web.server import Request, Site
from zope.interface import implementer

from tunnel.api import (
    AcceptedWebSocket,
    IWebSocket,
    WebSocketReceiver,
    WebSocketRequest,
)
from tunnel.hosting.pages import Pages
from tunnel.hosting.web_sockets import WebSocketPage

__all__ = ["Answer", "FakeWebSocket", "find_web_socket", "visit"]


@attrs.frozen
class Answer:
    """The response of a page."""

    status: int
    #: The header fields by name in lower case, each with its last value.
    fields: dict[str, str]
    body: bytes


class _PageRequest(Request):
    """Request with the attribute that kas adds: see `IWeb.mount`."""

    @property
    def own_origin(self) -> str:
        return f"http://{self.getHeader('host') or ''}"


class _Root(Resource):
    """Root resource that finds the resources of modules in the same way as kas."""

    isLeaf = False

    def __init__(self, pages: Pages) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._pages = pages

    def getChild(self, path: bytes, request: Any) -> Any:
        rest = [path, *request.postpath]
        mount = self._pages.find(rest)
        if mount is None:
            return notFound()
        count = len(mount.names)
        request.prepath, request.postpath = rest[:count], rest[count:]
        return getChildForRequest(mount.resource, request)


def visit(
    pages: Pages,
    path: str,
    method: str,
    body: bytes,
    fields: Mapping[str, str],
    settle: Callable[[], None],
) -> Answer:
    """
    Return the response to one request.

    :param fields: header fields by name.
    :param settle: runs pending work; called once, before the response is read.
    """
    site: Any = Site(_Root(pages), requestFactory=_PageRequest)
    site.noisy = False
    transport = StringTransport()
    connection: Any = site.buildProtocol(None)
    connection.makeConnection(transport)
    head = [f"{method} {path} HTTP/1.0", f"Content-Length: {len(body)}"]
    head += [f"{name}: {value}" for name, value in fields.items()]
    connection.dataReceived("\r\n".join([*head, "", ""]).encode() + body)
    settle()
    answer, found, rest = transport.value().partition(b"\r\n\r\n")
    if not found:
        raise AssertionError(f"no response to {method} {path} yet")
    status, *lines = answer.decode("latin-1").split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    return Answer(
        int(status.split()[1]), {name.lower(): value for name, value in pairs}, rest
    )


@implementer(IWebSocket)
class FakeWebSocket:
    """
    `IWebSocket` of a client that the test plays.

    :ivar sent: the messages for the client.
    :ivar unsent: number of bytes that the client has not accepted, set by the test.
    :ivar reading: whether the receiver has not paused.
    :ivar closed: code and reason of the end; None while the WebSocket is open.
    """

    def __init__(self, accepted: AcceptedWebSocket) -> None:
        self.subprotocol = accepted.subprotocol
        self.unsent = 0
        self.reading = True
        self.sent: list[str | bytes] = []
        self.closed: tuple[int, str] | None = None
        self.receiver: WebSocketReceiver = accepted.receiver
        self.receiver.socket = self
        self.receiver.opened()

    # The client

    def receive(self, message: str | bytes) -> None:
        """Deliver a message of the client."""
        if not self.reading:
            raise AssertionError("the receiver has paused")
        self.receiver.message_received(message)

    def leave(self, code: int = 1000, reason: str = "") -> None:
        """Close as the client."""
        if self.closed is None:
            self.closed = (code, reason)
            self.receiver.closed(code, reason)

    # The module

    def send(self, message: str | bytes) -> None:
        if self.closed is None:
            self.sent.append(message)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self, code: int = 1000, reason: str = "") -> None:
        self.leave(code, reason)

    def abort(self) -> None:
        self.leave(1006)


def find_web_socket(
    pages: Pages,
    path: str,
    fields: Mapping[str, str],
    subprotocols: tuple[str, ...],
) -> tuple[Callable[[WebSocketRequest], Any], WebSocketRequest]:
    """
    Return the function of a module that decides about a request, and the request.

    :param fields: header fields by name.
    """
    names, _, query = path.partition("?")
    parts = names.encode().split(b"/")[1:]
    mount = pages.find(parts)
    if mount is None or not isinstance(mount.resource, WebSocketPage):
        raise AssertionError(f"no module opens WebSockets at {names}")
    headers = {name.lower(): (value,) for name, value in fields.items()}
    request = WebSocketRequest(
        path=tuple(one.decode() for one in parts[len(mount.names) :]),
        query={
            name: tuple(values)
            for name, values in parse_qs(query, keep_blank_values=True).items()
        },
        headers=headers,
        subprotocols=subprotocols,
        origin=headers.get("origin", ("",))[0],
        own_origin="https://kas.example.com",
        peer_address=IPv4Address("TCP", "192.0.2.1", 40000),
    )
    return mount.resource.accept, request
