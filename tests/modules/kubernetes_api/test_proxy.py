"""Requests all the way: client, kas, tunnel, agentk, API server."""

from __future__ import annotations

import json
from typing import Any

import attrs
from prometheus_client import generate_latest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from modules.kubernetes_api.config import KubernetesApiConfiguration
from tests.modules.kubernetes_api.pair import ALICE, ROOT, WINDOW, World
from tests.tunnel.http1.wire import Wire
from tunnel import __version__
from tunnel.errors import CallError, ErrorCode, SessionClosed, Status
from tunnel.interfaces import (
    IAgentModule,
    IAgentModuleFactory,
    IServerModule,
    IServerModuleFactory,
)

VERSION = __version__.encode()
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EXEC = (
    b"POST /api/v1/namespaces/a/pods/b/exec?command=sh&stdin=true HTTP/1.1",
    b"Connection: Upgrade",
    b"Upgrade: SPDY/3.1",
    b"Content-Length: 0",
)
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\n"
    b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
)


def status_of(wire: Wire) -> tuple[int, dict[str, Any], bytes]:
    """Status, the Status object, and the head of an error."""
    head, _, body = wire.taken().partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body), head


class ProxyCase(SynchronousTestCase):
    """A world to try things in, that must be clean in the end."""

    def setUp(self) -> None:
        self.world = World()

    def assert_clean(self) -> None:
        """Nothing is left of any request."""
        self.world.run()
        self.assertEqual({k: v for k, v in self.world.counts().items() if v}, {})
        self.assertEqual(self.world.link.errors, [])

    def assert_error(self, wire: Wire, code: int, *parts: str) -> bytes:
        """A Kubernetes Status whose message says *parts*; the head of the answer."""
        got, status, head = status_of(wire)
        self.assertEqual((got, status["code"]), (code, code), status)
        self.assertEqual((status["kind"], status["apiVersion"]), ("Status", "v1"))
        self.assertEqual(status["status"], "Failure")
        for part in parts:
            self.assertIn(part, status["message"])
        return head


class RequestTests(ProxyCase):
    """What arrives at the API server, and what comes back."""

    def test_get(self) -> None:
        """The request, changed as contracts say, and the answer."""
        wire = self.world.request(
            b"GET /api/v1/pods?a=%2f%2F;&b=+ HTTP/1.1",
            b"Accept: x",
            b"Cookie: secret",
            b"Gitlab-Agent-Id: 1",
            b"X-Csrf-Token: t",
            b"Connection: keep-alive, X-Hop",
            b"X-Hop: 1",
            b"TE: trailers",
        )
        self.assertEqual(
            self.world.origin.taken(),
            b"GET /api/v1/pods?a=%2f%2F;&b=+ HTTP/1.1\r\n"
            b"Accept: x\r\n"
            b"Impersonate-User: alice\r\n"
            b"Impersonate-Group: dev\r\nImpersonate-Group: ops\r\n"
            b"Host: 10.0.0.1:6443\r\n"
            b"Via: 1.1 gitlab-kas/VERSION/feed, 1.1 gitlab-agent/VERSION\r\n"
            b"Authorization: Bearer agent-token\r\n\r\n".replace(b"VERSION", VERSION),
        )
        self.world.origin.receive(
            b"HTTP/1.1 200 OK\r\nContent-Type: x\r\nWarning: w\r\nServer: s\r\n"
            b"Access-Control-Allow-Origin: *\r\nSet-Cookie: a\r\n"
            b"Clear-Site-Data: *\r\nGitlab-Unauthorized: true\r\n"
            b"Txkas-Failed-Hop: api-server\r\nContent-Length: 5\r\n\r\nhello"
        )
        self.world.run()
        self.assertEqual(
            wire.taken(),
            b"HTTP/1.1 200 OK\r\nContent-Type: x\r\nWarning: w\r\nServer: s\r\n"
            b"Via: 1.1 gitlab-agent/VERSION, 1.1 gitlab-kas/VERSION/feed\r\n"
            b"Content-Length: 5\r\n\r\nhello".replace(b"VERSION", VERSION),
        )
        self.assertEqual(wire.writes, 1)
        self.assertEqual(self.world.server.metrics.failures, {})
        self.assert_clean()

    def test_path_names_the_agent(self) -> None:
        """The other way in is the same request behind the door."""
        for target, expected in (
            (b"/agents/agent-1/api?x", b"/api?x"),
            (b"/agents/agent-1?x", b"/?x"),
            (b"/agents/1//api//v1/", b"//api//v1/"),
            (b"/agents/1/agents/2/x", b"/agents/2/x"),
        ):
            wire = self.world.request(b"GET " + target + b" HTTP/1.1", token=b"alice")
            self.assertIn(
                b"GET " + expected + b" HTTP/1.1\r\n", self.world.origin.taken()
            )
            self.world.origin.receive(HELLO)
            self.world.run()
            self.assertIn(b" 200 ", wire.taken())
        self.assertEqual(self.world.server_api.asked[0], ("user", "agent-1", "alice"))

    def test_prefix(self) -> None:
        """Stripped, one slash kept; anything else is 400 before any look-up."""
        self.world = World(url_path_prefix="/k8s-proxy")
        for target, expected in (
            (b"/k8s-proxy/api", b"/api"),
            (b"/k8s-proxy", b"/"),
            (b"/k8s-proxy/?x", b"/?x"),
            (b"/k8s-proxy/agents/1/api", b"/api"),
        ):
            self.world.request(b"GET " + target + b" HTTP/1.1")
            self.assertIn(
                b"GET " + expected + b" HTTP/1.1\r\n", self.world.origin.taken()
            )
        asked = len(self.world.server_api.asked)
        for target in (
            b"/api",
            b"/k8s-proxyx/api",
            b"/k8s-proxy%2Fapi",
            b"//k8s-proxy/",
        ):
            wire = self.world.request(b"GET " + target + b" HTTP/1.1")
            self.assert_error(wire, 400, "client -> kas", "/k8s-proxy/")
        self.assertEqual(len(self.world.server_api.asked), asked)

    def test_cluster_below_a_path(self) -> None:
        """A cluster may live below a path of its server."""
        self.world.cluster.path_prefix = "/k8s/clusters/c-1/"
        self.world.request(b"GET /api?x HTTP/1.1")
        self.assertIn(b"GET /k8s/clusters/c-1/api?x ", self.world.origin.taken())

    def test_bodies_and_trailers(self) -> None:
        """Both ways, of known and unknown length."""
        wire = self.world.request(
            b"POST /api HTTP/1.1",
            b"Transfer-Encoding: chunked",
            body=b"3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n",
        )
        request = self.world.origin.taken()
        self.assertIn(b"Transfer-Encoding: chunked\r\n", request)
        self.assertTrue(request.endswith(b"\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n"))
        self.world.origin.receive(CHUNKED + b"2\r\nhi\r\n0\r\nX-U: 2\r\n\r\n")
        self.world.run()
        self.assertTrue(
            wire.taken().endswith(b"\r\n\r\n2\r\nhi\r\n0\r\nX-U: 2\r\n\r\n")
        )
        wire.receive(
            b"PUT /api HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer user:1:alice\r\n"
            b"Content-Length: 3\r\n\r\nabc"
        )
        self.world.run()
        self.assertIn(b"Content-Length: 3\r\n", self.world.origin.taken())
        self.world.origin.receive(HELLO)
        self.world.run()
        self.assertTrue(wire.taken().endswith(b"hello"))
        self.assertEqual(len(self.world.cluster.connections.wires), 1)
        self.assert_clean()

    def test_head(self) -> None:
        """The length of what does not follow is kept."""
        wire = self.world.request(b"HEAD /api HTTP/1.1")
        self.world.origin.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        self.world.run()
        self.assertTrue(wire.taken().endswith(b"Content-Length: 5\r\n\r\n"))
        self.assert_clean()

    def test_expect_continue(self) -> None:
        """Only the API server's 100 lets the client send."""
        wire = self.world.request(
            b"POST /api HTTP/1.1", b"Content-Length: 3", b"Expect: 100-continue"
        )
        self.assertIn(b"Expect: 100-continue\r\n", self.world.origin.taken())
        self.assertEqual(wire.taken(), b"")
        self.world.origin.receive(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.world.run()
        self.assertEqual(wire.taken(), b"HTTP/1.1 100 Continue\r\n\r\n")
        wire.receive(b"abc")
        self.world.run()
        self.assertEqual(self.world.origin.taken(), b"abc")
        self.world.origin.receive(HELLO)
        self.world.run()
        self.assertIn(b" 200 ", wire.taken())
        self.assert_clean()

    def test_watch_event_passes_at_once(self) -> None:
        """40 bytes need no more than one turn at each hop (lesson 31)."""
        wire = self.world.request(b"GET /api/v1/pods?watch=true HTTP/1.1")
        self.world.origin.receive(CHUNKED)
        self.world.run()
        self.assertIn(b" 200 ", wire.taken())
        before = self.world.clock.seconds()
        self.world.origin.receive(b"28\r\n" + b"x" * 40 + b"\r\n")
        self.world.run()
        self.assertEqual(wire.taken(), b"28\r\n" + b"x" * 40 + b"\r\n")
        self.assertEqual(self.world.clock.seconds(), before)

    def test_two_thousand_watches(self) -> None:
        """Through one agent and credential limits that allow it (lesson 43)."""
        self.world = World(max_requests_per_credential=3000)
        wires = []
        for _ in range(2000):
            wires.append(self.world.request(b"GET /watch HTTP/1.1"))
            self.world.origin.receive(CHUNKED + b"1\r\nx\r\n")
        self.world.run()
        self.assertTrue(all(wire.taken().endswith(b"1\r\nx\r\n") for wire in wires))
        for wire in wires:
            wire.lose(clean=False)
        self.world.run()
        for wire in self.world.cluster.connections.wires:
            wire.settle()
        self.assert_clean()

    def test_early_answer(self) -> None:
        """An answer before the body's end: the rest is dropped at every hop."""
        wire = self.world.request(
            b"POST /api HTTP/1.1", b"Content-Length: 100", body=b"abc"
        )
        self.world.origin.receive(HELLO)
        self.world.run()
        self.assertIn(b"Connection: close\r\n", wire.taken())
        wire.receive(b"x" * 97 + b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
        self.world.origin.settle()
        self.assert_clean()
        self.assertEqual(len(self.world.link.opened), 1)

    def test_kept_connection(self) -> None:
        """Requests follow each other on one connection of the client."""
        wire = self.world.request()
        for _ in range(3):
            self.world.origin.receive(HELLO)
            self.world.run()
            self.assertIn(b"hello", wire.taken())
            wire.receive(
                b"GET /b HTTP/1.1\r\nHost: a\r\n"
                b"Authorization: Bearer user:1:alice\r\n\r\n"
            )
            self.world.run()
        self.assertEqual(len(self.world.cluster.connections.wires), 1)

    def test_authorization_later(self) -> None:
        """A credential that must be looked up: the body waits, nothing is lost."""
        waiting: Deferred[Any] = Deferred()
        self.world.server_api.access["slow"] = waiting
        wire = self.world.request(
            b"PUT /api HTTP/1.1",
            b"Content-Length: 3",
            token=b"user:1:slow",
            body=b"abc",
        )
        self.assertEqual(self.world.link.opened, [])
        waiting.callback(ALICE)
        self.world.run()
        self.assertTrue(self.world.origin.taken().endswith(b"\r\n\r\nabc"))
        self.world.origin.receive(HELLO)
        self.world.run()
        self.assertIn(b"hello", wire.taken())
        self.assert_clean()

    def test_client_leaves_before_authorization(self) -> None:
        """The answer of the look-up is of no more interest."""
        waiting: Deferred[Any] = Deferred()
        self.world.server_api.access["slow"] = waiting
        wire = self.world.request(token=b"user:1:slow")
        wire.lose(clean=False)
        waiting.callback(ALICE)
        self.assertEqual(self.world.link.opened, [])
        self.assert_clean()


class BackPressureTests(ProxyCase):
    """Nothing grows when somebody does not read."""

    def test_slow_client(self) -> None:
        """Its socket stops the stream, the stream the API server (lesson 22)."""
        wire = self.world.request()
        self.world.origin.receive(CHUNKED)
        self.world.run()
        assert wire.producer is not None
        wire.producer.pauseProducing()
        piece = b"8000\r\n" + b"x" * 32768 + b"\r\n"
        for _ in range(100):
            self.world.origin.receive(piece)
            self.world.run()
        self.assertLess(self.world.link.most, 2 * WINDOW)
        self.assertEqual(self.world.origin.producerState, "paused")
        wire.taken()
        wire.producer.resumeProducing()
        self.world.run()
        self.assertEqual(len(wire.taken()), 100 * len(piece))

    def test_slow_api_server(self) -> None:
        """Its socket stops the stream, the stream the client."""
        wire = self.world.request(b"PUT /api HTTP/1.1", b"Content-Length: 3276800")
        producer = self.world.origin.producer
        assert producer is not None
        producer.pauseProducing()
        for _ in range(100):
            wire.receive(b"x" * 32768)
            self.world.run()
        self.assertLess(self.world.link.most, 2 * WINDOW)
        self.assertEqual(wire.producerState, "paused")
        self.world.origin.taken()
        producer.resumeProducing()
        self.world.run()
        self.assertEqual(len(self.world.origin.taken()), 3276800)
        self.world.origin.receive(HELLO)
        self.world.run()
        self.assertIn(b"hello", wire.taken())
        self.assert_clean()

    def test_slow_client_leaves(self) -> None:
        """A paused stream is freed like any other."""
        wire = self.world.request()
        self.world.origin.receive(CHUNKED)
        self.world.run()
        assert wire.producer is not None
        wire.producer.pauseProducing()
        self.world.origin.receive(b"1\r\nx\r\n")
        self.world.run()
        wire.lose(clean=False)
        self.world.run()
        self.world.origin.settle()
        self.assert_clean()


class UpgradeTests(ProxyCase):
    """exec, attach, port-forward."""

    def test_raw_both_ways(self) -> None:
        """Early bytes of both sides, data, and each half by itself (lesson 8)."""
        wire = self.world.request(*EXEC, body=b"early client")
        origin = self.world.origin
        request = origin.taken()
        self.assertIn(b"exec?command=sh&stdin=true HTTP/1.1\r\n", request)
        self.assertIn(b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n", request)
        origin.receive(SWITCH + b"early server")
        self.world.run()
        answer = wire.taken()
        self.assertTrue(answer.startswith(b"HTTP/1.1 101 Switching Protocols\r\n"))
        self.assertIn(b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n", answer)
        self.assertTrue(answer.endswith(b"\r\n\r\nearly server"))
        self.assertEqual(origin.taken(), b"early client")
        wire.receive(b"in")
        origin.receive(b"out")
        self.world.run()
        self.assertEqual((origin.taken(), wire.taken()), (b"in", b"out"))
        wire.receive_end()
        self.world.run()
        self.assertTrue(origin.half_closed)
        origin.receive(b"last")
        self.world.run()
        self.assertEqual(wire.taken(), b"last")
        origin.receive_end()
        self.world.run()
        self.assertTrue(wire.disconnecting)
        origin.settle()
        wire.settle()
        self.assert_clean()
        self.assertEqual(self.world.server.metrics.upgrades["switched"], 1)
        self.assertEqual(self.world.server.metrics.broken, 0)

    def test_api_server_first(self) -> None:
        """The usual end of an exec: the server closes, then the client."""
        wire = self.world.request(*EXEC)
        self.world.origin.receive(SWITCH + b"bye")
        self.world.origin.lose()
        self.world.run()
        self.assertTrue(wire.taken().endswith(b"bye"))
        self.assertTrue(wire.half_closed)
        wire.receive_end()
        wire.settle()
        self.assert_clean()

    def test_api_server_breaks(self) -> None:
        """The client gets all that was read, and then the end."""
        wire = self.world.request(*EXEC)
        self.world.origin.receive(SWITCH)
        self.world.run()
        self.world.origin.receive(b"last words")
        self.world.origin.lose(clean=False)
        self.world.run()
        self.assertTrue(wire.taken().endswith(b"last words"))
        self.assertTrue(wire.half_closed)
        self.assertEqual(self.world.agent.metrics.broken, 1)
        wire.receive_end()
        wire.settle()
        self.assert_clean()

    def test_client_breaks(self) -> None:
        """At once at the API server, too."""
        wire = self.world.request(*EXEC)
        self.world.origin.receive(SWITCH)
        self.world.run()
        wire.lose(clean=False)
        self.world.run()
        self.assertTrue(self.world.origin.aborted)
        self.world.origin.settle()
        self.assert_clean()

    def test_p03_refused_upgrade(self) -> None:
        """P03: 200, 302, 403 stay HTTP, the connection closes, no pipe remains."""
        for status in (b"200 OK", b"302 Found", b"403 Forbidden"):
            wire = self.world.request(*EXEC, body=b"GET /secret HTTP/1.1\r\n\r\n")
            origin = self.world.origin
            origin.taken()
            origin.receive(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\nno")
            self.world.run()
            answer = wire.taken()
            self.assertIn(status, answer)
            self.assertIn(b"Connection: close\r\n", answer)
            wire.receive(b"GET /secret HTTP/1.1\r\n\r\n")
            self.world.run()
            self.assertEqual(origin.taken(), b"", "nothing reaches the API server")
            self.assertTrue(origin.disconnecting)
            origin.settle()
        self.assertEqual(self.world.server.metrics.upgrades["refused"], 3)
        self.assertEqual(len(self.world.link.opened), 3)
        self.assert_clean()

    def test_p03_unasked_switch(self) -> None:
        """P03: a 101 to a plain request, or to another protocol, is an error."""
        wire = self.world.request()
        self.world.origin.receive(SWITCH)
        self.world.run()
        self.assert_error(wire, 502, "agent -> API server")
        wire = self.world.request(*EXEC)
        self.world.origin.receive(SWITCH.replace(b"SPDY/3.1", b"h2c"))
        self.world.run()
        self.assert_error(wire, 502, "agent -> API server")

    def test_p04_authorization_ignores_the_method(self) -> None:
        """
        P04: a WebSocket exec by GET runs as the same user as one by POST.

        kas derives no right from a method: what an upgrade may do is decided by the API
        server for the impersonated user, in whose rules exec is ``create``.
        """
        for method in (b"GET", b"POST"):
            self.world.request(
                method + b" /api/v1/namespaces/a/pods/b/exec HTTP/1.1", *EXEC[1:]
            )
            self.assertIn(b"Impersonate-User: alice\r\n", self.world.origin.taken())

    def test_p04_exec_by_get_is_not_reading(self) -> None:
        """P04: a WebSocket exec passes no rule that lets only reading through."""
        self.world.server_api.access["looker"] = attrs.evolve(ALICE, read_only=True)
        for line in (
            b"GET /api/v1/namespaces/a/pods/b/exec?command=sh HTTP/1.1",
            b"GET /api/v1/namespaces/a/pods/b/%65xec HTTP/1.1",
            b"GET /api/v1/namespaces/a/pods/b/Attach HTTP/1.1",
            b"GET /api/v1/namespaces/a/pods/b/portforward HTTP/1.1",
            b"GET /api/v1/namespaces/a/services/b/proxy/metrics HTTP/1.1",
            b"GET /api/v1/nodes/n/proxy/exec/a/b HTTP/1.1",
            b"POST /api/v1/namespaces/a/pods HTTP/1.1",
            b"DELETE /api/v1/namespaces/a HTTP/1.1",
            b"POST /apis/authorization.k8s.io/v1/subjectaccessreviews HTTP/1.1",
        ):
            wire = self.world.request(line, *EXEC[1:], token=b"user:1:looker")
            self.assert_error(wire, 403, "may only look")
        for line in (
            b"GET /api/v1/namespaces/proxy/pods?watch=1 HTTP/1.1",
            b"HEAD /api HTTP/1.1",
            b"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1",
        ):
            self.world.request(line, token=b"user:1:looker")
            self.assertIn(b"Impersonate-User: alice\r\n", self.world.origin.taken())

    def test_h2c_is_not_passed_on(self) -> None:
        """A pipe in which other requests travel unseen is not made."""
        self.world.request(
            b"GET /api HTTP/1.1",
            b"Connection: Upgrade, HTTP2-Settings",
            b"Upgrade: h2c",
            b"HTTP2-Settings: AAMAAABk",
        )
        request = self.world.origin.taken()
        self.assertNotIn(b"h2c", request)
        self.assertNotIn(b"HTTP2-Settings", request)


class ErrorTests(ProxyCase):
    """Each error says which hop failed."""

    def test_agent_not_connected(self) -> None:
        """503 with Retry-After."""
        self.world.link.connected = False
        wire = self.world.request()
        head = self.assert_error(wire, 503, "kas -> agent", "not connected")
        self.assertIn(b"Retry-After: ", head)
        self.assert_clean()

    def test_agent_without_the_module(self) -> None:
        """502 that names the module."""
        self.world.link.handlers.clear()
        self.assert_error(self.world.request(), 502, "kas -> agent", "kubernetes_api")
        self.assert_clean()

    def test_stream_ends_early(self) -> None:
        """Before the head an error, after it a break."""
        for reason in (
            SessionClosed(ErrorCode.DEAD_PEER, "silent"),
            SessionClosed(ErrorCode.NONE),
        ):
            wire = self.world.request()
            self._close_streams(reason)
            self.assert_error(wire, 502, "kas -> agent")
            wire = self.world.request()
            self.world.origin.receive(CHUNKED)
            self.world.run()
            self.assertIn(b" 200 ", wire.taken())
            self._close_streams(reason)
            self.assertTrue(wire.aborted)
            self.assertEqual(wire.taken(), b"")
            for origin in self.world.cluster.connections.wires:
                origin.settle()
        self.assert_clean()

    def _close_streams(self, reason: Exception) -> None:
        for stream in list(self.world.link.open):
            stream.close(reason)
        self.world.link.frames.clear()

    def test_api_server_unreachable(self) -> None:
        """502 from agentk, and kas counts the hop."""
        endpoint = self.world.cluster.connections
        endpoint.at_once = False
        wire = self.world.request()
        endpoint.fail(ConnectionRefusedError())
        self.world.run()
        head = self.assert_error(wire, 502, "agent -> API server", "refused")
        self.assertNotIn(b"ailed-hop", head)
        self.assertEqual(self.world.server.metrics.failures, {"agent -> API server": 1})
        self.assert_clean()

    def test_api_server_silent(self) -> None:
        """504 when no connection comes about."""
        self.world.cluster.connections.at_once = False
        wire = self.world.request()
        self.world.clock.pump([1.0] * 12)
        self.world.run()
        self.assert_error(wire, 504, "agent -> API server")
        self.assert_clean()

    def test_api_server_breaks_off(self) -> None:
        """Before the head an error, after it a break."""
        wire = self.world.request()
        self.world.origin.lose(clean=False)
        self.world.run()
        self.assert_error(wire, 502, "agent -> API server")
        wire = self.world.request()
        self.world.origin.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
        self.world.run()
        self.world.origin.lose(clean=False)
        self.world.run()
        self.assertTrue(wire.aborted)
        self.assert_clean()

    def test_break_during_an_upload(self) -> None:
        """The connection's producer is the stream: it must not be stopped by it."""
        wire = self.world.request(
            b"PUT /api HTTP/1.1", b"Content-Length: 9", body=b"abc"
        )
        self.world.origin.lose(clean=False)
        self.world.run()
        self.assert_error(wire, 502, "agent -> API server")
        self.assert_clean()

    def test_no_credentials_of_the_agent(self) -> None:
        """A token file that cannot be read is the agent's trouble."""
        for token in (b"Bearer a\r\nX: b", None):
            self.world.cluster.token = token
            wire = self.world.request()
            if token is None:
                self.assertNotIn(b"Authorization", self.world.origin.taken())
            else:
                self.assert_error(wire, 502, "no credentials")
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_agent_token_rejected(self) -> None:
        """A 401 of the API server passes, without our mark, and is noted."""
        wire = self.world.request()
        self.world.origin.receive(
            b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
        )
        self.world.run()
        self.assertNotIn(b"Gitlab-Unauthorized", wire.taken())
        self.assertEqual(self.world.cluster.rejections, 1)

    def test_large_answer_head(self) -> None:
        """One that does not fit the tunnel is an error of that hop."""
        wire = self.world.request()
        self.world.origin.receive(
            b"HTTP/1.1 200 OK\r\nA: " + b"x" * 65480 + b"\r\nContent-Length: 0\r\n\r\n"
        )
        self.world.run()
        self.assert_error(wire, 502, "agent -> API server", "too large")
        self.flushLoggedErrors()

    def test_hostile_agent(self) -> None:
        """P06: what an agent sends is read as strictly as anything else."""
        good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
        for frames in (
            [("headers", b"HTTP/1.1 200 OK\r\nA: b\nSet-Cookie: c\r\n")],
            [("headers", b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n")],
            [("data", b"HTTP/1.1 200 OK\r\n\r\n")],
            [("fin", b"")],
            [("headers", SWITCH[:-2])],
            [("headers", b"HTTP/1.1 103 x\r\n")] * 21,
        ):
            wire = self._answer_by_hand(frames)
            self.assertIn(
                b" 502 ", wire.taken().replace(b"HTTP/1.1 103 x\r\n\r\n", b"")
            )
        for frames in (
            [("headers", good), ("data", b"abc")],
            [("headers", good), ("data", b"a"), ("fin", b"")],
            [("headers", good), ("headers", b"A b\r\n")],
            [("headers", good), ("headers", b"A: b\r\n"), ("headers", b"A: b\r\n")],
        ):
            wire = self._answer_by_hand(frames)
            self.assertTrue(wire.aborted, frames)
        self.assert_clean()

    def _answer_by_hand(self, frames: list[tuple[str, bytes]]) -> Wire:
        class Silent:
            def fin_received(self) -> None:
                pass

            def stream_closed(self, reason: object) -> None:
                pass

        streams = []

        def accept(stream: Any, opened: Any) -> Silent:
            streams.append(stream)
            return Silent()

        method = next(iter(self.world.link.handlers))
        self.world.link.handlers[method] = accept
        wire = self.world.request()
        for kind, data in frames:
            if kind == "fin":
                streams[0].finish()
            elif kind == "data":
                streams[0].write(data)
            else:
                streams[0].send_headers(data)
        self.world.run()
        for stream in streams:
            stream.close(None)
        return wire


class AbortTests(ProxyCase):
    """Requests that end before they should."""

    def test_ten_thousand_aborts(self) -> None:
        """At every phase, by client, tunnel and API server: all counters at zero."""
        world = self.world
        for number in range(10_000):
            phase, who = number % 7, number // 7 % 3
            world.cluster.connections.at_once = phase != 0
            wire = world.client()
            if phase in (5, 6):
                lines = b"\r\n".join(EXEC) + b"\r\n"
            else:
                lines = b"POST /api HTTP/1.1\r\nContent-Length: 6\r\n"
            wire.receive(
                lines + b"Host: a\r\nAuthorization: Bearer user:1:alice\r\n\r\n"
            )
            world.run()
            if phase in (2, 3):
                wire.receive(b"abc")
            if phase == 3:
                world.run()
                world.origin.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab")
                world.run()
            if phase == 4:
                wire.receive(b"abcdef")
                world.run()
                world.origin.receive(CHUNKED + b"1\r\nx\r\n")
            if phase == 6:
                world.origin.receive(SWITCH + b"abc")
                world.run()
                wire.receive(b"abc")
            origin = None if phase == 0 else world.origin
            if who == 0 or origin is None:
                wire.lose(clean=False)
            elif who == 1:
                for stream in list(world.link.open):
                    stream.reset(ErrorCode.CANCELLED, "cut")
            else:
                origin.lose(clean=False)
            world.run()
            wire.lose(clean=False)
            for each in world.cluster.connections.wires:
                each.settle()
                each.lose(clean=False)
            world.cluster.connections.wires.clear()
        self.assert_clean()
        self.assertEqual(world.cluster.connections.attempts, [])
        self.assertEqual(world.server.front.connections, set())
        world.clock.pump([1.0] * 3)
        self.assertEqual(world.clock.getDelayedCalls(), [])

    def test_abort_reaches_the_api_server_at_once(self) -> None:
        """The API server stops working for a client that left."""
        wire = self.world.request(b"GET /slow HTTP/1.1")
        wire.lose(clean=False)
        self.world.run()
        self.assertTrue(self.world.origin.aborted)

    def test_revoked(self) -> None:
        """Every live request of the credential ends, others go on."""
        waiting = self.world.request()
        watch = self.world.request(b"GET /watch HTTP/1.1")
        self.world.origin.receive(CHUNKED)
        other = self.world.request(b"GET /x HTTP/1.1", token=b"user:1:root")
        self.world.run()
        self.successResultOf(Deferred.fromCoroutine(self.world.server.start()))
        for told in self.world.server_api.subscribers["credential.revoked"]:
            told("user:alice")
        self.world.run()
        head = self.assert_error(waiting, 401, "revoked")
        self.assertIn(b"Gitlab-Unauthorized: true\r\n", head)
        self.assertTrue(watch.aborted)
        self.world.origin.receive(HELLO)
        self.world.run()
        self.assertIn(b"hello", other.taken())
        for origin in self.world.cluster.connections.wires:
            origin.settle()
        self.assert_clean()


class LimitTests(ProxyCase):
    """What one agent and one credential may have under way."""

    def test_per_credential(self) -> None:
        """429 with Retry-After, and room again when one is done."""
        self.world = World(max_requests_per_credential=2)
        first = self.world.request()
        self.world.request()
        head = self.assert_error(self.world.request(), 429, "user:alice")
        self.assertIn(b"Retry-After: 1", head)
        other = self.world.request(token=b"user:1:root")
        self.assertEqual(other.taken(), b"")
        first.lose()
        self.world.run()
        self.assertEqual(self.world.request().taken(), b"")

    def test_per_agent(self) -> None:
        """Whoever asks."""
        self.world = World(max_requests_per_agent=2)
        self.world.request()
        self.world.request(token=b"user:1:root")
        self.assert_error(self.world.request(), 429, "agent-1")

    def test_front_limits_come_from_the_configuration(self) -> None:
        """And their errors are Status objects, too."""
        self.world = World(
            max_header_bytes=1000, max_header_count=5, header_timeout=3.0
        )
        self.assert_error(
            self.world.request(b"GET / HTTP/1.1", b"A: " + b"x" * 1000), 431
        )
        self.assert_error(self.world.request(b"GET / HTTP/1.1", *[b"A: b"] * 4), 431)
        wire = self.world.client()
        wire.receive(b"GET")
        self.world.clock.pump([1.0] * 4)
        self.assert_error(wire, 408)

    def test_head_that_does_not_fit_the_tunnel(self) -> None:
        """What kas adds must fit, too."""
        self.world = World(max_header_bytes=100_000)
        wire = self.world.request(b"GET / HTTP/1.1", b"A: " + b"x" * 65500)
        self.assert_error(wire, 431, "too large")
        self.assert_clean()


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
        self.assertEqual(subscribers, {"credential.revoked": [], "kas.draining": []})
        self.successResultOf(Deferred.fromCoroutine(agent.stop()))
        for origin in self.world.cluster.connections.wires:
            origin.settle()
        self.assert_clean()
        # Made and started once more, as after a failure.
        self.successResultOf(Deferred.fromCoroutine(server.start()))
        self.successResultOf(Deferred.fromCoroutine(server.stop()))

    def test_draining(self) -> None:
        """What runs finishes, and its connection takes no further request."""
        server = self.world.server
        self.successResultOf(Deferred.fromCoroutine(server.start()))
        for told in self.world.server_api.subscribers["kas.draining"]:
            told(None)
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
            (CallError(Status.PERMISSION_DENIED, "not yours"), 403),
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

    def test_root_is_not_impersonated(self) -> None:
        """``access_as: agent``: no Impersonate header of ours."""
        self.assertIsNone(ROOT.impersonation)
        self.world.request(token=b"user:1:root")
        self.assertNotIn(b"Impersonate", self.world.origin.taken())
