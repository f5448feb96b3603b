"""Ids that sort by time: UUID version 7."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

__all__ = ["Uuid7"]

#: The number of ids with one time, which the 12 bits after the version distinguish.
PER_MILLISECOND: Final = 4096


class Uuid7:
    """
    Generator of UUIDs (RFC 9562, version 7), each larger than the one before.

    If the clock is set back, or more than `PER_MILLISECOND` ids are created in a
    millisecond, the time in an id is later than the time of day.

    :param now: returns the time of day, in seconds since 1970.
    :param random: returns a random number with this many bits.
    """

    def __init__(
        self,
        now: Callable[[], float],
        random: Callable[[int], int] = secrets.randbits,
    ) -> None:
        self._now = now
        self._random = random
        self._milliseconds = 0
        self._count = 0

    def __call__(self) -> str:
        """Return a new id, in its usual form with hyphens."""
        milliseconds = int(self._now() * 1000)
        if milliseconds > self._milliseconds:
            self._milliseconds, self._count = milliseconds, 0
        else:
            self._count += 1
            if self._count == PER_MILLISECOND:
                self._milliseconds, self._count = self._milliseconds + 1, 0
        time = f"{self._milliseconds & 0xFFFF_FFFF_FFFF:012x}"
        # Two bits of the variant, and 62 random bits.
        rest = f"{0x8000_0000_0000_0000 | self._random(62):016x}"
        return f"{time[:8]}-{time[8:]}-7{self._count:03x}-{rest[:4]}-{rest[4:]}"
