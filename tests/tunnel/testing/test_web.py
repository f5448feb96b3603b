"""WebSockets in tests of modules."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from twisted.internet.task import Clock
from zope.interface import implementer, provider
from zope.interface.verify import verifyObject

from tunnel.api import (
    AcceptedWebSocket,
    IServerModule,
    IServerModuleFactory,
    IWebSocket,
    WebSocketReceiver,
    WebSocketRequest,
)
from tunnel.errors import CallError, Status
from tunnel.testing import ModulePair


@attrs.frozen
class EchoSettings:
    """No settings."""


class EchoReceiver(WebSocketReceiver):
    """Sends each message back."""

    ended: Any = None

    def message_received(self, message: str | bytes) -> None:
        self.socket.send(message)

    def closed(self, code: int, reason: str) -> None:
        self.ended = (code, reason)


@provider(IServerModuleFactory)
@implementer(IServerModule)
class EchoModule:
    """A module with one WebSocket."""

    name = "echo"
    configuration = EchoSettings

    def __init__(self, api: Any) -> None:
        api.web.web_socket("/echo", self.accept)
        self.requests: list[WebSocketRequest] = []

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""

    async def accept(self, request: WebSocketRequest) -> AcceptedWebSocket:
        self.requests.append(request)
        if "a" not in request.query:
            raise CallError(Status.NOT_FOUND, "a is missing")
        return AcceptedWebSocket(EchoReceiver(), "one")


@pytest.fixture
def pair() -> ModulePair:
    return ModulePair(Clock())


def test_open(pair: ModulePair) -> None:
    """A test plays the client, and sees what the module sends."""
    module = pair.server_half(EchoModule)
    socket = pair.web_socket("/echo/x?a=1", {"Origin": "https://a"}, ("one",))
    verifyObject(IWebSocket, socket)
    (request,) = module.requests
    assert (request.path, request.origin, request.subprotocols) == (
        ("x",),
        "https://a",
        ("one",),
    )
    socket.receive("hello")
    assert socket.sent == ["hello"]
    socket.receiver.draining(1.0)
    assert socket.closed == (1001, "kas stops")
    assert isinstance(socket.receiver, EchoReceiver)
    assert socket.receiver.ended == socket.closed
    socket.send("late")
    assert socket.sent == ["hello"]


def test_paused(pair: ModulePair) -> None:
    """A client cannot deliver messages while the receiver has paused."""
    pair.server_half(EchoModule)
    socket = pair.web_socket("/echo?a=1")
    socket.pause_reading()
    with pytest.raises(AssertionError, match="paused"):
        socket.receive("x")
    socket.resume_reading()
    socket.receive("x")
    socket.abort()
    assert socket.closed == (1006, "")


def test_refused(pair: ModulePair) -> None:
    """The refusal is raised, and a wrong path is an error of the test."""
    pair.server_half(EchoModule)
    with pytest.raises(CallError, match="a is missing"):
        pair.web_socket("/echo")
    with pytest.raises(AssertionError, match="no module"):
        pair.web_socket("/other")
