"""One stream (its states, credit and waiting data), and all streams of a connection."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from enum import Enum
from heapq import heapify, heappop, heapreplace
from typing import Final

from tunnel.errors import ErrorCode, ProtocolError
from tunnel.wire.framing import FrameType
from tunnel.wire.limits import AHEAD, MAX_STREAM_ID, MIN_WINDOW


class StreamState(Enum):
    """The sides that may still send."""

    OPEN = "open"
    HALF_CLOSED_LOCAL = "half-closed (local)"
    HALF_CLOSED_REMOTE = "half-closed (remote)"
    CLOSED = "closed"

    # The hash function of Enum is written in Python, and would be called for each step
    # of each stream.
    __hash__ = object.__hash__


class StreamInput(Enum):
    """An input that moves a stream to another state."""

    SEND_FIN = "send FIN"
    RECEIVE_FIN = "receive FIN"
    SEND_RESET = "send RESET"
    RECEIVE_RESET = "receive RESET"

    __hash__ = object.__hash__


_S, _I = StreamState, StreamInput

#: The table of specification section 5.  A step that is missing in the table is an
#: error: of the peer if the input was received, of our code if the input was sent.
TRANSITIONS: dict[tuple[StreamState, StreamInput], StreamState] = {
    (_S.OPEN, _I.SEND_FIN): _S.HALF_CLOSED_LOCAL,
    (_S.OPEN, _I.RECEIVE_FIN): _S.HALF_CLOSED_REMOTE,
    (_S.OPEN, _I.SEND_RESET): _S.CLOSED,
    (_S.OPEN, _I.RECEIVE_RESET): _S.CLOSED,
    (_S.HALF_CLOSED_LOCAL, _I.RECEIVE_FIN): _S.CLOSED,
    (_S.HALF_CLOSED_LOCAL, _I.SEND_RESET): _S.CLOSED,
    (_S.HALF_CLOSED_LOCAL, _I.RECEIVE_RESET): _S.CLOSED,
    (_S.HALF_CLOSED_REMOTE, _I.SEND_FIN): _S.CLOSED,
    (_S.HALF_CLOSED_REMOTE, _I.SEND_RESET): _S.CLOSED,
    (_S.HALF_CLOSED_REMOTE, _I.RECEIVE_RESET): _S.CLOSED,
}

#: Whether the peer may still send, and whether our side may.
SIDES: dict[StreamState, tuple[bool, bool]] = {
    _S.OPEN: (True, True),
    _S.HALF_CLOSED_LOCAL: (True, False),
    _S.HALF_CLOSED_REMOTE: (False, True),
    _S.CLOSED: (False, False),
}

#: Members are stored in constants, because in Python 3.11 each access to a member of an
#: enumeration is a call.
SEND_FIN: Final = _I.SEND_FIN
RECEIVE_FIN: Final = _I.RECEIVE_FIN
OPEN: Final = _S.OPEN
CLOSED: Final = _S.CLOSED
HALF_CLOSED_LOCAL: Final = _S.HALF_CLOSED_LOCAL
HALF_CLOSED_REMOTE: Final = _S.HALF_CLOSED_REMOTE

#: Frame types as plain numbers, because they are compared with the type of every frame.
HEADERS: Final = int(FrameType.HEADERS)
DATA: Final = int(FrameType.DATA)

#: Seconds of reading, as with `AHEAD`, for a reader that has taken all data: its true
#: rate may be larger than measured.
CATCH_UP: Final = 4.0

#: Data that waits to be sent: frame type, bytes.
Chunk = tuple[int, bytes]


class Stream:
    """
    The session's record of one stream.

    ``state`` changes when frames are *sent* or received; ``finishing`` is set as soon
    as our side has announced the end, even if some of its bytes still wait for credit.
    """

    __slots__ = (
        "credit_due",
        "finishing",
        "full",
        "holder",
        "id",
        "queue",
        "queued",
        "receiving",
        "resuming",
        "scheduled",
        "send_credit",
        "sending",
        "state",
        "window",
    )

    def __init__(
        self, stream_id: int, send_credit: int, window: int, state: StreamState = OPEN
    ) -> None:
        self.id = stream_id
        #: Holder for which the stream's bytes count when streams are reset; the stream
        #: itself until `charge` sets a holder.
        self.holder: Hashable = stream_id
        self.state = state
        self.receiving, self.sending = SIDES[state]
        self.send_credit = send_credit
        self.window = ReceiveWindow(window)
        #: Data that waits to be sent.  A list, because an empty deque takes 700 bytes,
        #: and the queue is short.
        self.queue: list[Chunk] = []
        self.queued = 0
        self.finishing = False
        #: Whether the stream is in the session's list of streams that can send.
        self.scheduled = False
        #: Whether the owner has to wait before it writes.
        self.full = False
        #: Whether RESUME was sent and not answered yet.
        self.resuming = False
        #: Credit to announce with the next flush.
        self.credit_due = 0

    def move(self, by: StreamInput) -> bool:
        """Change the state; return False if the table has no such step."""
        after = TRANSITIONS.get((self.state, by))
        if after is None:
            return False
        self.state = after
        self.receiving, self.sending = SIDES[after]
        return True

    def close(self) -> None:
        """Close the stream in any state, without sending the rest."""
        self.state = _S.CLOSED
        self.receiving = self.sending = False

    @property
    def sendable(self) -> bool:
        """
        Tell whether data is waiting, and the credit suffices to send at least a part of
        it.
        """
        if not self.queue:
            return self.finishing and self.sending
        kind, data = self.queue[0]
        # A header block is never split, so it waits until the credit suffices for the
        # whole block.
        return self.send_credit >= (len(data) if kind == HEADERS else 1)


class ReceiveWindow:
    """
    The credit of the peer on one stream.

    Credit is returned when the application has *consumed* bytes, and not when they
    arrive, so that a slow reader slows its sender down.  At any time ``available +
    buffered + unannounced == size``.

    The size of the window follows the reader: it is the number of bytes that the reader
    takes in about a second.  While half a window is consumed, the size at most doubles,
    because a slow reader first fills its buffers.
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
        #: Number of bytes that the peer may still send.
        self.available = size
        #: Number of bytes that arrived and were not consumed.
        self.buffered = 0
        #: Number of bytes that were consumed, and whose credit was not returned yet.
        self.unannounced = 0
        # Number of consumed bytes, the time of the first of them, and the size of the
        # window at that time.
        self._taken = 0
        self._since: float | None = None
        self._base = size

    def received(self, count: int) -> bool:
        """
        Count *count* arrived bytes; return False if they exceed the credit of the peer.
        """
        if count > self.available:
            return False
        self.available -= count
        self.buffered += count
        return True

    def emptied(self, count: int) -> None:
        """Count *count* bytes as consumed, on a stream that has ended."""
        if count > self.buffered:
            raise ValueError(
                f"{count} bytes consumed, but only {self.buffered} had arrived"
            )
        self.buffered -= count
        self.unannounced += count

    def consumed(
        self, count: int, target: int, seconds: Callable[[], float] | None = None
    ) -> int:
        """
        Count *count* bytes as consumed; return the credit to announce, or 0.

        :param target: the size that the path can carry.
        :param seconds: returns the time; called when the size may change. Without it,
            the window grows to *target*, however slow its reader is.
        """
        self.emptied(count)
        if seconds is None:
            self._resize(max(self.size, target))
        else:
            self._follow(count, target, seconds)
        # Credit is announced at half the window: that needs fewer frames than an
        # announcement for each chunk, and the sender never waits while half the window
        # is free.
        if self.unannounced * 2 < self.size:
            return 0
        grant, self.unannounced = self.unannounced, 0
        self.available += grant
        return grant

    def _follow(self, count: int, target: int, seconds: Callable[[], float]) -> None:
        """Adjust the size: after each half of a window, and when the target grew."""
        if self._since is None:
            self._since = seconds()
        self._taken += count
        measured = self._taken * 2 >= self._base
        if not measured and self.size >= min(target, 2 * self._base):
            return
        now = seconds()
        # A clock that was set back gives one wrong value, but must not cause a division
        # by zero.
        rate = self._taken / max(now - self._since, 1e-6)
        # A reader that keeps up has few bytes in transit between two checks.
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
        """
        Set the size, by adding credit or withholding credit that was not announced yet.
        """
        size = max(size, self.size - self.unannounced)
        self.unannounced += size - self.size
        self.size = size


class StreamTable:
    """
    The open streams, and the numbers that were used.

    The side that dialled uses odd numbers.  Numbers only grow, so the table can tell
    whether a number was ever used.

    :ivar by_id: the open streams.  Other classes read it directly, because every frame
        and every write needs it; only this class changes it.
    """

    __slots__ = (
        "_parity",
        "buffered",
        "by_id",
        "last_theirs",
        "next_ours",
        "ours",
        "theirs",
    )

    def __init__(self, dialler: bool) -> None:
        self.by_id: dict[int, Stream] = {}
        self._parity = 1 if dialler else 0
        #: The number of our next stream.
        self.next_ours = 1 if dialler else 2
        #: The number of the last stream that the peer opened.
        self.last_theirs = 0
        #: The numbers of open streams that we opened, and that the peer opened.
        self.ours = 0
        self.theirs = 0
        #: Number of bytes that arrived on all streams and were not consumed.
        self.buffered = 0

    def is_ours(self, stream_id: int) -> bool:
        """Return whether this side opened the stream with a number."""
        return stream_id & 1 == self._parity

    def open(self, send_credit: int, window: int, state: StreamState = OPEN) -> Stream:
        """
        Return a new stream of our side; *state* says whether its first frame has FIN.
        """
        stream_id = self.next_ours
        self.next_ours += 2
        self.ours += 1
        stream = self.by_id[stream_id] = Stream(stream_id, send_credit, window, state)
        return stream

    def admit(self, stream_id: int) -> None:
        """
        Record that the peer opens a stream, whether or not it is accepted.

        :raises ProtocolError: if the peer must not open a stream with this number.
        """
        if not stream_id or stream_id & 1 == self._parity:
            raise ProtocolError(
                ErrorCode.PROTOCOL, f"stream {stream_id} does not belong to the peer"
            )
        if stream_id <= self.last_theirs:
            raise ProtocolError(
                ErrorCode.PROTOCOL, f"stream {stream_id} was already used"
            )
        if stream_id > MAX_STREAM_ID:
            raise ProtocolError(ErrorCode.PROTOCOL, "all stream numbers are used up")
        self.last_theirs = stream_id

    def accept(
        self, stream_id: int, send_credit: int, window: int, state: StreamState = OPEN
    ) -> Stream:
        """
        Return a new stream of the peer whose number was admitted.

        :param state: as for `open`.
        """
        self.theirs += 1
        stream = self.by_id[stream_id] = Stream(stream_id, send_credit, window, state)
        return stream

    def known(self, stream_id: int) -> Stream | None:
        """
        Return the stream whose number the peer sent; None if the stream has ended.

        :raises ProtocolError: if the stream was never opened.
        """
        stream = self.by_id.get(stream_id)
        if stream is None:
            ours = stream_id & 1 == self._parity
            last = self.next_ours - 2 if ours else self.last_theirs
            if not stream_id or stream_id > last:
                raise ProtocolError(
                    ErrorCode.PROTOCOL, f"stream {stream_id} was never opened"
                )
        return stream

    def retire(self, stream: Stream) -> None:
        """
        Remove a stream that both sides have finished, after its bytes were consumed.
        """
        if stream.state is not CLOSED or stream.window.buffered:
            return
        if self.by_id.pop(stream.id, None) is not None:
            if stream.id & 1 == self._parity:
                self.ours -= 1
            else:
                self.theirs -= 1

    def drop(self, stream: Stream) -> None:
        """Remove a stream that was reset, with all bytes that arrived on it."""
        self.buffered -= stream.window.buffered
        stream.window.buffered = 0
        stream.finishing = False
        stream.close()
        self.retire(stream)

    def clear(self) -> None:
        self.by_id.clear()
        self.ours = self.theirs = 0
        self.buffered = 0

    def greediest(self, excess: int, held: Callable[[Stream], int]) -> Iterator[Stream]:
        """
        Yield the streams to reset so that all streams hold *excess* bytes fewer.

        Each is the largest stream of the holder whose streams hold the most bytes, so
        that a holder of many small streams does not cost another holder a stream.

        :param held: returns the number of bytes that a stream holds.
        """
        sizes: dict[Hashable, list[tuple[int, int]]] = {}
        for stream in self.by_id.values():
            if (size := held(stream)) > 0:
                sizes.setdefault(stream.holder, []).append((size, -stream.id))
        totals: list[tuple[int, int, list[tuple[int, int]]]] = []
        for number, each in enumerate(sizes.values()):
            each.sort()
            totals.append((-sum(size for size, _ in each), number, each))
        heapify(totals)
        while excess > 0 and totals:
            total, number, each = totals[0]
            size, negative_id = each.pop()
            excess -= size
            if each:
                heapreplace(totals, (total + size, number, each))
            else:
                heappop(totals)
            yield self.by_id[-negative_id]
