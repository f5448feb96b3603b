"""The streams of one connection by their numbers, and what all of them hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from tunnel.errors import ErrorCode, ProtocolError
from tunnel.wire.limits import MAX_STREAM_ID
from tunnel.wire.stream import Stream


class StreamTable(dict[int, Stream]):
    """
    The streams that are not over, and which numbers were used.

    The side that dialled has the odd numbers.  They only grow, so that of one which is
    not here it is known whether it ever was.

    (A dictionary, because it is asked for every frame and every write.)
    """

    __slots__ = ("_parity", "buffered", "last_theirs", "next_ours", "ours", "theirs")

    def __init__(self, dialler: bool) -> None:
        super().__init__()
        self._parity = 1 if dialler else 0
        #: What the next one of ours gets.
        self.next_ours = 1 if dialler else 2
        #: The last one that the peer opened.
        self.last_theirs = 0
        #: How many are open that we opened, and that the peer did.
        self.ours = 0
        self.theirs = 0
        #: Bytes that arrived on all of them and were not consumed.
        self.buffered = 0

    def is_ours(self, stream_id: int) -> bool:
        """Whether a number is one of our side's."""
        return stream_id & 1 == self._parity

    def open(self, send_credit: int, window: int) -> Stream:
        """A new one of ours."""
        stream_id = self.next_ours
        self.next_ours += 2
        self.ours += 1
        stream = self[stream_id] = Stream(stream_id, send_credit, window)
        return stream

    def admit(self, stream_id: int) -> None:
        """
        Take note that the peer opens one, whether it is accepted or not.

        :raises ProtocolError: it must not have this number.
        """
        if not stream_id or stream_id & 1 == self._parity:
            raise ProtocolError(ErrorCode.PROTOCOL, f"stream {stream_id} is not yours")
        if stream_id <= self.last_theirs:
            raise ProtocolError(ErrorCode.PROTOCOL, f"stream {stream_id} was used")
        if stream_id > MAX_STREAM_ID:
            raise ProtocolError(ErrorCode.PROTOCOL, "stream numbers are used up")
        self.last_theirs = stream_id

    def accept(self, stream_id: int, send_credit: int, window: int) -> Stream:
        """One of the peer's whose number was admitted."""
        self.theirs += 1
        stream = self[stream_id] = Stream(stream_id, send_credit, window)
        return stream

    def known(self, stream_id: int) -> Stream | None:
        """
        One that the peer speaks of; None when it is over.

        :raises ProtocolError: it was never opened.
        """
        stream = self.get(stream_id)
        if stream is None:
            ours = stream_id & 1 == self._parity
            last = self.next_ours - 2 if ours else self.last_theirs
            if not stream_id or stream_id > last:
                raise ProtocolError(
                    ErrorCode.PROTOCOL, f"stream {stream_id} was never opened"
                )
        return stream

    def retire(self, stream: Stream) -> None:
        """Forget one that both sides finished, once its bytes are consumed."""
        if stream.closed and not stream.window.buffered:
            self._remove(stream)

    def drop(self, stream: Stream) -> None:
        """Forget one that was reset, with all that it holds."""
        self.buffered -= stream.window.buffered
        stream.queue.clear()
        stream.finishing = False
        stream.close()
        self._remove(stream)

    def _remove(self, stream: Stream) -> None:
        if self.pop(stream.id, None) is not None:
            if stream.id & 1 == self._parity:
                self.ours -= 1
            else:
                self.theirs -= 1

    def clear(self) -> None:
        """Forget all of them."""
        super().clear()
        self.ours = self.theirs = 0
        self.buffered = 0

    def greediest(self) -> Stream:
        """
        Which one to give up when all of them hold too much.

        The largest stream of the holder that holds most with all of its streams: a
        holder of many small ones costs no other holder a stream.
        """
        held: Counter[Hashable] = Counter()
        for stream in self.values():
            held[stream.holder] += stream.window.buffered
        most = max(held, key=held.__getitem__)
        return max(
            (one for one in self.values() if one.holder == most),
            key=lambda stream: stream.window.buffered,
        )
