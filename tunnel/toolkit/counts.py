"""Counts by key, without zero entries."""

from __future__ import annotations

from collections.abc import Hashable, MutableMapping
from typing import TypeVar

__all__ = ["one_less"]

K = TypeVar("K", bound=Hashable)


def one_less(counts: MutableMapping[K, int], key: K) -> int:
    """Decrement the count of *key* and return it; an entry of zero is removed."""
    left = counts.get(key, 0) - 1
    if left > 0:
        counts[key] = left
        return left
    counts.pop(key, None)
    return 0
