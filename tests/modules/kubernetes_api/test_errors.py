"""Errors all the way: each says which hop failed."""

from __future__ import annotations

import re
from typing import Any

from twisted.internet.error import ConnectionRefusedError
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import formatEvent, globalLogPublisher

from modules.kubernetes_api.statuses import status_answer
from tests.modules.kubernetes_api.cases import CHUNKED, SWITCH, ProxyCase, status_of
from tests.tunnel.http1.wire import Wire
from tunnel.errors import AgentUnavailable, ErrorCode, SessionClosed

TARGET = b"GET /api/v1/pods HTTP/1.1"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = b"traceparent: 00-%b-b7ad6b7169203331-01" % TRACE_ID.encode()


class ErrorTests(ProxyCase):
    """Each error says which hop failed."""

    def test_agent_not_connected(self) -> None:
        """503 without Retry-After: kas waited, and clients would ask on in silence."""
        self.world.link.connected = False
        wire = self.world.request()
        head = self.assert_error(wire, 503, "kas -> agent", "not connected")
        self.assertNotIn(b"Retry-After", head)
        self.assert_clean()

    def test_discovery(self) -> None:
        """kubectl drops the text of an error then, and prints warnings."""
        self.world.link.connected = False
        for target, warns in (
            (b"/api", True),
            (b"/apis?timeout=32s", True),
            (b"/api/v1/pods", False),
            (b"/version", False),
        ):
            wire = self.world.request(b"GET " + target + b" HTTP/1.1")
            head = self.assert_error(wire, 503, "kas -> agent", "not connected")
            self.assertEqual(b'\r\nWarning: 299 - "kas -> agent: ' in head, warns)
        self.world.link.connected = True
        endpoint = self.world.cluster.connections
        endpoint.at_once = False
        wire = self.world.request(b"GET /api HTTP/1.1")
        endpoint.fail(ConnectionRefusedError())
        self.world.run()
        head = self.assert_error(wire, 502, "agent -> API server")
        self.assertIn(b'\r\nWarning: 299 - "agent -> API server: ', head)

    def test_warning(self) -> None:
        """Whatever a text holds, it stays one quoted string."""
        _, fields, _ = status_answer(
            502, 'a "b"\r\nX: \\ \u00fc \x1b' + "x" * 5000, b"/api", b""
        )
        (line,) = (one for one in fields.split(b"\r\n") if one.startswith(b"Warn"))
        self.assertTrue(line.startswith(b"Warning: 299 - \"a 'b'  X: / ?  xxx"))
        self.assertLess(len(line), 1100)
        self.assertEqual(line.count(b'"'), 2)

    def test_too_many_wait(self) -> None:
        """503 with Retry-After: this one did not wait."""
        wire = self.world.request()
        for stream in list(self.world.link.open):
            stream.close(AgentUnavailable("1", "too many wait", waited=False))
        head = self.assert_error(wire, 503, "kas -> agent", "too many wait")
        self.assertIn(b"Retry-After: ", head)

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

    def test_hostile_informational(self) -> None:
        """Only 101 switches; what an agent says beside another 1xx stays there."""
        early = b"HTTP/1.1 103 x\r\nConnection: Upgrade\r\nUpgrade: evil\r\nLink: a\r\n"
        good = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"
        wire = self._answer_by_hand(
            [("headers", early), ("headers", good), ("fin", b"")]
        )
        said = wire.taken()
        self.assertIn(b"HTTP/1.1 103 x\r\nLink: a\r\n\r\n", said)
        self.assertNotIn(b"evil", said)

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


class TraceTests(ProxyCase):
    """The id by which an operator finds the line of an error that a user shows."""

    def setUp(self) -> None:
        super().setUp()
        self.events = EventLoggingObserver()
        globalLogPublisher.addObserver(self.events)
        self.addCleanup(globalLogPublisher.removeObserver, self.events)

    def _trace(self, wire: Wire) -> str:
        """The id in the answer, which is also in one line of that half."""
        _, status, _ = status_of(wire)
        found = re.search(r" \[trace ([0-9a-f]{32})\]$", status["message"])
        assert found is not None, status
        lines = [one for one in self.events if one.get("trace_id") == found[1]]
        self.assertEqual(len(lines), 1, lines)
        self.assertEqual(formatEvent(lines[0]), status["message"])
        return found[1]

    def test_in_kas(self) -> None:
        """The client's where it is valid, else one of our own."""
        self.world.link.connected = False
        made = self._trace(self.world.request())
        self.assertEqual(self._trace(self.world.request(TARGET, TRACEPARENT)), TRACE_ID)
        bad = TRACEPARENT.replace(b"00-0", b"ff-0")
        self.assertNotIn(self._trace(self.world.request(TARGET, bad)), (made, TRACE_ID))

    def test_in_agentk(self) -> None:
        """The id travels with the request."""
        endpoint = self.world.cluster.connections
        endpoint.at_once = False
        wire = self.world.request(TARGET, TRACEPARENT)
        endpoint.fail(ConnectionRefusedError())
        self.world.run()
        self.assertEqual(self._trace(wire), TRACE_ID)
        wire = self.world.request()
        endpoint.fail(ConnectionRefusedError())
        self.world.run()
        self._trace(wire)

    def test_unreadable(self) -> None:
        """What is no request has one, too."""
        wire = self.world.client()
        wire.receive(b"GET\r\n\r\n")
        self._trace(wire)
