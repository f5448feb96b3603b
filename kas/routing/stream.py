"""Stream to an agent, which hides the choice and the loss of paths from its user."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final

from twisted.internet.interfaces import IConsumer, IDelayedCall, IPushProducer
from zope.interface import classImplements

from kas.routing.router import AgentPath, Router
from tunnel.api import (
    DEFAULT_OPTIONS,
    ConnectedAgent,
    IPathReceiver,
    IStreamReceiver,
    IWaitingStream,
    StreamOptions,
)
from tunnel.errors import (
    NOT_LEADING,
    AgentUnavailable,
    ErrorCode,
    SessionClosed,
    StreamReset,
    TunnelError,
)
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session.resume import ResumableStream
from tunnel.session.stream import StreamTransport
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.timers import cancel_call
from tunnel.wire.limits import DEFAULT_LIMITS

__all__ = ["Resumption", "RoutedStream"]

#: Maximum bytes of the retransmission buffer, whose data is sent again if the agent
#: refuses the stream.  One window is enough: before more data may be sent, the other
#: end has accepted the stream.
MAX_BUFFERED: Final = DEFAULT_LIMITS.initial_window

#: Maximum number of broken or silent paths that one request may leave, so that a
#: request that breaks its paths ends.  After that, the request fails when its path
#: breaks, but stays on a silent path, which may only be slow.
MAX_LOST: Final = 3

#: Seconds before another attempt: first and maximum pause.
RETRY_FIRST, RETRY_MOST = 0.05, 1.0

#: Timeout of RESUME in seconds: the response only needs a table lookup.
RESUME_TIMEOUT: Final = 10.0

_SENT: Final = pb.Open()

#: Part of an error text, without the number of seconds, so that clients that retry show
#: the text only once.
WAITED: Final = "it did not connect while kas waited"
TOO_MANY: Final = "too many requests are already waiting for it"


class RoutedStream:
    """
    Stream over one path to an agent; until a response arrives, the path may be replaced
    by another one.
    """

    def __init__(
        self,
        router: Router,
        agent_id: str,
        open_: pb.Open,
        receiver: IStreamReceiver,
        options: StreamOptions,
    ) -> None:
        self._router = router
        self._agent_id = agent_id
        self._open = open_
        self._receiver = receiver
        self._fin = options.fin
        self._idempotent = options.idempotent
        #: Whether a path that breaks or falls silent may be replaced.
        self._may_leave = options.idempotent
        #: Current path, and its stream.
        self._path: AgentPath | None = None
        self._stream: StreamTransport | ResumableStream | None = None
        self._agent: ConnectedAgent | None = None
        #: Data to send again on another path; None when the current path is final.
        self._buffer: list[tuple[bool, bytes]] | None = []
        self._size = 0
        self._finished = options.fin
        self._paused = False
        #: Producer of the user, while the path may be replaced.
        self._producer: _Producer | None = None
        self._closed = False
        self._lost = 0
        self._attempts = 0
        #: Instances that did not respond to this request.
        self._tried: tuple[bytes, ...] = ()
        self._why = ""
        self._waiter: _Waiter | None = None
        self._late: IDelayedCall | None = None
        #: Time at which the stream stops waiting, however many paths refuse it until
        #: then.  The time is set again for each path that broke.
        self._patience = 0.0

    @classmethod
    def open(
        cls,
        router: Router,
        agent_id: str,
        method: str,
        receiver: IStreamReceiver,
        metadata: bytes = b"",
        options: StreamOptions = DEFAULT_OPTIONS,
    ) -> RoutedStream:
        open_ = pb.Open(method=method, metadata=metadata)
        if options.timeout:
            open_.timeout_ms = max(1, round(options.timeout * 1000))
        if options.resumable and router.keeper.grace() > 0:
            open_.resume_id = secrets.token_bytes(16)
        stream = cls(router, agent_id, open_, receiver, options)
        path = router.only_path(agent_id)
        if (path is None or not stream._try(path)) and not stream._take_best():
            stream._wait()
        return stream

    @property
    def agent(self) -> ConnectedAgent | None:
        return self._agent

    # Methods that choose a path.

    def _take_best(self) -> bool:
        """Take the best path that exists now; return False if no path can be used."""
        paths = self._router.paths(self._agent_id)
        if self._tried:
            # Try paths that refused this stream last: they may refuse again, even if
            # they are not busy.
            return any(
                self._try(path)
                for path in sorted(
                    paths, key=lambda path: path.agent.instance_id in self._tried
                )
            )
        return any(self._try(path) for path in paths)

    def _try(self, path: AgentPath) -> bool:
        """
        Take *path*, and send the earlier data on it; return False if the path refuses.
        """
        stream: StreamTransport | ResumableStream
        try:
            if self._open.resume_id:
                stream = self._open_resumable(path)
            else:
                stream = path.open(self._open, self, self._fin, self._may_leave)
        except (SessionClosed, StreamReset):
            # Try the next path, because this path is ending or full; the request does
            # not fail.
            return False
        self._path, self._stream = path, stream
        self._agent = path.agent
        if path.record is not None:
            self._router.taken(path)
        if self._waiter is not None:
            self._stop_waiting()
        for is_headers, data in self._buffer or ():
            if is_headers:
                stream.send_headers(data)
            else:
                stream.write(data)
        if self._finished and not self._fin:
            stream.finish()
        if self._paused:
            stream.pauseProducing()
        if self._producer is not None:
            streaming = self._producer.streaming
            stream.registerProducer(self._producer, streaming)
            if streaming and not stream.full:
                self._producer.resumeProducing()
        return True

    def _open_resumable(self, path: AgentPath) -> ResumableStream:
        if self._attempts:
            # Use a new id, because the instance may still have the stream of the last
            # attempt under the old id.
            self._open.resume_id = secrets.token_bytes(16)
        stream = ResumableStream(
            self._router.keeper,
            self._open.resume_id,
            self,
            self._path_lost,
            self._agent_id,
        )
        stream.attach(path.open(self._open, stream, self._fin, self._may_leave))
        if self._fin:
            stream.finish()
        return stream

    def _take_no_other(self) -> None:
        """
        Make the current path final, and release all data that was stored for another
        path.
        """
        self._buffer = None
        # Drop the head, because the stream may last long and does not need its head any
        # more.
        self._open = _SENT
        stream, path = self._stream, self._path
        assert stream is not None
        producer, self._producer = self._producer, None
        if producer is not None:
            # From now on, the path pauses the user's producer directly.
            stream.unregisterProducer()
            stream.registerProducer(producer.producer, producer.streaming)
        if path is not None and path.record is None and type(stream) is StreamTransport:
            # This object has finished: from now on, data goes directly to the user.
            stream.receiver = self._receiver

    # Methods that wait for a path.

    def _wait(self) -> None:
        router, agent_id = self._router, self._agent_id
        if self._waiter is None:
            if not router.may_wait(agent_id):
                self._close(self._unavailable(TOO_MANY, waited=False))
                return
            now = router.clock.seconds()
            if not self._patience:
                self._patience = now + router.patience(agent_id)
            left = max(0.0, self._patience - now)
            self._late = router.clock.callLater(left, self._too_late)
            self._waiter = _Waiter(router, agent_id, self._woken)
        elif router.revoked(agent_id):
            text = f"agent {router.absences.name(agent_id)} was revoked"
            self._close(AgentUnavailable(agent_id, text))
            return
        elif self._late is not None and router.absences.never(agent_id):
            # Use only results that arrived after the beginning of the wait.
            now = router.clock.seconds()
            sooner = now + router.patience(agent_id)
            if sooner < self._patience:
                self._patience = sooner
                self._late.reset(sooner - now)
        self._waiter.wait(self._attempts)

    def _woken(self) -> None:
        if self._closed or self._stream is not None:
            return
        try:
            found = self._take_best()
        except Exception as error:
            self._close(StreamReset(ErrorCode.INTERNAL, str(error), by_peer=False))
            raise
        if not found and not self._closed:
            self._wait()

    def _too_late(self) -> None:
        self._late = None
        self._router.missed(self._agent_id)
        self._close(self._unavailable(WAITED))

    def _stop_waiting(self) -> None:
        waiter, self._waiter = self._waiter, None
        late, self._late = self._late, None
        if waiter is not None:
            waiter.cancel()
            self._router.stopped_waiting(self._agent_id)
        if late is not None:
            late.cancel()

    def _unavailable(self, why: str, *, waited: bool = True) -> AgentUnavailable:
        agent = self._agent_id
        name = self._router.absences.name(agent)
        reason = "AGENT_NOT_REACHABLE"
        if there := self._router.obstacle(agent):
            # The agent may be connected to another kas, but the path to that kas is
            # broken.
            text = f"agent {name} is connected to another kas, which {there}"
        elif self._no_leader:
            # The details have addresses, which are not for users.
            text = (
                f"agent {name}: no agentk leads, because none has access to its "
                "Kubernetes API: see 'kasctl status'"
            )
        elif self._why:
            text = f"agent {name} could not be reached ({self._why}); {why}"
        else:
            reason = "AGENT_NOT_CONNECTED"
            absence = self._router.absences.absence(agent)
            text = f"{absence}; {why}; check that agentk runs and reaches kas"
        return AgentUnavailable(agent, text, reason, waited=waited)

    @property
    def _no_leader(self) -> str:
        """
        Return why no agentk leads, if this is known to be the reason of a refusal;
        otherwise an empty text.
        """
        if NOT_LEADING not in self._why:
            return ""
        return self._router.cluster_problem(self._agent_id)

    def absence(self) -> AgentUnavailable | None:
        """Return why the stream waits for its agent; None if it is not waiting."""
        if self._stream is not None or self._closed:
            return None
        return self._unavailable(WAITED)

    # Methods that receive frames.

    def headers_received(self, block: bytes) -> None:
        if self._buffer is not None:
            self._take_no_other()
        self._receiver.headers_received(block)

    def data_received(self, data: bytes) -> None:
        if self._buffer is not None:
            self._take_no_other()
        self._receiver.data_received(data)

    def fin_received(self) -> None:
        if self._buffer is not None:
            self._take_no_other()
        self._receiver.fin_received()

    def path_in_doubt(self) -> None:
        """
        Take another path, if this is permitted, because the agent does not respond.
        """
        if self._may_leave and self._buffer is not None and self._stream is not None:
            self._stream.reset(ErrorCode.PATH_LOST, "the agent is silent")

    def path_missing(self) -> None:
        """Handle the lost connection of an agent that is unlikely to return."""
        receiver = self._receiver
        if IPathReceiver.providedBy(receiver):
            receiver.path_missing()

    def stream_closed(self, reason: Exception | None) -> None:
        """
        Handle the end of the current path: take another path, if this is permitted.
        """
        path, self._path = self._path, None
        self._stream = None
        if path is not None:
            self._router.left(path)
        if self._closed:
            return
        if (
            path is None
            or self._buffer is None
            or not isinstance(reason, StreamReset | SessionClosed)
            or not self._may_retry(reason)
        ):
            self._close(reason)
            return
        self._why = str(reason)
        self._attempts += 1
        self._tried = (*self._tried, path.agent.instance_id)[-MAX_LOST:]
        self._router.refused(path, reason)
        if self._no_leader:
            # Do not wait: no other agentk will become the leader soon.
            self._close(self._unavailable("", waited=False))
        elif self._attempts > 1 or not self._take_best():
            self._wait()

    def _may_retry(self, reason: StreamReset | SessionClosed) -> bool:
        if isinstance(reason, StreamReset):
            if reason.code is ErrorCode.REFUSED and reason.by_peer:
                return True  # The agent has not executed anything.
            if reason.code not in (ErrorCode.PATH_LOST, ErrorCode.NOT_RESUMABLE):
                return False
        elif reason.code is ErrorCode.UNAUTHENTICATED:
            return False
        self._lost += 1
        self._may_leave = self._idempotent and self._lost < MAX_LOST
        # Wait again for the full time: the agent had received the stream in the
        # meantime, and the number of such losses is limited.
        self._patience = 0.0
        return self._idempotent and self._lost <= MAX_LOST

    def _close(self, reason: Exception | None) -> None:
        if self._closed:
            return
        self._closed = True
        self._stop_waiting()
        self._buffer = None
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.producer.stopProducing()
        self._receiver.stream_closed(reason)

    # Methods that handle the loss of the path of a resumable stream.

    def _path_lost(self) -> None:
        stream = self._stream
        if not isinstance(stream, ResumableStream):
            return  # The path broke while it was being opened.
        if self._buffer is not None and self._may_leave:
            # Take any other instance, which may execute the request, because no
            # response has arrived yet.
            why = "the path to the agent broke"
            stream.end(SessionClosed(ErrorCode.PATH_LOST, why))
            return
        path, self._path = self._path, None
        if path is not None:
            self._router.left(path)
            Resumption(self._router, path.agent, stream, self._resumed).begin()

    def _resumed(self, path: AgentPath) -> None:
        self._path = path
        self._agent = path.agent
        self._router.taken(path)

    # Methods of `IStream`.

    def send_headers(self, block: bytes, fin: bool = False) -> None:
        if self._buffer is not None:
            self._keep(True, block)
        if self._stream is not None:
            self._stream.send_headers(block)
        if fin:
            self.finish()

    def write(self, data: bytes) -> None:
        if self._buffer is not None:
            self._keep(False, data)
        if self._stream is not None:
            self._stream.write(data)

    def _keep(self, is_headers: bool, data: bytes) -> None:
        if self._buffer is None or self._closed or self._finished:
            return
        self._buffer.append((is_headers, data))
        self._size += len(data)
        if self._size <= MAX_BUFFERED:
            return
        if self._stream is not None:
            self._take_no_other()
        elif self._size > 2 * MAX_BUFFERED:
            self._close(
                StreamReset(
                    ErrorCode.MEMORY,
                    "more was written than the buffer holds",
                    by_peer=False,
                )
            )

    def finish(self) -> None:
        self._finished = True
        if self._stream is not None:
            self._stream.finish()

    def reset(self, code: int = ErrorCode.CANCELLED, message: str = "") -> None:
        if self._stream is not None:
            self._buffer = None
            self._stream.reset(code, message)
        else:
            self._close(StreamReset(ErrorCode(code), message, by_peer=False))

    def pauseProducing(self) -> None:
        self._paused = True
        if self._stream is not None:
            self._stream.pauseProducing()

    def resumeProducing(self) -> None:
        self._paused = False
        if self._stream is not None:
            self._stream.resumeProducing()

    def stopProducing(self) -> None:
        self.reset()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        if self._closed:
            producer.stopProducing()
            return
        if self._buffer is not None:
            producer = self._producer = _Producer(producer, streaming)
        if self._stream is not None:
            self._stream.registerProducer(producer, streaming)
        else:
            producer.pauseProducing()

    def unregisterProducer(self) -> None:
        self._producer = None
        if self._stream is not None:
            self._stream.unregisterProducer()


classImplements(RoutedStream, IWaitingStream, IConsumer, IPushProducer, IPathReceiver)


class _Producer:
    """
    Wrapper of the user's producer, on a path that may be replaced.

    A path stops its producer when the path ends, but the user's producer continues with
    the next path.
    """

    def __init__(self, producer: Any, streaming: bool) -> None:
        self.producer = producer
        self.streaming = streaming
        self._paused = False

    def pauseProducing(self) -> None:
        """Pause the user's producer, because the path is full or missing."""
        if self.streaming and not self._paused:
            self._paused = True
            self.producer.pauseProducing()

    def resumeProducing(self) -> None:
        """Resume the user's producer, because the path accepts data again."""
        if not self.streaming:
            self.producer.resumeProducing()
        elif self._paused:
            self._paused = False
            self.producer.resumeProducing()

    def stopProducing(self) -> None:
        """
        Stop producing for this path, which has ended; the user's producer may continue
        on another path.
        """
        self.pauseProducing()


classImplements(_Producer, IPushProducer)


class _Waiter:
    """
    Timer and subscription that call *retry* when a path to an agent may exist, or after
    a pause.
    """

    def __init__(
        self, router: Router, agent_id: str, retry: Callable[[], None]
    ) -> None:
        self._router = router
        self._agent_id = agent_id
        self._retry = retry
        self._timer: IDelayedCall | None = None
        self._give_up: list[Callable[[], None]] = []

    def wait(self, attempts: int) -> None:
        """Wait for the next event; after failed attempts, wait for a pause, too."""
        self.cancel()
        router = self._router
        self._give_up = router.wait(self._agent_id, self._wake)
        if attempts:
            backoff = Backoff(router.random, RETRY_FIRST, RETRY_MOST, attempts)
            pause = backoff.pause()
            self._timer = router.clock.callLater(pause, self._wake)

    def _wake(self) -> None:
        self.cancel()
        self._retry()

    def cancel(self) -> None:
        """Stop waiting."""
        give_up, self._give_up = self._give_up, []
        for one in give_up:
            one()
        timer, self._timer = self._timer, None
        cancel_call(timer)


class Resumption:
    """
    Search for a new path to the same instance, until the stream's grace period ends.

    The object receives the events of the current attempt.
    """

    def __init__(
        self,
        router: Router,
        agent: ConnectedAgent,
        stream: ResumableStream,
        callback: Callable[[AgentPath], None],
    ) -> None:
        self._router = router
        self._agent = agent
        self._stream = stream
        self._callback = callback
        #: Newest generation of the instance when the path broke: a tunnel with this
        #: generation or an earlier one belongs to the same process, because an extra
        #: tunnel may be older or newer than the connection.
        self._newest = router.newest(agent)
        self._attempts = 0
        self._path: AgentPath | None = None
        self._attempt: StreamTransport | None = None
        self._timeout: IDelayedCall | None = None
        self._waiter = _Waiter(router, agent.agent_id, self.begin)

    def begin(self) -> None:
        """Make an attempt now, or after the next event."""
        stream, agent, router = self._stream, self._agent, self._router
        if stream.closed or stream.has_path or self._attempt is not None:
            return
        if not router.may_connect(agent.agent_id):
            reason = "the agent was revoked"
            stream.end(SessionClosed(ErrorCode.UNAUTHENTICATED, reason))
        elif self._resume(router.path_to(agent.agent_id, agent.instance_id)):
            pass
        elif router.was_restarted(agent):
            gone = "agentk was restarted, which ended the stream"
            stream.end(StreamReset(ErrorCode.NOT_RESUMABLE, gone, by_peer=False))
        else:
            self._wait()

    def _resume(self, path: AgentPath | None) -> bool:
        """Start an attempt on *path*; return False if this is impossible now."""
        if path is None:
            return False
        stream = self._stream
        resume = pb.Resume(resume_id=stream.resume_id, received=stream.received)
        try:
            attempt = path.resume(resume, self)
        except (SessionClosed, StreamReset):
            return False
        if path.agent.generation > self._newest:
            # The instance has reconnected, so it is alive.  Its earlier paths may still
            # be listed, and do not prove this.
            stream.lives()
        self._path, self._attempt = path, attempt
        attempt.resumable = self
        self._timeout = self._router.clock.callLater(
            RESUME_TIMEOUT,
            attempt.reset,
            ErrorCode.CANCELLED,
            "no response to RESUME",
        )
        return True

    def _wait(self) -> None:
        self._attempts += 1
        self._waiter.wait(self._attempts)

    def _attempt_ended(self) -> None:
        self._attempt = None
        timeout, self._timeout = self._timeout, None
        cancel_call(timeout)

    # Methods that receive the events of the attempt.

    def resumed(self, path: StreamTransport, received: int) -> None:
        """Continue the stream, because the instance still has it."""
        self._attempt_ended()
        if self._stream.closed:
            path.reset(ErrorCode.CANCELLED, "the client left")
            return
        assert self._path is not None
        # If the stream does not accept the path, the search continues without a path.
        if self._stream.goes_on(received):
            self._callback(self._path)
        self._stream.resumed(path, received)

    def acked(self, received: int) -> None:
        """Do nothing: no data was sent yet."""

    def headers_received(self, block: bytes) -> None:
        """Fail: no header may arrive before RESUMED."""
        raise TunnelError("bytes before RESUMED")

    def data_received(self, data: bytes) -> None:
        """Fail: no data may arrive before RESUMED."""
        raise TunnelError("bytes before RESUMED")

    def fin_received(self) -> None:
        """Do nothing: FIN cannot arrive before RESUMED."""

    def path_in_doubt(self) -> None:
        """Try again when the agent is no longer silent."""
        if self._attempt is not None:
            self._attempt.reset(ErrorCode.PATH_LOST, "the agent is silent")

    def path_missing(self) -> None:
        """Do nothing: only the stream resumes, and not an attempt to resume it."""

    def stream_closed(self, reason: Exception | None) -> None:
        """Handle the failure of this attempt."""
        self._attempt_ended()
        path, self._path = self._path, None
        if isinstance(reason, StreamReset):
            if reason.code is ErrorCode.NOT_RESUMABLE:
                self._stream.end(reason)
                return
            if path is not None and reason.code is ErrorCode.REFUSED:
                self._router.refused(path, reason)
        if not self._stream.closed:
            self._wait()


classImplements(Resumption, IPathReceiver)
