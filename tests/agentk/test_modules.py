"""What agentk lends to modules, and takes back."""

from __future__ import annotations

from typing import Any, cast

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from agentk.leader_election import LeaderElection
from agentk.modules import AgentContext
from tests.agentk.dialling import DialCase
from tests.modules.kubernetes_api.pair import Cluster
from tests.proto.echo_pb2 import DESCRIPTOR, Text
from tunnel.api import (
    IAgentModuleApi,
    IGitLab,
    TunnelConnected,
    TunnelDisconnected,
)
from tunnel.errors import CallError, Status
from tunnel.hosting.api import AgentModuleApi
from tunnel.hosting.gitlab_access import SERVICE as GITLAB_ACCESS
from tunnel.hosting.scope import ModuleScope
from tunnel.hosting.sections import Sections
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import KubernetesClient, KubernetesClients, OwnNamespace
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.listening import Listening
from tunnel.program.module_ports import ModulePorts
from tunnel.program.runtime import Runtime
from tunnel.testing import RecordingReceiver

ECHO = DESCRIPTOR.services_by_name["Echo"]


class Upper:
    """Answers kas, or the agent: whoever asks."""

    async def say(self, request: Text, call: Any) -> Text:
        return Text(text=request.text.upper())

    spell = join = chat = say


class ApiTests(DialCase):
    """Each thing that the interface lists."""

    def setUp(self) -> None:
        super().setUp()
        cluster = Cluster()
        pool = UpstreamPool(cluster.endpoint, self.clock)
        self.clients = KubernetesClients(
            cast(Any, cluster),
            pool,
            self.clock,
            lambda: 0.5,
            own_namespace=OwnNamespace("txkas", is_closed=True),
        )
        self.context = AgentContext(
            sections=Sections(),
            reactor=self.clock,
            random=lambda: 0.0,
            dispatcher=self.dispatcher,
            bus=self.bus,
            metrics=CollectorRegistry(),
            kubernetes=cast(Any, self.clients),
            dialer=self.dialer,
            election=LeaderElection(
                self.clients.as_agentk(),
                "txkas",
                "pod",
                Runtime(reactor=self.clock, random=lambda: 0.0),
            ),
            ports=ModulePorts(Listening(self.clock, program="agentk")),
        )
        self.failed: list[tuple[str, Exception]] = []
        self.scopes: list[ModuleScope] = []

    def api(self, name: str = "echo") -> AgentModuleApi:
        def fail(reason: Exception) -> None:
            self.failed.append((name, reason))

        scope = ModuleScope(name, {"a": 1}, fail)
        self.scopes.append(scope)
        return self.context.make_api(scope)

    def release(self) -> None:
        """End the life of all APIs."""
        for scope in self.scopes:
            scope.release()

    def say(self, client: Any, text: str) -> Deferred[Any]:
        calling = Deferred.fromCoroutine(client.call("Say", Text(text=text), timeout=5))
        self.network.settle()
        return calling

    def test_what_only_the_leader_answers(self) -> None:
        """Another one refuses the call, so that kas tries the next."""
        api = self.api()
        api.calls.handle_as_leader(ECHO, Upper())
        name = f"/{ECHO.full_name}/Say"
        with self.assertRaises(CallError) as caught:
            self.dispatcher.accept(cast(Any, None), pb.Open(method=name))
        self.assertIs(caught.exception.status, Status.UNAVAILABLE)

    def test_interface(self) -> None:
        """All of it is there."""
        api = self.api()
        verifyObject(IAgentModuleApi, api)
        self.assertIs(api.kubernetes.cluster_as_agentk, self.clients.cluster_as_agentk)
        self.assertIs(api.kubernetes.upstream, self.clients.upstream)
        self.assertIsInstance(api.kubernetes.as_agentk(), KubernetesClient)
        self.assertRaises(CallError, api.kubernetes.acting_for, None)
        self.assertEqual(api.kubernetes.own_namespace.keep_records(), "txkas")
        self.assertIs(api.clock, self.clock)
        self.assertEqual(api.configuration, {"a": 1})

    def test_gitlab_is_asked_as_this_module_alone(self) -> None:
        """No module can say that it is another one."""
        api = self.api()
        verifyObject(IGitLab, api.gitlab)
        self.assertRaises(ValueError, api.calls.client, GITLAB_ACCESS)

    def test_agent_id(self) -> None:
        """Empty until kas said it, and known from then on."""
        api = self.api()
        self.assertEqual(api.agent_id, "")
        self.start()
        self.assertEqual(api.agent_id, "7")
        self.network.tunnel().end(0, "")  # type: ignore[arg-type]
        self.network.settle()
        self.assertEqual(api.agent_id, "7")

    def test_calls_kas(self) -> None:
        """What is served there is answered."""
        self.world.dispatcher.handle("tests", ECHO, Upper())
        self.start()
        answer = self.successResultOf(self.say(self.api().calls.client(ECHO), "hi"))
        self.assertEqual(answer.text, "HI")

    def test_kas_does_not_serve_it(self) -> None:
        """An older kas, or one without the module."""
        self.start()
        failure = self.failureResultOf(self.say(self.api().calls.client(ECHO), "hi"))
        self.assertEqual(failure.value.status, Status.UNIMPLEMENTED)

    def test_no_tunnel(self) -> None:
        """A call fails at once, and says what is wrong with the tunnel."""
        calling = self.say(self.api().calls.client(ECHO), "hi")
        failure = self.failureResultOf(calling, CallError)
        self.assertEqual(failure.value.status, Status.UNAVAILABLE)
        self.assertIn("not connected yet", str(failure.value))

    def test_answers_kas(self) -> None:
        """Calls and raw streams reach their handlers, until they are withdrawn."""
        receiver = RecordingReceiver()
        api = self.api()
        api.calls.handle(ECHO, Upper())
        api.calls.handle_stream("/raw", lambda stream, open_: receiver)
        self.start()
        self.network.tunnel().open_stream(
            pb.Open(method="/raw"), RecordingReceiver()
        ).write(b"x")
        self.network.settle()
        self.assertEqual(receiver.data, b"x")
        self.assertEqual(self.dispatcher.services, ["", "tests.proto.Echo"])
        self.release()
        self.assertEqual(self.dispatcher.services, [])

    def test_events(self) -> None:
        """The tunnel comes and goes; the release of a module ends its subscriptions."""
        heard: list[TunnelConnected | TunnelDisconnected] = []
        self.api().events.subscribe(TunnelConnected, heard.append)
        self.api().events.subscribe(TunnelDisconnected, heard.append)
        self.start()
        self.network.tunnel().end(0, "")  # type: ignore[arg-type]
        self.network.settle()
        self.assertEqual(heard, [TunnelConnected("7"), TunnelDisconnected("7")])
        self.release()
        self.later(5)
        self.assertEqual(heard, [TunnelConnected("7"), TunnelDisconnected("7")])

    def test_fail(self) -> None:
        """The host is told which module it is."""
        reason = ValueError()
        self.api("echo").fail(reason)
        self.assertEqual(self.failed, [("echo", reason)])
