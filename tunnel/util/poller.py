"""
The sockets that carry requests, polled together beneath the reactor.

For each event of each socket, Twisted's reactor creates a context for logging and makes
six calls. A `Poller` is one descriptor for the reactor, which becomes readable when any
of its sockets has an event, and calls all of them in one loop. GETs of 200 B cost kas
and agentk 8 % less CPU with it on 64 connections, 10 % on 16, 2 to 6 % on one::

    reactor ──> Poller ──> transport of Twisted ──> protocol
                  └──────> ...
                  └──────> `after`: calls after all of them

It uses Twisted's public interfaces: `IReadDescriptor` towards the reactor,
`IReactorFDSet` towards the transports, whose public ``reactor`` it becomes. On systems
without epoll, and with the clocks of tests, there is no poller, and the reactor polls.

A reactor that supports it, `tunnel.program.reactor`, lets the poller wait in its place,
see `Poller.lead`, which saves another sixth for a single request.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IHalfCloseableDescriptor,
    IReactorFDSet,
    IReadDescriptor,
)
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.internet.tcp import Client, Connection, Server
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import classImplements

from tunnel.toolkit.addresses import peer_network
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.recent import Recent

__all__ = [
    "GROUP_SECONDS",
    "MAX_EVENTS",
    "SEVERAL_TURNS",
    "SHARE_SECONDS",
    "PolledSocket",
    "Poller",
    "TurnShare",
]

#: Number of turns in which a leading poller waits as for several sockets, after a turn
#: with events of several sockets: see `Poller.turn`.
SEVERAL_TURNS: Final = 64

#: Maximum number of events that are handled before timers and other descriptors get
#: their turn; in the next turn, the kernel reports the remaining events first.
MAX_EVENTS: Final = 256

#: Maximum number of seconds of a turn for all sockets with the same `TurnShare`,
#: because other sockets wait for that time in each turn.  Without an attack, more work
#: for one owner is rare.
SHARE_SECONDS: Final = 0.01

#: Maximum number of seconds of a turn for all owners of a group: all users, all agents,
#: or all unauthenticated clients of a port.  An attacker may have any number of
#: addresses, agents and jobs.
GROUP_SECONDS: Final = 0.025

#: Half-life in seconds of the recorded time that an owner used.
USED_SECONDS: Final = 1.0

#: Maximum number of owners whose shares are remembered, 150 bytes each.
MAX_OWNERS: Final = 20_000

#: Number of bytes of the first read of a socket with a `TurnShare`, and of all its
#: reads while they are slow: Twisted reads 64 KiB, which may contain 6,500 frames, and
#: some frames take 100 microseconds.
SMALLEST_READ: Final = 2048

#: Seconds of a read beyond which the size of the next read is halved; a read that takes
#: less than `QUICK_READ` seconds doubles it.
SLOW_READ: Final = 0.005
QUICK_READ: Final = 0.001

_IN: Final = getattr(select, "EPOLLIN", 0)
_OUT: Final = getattr(select, "EPOLLOUT", 0)
_GONE: Final = getattr(select, "EPOLLHUP", 0) | getattr(select, "EPOLLERR", 0)

_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)

#: Twisted's size of reads, and our largest one.
_MOST_READ: Final = Connection.bufferSize

#: Transports whose sockets are read without Twisted's layers, see `_read`.
_PLAIN: Final = frozenset((Client, Server))

_pollers: WeakKeyDictionary[Any, Poller] = WeakKeyDictionary()


class _Usage:
    """
    Use of the poller's time by a socket, or by all sockets of an owner.

    :ivar used: the seconds that were used recently.
    :ivar used_at: the time at which *used* was last reduced.
    """

    # `Poller.turn` reads and writes the attributes of this class and its subclasses for
    # each event; methods would cost more.
    __slots__ = ("used", "used_at")

    def __init__(self) -> None:
        self.used = 0.0
        self.used_at = 0.0

    def lately(self, now: float) -> float:
        """Return the seconds that were used, halved every `USED_SECONDS` since."""
        self.used *= 0.5 ** ((now - self.used_at) / USED_SECONDS)
        self.used_at = now
        return self.used


class TurnShare(_Usage):
    """
    The share of each turn for the sockets of one owner, independent of their number.

    Without it, all other sockets would have to wait for the events of an owner with
    hundreds of sockets.

    :ivar turn: the number of the turn that *left* describes.
    :ivar left: the seconds that are left in that turn.
    :ivar group: the share of the owner's group; None if the owner has no group.
    """

    __slots__ = ("group", "left", "turn")

    def __init__(self, group: TurnShare | None = None) -> None:
        super().__init__()
        self.turn = -1
        self.left = 0.0
        self.group = group


class PolledSocket(_Usage):
    """
    State of one socket in the poller: the attribute ``polled`` of its transport.

    :ivar is_plain: whether `_read` reads the socket, without Twisted's layers.
    :ivar share: the share of the socket's owner; None if its time is not limited.
    :ivar spare_share: see `Poller.limit`.
    :ivar read_size: maximum bytes of the next read.
    """

    __slots__ = ("is_plain", "read_size", "share", "spare_share")

    def __init__(self, is_plain: bool = False) -> None:
        super().__init__()
        self.is_plain = is_plain
        self.share: TurnShare | None = None
        self.spare_share: TurnShare | None = None
        self.read_size: int = _MOST_READ


class Poller:
    """
    A reactor for its transports, which polls their sockets.

    `of` returns the poller of a reactor.  A poller registers with its reactor for its
    first socket, and unregisters after the last one.
    """

    _log: ClassVar = Logger()

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._seconds: Callable[[], float] = time.perf_counter
        self._cpu_seconds: Callable[[], float] = time.thread_time
        self._turn = 0
        #: Sockets whose owner had no time left in the last turn, each with the turn
        #: since which it waits.
        self._late: dict[Any, int] = {}
        self._epoll = select.epoll()
        #: Descriptor of the kernel's poller, which is readable while an event waits.
        #: Twisted calls `fileno` in each turn, so this attribute is the kernel poller's
        #: own method.
        self.fileno = self._epoll.fileno
        self.logPrefix = "poller".__str__
        #: Transport to call and its wanted events, by descriptor.
        self._members: dict[int, Any] = {}
        self._wanted: dict[int, int] = {}
        #: Shares by owner.  New connections of a forgotten owner get a new share.
        self._shares: Recent[Hashable, TurnShare] = Recent(MAX_OWNERS)
        #: Shares of groups: of unauthenticated clients by port, and of authenticated
        #: ones by name.
        self._groups: dict[int | str, TurnShare] = {}
        #: Whether sockets are being called; `after` is called after the last of them.
        self.dispatching = False
        self.after: list[Callable[[], object]] = []
        #: Descriptor for everything outside this poller; -1 if it does not lead.
        self._rest = -1
        #: A second kernel poller, which polls the first one; see `turn`.
        self._outside: select.epoll | None = None
        self._several = 0
        #: Delayed calls, which transports request from their reactor.
        self.callLater = reactor.callLater

    @classmethod
    def of(cls, clock: Any) -> Poller | None:
        """Return the poller of a reactor; None if the reactor does not support one."""
        if not IReactorFDSet.providedBy(clock) or not hasattr(select, "epoll"):
            return None
        poller = _pollers.get(clock)
        if poller is None:
            poller = _pollers[clock] = cls(clock)
        return poller

    @classmethod
    def take(cls, transport: object, clock: Any) -> None:
        """
        Poll the socket of *transport* from now on, if it has a socket.

        Until `limit` sets the owner of a connection, all connections that one port
        accepts from one address have one share of each turn, and all such connections
        from any address have a larger share together.

        Call this method when the connection is made; repeated calls do nothing.
        """
        if isinstance(transport, Connection) and transport.reactor is clock:
            poller = cls.of(clock)
            if poller is not None:
                # Set all later attributes now: CPython shares one table of names among
                # objects that start with the same attributes, and gives any other
                # object its own table of 800 bytes.
                transport.producer = transport.producer
                transport.streamingProducer = transport.streamingProducer
                polled = PolledSocket(transport.__class__ in _PLAIN)
                member: Any = transport
                member.polled = polled
                transport.stopReading()
                transport.reactor = poller
                transport.startReading()
                if isinstance(transport, Server) and member.socket.family in _INTERNET:
                    # This connection is from a client that has not authenticated yet.
                    network = peer_network(transport.getPeer())
                    port = transport.getHost().port
                    poller._limit(polled, (network, port), port)

    @classmethod
    def limit(
        cls,
        transport: object,
        clock: Any,
        owner: Hashable,
        group: str = "",
        spare: Hashable = None,
    ) -> None:
        """
        Limit the time that events of a connection take in each turn to its owner's
        share.

        :param transport: the transport of the connection; ignored if its socket is not
            polled here.
        :param owner: an identifier of the authenticated peer; all connections of one
            owner use one share.
        :param group: the name of a group, whose owners also use one common share; empty
            for no group.
        :param spare: another owner in *group*, whose share is used when the share of
            *owner* has no time left; None for no other owner.
        """
        poller = cls.of(clock)
        handle = getattr(transport, "getHandle", lambda: None)()
        if poller is None or handle is None:
            return
        member = poller._members.get(handle.fileno())
        if member is not None:
            polled: PolledSocket = member.polled
            poller._limit(polled, owner, group)
            if spare is not None:
                polled.spare_share = poller._share_of(spare, group)

    def _limit(self, polled: PolledSocket, owner: Hashable, group: int | str) -> None:
        if polled.share is None:
            # Reads become larger if the first reads take little time.
            polled.read_size = SMALLEST_READ
        polled.share = self._share_of(owner, group)
        polled.spare_share = None

    def _share_of(self, owner: Hashable, group: int | str) -> TurnShare:
        share = self._shares.get(owner)
        if share is None:
            of_group = self._groups.setdefault(group, TurnShare()) if group else None
            share = TurnShare(of_group)
        # Setting an existing entry also makes it the newest.
        self._shares[owner] = share
        return share

    # Methods for transports: `IReactorFDSet`.

    def addReader(self, reader: Any) -> None:
        """Call ``doRead`` whenever data can be read."""
        self._want(reader, _IN)

    def addWriter(self, writer: Any) -> None:
        """Call ``doWrite`` whenever data can be written."""
        self._want(writer, _OUT)

    def removeReader(self, reader: Any) -> None:
        """Stop calling ``doRead``."""
        self._unwant(reader, _IN)

    def removeWriter(self, writer: Any) -> None:
        """Stop calling ``doWrite``."""
        self._unwant(writer, _OUT)

    def removeAll(self) -> list[Any]:
        """Stop calling any transport, and return all transports."""
        members = [*self._members.values()]
        for member in members:
            self.removeReader(member)
            self.removeWriter(member)
        return members

    def getReaders(self) -> list[Any]:
        """Return the transports that wait for data to read."""
        return self._wanting(_IN)

    def getWriters(self) -> list[Any]:
        """Return the transports that wait for room to write."""
        return self._wanting(_OUT)

    def _wanting(self, event: int) -> list[Any]:
        return [self._members[fd] for fd, one in self._wanted.items() if one & event]

    def _want(self, member: Any, event: int) -> None:
        fd = member.fileno()
        before = self._wanted.get(fd, 0)
        if before and self._members[fd] is not member:
            # The socket was closed before it was removed, so the kernel has already
            # forgotten it.
            before = 0
        wanted = before | event
        if wanted == before:
            return
        if before:
            self._epoll.modify(fd, wanted)
        else:
            self._epoll.register(fd, wanted)
            if not self._members and self._outside is None:
                self._reactor.addReader(self)
        self._members[fd] = member
        self._wanted[fd] = wanted

    def _unwant(self, member: Any, event: int) -> None:
        fd = member.fileno()
        # Transports are removed before they close their socket, and may register again
        # afterwards.
        if self._members.get(fd) is not member:
            return
        before = self._wanted[fd]
        wanted = before & ~event
        if wanted == before:
            return
        if wanted:
            self._wanted[fd] = wanted
            self._epoll.modify(fd, wanted)
            return
        del self._members[fd], self._wanted[fd]
        self._epoll.unregister(fd)
        if not self._members and self._outside is None:
            self._reactor.removeReader(self)

    # Methods for the reactor: `IReadDescriptor`, or `turn`.

    def doRead(self) -> None:
        """Call every socket with an event, and then `after`."""
        self.turn(0)

    def lead(self, rest: int) -> None:
        """
        Wait in place of the reactor, for the poller's sockets and for *rest*; the
        reactor calls `turn` from now on.

        :param rest: descriptor of the poller for everything else in the reactor.
        """
        self._rest = rest
        self._epoll.register(rest, _IN)
        self._outside = select.epoll()
        self._outside.register(self._epoll.fileno(), _IN)

    def turn(self, timeout: float | None) -> bool:
        """
        Wait until something happens, then do what `doRead` does.

        :param timeout: seconds; None for no limit.
        :returns: whether the rest of the reactor has work.
        """
        # A process that writes to a socket of this machine wakes its reader
        # "synchronously": the kernel expects the writer to wait soon, and puts the
        # reader on its core.  That is the shortest path for one connection, by a sixth
        # of p50.  With several connections, both have work at once, and share one core
        # while another is idle: a quarter fewer requests a second with 4 to 16
        # connections on two cores.  The kernel does not wake a poller in this way if
        # another one polls it.
        if self._several and self._outside is not None:
            self._several -= 1
            if not self._outside.poll(timeout, 1):
                return False
            timeout = 0
        members, rest = self._members, False
        events = self._epoll.poll(timeout, MAX_EVENTS)
        several = len(events) > 1
        if several:
            self._several = SEVERAL_TURNS
        self.dispatching = True
        self._turn += 1
        now = self._seconds()
        # In a turn with one event, no other socket waits.
        cpu_begin = self._cpu_seconds() if several else 0.0
        waited = self._sort(events) if self._late else self._late
        for fd, event in events:
            member = members.get(fd)
            if member is None:
                # If the descriptor is not `_rest`, an earlier socket in this loop has
                # closed it.
                rest = rest or fd == self._rest
                continue
            polled: PolledSocket = member.polled
            share = polled.share
            if share is not None:
                if several and not self._has_time(share, cpu_begin):
                    share = polled.spare_share
                    if share is None or not self._has_time(share, cpu_begin):
                        self._late[member] = waited.get(member, self._turn)
                        continue
                if now < 0:
                    now = self._seconds()
            # As in the reactor: an exception of one socket must not affect the others.
            try:
                if event == _IN:
                    reading = True
                    why = _read(member, polled)
                else:
                    reading, why = self._other_event(fd, event, member, polled)
            except BaseException:
                self._log.failure("a connection failed")
                reading, why = False, sys.exc_info()[1]
            if why:
                self._end(member, why, reading)
            if share is None:
                # The time of the next event is measured separately.
                now = -1.0
            else:
                begin, now = now, self._seconds()
                spent = now - begin
                polled.used += spent
                share.used += spent
                share.left -= spent
                if share.group is not None:
                    share.group.left -= spent
                present = polled.share
                if present is not share and present is not None:
                    # This is the first request of a client, or of another user of a
                    # proxy.
                    present.used += spent
                if spent > SLOW_READ:
                    polled.read_size = max(SMALLEST_READ, polled.read_size // 2)
                elif spent < QUICK_READ and polled.read_size < _MOST_READ:
                    polled.read_size *= 2
        self.dispatching = False
        if self.after:
            self._call_after()
        return rest

    def _sort(self, events: list[tuple[int, int]]) -> dict[Any, int]:
        """
        Decide which sockets come first, because some had no time in the last turn.

        The kernel reports sockets in the same order in each turn.  Sockets outside of
        groups come first.  Of the others, two take turns:

        - the socket that used the least time recently, of the owner that used the least
          time: a new client, or a user with a short request, does not wait for all
          clients that flood.  Sockets of one owner are compared as well, because an
          owner may consist of all clients behind one address.
        - the socket that has waited longest, because a client that replaces its sockets
          after each event always has sockets that used no time.

        :return: the turn since which each socket waits that had no time.
        """
        waited, self._late = self._late, {}
        members, now, turn = self._members, self._seconds(), self._turn
        first: list[tuple[int, tuple[int, int]]] = []
        by_wait: list[tuple[int, tuple[int, int]]] = []
        by_use: list[tuple[float, float, int, tuple[int, int]]] = []
        for event in events:
            member = members.get(event[0])
            since = waited.get(member, turn)
            polled: PolledSocket | None = None if member is None else member.polled
            share = None if polled is None else polled.share
            if polled is None or share is None or share.group is None:
                first.append((since, event))
                continue
            by_wait.append((since, event))
            by_use.append((share.lately(now), polled.lately(now), since, event))
        first.sort(key=_first_item)
        by_wait.sort(key=_first_item)
        by_use.sort()
        ordered: dict[tuple[int, int], None] = {event: None for _, event in first}
        for place in range(len(by_use)):
            ordered.setdefault(by_use[place][3])
            ordered.setdefault(by_wait[place][1])
        events[:] = ordered
        return waited

    def _has_time(self, share: TurnShare, cpu_begin: float) -> bool:
        """Tell whether a share, and its group, have time left in this turn."""
        turn = self._turn
        if share.turn != turn:
            share.turn, share.left = turn, SHARE_SECONDS
        elif share.left <= 0:
            # Other processes may have used the core in the meantime.
            share.left = SHARE_SECONDS - (self._cpu_seconds() - cpu_begin)
            if share.left <= 0:
                return False
        group = share.group
        if group is None:
            return True
        if group.turn != turn:
            group.turn, group.left = turn, GROUP_SECONDS
        elif group.left <= 0:
            group.left = GROUP_SECONDS - (self._cpu_seconds() - cpu_begin)
        return group.left > 0

    def _call_after(self) -> None:
        after, self.after = self.after, []
        for callback in after:
            try:
                callback()
            except BaseException:
                self._log.failure("a call after the events of a turn failed")

    def _other_event(
        self, fd: int, event: int, member: Any, polled: PolledSocket
    ) -> tuple[bool, Any]:
        """
        Handle any event other than plain input.

        :returns: whether reading ended (otherwise writing), and the reason; without a
            reason, the descriptor stays open.
        """
        if event & _GONE and not event & _IN:
            if self._wanted[fd] & _IN:
                return True, ConnectionDone()
            return False, ConnectionLost()
        if event & _IN:
            why = _read(member, polled)
            if why:
                return True, why
        # Reading may have closed the descriptor.
        if event & _OUT and self._wanted.get(fd, 0) & _OUT:
            return False, member.doWrite()
        return False, None

    def _end(self, member: Any, why: Any, reading: bool) -> None:
        """
        End the reading half of a descriptor, or the whole descriptor, as Twisted does.
        """
        try:
            self.removeReader(member)
            reason = Failure(why)
            if (
                reading
                and why.__class__ is ConnectionDone
                and IHalfCloseableDescriptor.providedBy(member)
            ):
                member.readConnectionLost(reason)
            else:
                self.removeWriter(member)
                member.connectionLost(reason)
        except BaseException:
            self._log.failure("a connection failed while it was being closed")

    def connectionLost(self, reason: Failure) -> None:
        """Close all connections, because the reactor stops."""

        def end(member: Any) -> None:
            member.connectionLost(reason)

        for_each(self.removeAll(), end, "ending a connection")


def _first_item(item: tuple[int, tuple[int, int]]) -> int:
    return item[0]


def _read(transport: Any, polled: PolledSocket) -> Any:
    """
    Do the work of `Connection.doRead` with two calls less.

    ``bufferSize`` also limits Twisted's buffer for the peer, so the size of reads is a
    separate attribute.
    """
    if not polled.is_plain:
        return transport.doRead()
    try:
        data = transport.socket.recv(polled.read_size)
    except BlockingIOError:
        return None
    except OSError:
        return CONNECTION_LOST
    if not data:
        return CONNECTION_DONE
    transport.protocol.dataReceived(data)
    return None


classImplements(Poller, IReactorFDSet, IReadDescriptor)
