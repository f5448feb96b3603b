"""One stream that survives its path (specification section 9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IConsumer, IDelayedCall, IPushProducer
from zope.interface import implementer

from tunnel.errors import ErrorCode, SessionClosed, StreamReset, TunnelError
from tunnel.interfaces import ConnectedAgent, IStream, IStreamReceiver
from tunnel.session.kept import Kept
from tunnel.session.stream import StreamTransport

if TYPE_CHECKING:
    from tunnel.session.keeper import Keeper

__all__ = ["ResumableStream"]


@implementer(IPushProducer)
class _Writer:
    """What a path pauses: the writing half, since the stream's own is the reading."""

    def __init__(self, stream: ResumableStream) -> None:
        self._stream = stream

    def pauseProducing(self) -> None:
        self._stream.path_full(True)

    def resumeProducing(self) -> None:
        self._stream.path_full(False)

    def stopProducing(self) -> None:
        pass


@implementer(IStream, IConsumer, IPushProducer, IStreamReceiver)
class ResumableStream:
    """
    One end of a stream that goes from path to path.

    What is written is kept until the other end acknowledged it.  Without a path it is
    only kept: the producer notices nothing before `ResumeLimits.kept_per_stream`.

    :ivar received: bytes of the other end that our receiver consumed.
    :ivar kept: what the other end did not acknowledge yet.
    :ivar lost: called when the path is gone and another one has to be found; without
        it, the other end is the one who looks.
    """

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
        self.kept = Kept(keeper, owner)
        self._keeper = keeper
        self._path: StreamTransport | None = None
        self._agent: ConnectedAgent | None = None
        #: Bytes of the other end that we acknowledged.
        self._told = 0
        self._dirty = False
        self._finished = False
        self._fin_received = False
        self._closed = False
        self._paused = False
        self._path_full = False
        self._producer: Any = None
        self._timer: IDelayedCall | None = None
        #: While it waits for less than the whole grace: why the path was lost.
        self._lost_for: TunnelError | None = None

    @property
    def agent(self) -> ConnectedAgent | None:
        """As `IStream.agent`."""
        if self._path is not None and self._path.agent is not None:
            self._agent = self._path.agent
        return self._agent

    @property
    def closed(self) -> bool:
        """It ended, for good."""
        return self._closed

    @property
    def full(self) -> bool:
        """What was written has to leave before more should be."""
        return self._path_full or self.kept.full

    @property
    def has_path(self) -> bool:
        """Bytes can flow now."""
        return self._path is not None

    # From path to path.

    def attach(self, path: StreamTransport) -> None:
        """Use *path* from now on."""
        self._path = path
        path.receiver = self
        path.resumable = self
        self._path_full = False
        path.registerProducer(_Writer(self), True)
        if self._paused:
            path.pauseProducing()

    def detach(self) -> None:
        """Let go of the path, if there is one: the other end does not use it."""
        path, self._path = self._path, None
        if path is not None:
            path.receiver = path.resumable = None
            path.unregisterProducer()
            path.reset(ErrorCode.CANCELLED, "replaced by a newer path")

    def goes_on(self, received: int) -> bool:
        """Everything that the other end lacks is still here."""
        return self.kept.covers(received)

    def go_on(self, path: StreamTransport, received: int) -> None:
        """The other end is at *path* and has consumed *received* bytes."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        self._keeper.resumed += 1
        self.kept.drop(received)
        # Before the path is ours: a producer that may go on must not get in between.
        for is_headers, data in self.kept.pieces:
            if is_headers:
                path.send_headers(data)
            else:
                path.write(data)
        self.attach(path)
        if self._finished:
            path.finish()
        self._pace()

    def resumed(self, path: StreamTransport, received: int) -> None:
        """The answer to our RESUME on *path*."""
        if not self.goes_on(received):
            path.reset(ErrorCode.PROTOCOL, "RESUMED with an impossible count")
            return
        self.go_on(path, received)

    def _lost(self, reason: TunnelError) -> None:
        keeper = self._keeper
        keeper.lost += 1
        grace = keeper.grace()
        if getattr(reason, "peer_closed", False):
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
        """The process of the other end was seen since: wait for it as for any other."""
        timer = self._timer
        if timer is not None and timer.active() and self._lost_for is not None:
            timer.cancel()
            reason, self._lost_for = self._lost_for, None
            grace = self._keeper.grace()
            self._timer = self._keeper.clock.callLater(grace, self._expire, reason)

    def _stays_away(self, left: float, reason: TunnelError) -> None:
        """The other end should have been back by now."""
        self._timer = self._keeper.clock.callLater(left, self._expire, reason)
        tell = getattr(self.receiver, "path_missing", None)
        if tell is not None:
            tell()

    def _expire(self, reason: TunnelError) -> None:
        self._keeper.expired += 1
        self.end(reason)

    # What is kept.

    def _kept_enough(self) -> None:
        """What was written last makes the producer wait, or is not kept."""
        self._pace()
        if self.kept.given_up and self._path is None:
            self.end(SessionClosed(ErrorCode.MEMORY, "too much was kept"))

    def acked(self, received: int) -> None:
        """The other end consumed *received* bytes, over all paths."""
        kept = self.kept
        gone = received - kept.acked
        if gone <= 0 or kept.given_up:
            return
        if gone > kept.size:
            self.reset(ErrorCode.PROTOCOL, "more was acknowledged than sent")
            return
        kept.drop(received)
        self._pace()

    def ack(self) -> None:
        """Tell the other end what we consumed."""
        self._dirty = False
        if self._path is not None and self.received > self._told:
            self._told = self.received
            self._path.ack(self.received)

    def _consumed(self, count: int) -> None:
        self.received += count
        if self.received - self._told >= self._keeper.limits.ack_every:
            self.ack()
        elif not self._dirty:
            self._dirty = True
            self._keeper.ack_later(self)

    # IStream: writing.

    def send_headers(self, block: bytes, fin: bool = False) -> None:
        """As `IStream.send_headers`."""
        if self._closed or self._finished:
            return
        if not self.kept.add(True, block):
            self._kept_enough()
        if self._path is not None:
            self._path.send_headers(block)
        if fin:
            self.finish()

    def write(self, data: bytes) -> None:
        """As `IStream.write`."""
        if self._closed or self._finished:
            return
        if not self.kept.add(False, data):
            self._kept_enough()
        if self._path is not None:
            self._path.write(data)

    def finish(self) -> None:
        """As `IStream.finish`."""
        if self._closed or self._finished:
            return
        self._finished = True
        if self._path is not None:
            self._path.finish()

    def reset(self, code: int = ErrorCode.CANCELLED, message: str = "") -> None:
        """As `IStream.reset`."""
        if self._path is not None:
            self._path.reset(code, message)
        else:
            self.end(StreamReset(ErrorCode(code), message, by_peer=False))

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """As `IStream.registerProducer`; only of producers that push."""
        if not streaming:
            raise ValueError("a resumable stream takes producers that push")
        if self._closed:
            producer.stopProducing()
            return
        self._producer = producer
        if self.full:
            producer.pauseProducing()

    def unregisterProducer(self) -> None:
        """As `IStream.unregisterProducer`."""
        self._producer = None

    def path_full(self, full: bool) -> None:
        """The path takes no more, or does again."""
        self._path_full = full
        self._pace()

    def _pace(self) -> None:
        if self._producer is None:
            return
        if self.full:
            self._producer.pauseProducing()
        else:
            self._producer.resumeProducing()

    # IStream: reading.

    def pauseProducing(self) -> None:
        """As `IStream.pauseProducing`."""
        self._paused = True
        if self._path is not None:
            self._path.pauseProducing()

    def resumeProducing(self) -> None:
        """As `IStream.resumeProducing`."""
        self._paused = False
        if self._path is not None:
            self._path.resumeProducing()

    def stopProducing(self) -> None:
        """Whoever reads is gone."""
        self.reset()

    # From the path.

    def headers_received(self, block: bytes) -> None:
        """As `IStreamReceiver.headers_received`."""
        if self.receiver is not None:
            self.receiver.headers_received(block)
        self._consumed(len(block))

    def data_received(self, data: bytes) -> None:
        """As `IStreamReceiver.data_received`."""
        if self.receiver is not None:
            self.receiver.data_received(data)
        self._consumed(len(data))

    def fin_received(self) -> None:
        """As `IStreamReceiver.fin_received`; a second one came by a newer path."""
        if not self._fin_received:
            self._fin_received = True
            if self.receiver is not None:
                self.receiver.fin_received()

    def path_in_doubt(self) -> None:
        """Nothing comes from the path any more; whoever looks for paths may know."""
        tell = getattr(self.receiver, "path_in_doubt", None)
        if tell is not None:
            tell()

    def stream_closed(self, reason: Exception | None) -> None:
        """The path is gone, and the stream with it unless another may be found."""
        self._path = None
        if self._closed:
            return
        if reason is not None and not self.kept.given_up and _path_is_lost(reason):
            assert isinstance(reason, TunnelError)
            self._lost(reason)
        else:
            self.end(reason)

    def end(self, reason: Exception | None) -> None:
        """It is over; told to the receiver once."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if reason is None:
            self._keeper.finished(self)
        else:
            self._keeper.forget(self)
        if self.lost is not None:
            # Our side opened it: nobody asks for what is kept.
            self.kept.give_up()
        producer, self._producer = self._producer, None
        receiver, self.receiver = self.receiver, None
        if producer is not None:
            producer.stopProducing()
        if receiver is not None:
            receiver.stream_closed(reason)


def _path_is_lost(reason: Exception) -> bool:
    """The way to the other end broke, and the other end may be well."""
    if isinstance(reason, SessionClosed):
        # A revoked credential ends what it was used for.
        return reason.code is not ErrorCode.UNAUTHENTICATED
    return isinstance(reason, StreamReset) and reason.code is ErrorCode.PATH_LOST
