"""Keys and commands of the store in Redis; tests/integration has what Redis says."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kas.directory import redis_layout
from kas.directory.records import AgentRecord
from kas.directory.redis_layout import (
    EVENT_BYTES,
    RECORD_MS,
    SEEN_MS,
    Layout,
    Place,
    read_events,
)
from kas.pb import directory_pb2 as pb
from kas.redis import Command
from tests.kas.directory.memory import kas, record

LAYOUT = Layout("p")

ME = kas(2).kas_id


def published(commands: Iterable[Command]) -> list[pb.Events]:
    """The messages on the channel."""
    found = []
    for name, channel, data in commands:
        assert (name, channel) == ("PUBLISH", "p:txkas1:events")
        assert isinstance(data, bytes)
        message = read_events(data)
        assert message is not None
        found.append(message)
    return found


def test_place_in_a_field() -> None:
    """It is read again as it was written, whatever the agent's name holds."""
    for one in (
        Place("a", b"i" * 16),
        Place("ä/7", b"", 7),
        Place("", b"\xff" * 255, 2**63 - 1),
        Place("b", b"i", -1),
    ):
        assert Place.from_field(one.to_field()) == one


@pytest.mark.parametrize("field", [b"", b"short", Place("a", b"").to_field() + b"\xff"])
def test_field_of_another_program(field: bytes) -> None:
    """It is no place, whether it is too short or no text."""
    with pytest.raises(ValueError, match=r"no place|utf-8"):
        Place.from_field(field)


def test_what_a_kas_writes() -> None:
    """Each record at its agent, its project and its kas; each key once, with a time."""
    one = record("a", project_id=7)
    other = record("b", instance=2, project_id=7)
    without = record("c", instance=3)
    commands = LAYOUT.put(ME, [one, other, without])
    written = {
        (key, field): value
        for name, key, *pairs in commands
        if name == "HSET"
        for field, value in zip(pairs[::2], pairs[1::2], strict=True)
    }
    values = [each.to_message().SerializeToString() for each in (one, other, without)]
    assert sorted(written.values(), key=repr) == sorted(
        [*values * 2, *values[:2]], key=repr
    )
    keys = [key for name, key, *_ in commands if name == "HSET"]
    held, project = LAYOUT.held(ME), LAYOUT.project(7)
    assert sorted(keys, key=repr) == sorted(
        [LAYOUT.agent("a"), LAYOUT.agent("b"), LAYOUT.agent("c"), project, held],
        key=repr,
    )
    assert [rest for rest in commands if rest[0] == "PEXPIRE"] == [
        ("PEXPIRE", key, RECORD_MS) for key in keys
    ]
    # The same fields are removed, and nothing else.
    removed = {
        (key, field)
        for _, key, *fields in LAYOUT.remove(
            ME, [Place.of(each) for each in (one, other, without)]
        )
        for field in fields
    }
    assert removed == set(written)
    assert (LAYOUT.put(ME, []), LAYOUT.remove(ME, [])) == ([], [])


def test_of_two_kas() -> None:
    """Neither removes what the other wrote, not even of the same instance."""
    here = LAYOUT.put(ME, [record("a", project_id=7)])
    there = LAYOUT.remove(kas(3).kas_id, [Place.of(record("a", project_id=7))])
    written = {(one[1], one[2]) for one in here if one[0] == "HSET"}
    assert not written & {(one[1], one[2]) for one in there}


def test_what_stands_at_a_key() -> None:
    """A place is found at its agent and its project, and nowhere else."""
    place = Place.of(record("a", project_id=7))
    assert LAYOUT.is_of(LAYOUT.agent("a"), place)
    assert LAYOUT.is_of(LAYOUT.project(7), place)
    for key in (LAYOUT.agent("b"), LAYOUT.project(8), LAYOUT.held(ME)):
        assert not LAYOUT.is_of(key, place)


def test_when_agents_were_seen() -> None:
    """Once for each agent, in whole milliseconds."""
    places = [Place.of(record("a")), Place.of(record("a", instance=2))]
    assert LAYOUT.note_seen([*places, Place("b", b"i")], 1000.0006) == [
        ("SET", LAYOUT.seen("a"), "1000001", "PX", SEEN_MS),
        ("SET", LAYOUT.seen("b"), "1000001", "PX", SEEN_MS),
    ]


def test_events() -> None:
    """What came is told whole; of what went, only which connection it was."""
    here, gone = record("a", project_id=7), record("b", generation=3)
    (told,) = published(LAYOUT.publish([here], [gone]))
    assert [AgentRecord.from_message(one) for one in told.connected] == [here]
    (ended,) = told.disconnected
    agent = gone.agent
    assert ended == pb.AgentRecord(
        agent_id="b",
        instance_id=agent.instance_id,
        generation=3,
        kas_id=gone.kas_id,
    )
    assert LAYOUT.publish() == []


@pytest.mark.parametrize("what", ["left", "lost", "rewrote"])
def test_events_of_a_kas(what: str) -> None:
    """One message, which says this and nothing else."""
    (told,) = published(LAYOUT.publish(**{what: b"x"}))  # type: ignore[arg-type]
    expected = pb.Events()
    getattr(expected, what).append(b"x")
    assert told == expected


@pytest.mark.parametrize("kind", ["connected", "disconnected"])
def test_many_events(kind: str) -> None:
    """In messages of a bounded size, all of them, in order, and none that is empty."""
    many = [record(f"agent-{number}") for number in range(5000)]
    if kind == "connected":
        messages = published(LAYOUT.publish(many))
    else:
        messages = published(LAYOUT.publish((), many))
    told = [one.agent_id for each in messages for one in getattr(each, kind)]
    assert told == [one.agent.agent_id for one in many]
    sizes = [each.ByteSize() for each in messages]
    assert max(sizes) < 1.1 * EVENT_BYTES
    # The last has what is left.
    assert min(sizes[:-1]) >= EVENT_BYTES
    assert sizes[-1] > 0
    assert len(messages) > 2


@pytest.mark.parametrize("ended", [False, True])
def test_events_that_fill_a_message(
    ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is full is told, and nothing empty after it."""
    monkeypatch.setattr(redis_layout, "EVENT_BYTES", 1)
    here = [record("a"), record("b")]
    commands = LAYOUT.publish((), here) if ended else LAYOUT.publish(here)
    assert len(published(commands)) == 2


def test_message_of_another_program() -> None:
    """Neither what is no message of ours is read, nor what is longer than all."""
    assert read_events(b"\xff\xff") is None
    name = "x" * (redis_layout.MAX_EVENT_BYTES - 100)
    largest = pb.Events(connected=[record().to_message()])
    largest.connected[0].agent_id = name
    spare = redis_layout.MAX_EVENT_BYTES - largest.ByteSize()
    largest.connected[0].agent_id = name + "x" * spare
    data = largest.SerializeToString()
    assert len(data) == redis_layout.MAX_EVENT_BYTES
    assert read_events(data) == largest
    largest.connected[0].agent_id += "x"
    assert read_events(largest.SerializeToString()) is None
