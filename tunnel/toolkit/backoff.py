"""Pauses between attempts."""

from __future__ import annotations

from collections.abc import Callable

import attrs

__all__ = ["Backoff"]


@attrs.define(eq=False)
class Backoff:
    """
    Each pause twice as long as the one before.

    :param random: between 0 and 1, for the jitter.
    :param first: seconds of the longest first pause.
    :param most: seconds of the longest of all.
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
        Count a failed attempt, and return a pause with jitter: half to all of the
        longest one.
        """
        return self.failed() * (0.5 + self.random() / 2)

    def reset(self) -> None:
        """Begin with the first pause again, after an attempt succeeded."""
        self.doublings = 0
