"""What one stream wrote, until its other end acknowledged it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from twisted.logger import Logger

from tunnel.wire.limits import KIB

if TYPE_CHECKING:
    from tunnel.session.keeper import Keeper

__all__ = ["Kept"]

#: Small pieces are kept joined: each costs a hundred bytes beside its own.
SMALL, JOINED = 1 * KIB, 4 * KIB


class Kept:
    """
    Pieces in the order in which they were written, within the keeper's limits.

    :param owner: whose bytes they are; see `ResumeLimits.kept_per_owner`.
    :ivar pieces: each with whether it is a block of headers.
    :ivar size: bytes in them.
    :ivar acked: bytes before them, which the other end acknowledged.
    :ivar full: so many that their producer has to wait.
    :ivar given_up: nothing is kept any more; the stream ends with its path.
    """

    _log = Logger()
    __slots__ = ("_keeper", "_owner", "acked", "full", "given_up", "pieces", "size")

    def __init__(self, keeper: Keeper, owner: str) -> None:
        self.pieces: deque[tuple[bool, bytes]] = deque()
        self.size = 0
        self.acked = 0
        self.full = False
        self.given_up = False
        self._keeper = keeper
        self._owner = owner

    def add(self, is_headers: bool, data: bytes) -> bool:
        """Keep what is written; False when it makes this `full`, or `given_up`."""
        if self.given_up or not data:
            return True
        pieces = self.pieces
        size = len(data)
        if (
            size < SMALL
            and pieces
            and not is_headers
            and not pieces[-1][0]
            and len(pieces[-1][1]) < JOINED
        ):
            pieces[-1] = (False, pieces[-1][1] + data)
        else:
            pieces.append((is_headers, data))
        self.size += size
        keeper = self._keeper
        if not keeper.hold(self._owner, size):
            self._log.info(
                "a stream keeps nothing any more: {held} bytes are kept already",
                held=keeper.held,
            )
            self.give_up()
            return False
        if self.size > keeper.limits.kept_per_stream:
            self.full = True
            return False
        return True

    def covers(self, received: int) -> bool:
        """Everything is here that an end lacks which has *received* bytes."""
        return not self.given_up and self.acked <= received <= self.acked + self.size

    def drop(self, received: int) -> None:
        """Keep only what the other end has not consumed."""
        gone = received - self.acked
        self.acked = received
        self.size -= gone
        self._keeper.release(self._owner, gone)
        pieces = self.pieces
        while gone:
            is_headers, data = pieces[0]
            if len(data) > gone:
                pieces[0] = (is_headers, data[gone:])
                break
            gone -= len(data)
            pieces.popleft()
        if self.full and self.size < self._keeper.limits.kept_per_stream * 7 // 8:
            self.full = False

    def give_up(self) -> None:
        """Keep nothing any more."""
        self._keeper.release(self._owner, self.size)
        self.acked += self.size
        self.size = 0
        self.pieces.clear()
        self.full = False
        self.given_up = True
