"""Numbers of streams, which of them are there, and the credit of each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnel.errors import ProtocolError
from tunnel.wire.limits import KIB, MAX_STREAM_ID, MIB, MIN_WINDOW
from tunnel.wire.stream import (
    RECEIVE_FIN,
    SEND_FIN,
    ReceiveWindow,
    Stream,
    StreamState,
    StreamTable,
)


@pytest.fixture
def table() -> StreamTable:
    """Of the side that dialled."""
    return StreamTable(dialler=True)


def test_ours(table: StreamTable) -> None:
    """Odd for who dialled, even for who listened; each only once."""
    assert [table.open(10, 10).id for _ in range(3)] == [1, 3, 5]
    assert [StreamTable(dialler=False).open(10, 10).id for _ in range(2)] == [2, 2]
    assert table.ours == 3
    table.drop(table.by_id[5])
    assert table.ours == 2
    assert table.open(10, 10).id == 7
    assert table.is_ours(7) and not table.is_ours(8)


@pytest.mark.parametrize(
    "number, why",
    [
        (0, "does not belong to the peer"),
        (3, "does not belong to the peer"),
        (4, "was already used"),
        (2, "was already used"),
        (MAX_STREAM_ID + 1, "used up"),
    ],
)
def test_theirs(table: StreamTable, number: int, why: str) -> None:
    """Their own, growing, and within what a frame can name."""
    table.admit(4)
    with pytest.raises(ProtocolError, match=why):
        table.admit(number)
    assert table.last_theirs == 4
    table.admit(6)
    StreamTable(dialler=False).admit(MAX_STREAM_ID)


def test_known(table: StreamTable) -> None:
    """What is over is not there; what never was is an error, on both sides."""
    ours = table.open(10, 10)
    table.admit(2)
    theirs = table.accept(2, 10, 10)
    assert table.known(1) is ours and table.known(2) is theirs
    ours.finishing = True
    table.drop(ours)
    assert ours.state is StreamState.CLOSED
    assert not ours.finishing and not ours.sendable
    table.drop(ours)
    table.drop(table.open(10, 10))
    assert table.known(3) is None
    table.drop(theirs)
    assert table.known(1) is None and table.known(2) is None
    assert (table.ours, table.theirs) == (0, 0)
    for number in 0, 4, 5:
        with pytest.raises(ProtocolError, match="never opened"):
            table.known(number)


def test_retire(table: StreamTable) -> None:
    """Once both sides finished and everything is consumed, and not before."""
    stream = table.open(10, 10)
    stream.window.received(4)
    for step in SEND_FIN, RECEIVE_FIN:
        table.retire(stream)
        assert 1 in table.by_id
        stream.move(step)
    table.retire(stream)
    assert 1 in table.by_id
    stream.window.consumed(4, 0)
    table.retire(stream)
    assert 1 not in table.by_id and table.ours == 0


def test_greediest(table: StreamTable) -> None:
    """The largest of whoever holds most, though a stranger's is larger."""
    for count, holder in (50, "a"), (30, "b"), (40, "b"), (20, "c"):
        stream = table.open(100, 100)
        stream.holder = holder
        stream.window.received(count)
        table.buffered += count

    def held(stream: Stream) -> int:
        return stream.window.buffered

    def chosen(excess: int) -> list[int]:
        return [one.id for one in table.greediest(excess, held)]

    assert chosen(0) == []
    assert chosen(40) == [5]
    assert chosen(41) == [5, 1]
    table.drop(table.by_id[5])
    assert table.buffered == 100
    assert chosen(1000) == [1, 3, 7]


def test_clear(table: StreamTable) -> None:
    """Nothing is left but the numbers that were used."""
    stream = table.open(10, 10)
    stream.window.received(4)
    table.buffered += 4
    table.clear()
    assert list(table.by_id) == []
    assert (table.ours, table.theirs, table.buffered) == (0, 0, 0)
    assert table.open(10, 10).id == 3


@given(st.lists(st.integers(1, 400), max_size=60), st.integers(100, 300))
def test_credit_is_conserved(steps: list[int], size: int) -> None:
    window = ReceiveWindow(size)
    credit = size
    for step in steps:
        count = min(step, credit)
        assert window.received(count)
        credit -= count
        credit += window.consumed(count // 2, size)
        assert window.available == credit
        assert window.available + window.buffered + window.unannounced == window.size


def test_more_than_credit_is_refused() -> None:
    window = ReceiveWindow(10)
    assert window.received(10)
    assert not window.received(1)
    assert window.buffered == 10


def test_nothing_is_announced_below_half_the_window() -> None:
    window = ReceiveWindow(100)
    window.received(80)
    assert window.consumed(49, 100) == 0
    assert window.consumed(1, 100) == 50


def test_consuming_what_was_not_there_is_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="but only 0 had arrived"):
        ReceiveWindow(10).consumed(1, 10)


def read(
    window: ReceiveWindow, rate: float, count: int, target: int, behind: bool
) -> int:
    """Have *count* bytes read at *rate* a second; the credit that came back."""
    clock, credit = [0.0], 0
    piece = 16 * KIB
    for _ in range(count // piece):
        window.received(min(window.available, 2 * piece if behind else piece))
        clock[0] += piece / rate
        taken = min(piece, window.buffered)
        credit += window.consumed(taken, target, lambda: clock[0])
    return credit


def test_reader_who_is_behind_gets_a_second() -> None:
    """However large the windows of the session are."""
    window = ReceiveWindow(256 * KIB)
    read(window, 300_000, 8 * MIB, 16 * MIB, behind=True)
    assert 250_000 < window.size < 350_000


def test_window_shrinks_with_its_reader() -> None:
    """... to the smallest legal one, and grows again."""
    window = ReceiveWindow(16 * MIB)
    read(window, 10_000, 40 * MIB, 16 * MIB, behind=True)
    assert window.size == MIN_WINDOW
    read(window, 100e6, 40 * MIB, 16 * MIB, behind=False)
    assert window.size == 16 * MIB


def test_first_bytes_of_a_reader_prove_little() -> None:
    """They vanish in its buffers: with each half the window at most doubles."""
    window = ReceiveWindow(256 * KIB)
    read(window, 100e6, 128 * KIB, 16 * MIB, behind=False)
    assert window.size == 512 * KIB
    read(window, 100e6, 256 * KIB, 16 * MIB, behind=False)
    assert window.size == 1 * MIB


def test_reader_who_keeps_up_keeps_its_window() -> None:
    """A stream that was idle is not slow."""
    window = ReceiveWindow(1 * MIB)
    read(window, 1_000, 2 * MIB, 1 * MIB, behind=False)
    assert window.size == 1 * MIB


def test_without_a_clock_a_window_grows_to_its_target() -> None:
    window = ReceiveWindow(100)
    window.received(100)
    assert window.consumed(100, 400) == 400
    assert window.size == 400
    window.received(400)
    window.consumed(400, 100)
    assert window.size == 400


class Ticks:
    """A clock that a test sets, and how often it was asked."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return self.now


def test_reader_is_measured_after_exactly_half_a_window() -> None:
    size, clock = 2 * MIN_WINDOW, Ticks()
    window = ReceiveWindow(size)
    window.received(size)
    window.consumed(1, size, clock)
    clock.now = 100.0
    window.consumed(size // 2 - 2, size, clock)
    assert (window.size, clock.asked) == (size, 1)
    window.consumed(1, size, clock)
    assert (window.size, clock.asked) == (MIN_WINDOW, 2)


def test_reader_who_leaves_a_quarter_keeps_up() -> None:
    for more, left in (0, 2 * MIN_WINDOW), (1, MIN_WINDOW):
        size, clock = 2 * MIN_WINDOW, Ticks()
        window = ReceiveWindow(size)
        window.received(size * 3 // 4 + more)
        window.consumed(1, size, clock)
        clock.now = 100.0
        window.consumed(size // 2 - 1, size, clock)
        assert window.size == left


def test_reader_who_keeps_up_gets_four_seconds() -> None:
    clock = Ticks()
    window = ReceiveWindow(200_000)
    window.received(120_000)
    window.consumed(1, 200_000, clock)
    clock.now = 1.25
    assert window.consumed(99_999, 10**9, clock) == 220_000
    assert window.size == 320_000
    # The next measurement begins there.
    asked = clock.asked
    window.received(160_000)
    window.consumed(159_999, 320_000, clock)
    assert clock.asked == asked
    window.consumed(1, 320_000, clock)
    assert clock.asked == asked + 1


def test_window_doubles_once_before_it_is_measured() -> None:
    clock = Ticks()
    window = ReceiveWindow(200_000)
    window.received(40_000)
    window.consumed(40_000, 10**9, clock)
    assert window.size == 400_000
    asked = clock.asked
    window.received(10)
    window.consumed(10, 10**9, clock)
    assert (window.size, clock.asked) == (400_000, asked)
