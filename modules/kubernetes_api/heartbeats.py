"""A client's PINGs, kept from a server that may be saying its last words."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

__all__ = ["Heartbeats", "is_ping"]

#: Seconds without a byte of the server after which it is taken to wait for us.
QUIET = 1.0

#: Seconds that a PING may be kept: kubectl asks every 5 s, and waits for 60.
LONGEST = 30.0

#: Bytes of them that are kept; more is no heartbeat.
MAX_HELD = 4096

#: PING of SPDY/3.1: a control frame of type 6 with four bytes.
_SPDY_PING = b"\x80\x03\x00\x06\x00\x00\x00\x04"


def is_ping(data: bytes) -> bool:
    """
    Whether *data* is one PING of a client, of WebSocket or of SPDY, and nothing else.

    It may be part of something else that looks alike: that is only late, never lost.
    """
    if data[:1] == b"\x89":
        # FIN and opcode 9; masked, up to 125 bytes, behind a mask of four.
        return 6 <= len(data) == (data[1] & 0x7F) + 6 and data[1] >= 0x80
    return len(data) == 12 and data.startswith(_SPDY_PING)


class Heartbeats:
    """
    What a client sends over an upgraded connection, on its way to the API server.

    An API server closes such a connection when the command has ended, while megabytes
    of the output may still be in its kernel because the path is slow.  A byte that
    reaches it then is answered with a reset, and the rest of the output is lost:
    ``kubectl exec`` of five seconds, or ten, meets its own PING.  Straight at the API
    server nothing can be done about that; here PINGs wait until nothing comes from it,
    which is when they are of use.  Everything else passes at once.

    :param write: sends to the API server.
    :ivar paused: the API server is not being read.
    """

    __slots__ = ("_clock", "_held", "_last", "_since", "_timer", "_write", "paused")

    def __init__(self, clock: IReactorTime, write: Callable[[bytes], None]) -> None:
        self._clock = clock
        self._write = write
        self._held = b""
        self._since = 0.0
        self._last = clock.seconds()
        self._timer: IDelayedCall | None = None
        self.paused = False

    def from_client(self, data: bytes) -> None:
        """Pass *data* on, now or later."""
        if not is_ping(data):
            self._release()
            self._write(data)
            return
        self._held += data
        if self._timer is None:
            self._since = self._clock.seconds()
            self._look()
        elif len(self._held) > MAX_HELD:
            self._release()

    def server_spoke(self) -> None:
        """Bytes came from the API server."""
        self._last = self._clock.seconds()

    def _look(self) -> None:
        now = self._clock.seconds()
        left = self._last + QUIET - now
        if self.paused:
            left = QUIET
        if left <= 0 or now - self._since >= LONGEST:
            self._timer = None
            self._release()
        else:
            self._timer = self._clock.callLater(left, self._look)

    def _release(self) -> None:
        held = self._held
        self.stop()
        if held:
            self._write(held)

    def stop(self) -> None:
        """Nobody waits for an answer any more."""
        self._held = b""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
