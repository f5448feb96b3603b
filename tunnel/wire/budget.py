"""How many control frames a peer may send in one interval."""

from __future__ import annotations

from tunnel.wire.limits import Limits


class Budget:
    """
    Counts of frames that need no credit, and so could be sent without end.

    The session has no clock: whoever owns it calls `renew` every ten seconds.
    """

    __slots__ = ("_limits", "pings", "resets", "small")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.renew()

    def renew(self) -> None:
        """A new interval begins."""
        self.resets = self._limits.resets_per_interval
        self.pings = self._limits.pings_per_interval
        self.small = self._limits.small_frames_per_interval
