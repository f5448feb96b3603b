"""Ids that sort by time."""

from __future__ import annotations

import uuid

from tunnel.toolkit.uuid7 import PER_MILLISECOND, Uuid7


def test_the_parts_of_an_id() -> None:
    """The example of RFC 9562, appendix A.6, without its random bits."""
    new_id = Uuid7(lambda: 1645557742.0, lambda bits: (1 << bits) - 1)
    first = uuid.UUID(new_id())
    assert first.version == 7
    assert first.variant == uuid.RFC_4122
    assert first.int >> 80 == 0x017F22E279B0
    assert str(first) == "017f22e2-79b0-7000-bfff-ffffffffffff"
    assert new_id() == "017f22e2-79b0-7001-bfff-ffffffffffff"


def test_each_id_is_larger() -> None:
    """Also if the clock is set back, and with more ids than a millisecond has."""
    times = [5.0] * (PER_MILLISECOND + 2) + [4.0, 4.0, 6.0]
    moments = iter(times)
    new_id = Uuid7(lambda: next(moments), lambda bits: 0)
    found = [new_id() for _ in times]
    assert found == sorted(set(found))
    assert found[-1].startswith(f"{6000:012x}"[:8])


def test_random_bits() -> None:
    new_id = Uuid7(lambda: 1.0)
    assert len({one[-12:] for one in (new_id() for _ in range(100))}) == 100
