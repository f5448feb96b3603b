"""From "a stream to agent 7" to a stream, though the agent may not be here yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import (
    IConsumer,
    IDelayedCall,
    IPushProducer,
    IReactorTime,
)
from zope.interface import implementer

from kas.registry import Registry
from tunnel.errors import (
    AgentUnavailable,
    ErrorCode,
    SessionClosed,
    StreamReset,
    TunnelError,
)
from tunnel.interfaces import ConnectedAgent, IStream, IStreamReceiver
from tunnel.pb import tunnel_pb2 as pb

#: Seconds that a stream waits for its agent: a restart of agentk, or of its node's
#: network, takes less; kubectl's users wait no longer without a word.
ROUTING_TIMEOUT = 20.0

#: Streams that wait for one agent.  Each holds a client's connection.
MAX_WAITING = 2_000

#: Seconds between two looks whether an agent that was silent, or had as many streams as
#: it takes, is available again; of a new connection they are told at once.
LOOK_AGAIN = 1.0

#: Bytes that a waiting stream takes before its producer is paused; the rest of what
#: arrives in the same moment is kept, up to twice this.
MAX_HELD = 128 * 1024


class Router:
    """Opens streams to agents: the least busy instance, or whichever comes."""

    def __init__(
        self,
        registry: Registry,
        clock: IReactorTime,
        *,
        timeout: float = ROUTING_TIMEOUT,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._timeout = timeout
        self._max_waiting = max_waiting
        self._waiting: dict[str, int] = {}
        self._look: IDelayedCall | None = None

    def open_stream(
        self, agent_id: str, open_: pb.Open, receiver: IStreamReceiver, fin: bool
    ) -> IStream:
        """See `tunnel.interfaces.IServerModuleApi.open_stream`."""
        stream = self.try_open(agent_id, open_, receiver, fin)
        if stream is not None:
            return stream
        waiting = WaitingStream(self, agent_id, open_, receiver, fin)
        if self._waiting.get(agent_id, 0) >= self._max_waiting:
            waiting.fail("and too many requests wait for it already")
        else:
            self._waiting[agent_id] = self._waiting.get(agent_id, 0) + 1
            waiting.wait(self._registry, self._clock, self._timeout)
            if self._look is None:
                self._look = self._clock.callLater(LOOK_AGAIN, self._look_again)
        return waiting

    def _look_again(self) -> None:
        self._look = None
        for agent_id in tuple(self._waiting):
            if self._registry.find(agent_id) is not None:
                self._registry.wake(agent_id)
        if self._waiting:
            self._look = self._clock.callLater(LOOK_AGAIN, self._look_again)

    def try_open(
        self, agent_id: str, open_: pb.Open, receiver: IStreamReceiver, fin: bool
    ) -> IStream | None:
        """The stream, if an instance of the agent is here and takes it."""
        # An instance may have begun to go away since it was last heard of: its
        # refusal costs a look at the next one, never a failed request.
        for _ in range(3):
            tunnel = self._registry.find(agent_id)
            if tunnel is None:
                return None
            try:
                stream: IStream = tunnel.open_stream(open_, receiver, fin=fin)
                return stream
            except (SessionClosed, StreamReset):
                continue
        return None

    def stopped_waiting(self, agent_id: str) -> None:
        """One stream less waits for this agent."""
        left = self._waiting.get(agent_id, 0) - 1
        if left > 0:
            self._waiting[agent_id] = left
        else:
            self._waiting.pop(agent_id, None)
        if not self._waiting and self._look is not None:
            self._look.cancel()
            self._look = None

    @property
    def waiting(self) -> int:
        """How many streams wait for their agents."""
        return sum(self._waiting.values())


@implementer(IPushProducer)
class _Room:
    """Finds out whether a stream takes more: one that does not pauses its producer."""

    there = True

    def pauseProducing(self) -> None:
        self.there = False

    def resumeProducing(self) -> None:
        pass

    def stopProducing(self) -> None:
        self.there = False


@implementer(IStream, IConsumer, IPushProducer)
class WaitingStream:
    """
    A stream whose agent is not here: keeps what is written, and becomes real later.

    Its producer is paused from the start, so little is ever kept.
    """

    def __init__(
        self,
        router: Router,
        agent_id: str,
        open_: pb.Open,
        receiver: IStreamReceiver,
        fin: bool,
    ) -> None:
        self._router = router
        self._agent_id = agent_id
        self._open = open_
        self._receiver = receiver
        self._fin = fin
        self._stream: IStream | None = None
        self._held: list[tuple[bool, bytes]] = []
        self._size = 0
        self._finished = fin
        self._paused = False
        self._producer: tuple[Any, bool] | None = None
        self._closed = False
        self._counted = False
        self._give_up: Callable[[], None] | None = None
        self._timer: IDelayedCall | None = None

    @property
    def agent(self) -> ConnectedAgent | None:
        """As `IStream.agent`."""
        return None if self._stream is None else self._stream.agent

    # How it becomes real.

    def wait(self, registry: Registry, clock: IReactorTime, timeout: float) -> None:
        """Wait for the agent."""
        self._counted = True
        self._registry = registry
        self._timer = clock.callLater(
            timeout, self.fail, f"and did not connect within {timeout:.0f} s"
        )
        self._give_up = registry.wait(self._agent_id, self._arrived)

    def fail(self, why: str) -> None:
        """There is no agent."""
        self._close(
            AgentUnavailable(
                self._agent_id, f"agent {self._agent_id} is not connected, {why}"
            )
        )

    def _arrived(self) -> None:
        if self._closed:
            return
        # While it was opening, our receiver might ask for anything: from here on the
        # real stream answers.
        try:
            stream = self._router.try_open(
                self._agent_id, self._open, self._receiver, self._fin
            )
        except Exception as error:
            self._close(StreamReset(ErrorCode.INTERNAL, str(error), by_peer=False))
            raise
        if stream is None:
            self._give_up = self._registry.wait(self._agent_id, self._arrived)
            return
        self._settle()
        self._stream = stream
        for is_headers, data in self._held:
            if is_headers:
                stream.send_headers(data)
            else:
                stream.write(data)
        self._held.clear()
        if self._finished and not self._fin:
            stream.finish()
        if self._paused:
            stream.pauseProducing()
        if self._producer is not None:
            producer, streaming = self._producer
            room = _Room()
            stream.registerProducer(room, True)
            stream.unregisterProducer()
            stream.registerProducer(producer, streaming)
            if streaming and room.there:
                producer.resumeProducing()

    def _settle(self) -> None:
        if self._counted:
            self._counted = False
            self._router.stopped_waiting(self._agent_id)
        if self._give_up is not None:
            self._give_up()
            self._give_up = None
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def _close(self, reason: TunnelError) -> None:
        if self._closed or self._stream is not None:
            return
        self._closed = True
        self._settle()
        self._held.clear()
        producer, self._producer = self._producer, None
        if producer is not None:
            producer[0].stopProducing()
        self._receiver.stream_closed(reason)

    # IStream

    def send_headers(self, block: bytes, fin: bool = False) -> None:
        """As `IStream.send_headers`."""
        if self._stream is not None:
            self._stream.send_headers(block, fin)
            return
        self._keep(True, block)
        if fin:
            self.finish()

    def write(self, data: bytes) -> None:
        """As `IStream.write`."""
        if self._stream is not None:
            self._stream.write(data)
        else:
            self._keep(False, data)

    def _keep(self, is_headers: bool, data: bytes) -> None:
        if self._closed or self._finished:
            return
        self._held.append((is_headers, data))
        self._size += len(data)
        if self._size > 2 * MAX_HELD:
            self._close(
                StreamReset(
                    ErrorCode.MEMORY, "more was written than can wait", by_peer=False
                )
            )

    def finish(self) -> None:
        """As `IStream.finish`."""
        self._finished = True
        if self._stream is not None:
            self._stream.finish()

    def reset(self, code: int = ErrorCode.CANCELLED, message: str = "") -> None:
        """As `IStream.reset`."""
        if self._stream is not None:
            self._stream.reset(code, message)
        else:
            self._close(StreamReset(ErrorCode(code), message, by_peer=False))

    def pauseProducing(self) -> None:
        """As `IStream.pauseProducing`."""
        self._paused = True
        if self._stream is not None:
            self._stream.pauseProducing()

    def resumeProducing(self) -> None:
        """As `IStream.resumeProducing`."""
        self._paused = False
        if self._stream is not None:
            self._stream.resumeProducing()

    def stopProducing(self) -> None:
        """Whoever reads is gone."""
        self.reset()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """As `IStream.registerProducer`."""
        if self._stream is not None:
            self._stream.registerProducer(producer, streaming)
        elif self._closed:
            producer.stopProducing()
        else:
            self._producer = (producer, streaming)
            if streaming:
                producer.pauseProducing()

    def unregisterProducer(self) -> None:
        """As `IStream.unregisterProducer`."""
        self._producer = None
        if self._stream is not None:
            self._stream.unregisterProducer()
