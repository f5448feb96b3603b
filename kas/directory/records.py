"""
Records of a directory as immutable values: connections of agents, and kas processes.
"""

from __future__ import annotations

import attrs

from kas.pb import directory_pb2 as pb
from tunnel.api import ConnectedAgent, KubernetesVersion
from tunnel.toolkit.texts import clean_message

__all__ = ["AgentRecord", "KasRecord"]


#: Maximum characters of a text in a record; texts that kas writes are shorter.
MAX_TEXT = 1024

#: End of the year 9999: a later time in the store is invalid, and could break programs
#: that show the time.
LATEST = 253_402_300_799.0


@attrs.frozen
class AgentRecord:
    """Connection of an agent to one of the kas."""

    agent: ConnectedAgent
    #: Id of the process, 16 random bytes: another process may later listen at the same
    #: URL.
    kas_id: bytes
    #: URL for peers: ``tls://host:port``, ``tcp://…`` or ``unix:///path``.
    kas_url: str

    def to_message(self) -> pb.AgentRecord:
        """Return the message that kas send and store."""
        agent = self.agent
        kubernetes = agent.kubernetes_version
        return pb.AgentRecord(
            agent_id=agent.agent_id,
            agent_name=agent.agent_name,
            instance_id=agent.instance_id,
            generation=agent.generation,
            project_id=agent.project_id,
            connected_at_ms=round(agent.connected_at * 1000),
            version=agent.version,
            commit_id=agent.commit_id,
            pod_namespace=agent.pod_namespace,
            pod_name=agent.pod_name,
            kubernetes_major=kubernetes.major,
            kubernetes_minor=kubernetes.minor,
            kubernetes_git_version=kubernetes.git_version,
            kubernetes_platform=kubernetes.platform,
            kas_id=self.kas_id,
            kas_url=self.kas_url,
            cluster_problem=agent.cluster_problem,
        )

    @classmethod
    def from_message(cls, message: pb.AgentRecord) -> AgentRecord:
        """Return the record in a message of `to_message`; its texts are cleaned."""
        clean_message(message, MAX_TEXT)
        return cls(
            ConnectedAgent(
                agent_id=message.agent_id,
                agent_name=message.agent_name,
                instance_id=message.instance_id,
                generation=message.generation,
                project_id=message.project_id,
                connected_at=min(message.connected_at_ms / 1000, LATEST),
                version=message.version,
                commit_id=message.commit_id,
                pod_namespace=message.pod_namespace,
                pod_name=message.pod_name,
                kubernetes_version=KubernetesVersion(
                    message.kubernetes_major,
                    message.kubernetes_minor,
                    message.kubernetes_git_version,
                    message.kubernetes_platform,
                ),
                cluster_problem=message.cluster_problem,
            ),
            kas_id=message.kas_id,
            kas_url=message.kas_url,
        )


@attrs.frozen
class KasRecord:
    """Process of a kas, as other kas see it."""

    kas_id: bytes
    url: str
    #: Number of connections of agents.
    agents: int = 0
    #: Whether the kas is stopping.
    draining: bool = False
    version: str = ""

    def to_message(self) -> pb.KasRecord:
        """Return the message that kas send and store."""
        return pb.KasRecord(
            kas_id=self.kas_id,
            url=self.url,
            agents=self.agents,
            draining=self.draining,
            version=self.version,
        )

    @classmethod
    def from_message(cls, message: pb.KasRecord) -> KasRecord:
        """Return the record in a message of `to_message`; its texts are cleaned."""
        clean_message(message, MAX_TEXT)
        return cls(
            message.kas_id,
            message.url,
            message.agents,
            message.draining,
            message.version,
        )
