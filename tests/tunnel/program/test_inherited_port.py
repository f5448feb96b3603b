"""A port that another process opened."""

from __future__ import annotations

import errno
import os
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as _reactor
from twisted.internet.address import UNIXAddress
from twisted.internet.endpoints import TCP4ClientEndpoint, UNIXClientEndpoint
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import SynchronousTestCase

from tunnel.config import Listen
from tunnel.program import inherited_port
from tunnel.program.inherited_port import GIVE_WAY, PAUSE, InheritedPort
from tunnel.program.listening import Listening

reactor: Any = _reactor


class Greets(Protocol):
    """Says who it is."""

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(self.factory.name)
        self.transport.loseConnection()


def greeter(name: bytes) -> Any:
    factory: Any = Factory.forProtocol(Greets)
    factory.name = name
    factory.noisy = False
    return factory


class Hears(Protocol):
    def __init__(self) -> None:
        self.heard = b""

    def dataReceived(self, data: bytes) -> None:
        self.heard += data


async def said(endpoint: Any) -> bytes:
    protocol = await endpoint.connect(Factory.forProtocol(Hears))
    for _ in range(500):
        if protocol.heard:
            break
        await deferLater(reactor, 0.01)
    return bytes(protocol.heard)


@pytest_twisted.ensureDeferred
async def test_two_accept_from_one_socket() -> None:
    """When one stops the other goes on, and the socket stays its owner's."""
    listening = socket.create_server(("127.0.0.1", 0))
    ports = [
        InheritedPort(listening.fileno(), greeter(name), reactor)
        for name in (b"1", b"2")
    ]
    for port in ports:
        port.startListening()
    number = listening.getsockname()[1]
    endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", number)
    assert ports[0].getHost().port == number  # type: ignore[attr-defined]
    assert {await said(endpoint) for _ in range(4)} <= {b"1", b"2"}
    await ports[0].stopListening()
    assert {await said(endpoint) for _ in range(4)} == {b"2"}
    await ports[1].stopListening()
    await ports[1].stopListening()
    assert listening.fileno() >= 0
    listening.close()


@pytest_twisted.ensureDeferred
async def test_who_opened_it_closes_first() -> None:
    """Another one goes on to accept, and when it ends clients are refused."""
    opener = Listening(reactor)
    number = await opener.reserve(Listen(address="127.0.0.1:0"), "x", "")
    worker = Listening(reactor, handed={"x.listen": os.dup(number)})
    port: Any = await worker.listen(
        Listen(address="127.0.0.1:0"),
        greeter(b"1"),
        what="x",
        setting="x.listen.address",
    )
    endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port)
    await opener.stop()
    assert await said(endpoint) == b"1"
    worker.ending = True
    await worker.stop()
    with pytest.raises(ConnectionRefusedError):
        await said(endpoint)


@pytest_twisted.ensureDeferred
async def test_a_unix_socket_keeps_its_path_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        path.chmod(0o600)
        listening.listen()
        port = InheritedPort(listening.fileno(), greeter(b"1"), reactor)
        port.startListening()
        assert port.getHost() == UNIXAddress(str(path))
        assert await said(UNIXClientEndpoint(reactor, str(path))) == b"1"
        await port.stopListening()
    assert path.stat().st_mode & 0o777 == 0o600


class Reads(Clock):
    """A reactor as far as a port needs it."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: set[object] = set()
        self.adopted: list[int] = []

    def addReader(self, reader: object) -> None:
        self.readers.add(reader)

    def removeReader(self, reader: object) -> None:
        self.readers.discard(reader)

    def adoptStreamConnection(self, number: int, family: int, factory: object) -> None:
        self.adopted.append(number)


class Accepts:
    """A socket of which `accept` is known."""

    def __init__(self, *results: object) -> None:
        self.results = list(results)

    def accept(self) -> Any:
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result, None

    def fileno(self) -> int:
        return 3

    def close(self) -> None:
        pass


class AcceptTests(SynchronousTestCase):
    """One connection at a time, and pauses."""

    def setUp(self) -> None:
        self.reactor = Reads()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.port = InheritedPort(listening.fileno(), greeter(b""), self.reactor)
        self.addCleanup(self.port._socket.close)
        self.port.startListening()

    def accept(self, *results: object) -> Accepts:
        accepts: Any = Accepts(*results)
        self.addCleanup(setattr, self.port, "_socket", self.port._socket)
        self.port._socket = accepts
        return accepts  # type: ignore[no-any-return]

    def test_one_for_each_event(self) -> None:
        one, two = socket.socketpair()
        self.addCleanup(two.close)
        accepts = self.accept(one, two)
        self.port.doRead()
        self.assertEqual(len(self.reactor.adopted), 1)
        self.assertEqual(accepts.results, [two])
        self.assertEqual(one.fileno(), -1)

    def test_another_process_was_faster(self) -> None:
        self.accept(BlockingIOError(), ConnectionAbortedError())
        self.port.doRead()
        self.port.doRead()
        self.assertEqual(self.reactor.adopted, [])
        self.assertEqual(self.reactor.readers, {self.port})

    def test_what_befell_a_connection_before(self) -> None:
        """It is lost, and the next is taken."""
        self.accept(
            PermissionError(errno.EPERM, "a firewall refused it"),
            *(OSError(number, "gone") for number in inherited_port._PENDING),
        )
        for _ in range(1 + len(inherited_port._PENDING)):
            self.port.doRead()
        self.assertEqual(self.reactor.readers, {self.port})

    def test_gives_way(self) -> None:
        """For a moment, and at most half of the time, however often it is asked."""
        waited = 0
        self.port.give_way()
        for _ in range(10 * round(2 * GIVE_WAY / 0.125)):
            waited += not self.reactor.readers
            self.reactor.advance(0.125)
            self.port.give_way()
        self.assertEqual(waited * 0.125, 10 * GIVE_WAY)
        self.reactor.advance(GIVE_WAY)
        self.assertEqual(self.reactor.readers, {self.port})

    def test_gives_no_way_at_its_end(self) -> None:
        self.port.give_way()
        self.port.stopListening()
        self.port.give_way()
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_no_room(self) -> None:
        """It leaves connections to others for a while, and does not spin."""
        self.accept(*(OSError(number, "full") for number in inherited_port._FULL))
        for _ in inherited_port._FULL:
            self.port.doRead()
            self.assertEqual(self.reactor.readers, set())
            self.reactor.advance(PAUSE)
            self.assertEqual(self.reactor.readers, {self.port})

    def test_stopped_while_it_waits(self) -> None:
        self.accept(OSError(errno.EMFILE, "full"))
        self.port.doRead()
        self.port.stopListening()
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_what_is_no_reason_to_wait(self) -> None:
        self.accept(OSError(errno.EINVAL, "bad"))
        self.assertRaises(OSError, self.port.doRead)


@pytest_twisted.ensureDeferred
async def test_clients_that_reset_before_they_are_accepted() -> None:
    """Such a connection has no address any more, and the port goes on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        for _ in range(3):
            with socket.create_connection(address) as client:
                now = struct.pack("ii", 1, 0)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
        port = InheritedPort(listening.fileno(), greeter(b"1"), reactor)
        port.startListening()
        assert await said(TCP4ClientEndpoint(reactor, *address)) == b"1"
        await port.stopListening()


class Unlucky(Factory):
    """Fails in every way that the factory of a module may, and then greets."""

    noisy = False
    name = b"1"

    def __init__(self) -> None:
        self.asked = 0

    def buildProtocol(self, addr: object) -> Any:
        self.asked += 1
        if self.asked == 1:
            raise ValueError("no protocol")
        protocol = Trips() if self.asked == 2 else Greets()
        protocol.factory = self
        return protocol


class Trips(Protocol):
    """Fails at once."""

    def connectionMade(self) -> None:
        raise ValueError("no connection")


@pytest_twisted.ensureDeferred
async def test_who_serves_a_connection_fails() -> None:
    """That connection is lost, and the port goes on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        factory = Unlucky()
        port = InheritedPort(listening.fileno(), factory, reactor)
        port.startListening()
        clients = [socket.create_connection(address) for _ in range(2)]
        assert await said(TCP4ClientEndpoint(reactor, *address)) == b"1"
        assert factory.asked == 3
        for client in clients:
            client.close()
        await port.stopListening()
