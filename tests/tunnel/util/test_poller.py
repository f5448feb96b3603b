"""Sockets beneath the reactor: what Twisted does with them, and in which order."""

from __future__ import annotations

import select
import socket
import sys
import unittest
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest
from twisted.internet import main
from twisted.internet.abstract import FileDescriptor
from twisted.internet.address import IPv6Address
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IHalfCloseableDescriptor, IReactorFDSet
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.internet.tcp import Server
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tunnel.util.flusher import Flusher
from tunnel.util.poller import (
    GROUP_SECONDS,
    MAX_EVENTS,
    QUICK_READ,
    SEVERAL_TURNS,
    SHARE_SECONDS,
    SLOW_READ,
    SMALLEST_READ,
    PolledSocket,
    Poller,
    TurnShare,
)


@implementer(IReactorFDSet)
class _Reactor(Clock):
    """One that polls nothing by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: set[Any] = set()

    def addReader(self, reader: Any) -> None:
        self.readers.add(reader)

    def removeReader(self, reader: Any) -> None:
        self.readers.discard(reader)

    def addWriter(self, writer: Any) -> None:
        raise NotImplementedError

    removeWriter = addWriter

    def removeAll(self) -> list[Any]:
        return []

    getReaders = getWriters = removeAll


class _Descriptor(FileDescriptor):
    """One end of a pair of sockets; the test has the other one."""

    def __init__(self, poller: Any) -> None:
        super().__init__(poller)
        #: As `Poller.take` sets it.
        self.polled = PolledSocket()
        self.here, self.there = socket.socketpair()
        self.here.setblocking(False)
        self.got = b""
        self.room = 0
        self.why: object = None
        self.lost: list[Failure] = []
        self.connected = 1

    def fileno(self) -> int:
        return self.here.fileno()

    def doRead(self) -> Any:
        data = self.here.recv(1024)
        self.got += data
        return self.why if data else main.CONNECTION_DONE

    def doWrite(self) -> Any:
        self.room += 1
        self.stopWriting()
        return None

    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)
        self.here.close()
        self.lost.append(reason)

    def close(self) -> None:
        self.here.close()
        self.there.close()


@implementer(IHalfCloseableDescriptor)
class _HalfCloseable(_Descriptor):
    halves = 0

    def readConnectionLost(self, reason: Failure) -> None:
        self.halves += 1

    def writeConnectionLost(self, reason: Failure) -> None:
        raise NotImplementedError


@unittest.skipUnless(Poller.of(_Reactor()), "no epoll here")
class PollerTests(SynchronousTestCase):
    """A poller, a reactor that only keeps readers, and pairs of sockets."""

    def setUp(self) -> None:
        self.reactor = _Reactor()
        poller = Poller.of(self.reactor)
        assert poller is not None
        self.poller = poller

    def make(self, kind: type[_Descriptor] = _Descriptor) -> Any:
        """One that reads."""
        made = kind(self.poller)
        self.addCleanup(made.close)
        made.startReading()
        return made

    def test_one_for_a_reactor(self) -> None:
        """Whoever asks; and none where nothing can be polled."""
        self.assertIs(Poller.of(self.reactor), self.poller)
        self.assertIsNot(Poller.of(_Reactor()), self.poller)
        self.assertIsNone(Poller.of(Clock()))

    def test_in_the_reactor_while_it_has_sockets(self) -> None:
        """So that nothing stays behind in a reactor when all are gone."""
        one, other = self.make(), self.make()
        self.assertEqual(self.reactor.readers, {self.poller})
        one.stopReading()
        self.assertEqual(self.reactor.readers, {self.poller})
        other.stopReading()
        self.assertEqual(self.reactor.readers, set())

    def test_events(self) -> None:
        """Those that have one are called, the others not."""
        one, other = self.make(), self.make()
        one.there.send(b"x")
        self.poller.doRead()
        self.assertEqual((one.got, other.got), (b"x", b""))
        self.poller.doRead()
        self.assertEqual(one.got, b"x")

    def test_room_to_write(self) -> None:
        """Beside reading, and without it."""
        one = self.make()
        one.startWriting()
        one.there.send(b"x")
        self.poller.doRead()
        self.assertEqual((one.got, one.room), (b"x", 1))
        one.stopReading()
        one.startWriting()
        one.there.send(b"y")
        self.poller.doRead()
        self.assertEqual((one.got, one.room), (b"x", 2))
        one.startReading()
        self.poller.doRead()
        self.assertEqual(one.got, b"xy")

    def test_the_end(self) -> None:
        """The peer closed: told once, and nothing is polled any more."""
        one = self.make()
        one.there.close()
        self.poller.doRead()
        (reason,) = one.lost
        reason.trap(ConnectionDone)
        self.assertEqual(self.reactor.readers, set())

    def test_half_close(self) -> None:
        """One that knows of halves goes on writing."""
        one = self.make(_HalfCloseable)
        one.there.shutdown(socket.SHUT_WR)
        self.poller.doRead()
        self.assertEqual((one.halves, one.lost), (1, []))
        one.startWriting()
        self.poller.doRead()
        self.assertEqual(one.room, 1)

    def test_the_end_without_reading(self) -> None:
        """One that only writes, or was paused, learns that its peer is gone."""
        one = self.make()
        one.startWriting()
        one.stopReading()
        one.there.close()
        self.poller.doRead()
        (reason,) = one.lost
        reason.trap(ConnectionLost)

    def test_one_that_fails(self) -> None:
        """It ends with what it raised; the others are called."""
        failing = [self.make() for _ in range(3)]
        others = [self.make() for _ in range(3)]
        for one in failing:
            one.doRead = lambda: 1 / 0
        for one in failing + others:
            one.there.send(b"x")
        self.poller.doRead()
        for one in failing:
            one.lost[0].trap(ZeroDivisionError)
        self.assertEqual([one.got for one in others], [b"x"] * 3)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 3)

    def test_one_that_fails_at_its_end(self) -> None:
        """Neither reaches the others nor the reactor."""
        failing, other = self.make(), self.make()
        failing.connectionLost = lambda reason: 1 / 0
        failing.there.close()
        other.there.send(b"x")
        self.poller.doRead()
        self.assertEqual(other.got, b"x")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_closed_by_one_before_it(self) -> None:
        """An event of a socket that is closed meanwhile is forgotten."""
        ones = [self.make(), self.make()]

        def close_the_other(this: Any) -> None:
            this.here.recv(1024)
            (other,) = (one for one in ones if one is not this)
            other.connectionLost(Failure(ConnectionDone()))

        for one in ones:
            one.doRead = lambda this=one: close_the_other(this)
            one.there.send(b"x")
        self.poller.doRead()
        self.assertEqual(sum(len(one.lost) for one in ones), 1)

    def test_closed_without_leaving(self) -> None:
        """Its number may be that of the next socket."""
        one = self.make()
        number = one.fileno()
        one.here.close()
        other = _Descriptor(self.poller)
        self.addCleanup(other.close)
        self.assertEqual(other.fileno(), number)
        other.startReading()
        other.there.send(b"x")
        self.poller.doRead()
        self.assertEqual((one.got, other.got), (b"", b"x"))
        one.stopReading()
        other.there.send(b"y")
        self.poller.doRead()
        self.assertEqual(other.got, b"xy")

    def test_very_many_events(self) -> None:
        """Come in portions, so that the reactor gets its turn between them."""
        ones = [self.make() for _ in range(MAX_EVENTS + 10)]
        for one in ones:
            one.there.send(b"x")
        self.poller.doRead()
        self.assertEqual(sum(bool(one.got) for one in ones), MAX_EVENTS)
        self.poller.doRead()
        self.assertTrue(all(one.got for one in ones))

    def test_after(self) -> None:
        """Once all were called, whatever one of them does."""
        order = []
        for _ in range(3):
            one = self.make()

            def read(one: Any = one) -> None:
                one.here.recv(1024)
                self.assertTrue(self.poller.dispatching)
                self.poller.after += [sys.exit, lambda: order.append("after")]
                order.append("read")

            one.doRead = read
            one.there.send(b"x")
        self.poller.doRead()
        self.assertEqual(order, ["read"] * 3 + ["after"] * 3)
        self.assertEqual(len(self.flushLoggedErrors(SystemExit)), 3)
        self.assertFalse(self.poller.dispatching)
        self.assertEqual(self.poller.after, [])

    def test_flusher(self) -> None:
        """Writes at the end of the turn in which there was something to write."""
        flusher, one, flushed = Flusher(self.reactor), self.make(), []

        class Connection:
            def flush(self) -> None:
                flushed.append(one.got)
                if len(flushed) < 2:
                    # In the next turn: reading comes first.
                    flusher.mark(self)

        def read() -> None:
            one.got = one.here.recv(1024)
            flusher.mark(connection)

        connection = Connection()
        one.doRead = read
        one.there.send(b"x")
        self.poller.doRead()
        self.assertEqual(flushed, [b"x"])
        self.reactor.advance(0)
        self.assertEqual(flushed, [b"x"] * 2)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_the_reactor_stops(self) -> None:
        """All connections end, one that fails among them."""
        failing, *others = (self.make() for _ in range(3))
        others[0].startWriting()
        failing.connectionLost = lambda reason: 1 / 0
        self.poller.connectionLost(Failure(ConnectionLost()))
        self.assertEqual([len(one.lost) for one in others], [1, 1])
        self.assertEqual(self.reactor.readers, set())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_leads(self) -> None:
        """It waits in place of the reactor, which is told when the rest has events."""
        rest = select.epoll()
        self.addCleanup(rest.close)
        here, there = socket.socketpair()
        self.addCleanup(here.close)
        self.addCleanup(there.close)
        rest.register(here, select.EPOLLIN)
        self.poller.lead(rest.fileno())
        ones = [self.make() for _ in range(2)]
        self.assertEqual(self.reactor.readers, set())
        self.assertFalse(self.poller.turn(0))
        there.send(b"x")
        self.assertTrue(self.poller.turn(None))
        self.assertTrue(self.poller.turn(0.5), "until the reactor has read it")
        here.recv(1)
        # With one event, then with several, and again after these: it waits in turn.
        for active in (ones[:1], ones, ones[:1], []):
            for one in active:
                one.there.send(b"y")
            self.assertFalse(self.poller.turn(None if active else 0))
        self.assertEqual([one.got for one in ones], [b"yyy", b"y"])
        for one in ones:
            one.there.send(b"z")
        there.send(b"x")
        self.assertTrue(self.poller.turn(None))
        self.assertEqual([one.got for one in ones], [b"yyyz", b"yz"])
        # For as many turns as are said, several are expected; then the poller waits
        # itself.
        for _ in range(SEVERAL_TURNS + 1):
            self.assertTrue(self.poller.turn(None))
        here.recv(1)
        for one in ones:
            one.stopReading()
        self.assertFalse(self.poller.turn(0))
        self.assertEqual(self.reactor.readers, set())

    def test_take(self) -> None:
        """A transport of Twisted moves with its first call; others stay."""
        here, there = socket.socketpair()
        self.addCleanup(there.close)
        received: list[bytes] = []
        protocol, port = Protocol(), cast(Any, None)
        protocol.dataReceived = received.append  # type: ignore[method-assign,assignment]
        transport: Any = Server(here, protocol, ("", 0), port, 0, self.reactor)
        protocol.makeConnection(transport)
        self.assertEqual(self.reactor.readers, {transport})
        for _ in range(2):
            Poller.take(transport, self.reactor)
            self.assertEqual(self.reactor.readers, {self.poller})
        # Or these would cost each connection a table of names of its own.
        self.assertLess({"producer", "streamingProducer"}, vars(transport).keys())
        there.send(b"x")
        self.poller.doRead()
        self.assertEqual(received, [b"x"])
        transport.abortConnection()
        self.reactor.advance(0)
        self.assertEqual(self.reactor.readers, set())
        Poller.take(object(), self.reactor)
        Poller.take(transport, Clock())


class _Slow(_Descriptor):
    """A descriptor whose reads take a time of the test's clock."""

    clock: Clock
    seconds = 0.0

    def getHandle(self) -> socket.socket:
        return self.here

    def doRead(self) -> Any:
        self.clock.advance(self.seconds)
        return super().doRead()


@pytest.fixture
def slow() -> Iterator[Callable[[float, str], _Slow]]:
    """Returns descriptors of one poller, each with data to read in every turn."""
    reactor = _Reactor()
    poller = Poller.of(reactor)
    if poller is None:
        pytest.skip("no epoll here")
    poller._seconds = poller._cpu_seconds = reactor.seconds
    made = []

    def make(seconds: float, owner: str) -> _Slow:
        one = _Slow(poller)
        one.clock, one.seconds = reactor, seconds
        one.startReading()
        if owner:
            Poller.limit(one, reactor, owner)
        one.there.send(b"x" * 100_000)
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


def test_share(slow: Callable[[float, str], _Slow]) -> None:
    """
    Sockets of one owner take their share of a turn; the others are called in each.
    """
    hostile = [slow(SHARE_SECONDS * 0.6, "hostile") for _ in range(5)]
    other = slow(0.0, "")
    poller = cast(Any, other.reactor)
    for turn in range(1, 11):
        before = poller._seconds()
        poller.turn(0)
        assert poller._seconds() - before < 2 * SHARE_SECONDS
        assert len(other.got) == turn * 1024
    # Two of them fit into a turn, and each has its turns.
    assert sum(len(one.got) for one in hostile) == 20 * 1024
    assert min(len(one.got) for one in hostile) >= 3 * 1024


def test_share_while_others_have_the_core(
    slow: Callable[[float, str], _Slow],
) -> None:
    """Time in which this process did not run takes nothing from a share."""
    several = [slow(SHARE_SECONDS, "one") for _ in range(3)]
    poller = cast(Any, several[0].reactor)
    poller._cpu_seconds = lambda: 0.0
    poller.turn(0)
    assert [len(one.got) for one in several] == [1024] * 3


def test_time_of_others(slow: Callable[[float, str], _Slow]) -> None:
    """Sockets without an owner take nothing from the share of the next one."""
    slow(1.0, "")
    one = slow(0.0, "one")
    poller = cast(Any, one.reactor)
    poller.turn(0)
    assert one.polled.share is not None
    assert one.polled.share.left == SHARE_SECONDS


def test_shares_of_two(slow: Callable[[float, str], _Slow]) -> None:
    """The share of one owner takes nothing from another one."""
    one, two = slow(1.0, "one"), slow(1.0, "two")
    for _ in range(3):
        cast(Any, one.reactor).turn(0)
    assert (len(one.got), len(two.got)) == (3 * 1024, 3 * 1024)


def test_strangers_share(slow: Callable[[float, str], _Slow]) -> None:
    """Owners of one group have a share together, and each gets its turn."""
    strangers = [slow(SHARE_SECONDS, f"address {number}") for number in range(20)]
    known = slow(SHARE_SECONDS, "user")
    poller = cast(Any, known.reactor)
    for one in strangers:
        assert one.polled.share is not None
        one.polled.share.group = poller._groups.setdefault(443, TurnShare())
    for turn in range(1, 21):
        before = poller._seconds()
        poller.turn(0)
        passed = poller._seconds() - before
        assert passed < GROUP_SECONDS + 2.5 * SHARE_SECONDS
        assert len(known.got) == turn * 1024
    assert min(len(one.got) for one in strangers) >= 2 * 1024


def test_between_requests(slow: Callable[[float, str], _Slow]) -> None:
    """
    A user behind the address of another one has turns of his own, whatever the other
    one does with the turns of the address.
    """
    hostile = [slow(SHARE_SECONDS, "") for _ in range(20)]
    other = slow(SHARE_SECONDS / 10, "")
    poller = cast(Any, other.reactor)
    for one in hostile:
        Poller.limit(one, other.clock, "hostile", "users", spare="address")
    Poller.limit(other, other.clock, "other", "users", spare="address")
    for turn in range(1, 21):
        before = poller._seconds()
        poller.turn(0)
        assert poller._seconds() - before < GROUP_SECONDS + 2.5 * SHARE_SECONDS
        assert len(other.got) == turn * 1024
    # One socket in the share of its owner, and one in that of the address.
    assert sum(len(one.got) for one in hostile) >= 40 * 1024


def test_new_connection_from_the_same_address(
    slow: Callable[[float, str], _Slow],
) -> None:
    """It goes ahead of other connections of the address, which have used more time."""
    flood = [slow(SHARE_SECONDS, "") for _ in range(20)]
    poller = cast(Any, flood[0].reactor)
    for one in flood:
        Poller.limit(one, one.clock, "address", "strangers")
    for _ in range(40):
        poller.turn(0)
    new = slow(SHARE_SECONDS / 10, "")
    Poller.limit(new, new.clock, "address", "strangers")
    for turn in range(1, 4):
        poller.turn(0)
        assert len(new.got) == turn * 1024


@pytest.mark.parametrize("owner", ["address", "network {}"])
def test_a_flood_of_new_sockets(
    slow: Callable[[float, str], _Slow], owner: str
) -> None:
    """
    A client that was served once goes on, although others replace their sockets after
    each event, and so have always used less time.
    """
    count = 0

    def fresh() -> _Slow:
        nonlocal count
        count += 1
        one = slow(SHARE_SECONDS / 4, "")
        Poller.limit(one, one.clock, owner.format(count), "strangers")
        return one

    flood = [fresh() for _ in range(40)]
    honest = slow(SHARE_SECONDS / 4, "")
    Poller.limit(honest, honest.clock, owner.format("honest"), "strangers")
    poller = cast(Any, honest.reactor)
    for _ in range(60):
        poller.turn(0)
        for place, one in enumerate(flood):
            if one.got:
                one.stopReading()
                flood[place] = fresh()
    # At least as often as every other socket, if half of the time goes to new ones.
    assert len(honest.got) >= 2 * 1024


def test_spare_share(slow: Callable[[float, str], _Slow]) -> None:
    """A proxy's connection does not wait for the user whose request it sent last."""
    hostile = [slow(SHARE_SECONDS, "hostile") for _ in range(20)]
    proxied = slow(SHARE_SECONDS / 10, "")
    Poller.limit(proxied, proxied.clock, "hostile", spare="proxy")
    poller = cast(Any, proxied.reactor)
    for turn in range(1, 21):
        poller.turn(0)
        assert len(proxied.got) == turn * 1024
    # A request of a user ends that.
    Poller.limit(proxied, proxied.clock, "hostile")
    assert proxied.polled.spare_share is None
    assert min(len(one.got) for one in hostile) >= 1024


def test_head_of_another(slow: Callable[[float, str], _Slow]) -> None:
    """The owner whom a read names pays for it, too."""
    one, another = slow(SHARE_SECONDS, "one"), slow(0.0, "another")
    read = one.doRead

    def named() -> Any:
        why = read()
        Poller.limit(one, one.clock, "named", "users")
        return why

    one.doRead = named  # type: ignore[method-assign]
    cast(Any, another.reactor).turn(0)
    assert one.polled.share is not None
    assert one.polled.share.used == SHARE_SECONDS


def test_a_new_stranger(slow: Callable[[float, str], _Slow]) -> None:
    """It goes ahead of the others, which have used more time lately."""
    flood = [slow(SHARE_SECONDS, f"address {number}") for number in range(20)]
    poller = cast(Any, flood[0].reactor)
    group = TurnShare()
    for one in flood:
        assert one.polled.share is not None
        one.polled.share.group = group
    for _ in range(20):
        poller.turn(0)
    new = slow(SHARE_SECONDS / 10, "new")
    assert new.polled.share is not None
    new.polled.share.group = group
    for turn in range(1, 4):
        poller.turn(0)
        assert len(new.got) == turn * 1024


def test_reads_that_take_long(slow: Callable[[float, str], _Slow]) -> None:
    """Reads become smaller, so that one fits into a turn, and larger again."""
    one = slow(SLOW_READ * 2, "one")
    largest = FileDescriptor.bufferSize
    poller = cast(Any, one.reactor)
    poller.turn(0)
    assert one.polled.read_size == SMALLEST_READ
    one.seconds = QUICK_READ / 2
    for _ in range(20):
        poller.turn(0)
    assert one.polled.read_size == largest
    one.seconds = SLOW_READ * 2
    poller.turn(0)
    assert one.polled.read_size == largest // 2
    without = slow(SLOW_READ * 2, "")
    poller.turn(0)
    assert without.polled.read_size == largest


def test_shares_of_clients() -> None:
    """Connections that a port accepted from one address have one share."""
    reactor = _Reactor()
    if Poller.of(reactor) is None:
        pytest.skip("no epoll here")
    with ExitStack() as stack:

        def accepted(listener: socket.socket, address: str) -> Any:
            there = socket.create_connection(
                listener.getsockname(), source_address=(address, 0)
            )
            stack.callback(there.close)
            here, peer = listener.accept()
            transport = Server(here, Protocol(), peer, cast(Any, None), 0, reactor)
            stack.callback(here.close)
            Poller.take(transport, reactor)
            return transport

        port, other = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
        stack.callback(port.close)
        stack.callback(other.close)
        share = accepted(port, "127.0.0.1").polled.share
        assert accepted(port, "127.0.0.1").polled.share is share is not None
        assert accepted(port, "127.0.0.2").polled.share is not share
        assert accepted(other, "127.0.0.1").polled.share is not share


def test_shares_of_a_network() -> None:
    """A customer's IPv6 network has one share; a proven client has its own."""
    reactor = _Reactor()
    poller = Poller.of(reactor)
    if poller is None:
        pytest.skip("no epoll here")
    with ExitStack() as stack:

        def accepted(address: str) -> Any:
            port = socket.create_server(("127.0.0.1", 0))
            stack.callback(port.close)
            there = socket.create_connection(port.getsockname())
            stack.callback(there.close)
            here, _ = port.accept()
            stack.callback(here.close)
            transport = Server(
                here, Protocol(), (address, 1), cast(Any, None), 0, reactor
            )
            patched: Any = transport
            patched.getPeer = lambda: IPv6Address("TCP", address, 1)
            patched.getHost = lambda: IPv6Address("TCP", "::1", 443)
            Poller.take(transport, reactor)
            return transport

        one = accepted("2001:db8::1")
        assert accepted("2001:db8::ffff:1").polled.share is one.polled.share
        assert accepted("2001:db8:0:1::1").polled.share is not one.polled.share
        mapped = accepted("::ffff:192.0.2.1")
        assert (
            accepted("192.0.2.1").polled.share
            is mapped.polled.share
            is not one.polled.share
        )
        assert (
            one.polled.share.group is mapped.polled.share.group is poller._groups[443]
        )
        Poller.limit(one, reactor, "user:alice", "users")
        Poller.limit(mapped, reactor, "user:alice", "users")
        assert one.polled.share is mapped.polled.share
        assert one.polled.share.group is poller._groups["users"]
        Poller.limit(one, reactor, ("kas", b"1"))
        assert one.polled.share.group is None
