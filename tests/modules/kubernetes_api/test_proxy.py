"""Requests all the way: client, kas, tunnel, agentk, API server."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from tests.modules.kubernetes_api.cases import CHUNKED, HELLO, VERSION, ProxyCase
from tests.modules.kubernetes_api.pair import ALICE, World
from tests.tunnel.http1.wire import Wire
from tunnel.api import IPathReceiver


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
        self.assertEqual(self.world.server_api.asked[0], ("", "agent-1", "alice"))

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

    def _missing(self, *events: bytes, target: bytes) -> Wire:
        """Answer *target* so far, and say that its agentk does not come back."""
        wire = self.world.request(b"GET " + target + b" HTTP/1.1")
        head = b"Content-Type: application/json\r\n"
        self.world.origin.receive(CHUNKED[:-2] + head + b"\r\n")
        for event in events:
            self.world.origin.receive(b"%x\r\n%b\r\n" % (len(event), event))
        self.world.run()
        for stream in tuple(self.world.link.open):
            if IPathReceiver.providedBy(stream.receiver):
                stream.receiver.path_missing()
        self.world.run()
        return wire

    def test_watch_whose_agentk_does_not_come_back(self) -> None:
        """Between two events it ends as API servers end it, otherwise it breaks off."""
        event = b'{"type":"ADDED"}\n'
        watch = b"/api/v1/pods?watch=true"
        between = self._missing(event, target=watch)
        self.assertTrue(between.taken().endswith(b"0\r\n\r\n"))
        within = self._missing(event, b'{"type"', target=watch)
        self.assertFalse(within.taken().endswith(b"0\r\n\r\n"))
        self.assertTrue(within.aborted)

    def test_logs_whose_agentk_does_not_come_back(self) -> None:
        """An end would look as if the container had ended: they wait on."""
        logs = self._missing(b"a line\n", target=b"/api/v1/pods/a/log?follow=true")
        self.assertFalse(logs.taken().endswith(b"0\r\n\r\n"))
        self.assertFalse(logs.aborted)

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

    def test_api_server_closes(self) -> None:
        """What it says to its client about the connection reaches the client."""
        wire = self.world.request(
            b"POST /api HTTP/1.1", b"Content-Length: 2", body=b"{}"
        )
        self.world.origin.receive(
            b"HTTP/1.1 413 X\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"
        )
        self.world.run()
        answer = wire.taken()
        self.assertIn(b" 413 ", answer)
        self.assertEqual(answer.count(b"Connection: close\r\n"), 1)
        self.assertTrue(wire.disconnecting)
        wire.settle()
        self.world.origin.settle()
        self.assert_clean()

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
        """The look-up is cancelled, and its answer is of no more interest."""
        cancelled: list[object] = []
        waiting: Deferred[Any] = Deferred(cancelled.append)
        self.world.server_api.access["slow"] = waiting
        wire = self.world.request(token=b"user:1:slow")
        self.assertEqual(cancelled, [])
        wire.lose(clean=False)
        self.assertEqual(cancelled, [waiting])
        self.assertEqual(self.world.link.opened, [])
        self.assert_clean()
