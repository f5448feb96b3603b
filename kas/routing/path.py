"""What a stream can take: a tunnel to an agent here, or a session with its kas."""

from __future__ import annotations

import attrs

from kas.directory.records import AgentRecord
from tunnel.interfaces import ConnectedAgent, IStreamReceiver
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session.protocol import TunnelProtocol
from tunnel.session.stream import StreamTransport

__all__ = ["AgentPath"]


# Not frozen: one is made for each request.
@attrs.define
class AgentPath:
    """One path to one instance of an agent."""

    tunnel: TunnelProtocol
    agent: ConnectedAgent
    #: Where another kas has the agent, which is one more hop; None: it is here.
    record: AgentRecord | None = None

    def open(
        self, open_: pb.Open, receiver: IStreamReceiver, fin: bool, idempotent: bool
    ) -> StreamTransport:
        """Open a stream; raises as `TunnelProtocol.open_stream`."""
        if self.record is None:
            if open_.HasField("target"):
                open_.ClearField("target")
            return self.tunnel.open_stream(open_, receiver, fin=fin)
        open_.target.CopyFrom(self._target())
        open_.target.repeatable = idempotent
        return self._charge(self.tunnel.open_stream(open_, receiver, fin=fin))

    def resume(self, resume: pb.Resume, receiver: IStreamReceiver) -> StreamTransport:
        """Resume a stream; raises as `TunnelProtocol.resume_stream`."""
        if self.record is None:
            return self.tunnel.resume_stream(resume, receiver)
        resume.target.CopyFrom(self._target())
        return self._charge(self.tunnel.resume_stream(resume, receiver))

    def _target(self) -> pb.Target:
        return pb.Target(
            agent_id=self.agent.agent_id,
            instance_id=self.agent.instance_id,
            generation=self.agent.generation,
        )

    def _charge(self, stream: StreamTransport) -> StreamTransport:
        # In a session with a kas no agent may use up what the others need.
        stream.charge(self.agent.agent_id)
        return stream
