"""
Budgets for one connection's peer, checked before its frames are handled.

The h2 library follows the protocol, which permits a peer to send frames that are cheap
for the peer but expensive here: streams that are opened and reset at once, PINGs,
SETTINGS, endless header blocks, frames of 16 MiB.  So this module first reads the
headers of all frames.
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

#: Maximum number of WINDOW_UPDATE frames that a peer may send for each of our DATA
#: frames: one for the stream and one for the connection, and twice that number for
#: peers that return their window in small steps.
UPDATES_PER_DATA = 4


class Flood(Exception):
    """
    Raised if the peer exceeds a budget; *code* is the error code to send to the peer.
    """

    def __init__(self, code: ErrorCodes, message: str) -> None:
        super().__init__(message)
        self.code = code


class Allowed:
    """A `Rate`, and the remaining budget."""

    def __init__(self, rate: Rate, what: str, seconds: Callable[[], float]) -> None:
        self._what = what
        self._seconds = seconds
        self._bucket = TokenBucket(rate.burst, rate.per_second, seconds())
        self.earn = self._bucket.earn

    def spend(self) -> None:
        """
        Take one frame from the budget.

        :raises Flood: if the budget is exhausted.
        """
        if not self._bucket.spend(self._seconds()):
            raise Flood(ErrorCodes.ENHANCE_YOUR_CALM, f"too many {self._what}")


class FloodGuard:
    """A reader of the headers of arriving frames."""

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

    def feed(self, data: bytes, most_new: int | None = None) -> int:
        """
        Check arriving data, and return how many bytes may be handled now.

        :param most_new: the number of new streams that may be handled at once; None for
            any number. The rest of *data* belongs to the next call.
        :raises Flood: if the peer exceeded a limit; the connection must be closed.
        """
        position = 0
        end = len(data)
        new = 0
        while True:
            if self._skip:
                step = min(self._skip, end - position)
                self._skip -= step
                position += step
            missing = _HEADER - len(self._partial)
            if end - position < missing:
                # Nothing is left, or the rest has not arrived yet.
                if not self._skip:
                    self._partial += data[position:]
                return end
            header = self._partial + data[position : position + missing]
            stream_id = int.from_bytes(header[5:], "big") & 0x7FFFFFFF
            if header[3] == _HEADERS and stream_id > self._highest:
                if new == most_new:
                    return position
                new += 1
            self._partial = b""
            position += missing
            self._skip = int.from_bytes(header[:3], "big")
            self._frame(self._skip, header[3], header[4], stream_id)

    def opened(self, stream_id: int) -> None:
        """
        Record that we opened a stream: the peer may send data on it, and may reset it
        once.
        """
        self._open.add(stream_id)
        self._resets.earn(1)

    def ended(self, stream_id: int) -> None:
        """Record that a stream has ended: further frames on it are useless."""
        self._open.discard(stream_id)

    def data_sent(self) -> None:
        """Count one of our DATA frames."""
        self._updates.earn(UPDATES_PER_DATA)
        self._control.earn(self._limits.control_per_data)

    def informational(self) -> None:
        """
        Count an informational (1xx) response, because a server could send an unlimited
        number of them.
        """
        self._control.spend()

    def _frame(self, length: int, kind: int, flags: int, stream_id: int) -> None:
        if length > self._limits.frame:
            # h2 would wait until the whole frame has arrived.
            message = f"a frame of {length} bytes"
            raise Flood(ErrorCodes.FRAME_SIZE_ERROR, message)
        if kind == _DATA:
            # The end of a stream comes only once, and padding is useless to us.
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
