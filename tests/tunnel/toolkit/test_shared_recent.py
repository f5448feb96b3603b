"""A table whose peers have fair shares."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnel.toolkit.shared_recent import SharedRecent


@pytest.fixture
def table() -> SharedRecent[str, int, str]:
    return SharedRecent(4)


def test_one_peer_may_fill_it(table: SharedRecent[str, int, str]) -> None:
    for key in range(6):
        table.set("a", key, f"{key}")
    assert [table.get("a", key) for key in range(6)] == [
        None,
        None,
        "2",
        "3",
        "4",
        "5",
    ]
    assert len(table) == 4


def test_a_peer_with_many_displaces_its_own(
    table: SharedRecent[str, int, str],
) -> None:
    table.set("b", 0, "b")
    for key in range(100):
        table.set("a", key, "a")
    assert table.get("b", 0) == "b"
    # Another one takes from the largest peer.
    table.set("b", 1, "b")
    assert [table.get("a", key) for key in (97, 98, 99)] == [None, "a", "a"]
    table.set("c", 0, "c")
    assert table.get("c", 0) == "c"
    assert len(table) == 4


def test_a_renewed_entry_is_new(table: SharedRecent[str, int, str]) -> None:
    for key in range(4):
        table.set("a", key, "old")
    table.set("a", 0, "new")
    table.set("a", 4, "more")
    assert (table.get("a", 0), table.get("a", 1)) == ("new", None)


def test_forgotten_entries(table: SharedRecent[str, int, str]) -> None:
    for peer in ("a", "b"):
        for key in range(2):
            table.set(peer, key, peer)
    table.forget(lambda key: key == 0)
    assert [table.get(peer, 0) for peer in ("a", "b")] == [None, None]
    table.forget(lambda key: True)
    assert len(table) == 0
    assert not table._entries and not table._by_count


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.booleans())),
)
def test_any_changes(changes: list[tuple[str, int, bool]]) -> None:
    """The counts are those of the entries, and no small peer loses an entry."""
    table: SharedRecent[str, int, int] = SharedRecent(8)
    for number, (peer, key, is_set) in enumerate(changes):
        before = {one: dict(entries) for one, entries in table._entries.items()}
        if is_set:
            table.set(peer, key, number)
            assert table.get(peer, key) == number
        else:
            table.forget(lambda one, key=key: one == key)  # type: ignore[misc]
        counts = Counter({one: len(entries) for one, entries in table._entries.items()})
        assert len(table) == counts.total() <= 8
        assert table._largest == max(counts.values(), default=0)
        assert {
            one: count for count, peers in table._by_count.items() for one in peers
        } == counts
        if is_set:
            smaller = [one for one in before if len(before[one]) > counts[one]]
            assert all(len(before[one]) >= counts[peer] for one in smaller)
