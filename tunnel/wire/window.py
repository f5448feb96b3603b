"""The size of a connection's windows."""

from __future__ import annotations

from tunnel.wire.limits import AHEAD, KIB, MIN_WINDOW


class WindowEstimator:
    """
    An estimator of the window size of a session: twice its bandwidth-delay product.

    The owner of the connection calls it (`tunnel.session.protocol.TunnelProtocol`).

    A probe is a ping that is sent while data flows.  The bytes that arrive before the
    pong of the probe give the bandwidth.  The shortest round trip ever measured is the
    delay, because a longer round trip includes a queue, which a larger window would
    only lengthen.  If that queue takes more than `AHEAD` seconds to drain, windows
    shrink to the bytes that the path carries in that time.
    """

    __slots__ = (
        "_arrived",
        "_at_probe",
        "_best_rate",
        "_next_probe",
        "_probed_at",
        "rtt",
        "target",
    )

    #: Seconds between two probes.  On a short path, a window takes less than a
    #: millisecond, and a PING for each window would look like a flood to the peer.
    PACE = 0.05

    #: Number of bytes in addition to twice the bandwidth-delay product, which the two
    #: ends need to take turns.
    SLACK = 64 * KIB

    def __init__(self, initial: int) -> None:
        self.target = initial
        #: Shortest measured round trip in seconds; 0 before the first.
        self.rtt = 0.0
        self._best_rate = 0.0
        self._arrived = 0
        self._at_probe = 0
        self._probed_at: float | None = None
        self._next_probe = float("-inf")

    def received(self, count: int) -> bool:
        """
        Count *count* arrived bytes; return True if it is time to call `probe`.

        The time comes when a quarter of the window has arrived since the last probe: a
        quiet session, or a session with small requests, never probes.
        """
        self._arrived += count
        return (
            self._probed_at is None
            and (self._arrived - self._at_probe) * 4 > self.target
        )

    def probe(self, now: float) -> bool:
        """Tell whether the caller must send a probe now."""
        self._at_probe = self._arrived
        if now < self._next_probe:
            return False
        self._probed_at = now
        self._next_probe = now + self.PACE
        return True

    def probe_answered(self, now: float, cap: int) -> int:
        """
        Handle the response to a probe, and return the new size of windows, at most
        *cap*.
        """
        if self._probed_at is None:
            return self.target
        # A clock that was set back gives one wrong value, but must not cause a division
        # by zero.
        elapsed = max(now - self._probed_at, 1e-6)
        self._probed_at = None
        arrived, self._at_probe = self._arrived - self._at_probe, self._arrived
        if not self.rtt or elapsed < self.rtt:
            self.rtt = elapsed
        rate = arrived / elapsed
        if elapsed - self.rtt > AHEAD:
            self._best_rate = rate
            self.target = min(self.target, max(int(rate * AHEAD), MIN_WINDOW))
            return self.target
        self._best_rate = max(self._best_rate, rate)
        wanted = int(2 * self._best_rate * self.rtt) + self.SLACK
        if wanted > self.target:
            self.target = min(wanted, cap)
        return self.target
