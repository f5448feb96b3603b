"""Processing of long lists in pieces, between other work of the reactor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

__all__ = ["PIECE", "in_pieces"]

#: Number of entries in one piece; processing a piece takes one or two milliseconds.
PIECE: Final = 500

_T = TypeVar("_T")


async def in_pieces(
    clock: IReactorTime, items: Sequence[_T]
) -> AsyncIterator[Sequence[_T]]:
    """Yield *items* in pieces, and return to the reactor after each full piece."""
    for begin in range(0, len(items), PIECE):
        piece = items[begin : begin + PIECE]
        yield piece
        if len(piece) == PIECE:
            await deferLater(clock, 0)
