"""All streams of a process that may survive their path: what they keep together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import attrs
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from tunnel.errors import ErrorCode, ProtocolError
from tunnel.interfaces import IStream, IStreamReceiver
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session.resumable import ResumableStream
from tunnel.session.stream import StreamTransport
from tunnel.wire.limits import KIB, MIB

__all__ = ["Keeper", "ResumeLimits"]


@attrs.frozen
class ResumeLimits:
    """What streams that survive their path may cost."""

    #: Bytes that one stream keeps until the other end acknowledged them; then its
    #: producer waits.  300 ms at 100 Mbit/s, and far more on short paths.
    kept_per_stream: int = 4 * MIB

    #: Bytes that all streams of the process keep together.  The stream that would pass
    #: it goes on and keeps nothing any more: it ends with its connection.
    kept: int = 32 * MIB

    #: Bytes that the streams of one owner (in kas: of one agent) keep together: who
    #: never acknowledges shall not use up what everybody has.
    kept_per_owner: int = 32 * MIB

    #: Consumed bytes after which the other end is told at once...
    ack_every: int = 256 * KIB

    #: ... and seconds after which it is told of fewer.
    ack_delay: float = 1.0

    #: Seconds that a stream may be without a path where the system of its agent closed
    #: the connection.  A living agentk dials again within 0.5, 1.5, 3.5 and 7.5 seconds
    #: at the latest, which is long enough for a balancer that restarts; what has not
    #: come back by then is a process that died.  Silence says less: see `Keeper.grace`.
    closed_grace: float = 15.0

    #: Seconds after which its receiver is told that it may not come back (three of
    #: these attempts): what loses nothing by it, such as a watch, should end then.
    closed_notice: float = 5.0

    #: Streams that were finished, and may still be asked for by an opener that has not
    #: read their end.  The oldest go first.
    lingering: int = 1_000


DEFAULT_RESUME_LIMITS = ResumeLimits()


@attrs.define(eq=False)
class Keeper:
    """
    Every stream of this process that may outlive its connection.

    :ivar grace: seconds that a stream may be without a path; asked when one is lost,
        because kas says it with each greeting.
    """

    clock: IReactorTime
    grace: Callable[[], float]
    limits: ResumeLimits = DEFAULT_RESUME_LIMITS
    #: Bytes that are kept now.
    held: int = 0
    #: Since the start: paths lost, paths found again, streams that found none in time.
    lost: int = 0
    resumed: int = 0
    expired: int = 0
    _held_by: dict[str, int] = attrs.Factory(dict)
    #: Those that the other side opened, by their id.
    _accepted: dict[bytes, ResumableStream] = attrs.Factory(dict)
    #: Finished, and until when they may be asked for; the oldest first.
    _lingering: deque[tuple[float, ResumableStream]] = attrs.Factory(deque)
    _dirty: list[ResumableStream] = attrs.Factory(list)
    _ack_call: IDelayedCall | None = None
    _linger_call: IDelayedCall | None = None

    def __len__(self) -> int:
        return len(self._accepted)

    def hold(self, owner: str, size: int) -> bool:
        """Count bytes that are kept; False when they are too many."""
        self.held += size
        mine = self._held_by[owner] = self._held_by.get(owner, 0) + size
        return self.held <= self.limits.kept and mine <= self.limits.kept_per_owner

    def release(self, owner: str, size: int) -> None:
        """They are not kept any more."""
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
        Our end of a stream that the peer opened with a ``resume_id``.

        :param accept: says who receives it, as for any other stream.
        """
        if len(open_.resume_id) != 16 or open_.resume_id in self._accepted:
            raise ProtocolError(ErrorCode.PROTOCOL, "an unusable resume_id")
        stream = ResumableStream(self, open_.resume_id)
        stream.attach(path)
        # Before its receiver exists, which may write at once.
        self._accepted[open_.resume_id] = stream
        try:
            stream.receiver = accept(stream, open_)
        except BaseException:
            self.forget(stream)
            stream.detach()
            raise
        return stream

    def resume(self, path: StreamTransport, resume: pb.Resume) -> IStreamReceiver:
        """The peer found a new path for one of them."""
        stream = self._accepted.get(resume.resume_id)
        if stream is None or not stream.goes_on(resume.received):
            raise ProtocolError(ErrorCode.NOT_RESUMABLE, "the stream is not known")
        stream.detach()
        path.accept_resume(stream.received)
        stream.go_on(path, resume.received)
        return stream

    def finished(self, stream: ResumableStream) -> None:
        """Both ends are done, as far as we know; the opener may not know it yet."""
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
        """It is over, and nobody may ask for it."""
        if self._accepted.get(stream.resume_id) is stream:
            del self._accepted[stream.resume_id]
        stream.kept.give_up()

    def ack_later(self, stream: ResumableStream) -> None:
        """Acknowledge what it consumed, with that of others, within a moment."""
        self._dirty.append(stream)
        if self._ack_call is None:
            self._ack_call = self.clock.callLater(self.limits.ack_delay, self._ack)

    def _ack(self) -> None:
        self._ack_call = None
        dirty, self._dirty = self._dirty, []
        for stream in dirty:
            stream.ack()

    def stop(self) -> None:
        """Nothing is kept any more."""
        for call in (self._ack_call, self._linger_call):
            if call is not None:
                call.cancel()
        self._ack_call = self._linger_call = None
        self._lingering.clear()
        for stream in tuple(self._accepted.values()):
            stream.reset(ErrorCode.SHUTDOWN, "the process stops")
            self.forget(stream)
