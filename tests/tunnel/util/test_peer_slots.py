"""Slots of peers."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from tunnel.toolkit.peer_slots import PeerSlots


class PeerSlotsTests(SynchronousTestCase):
    """Two at a time of each."""

    def setUp(self) -> None:
        self.slots: PeerSlots[str] = PeerSlots(2)
        self.begun: list[str] = []
        self.ends: dict[str, Deferred[None]] = {}

    def begin(self, key: str, name: str) -> Deferred[None]:
        self.ends[name] = Deferred()

        async def work() -> None:
            async with self.slots.slot(key):
                self.begun.append(name)
                await self.ends[name]

        return Deferred.fromCoroutine(work())

    def test_each_has_its_own(self) -> None:
        """A crowd of one waits, in its order; another does not."""
        for number in range(5):
            self.begin("crowd", f"c{number}")
        self.begin("other", "o")
        self.assertEqual(self.begun, ["c0", "c1", "o"])
        self.ends["c1"].callback(None)
        self.assertEqual(self.begun[3:], ["c2"])
        # Else the garbage collector would end them, in another test.
        for end in self.ends.values():
            if not end.called:
                end.callback(None)
        self.assertEqual(len(self.slots), 0)

    def test_those_that_leave(self) -> None:
        """Cancelled while they wait or work, or failed: the next has the turn."""
        waiting = [self.begin("a", f"a{number}") for number in range(5)]
        for one in waiting:
            one.addErrback(lambda failure: failure.trap(CancelledError, KeyError))
        waiting[2].cancel()
        waiting[0].cancel()
        self.ends["a1"].errback(KeyError())
        self.assertEqual(self.begun, ["a0", "a1", "a3", "a4"])
        for name in ("a3", "a4"):
            self.ends[name].callback(None)
        self.assertEqual(len(self.slots), 0)
        self.assertEqual(self.slots._counts, {})
