"""What is known of one agent, whichever way events overtake each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from kas.directory import cache as module
from kas.directory.cache import (
    LOOK_INTERVAL,
    MAX_GONE,
    MAX_INSTANCES,
    NEVER,
    REACHED_INTERVAL,
    UNUSED_SECONDS,
    Cache,
    CacheEntry,
    LookUps,
    newest,
)
from kas.directory.records import AgentRecord
from tests.kas.directory.memory import record
from tests.kas.directory.several import Fleet

_EVENTS = st.tuples(st.integers(1, 3), st.integers(1, 9), st.booleans())


@given(st.lists(_EVENTS, max_size=40))
def test_whatever_the_order_the_newest_remains(
    events: list[tuple[int, int, bool]],
) -> None:
    """Connections and ends of three instances, overtaking each other at will."""
    fleet = Fleet()
    one = fleet.all[0]
    one.routes("agent")
    for instance, generation, connects in events:
        what = record(instance=instance, generation=generation, at=2 + generation % 2)
        one.events([what] if connects else [], [] if connects else [what])
    for instance in (1, 2, 3):
        seen = [(g, connects) for i, g, connects in events if i == instance]
        top = max((g for g, _ in seen), default=0)
        expected = {top} if seen and all(c for g, c in seen if g == top) else set()
        key = bytes([instance]) * 16
        got = {
            r.agent.generation
            for r in one.routes("agent")
            if r.agent.instance_id == key
        }
        assert got == expected


def test_instances_of_an_agent_are_bounded() -> None:
    entry = CacheEntry("agent", 0.0)
    for number in range(MAX_INSTANCES + 10):
        made = record(instance=1)
        agent = made.agent.__class__(
            "agent", "agent", number.to_bytes(16, "big"), 1, 0.0
        )
        entry.connected(AgentRecord(agent, made.kas_id, made.kas_url), 1)
    assert len(list(entry.records())) == MAX_INSTANCES
    for number in range(MAX_INSTANCES + 10):
        entry.disconnected(number.to_bytes(16, "big"), 1, 2)
    assert len(entry._instances) == MAX_GONE


def test_a_connection_that_is_told_again() -> None:
    """It is nothing new, and what it says of itself now counts."""
    entry = CacheEntry("agent", 0.0)
    assert entry.connected(record(generation=2), 1)
    again = record(generation=2, at=3)
    assert not entry.connected(again, 2)
    assert list(entry.records()) == [again]
    assert not entry.connected(record(generation=1), 3)
    assert list(entry.records()) == [again]


def test_forgets_only_what_was_wrong() -> None:
    """A connection that another kas, or a newer one, has meanwhile is none of it."""
    entry = CacheEntry("agent", 0.0)
    there = record(generation=2)
    entry.connected(there, 1)
    entry.forget(record(generation=1))
    entry.forget(record(generation=2, at=3))
    assert list(entry.records()) == [there]
    entry.forget(there)
    assert list(entry.records()) == []
    entry.forget(there)
    # Of one that is gone it is remembered, whatever led nowhere.
    entry.disconnected(there.agent.instance_id, 2, 2)
    entry.forget(there)
    assert not entry.connected(there, 3)


def test_what_nothing_new_is() -> None:
    entry = CacheEntry("agent", 0.0)
    assert entry.connected(record(generation=2), 1)
    assert not entry.connected(record(generation=2), 2)
    assert not entry.connected(record(generation=1), 3)
    assert entry.connected(record(generation=3), 4)


def test_a_look_up_that_is_older_than_an_event() -> None:
    """What came while the store was read stays; the rest it did not have goes."""
    entry = CacheEntry("agent", 0.0)
    early, late = record(instance=1), record(instance=2)
    entry.connected(early, 1)
    entry.connected(late, 2)
    assert not entry.looked_up([], 1)
    assert list(entry.records()) == [late]
    assert not entry.looked_up([], 2, lambda kas_id: True)
    assert list(entry.records()) == [late]
    assert entry.looked_up([early], 2)
    assert list(entry.records()) == [early]


def test_a_look_up_that_is_older_than_a_newer_connection() -> None:
    """That the instance connected once more is as new as its first connection."""
    entry = CacheEntry("agent", 0.0)
    entry.connected(record(generation=1), 1)
    moved = record(generation=2, at=3)
    entry.connected(moved, 2)
    assert not entry.looked_up([], 1)
    assert list(entry.records()) == [moved]


def test_a_look_up_that_finds_what_is_known() -> None:
    """It is nothing new, and what the store has of earlier does not replace it."""
    entry = CacheEntry("agent", 0.0)
    there = record(generation=2)
    entry.connected(there, 1)
    assert not entry.looked_up([there], 1)
    assert not entry.looked_up([record(generation=1, at=3)], 1)
    assert list(entry.records()) == [there]


def test_what_was_never_looked_up_is_due() -> None:
    """Also on a machine whose clock began a moment ago."""

    async def look_up(entry: CacheEntry) -> None:
        raise AssertionError

    look_ups = LookUps(Clock(), look_up, {"here"}, (), lambda entry: ())
    assert look_ups.is_due(CacheEntry("here", 0.0), True)
    look_ups.events_come_in(False)
    assert not look_ups.is_due(CacheEntry("here", 0.0), True)


class LookUpCase(SynchronousTestCase):
    """`LookUps` with look-ups that the test ends."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.begun: list[str] = []
        self.running: list[Deferred[None]] = []
        self.here = {"here"}
        self.awaited: set[str] = set()
        self.look_ups = LookUps(
            self.clock, self.look_up, self.here, self.awaited, lambda entry: ()
        )

    async def look_up(self, entry: CacheEntry) -> None:
        self.begun.append(entry.agent_id)
        ending: Deferred[None] = Deferred()
        self.running.append(ending)
        await ending

    def test_at_the_same_time(self) -> None:
        """So many, and the others in their order, as soon as one has ended."""
        self.patch(module, "MAX_LOOKUPS", 2)
        for name in "abcd":
            self.look_ups.now(CacheEntry(name, 0.0))
        self.assertEqual(self.begun, ["a", "b"])
        self.running[1].callback(None)
        self.assertEqual(self.begun, ["a", "b", "c"])
        self.running[0].errback(RuntimeError("bug"))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertEqual(self.begun, ["a", "b", "c", "d"])
        self.assertEqual(self.look_ups.running, 2)
        for ending in self.running[2:]:
            ending.callback(None)
        self.assertEqual(self.look_ups.running, 0)

    def test_stop(self) -> None:
        """What waits for its turn, or for its time, never begins."""
        self.patch(module, "MAX_LOOKUPS", 1)
        entries = [CacheEntry(name, 0.0) for name in "abc"]
        self.look_ups.now(entries[0])
        self.look_ups.now(entries[1])
        self.look_ups.stop()
        self.running[0].callback(None)
        self.look_ups.now(entries[2])
        self.look_ups.when_due(entries[2])
        self.clock.advance(60)
        self.assertEqual(self.begun, ["a"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_one_at_a_time(self) -> None:
        """Who asks while one runs gets another, after the interval, and only one."""
        entry = CacheEntry("a", 0.0)
        self.look_ups.now(entry)
        for _ in range(3):
            self.look_ups.now(entry)
            self.look_ups.when_due(entry)
        self.assertEqual(self.begun, ["a"])
        self.running[0].callback(None)
        self.look_ups.when_due(entry)
        self.clock.advance(LOOK_INTERVAL - 0.1)
        self.assertEqual(self.begun, ["a"])
        self.clock.advance(0.1)
        self.assertEqual(self.begun, ["a", "a"])
        self.running[1].callback(None)
        self.clock.advance(60)
        self.assertEqual(self.begun, ["a", "a"])

    def test_dropped(self) -> None:
        """An entry that the cache dropped while it was looked up is done with it."""
        entry = CacheEntry("a", 0.0)
        self.look_ups.now(entry)
        self.look_ups.when_due(entry)
        entry.drop()
        self.running[0].callback(None)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_dropped_before_its_time(self) -> None:
        """A look-up that was to begin later does not."""
        entry = CacheEntry("a", 0.0)
        entry.next_look = 5.0
        self.look_ups.when_due(entry)
        entry.drop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_what_nobody_has(self) -> None:
        """Without events it is due once per interval, whoever asks for it."""
        entry = CacheEntry("absent", 0.0)
        self.look_ups.events_come_in(False)
        self.assertTrue(self.look_ups.is_due(entry, False))
        self.look_ups.now(entry)
        self.running[0].callback(None)
        self.assertFalse(self.look_ups.is_due(entry, False))
        self.clock.advance(LOOK_INTERVAL - 0.1)
        self.assertFalse(self.look_ups.is_due(entry, False))
        self.clock.advance(0.1)
        self.assertTrue(self.look_ups.is_due(entry, False))

    def test_doubted(self) -> None:
        """Due at once; what a look-up that runs meanwhile finds is not enough."""
        entry = CacheEntry("a", 0.0)
        self.look_ups.events_come_in(True)
        entry.epoch = self.look_ups.epoch
        self.assertFalse(self.look_ups.is_due(entry, True))
        entry.doubt()
        self.assertTrue(self.look_ups.is_due(entry, True))
        self.look_ups.now(entry)
        entry.doubt()
        self.running[0].callback(None)
        self.clock.advance(LOOK_INTERVAL)
        self.assertEqual(len(self.running), 2)
        self.running[1].callback(None)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_reached(self) -> None:
        """Without events, one that is reached is looked up seldom, each at its time."""
        self.look_ups.events_come_in(False)
        for spread, wait in ((0.0, 0.5), (0.5, 1.0), (1.0, 1.5)):
            entry = CacheEntry("here", 0.0, spread)
            entry.looked = self.clock.seconds()
            self.clock.advance(wait * REACHED_INTERVAL - 0.25)
            self.assertFalse(self.look_ups.is_due(entry, True))
            self.awaited.add("here")
            self.assertTrue(self.look_ups.is_due(entry, True))
            self.awaited.clear()
            self.clock.advance(0.25)
            self.assertTrue(self.look_ups.is_due(entry, True))

    def test_cancel(self) -> None:
        """A timer that was set is no more."""
        entry = CacheEntry("a", 0.0)
        entry.next_look = 5.0
        self.look_ups.when_due(entry)
        self.look_ups.when_due(entry)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        entry.cancel()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class CacheTests(SynchronousTestCase):
    """`Cache`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cache = Cache(self.clock, lambda: 0.25)

    def test_unused(self) -> None:
        """Dropped after their time, but for those that are needed."""
        old, needed = self.cache.wanted("old"), self.cache.wanted("needed")
        self.clock.advance(UNUSED_SECONDS - 1)
        self.cache.wanted("new")
        self.cache.sweep(())
        self.assertEqual(len(self.cache.entries), 3)
        self.clock.advance(1)
        self.cache.sweep({"needed"})
        self.assertEqual(list(self.cache.entries), ["new", "needed"])
        self.assertTrue(old.dropped)
        self.assertFalse(needed.dropped)

    def test_bounded(self) -> None:
        """The one that was used longest ago goes."""
        self.patch(module, "MAX_ENTRIES", 2)
        first = self.cache.wanted("a")
        self.cache.wanted("b")
        self.assertIs(self.cache.wanted("a"), first)
        self.cache.wanted("c")
        self.assertEqual(list(self.cache.entries), ["a", "c"])
        self.assertEqual(first.spread, 0.25)

    def test_a_kas_that_wrote_everything_again(self) -> None:
        """Only what leads there is looked up once more."""
        there, elsewhere = self.cache.wanted("a"), self.cache.wanted("b")
        there.connected(record("a", at=2), 1)
        elsewhere.connected(record("b", at=3), 1)
        there.epoch = elsewhere.epoch = 1
        self.cache.doubt_kas(record(at=2).kas_id)
        self.assertEqual((there.epoch, elsewhere.epoch), (NEVER, 1))
        self.assertEqual(list(there.records()), [record("a", at=2)])

    def test_stop(self) -> None:
        entry = self.cache.wanted("a")
        entry.timer = self.clock.callLater(1, lambda: None)
        self.cache.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])


def test_newest() -> None:
    """Of each instance; of two with one generation the first."""
    first, same = record(at=2), record(at=3)
    newer, other = record(generation=2), record(instance=2)
    assert newest([first, same]) == [first]
    assert newest([first, newer, other]) == [newer, other]
    assert newest([newer, first]) == [newer]
