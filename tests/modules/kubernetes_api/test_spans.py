"""What OpenTelemetry is told of a request."""

from __future__ import annotations

from tests.modules.kubernetes_api.cases import CHUNKED, EXEC, HELLO, SWITCH, ProxyCase
from tests.modules.kubernetes_api.pair import World
from tunnel.api import (
    CredentialRevoked,
    SpanKind,
)
from tunnel.testing import FakeSpan

PODS = b"GET /api/v1/namespaces/shop/pods?limit=5 HTTP/1.1"
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class SpanTests(ProxyCase):
    """One span in kas, one in agentk, each below the one before."""

    def setUp(self) -> None:
        self.world = World(traced=True)

    @property
    def at_kas(self) -> FakeSpan:
        return self.one(self.world.server_api.tracer)

    @property
    def at_agentk(self) -> FakeSpan:
        return self.one(self.world.agent_api.tracer)

    def one(self, tracer: object) -> FakeSpan:
        spans: list[FakeSpan] = tracer.spans  # type: ignore[attr-defined]
        self.assertEqual(len(spans), 1)
        return spans[0]

    def test_answered(self) -> None:
        """Both end with the answer, and the API server goes on with the trace."""
        self.world.request(PODS)
        sent = self.world.origin.taken()
        kas, agentk = self.at_kas, self.at_agentk
        self.assertEqual((kas.ended, agentk.ended), (False, False))
        self.world.origin.receive(HELLO)
        self.world.run()
        self.assertEqual((kas.ended, agentk.ended), (True, True))
        self.assertEqual((kas.problem, agentk.problem), ("", ""))
        self.assertEqual((kas.kind, agentk.kind), (SpanKind.SERVER, SpanKind.CLIENT))
        self.assertEqual((kas.parent, agentk.parent), (None, kas.traceparent))
        self.assertIn(b"Traceparent: " + agentk.traceparent.encode(), sent)
        self.assertEqual(sent.lower().count(b"traceparent"), 1)
        for span in kas, agentk:
            self.assertEqual(span.name, "list pods")
            self.assertEqual(span.attributes["http.response.status_code"], 200)
            self.assertEqual(span.attributes["k8s.namespace.name"], "shop")
            path = "/api/v1/namespaces/shop/pods"
            self.assertEqual(span.attributes["url.path"], path)
        self.assertEqual(kas.attributes["txkas.agent.id"], "1")
        self.assert_clean()

    def test_traced_by_the_client(self) -> None:
        """Its trace goes on."""
        self.world.request(PODS, b"traceparent: " + CALLER.encode())
        self.assertEqual(self.at_kas.parent, CALLER)
        self.assertNotIn(CALLER.encode(), self.world.origin.taken())

    def test_of_two_neither(self) -> None:
        """Servers would go on with different ones."""
        line = b"traceparent: " + CALLER.encode()
        self.world.request(PODS, line, line)
        self.assertIsNone(self.at_kas.parent)
        self.assertEqual(self.world.origin.taken().lower().count(b"traceparent"), 1)

    def test_not_traced(self) -> None:
        """The request is passed on as it came, and agentk begins nothing."""
        tracer = self.world.server_api.tracer
        assert tracer is not None
        tracer.begins = False
        self.world.request(PODS)
        self.assertNotIn(b"traceparent", self.world.origin.taken().lower())
        agents = self.world.agent_api.tracer
        assert agents is not None
        self.assertEqual((tracer.spans, agents.spans), ([], []))

    def test_refused_before_it_is_known_who_asks(self) -> None:
        """A stranger makes no spans."""
        self.world.request(PODS, token=b"user:1:stranger")
        tracer = self.world.server_api.tracer
        assert tracer is not None
        self.assertEqual(tracer.spans, [])

    def test_api_server_away(self) -> None:
        """The spans say why, and with which status."""
        self.world.cluster.token = b"bad\ntoken"
        self.world.request(PODS)
        self.flushLoggedErrors(ValueError)
        for span in self.at_kas, self.at_agentk:
            self.assertTrue(span.ended)
            self.assertEqual(span.attributes["http.response.status_code"], 502)
        self.assertIn("no credentials", self.at_agentk.problem)

    def test_agent_away(self) -> None:
        """The span of kas has what the client is told."""
        self.world.link.connected = False
        self.world.request(PODS)
        self.assertIn("is not connected", self.at_kas.problem)
        self.assertEqual(self.at_kas.attributes["http.response.status_code"], 503)

    def test_client_gone(self) -> None:
        """In the middle of an answer."""
        wire = self.world.request(PODS)
        self.world.origin.receive(CHUNKED + b"2\r\nhi\r\n")
        self.world.run()
        wire.lose()
        self.world.run()
        for span in self.at_kas, self.at_agentk:
            self.assertTrue(span.ended)
            self.assertEqual(span.problem, "the response ended early")

    def assert_ended(self, *, status: int) -> None:
        for span in self.at_kas, self.at_agentk:
            self.assertTrue(span.ended, span)
            self.assertEqual(span.attributes["http.response.status_code"], status)

    def test_upgraded(self) -> None:
        """As long as the connection, which either side may end."""
        for by_client in True, False:
            self.world = World(traced=True)
            wire = self.world.request(*EXEC)
            self.world.origin.receive(SWITCH + b"raw")
            self.world.run()
            self.assertFalse(self.at_kas.ended or self.at_agentk.ended)
            if by_client:
                wire.lose()
            else:
                self.world.origin.lose()
                self.world.run()
                wire.receive_end()
            self.world.run()
            self.assert_ended(status=101)

    def test_revoked(self) -> None:
        """In the middle of a watch."""
        self.world.request(b"GET /api/v1/pods?watch=1 HTTP/1.1")
        self.world.origin.receive(CHUNKED + b"2\r\nhi\r\n")
        self.world.run()
        self.world.server._revoked(CredentialRevoked("user:alice"))
        self.world.run()
        self.assert_ended(status=200)
