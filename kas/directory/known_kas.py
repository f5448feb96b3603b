"""
Other kas that a directory knows, and whether they are alive.

    lease in the store ───> living; the store knows all of its agents
    lease expired ────────> lapsed; the store does not know its agents any more
      its session answers ──> still known, and queried directly
      no sign of life ──────> dialled now and then, forgotten after `LAPSED_SECONDS`
    it announced its end, or another one has its address ──> forgotten at once
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from kas.directory.records import AgentRecord, KasRecord

__all__ = ["KnownPeers", "Sessions"]

#: Seconds during which this kas still trusts the records of a kas whose lease has
#: disappeared from the store: after a flush, every kas writes its lease again within
#: this time.
LEASE_GRACE: Final = 30.0

#: Seconds after its last sign of life during which this kas dials a kas without a
#: lease.  A kas that is only cut off from the store responds at once.  After this time,
#: a broken path between kas has been repaired, or the kas has been replaced.
LAPSED_SECONDS: Final = 300.0

#: Seconds until this kas forgets a silent peer while the store is down: a long time,
#: because an agent that is not in the cache can be found only by querying peers.
PEER_SECONDS: Final = 3600.0

#: Maximum number of peers; a fleet has a handful of kas, and each crash adds one for
#: `LAPSED_SECONDS`.
MAX_PEERS = 1000


class Sessions(Protocol):
    """Interface of the sessions between kas, with the methods that a directory uses."""

    def answers(self, kas: KasRecord) -> bool:
        """
        Return whether this kas has a session with another kas, and has received data
        from it recently.
        """

    def dial(self, kas: KasRecord, callback: Callable[[], None]) -> None:
        """
        Open a session; call *callback* when the session is open, or could not be
        opened.
        """

    async def ask(self, agent_id: str, peers: Sequence[KasRecord]) -> list[AgentRecord]:
        """
        Query *peers* about an agent, with a timeout; a peer that fails counts as a peer
        without the agent.
        """


class _Peer:
    """Another kas, and the time of its last sign of life."""

    def __init__(self, record: KasRecord, seen: float) -> None:
        self.record = record
        self.seen = seen


class KnownPeers:
    """
    Table of all other kas that this kas knows, with their signs of life.

    No timer runs while all known kas have a lease.

    :param sessions: the sessions with other kas; None if no kas can be queried
        directly.
    :param reached: called when a kas without a lease responds.
    :param gone: called when a kas is forgotten, together with all its agents.
    :param settled: called when a kas has a lease again and has written all its records.
    """

    _log: ClassVar = Logger()

    def __init__(
        self,
        me: KasRecord,
        clock: IReactorTime,
        sessions: Sessions | None,
        reached: Callable[[], None],
        gone: Callable[[bytes], None],
        settled: Callable[[], None],
    ) -> None:
        self._me = me
        self._clock = clock
        self._sessions = sessions
        self._reached = reached
        self._gone = gone
        self._settled = settled
        self._peers: dict[bytes, _Peer] = {}
        #: Kas with an expired lease.
        self._lapsed: dict[bytes, _Peer] = {}
        #: Kas that have a lease again, each with the time of its return.
        self._returned: dict[bytes, float] = {}
        #: Other kas with the same address as this kas, each with the time when it was
        #: discovered; infinite after this was logged.
        self._namesakes: dict[bytes, float] = {}

    def all(self) -> list[KasRecord]:
        """Return all kas that are alive or disappeared recently."""
        return [peer.record for peer in self._peers.values()]

    def living(self) -> list[KasRecord]:
        """Return the kas with a valid lease."""
        return [
            peer.record
            for kas_id, peer in self._peers.items()
            if kas_id not in self._lapsed
        ]

    def is_incomplete(self, kas_id: bytes) -> bool:
        """
        Return whether a kas may have agents that the store lacks: this is the case if
        the kas has no lease, or had no lease until recently.
        """
        return kas_id in self._lapsed or kas_id in self._returned

    def answering(self) -> list[KasRecord]:
        """Return the kas without a lease that respond to direct queries."""
        if not self._lapsed:
            return []
        return [
            peer.record for peer in self._lapsed.values() if self._answers(peer.record)
        ]

    def is_believed(self, kas_id: bytes) -> bool:
        """Return whether the records of a kas about its agents may still be true."""
        peer = self._lapsed.get(kas_id)
        return (
            peer is None
            or self._clock.seconds() - peer.seen < LEASE_GRACE
            or self._answers(peer.record)
        )

    def _answers(self, kas: KasRecord) -> bool:
        return self._sessions is not None and self._sessions.answers(kas)

    # Methods that record signs of life.

    def heard(self, kas_id: bytes) -> None:
        """Record that a known kas responded."""
        peer = self._peers.get(kas_id)
        if peer is not None:
            peer.seen = self._clock.seconds()

    def seen(self, kas: KasRecord) -> None:
        """Record a kas that responded with its own record."""
        if kas.kas_id == self._me.kas_id:
            return
        peer = self._peers.get(kas.kas_id)
        if peer is not None:
            peer.record, peer.seen = kas, self._clock.seconds()
            return
        if len(self._peers) >= MAX_PEERS:
            self._drop(min(self._peers, key=lambda one: self._peers[one].seen))
        self._peers[kas.kas_id] = _Peer(kas, self._clock.seconds())

    def wrote(self, kas_id: bytes, url: str) -> None:
        """Record that a kas wrote to the store, and therefore has renewed its lease."""
        if kas_id in self._peers:
            self.heard(kas_id)
        else:
            self.seen(KasRecord(kas_id, url))
        self._returns(kas_id)

    def lease(self, alive: KasRecord) -> None:
        """Record a kas whose lease is in the store."""
        self.seen(alive)
        self._returns(alive.kas_id)
        for kas_id, peer in tuple(self._lapsed.items()):
            if peer.record.url == alive.url:
                self._forget(kas_id)
        if alive.url == self._me.url and alive.kas_id != self._me.kas_id:
            self._namesake(alive)

    def leases(self, alive: Sequence[KasRecord]) -> None:
        """Apply the complete list of kas with a lease in the store."""
        ids = {kas.kas_id for kas in alive}
        for kas_id, peer in self._peers.items():
            if kas_id not in ids:
                self._lapsed[kas_id] = peer
                self._returned.pop(kas_id, None)
        for kas in alive:
            self.lease(kas)
        for kas_id in tuple(self._lapsed):
            self._pursue(kas_id)
        for kas_id, since in tuple(self._returned.items()):
            if self._clock.seconds() - since >= LEASE_GRACE:
                del self._returned[kas_id]
                self._settled()

    def _returns(self, kas_id: bytes) -> None:
        if self._lapsed.pop(kas_id, None) is not None:
            self._returned[kas_id] = self._clock.seconds()

    def _pursue(self, kas_id: bytes) -> None:
        """Check whether a kas without a lease can still be queried directly."""
        peer = self._lapsed[kas_id]
        now = self._clock.seconds()
        if self._answers(peer.record):
            peer.seen = now
        elif now - peer.seen >= LAPSED_SECONDS or peer.record.url == self._me.url:
            self._forget(kas_id)
        elif self._sessions is not None:
            self._sessions.dial(peer.record, lambda: self._dialled(peer))

    def _dialled(self, peer: _Peer) -> None:
        if self._answers(peer.record):
            peer.seen = self._clock.seconds()
            self._reached()

    # Methods that record the end of a kas.

    def left(self, kas_id: bytes) -> None:
        """Record that a kas announced its end."""
        if kas_id in self._peers:
            self._forget(kas_id)

    def sweep(self) -> None:
        """
        Forget kas that were silent for a long time, whether or not a store exists.
        """
        now = self._clock.seconds()
        for kas_id, peer in tuple(self._peers.items()):
            if now - peer.seen >= PEER_SECONDS:
                self._forget(kas_id)

    def _drop(self, kas_id: bytes) -> None:
        del self._peers[kas_id]
        self._lapsed.pop(kas_id, None)
        self._returned.pop(kas_id, None)

    def _forget(self, kas_id: bytes) -> None:
        self._drop(kas_id)
        # Forget it now, because no later event would end the trust in its records.
        self._gone(kas_id)

    def _namesake(self, kas: KasRecord) -> None:
        now = self._clock.seconds()
        if kas.kas_id not in self._namesakes and len(self._namesakes) >= MAX_PEERS:
            self._namesakes.clear()
        # Wait before logging: the record of this kas from before a restart loses its
        # lease after a while.
        since = self._namesakes.setdefault(kas.kas_id, now)
        if now - since < 2 * LEASE_GRACE:
            return
        self._namesakes[kas.kas_id] = math.inf
        self._log.warn(
            "another kas has our address {url}; each kas needs its own address",
            url=kas.url,
        )
