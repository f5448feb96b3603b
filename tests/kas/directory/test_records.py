"""What others write of agents and kas."""

from __future__ import annotations

import pytest

from kas.directory.records import MAX_TEXT, AgentRecord, KasRecord
from kas.pb import directory_pb2 as pb
from tests.tunnel.hostile import HOSTILE


@pytest.mark.parametrize("text", [*HOSTILE, "x" * 5000])
def test_hostile_texts(text: str) -> None:
    """A peer, or who writes to Redis, gets nothing into a log or a terminal."""
    message = pb.AgentRecord(kas_id=b"k", instance_id=b"i")
    names = [
        field.name
        for field in pb.AgentRecord.DESCRIPTOR.fields
        if field.type == field.TYPE_STRING
    ]
    for name in names:
        setattr(message, name, text)
    back = AgentRecord.from_message(message).to_message()
    assert len(names) == 12
    for name in names:
        found = getattr(back, name)
        assert found.isprintable() and 0 < len(found) <= MAX_TEXT, name
    kas = KasRecord.from_message(pb.KasRecord(url=text, version=text))
    assert kas.url.isprintable() and kas.version.isprintable()
