"""Connections of kas to other servers."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_twisted
import treq
from twisted.internet import reactor as installed
from twisted.internet.defer import gatherResults
from twisted.internet.error import ConnectionAborted
from twisted.internet.protocol import Factory, Protocol
from twisted.web.client import HTTPConnectionPool, ResponseFailed
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from kas import http_client as module
from kas.http_client import make_agent

reactor: Any = installed


class _Slow(Resource):
    """Answers when as many requests as *count* are here."""

    isLeaf = True

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.here: list[Any] = []

    def render_GET(self, request: Any) -> int:
        self.here.append(request)
        if len(self.here) == self.count:
            here, self.here = self.here, []
            for one in here:
                one.write(b"{}")
                one.finish()
        return NOT_DONE_YET


class _Counting(Site):
    connections = 0

    def buildProtocol(self, addr: Any) -> Any:
        self.connections += 1
        return super().buildProtocol(addr)


@pytest_twisted.ensureDeferred
async def test_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """All connections of a storm serve again, not two of them."""
    count = 10
    pools: list[HTTPConnectionPool] = []

    class Pool(HTTPConnectionPool):
        def __init__(self, *args: Any, **rest: Any) -> None:
            super().__init__(*args, **rest)
            pools.append(self)

    monkeypatch.setattr(module, "HTTPConnectionPool", Pool)
    site = _Counting(_Slow(count))
    port = reactor.listenTCP(0, site, interface="127.0.0.1")
    try:
        address = f"http://127.0.0.1:{port.getHost().port}"
        agent = make_agent(None, "", reactor, {}, count)
        for _ in range(2):
            asked = [agent.request(b"GET", address.encode()) for _ in range(count)]
            for response in await gatherResults(asked):
                await treq.content(response)
        assert site.connections == count
    finally:
        for pool in pools:
            await pool.closeCachedConnections()
        await port.stopListening()


class _Endless(Protocol):
    """Answers with headers until it is told to stop."""

    factory: Any

    def dataReceived(self, data: bytes) -> None:
        sender: Any = self.transport
        sender.write(b"HTTP/1.1 200 OK\r\n")
        sender.registerProducer(self, False)

    def resumeProducing(self) -> None:
        sender: Any = self.transport
        self.factory.sent += 64 * 1000
        sender.write((b"X-A: " + b"b" * 993 + b"\r\n") * 64)

    def stopProducing(self) -> None:
        """It is told to."""


@pytest_twisted.ensureDeferred
async def test_an_answer_that_does_not_begin() -> None:
    """Headers without end are read to a limit."""
    factory: Any = Factory.forProtocol(_Endless)
    factory.sent = 0
    port = reactor.listenTCP(0, factory, interface="127.0.0.1")
    url = f"http://127.0.0.1:{port.getHost().port}/".encode()
    agent = make_agent(None, "x", reactor, {}, 1)
    try:
        asking = agent.request(b"GET", url).addTimeout(20, reactor)
        with pytest.raises(ResponseFailed) as caught:
            await asking
    finally:
        await port.stopListening()
    (reason, *_) = caught.value.reasons
    assert reason.check(ConnectionAborted)
    # What the kernel holds on the way is not read.
    assert factory.sent < module.MAX_HEAD + 16 * 1024**2
