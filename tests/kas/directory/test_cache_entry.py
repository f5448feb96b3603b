"""What is known of one agent, whichever way news overtake each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kas.directory.cache_entry import MAX_GONE, MAX_INSTANCES, Answer
from kas.directory.records import AgentRecord
from tests.kas.directory.memory import record
from tests.kas.directory.several import Fleet

_NEWS = st.tuples(st.integers(1, 3), st.integers(1, 9), st.booleans())


@given(st.lists(_NEWS, max_size=40))
def test_whatever_the_order_the_newest_remains(
    news: list[tuple[int, int, bool]],
) -> None:
    """Connections and ends of three instances, overtaking each other at will."""
    fleet = Fleet()
    one = fleet.all[0]
    one.routes("agent")
    for instance, generation, connects in news:
        what = record(instance=instance, generation=generation, at=2 + generation % 2)
        one.news([what] if connects else [], [] if connects else [what])
    for instance in (1, 2, 3):
        seen = [(g, connects) for i, g, connects in news if i == instance]
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
    answer = Answer("agent", 0.0)
    for number in range(MAX_INSTANCES + 10):
        made = record(instance=1)
        agent = made.agent.__class__(
            "agent", "agent", number.to_bytes(16, "big"), 1, 0.0
        )
        answer.connected(AgentRecord(agent, made.kas_id, made.kas_url), 1)
    assert len(list(answer.records())) == MAX_INSTANCES
    for number in range(MAX_INSTANCES + 10):
        answer.disconnected(number.to_bytes(16, "big"), 1, 2)
    assert len(answer._instances) == MAX_GONE
