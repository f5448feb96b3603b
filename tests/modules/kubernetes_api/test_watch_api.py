"""GitLab's aggregated watches: one WebSocket of a page, and a plain watch for each."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol as WebSocketCore
from websockets.protocol import Side

from modules.kubernetes_api import watch_api
from tests.builds import sources_only
from tests.modules.kubernetes_api.cases import ProxyCase
from tests.modules.kubernetes_api.pair import ALICE, World
from tests.tunnel.http1.wire import Wire
from tunnel.api import (
    AuditLevel,
    CredentialRevoked,
)
from tunnel.errors import CallError, Status

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE = (
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: " + KEY,
)
PROTOCOL = b"Sec-WebSocket-Protocol: gitlab-agent-watch-api"
PODS = {"version": "v1", "resource": "pods", "namespace": "apps"}
STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"


def event(kind: str, uid: str = "a", version: str = "1", **more: Any) -> dict[str, Any]:
    metadata = {"uid": uid, "name": uid, "resourceVersion": version}
    return {"type": kind, "object": {"kind": "Pod", "metadata": metadata, **more}}


BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}}


class Page:
    """A browser with one WebSocket."""

    def __init__(
        self, world: World, *lines: bytes, token: bytes = b"user:1:alice"
    ) -> None:
        self.world = world
        self.wire = world.client()
        self.core = WebSocketCore(Side.CLIENT)
        head = (
            b"GET /watch HTTP/1.1",
            b"Host: kas",
            b"User-Agent: page",
            b"Accept-Encoding: gzip",
            b"Authorization: Bearer " + token,
            *(lines or (*UPGRADE, PROTOCOL)),
        )
        self.wire.receive(b"".join(line + b"\r\n" for line in head) + b"\r\n")
        world.run()
        self.head, _, self._received = self.wire.taken().partition(b"\r\n\r\n")

    def say(self, **message: Any) -> None:
        self.send(json.dumps(message).encode())

    def send(self, text: bytes) -> None:
        self.core.send_text(text)
        self.wire.receive(b"".join(self.core.data_to_send()))
        self.world.run()

    def watch(self, name: str = "pods", **params: Any) -> Wire:
        """Begin a watch; return the connection at the API server that it came by."""
        self.say(type="watch", watch_id=name, watch_params={**PODS, **params})
        return self.world.origin

    def frames(self) -> list[Frame]:
        self.world.run()
        received, self._received = self._received, b""
        self.core.receive_data(received + self.wire.taken())
        return [one for one in self.core.events_received() if isinstance(one, Frame)]

    def told(self) -> list[dict[str, Any]]:
        texts = [one.data for one in self.frames() if one.opcode is Opcode.TEXT]
        return [json.loads(bytes(one)) for one in texts]

    def events(self) -> list[tuple[str, str]]:
        """Type and uid of each."""
        return [
            (one["watchEvent"]["type"], one["watchEvent"]["object"]["metadata"]["uid"])
            for one in self.told()
        ]


class WatchTests(ProxyCase):
    """`modules.kubernetes_api.watch_api`."""

    def feed(self, wire: Wire, *events: dict[str, Any]) -> None:
        """The API server sends events."""
        for one in events:
            line = json.dumps(one).encode() + b"\n"
            wire.receive(b"%x\r\n%b\r\n" % (len(line), line))
        self.world.run()

    def answer(self, wire: Wire, *events: dict[str, Any]) -> bytes:
        """The API server takes a watch; return the request."""
        request: bytes = wire.taken()
        wire.receive(STREAM)
        self.feed(wire, *events)
        return request

    def assert_over(self, page: Page) -> None:
        page.wire.lose()
        self.world.run()
        for wire in self.world.cluster.connections.wires:
            wire.settle()
        self.assert_clean()
        self.assertEqual(len(self.world.server.watches), 0)

    def test_handshake(self) -> None:
        page = Page(self.world)
        self.assertTrue(page.head.startswith(b"HTTP/1.1 101 "), page.head)
        accept = b"\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        self.assertIn(accept, page.head)
        self.assertIn(b"\r\nSec-WebSocket-Protocol: gitlab-agent-watch-api", page.head)
        self.assert_over(page)

    def test_no_websocket(self) -> None:
        """A request for watches that is no WebSocket, and one for something else."""
        page = Page(self.world, *UPGRADE[:2], PROTOCOL)
        self.assertIn(b" 400 ", page.head)
        page = Page(self.world, *UPGRADE, PROTOCOL, token=b"user:1:unknown")
        self.assertIn(b" 401 ", page.head)
        self.assertEqual(self.world.cluster.connections.wires, [])
        Page(self.world, *UPGRADE, b"Sec-WebSocket-Protocol: v5.channel.k8s.io")
        self.assertIn(b"GET /watch HTTP/1.1", self.world.origin.taken())

    def test_a_watch(self) -> None:
        """It is the caller's, and plain."""
        page = Page(self.world)
        wire = page.watch(label_selector="app=x", field_selector="a=b&c")
        request = self.answer(wire, event("ADDED"), event("MODIFIED"), event("DELETED"))
        self.assertEqual(
            request.split(b" ")[1],
            b"/api/v1/namespaces/apps/pods?watch=true&allowWatchBookmarks=true"
            b"&labelSelector=app%3Dx&fieldSelector=a%3Db%26c",
        )
        self.assertIn(b"\r\nImpersonate-User: alice\r\n", request)
        self.assertIn(b"\r\nAccept: application/json\r\n", request)
        for other in (b"Sec-WebSocket", b"Accept-Encoding", b"Upgrade"):
            self.assertNotIn(other, request)
        told = page.told()
        self.assertEqual(
            told[0],
            {"type": "event", "watchId": "pods", "watchEvent": event("ADDED")},
        )
        kinds = [one["watchEvent"]["type"] for one in told]
        self.assertEqual(kinds, ["ADDED", "MODIFIED", "DELETED"])
        self.assert_over(page)

    def test_own_namespace(self) -> None:
        """With agentk's own rights no watch shows Secrets of agentk's namespace."""
        page = Page(self.world, token=b"user:1:root")
        secrets = {"version": "v1", "resource": "secrets"}
        page.say(
            type="watch",
            watch_id="own",
            watch_params={**secrets, "namespace": "txkas"},
        )
        told = page.told()[0]
        self.assertIn("allow_own_namespace", told["error"]["object"]["message"])
        self.assertEqual(told["error"]["object"]["code"], 403)
        self.assertEqual(self.world.cluster.connections.wires, [])
        page.say(type="watch", watch_id="all", watch_params=secrets)
        self.assertEqual(
            self.world.origin.taken().split(b" ")[1],
            b"/api/v1/secrets?fieldSelector=metadata.namespace%21%3Dtxkas"
            b"&watch=true&allowWatchBookmarks=true",
        )
        self.assert_over(page)

    def test_parameters(self) -> None:
        page = Page(self.world)
        params = {
            "group": "apps",
            "version": "v1",
            "resource": "deployments",
            "resource_version": "7",
            "send_initial_events": True,
            "resource_version_match": "NotOlderThan",
            "unknown": 1,
        }
        page.say(type="watch", watch_id="d", watch_params=params)
        self.assertEqual(
            self.world.origin.taken().split(b" ")[1],
            b"/apis/apps/v1/deployments?watch=true&allowWatchBookmarks=true"
            b"&resourceVersion=7&resourceVersionMatch=NotOlderThan"
            b"&sendInitialEvents=true",
        )

    def test_added_comes_first(self) -> None:
        """The client ignores an object that it did not see, and doubles others."""
        page = Page(self.world)
        self.answer(
            page.watch(resource_version="5"),
            event("MODIFIED", "a"),
            event("ADDED", "a"),
            event("ADDED", "b"),
            BOOKMARK,
            event("DELETED", "a"),
            event("MODIFIED", "a"),
        )
        self.assertEqual(
            page.events(),
            [
                ("ADDED", "a"),
                ("MODIFIED", "a"),
                ("ADDED", "b"),
                ("DELETED", "a"),
                ("ADDED", "a"),
            ],
        )

    def test_bookmarks(self) -> None:
        """For a client that asks for them."""
        page = Page(self.world)
        self.answer(page.watch(allow_watch_bookmarks=True), BOOKMARK)
        self.assertEqual([one["watchEvent"] for one in page.told()], [BOOKMARK])

    def test_several(self) -> None:
        """Side by side, and one of them ended by the client."""
        page = Page(self.world)
        pods = page.watch("pods")
        nodes = page.watch("nodes", resource="nodes", namespace=None)
        self.answer(pods, event("ADDED", "p"))
        self.answer(nodes, event("ADDED", "n"))
        self.assertEqual([one["watchId"] for one in page.told()], ["pods", "nodes"])
        page.say(type="unwatch", watch_id="pods")
        self.assertTrue(pods.aborted)
        self.feed(nodes, event("ADDED", "m"))
        self.assertEqual(page.events(), [("ADDED", "m")])
        self.assert_over(page)

    def test_refused_by_the_cluster(self) -> None:
        """Its Status is the error."""
        page = Page(self.world)
        status = {"kind": "Status", "code": 403, "message": "pods is forbidden"}
        body = json.dumps(status).encode()
        head = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n" % len(body)
        page.watch().receive(head + body)
        self.assertEqual(
            page.told(),
            [
                {"type": "error", "watchId": "pods", "error": {"object": status}},
                {"type": "stop", "watchId": "pods"},
            ],
        )
        # Its name is free again.
        self.answer(page.watch(), event("ADDED"))
        self.assertEqual(page.events(), [("ADDED", "a")])

    def test_read_only(self) -> None:
        """A watch shows no more than a plain request of the same user."""
        self.world = World(audit_level=AuditLevel.ALL)
        access = self.world.server_api.access
        access["looker"] = attrs.evolve(ALICE, read_only=True)
        page = Page(self.world, token=b"user:1:looker")
        for params in ({}, {"namespace": ""}, {"field_selector": "metadata.name=a"}):
            asked = {**PODS, **params, "resource": "secrets"}
            page.say(type="watch", watch_id="x", watch_params=asked)
            error, stop = page.told()
            self.assertIn("may not read Secrets", error["error"]["message"])
            self.assertEqual(stop["type"], "stop")
            denied = self.world.server_api.audit.events[-1]
            self.assertEqual(denied.outcome, "403")
            self.assertEqual(denied.details["resource"], "secrets")
        self.assertEqual(self.world.cluster.connections.wires, [])
        self.answer(page.watch(), event("ADDED"))
        self.assertEqual(page.events(), [("ADDED", "a")])
        access["reader"] = attrs.evolve(ALICE, read_only=True, secrets=True)
        page = Page(self.world, token=b"user:1:reader")
        self.answer(page.watch(resource="secrets"), event("ADDED"))
        self.assertEqual(page.events(), [("ADDED", "a")])

    def test_error_event(self) -> None:
        page = Page(self.world)
        gone = {"kind": "Status", "code": 410}
        self.answer(page.watch(), {"type": "ERROR", "object": gone})
        error, stop = page.told()
        self.assertEqual((error["error"], stop["type"]), ({"object": gone}, "stop"))

    def test_it_goes_on(self) -> None:
        """The API server ends each watch after a while; the page does not notice."""
        page = Page(self.world)
        wire = page.watch(send_initial_events=True)
        self.answer(wire, event("ADDED", "a", "7"))
        wire.receive(END)
        self.world.run()
        target = self.world.origin.taken().split(b" ")[1]
        self.assertIn(b"&resourceVersion=7", target)
        self.assertNotIn(b"sendInitialEvents", target)
        self.answer(self.world.origin, event("MODIFIED", "a", "8"))
        self.assertEqual(page.events(), [("ADDED", "a"), ("MODIFIED", "a")])
        # Not forever, where nothing comes in between.
        for _ in range(watch_api.MAX_AGAIN):
            self.world.origin.receive(END)
            self.world.run()
            self.world.clock.pump([1.0] * watch_api.MAX_AGAIN)
            self.world.run()
            self.world.origin.receive(STREAM)
            self.world.run()
        self.world.origin.receive(END)
        error, stop = page.told()
        self.assertIn("keeps ending the watch", error["error"]["message"])
        self.assertEqual(stop["type"], "stop")

    def test_ends_without_a_version(self) -> None:
        page = Page(self.world)
        wire = page.watch()
        self.answer(wire)
        wire.receive(END)
        self.assertEqual(page.told(), [{"type": "stop", "watchId": "pods"}])

    def test_agent_away(self) -> None:
        page = Page(self.world)
        self.world.link.connected = False
        page.say(type="watch", watch_id="pods", watch_params=PODS)
        error, stop = page.told()
        self.assertIn("not connected", error["error"]["message"])
        self.assertEqual(stop["type"], "stop")

    def test_messages_that_cannot_be(self) -> None:
        page = Page(self.world)
        for text in (b"", b"{", b"[]", b"1", b"[" * 10_000, b"{}", b'{"watch_id": 1}'):
            page.send(text)
            (error,) = page.told()
            self.assertEqual((error["type"], error["watchId"]), ("error", ""), text)
        everything: list[Any] = [
            None,
            [],
            {},
            {"version": "v1"},
            {"version": "../v1", "resource": "pods"},
            {**PODS, "namespace": "a/../../secrets"},
            {**PODS, "namespace": "a?watch"},
            {**PODS, "resource": "pods/x/exec"},
            {**PODS, "group": "a/b"},
            {**PODS, "group": ["a"]},
            {**PODS, "label_selector": 1},
        ]
        for params in everything:
            page.say(type="watch", watch_id="x", watch_params=params)
            (error,) = page.told()
            self.assertIn("watch_params", error["error"]["message"], params)
        page.say(type="other", watch_id="x")
        self.assertIn("type must be", page.told()[0]["error"]["message"])
        page.watch("x")
        page.say(type="watch", watch_id="x", watch_params=PODS)
        self.assertIn("already exists", page.told()[0]["error"]["message"])
        self.assertEqual(len(self.world.cluster.connections.wires), 1)

    def test_bytes_that_are_no_websocket(self) -> None:
        page = Page(self.world)
        page.watch()
        page.wire.receive(b"\xff" * 100)
        self.assert_over(page)

    def test_limits(self) -> None:
        """Watches, objects, events and messages of one page."""
        self.patch(watch_api, "MAX_WATCHES", 2)
        self.patch(watch_api, "MAX_OBJECTS", 3)
        self.patch(watch_api, "MAX_EVENT", 1000)
        page = Page(self.world)
        first = page.watch("1")
        second = page.watch("2")
        page.say(type="watch", watch_id="3", watch_params=PODS)
        self.assertIn("at most 2", page.told()[0]["error"]["message"])
        self.answer(first, event("ADDED", "a"), event("ADDED", "b"))
        self.answer(second, event("ADDED", "c"), event("ADDED", "d"))
        self.assertIn("more than 3 objects", page.told()[-2]["error"]["message"])
        # Those of a watch that is over count no more.
        third = page.watch("3")
        self.answer(third, event("ADDED", "e"))
        self.assertEqual(page.events(), [("ADDED", "e")])
        self.feed(third, event("ADDED", "f", data="x" * 2000))
        self.assertIn("an event has more than", page.told()[0]["error"]["message"])
        # Also one that never ends.
        first.receive(b"fffff\r\n" + b"x" * 1500)
        self.assertIn("an event has more than", page.told()[0]["error"]["message"])
        page.send(b" " * (watch_api.MAX_MESSAGE + 1))
        (close,) = [one for one in page.frames() if one.opcode is Opcode.CLOSE]
        self.assertEqual(close.data[:2], (1009).to_bytes(2, "big"))
        self.assert_over(page)

    def test_held_together(self) -> None:
        """Events that are not whole, of all watches."""
        self.patch(watch_api, "MAX_HELD", 1000)
        page = Page(self.world)
        for number in range(3):
            wire = page.watch(str(number))
            self.answer(wire)
            wire.receive(b"fffff\r\n" + b"x" * 400)
            self.world.run()
        self.assertEqual([one["watchId"] for one in page.told()], ["2", "2"])

    def test_slow_page(self) -> None:
        """A client that does not read stops the watches, and fills no memory of kas."""
        page = Page(self.world)
        wire = page.watch()
        self.answer(wire)
        assert page.wire.producer is not None
        page.wire.producer.pauseProducing()
        line = json.dumps(event("ADDED", data="x" * 30_000)).encode() + b"\n"
        for _ in range(50):
            wire.receive(b"%x\r\n%b\r\n" % (len(line), line))
            self.world.run()
        self.assertEqual(wire.producerState, "paused")
        self.assertEqual(page.told(), [])
        page.wire.producer.resumeProducing()
        self.world.run()
        self.assertEqual(len(page.told()), 50)

    def test_slow_page_with_many_watches(self) -> None:
        """Each turn of the reactor resumes one watch; a pause ends that."""
        page = Page(self.world)
        wires = [page.watch(str(number)) for number in range(4)]
        for wire in wires:
            self.answer(wire)
        (connection,) = self.world.server.watches
        assert isinstance(connection, watch_api.WatchConnection)
        connection.pauseProducing()
        line = json.dumps(event("ADDED")).encode() + b"\n"
        for wire in wires:
            wire.receive(b"%x\r\n%b\r\n" % (len(line), line))
        self.world.run()
        self.assertEqual(page.told(), [])
        second = connection.watches["1"]
        resume = second.resume

        def fill() -> None:
            resume()
            connection.pauseProducing()

        second.resume = fill  # type: ignore[method-assign]
        connection.resumeProducing()
        self.world.run()
        self.assertEqual([one["watchId"] for one in page.told()], ["0", "1"])
        second.resume = resume  # type: ignore[method-assign]
        connection.resumeProducing()
        # A watch that begins in the meantime waits for its turn.
        self.assertTrue(connection.is_paused("3"))
        self.world.run()
        self.assertEqual([one["watchId"] for one in page.told()], ["2", "3"])

    def test_many_small_events(self) -> None:
        """One piece with thousands of events is delivered in several turns."""
        self.patch(watch_api, "MAX_EVENTS", 10)
        page = Page(self.world)
        wire = page.watch()
        self.answer(wire)
        (connection,) = self.world.server.watches
        assert isinstance(connection, watch_api.WatchConnection)
        turns: list[int] = []
        take_turn = connection.take_turn

        def count() -> bool:
            turns.append(1)
            return take_turn()

        connection.take_turn = count  # type: ignore[method-assign]
        lines = [event("ADDED", uid=f"u-{count}") for count in range(95)]
        data = b"".join(json.dumps(one).encode() + b"\n" for one in lines)
        wire.receive(b"%x\r\n%b\r\n" % (len(data), data))
        self.world.run()
        self.assertEqual(
            [uid for _, uid in page.events()], [f"u-{count}" for count in range(95)]
        )
        # Ten events at once, and then ten in each turn.
        self.assertEqual(len(turns), 9)

    def test_the_end_after_many_small_events(self) -> None:
        """A watch that ends delivers all its events first."""
        self.patch(watch_api, "MAX_EVENTS", 10)
        page = Page(self.world)
        wire = page.watch()
        self.answer(wire)
        lines = [event("ADDED", uid=f"u-{count}") for count in range(35)]
        data = b"".join(json.dumps(one).encode() + b"\n" for one in lines)
        wire.receive(b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))
        self.world.run()
        told = page.told()
        self.assertEqual(len([one for one in told if one["type"] == "event"]), 35)
        self.assertEqual({one["type"] for one in told[:35]}, {"event"})

    def test_revoked(self) -> None:
        """Watches end with the credential."""
        page = Page(self.world)
        page.watch()
        self.successResultOf(Deferred.fromCoroutine(self.world.server.start()))
        self.assertIn("user:alice", self.world.server_api.held())
        self.world.server_api.publish(CredentialRevoked("user:alice"))
        (close,) = page.frames()
        self.assertIs(close.opcode, Opcode.CLOSE)
        self.assertIn(b"revoked", close.data)
        self.assert_over(page)

    def test_kas_stops(self) -> None:
        page = Page(self.world)
        page.watch()
        self.world.server._draining(None)
        (close,) = page.frames()
        self.assertEqual(close.data[:2], (1001).to_bytes(2, "big"))
        self.assert_over(page)

    def test_too_many(self) -> None:
        """Each watch counts as a request of its caller, and so does the connection."""
        self.world = World(max_requests_per_credential=2)
        page = Page(self.world)
        page.watch()
        page.say(type="watch", watch_id="2", watch_params=PODS)
        self.assertIn("too many requests", page.told()[0]["error"]["message"])
        self.assert_over(page)

    def test_silent_client(self) -> None:
        """A client that answers no PING is gone."""
        page = Page(self.world)
        page.watch()
        self.world.clock.advance(watch_api.PING_SECONDS)
        (ping,) = page.frames()
        self.assertIs(ping.opcode, Opcode.PING)
        page.wire.receive(b"".join(page.core.data_to_send()))
        for _ in range(watch_api.DEAD_AFTER):
            self.world.clock.advance(watch_api.PING_SECONDS)
            self.assertFalse(page.wire.aborted)
        self.world.clock.advance(watch_api.PING_SECONDS)
        self.assertTrue(page.wire.aborted)
        self.assert_over(page)

    def test_checked_later(self) -> None:
        """A credential that has to be asked about."""
        answer: Deferred[Any] = Deferred()
        self.world.server_api.access["later"] = answer
        page = Page(self.world, token=b"user:1:later")
        self.assertEqual(page.head, b"")
        answer.callback(ALICE)
        self.world.run()
        head, _, _ = page.wire.taken().partition(b"\r\n\r\n")
        self.assertIn(b" 101 ", head)
        self.answer(page.watch(), event("ADDED"))
        self.assertEqual(page.events(), [("ADDED", "a")])
        refused: Deferred[Any] = Deferred()
        self.world.server_api.access["no"] = refused
        page = Page(self.world, token=b"user:1:no")
        refused.errback(CallError(Status.PERMISSION_DENIED, "no"))
        self.world.run()
        self.assertIn(b" 403 ", page.wire.taken())


def begin_page(world: World) -> tuple[Page, Wire]:
    """Return a page, and where its watch ``pods`` came to the API server."""
    page = Page(world)
    wire = page.watch()
    wire.taken()
    wire.receive(STREAM)
    return page, wire


def say_events(world: World, wire: Wire, *lines: bytes) -> None:
    for line in lines:
        wire.receive(b"%x\r\n%b\n\r\n" % (len(line) + 1, line))
    world.run()


@pytest.mark.parametrize("name", sorted(watch_api._QUERY))
@pytest.mark.parametrize("text", ["\ud800", "a\nb", "a\x00", "\u2028"])
def test_parameters_that_are_no_text(name: str, text: str) -> None:
    """A parameter that no URL can have is refused before the watch counts."""
    world = World()
    page = Page(world)
    page.say(type="watch", watch_id="x", watch_params={**PODS, name: text})
    (error,) = page.told()
    assert f"watch_params.{name} must have printable" in error["error"]["message"]
    assert world.server.metrics.in_flight == 1


@pytest.mark.parametrize("name", ["uid", "resourceVersion"])
@pytest.mark.parametrize("text", ["\ud800", "x" * (watch_api.MAX_NAME + 1), "a\nb"])
@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_names_of_a_hostile_cluster(kind: str, name: str, text: str) -> None:
    """kas keeps neither a uid nor a version that is no short text."""
    world = World()
    page, wire = begin_page(world)
    good = event("ADDED", "u" * watch_api.MAX_NAME, "v" * watch_api.MAX_NAME)
    bad = event(kind)
    bad["object"]["metadata"][name] = text
    say_events(world, wire, json.dumps(good).encode(), json.dumps(bad).encode())
    first, error, stop = page.told()
    assert first["watchEvent"]["type"] == "ADDED"
    assert f"API server: {name} must have at most" in error["error"]["message"]
    assert stop == {"type": "stop", "watchId": "pods"}
    assert world.server.metrics.in_flight == 1


@pytest.mark.parametrize(
    "line",
    [
        '{"type":"ADDED","object":{}}'.encode("utf-16"),
        b'{"type":"ADDED","object":{"a":"\xed\xa0\x80"}}',
    ],
)
def test_events_that_are_no_utf8(line: bytes) -> None:
    """A browser would end the connection, and all its watches, for such a message."""
    world = World()
    page, wire = begin_page(world)
    say_events(world, wire, line.replace(b"\n", b""))
    error, _ = page.told()
    assert "agent -> API server: not JSON" in error["error"]["message"]


def test_a_watch_that_kas_fails_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not reported as too many requests, and ends alone."""
    world = World()
    page, _ = begin_page(world)
    monkeypatch.setattr(watch_api, "urlencode", lambda query: 1 / 0)
    with capturedLogs() as events:
        page.say(type="watch", watch_id="x", watch_params=PODS)
    error, stop = page.told()
    assert error["error"] == {"message": "kas: an internal error; see the log of kas"}
    assert (stop["type"], stop["watchId"]) == ("stop", "x")
    assert [formatEvent(one) for one in events] == ["cannot begin a watch"]
    assert list(world.server.front.connections) != []
    assert world.server.metrics.in_flight == 2


@pytest.mark.parametrize("action", ["pause", "resume", "cancel"])
def test_a_watch_that_fails_beside_others(action: str) -> None:
    """The other watches of the connection are called all the same."""
    world = World()
    page, _ = begin_page(world)
    page.watch("other")
    (connection,) = world.server.watches
    assert isinstance(connection, watch_api.WatchConnection)
    first, second = connection.watches.values()
    called: list[object] = []
    setattr(first, action, lambda: 1 / 0)
    setattr(second, action, lambda: called.append(second))
    with capturedLogs() as events:
        if action == "pause":
            connection.pauseProducing()
        elif action == "resume":
            connection.pauseProducing()
            connection.resumeProducing()
            world.run()
        else:
            connection.client_gone(ValueError())
    assert called == [second]
    assert len(events) == 1


def failing(name: str, calls: list[str]) -> tuple[Any, Any]:
    """Return two requests, of which the first fails when *name* is called."""

    def fail(*_: object) -> None:
        raise ValueError

    return SimpleNamespace(**{name: fail}), SimpleNamespace(
        **{name: lambda *_: calls.append(name)}
    )


@sources_only
def test_requests_of_kas_end_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop, a drain and a revoked credential reach every request."""
    world = World()
    server: Any = world.server
    calls: list[str] = []
    with capturedLogs() as events:
        requests = failing("revoke", calls)
        monkeypatch.setattr(server.shares, "of", lambda _: requests)
        server._revoked(CredentialRevoked("user:alice"))
        server.watches = failing("end_watch", calls)
        server._draining(None)
        server.watches = set()
        gone = failing("client_gone", calls)
        monkeypatch.setattr(server.shares, "all", lambda: gone)
        Deferred.fromCoroutine(server.stop())
    assert calls == ["revoke", "end_watch", "client_gone"]
    assert len(events) == 3


@sources_only
def test_watches_of_agentk_end_one_by_one() -> None:
    world = World()
    agent: Any = world.agent
    calls: list[str] = []
    agent.watches = failing("end_watch", calls)
    with capturedLogs() as events:
        agent._draining(None)
    assert (calls, len(events)) == (["end_watch"], 1)
