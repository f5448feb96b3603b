"""A stream to an agent as its user sees it, whichever way it goes."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IConsumer, IPushProducer
from zope.interface import implementer

from kas.routing.pacing import Pacer
from kas.routing.resumption import Resumption
from kas.routing.waiting import Wait
from tunnel.errors import (
    AgentUnavailable,
    ErrorCode,
    SessionClosed,
    StreamReset,
)
from tunnel.interfaces import ConnectedAgent, IStream, IStreamReceiver
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session.resumable import ResumableStream
from tunnel.session.stream import StreamTransport
from tunnel.wire.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from kas.routing.router import Hop, Router

#: Bytes that are kept to be sent again should the stream be refused.  What a window
#: holds: by the time that more may be sent, the other end took it.
MAX_KEPT = DEFAULT_LIMITS.initial_window

#: Ways that may break under one request before it is given up: one that breaks what it
#: touches has to end.
MAX_LOST = 3

_SENT = pb.Open()

#: Without the seconds, so that clients which ask again show it once.
WAITED = "kas waited for it in vain"
TOO_MANY = "too many requests wait for it already"


@implementer(IStream, IConsumer, IPushProducer, IStreamReceiver)
class RoutedStream:
    """
    Looks for a way, and for another one as long as nothing came back.

    Most of them find one at once, have nothing to send but their head, and step aside
    with the first byte of the answer; what costs them anything stands apart.

    What is written is kept until the agent answers, so that a refusal (which means that
    nothing was done) costs the user nothing.  A way that breaks is only replaced where
    the request may be done twice, or where the stream itself survives it.
    """

    def __init__(
        self,
        router: Router,
        agent_id: str,
        open_: pb.Open,
        receiver: IStreamReceiver,
        fin: bool,
        repeatable: bool,
    ) -> None:
        self._router = router
        self._agent_id = agent_id
        self._open = open_
        self._receiver = receiver
        self._fin = fin
        self._repeatable = repeatable
        self._path: StreamTransport | ResumableStream | None = None
        self._hop: Hop | None = None
        self._agent: ConnectedAgent | None = None
        #: None: something came back, or it was too much.
        self._kept: list[tuple[bool, bytes]] | None = []
        self._size = 0
        self._finished = fin
        self._paused = False
        self._pacer: Pacer | None = None
        self._closed = False
        self._lost = 0
        self._attempts = 0
        #: Instances that did not answer.
        self._tried: tuple[bytes, ...] = ()
        self._why = ""
        self._waits: Wait | None = None
        #: When it gives up, once it had to wait: whatever refuses it in between.  Anew
        #: for each way that broke.
        self._patience = 0.0

    @property
    def agent(self) -> ConnectedAgent | None:
        """As `IStream.agent`."""
        return self._agent

    # A way.

    def begin(self) -> None:
        """Look for a way, or wait for one."""
        hop = self._router.only_hop(self._agent_id)
        if (hop is None or not self._try(hop)) and not self._go():
            self._wait()

    def _go(self) -> bool:
        """Take the best way that there is now; False when there is none."""
        hops = self._router.hops(self._agent_id)
        if self._tried:
            # What refused it may do so again, though it is not busy.
            return any(
                self._try(hop)
                for hop in sorted(
                    hops, key=lambda hop: hop.agent.instance_id in self._tried
                )
            )
        return any(self._try(hop) for hop in hops)

    def _try(self, hop: Hop) -> bool:
        path: StreamTransport | ResumableStream
        try:
            if self._open.resume_id:
                path = self._open_resumable(hop)
            else:
                path = hop.open(self._open, self, self._fin, self._repeatable)
        except (SessionClosed, StreamReset):
            # It began to go away since it was last heard of, or is full: its refusal
            # costs a look at the next one, never a failed request.
            return False
        self._took(hop, path)
        return True

    def _open_resumable(self, hop: Hop) -> ResumableStream:
        if self._attempts:
            # The instance may still hold what the last attempt began, under its id.
            self._open.resume_id = secrets.token_bytes(16)
        stream = ResumableStream(
            self._router.keeper,
            self._open.resume_id,
            self,
            self._path_lost,
            self._agent_id,
        )
        stream.attach(hop.open(self._open, stream, self._fin, self._repeatable))
        if self._fin:
            stream.finish()
        return stream

    def _took(self, hop: Hop, path: StreamTransport | ResumableStream) -> None:
        self._hop, self._path = hop, path
        self._agent = hop.agent
        if hop.record is not None:
            self._router.went(hop)
        if self._waits is not None:
            self._settle()
        for is_headers, data in self._kept or ():
            if is_headers:
                path.send_headers(data)
            else:
                path.write(data)
        if self._finished and not self._fin:
            path.finish()
        if self._paused:
            path.pauseProducing()
        if self._pacer is not None:
            path.registerProducer(self._pacer, self._pacer.streaming)
            if self._pacer.streaming and not path.full:
                self._pacer.resumeProducing()

    def _wait(self) -> None:
        if self._waits is None:
            if not self._router.may_wait(self._agent_id):
                self._close(self._unavailable(TOO_MANY, waited=False))
                return
            now = self._router.clock.seconds()
            if not self._patience:
                self._patience = now + self._router.patience(self._agent_id)
            left = max(0.0, self._patience - now)
            self._waits = Wait(
                self._router, self._agent_id, self._woken, self._late, left
            )
        elif self._router.revoked(self._agent_id):
            text = f"agent {self._agent_id} was revoked"
            self._close(AgentUnavailable(self._agent_id, text))
            return
        self._waits.again(self._attempts)

    def _woken(self) -> None:
        if self._closed or self._path is not None:
            return
        try:
            found = self._go()
        except Exception as error:
            self._close(StreamReset(ErrorCode.INTERNAL, str(error), by_peer=False))
            raise
        if not found and not self._closed:
            self._wait()

    def _late(self) -> None:
        self._router.missed(self._agent_id)
        self._close(self._unavailable(WAITED))

    def _unavailable(self, why: str, *, waited: bool = True) -> AgentUnavailable:
        agent = self._agent_id
        reason = "AGENT_NOT_REACHABLE"
        if there := self._router.obstacle(agent):
            # The agent may be well: it is the way to it that is not.
            text = f"agent {agent} is connected to another kas, and {there}"
        elif self._why:
            text = f"agent {agent} could not be reached ({self._why}); {why}"
        else:
            reason = "AGENT_NOT_CONNECTED"
            absence = self._router.absences.absence(agent)
            text = f"{absence}; {why}; check that agentk runs and reaches kas"
        return AgentUnavailable(agent, text, reason, waited=waited)

    def absence(self) -> AgentUnavailable | None:
        """Why nobody answers, while the stream waits for its agent; else None."""
        if self._path is not None or self._closed:
            return None
        return self._unavailable(WAITED)

    def _settle(self) -> None:
        waits, self._waits = self._waits, None
        if waits is not None:
            waits.stop()

    def _close(self, reason: Exception | None) -> None:
        if self._closed:
            return
        self._closed = True
        self._settle()
        self._kept = None
        pacer, self._pacer = self._pacer, None
        if pacer is not None:
            pacer.producer.stopProducing()
        self._receiver.stream_closed(reason)

    # What comes back.

    def headers_received(self, block: bytes) -> None:
        """As `IStreamReceiver.headers_received`."""
        self._answered()
        self._receiver.headers_received(block)

    def data_received(self, data: bytes) -> None:
        """As `IStreamReceiver.data_received`."""
        self._answered()
        self._receiver.data_received(data)

    def fin_received(self) -> None:
        """As `IStreamReceiver.fin_received`."""
        self._answered()
        self._receiver.fin_received()

    def _answered(self) -> None:
        if self._kept is None:
            return
        self._kept = None
        # It may last, and its head is not needed any more.
        self._open = _SENT
        path = self._path
        if type(path) is StreamTransport and self._pacer is None:
            hop = self._hop
            if hop is not None and hop.record is None:
                # Nothing is left to do for us: the rest goes straight to its user.
                path.receiver = self._receiver

    def stream_closed(self, reason: Exception | None) -> None:
        """This way is over; look for another where that harms nobody."""
        hop, self._hop = self._hop, None
        self._path = None
        if hop is not None:
            self._router.left(hop)
        if self._closed:
            return
        if (
            hop is None
            or self._kept is None
            or not isinstance(reason, StreamReset | SessionClosed)
            or not self._may_go_again(reason)
        ):
            self._close(reason)
            return
        self._why = str(reason)
        self._attempts += 1
        self._tried = (*self._tried, hop.agent.instance_id)[-MAX_LOST:]
        self._router.refused(hop, reason)
        if self._attempts > 1 or not self._go():
            self._wait()

    def _may_go_again(self, reason: StreamReset | SessionClosed) -> bool:
        if isinstance(reason, StreamReset):
            if reason.code is ErrorCode.REFUSED and reason.by_peer:
                return True  # nothing was done
            if reason.code not in (ErrorCode.PATH_LOST, ErrorCode.NOT_RESUMABLE):
                return False
        elif reason.code is ErrorCode.UNAUTHENTICATED:
            return False
        self._lost += 1
        # It was served meanwhile; how often that may end so is counted.
        self._patience = 0.0
        return self._repeatable and self._lost <= MAX_LOST

    def path_in_doubt(self) -> None:
        """Nothing comes from there any more: ask somebody else, where that is fine."""
        if self._repeatable and self._kept is not None and self._path is not None:
            self._path.reset(ErrorCode.PATH_LOST, "the agent is silent")

    def path_missing(self) -> None:
        """The agent's connection was closed, and it does not seem to come back."""
        tell = getattr(self._receiver, "path_missing", None)
        if tell is not None:
            tell()

    # A way that broke under a stream that survives it.

    def _path_lost(self) -> None:
        stream = self._path
        if not isinstance(stream, ResumableStream):
            return  # it broke while it was being opened
        if self._kept is not None and self._repeatable:
            # Nothing came back yet: anybody else may do it.
            stream.end(SessionClosed(ErrorCode.PATH_LOST, "the way to the agent broke"))
            return
        hop, self._hop = self._hop, None
        if hop is not None:
            self._router.left(hop)
            Resumption(self._router, hop.agent, stream, self._resumed).begin()

    def _resumed(self, hop: Hop) -> None:
        self._hop = hop
        self._agent = hop.agent
        self._router.went(hop)

    # IStream

    def send_headers(self, block: bytes, fin: bool = False) -> None:
        """As `IStream.send_headers`."""
        self._keep(True, block)
        if self._path is not None:
            self._path.send_headers(block)
        if fin:
            self.finish()

    def write(self, data: bytes) -> None:
        """As `IStream.write`."""
        self._keep(False, data)
        if self._path is not None:
            self._path.write(data)

    def _keep(self, is_headers: bool, data: bytes) -> None:
        if self._kept is None or self._closed or self._finished:
            return
        self._kept.append((is_headers, data))
        self._size += len(data)
        if self._size <= MAX_KEPT:
            return
        if self._path is not None:
            self._kept = None
        elif self._size > 2 * MAX_KEPT:
            self._close(
                StreamReset(
                    ErrorCode.MEMORY, "more was written than can wait", by_peer=False
                )
            )

    def finish(self) -> None:
        """As `IStream.finish`."""
        self._finished = True
        if self._path is not None:
            self._path.finish()

    def reset(self, code: int = ErrorCode.CANCELLED, message: str = "") -> None:
        """As `IStream.reset`."""
        if self._path is not None:
            self._kept = None
            self._path.reset(code, message)
        else:
            self._close(StreamReset(ErrorCode(code), message, by_peer=False))

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

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """As `IStream.registerProducer`."""
        if self._closed:
            producer.stopProducing()
            return
        self._pacer = Pacer(producer, streaming)
        if self._path is not None:
            self._path.registerProducer(self._pacer, streaming)
        else:
            self._pacer.pauseProducing()

    def unregisterProducer(self) -> None:
        """As `IStream.unregisterProducer`."""
        self._pacer = None
        if self._path is not None:
            self._path.unregisterProducer()
