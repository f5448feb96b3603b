"""A stream that survives its path looks for another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.interfaces import IDelayedCall
from zope.interface import implementer

from tunnel.errors import ErrorCode, SessionClosed, StreamReset, TunnelError
from tunnel.interfaces import ConnectedAgent, IStreamReceiver
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session.resumable import ResumableStream
from tunnel.session.stream import StreamTransport
from tunnel.util.backoff import pause_before

if TYPE_CHECKING:
    from kas.routing.router import Hop, Router

__all__ = ["Resumption"]

#: Seconds for the answer to RESUME: it takes no more than looking into a table.
RESUME_TIMEOUT = 10.0


@implementer(IStreamReceiver)
class Resumption:
    """
    Looks for a new way to the same instance, until the stream's grace is over.

    It is the receiver of the attempt that runs.
    """

    def __init__(
        self,
        router: Router,
        agent: ConnectedAgent,
        stream: ResumableStream,
        resumed: Callable[[Hop], None],
    ) -> None:
        self._router = router
        self._agent = agent
        self._stream = stream
        self._told = resumed
        self._attempts = 0
        self._attempt: StreamTransport | None = None
        self._hop: Hop | None = None
        self._retry: IDelayedCall | None = None
        self._give_up: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Try, now or when there is news."""
        self._drop()
        if self._stream.closed or self._stream.has_path or self._attempt is not None:
            return
        agent = self._agent
        if not self._router.may_connect(agent.agent_id):
            reason = "the agent was revoked"
            self._stream.end(SessionClosed(ErrorCode.UNAUTHENTICATED, reason))
            return
        hop = self._router.hop_to(agent.agent_id, agent.instance_id)
        if hop is not None:
            resume = pb.Resume(
                resume_id=self._stream.resume_id, received=self._stream.received
            )
            try:
                attempt = hop.resume(resume, self)
            except (SessionClosed, StreamReset):
                pass
            else:
                if hop.agent.generation > agent.generation:
                    # It connected since.  The one that was lost may still be listed
                    # where another kas had it, and says nothing.
                    self._stream.lives()
                self._hop, self._attempt = hop, attempt
                attempt.resumable = self
                self._retry = self._router.clock.callLater(
                    RESUME_TIMEOUT,
                    attempt.reset,
                    ErrorCode.CANCELLED,
                    "RESUME was not answered",
                )
                return
        if self._router.was_restarted(agent):
            gone = "agentk was restarted, and what ran there ended with it"
            self._stream.end(StreamReset(ErrorCode.NOT_RESUMABLE, gone, by_peer=False))
            return
        self._wait()

    def _wait(self) -> None:
        self._attempts += 1
        self._give_up = self._router.wait(self._agent.agent_id, self.begin)
        pause = pause_before(self._attempts, self._router.random)
        self._retry = self._router.clock.callLater(pause, self.begin)

    def _drop(self) -> None:
        give_up, self._give_up = self._give_up, []
        for one in give_up:
            one()
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        self._retry = None

    # The attempt.

    def resumed(self, path: StreamTransport, received: int) -> None:
        """The instance knows the stream, and goes on."""
        self._attempt = None
        self._drop()
        if self._stream.closed:
            path.reset(ErrorCode.CANCELLED, "nobody wants the rest")
            return
        assert self._hop is not None
        # Otherwise it refuses the path, and is there no more than before.
        if self._stream.goes_on(received):
            self._told(self._hop)
        self._stream.resumed(path, received)

    def acked(self, received: int) -> None:
        """Nothing was sent yet."""

    def headers_received(self, block: bytes) -> None:
        """Never before RESUMED."""
        raise TunnelError("bytes before RESUMED")

    def data_received(self, data: bytes) -> None:
        """Never before RESUMED."""
        raise TunnelError("bytes before RESUMED")

    def fin_received(self) -> None:
        """Never before RESUMED."""

    def path_in_doubt(self) -> None:
        """The agent is silent: try again once it is not."""
        if self._attempt is not None:
            self._attempt.reset(ErrorCode.PATH_LOST, "the agent is silent")

    def stream_closed(self, reason: Exception | None) -> None:
        """This attempt failed."""
        self._attempt = None
        self._drop()
        hop, self._hop = self._hop, None
        if isinstance(reason, StreamReset):
            if reason.code is ErrorCode.NOT_RESUMABLE:
                self._stream.end(reason)
                return
            if hop is not None and reason.code is ErrorCode.REFUSED:
                self._router.refused(hop, reason)
        if not self._stream.closed:
            self._wait()
