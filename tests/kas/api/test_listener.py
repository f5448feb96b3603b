"""The listener of the external API."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import capturedLogs
from twisted.python.failure import Failure

from kas.api.limits import DEFAULT_LIMITS
from kas.api.listener import ExternalApi, ExternalFactory
from kas.config.schema import ApiListen
from tests.kas.api.clients import ADDRESS, SECRET, ExternalCase
from tests.tunnel.transport import certificates
from tunnel.program.listening import Listening
from tunnel.program.runtime import Runtime


class HandshakeTests(ExternalCase):
    """Connections count from accept, and not from the end of the TLS handshake."""

    def test_too_many(self) -> None:
        """Those who say nothing take the places, and only for ten seconds."""
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        folder = Path(temporary.name)
        (folder / "secret").write_bytes(base64.b64encode(SECRET))
        certificate, key = certificates.server_identity().write(folder, "server")
        settings = ApiListen(
            address="127.0.0.1:8153",
            authentication_secret_file=folder / "secret",
            certificate_file=Path(certificate),
            key_file=Path(key),
        )
        reactor = MemoryReactorClock()
        api = ExternalApi(
            settings,
            self.services,
            Listening(reactor),
            Runtime(reactor=reactor, random=lambda: 0.5),
            None,
        )
        self.successResultOf(Deferred.fromCoroutine(api.start()))
        factory = reactor.tcpServers[0][1]
        api.factory.limit = 3
        open_ = api.factory.buildProtocol(ADDRESS)
        assert open_ is not None
        open_.makeConnection(StringTransport())
        silent: list[Any] = [factory.buildProtocol(ADDRESS) for _ in range(2)]
        for one in silent:
            one.makeConnection(StringTransport())
        self.assertIsNone(factory.buildProtocol(ADDRESS))
        reactor.advance(10)
        for one in silent:
            one.connectionLost(Failure(ConnectionDone()))
        self.assertIsNotNone(factory.buildProtocol(ADDRESS))


class ManyConnectionsTests(ExternalCase):
    """Places are limited."""

    limits = attrs.evolve(DEFAULT_LIMITS, connections=3)

    def test_connections(self) -> None:
        """One too many is closed; a place that becomes free is given again."""
        pipes = [self.http2()[1] for _ in range(3)]
        self.assertIsNone(self.factory.buildProtocol(pipes[0].transports[0].getPeer()))
        pipes[0].transports[0].abortConnection()
        pipes[0].flush()
        client, pipe = self.http2()
        stream = client.open("Say")
        client.send(stream, "a", end=True)
        pipe.flush()
        self.assertEqual(client.status(stream), 0)


def test_one_http2_connection_fails() -> None:
    """The others are drained all the same."""
    factory: Any = ExternalFactory.__new__(ExternalFactory)
    bad, good = Mock(), Mock()
    bad.drain.side_effect = ValueError
    factory.http2, factory.open = [bad, good], set()
    with capturedLogs() as events:
        factory.drain(1.0)
    assert (good.drain.call_count, len(events)) == (1, 1)
