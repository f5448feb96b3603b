"""
Streams that survive the loss of their path (specification section 9), and their limits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

import attrs
from twisted.internet.interfaces import (
    IConsumer,
    IDelayedCall,
    IPushProducer,
    IReactorTime,
)
from twisted.logger import Logger
from zope.interface import implementer

from tunnel.api import ConnectedAgent, IPathReceiver, IStream, IStreamReceiver
from tunnel.errors import (
    ErrorCode,
    ProtocolError,
    SessionClosed,
    StreamReset,
    TunnelError,
)
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session.stream import StreamTransport
from tunnel.toolkit.timers import cancel_call
from tunnel.wire.limits import KIB, MIB

__all__ = ["Keeper", "ResumableStream", "ResumeLimits", "RetransmissionBuffer"]

#: Bytes below which a piece of a buffer is joined with others, and maximum bytes of a
#: joined piece: each piece takes a hundred bytes in addition to its data.
SMALL, JOINED = 1 * KIB, 4 * KIB


@attrs.frozen
class ResumeLimits:
    """Limits on the memory and time of resumable streams."""

    #: Maximum number of bytes in the retransmission buffer of one stream; when the
    #: buffer is full, the producer waits.  This is enough for 300 ms at 100 Mbit/s, and
    #: far more than short paths need.
    kept_per_stream: int = 4 * MIB

    #: Maximum number of bytes in the buffers of all streams of the process.  A stream
    #: that would exceed this limit loses its buffer and continues, but ends with its
    #: connection.
    kept: int = 32 * MIB

    #: Maximum number of bytes in the buffers of one owner's streams (in kas: of one
    #: agent): a peer that never acknowledges must not use up the whole space.
    kept_per_owner: int = 32 * MIB

    #: Number of consumed bytes that are acknowledged at once.
    ack_every: int = 256 * KIB

    #: Seconds after which fewer bytes are acknowledged.
    ack_delay: float = 1.0

    #: Maximum number of seconds that a stream waits for another path if the agent's
    #: system closed the connection.  A living agentk dials again within 0.5, 1.5, 3.5
    #: and 7.5 seconds at the latest, which is long enough for a load balancer that
    #: restarts; an agentk that has not returned by then has probably died.  Silence is
    #: weaker evidence: see `Keeper.grace`.
    closed_grace: float = 15.0

    #: Seconds after which the receiver is notified that the path may not come back
    #: (after three attempts to dial): a receiver that loses nothing by ending its
    #: stream, such as a watch, should then end it.
    closed_notice: float = 5.0

    #: Maximum number of streams that both ends have finished, and that the opener may
    #: still resume because it has not read their end.  The oldest streams are dropped
    #: first.
    lingering: int = 1_000


DEFAULT_RESUME_LIMITS = ResumeLimits()


@implementer(IStream, IConsumer, IPushProducer, IPathReceiver)
class ResumableStream:
    """
    One end of a stream that can move from path to path.

    Written data goes into a retransmission buffer until the other end acknowledges it.
    Without a path, data is only buffered: the producer continues until the buffer has
    `ResumeLimits.kept_per_stream` bytes.

    :ivar received: the number of bytes from the other end that our receiver consumed.
    :ivar buffer: data that the other end has not acknowledged yet.
    :ivar lost: called when the path is lost and another one has to be found; if it is
        None, the other end looks for another path.
    """

    _log: ClassVar = Logger()

    def __init__(
        self,
        keeper: Keeper,
        resume_id: bytes,
        receiver: IStreamReceiver | None = None,
        lost: Callable[[], None] | None = None,
        owner: str = "",
    ) -> None:
        self.resume_id = resume_id
        self.receiver = receiver
        self.received = 0
        self.lost = lost
        self.buffer = RetransmissionBuffer(keeper, owner)
        self._keeper = keeper
        self._path: StreamTransport | None = None
        self._agent: ConnectedAgent | None = None
        #: Number of bytes from the other end that we have acknowledged.
        self._acknowledged = 0
        self._dirty = False
        self._finished = False
        self._fin_received = False
        self._closed = False
        self._paused = False
        self._path_full = False
        self._producer: Any = None
        self._timer: IDelayedCall | None = None
        #: Reason of the lost path, while the stream waits for less than the whole grace
        #: period.
        self._lost_for: TunnelError | None = None

    @property
    def agent(self) -> ConnectedAgent | None:
        if self._path is not None and self._path.agent is not None:
            self._agent = self._path.agent
        return self._agent

    @property
    def closed(self) -> bool:
        """Whether the stream has ended."""
        return self._closed

    @property
    def full(self) -> bool:
        """Whether further writes should wait until written data has been sent."""
        return self._path_full or self.buffer.full

    @property
    def has_path(self) -> bool:
        """Whether a path is attached, so that bytes can flow."""
        return self._path is not None

    # Changes of the path.

    def attach(self, path: StreamTransport) -> None:
        """Use *path* from now on."""
        self._path = path
        path.receiver = self
        path.resumable = self
        path.full_changed = self._path_changed
        self._path_full = path.full
        if self._paused:
            path.pauseProducing()

    def release(self) -> StreamTransport | None:
        """Stop using the path, and return it; None if there is no path."""
        path, self._path = self._path, None
        if path is not None:
            path.receiver = path.resumable = path.full_changed = None
        return path

    def detach(self) -> None:
        """Reset the path, if there is one, because the stream has a newer one."""
        path = self.release()
        if path is not None:
            path.reset(ErrorCode.CANCELLED, "the stream continues on a newer path")

    def goes_on(self, received: int) -> bool:
        """
        Tell whether the buffer still contains everything that the other end lacks.
        """
        return self.buffer.covers(received)

    def go_on(self, path: StreamTransport, received: int) -> None:
        """
        Continue on *path* with the other end, which has consumed *received* bytes.
        """
        cancel_call(self._timer)
        self._timer = None
        self._keeper.resumed += 1
        self.buffer.drop(received)
        # The pieces are sent before the path is attached, because a resumed producer
        # must not write in between.
        for is_headers, data in self.buffer.pieces:
            if is_headers:
                path.send_headers(data)
            else:
                path.write(data)
        self.attach(path)
        if self._finished:
            path.finish()
        self._pace()

    def resumed(self, path: StreamTransport, received: int) -> None:
        """Continue after the peer answered our RESUME on *path*."""
        if not self.goes_on(received):
            path.reset(ErrorCode.PROTOCOL, "RESUMED with an impossible number of bytes")
            return
        self.go_on(path, received)

    def _lost(self, reason: TunnelError) -> None:
        keeper = self._keeper
        keeper.lost += 1
        grace = keeper.grace()
        if isinstance(reason, StreamReset | SessionClosed) and reason.peer_closed:
            self._lost_for = reason
            grace = min(grace, keeper.limits.closed_grace)
            early = min(grace, keeper.limits.closed_notice)
            self._timer = keeper.clock.callLater(
                early, self._stays_away, grace - early, reason
            )
        else:
            self._lost_for = None
            self._timer = keeper.clock.callLater(grace, self._expire, reason)
        if self.lost is not None:
            self.lost()

    def lives(self) -> None:
        """
        Wait for the whole grace period, because the other end's process proved to be
        alive.
        """
        timer = self._timer
        if timer is not None and timer.active() and self._lost_for is not None:
            timer.cancel()
            reason, self._lost_for = self._lost_for, None
            grace = self._keeper.grace()
            self._timer = self._keeper.clock.callLater(grace, self._expire, reason)

    def _stays_away(self, left: float, reason: TunnelError) -> None:
        """
        Notify the receiver that the other end should have returned by now, and wait for
        the rest of the grace period.
        """
        self._timer = self._keeper.clock.callLater(left, self._expire, reason)
        self.path_missing()

    def _expire(self, reason: TunnelError) -> None:
        self._keeper.expired += 1
        self.end(reason)

    # The retransmission buffer.

    def _buffer_changed(self) -> None:
        """Handle a buffer that the last write has filled or dropped."""
        self._pace()
        if self.buffer.given_up and self._path is None:
            self.end(
                SessionClosed(
                    ErrorCode.MEMORY, "the stream's retransmission buffer was dropped"
                )
            )

    def acked(self, received: int) -> None:
        """Record that the other end consumed *received* bytes, over all paths."""
        buffer = self.buffer
        gone = received - buffer.acked
        if gone <= 0 or buffer.given_up:
            return
        if gone > buffer.size:
            self.reset(ErrorCode.PROTOCOL, "more was acknowledged than sent")
            return
        buffer.drop(received)
        self._pace()

    def ack(self) -> None:
        """Acknowledge the bytes that were consumed."""
        self._dirty = False
        if self._path is not None and self.received > self._acknowledged:
            self._acknowledged = self.received
            self._path.ack(self.received)

    def _consumed(self, count: int) -> None:
        self.received += count
        if self.received - self._acknowledged >= self._keeper.limits.ack_every:
            self.ack()
        elif not self._dirty:
            self._dirty = True
            self._keeper.ack_later(self)

    # Writing: methods of IStream.

    def send_headers(self, block: bytes, fin: bool = False) -> None:
        if self._closed or self._finished:
            return
        if not self.buffer.add(True, block):
            self._buffer_changed()
        if self._path is not None:
            self._path.send_headers(block)
        if fin:
            self.finish()

    def write(self, data: bytes) -> None:
        if self._closed or self._finished:
            return
        if not self.buffer.add(False, data):
            self._buffer_changed()
        if self._path is not None:
            self._path.write(data)

    def finish(self) -> None:
        if self._closed or self._finished:
            return
        self._finished = True
        if self._path is not None:
            self._path.finish()

    def reset(self, code: int = ErrorCode.CANCELLED, message: str = "") -> None:
        if self._path is not None:
            self._path.reset(code, message)
        else:
            self.end(StreamReset(ErrorCode(code), message, by_peer=False))

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """As `IStream.registerProducer`; only for push producers."""
        if not streaming:
            raise ValueError("a resumable stream supports push producers only")
        if self._closed:
            producer.stopProducing()
            return
        self._producer = producer
        if self.full:
            producer.pauseProducing()

    def unregisterProducer(self) -> None:
        self._producer = None

    def _path_changed(self, full: bool) -> None:
        """Pause or resume the producer after a change of the path."""
        self._path_full = full
        self._pace()

    def _pace(self) -> None:
        if self._producer is None:
            return
        if self.full:
            self._producer.pauseProducing()
        else:
            self._producer.resumeProducing()

    # Reading: methods of IStream.

    def pauseProducing(self) -> None:
        self._paused = True
        if self._path is not None:
            self._path.pauseProducing()

    def resumeProducing(self) -> None:
        self._paused = False
        if self._path is not None:
            self._path.resumeProducing()

    def stopProducing(self) -> None:
        self.reset()

    # Callbacks of the path.

    def headers_received(self, block: bytes) -> None:
        if self.receiver is not None:
            self.receiver.headers_received(block)
        self._consumed(len(block))

    def data_received(self, data: bytes) -> None:
        if self.receiver is not None:
            self.receiver.data_received(data)
        self._consumed(len(data))

    def fin_received(self) -> None:
        """
        Handle the end of the peer's data; a second FIN, from a newer path, is ignored.
        """
        if not self._fin_received:
            self._fin_received = True
            if self.receiver is not None:
                self.receiver.fin_received()

    def path_in_doubt(self) -> None:
        """
        Notify the receiver that this path is silent, so that it can look for another
        path.
        """
        receiver = self.receiver
        if IPathReceiver.providedBy(receiver):
            receiver.path_in_doubt()

    def path_missing(self) -> None:
        """Notify the receiver that no path is expected any more."""
        receiver = self.receiver
        if IPathReceiver.providedBy(receiver):
            receiver.path_missing()

    def stream_closed(self, reason: Exception | None) -> None:
        """
        Handle the end of the path.

        The stream ends, too, unless it may get another path.
        """
        self._path = None
        if self._closed:
            return
        if reason is not None and not self.buffer.given_up and _path_is_lost(reason):
            assert isinstance(reason, TunnelError)
            self._lost(reason)
        else:
            self.end(reason)

    def end(self, reason: Exception | None) -> None:
        """End the stream, and notify the receiver once."""
        if self._closed:
            return
        self._closed = True
        cancel_call(self._timer)
        if reason is None:
            self._keeper.finished(self)
        else:
            self._keeper.forget(self)
        if self.lost is not None:
            # Our side opened the stream, so the other end will not resume it.
            self.buffer.give_up()
        producer, self._producer = self._producer, None
        receiver, self.receiver = self.receiver, None
        try:
            try:
                if producer is not None:
                    producer.stopProducing()
            finally:
                if receiver is not None:
                    receiver.stream_closed(reason)
        except Exception:
            # Other streams may end in the same turn, as with `StreamTransport.close`.
            self._log.failure("the receiver of a stream failed when the stream ended")


@attrs.define(eq=False)
class Keeper:
    """
    All streams of this process that may outlive their connection.

    :ivar grace: returns the maximum number of seconds that a stream waits for another
        path; called when a path is lost, because kas announces this time with each
        greeting.
    """

    clock: IReactorTime
    grace: Callable[[], float]
    limits: ResumeLimits = DEFAULT_RESUME_LIMITS
    #: The number of bytes in retransmission buffers.
    held: int = 0
    #: Counters: lost paths, resumed streams, and streams that got no path in time.
    lost: int = 0
    resumed: int = 0
    expired: int = 0
    _held_by: dict[str, int] = attrs.Factory(dict)
    #: Streams that the other side opened, by their id.
    _accepted: dict[bytes, ResumableStream] = attrs.Factory(dict)
    #: Finished streams that may still be resumed, each with its expiry; the oldest
    #: first.
    _lingering: deque[tuple[float, ResumableStream]] = attrs.Factory(deque)
    _dirty: list[ResumableStream] = attrs.Factory(list)
    _ack_call: IDelayedCall | None = None
    _linger_call: IDelayedCall | None = None

    def __len__(self) -> int:
        return len(self._accepted)

    def hold(self, owner: str, size: int) -> bool:
        """
        Count bytes of a retransmission buffer; return False if they exceed a limit.
        """
        self.held += size
        mine = self._held_by[owner] = self._held_by.get(owner, 0) + size
        return self.held <= self.limits.kept and mine <= self.limits.kept_per_owner

    def release(self, owner: str, size: int) -> None:
        """Subtract bytes that left the buffer."""
        self.held -= size
        left = self._held_by.get(owner, 0) - size
        if left > 0:
            self._held_by[owner] = left
        else:
            self._held_by.pop(owner, None)

    def accept(
        self,
        path: StreamTransport,
        open_: pb.Open,
        accept: Callable[[IStream, pb.Open], IStreamReceiver],
    ) -> IStreamReceiver:
        """
        Accept a stream that the peer opened with a ``resume_id``.

        :param accept: returns the stream's receiver, as for any other stream.
        """
        if len(open_.resume_id) != 16 or open_.resume_id in self._accepted:
            raise ProtocolError(ErrorCode.PROTOCOL, "invalid resume_id")
        stream = ResumableStream(self, open_.resume_id)
        stream.attach(path)
        # The stream is registered before its receiver exists, because the receiver may
        # write at once.
        self._accepted[open_.resume_id] = stream
        try:
            stream.receiver = accept(stream, open_)
        except BaseException:
            self.forget(stream)
            # The caller resets the path with the reason.
            stream.release()
            raise
        return stream

    def resume(self, path: StreamTransport, resume: pb.Resume) -> IStreamReceiver:
        """Continue a stream on the new path that the peer found."""
        stream = self._accepted.get(resume.resume_id)
        if stream is None or not stream.goes_on(resume.received):
            raise ProtocolError(ErrorCode.NOT_RESUMABLE, "the stream is unknown")
        stream.detach()
        path.accept_resume(stream.received)
        stream.go_on(path, resume.received)
        return stream

    def finished(self, stream: ResumableStream) -> None:
        """
        Keep a stream that both ends have finished, because the opener may resume it if
        it has not read the stream's end.
        """
        if self._accepted.get(stream.resume_id) is not stream:
            return
        self._lingering.append((self.clock.seconds() + self.grace(), stream))
        if len(self._lingering) > self.limits.lingering:
            self.forget(self._lingering.popleft()[1])
        if self._linger_call is None:
            self._linger_call = self.clock.callLater(self.grace(), self._linger)

    def _linger(self) -> None:
        self._linger_call = None
        now = self.clock.seconds()
        while self._lingering:
            until, stream = self._lingering[0]
            if until > now:
                self._linger_call = self.clock.callLater(until - now, self._linger)
                return
            self._lingering.popleft()
            self.forget(stream)

    def forget(self, stream: ResumableStream) -> None:
        """Forget a stream that can no longer be resumed."""
        if self._accepted.get(stream.resume_id) is stream:
            del self._accepted[stream.resume_id]
        stream.buffer.give_up()

    def ack_later(self, stream: ResumableStream) -> None:
        """
        Schedule the acknowledgement of bytes that *stream* consumed, together with
        others.
        """
        self._dirty.append(stream)
        if self._ack_call is None:
            self._ack_call = self.clock.callLater(self.limits.ack_delay, self._ack)

    def _ack(self) -> None:
        self._ack_call = None
        dirty, self._dirty = self._dirty, []
        for stream in dirty:
            stream.ack()

    def stop(self) -> None:
        """Reset all streams at the end of the process."""
        for call in (self._ack_call, self._linger_call):
            if call is not None:
                call.cancel()
        self._ack_call = self._linger_call = None
        self._lingering.clear()
        for stream in tuple(self._accepted.values()):
            stream.reset(ErrorCode.SHUTDOWN, "the process is stopping")
            self.forget(stream)


class RetransmissionBuffer:
    """
    Data of a stream that the other end has not acknowledged, within the keeper's
    limits.

    :param owner: the owner for whom the bytes count; see `ResumeLimits.kept_per_owner`.
    :ivar pieces: the data, each piece with a flag for blocks of headers.
    :ivar size: the number of bytes in *pieces*.
    :ivar acked: the number of bytes before *pieces*, which the other end acknowledged.
    :ivar full: whether the producer has to wait.
    :ivar given_up: whether the buffer was dropped because it was too large; the stream
        then ends with its path.
    """

    _log = Logger()
    __slots__ = ("_keeper", "_owner", "acked", "full", "given_up", "pieces", "size")

    def __init__(self, keeper: Keeper, owner: str) -> None:
        # A list is used, because an empty deque takes 700 bytes, and most buffers are
        # empty.
        self.pieces: list[tuple[bool, bytes]] = []
        self.size = 0
        self.acked = 0
        self.full = False
        self.given_up = False
        self._keeper = keeper
        self._owner = owner

    def add(self, is_headers: bool, data: bytes) -> bool:
        """Add data; return False if the buffer becomes `full`, or `given_up`."""
        if self.given_up or not data:
            return True
        pieces = self.pieces
        size = len(data)
        if (
            size < SMALL
            and pieces
            and not is_headers
            and not pieces[-1][0]
            and len(pieces[-1][1]) < JOINED
        ):
            pieces[-1] = (False, pieces[-1][1] + data)
        else:
            pieces.append((is_headers, data))
        self.size += size
        keeper = self._keeper
        if not keeper.hold(self._owner, size):
            self._log.info(
                "a stream lost its retransmission buffer and will end with its "
                "connection: {held} bytes are buffered already",
                held=keeper.held,
            )
            self.give_up()
            return False
        if self.size > keeper.limits.kept_per_stream:
            self.full = True
            return False
        return True

    def covers(self, received: int) -> bool:
        """
        Tell whether the buffer contains all data after the first *received* bytes of
        the stream.
        """
        return not self.given_up and self.acked <= received <= self.acked + self.size

    def drop(self, received: int) -> None:
        """Drop the data that the other end has consumed."""
        gone = received - self.acked
        self.acked = received
        self.size -= gone
        self._keeper.release(self._owner, gone)
        pieces = self.pieces
        whole = 0
        while gone:
            is_headers, data = pieces[whole]
            if len(data) > gone:
                pieces[whole] = (is_headers, data[gone:])
                break
            gone -= len(data)
            whole += 1
        del pieces[:whole]
        if self.full and self.size < self._keeper.limits.kept_per_stream * 7 // 8:
            self.full = False

    def give_up(self) -> None:
        """Drop everything, and store nothing from now on."""
        self._keeper.release(self._owner, self.size)
        self.acked += self.size
        self.size = 0
        self.pieces.clear()
        self.full = False
        self.given_up = True


def _path_is_lost(reason: Exception) -> bool:
    """Tell whether the path broke, while the other end may be alive."""
    if isinstance(reason, SessionClosed):
        # A revoked credential ends everything that depends on it.
        return reason.code is not ErrorCode.UNAUTHENTICATED
    return isinstance(reason, StreamReset) and reason.code is ErrorCode.PATH_LOST
