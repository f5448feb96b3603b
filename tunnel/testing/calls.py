"""
Streams of a server half to its agents, in tests: one agent is connected, all others are
not.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IConsumer, IPushProducer
from twisted.internet.task import Clock
from zope.interface import implementer

from tunnel.api import (
    DEFAULT_OPTIONS,
    ConnectedAgent,
    IStream,
    IStreamReceiver,
    StreamOptions,
)
from tunnel.errors import AgentUnavailable, ErrorCode, StreamReset, TunnelError
from tunnel.testing.ends import AGENT, End

__all__ = ["StreamsToAgents"]


class StreamsToAgents:
    """
    Opener of the raw streams of `IServerCalls.open_stream`.

    :param end: the tunnel to the only connected agent, ``1`` or ``agent-1``.
    """

    def __init__(self, end: End) -> None:
        self._end = end

    def open(
        self,
        agent_id: str,
        method: str,
        receiver: IStreamReceiver,
        metadata: bytes = b"",
        options: StreamOptions = DEFAULT_OPTIONS,
    ) -> IStream:
        """
        Open a stream; a stream to an agent that is not connected ends in the next turn.
        """
        if agent_id not in (AGENT.agent_id, AGENT.agent_name):
            return AbsentAgentStream(agent_id, receiver, self._end.clock)
        return self._end.open_stream(
            method,
            receiver,
            metadata=metadata,
            fin=options.fin,
            timeout=options.timeout,
        )


@implementer(IStream, IConsumer, IPushProducer)
class AbsentAgentStream:
    """A stream to an agent that is not connected: it ends in the next turn."""

    agent: ConnectedAgent | None = None

    def __init__(self, agent_id: str, receiver: IStreamReceiver, clock: Clock) -> None:
        self._receiver: IStreamReceiver | None = receiver
        self._producer: Any = None
        absent = AgentUnavailable(agent_id, f"agent {agent_id} is not connected")
        clock.callLater(0, self._close, absent)

    def _close(self, reason: TunnelError) -> None:
        receiver, self._receiver = self._receiver, None
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.stopProducing()
        if receiver is not None:
            receiver.stream_closed(reason)

    def send_headers(self, block: bytes, fin: bool = False) -> None:
        pass

    def write(self, data: bytes) -> None:
        pass

    def finish(self) -> None:
        pass

    def reset(self, code: int = ErrorCode.CANCELLED, message: str = "") -> None:
        self._close(StreamReset(ErrorCode(code), message, by_peer=False))

    def pauseProducing(self) -> None:
        pass

    def resumeProducing(self) -> None:
        pass

    def stopProducing(self) -> None:
        self.reset()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        if self._receiver is None:
            producer.stopProducing()
        else:
            self._producer = producer

    def unregisterProducer(self) -> None:
        self._producer = None
