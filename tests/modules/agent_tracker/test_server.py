"""Which agents are connected, as GitLab and others are told."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from modules.agent_tracker import list_pb2, rpc_pb2
from modules.agent_tracker.server import (
    AGENTS,
    MAX_IDS,
    TRACKER,
    AgentTrackerServer,
    connection_id,
)
from tunnel.api import ConnectedAgent, IServerModule, KubernetesVersion
from tunnel.errors import CallError, Status
from tunnel.testing import ModulePair

PROD = ConnectedAgent(
    agent_id="7",
    agent_name="prod",
    instance_id=bytes(range(16)),
    generation=1,
    connected_at=1_800_000_000.25,
    version="1.2.3",
    commit_id="abc",
    pod_namespace="gitlab",
    pod_name="agentk-0",
    kubernetes_version=KubernetesVersion("1", "36", "v1.36.1", "linux/amd64"),
    project_id=42,
)
OTHER = attrs.evolve(PROD, agent_id="8", agent_name="dev", instance_id=b"\xff" * 16)
TEXT = attrs.evolve(PROD, agent_id="local", agent_name="local", project_id=0)


class TrackerTests(SynchronousTestCase):
    """The module behind an external API in memory."""

    def setUp(self) -> None:
        self.pair = ModulePair(Clock())
        self.module = self.pair.server_half(AgentTrackerServer)
        self.api = self.module._api
        self.known = [PROD, OTHER, TEXT]
        self.api.agents.connected = lambda: self.known
        self.pair.start()

    def ask(self, method: str, request: Any, service: Any = TRACKER) -> Any:
        return self.pair.run(self.pair.external(service).call(method, request))

    def connected(self, **which: int) -> Any:
        request = rpc_pb2.GetConnectedAgentsRequest(**which)
        return self.ask("GetConnectedAgents", request).agents

    def refused(self, method: str, request: Any) -> str:
        with self.assertRaises(CallError) as caught:
            self.ask(method, request)
        self.assertIs(caught.exception.status, Status.INVALID_ARGUMENT)
        (why,) = caught.exception.details
        self.assertEqual(why.type_url, "type.googleapis.com/google.rpc.BadRequest")
        message: str = caught.exception.message
        return message

    def test_interface(self) -> None:
        """It is a module."""
        self.assertTrue(verifyObject(IServerModule, self.module))

    def test_one_agent(self) -> None:
        """Everything that it said of itself, under GitLab's names."""
        (info,) = self.connected(agent_id=7)
        self.assertEqual(info.agent_id, 7)
        self.assertEqual(info.project_id, 42)
        self.assertEqual(info.connection_id, 0x0001020304050607)
        self.assertEqual(info.connected_at.ToMilliseconds(), 1_800_000_000_250)
        meta = info.agent_meta
        self.assertEqual((meta.version, meta.commit_id), ("1.2.3", "abc"))
        self.assertEqual((meta.pod_namespace, meta.pod_name), ("gitlab", "agentk-0"))
        self.assertEqual(meta.kubernetes_version.git_version, "v1.36.1")
        self.assertEqual(list(self.connected(agent_id=9)), [])

    def test_numbers(self) -> None:
        """The numbers on the wire are those of GitLab's kas."""
        request = rpc_pb2.GetConnectedAgentsRequest(agent_id=7)
        self.assertEqual(request.SerializeToString(), b"\x10\x07")
        info = rpc_pb2.ConnectedAgentInfo.DESCRIPTOR.fields_by_name
        self.assertEqual(
            {name: field.number for name, field in info.items()},
            {
                "agent_meta": 1,
                "connected_at": 2,
                "connection_id": 3,
                "agent_id": 4,
                "project_id": 5,
            },
        )
        name = "gitlab.agent.agent_tracker.rpc.AgentTracker"
        self.assertEqual(TRACKER.full_name, name)

    def test_project(self) -> None:
        """All agents of one."""
        found = [info.agent_id for info in self.connected(project_id=42)]
        self.assertEqual(found, [7, 8])

    def test_several(self) -> None:
        """Each once."""
        request = rpc_pb2.GetConnectedAgentsByAgentIDsRequest(agent_ids=[8, 7, 8, 99])
        answer = self.ask("GetConnectedAgentsByAgentIDs", request)
        self.assertEqual([info.agent_id for info in answer.agents], [8, 7])

    def test_bad_requests(self) -> None:
        """What makes no sense is refused with a reason."""
        one = rpc_pb2.GetConnectedAgentsRequest
        several = rpc_pb2.GetConnectedAgentsByAgentIDsRequest
        for request in (one(), one(agent_id=0), one(agent_id=-1), one(project_id=0)):
            self.refused("GetConnectedAgents", request)
        self.refused("GetConnectedAgentsByAgentIDs", several(agent_ids=[1, 0]))
        many = several(agent_ids=range(1, MAX_IDS + 2))
        self.assertIn("at most", self.refused("GetConnectedAgentsByAgentIDs", many))
        most = several(agent_ids=range(1, MAX_IDS + 1))
        self.ask("GetConnectedAgentsByAgentIDs", most)

    def test_several_agents_with_very_many_connections(self) -> None:
        """The response has a limit, however many agents have connections."""
        self.known = [
            attrs.evolve(PROD, agent_id=str(number), pod_name="pod-" * 250)
            for number in range(1, 6)
            for _ in range(900)
        ]
        several = rpc_pb2.GetConnectedAgentsByAgentIDsRequest
        most = self.ask("GetConnectedAgentsByAgentIDs", several(agent_ids=[1, 2, 3]))
        self.assertEqual(len(most.agents), 2700)
        with self.assertRaises(CallError) as caught:
            self.ask("GetConnectedAgentsByAgentIDs", several(agent_ids=range(1, 6)))
        self.assertIs(caught.exception.status, Status.RESOURCE_EXHAUSTED)
        self.assertIn("request fewer agents", caught.exception.message)

    def test_ids_that_are_no_numbers(self) -> None:
        """They are left out, and that is said once."""
        observer = EventLoggingObserver()
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        for odd in ("local", "-1", "0", "9" * 19, "٣", "1" * 30):
            self.known = [attrs.evolve(PROD, agent_id=odd)]
            self.assertEqual(list(self.connected(project_id=42)), [], odd)
        warned = [one for one in observer if one["log_level"].name == "warn"]
        self.assertEqual(len(warned), 1)

    def test_list(self) -> None:
        """Those that are no numbers, too."""
        found = self.ask("List", list_pb2.ListRequest(), AGENTS).agents
        self.assertEqual([one.agent_id for one in found], ["8", "local", "7"])

    def test_nobody_knows(self) -> None:
        """What the directory says when it is down reaches the caller."""

        async def agents(**which: Any) -> list[ConnectedAgent]:
            raise CallError(Status.UNAVAILABLE, "Redis does not answer")

        self.api.agents.find = agents
        with self.assertRaises(CallError) as caught:
            self.connected(agent_id=7)
        self.assertIs(caught.exception.status, Status.UNAVAILABLE)

    def test_connection_id(self) -> None:
        """Positive, whatever the bytes."""
        self.assertEqual(connection_id(b"\xff" * 16), 2**63 - 1)
        self.assertEqual(connection_id(bytes(16)), 1)
        self.assertEqual(connection_id(b"\x80" + bytes(15)), 1)

    def test_stopped(self) -> None:
        """It answers no more."""
        self.pair.stop()
        with self.assertRaises(CallError) as caught:
            self.connected(agent_id=7)
        self.assertIs(caught.exception.status, Status.UNIMPLEMENTED)
