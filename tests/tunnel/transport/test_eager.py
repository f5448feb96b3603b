"""Sending at once, on real sockets."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.task import deferLater
from twisted.internet.testing import StringTransport
from twisted.internet.threads import deferToThread

from tests.tunnel.producers import Producer
from tests.tunnel.session.harness import Recorder, Recorders
from tunnel.transport import eager


async def connected() -> tuple[Any, Recorder, socket.socket]:
    """A listening port, our protocol on it, and a blocking socket at the other end."""
    factory = Recorders()
    port: Any = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(
        factory
    )
    peer = socket.create_connection(("127.0.0.1", port.getHost().port), timeout=20)
    protocol = await factory.next() if not factory.made else factory.made[0]
    await deferLater(reactor, 0)
    return port, protocol, peer


@pytest.fixture
def sockets() -> Iterator[list[Any]]:
    """Closed after the test."""
    opened: list[Any] = []
    yield opened
    for each in opened:
        each.close()


def test_other_transports_get_an_ordinary_write() -> None:
    """A transport that is no socket is written to as ever."""
    transport = StringTransport()
    eager.write(transport, b"hello")
    assert transport.value() == b"hello"
    assert eager.unsent(transport) is None


@pytest_twisted.ensureDeferred
async def test_sends_before_it_returns(sockets: list[Any]) -> None:
    """The bytes are with the kernel when the call returns, without a reactor turn."""
    port, protocol, peer = await connected()
    sockets.append(peer)
    eager.write(protocol.wire, b"at once")
    assert peer.recv(100) == b"at once"
    assert eager.unsent(protocol.wire) == 0
    await port.stopListening()
    protocol.wire.loseConnection()
    await protocol.end()


@pytest_twisted.ensureDeferred
async def test_short_write_keeps_order_and_pauses(sockets: list[Any]) -> None:
    """What the socket does not take is buffered, pauses the producer, and follows."""
    port, protocol, peer = await connected()
    sockets.append(peer)
    producer = Producer()
    protocol.wire.registerProducer(producer, True)
    blob = bytes(range(256)) * 65536  # 16 MiB, more than any socket buffer here
    eager.write(protocol.wire, blob)
    held = eager.unsent(protocol.wire)
    assert held is not None and 0 < held < len(blob)
    assert producer.told == ["pause"]
    eager.write(protocol.wire, b"behind")
    assert eager.unsent(protocol.wire) == held + len(b"behind")

    def read_all() -> bytes:
        parts, size = [], 0
        while size < len(blob) + 6:
            parts.append(peer.recv(1 << 20))
            size += len(parts[-1])
        return b"".join(parts)

    got = await deferToThread(read_all)
    assert got == blob + b"behind"
    await producer.resumed
    assert producer.told[-1] == "resume"
    assert eager.unsent(protocol.wire) == 0
    protocol.wire.unregisterProducer()
    await port.stopListening()
    protocol.wire.loseConnection()
    await protocol.end()


@pytest_twisted.ensureDeferred
async def test_pauses_when_the_kernel_is_full(sockets: list[Any]) -> None:
    """Nobody has to wait behind 64 KiB in a buffer that nothing can overtake."""
    port, protocol, peer = await connected()
    sockets.append(peer)
    producer = Producer()
    protocol.wire.registerProducer(producer, True)
    while not eager.unsent(protocol.wire):
        assert producer.told == []
        eager.write(protocol.wire, bytes(1024))
    assert producer.told == ["pause"]
    peer.close()
    await protocol.end()
    await port.stopListening()


@pytest_twisted.ensureDeferred
async def test_waits_behind_an_ordinary_write(sockets: list[Any]) -> None:
    """What somebody wrote the ordinary way, and is not sent yet, goes first."""
    port, protocol, peer = await connected()
    sockets.append(peer)
    protocol.wire.write(b"first ")
    eager.write(protocol.wire, b"second")
    assert eager.unsent(protocol.wire) == len(b"first second")
    protocol.wire.loseConnection()
    await protocol.end()
    with peer.makefile("rb") as everything:
        assert everything.read() == b"first second"
    await port.stopListening()


@pytest_twisted.ensureDeferred
async def test_pull_producer_is_asked_again(sockets: list[Any]) -> None:
    """A pull producer whose data would fit at once is still asked for the rest."""
    port, protocol, peer = await connected()
    sockets.append(peer)
    left = [b"one ", b"two ", b"three"]

    class Pulled:
        def resumeProducing(self) -> None:
            if left:
                eager.write(protocol.wire, left.pop(0))
            else:
                protocol.wire.unregisterProducer()
                protocol.wire.loseConnection()

        def stopProducing(self) -> None:
            pass

    protocol.wire.registerProducer(Pulled(), False)
    assert (await protocol.end()).check(ConnectionDone)
    with peer.makefile("rb") as everything:
        assert everything.read() == b"one two three"
    await port.stopListening()


@pytest_twisted.ensureDeferred
async def test_dead_peer_ends_in_connection_lost(sockets: list[Any]) -> None:
    """A reset is not reported from inside write, but as the loss of the connection."""
    port, protocol, peer = await connected()
    protocol.wire.pauseProducing()  # so that only writing can find out
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    eager.write(protocol.wire, b"into the void")
    eager.write(protocol.wire, b"and more")
    assert protocol.lost is None
    assert (await protocol.end()).check(ConnectionLost)
    eager.write(protocol.wire, b"after the end")
    await port.stopListening()


@pytest_twisted.ensureDeferred
async def test_nothing_is_sent_past_an_abort(sockets: list[Any]) -> None:
    """After abortConnection the socket is not written to any more."""
    port, protocol, peer = await connected()
    sockets.append(peer)
    protocol.wire.abortConnection()
    eager.write(protocol.wire, b"late")
    await protocol.end()
    with pytest.raises(ConnectionResetError):
        peer.recv(10)
    await port.stopListening()
