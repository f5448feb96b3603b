"""A rate limiter for each of many keys, such as agents or addresses."""

from __future__ import annotations

from typing import TypeVar

from tunnel.toolkit.recent import Recent
from tunnel.toolkit.token_bucket import TokenBucket

__all__ = ["TokenBuckets"]

K = TypeVar("K")


class TokenBuckets(Recent[K, TokenBucket]):
    """
    A table of token buckets with the same limits.

    A key that was forgotten begins with a full bucket: at worst, it gets another burst.

    :param most: maximum number of keys.
    :param burst: see `TokenBucket`; the same applies to *per_second*.
    """

    def __init__(self, most: int, burst: float, per_second: float) -> None:
        super().__init__(most)
        self._burst = burst
        self._per_second = per_second

    def used(self, key: K, now: float) -> TokenBucket:
        """Return the bucket of a key, which is now the last one to be forgotten."""
        bucket = self.get(key)
        if bucket is None:
            bucket = TokenBucket(self._burst, self._per_second, now)
        self[key] = bucket
        return bucket
