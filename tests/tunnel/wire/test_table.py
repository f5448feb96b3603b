"""Numbers of streams, and which of them are there."""

from __future__ import annotations

import pytest

from tunnel.errors import ProtocolError
from tunnel.wire.limits import MAX_STREAM_ID
from tunnel.wire.stream import RECEIVE_FIN, SEND_FIN, StreamState
from tunnel.wire.table import StreamTable


@pytest.fixture
def table() -> StreamTable:
    """Of the side that dialled."""
    return StreamTable(dialler=True)


def test_ours(table: StreamTable) -> None:
    """Odd for who dialled, even for who listened; each only once."""
    assert [table.open(10, 10).id for _ in range(3)] == [1, 3, 5]
    assert [StreamTable(dialler=False).open(10, 10).id for _ in range(2)] == [2, 2]
    assert table.ours == 3
    table.drop(table[5])
    assert table.ours == 2
    assert table.open(10, 10).id == 7
    assert table.is_ours(7) and not table.is_ours(8)


@pytest.mark.parametrize(
    "number, why",
    [
        (0, "not yours"),
        (3, "not yours"),
        (4, "was used"),
        (2, "was used"),
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
    assert ours.state is StreamState.CLOSED and ours.closed
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
        assert 1 in table
        stream.move(step)
    table.retire(stream)
    assert 1 in table
    stream.window.consumed(4, 0)
    table.retire(stream)
    assert 1 not in table and table.ours == 0


def test_greediest(table: StreamTable) -> None:
    """The largest of whoever holds most, though a stranger's is larger."""
    for count, holder in (50, "a"), (30, "b"), (40, "b"), (20, "c"):
        stream = table.open(100, 100)
        stream.holder = holder
        stream.window.received(count)
        table.buffered += count
    assert table.greediest() is table[5]
    table.drop(table[5])
    assert table.buffered == 100
    assert table.greediest() is table[1]


def test_clear(table: StreamTable) -> None:
    """Nothing is left but the numbers that were used."""
    stream = table.open(10, 10)
    stream.window.received(4)
    table.buffered += 4
    table.clear()
    assert (list(table), table.ours, table.theirs, table.buffered) == ([], 0, 0, 0)
    assert table.open(10, 10).id == 3
