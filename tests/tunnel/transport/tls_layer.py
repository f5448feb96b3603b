"""A TLS connection on a fake transport, for the tests of this directory."""

from __future__ import annotations

import ssl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.tunnel.session.harness import (
    BufferPeer,
    CountingTransport,
    Recorder,
    Recorders,
)
from tests.tunnel.transport import certificates
from tunnel.transport.negotiation import NegotiationError
from tunnel.transport.tls import CertificateFiles, client_context
from tunnel.transport.tlsio import wrap_client, wrap_server

ADDRESS = IPv4Address("TCP", "192.0.2.1", 4711)
DONE = Failure(ConnectionDone())


def server_context(identity: certificates.Identity | None = None) -> ssl.SSLContext:
    """What a server has, made without files that stay."""
    identity = identity or certificates.server_identity()
    with TemporaryDirectory() as directory:
        paths = identity.write(Path(directory), "server")
        return CertificateFiles(*paths).load(("txkas/1",), ssl.TLSVersion.TLSv1_2)


def trusting(**options: Any) -> ssl.SSLContext:
    return client_context(ca_data=certificates.authority().pem, **options)


class LayerTestCase(SynchronousTestCase):
    """A server's TLS connection on a fake transport."""

    context = staticmethod(server_context)
    kind: type[Recorder] = Recorder

    def setUp(self) -> None:
        self.clock = Clock()
        self.above = Recorders(self.kind)
        self.failures: list[NegotiationError] = []

    def accept(self, factory: Factory | None = None) -> Any:
        self.transport = CountingTransport()
        wrapped = wrap_server(
            factory or self.above,
            type(self).context,
            self.clock,
            failed=self.failures.append,
        )
        layer: Any = wrapped.buildProtocol(ADDRESS)
        self.layer = layer
        self.layer.makeConnection(self.transport)
        return self.layer

    def establish(self, **options: Any) -> Any:
        """Accept a connection and finish its handshake; returns what is above."""
        self.accept()
        self.peer = BufferPeer(trusting(**options), "localhost")
        self.peer.exchange(self.layer, self.transport)
        (protocol,) = self.above.made
        self.transport.writes = 0
        return protocol

    def assert_failed(self, label: str, *words: str) -> None:
        """The negotiation failed once, for that reason; nothing was made above."""
        self.assertEqual([error.label for error in self.failures], [label])
        for word in words:
            self.assertIn(word, str(self.failures[0]))
        self.assertEqual(self.above.made, [])

    def take(self) -> bytes:
        """Decrypt what we sent."""
        self.peer.incoming.write(self.transport.value())
        self.transport.clear()
        return self.peer.read()


class ClientTestCase(LayerTestCase):
    """A client's TLS connection on a fake transport."""

    def connect(self, name: str, context: ssl.SSLContext | None = None) -> Any:
        factory = wrap_client(self.above, context or trusting(), name, self.clock)
        factory.failed = self.failures.append
        self.transport = CountingTransport()
        layer: Any = factory.buildProtocol(ADDRESS)
        layer.makeConnection(self.transport)
        return layer

    def answer(self, layer: Any, identity: certificates.Identity) -> BufferPeer:
        peer = BufferPeer(server_context(identity), server_side=True)
        peer.exchange(layer, self.transport)
        return peer
