"""How long an HTTP/2 connection lasts: its timers, and the steps of its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from h2.errors import ErrorCodes
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from kas.api.limits import Limits

__all__ = ["Life", "Timers"]

#: The last stream of a GOAWAY that lets everything pass that is under way.
_EVERY_STREAM = 2**31 - 1


class Timers:
    """Delayed calls with names: one of each name at most."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._running: dict[str, IDelayedCall] = {}

    def later(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        """Call *action* then, and not whatever had this name."""
        self.cancel(name)
        self._running[name] = self._clock.callLater(seconds, action)

    def cancel(self, name: str) -> bool:
        """Whether there was one of this name, be it over or not."""
        known = self._running.pop(name, None)
        if known is not None and known.active():
            known.cancel()
        return known is not None

    def cancel_all(self) -> None:
        """Call nothing any more."""
        for name in tuple(self._running):
            self.cancel(name)


class Mortal(Protocol):
    """What is asked of the connection."""

    @property
    def calls(self) -> int: ...

    @property
    def highest_stream(self) -> int: ...

    def go_away(self, last: int, code: ErrorCodes, why: str = "") -> None: ...

    def fail(self, code: ErrorCodes, why: str) -> None: ...

    def ping(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class Life:
    """
    From the first byte of a connection to its end.

    :param age: seconds after which the client is asked to come anew.
    """

    def __init__(
        self,
        connection: Mortal,
        timers: Timers,
        seconds: Callable[[], float],
        limits: Limits,
        age: float,
        jitter: float,
    ) -> None:
        self._connection = connection
        self._timers = timers
        self._seconds = seconds
        self._limits = limits
        self.age = age * (1 + limits.age_jitter * (2 * jitter - 1))
        self._age_grace = age * limits.age_grace
        self._proven = False
        self._last_seen = seconds()
        #: The last stream that is still served, once that is said.
        self._last_stream: int | None = None

    def begin(self) -> None:
        """Begin to count."""
        later = self._timers.later
        later("unproven", self._limits.unproven, self._not_proven)
        later("age", self.age, self._aged)
        later("ping", self._limits.ping_after, self._silent)

    def seen(self) -> None:
        """Something arrived."""
        self._last_seen = self._seconds()

    def proven(self) -> None:
        """Somebody with a good token is at the other end."""
        if not self._proven:
            self._proven = True
            self._timers.cancel("unproven")

    def serves(self, stream_id: int) -> bool:
        """Whether a stream that begins now is still wanted."""
        return self._last_stream is None or stream_id <= self._last_stream

    def drain(self, grace: float) -> None:
        """Ask the client to go elsewhere; what runs gets *grace* seconds."""
        if self._last_stream is None:
            self._last_stream = _EVERY_STREAM
            self._connection.go_away(_EVERY_STREAM, ErrorCodes.NO_ERROR)
            self._timers.later("goaway", self._limits.goaway, self._last_call)
        self._timers.later("grace", grace, self._connection.close)

    def _aged(self) -> None:
        self.drain(self._age_grace)

    def _last_call(self) -> None:
        self.no_more_streams()
        assert self._last_stream is not None
        self._connection.go_away(self._last_stream, ErrorCodes.NO_ERROR)
        self.end_if_done()

    def no_more_streams(self) -> None:
        """What runs is the last; the client knows, or said so itself."""
        self._last_stream = self._connection.highest_stream

    def end_if_done(self) -> None:
        """Close after the last stream."""
        if self._last_stream not in (None, _EVERY_STREAM):
            if not self._connection.calls:
                self._connection.close()

    def _not_proven(self) -> None:
        self._connection.fail(ErrorCodes.NO_ERROR, "no call with a token was made")

    def _silent(self) -> None:
        quiet = self._seconds() - self._last_seen
        if quiet < self._limits.ping_after:
            self._timers.later("ping", self._limits.ping_after - quiet, self._silent)
            return
        self._connection.ping()
        seen = self._last_seen
        timeout = self._limits.ping_timeout
        self._timers.later("ping", timeout, lambda: self._answered(seen))

    def _answered(self, seen: float) -> None:
        if self._last_seen == seen:
            self._connection.abort()
        else:
            self._silent()
