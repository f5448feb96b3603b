"""
Data that waits to be sent on a connection, and its order (specification section 6).
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import Message

from tunnel.errors import ErrorCode
from tunnel.pb import tunnel_pb2 as pb
from tunnel.wire.framing import FIN, FrameType, pack_header
from tunnel.wire.limits import FRAME_HEADER, MAX_PAYLOAD, MAX_REASON, SLICE, Limits
from tunnel.wire.stream import DATA, SEND_FIN, Stream

#: Number of bytes that one call of `Outbox.take` should return: enough to fill TLS
#: records and a socket buffer, and few enough that reading gets its turn.
FLUSH: Final = 128 * 1024

#: Number of bytes below which pieces of a stream are joined.
SMALL: Final = 1024
JOINED: Final = 4096


class Outbox:
    """
    The frames that wait to be sent: control frames first, then credit, then the streams
    in turn, a slice each.

    A stream is in the list of ready streams only while it has both data to send and
    credit for it, so the cost of a flush depends on the data, not on the number of open
    streams.
    """

    __slots__ = (
        "_limits",
        "control",
        "credits",
        "drained",
        "max_payload",
        "queued",
        "ready",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        #: Maximum size of a payload that the peer accepts, in bytes.
        self.max_payload = MAX_PAYLOAD
        #: Control frames that wait to be sent.
        self.control: list[bytes] = []
        #: Streams with credit to announce.
        self.credits: list[Stream] = []
        #: Streams that can send. A list, because an empty deque takes 700 bytes for
        #: each of many connections, and few streams of one connection can send at the
        #: same time.
        self.ready: list[Stream] = []
        #: Numbers of streams that were full and can be written to again.
        self.drained: list[int] = []
        #: Number of bytes of all streams that wait to be sent.
        self.queued = 0

    def clear(self) -> None:
        self.control.clear()
        self.credits.clear()
        self.ready.clear()
        self.drained.clear()
        self.queued = 0

    def frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Queue a control frame."""
        self.control.append(pack_header(len(payload), stream_id, kind, flags) + payload)

    def message(self, kind: FrameType, stream_id: int, message: Message) -> None:
        """Queue a control frame that carries *message*."""
        self.frame(kind, 0, stream_id, message.SerializeToString())

    def reset(
        self, stream_id: int, code: ErrorCode, message: str, peer_closed: bool = False
    ) -> None:
        reset = pb.Reset(
            code=code, message=message[:MAX_REASON], peer_closed=peer_closed
        )
        self.message(FrameType.RESET, stream_id, reset)

    def credit(self, stream: Stream, count: int) -> None:
        """Announce credit with the next flush; amounts of one stream add up."""
        if not stream.credit_due:
            self.credits.append(stream)
        stream.credit_due += count

    def data(self, stream: Stream, kind: int, data: bytes) -> bool:
        """
        Queue bytes of a stream; return True if the stream's producer should pause.
        """
        queue = stream.queue
        count = len(data)
        if kind == DATA and count < SMALL and queue and queue[-1][0] == DATA:
            # Small pieces are joined: their boundaries have no meaning, and each frame
            # costs its reader more than its bytes.
            last = queue[-1][1]
            if len(last) < JOINED:
                queue[-1] = (DATA, last + data)
            else:
                queue.append((DATA, data))
        else:
            queue.append((kind, data))
        stream.queued += count
        self.queued += count
        limits = self._limits
        if (
            stream.queued > limits.send_high
            or len(queue) > limits.send_pieces
            or self.queued > limits.queued_high
        ):
            stream.full = True
        self.schedule(stream)
        return stream.full

    def drop(self, stream: Stream) -> None:
        """Drop the data of a stream that was reset."""
        self.queued -= stream.queued
        stream.queued = 0
        stream.queue.clear()

    def schedule(self, stream: Stream) -> None:
        """Put the stream into the list of ready streams if it can send."""
        if not stream.scheduled and stream.sendable:
            stream.scheduled = True
            self.ready.append(stream)

    def take(self, wanted: int) -> tuple[bytes, list[Stream]]:
        """
        Return about *wanted* bytes for the peer.

        :returns: the bytes, and the streams whose FIN they contain.
        """
        out, self.control = self.control, []
        for stream in self.credits:
            if stream.receiving:
                payload = pb.Credit(bytes=stream.credit_due).SerializeToString()
                out.append(pack_header(len(payload), stream.id, FrameType.CREDIT, 0))
                out.append(payload)
            stream.credit_due = 0
        self.credits.clear()
        finished: list[Stream] = []
        ready = self.ready
        size = 0
        while ready and size < wanted:
            stream = ready.pop(0)
            stream.scheduled = False
            most = SLICE if ready else max(wanted - size, SLICE)
            before = stream.queued
            size += self._slice(stream, out, min(most, self.max_payload))
            self.queued -= before - stream.queued
            if stream.finishing and not stream.queue:
                finished.append(stream)
                stream.move(SEND_FIN)
            elif stream.queue:
                self.schedule(stream)
            if (
                stream.full
                and stream.queued <= self._limits.send_low
                and len(stream.queue) * 2 <= self._limits.send_pieces
            ):
                stream.full = False
                self.drained.append(stream.id)
        return b"".join(out), finished

    @staticmethod
    def _slice(stream: Stream, out: list[bytes], limit: int) -> int:
        """
        Move at most *limit* payload bytes of a stream to *out*; return their number.
        """
        queue = stream.queue
        room = limit
        size = 0
        while queue and room > 0:
            kind, data = queue[0]
            count = len(data)
            if kind == DATA:
                fits = min(count, stream.send_credit, room)
                if fits <= 0:
                    return size
                if fits < count:
                    queue[0] = (DATA, data[fits:])
                    data, count = data[:fits], fits
                else:
                    del queue[0]
            elif count <= stream.send_credit:
                del queue[0]
            else:
                return size
            stream.send_credit -= count
            stream.queued -= count
            room -= count
            size += count + FRAME_HEADER
            last = stream.finishing and not queue
            out.append(pack_header(count, stream.id, kind, FIN if last else 0))
            out.append(data)
            if last:
                return size
        if stream.finishing and not queue:
            out.append(pack_header(0, stream.id, DATA, FIN))
            size += FRAME_HEADER
        return size
