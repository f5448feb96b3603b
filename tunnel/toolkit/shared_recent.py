"""A table of limited size, of which each peer has a fair share."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["SharedRecent"]

P = TypeVar("P", bound=Hashable)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedRecent(Generic[P, K, V]):
    """
    A table of at most *most* entries of all peers.

    A further entry replaces the oldest entry of the peer that has the most entries.  So
    a peer with many entries displaces its own ones, and a single peer may fill the
    table.  Each operation takes the same time, whatever the number of entries.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        #: The entries of each peer, the oldest first.
        self._entries: dict[P, dict[K, V]] = {}
        #: The peers by their number of entries.
        self._by_count: dict[int, dict[P, None]] = {}
        #: The largest number of entries of a peer.
        self._largest = 0
        self._count = 0

    def __len__(self) -> int:
        """Return the number of entries of all peers."""
        return self._count

    def get(self, peer: P, key: K) -> V | None:
        """Return an entry; None without one.  This does not renew the entry."""
        return self._entries.get(peer, {}).get(key)

    def set(self, peer: P, key: K, value: V) -> None:
        """Add or renew an entry."""
        entries = self._entries.setdefault(peer, {})
        before = len(entries)
        entries.pop(key, None)
        entries[key] = value
        self._counted(peer, before)
        if self._count > self.most:
            largest = next(iter(self._by_count[self._largest]))
            of_largest = self._entries[largest]
            del of_largest[next(iter(of_largest))]
            self._counted(largest, self._largest)

    def forget(self, which: Callable[[K], bool]) -> None:
        """Remove the entries whose key fulfils a condition."""
        for peer, entries in tuple(self._entries.items()):
            for key in [one for one in entries if which(one)]:
                before = len(entries)
                del entries[key]
                self._counted(peer, before)

    def _counted(self, peer: P, before: int) -> None:
        """Record that the number of entries of a peer has changed by one at most."""
        count = len(self._entries[peer])
        if count == before:
            return
        self._count += count - before
        if before:
            peers = self._by_count[before]
            del peers[peer]
            if not peers:
                del self._by_count[before]
        if count:
            self._by_count.setdefault(count, {})[peer] = None
        else:
            del self._entries[peer]
        if count > self._largest or self._largest not in self._by_count:
            self._largest = count
