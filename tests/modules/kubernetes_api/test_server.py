"""The module as the programs see it: started, drained, measured, stopped."""

from __future__ import annotations

import attrs
from prometheus_client import generate_latest
from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from modules.kubernetes_api.config import KubernetesApiConfiguration
from tests.modules.kubernetes_api.cases import EXEC, HELLO, ProxyCase
from tests.modules.kubernetes_api.pair import ROOT
from tests.tunnel.http1.pools import Answer
from tunnel.api import (
    CredentialRevoked,
    Draining,
    IAgentModule,
    IAgentModuleFactory,
    IServerModule,
    IServerModuleFactory,
    Usage,
)
from tunnel.errors import CallError, Status


class ModuleTests(ProxyCase):
    """As the programs see the module."""

    def test_interfaces(self) -> None:
        """Both halves and their factories."""
        verifyObject(IServerModule, self.world.server)
        verifyObject(IAgentModule, self.world.agent)
        verifyObject(IServerModuleFactory, type(self.world.server), tentative=True)
        verifyObject(IAgentModuleFactory, type(self.world.agent), tentative=True)

    def test_start_and_stop(self) -> None:
        """Listening where the section says, and nothing left afterwards."""
        server, agent = self.world.server, self.world.agent
        self.successResultOf(Deferred.fromCoroutine(agent.start()))
        self.successResultOf(Deferred.fromCoroutine(server.start()))
        ((listen, factory),) = self.world.server_api.listening
        self.assertEqual(listen, KubernetesApiConfiguration().listen)
        self.assertEqual(listen.address, "127.0.0.1:8154")
        self.assertIs(factory, server.front)
        busy = self.world.request()
        self.successResultOf(Deferred.fromCoroutine(server.stop()))
        self.assertTrue(busy.aborted)
        subscribers = self.world.server_api.subscribers
        self.assertEqual(subscribers, {CredentialRevoked: [], Draining: []})
        self.successResultOf(Deferred.fromCoroutine(agent.stop()))
        for origin in self.world.cluster.connections.wires:
            origin.settle()
        self.assert_clean()
        # Made and started once more, as after a failure.
        self.successResultOf(Deferred.fromCoroutine(server.start()))
        self.successResultOf(Deferred.fromCoroutine(server.stop()))

    def test_agent_half_stops(self) -> None:
        """Its requests end with 503; what else runs in agentk's pool goes on."""
        world = self.world
        client = world.request()
        other = Answer()
        world.agent_api.upstream.request(b"GET", b"/version", b"", other)
        self.successResultOf(Deferred.fromCoroutine(world.agent.stop()))
        world.run()
        self.assertTrue(client.taken().startswith(b"HTTP/1.1 503 "))
        world.origin.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        self.assertEqual(other.body, b"hi")

    def test_draining(self) -> None:
        """What runs finishes, and its connection takes no further request."""
        server = self.world.server
        self.successResultOf(Deferred.fromCoroutine(server.start()))
        for told in self.world.server_api.subscribers[Draining]:
            told(Draining())
        self.assertTrue(server.front.draining)
        self.successResultOf(Deferred.fromCoroutine(server.stop()))

    def test_metrics(self) -> None:
        """Bounded labels, and numbers that add up."""
        self.successResultOf(Deferred.fromCoroutine(self.world.server.start()))
        self.successResultOf(Deferred.fromCoroutine(self.world.agent.start()))
        self.world.request()
        self.world.origin.receive(HELLO)
        self.world.run()
        self.world.request(token=b"nonsense")
        self.world.request(*EXEC)
        text = generate_latest(self.world.server_api.metrics).decode()
        for line in (
            'kas_kubernetes_api_requests_total{code="2xx"} 1.0',
            'kas_kubernetes_api_requests_total{code="4xx"} 1.0',
            'kas_kubernetes_api_failures_total{hop="client -> kas"} 1.0',
            "kas_kubernetes_api_requests_in_flight 1.0",
            'kas_kubernetes_api_bytes_total{direction="response"} 5.0',
            'kas_kubernetes_api_head_seconds_bucket{le="+Inf"} 1.0',
            "kas_kubernetes_api_head_seconds_count 1.0",
        ):
            self.assertIn(line + "\n", text)
        text = generate_latest(self.world.agent_api.metrics).decode()
        self.assertIn('agentk_kubernetes_api_requests_total{code="2xx"} 1.0', text)

    def test_credential_checks_fail(self) -> None:
        """Statuses of the authorizer, and a bug of it."""
        for error, code in (
            (CallError(Status.PERMISSION_DENIED, "does not belong to the peer"), 403),
            (CallError(Status.UNAVAILABLE, "no GitLab"), 503),
            (CallError(Status.UNAUTHENTICATED, "who"), 401),
            (RuntimeError("bug"), 500),
        ):
            self.world.server_api.access["bad"] = error
            wire = self.world.request(token=b"user:1:bad")
            self.assert_error(wire, code)
            self.assertFalse(wire.disconnecting)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assert_clean()

    def test_usage(self) -> None:
        """What was let in is counted, as its credential says; nothing else is."""
        usage = Usage(counters=("by_a_job",), unique=(("jobs", 5),))
        access = self.world.server_api.access
        access["job"] = attrs.evolve(ROOT, usage=usage)
        access["bad"] = CallError(Status.UNAUTHENTICATED, "who")
        for token in (b"root", b"job", b"bad"):
            self.world.request(token=b"user:1:" + token)
        plain = Usage(counters=("k8s_api_proxy_request",))
        self.assertEqual(self.world.server_api.used, [plain, usage])

    def test_root_is_not_impersonated(self) -> None:
        """``access_as: agent``: no Impersonate header of ours."""
        self.assertIsNone(ROOT.impersonation)
        self.world.request(token=b"user:1:root")
        self.assertNotIn(b"Impersonate", self.world.origin.taken())
