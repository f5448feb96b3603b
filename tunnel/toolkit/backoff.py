"""Pauses between attempts."""

from __future__ import annotations

from collections.abc import Callable

import attrs

__all__ = ["Backoff"]


@attrs.define(eq=False)
class Backoff:
    """
    Pauses that double after each failed attempt.

    :param random: returns a number between 0 and 1, for the jitter.
    :param first: the maximum of the first pause, in seconds.
    :param most: the maximum of all pauses, in seconds.
    """

    random: Callable[[], float]
    first: float
    most: float
    doublings: int = 0

    def failed(self) -> float:
        """Count a failed attempt; return the longest pause before the next one."""
        longest: float = self.first * 2**self.doublings
        if longest >= self.most:
            return self.most
        self.doublings += 1
        return longest

    def pause(self) -> float:
        """
        Count a failed attempt, and return a pause with jitter: between half and all of
        the maximum.
        """
        return self.failed() * (0.5 + self.random() / 2)

    def reset(self) -> None:
        """Start with the first pause again, after an attempt has succeeded."""
        self.doublings = 0
