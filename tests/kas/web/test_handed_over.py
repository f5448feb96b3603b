"""Requests at the listener for pages that another protocol handles."""

from __future__ import annotations

from typing import Any, cast

import pytest
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock, StringTransport

from kas.web.listener import WebFactory
from tests.kas.web.test_listener import PEER, SETTINGS, Hook
from tunnel.hosting.pages import Pages, ProtocolPage


class Recorder(Protocol):
    """Records what it gets."""

    def __init__(self) -> None:
        self.received = b""
        self.ended = False

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def connectionLost(self, reason: Any = None) -> None:
        self.ended = True


class Recorders(Factory):
    def __init__(self) -> None:
        self.made: list[Recorder] = []

    def buildProtocol(self, addr: Any) -> Recorder:
        assert addr is PEER
        self.made.append(Recorder())
        return self.made[-1]


class HandingOver:
    """A listener with a page, and a protocol below /agents."""

    def __init__(self) -> None:
        self.reactor = MemoryReactorClock()
        self.pages = Pages()
        self.pages.mount("greeter", "/greeter", Hook())
        self.recorders = Recorders()
        self.pages.mount("proxy", "/agents", ProtocolPage(self.recorders))
        self.factory: Any = WebFactory(SETTINGS, self.pages, self.reactor)
        self.transport: Any = StringTransport(peerAddress=PEER)
        self.connection = cast(Any, self.factory.buildProtocol(PEER))
        self.connection.makeConnection(self.transport)

    def send(self, data: bytes) -> bytes:
        self.transport.clear()
        self.connection.dataReceived(data)
        answer: bytes = self.transport.value()
        return answer


@pytest.fixture
def stand() -> HandingOver:
    return HandingOver()


REST = b"Host: kas\r\nContent-Length: 4\r\n\r\nbody"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_all_bytes(stand: HandingOver, size: int) -> None:
    """Whatever the reads are, and also after a request for a page."""
    answer = stand.send(b"GET /greeter HTTP/1.1\r\nHost: kas\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    line = b"POST /agents/7/api?x=1 HTTP/1.1\r\n"
    data = line + REST
    for place in range(0, len(data), size):
        assert stand.send(data[place : place + size]) == b""
    (recorder,) = stand.recorders.made
    assert recorder.received == line + b"Connection: close\r\n" + REST
    recorder.transport.write(b"answer")  # type: ignore[union-attr]
    assert stand.transport.value() == b"answer"
    # Neither a request nor a timeout of the listener is left.
    stand.reactor.advance(SETTINGS.idle_timeout * 3)
    assert not stand.transport.disconnecting
    stand.connection.connectionLost()
    assert recorder.ended
    assert not stand.factory.open and not stand.reactor.getDelayedCalls()


@pytest.mark.parametrize(
    "path", [b"/agentsx/7", b"/greeter/agents", b"/Agents", b"agents", b"/%61gents/7"]
)
def test_other_paths(stand: HandingOver, path: bytes) -> None:
    stand.send(b"GET " + path + b" HTTP/1.1\r\nHost: kas\r\n\r\n")
    assert stand.recorders.made == []


def test_pipelined(stand: HandingOver) -> None:
    """A page before it in one read is answered first."""
    answer = stand.send(
        b"GET /greeter HTTP/1.1\r\nHost: kas\r\n\r\nGET /agents/7 HTTP/1.1\r\n\r\n"
    )
    assert answer.count(b"HTTP/1.1 200") == 1
    (recorder,) = stand.recorders.made
    assert recorder.received == b"GET /agents/7 HTTP/1.1\r\nConnection: close\r\n\r\n"


def test_withdrawn(stand: HandingOver) -> None:
    stand.pages.withdraw("proxy")
    assert b" 404 " in stand.send(b"GET /agents/7 HTTP/1.1\r\nHost: kas\r\n\r\n")
