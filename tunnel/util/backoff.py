"""Pauses between attempts."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["pause_before"]

#: Seconds before another attempt, at first and at most; half of it is jitter.
RETRY_FIRST, RETRY_MOST = 0.05, 1.0


def pause_before(
    attempt: int,
    random: Callable[[], float],
    first: float = RETRY_FIRST,
    most: float = RETRY_MOST,
) -> float:
    """
    Seconds to wait before an attempt that is not the first.

    :param first: the longest pause before attempt 0; it doubles with each...
    :param most: ... and is never longer.
    """
    longest: float = min(most, first * 2 ** min(attempt, 10))
    return longest * (0.5 + random() / 2)
