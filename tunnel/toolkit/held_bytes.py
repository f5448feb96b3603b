"""A limit on the bytes of responses that wait in memory for slow peers or readers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ByteHolder", "HeldBytes", "TooManyBytes"]


class TooManyBytes(Exception):
    """Error for bytes that have no room."""


class HeldBytes:
    """
    Counter of bytes in memory, by peer, with a limit for each peer and one for all.

    :param of_peer: maximum bytes of one peer.
    :param of_all: maximum bytes of all peers.
    :ivar held: number of bytes by peer.
    """

    def __init__(self, of_peer: int, of_all: int) -> None:
        self._of_peer = of_peer
        self._of_all = of_all
        self.held: Counter[str] = Counter()

    @contextmanager
    def holder(self) -> Iterator[ByteHolder]:
        """Count bytes until the end of the block."""
        holder = ByteHolder(self.held, self._of_peer, self._of_all)
        try:
            yield holder
        finally:
            holder.release()


class ByteHolder:
    """Bytes that are released together."""

    def __init__(self, held: Counter[str], of_peer: int, of_all: int) -> None:
        self._all = held
        self._of_peer = of_peer
        self._of_all = of_all
        self._own: Counter[str] = Counter()

    def take(self, peer: str, count: int) -> None:
        """
        Count bytes of a peer.

        :raises TooManyBytes: there is no room for them.
        """
        held = self._all
        if held[peer] + count > self._of_peer or held.total() + count > self._of_all:
            raise TooManyBytes(
                "too many large responses are in progress at the same time; try again"
            )
        held[peer] += count
        self._own[peer] += count

    def release(self) -> None:
        """Release all bytes."""
        for peer, count in self._own.items():
            self._all[peer] -= count
            if not self._all[peer]:
                del self._all[peer]
        self._own.clear()
