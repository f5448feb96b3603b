"""One stream as a Twisted transport, consumer and producer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol

from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IPushProducer,
    ITransport,
)
from twisted.logger import Logger
from zope.interface import classImplements

from tunnel.api import ConnectedAgent, IStream, IStreamReceiver
from tunnel.errors import ErrorCode, StreamReset, TunnelError
from tunnel.wire.limits import SLICE
from tunnel.wire.session import Session

#: Maximum number of frames that are kept for a paused receiver: twice as many as the
#: largest window holds when small frames are joined.  A frame costs far more memory
#: than a byte, and credit counts only bytes.
MAX_HELD_FRAMES: Final = 4_096


class Carrier(Protocol):
    """Methods of the tunnel that its streams use."""

    session: Session
    agent: ConnectedAgent | None
    kas_id: bytes

    @property
    def peer_address(self) -> IAddress: ...
    @property
    def host_address(self) -> IAddress: ...
    def has_output(self) -> None: ...
    def consumed(self, stream_id: int, count: int) -> None: ...
    def pull_from(self, stream: StreamTransport) -> None: ...
    def stop_pulling(self, stream: StreamTransport) -> None: ...
    def forget(self, stream: StreamTransport) -> None: ...


class Resumable(Protocol):
    """
    A receiver with further callbacks, for a stream that can outlive its connection.
    """

    def acked(self, received: int) -> None:
        """Record that the other end consumed *received* bytes, over all connections."""

    def resumed(self, path: StreamTransport, received: int) -> None:
        """Continue with the other end, which has consumed *received* bytes."""


class StreamTransport:
    """
    Our end of one stream; see the interface `tunnel.api.IStream`.

    Credit is returned as soon as the receiver has taken the bytes.  While the receiver
    is paused, this object holds received bytes without returning their credit, so it
    holds at most one window of bytes.
    """

    _log: ClassVar = Logger()
    disconnecting = False

    def __init__(self, tunnel: Carrier, stream_id: int, finished: bool = False) -> None:
        self.stream_id = stream_id
        self.receiver: IStreamReceiver | None = None
        #: Receiver of ACK and RESUMED; see `tunnel.session.resume`.
        self.resumable: Resumable | None = None
        #: Function that is called instead of a producer when `full` changes.
        self.full_changed: Callable[[bool], None] | None = None
        self._tunnel = tunnel
        # The session is stored as an attribute, because each write uses it, and access
        # through the tunnel takes longer.
        self._session = tunnel.session
        # A list is used, because an empty deque takes 700 bytes, and most are empty.
        self._held: list[tuple[bool, bytes, bool]] = []
        self._paused = False
        self._delivering = False
        self._producer: Any = None
        self._streaming = True
        self._full = False
        #: Whether the peer finished the stream with OPEN, and sends no data.
        self.opened_finished = False
        self._finished = finished
        self._fin_received = False
        self._closed = False

    @property
    def agent(self) -> ConnectedAgent | None:
        """The agent at the other end, according to its credential; None in agentk."""
        return self._tunnel.agent

    @property
    def kas_id(self) -> bytes:
        """The id of the kas that dialled us; empty otherwise."""
        return self._tunnel.kas_id

    def charge(self, holder: str) -> None:
        """
        Count the stream's bytes for *holder*, because a session may carry streams of
        several holders.
        """
        self._session.charge(self.stream_id, holder)

    # Writing.

    def send_headers(self, block: bytes, fin: bool = False) -> None:
        """Send one header block; with *fin*, nothing follows."""
        if self._closed or self._finished:
            return
        self._wrote(self._session.send_headers(self.stream_id, block))
        if fin:
            self.finish()

    def write(self, data: bytes) -> None:
        """Send bytes; does nothing after the stream is closed."""
        if self._closed or self._finished:
            return
        self._wrote(self._session.send_data(self.stream_id, data))

    def writeSequence(self, data: Any) -> None:
        """Send the bytes of an iterable."""
        self.write(b"".join(data))

    def finish(self) -> None:
        """Finish this side of the stream (half-close)."""
        if self._closed or self._finished:
            return
        self._finished = True
        self._session.finish(self.stream_id)
        self._tunnel.has_output()
        if self._fin_received and not self._held:
            self.close(None)

    def loseWriteConnection(self) -> None:
        """Do the same as `finish`."""
        self.finish()

    def reset(
        self,
        code: ErrorCode | int = ErrorCode.CANCELLED,
        message: str = "",
        *,
        peer_closed: bool = False,
    ) -> None:
        """
        Abort both directions, and notify the receiver at once.

        :param peer_closed: see `tunnel.errors.StreamReset`.
        """
        if self._closed:
            return
        code = ErrorCode(code)
        self._session.reset(self.stream_id, code, message, peer_closed=peer_closed)
        self._tunnel.has_output()
        self.close(StreamReset(code, message, by_peer=False))

    def abortConnection(self) -> None:
        """Reset the stream, because its data is not needed any more."""
        self.reset()

    @property
    def full(self) -> bool:
        """Whether further writes should wait until written data has been sent."""
        return self._full

    def ack(self, received: int) -> None:
        """
        Acknowledge bytes, which the other end of a resumable stream need not keep any
        longer.
        """
        self._session.ack(self.stream_id, received)
        self._tunnel.has_output()

    def accept_resume(self, received: int) -> None:
        """Confirm a RESUME of the peer."""
        self._session.resumed(self.stream_id, received)
        self._tunnel.has_output()

    def loseConnection(self) -> None:
        """Finish, and drop further data from the peer."""
        self.disconnecting = True
        self.finish()
        self.resumeProducing()

    def getPeer(self) -> IAddress:
        """Return the address of the connection's other end."""
        return self._tunnel.peer_address

    def getHost(self) -> IAddress:
        """Return the address of the connection's own end."""
        return self._tunnel.host_address

    # Back-pressure for writers.

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Register *producer*, which is paused while written data cannot leave."""
        if self._producer is not None:
            raise RuntimeError("a producer is registered already")
        if self._closed:
            producer.stopProducing()
            return
        self._producer, self._streaming = producer, streaming
        if self._full:
            if streaming:
                producer.pauseProducing()
        elif not streaming:
            self._tunnel.pull_from(self)

    def unregisterProducer(self) -> None:
        """Forget the producer."""
        self._producer = None
        if not self._streaming:
            self._tunnel.stop_pulling(self)

    def _wrote(self, full: bool) -> None:
        self._tunnel.has_output()
        if full and not self._full:
            self._full = True
            if self.full_changed is not None:
                self.full_changed(True)
            elif self._producer is None:
                return
            elif self._streaming:
                self._producer.pauseProducing()
            else:
                self._tunnel.stop_pulling(self)

    def drained(self) -> None:
        """
        Request further data from the producer, because written data has been sent;
        called by the tunnel.
        """
        self._full = False
        if self._producer is None and self.full_changed is None:
            return
        if self._streaming:
            self._resume_producer()
        else:
            self._tunnel.pull_from(self)

    def pull(self) -> None:
        """Request one piece from a pull producer; called by the tunnel."""
        if self._producer is not None:
            self._resume_producer()

    def _resume_producer(self) -> None:
        try:
            if self.full_changed is not None:
                self.full_changed(False)
            else:
                self._producer.resumeProducing()
        except Exception:
            # A faulty producer must not affect the other streams of the connection.
            self._log.failure("the producer of a stream failed")
            self.reset(ErrorCode.INTERNAL, "the producer failed")

    # Reading.

    def pauseProducing(self) -> None:
        """Hold received data; the peer stops when its credit is used up."""
        self._paused = True

    def resumeProducing(self) -> None:
        """Deliver the held data, and resume."""
        self._paused = False
        self._deliver()

    def stopProducing(self) -> None:
        """Drop further data, because the reader is gone."""
        self.reset(ErrorCode.CANCELLED)

    def arrived(self, is_headers: bool, data: bytes, fin: bool) -> None:
        """Handle one frame of this stream; called by the tunnel."""
        if self._paused or self._delivering or self._held:
            self._hold(is_headers, data, fin)
            return
        self._delivering = True
        self._hand_over(is_headers, data, fin)
        self._delivering = False
        if self._held:
            self._deliver()

    def noted(self, received: int, is_ack: bool) -> None:
        """
        Handle the position of the other end of a resumable stream; called by the
        tunnel.
        """
        if self.resumable is None:
            return
        try:
            if is_ack:
                self.resumable.acked(received)
            else:
                self.resumable.resumed(self, received)
        except Exception:
            # The callback may resume a producer; see `_resume_producer`.
            self._log.failure("a stream failed when its other end resumed it")
            self.reset(ErrorCode.INTERNAL, "the producer failed")

    def _hold(self, is_headers: bool, data: bytes, fin: bool) -> None:
        """
        Hold a frame; small frames are joined, so that they need little more memory than
        their data.
        """
        held = self._held
        if held and not is_headers:
            last_headers, last, _ = held[-1]
            if not last_headers and len(last) + len(data) <= SLICE:
                held[-1] = (False, last + data, fin)
                return
        if len(held) >= MAX_HELD_FRAMES:
            self.reset(ErrorCode.MEMORY, "too many frames were not consumed")
            return
        held.append((is_headers, data, fin))

    def _deliver(self) -> None:
        if self._delivering:
            return
        self._delivering = True
        while self._held and not self._paused and not self._closed:
            self._hand_over(*self._held.pop(0))
        self._delivering = False

    def _hand_over(self, is_headers: bool, data: bytes, fin: bool) -> None:
        receiver = self.receiver
        if receiver is None:
            return
        try:
            if not self.disconnecting:
                if is_headers:
                    receiver.headers_received(data)
                elif data:
                    receiver.data_received(data)
            if data and not self._closed:
                self._tunnel.consumed(self.stream_id, len(data))
            if fin and not self._closed:
                self._fin_received = True
                if not self.disconnecting:
                    receiver.fin_received()
                if self._finished:
                    self.close(None)
        except Exception:
            # A faulty receiver must not affect the other streams of the connection.
            self._log.failure("the receiver of a stream failed")
            self.reset(ErrorCode.INTERNAL, "the receiver failed")

    def close(self, reason: TunnelError | None) -> None:
        """End the stream, and notify the receiver once."""
        if self._closed:
            return
        self._closed = True
        self._held.clear()
        self._tunnel.forget(self)
        producer, self._producer = self._producer, None
        receiver, self.receiver = self.receiver, None
        # This breaks the reference cycle between the two streams of a relay, so that
        # the garbage collector need not.
        self.resumable = self.full_changed = None
        try:
            try:
                if producer is not None:
                    producer.stopProducing()
            finally:
                if receiver is not None:
                    receiver.stream_closed(reason)
        except Exception:
            self._log.failure("the receiver of a stream failed when the stream ended")


classImplements(StreamTransport, IStream, ITransport, IConsumer, IPushProducer)
