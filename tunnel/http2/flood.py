"""
Budgets for one connection's peer, checked before its frames are handled.

The h2 library follows the protocol, which permits a peer to send frames that cost it
nothing and us a lot: streams that are opened and reset at once, PINGs, SETTINGS,
endless header blocks, frames of 16 MiB.  So the headers of frames are read here first.
"""

from __future__ import annotations

from collections.abc import Callable

from h2.errors import ErrorCodes

from tunnel.http2.limits import Http2Limits, Rate
from tunnel.toolkit.token_bucket import TokenBucket

__all__ = ["Allowed", "Flood", "FloodGuard"]

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADER = 9

_DATA, _HEADERS, _RST_STREAM, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 3, 8, 9
_END_STREAM, _END_HEADERS, _PADDED = 0x1, 0x4, 0x8

#: WINDOW_UPDATE frames that a peer may send for one DATA frame of ours: for the stream
#: and the connection, and twice that for peers that return their window piecemeal.
UPDATES_PER_DATA = 4


class Flood(Exception):
    """The peer does more than it may; *code* is what to tell it."""

    def __init__(self, code: ErrorCodes, message: str) -> None:
        super().__init__(message)
        self.code = code


class Allowed:
    """A `Rate`, and what is left of it."""

    def __init__(self, rate: Rate, what: str, seconds: Callable[[], float]) -> None:
        self._what = what
        self._seconds = seconds
        self._bucket = TokenBucket(rate.burst, rate.per_second, seconds())
        self.earn = self._bucket.earn

    def spend(self) -> None:
        """Take one; :raises Flood: there is none."""
        if not self._bucket.spend(self._seconds()):
            raise Flood(ErrorCodes.ENHANCE_YOUR_CALM, f"too many {self._what}")


class FloodGuard:
    """Reads the headers of the frames that arrive."""

    def __init__(
        self, limits: Http2Limits, seconds: Callable[[], float], client_side: bool
    ) -> None:
        self._limits = limits
        self._client_side = client_side
        self._control = Allowed(limits.control, "control frames", seconds)
        self._updates = Allowed(limits.window_updates, "window updates", seconds)
        self._resets = Allowed(limits.resets, "cancelled calls", seconds)
        self._open: set[int] = set()
        self._highest = 0
        self._skip = 0 if client_side else len(_PREFACE)
        self._partial = b""
        self._block = 0

    def feed(self, data: bytes) -> None:
        """Look at what arrived; :raises Flood: it must not be looked at further."""
        position = 0
        end = len(data)
        while True:
            if self._skip:
                step = min(self._skip, end - position)
                self._skip -= step
                position += step
            missing = _HEADER - len(self._partial)
            if end - position < missing:
                # Nothing is left, or the rest of it is not here yet.
                if not self._skip:
                    self._partial += data[position:]
                return
            header = self._partial + data[position : position + missing]
            self._partial = b""
            position += missing
            self._skip = int.from_bytes(header[:3], "big")
            stream_id = int.from_bytes(header[5:], "big") & 0x7FFFFFFF
            self._frame(self._skip, header[3], header[4], stream_id)

    def opened(self, stream_id: int) -> None:
        """We began a stream: the peer may send on it, and reset it once."""
        self._open.add(stream_id)
        self._resets.earn(1)

    def ended(self, stream_id: int) -> None:
        """Note that a stream is over: further frames on it are useless."""
        self._open.discard(stream_id)

    def data_sent(self) -> None:
        """One DATA frame of ours."""
        self._updates.earn(UPDATES_PER_DATA)
        self._control.earn(self._limits.control_per_data)

    def informational(self) -> None:
        """Count an informational head: a server could send them without end."""
        self._control.spend()

    def _frame(self, length: int, kind: int, flags: int, stream_id: int) -> None:
        if length > self._limits.frame:
            # h2 would wait until all of it is here.
            message = f"a frame of {length} bytes"
            raise Flood(ErrorCodes.FRAME_SIZE_ERROR, message)
        if kind == _DATA:
            # An end of the stream comes once; padding is of no use to us.
            useful = (length or flags & _END_STREAM) and not flags & _PADDED
            if not useful or stream_id not in self._open:
                self._control.spend()
        elif kind in (_HEADERS, _CONTINUATION):
            self._block += length
            if self._block > self._limits.header_block:
                raise Flood(ErrorCodes.ENHANCE_YOUR_CALM, "headers without end")
            if kind == _HEADERS and stream_id > self._highest and not self._client_side:
                self._highest = stream_id
                self._open.add(stream_id)
            elif kind == _CONTINUATION or stream_id not in self._open:
                self._control.spend()
            if flags & _END_HEADERS:
                self._block = 0
        elif kind == _RST_STREAM:
            self._resets.spend()
        elif kind == _WINDOW_UPDATE:
            self._updates.spend()
        else:
            self._control.spend()
