"""Turns for expensive work."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tunnel.toolkit.peer_turns import PeerTurns, TooManyTurns


class Workers:
    """Work that ends when the test says so."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.turns: PeerTurns[str] = PeerTurns(
            self.clock, of_peer=1, of_all=2, most_waiting=2, seconds=10
        )
        self.results: list[Any] = []

    def begin(self, peer: str) -> tuple[Deferred[None], Deferred[Any]]:
        """Return what ends the work, and its result."""
        gate: Deferred[None] = Deferred()

        async def work() -> None:
            async with self.turns.turn(peer):
                await gate

        working = Deferred.fromCoroutine(work())
        working.addErrback(lambda failure: self.results.append(failure.value))
        return gate, working

    @property
    def counts(self) -> tuple[int, int]:
        return self.turns.running, self.turns.waiting


def test_limits() -> None:
    """One of a peer, two of all; two of a peer wait, and its next one is refused."""
    workers = Workers()
    first, _ = workers.begin("a")
    workers.begin("a")
    workers.begin("a")
    second, _ = workers.begin("b")
    workers.begin("c")
    assert workers.counts == (2, 3)
    workers.begin("a")
    assert isinstance(workers.results[0], TooManyTurns)
    first.callback(None)
    assert workers.counts == (2, 2)
    second.callback(None)
    assert workers.counts == (2, 1)


def test_waiting_too_long_and_cancelling() -> None:
    """Neither keeps a slot."""
    workers = Workers()
    first, _ = workers.begin("a")
    workers.begin("a")
    _, cancelled = workers.begin("a")
    cancelled.cancel()
    assert workers.counts == (1, 1)
    workers.clock.advance(10)
    assert workers.counts == (1, 0)
    assert "10 seconds have passed" in str(workers.results[-1])
    first.callback(None)
    workers.begin("a")
    assert workers.counts == (1, 0)
