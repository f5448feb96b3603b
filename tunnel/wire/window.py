"""Credit: how much the peer may still send, and how much that should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tunnel.wire.limits import KIB, MIN_WINDOW

#: Seconds' worth of bytes that a stream may keep under way to a reader who is behind:
#: what comes after them waits that long.
AHEAD: Final = 1.0

#: The same for a reader who took all that came: its true rate may be larger.
CATCH_UP: Final = 4.0


class ReceiveWindow:
    """
    How much the peer may still send us on one stream.

    Credit goes back when the application has *consumed* bytes, never when they merely
    arrive; that is what lets a slow reader slow its sender down.  At any time
    ``available + buffered + unannounced == size``.

    The size follows the reader: what it takes in about a second.  It at most doubles
    while half of it is consumed, because the first bytes of a slow reader vanish in its
    buffers.
    """

    __slots__ = (
        "_base",
        "_since",
        "_taken",
        "available",
        "buffered",
        "size",
        "unannounced",
    )

    def __init__(self, size: int) -> None:
        self.size = size
        #: What the peer may still send.
        self.available = size
        #: Arrived and not consumed.
        self.buffered = 0
        #: Consumed, and not yet given back.
        self.unannounced = 0
        # What was consumed, and since when, and how large the window was then.
        self._taken = 0
        self._since: float | None = None
        self._base = size

    def received(self, count: int) -> bool:
        """Note *count* arrived bytes; False when the peer had no credit for them."""
        if count > self.available:
            return False
        self.available -= count
        self.buffered += count
        return True

    def consumed(
        self, count: int, target: int, seconds: Callable[[], float] | None = None
    ) -> int:
        """
        Note *count* bytes as used; return the credit to announce, or 0.

        :param target: the size that the path would carry.
        :param seconds: tells the time; asked when the size may change.  Without it the
            window grows to *target*, whatever its reader takes.
        """
        if count > self.buffered:
            raise ValueError(f"{count} bytes consumed, {self.buffered} were there")
        self.buffered -= count
        self.unannounced += count
        if seconds is None:
            self._resize(max(self.size, target))
        else:
            self._follow(count, target, seconds)
        # Announce at half the window: fewer frames than one per chunk, and the
        # sender still never waits while half the window is free.
        if self.unannounced * 2 < self.size:
            return 0
        grant, self.unannounced = self.unannounced, 0
        self.available += grant
        return grant

    def _follow(self, count: int, target: int, seconds: Callable[[], float]) -> None:
        """Find the size: after each half of a window, and when the target grew."""
        if self._since is None:
            self._since = seconds()
        self._taken += count
        measured = self._taken * 2 >= self._base
        if not measured and self.size >= min(target, 2 * self._base):
            return
        now = seconds()
        # A clock that stepped back gives nonsense once, and must not divide by zero.
        rate = self._taken / max(now - self._since, 1e-6)
        # Less is under way between two looks of a reader who keeps up.
        if self.buffered * 4 <= self.size:
            least, wanted = min(self.size, max(target, MIN_WINDOW)), rate * CATCH_UP
        elif measured:
            least, wanted = MIN_WINDOW, rate * AHEAD
        else:
            return
        most = max(min(target, 2 * self._base), least)
        self._resize(int(min(max(wanted, least), most)))
        if measured:
            self._taken, self._since, self._base = 0, now, self.size

    def _resize(self, size: int) -> None:
        """Take credit back that was not announced yet, or add some."""
        size = max(size, self.size - self.unannounced)
        self.unannounced += size - self.size
        self.size = size


class WindowEstimator:
    """
    How large the windows of a session should be: twice its bandwidth-delay product.

    The owner of the connection calls it (`tunnel.session.protocol.TunnelProtocol`).

    A probe is a ping that is sent while data flows.  What arrives until its pong came
    back is the bandwidth; the shortest round trip ever seen is the delay, because a
    longer one includes the queue that a larger window would only make longer.  Where
    that queue takes more than `AHEAD` seconds to leave, windows shrink to what the path
    carries in that time.
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

    #: Seconds between two probes: on a short path a window passes in less than a
    #: millisecond, and a PING for each would look like a flood to the peer.
    PACE = 0.05

    #: On top of twice the product: what the two ends need to take turns.
    SLACK = 64 * KIB

    def __init__(self, initial: int) -> None:
        self.target = initial
        #: Shortest round trip in seconds; 0 before the first.
        self.rtt = 0.0
        self._best_rate = 0.0
        self._arrived = 0
        self._at_probe = 0
        self._probed_at: float | None = None
        self._next_probe = float("-inf")

    def received(self, count: int) -> bool:
        """
        Note *count* arrived bytes; True when it is time to ask `probe`.

        It is once a quarter of the window came since the last: a quiet session, or
        one of small requests, never probes.
        """
        self._arrived += count
        return (
            self._probed_at is None
            and (self._arrived - self._at_probe) * 4 > self.target
        )

    def probe(self, now: float) -> bool:
        """True when the caller has to send a probe now."""
        self._at_probe = self._arrived
        if now < self._next_probe:
            return False
        self._probed_at = now
        self._next_probe = now + self.PACE
        return True

    def probe_answered(self, now: float, cap: int) -> int:
        """The pong is here: return the size that windows should have, at most *cap*."""
        if self._probed_at is None:
            return self.target
        # A clock that stepped back gives nonsense once, and must not divide by zero.
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
