"""What is known of one agent, whichever way events overtake each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from kas.directory.cache import MAX_GONE, MAX_INSTANCES, CacheEntry, LookUps
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


def test_what_was_never_looked_up_is_due() -> None:
    """Also on a machine whose clock began a moment ago."""

    async def look_up(entry: CacheEntry) -> None:
        raise AssertionError

    look_ups = LookUps(Clock(), look_up, {"here"}, (), lambda entry: ())
    assert look_ups.is_due(CacheEntry("here", 0.0), True)
    look_ups.events_come_in(False)
    assert not look_ups.is_due(CacheEntry("here", 0.0), True)
