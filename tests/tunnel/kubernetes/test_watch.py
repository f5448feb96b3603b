"""Watches that go on, over connections of which the test is the other end."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.modules.kubernetes_api.pair import Cluster
from tests.tunnel.http1.wire import Wire
from tunnel.api import KubernetesResource, KubernetesShape, WatchEvent
from tunnel.errors import CallError, Status
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import KubernetesClients
from tunnel.kubernetes.answers import MAX_LINE, MAX_WAITING
from tunnel.kubernetes.watch import (
    INTERNAL_SECONDS,
    LASTS,
    LATE,
    MARKER_SECONDS,
    RETRY_MOST,
)

PODS = KubernetesResource("", "v1", "Pod", "pods", True)

#: Objects within each other, more than any Python reads.
DEPTH = 200_000

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def whole(found: Any, status: int = 200) -> bytes:
    body = json.dumps(found).encode()
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (
        status,
        len(body),
        body,
    )


def pod(name: str, version: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version}}


def listed(version: str, *names: str, more: str = "") -> bytes:
    items = [pod(name, "1") for name in names]
    metadata = {"resourceVersion": version, "continue": more}
    return whole({"items": items, "metadata": metadata})


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def line(kind: str, found: Any) -> bytes:
    return chunk(json.dumps({"type": kind, "object": found}).encode() + b"\n")


class WatchCase(SynchronousTestCase):
    """`KubernetesClient.watch`, and an API server on a wire."""

    #: Whether the API server streams initial objects.
    streams = False
    #: The fields that the watch reads; None for whole objects.
    shape: type[KubernetesShape] | None = None
    #: Whether the watch requests Tables.
    printed = False

    def setUp(self) -> None:
        self.clock = Clock()
        self.cluster = Cluster()
        pool = UpstreamPool(self.cluster.endpoint, self.clock)
        clients = KubernetesClients(
            cast(Any, self.cluster), pool, self.clock, lambda: 0.0
        )
        self.clients = clients
        if not self.streams:
            clients.initial_events.refuse("")
        self.events = clients.as_agentk().watch(
            PODS, "a", label_selector="x=y", shape=self.shape, printed=self.printed
        )
        self.seen: list[str] = []
        self.reading: Deferred[None] | None = None
        #: The connection that was asked on last.
        self.origin: Wire

    def read(self) -> None:
        """Go on reading until it has to wait."""
        self.reading = Deferred.fromCoroutine(self._read())
        self.clock.advance(0)

    async def _read(self) -> None:
        async for event in self.events:
            self.seen.append(self.shown(event))

    def shown(self, event: WatchEvent) -> str:
        name = ""
        if isinstance(event.object, KubernetesShape):
            name = event.object.metadata.name
        elif event.object:
            name = event.object["metadata"]["name"]
        return " ".join(
            one for one in (event.type.name, name, event.resource_version) if one
        )

    def asked(self) -> str:
        """The target that is asked for now; what is answered next goes there."""
        self.clock.advance(0)
        self.origin = next(
            wire for wire in self.cluster.connections.wires if wire.value()
        )
        return self.origin.taken().partition(b"\r\n")[0].decode().split(" ")[1]

    def pause(self) -> float:
        """Seconds until something is asked for."""
        begun = self.clock.seconds()
        while not any(wire.value() for wire in self.cluster.connections.wires):
            self.clock.advance(0.25)
        return self.clock.seconds() - begun

    def answer(self, *parts: bytes) -> None:
        self.origin.receive(*parts)
        self.clock.advance(0)

    def taken(self) -> list[str]:
        seen, self.seen = self.seen, []
        return seen


class WatchTests(WatchCase):
    """An API server that lists objects, page by page."""

    def begin(self) -> None:
        """All that there is was listed, and a watch begun."""
        self.read()
        self.asked()
        self.answer(listed("7", "one"))
        self.taken()
        self.asked()
        self.answer(HEAD)

    def test_list_and_changes(self) -> None:
        """Pages, then what happens; bookmarks tell how far it came."""
        self.read()
        self.assertEqual(
            self.asked(), "/api/v1/namespaces/a/pods?labelSelector=x%3Dy&limit=500"
        )
        self.answer(listed("7", "one", more="next"))
        self.assertTrue(self.asked().endswith("&limit=500&continue=next"))
        self.answer(listed("7", "two"))
        self.assertEqual(self.taken(), ["RESET", "ADDED one", "ADDED two", "SYNCED 7"])
        self.assertIn("&resourceVersion=7&timeoutSeconds=300", self.asked())
        self.answer(HEAD + line("MODIFIED", pod("one", "8")))
        self.answer(line("BOOKMARK", {"metadata": {"resourceVersion": "9"}}))
        self.assertEqual(self.taken(), ["MODIFIED one 8", "BOOKMARK 9"])

    def test_goes_on_after_an_end(self) -> None:
        """From where it was, at once."""
        self.begin()
        self.clock.advance(LASTS)
        self.answer(line("DELETED", pod("one", "8")) + END)
        self.assertIn("&resourceVersion=8&", self.asked())
        self.assertEqual(self.taken(), ["DELETED one 8"])

    def test_forgotten_version(self) -> None:
        """As an event and as a status: all is listed again, after a RESET."""
        gone = {"kind": "Status", "code": 410, "message": "too old"}
        self.begin()
        self.answer(line("ERROR", gone))
        self.clock.advance(RETRY_MOST)
        self.assertNotIn("watch", self.asked())
        self.answer(listed("20", "two"))
        self.assertEqual(self.taken(), ["RESET", "ADDED two", "SYNCED 20"])
        self.assertIn("resourceVersion=20", self.asked())
        self.answer(whole(gone, 410))
        self.clock.advance(RETRY_MOST)
        self.assertNotIn("watch", self.asked())

    def test_api_server_away(self) -> None:
        """Attempts become rarer, and none is given up."""
        self.begin()
        self.origin.lose(clean=False)
        pauses = []
        # The pool itself repeats what it sent on a kept connection that was dead.
        self.cluster.connections.wires[0].lose()
        for _ in range(9):
            pauses.append(self.pause())
            # Whether etcd was restored meanwhile.
            self.assertTrue(self.asked().endswith("&limit=1"))
            self.origin.lose(clean=False)
        self.assertEqual(pauses[:4], [0.25, 0.5, 1.0, 2.0])
        self.assertEqual(pauses[-1], RETRY_MOST / 2)
        self.pause()
        self.asked()
        self.answer(listed("9"))
        self.assertIn("resourceVersion=7", self.asked())

    def test_restored_etcd(self) -> None:
        """Versions that went back: all is listed again."""
        self.begin()
        self.origin.lose(clean=False)
        self.cluster.connections.wires[0].lose()
        self.pause()
        self.asked()
        self.answer(listed("3"))
        self.assertTrue(self.asked().endswith("&limit=500"))
        self.answer(listed("3", "two"))
        self.assertEqual(self.taken(), ["RESET", "ADDED two", "SYNCED 3"])

    def test_restored_while_the_api_server_starts(self) -> None:
        """Versions are compared until the watch goes on."""
        self.begin()
        self.origin.lose(clean=False)
        self.cluster.connections.wires[0].lose()
        self.pause()
        self.asked()
        self.answer(listed("9"))
        self.assertIn("resourceVersion=7", self.asked())
        self.answer(whole({"message": "starting"}, 503))
        self.pause()
        self.assertTrue(self.asked().endswith("&limit=1"))
        self.answer(listed("3"))
        self.assertTrue(self.asked().endswith("&limit=500"))

    def test_restored_after_an_error(self) -> None:
        """Errors of the API server precede a restored etcd, too."""
        for before in (
            line("ERROR", {"code": 503, "message": "no leader"}),
            line("ERROR", {"code": 500, "message": "no leader"}),
        ):
            with self.subTest(before):
                self.setUp()
                self.begin()
                self.answer(before)
                self.pause()
                self.assertTrue(self.asked().endswith("&limit=1"))
                self.answer(listed("3"))
                self.assertTrue(self.asked().endswith("&limit=500"))

    def test_versions_that_cannot_be_compared(self) -> None:
        """The watch goes on: aggregated API servers may have any."""
        self.begin()
        self.origin.lose(clean=False)
        self.cluster.connections.wires[0].lose()
        self.pause()
        self.asked()
        self.answer(listed("a3"))
        self.assertIn("resourceVersion=7", self.asked())

    def test_internal_errors(self) -> None:
        """After a minute of them all is listed again."""
        self.begin()
        failed = whole({"message": "no"}, 500)
        self.answer(line("ERROR", {"code": 500, "message": "no"}))
        began = self.clock.seconds()
        while self.clock.seconds() - began < INTERNAL_SECONDS + RETRY_MOST:
            self.pause()
            asked = self.asked()
            if asked.endswith("&limit=500"):
                break
            # First of all, whether etcd was restored.
            self.answer(listed("9") if asked.endswith("&limit=1") else failed)
        self.assertGreaterEqual(self.clock.seconds() - began, INTERNAL_SECONDS)
        self.answer(listed("9", "two"))
        self.assertEqual(self.taken(), ["RESET", "ADDED two", "SYNCED 9"])

    def test_a_version_that_is_too_large(self) -> None:
        """A restored etcd, or a replica that is behind: all is listed again."""
        self.begin()
        cause = {"reason": "ResourceVersionTooLarge", "message": "too large"}
        details = {"causes": [cause], "retryAfterSeconds": 1}
        status = {"code": 504, "message": "too large", "details": details}
        self.answer(line("ERROR", status))
        self.clock.advance(RETRY_MOST)
        self.assertTrue(self.asked().endswith("&limit=500"))

    def test_refused_for_good(self) -> None:
        """What trying again does not mend is the reader's."""
        self.read()
        self.asked()
        self.answer(whole({"message": "may not"}, 403))
        assert self.reading is not None
        error = self.failureResultOf(self.reading, CallError).value
        self.assertEqual(error.status, Status.PERMISSION_DENIED)

    def test_credential_of_the_past(self) -> None:
        """Another one is looked for, and the watch goes on with it."""
        self.read()
        self.asked()
        self.answer(listed("7"))
        self.asked()
        self.answer(whole({"message": "who?"}, 401))
        self.assertEqual(self.cluster.rejections, 1)
        self.clock.advance(RETRY_MOST)
        self.assertTrue(self.asked().endswith("&limit=1"))
        self.answer(listed("9"))
        self.assertIn("resourceVersion=7", self.asked())

    def test_silent_connection(self) -> None:
        """One that does not end when it should is given up."""
        self.begin()
        first = self.origin
        self.clock.advance(LASTS + LATE)
        self.assertTrue(first.disconnecting)
        first.settle()
        self.pause()
        # Its API server may have gone without a word, and etcd been restored.
        self.assertTrue(self.asked().endswith("&limit=1"))
        self.answer(listed("9"))
        self.assertIn("resourceVersion=7", self.asked())

    def test_slow_reader(self) -> None:
        """It makes the API server wait."""
        first = self.events.__anext__()
        started = Deferred.fromCoroutine(cast(Any, first))
        self.assertEqual(self.shown(self.successResultOf(started)), "RESET")
        synced = Deferred.fromCoroutine(cast(Any, self.events.__anext__()))
        self.asked()
        self.answer(listed("7"))
        self.assertEqual(self.shown(self.successResultOf(synced)), "SYNCED 7")
        event = Deferred.fromCoroutine(cast(Any, self.events.__anext__()))
        self.asked()
        big = pod("big", "8") | {"data": "x" * 1000}
        self.answer(HEAD)
        sent = 0
        while self.origin.producerState == "producing":
            self.answer(line("ADDED", big))
            sent += 1
        self.assertLess(sent * 1000, MAX_WAITING + 2000)
        self.successResultOf(event)
        for _ in range(sent - 1):
            self.successResultOf(
                Deferred.fromCoroutine(cast(Any, self.events.__anext__()))
            )
        self.assertEqual(self.origin.producerState, "producing")

    def test_endless_line(self) -> None:
        """An event beyond every size that there can be ends that request."""
        self.begin()
        for _ in range(MAX_LINE // (1 << 20) + 1):
            self.answer(chunk(b"x" * (1 << 20)))
        self.assertTrue(self.origin.disconnecting)

    def test_what_cannot_be_read(self) -> None:
        """Nonsense is a failure like any other."""
        for found in (b"nonsense\n", b'{"type": "ODD", "object": {}}\n', b"[1]\n"):
            self.setUp()
            self.begin()
            self.answer(chunk(found))
            assert self.reading is not None
            self.assertNoResult(self.reading)
            self.clock.advance(RETRY_MOST)
            self.assertTrue(self.asked().endswith("&limit=1"))
            self.answer(listed("9"))
            self.assertIn("resourceVersion=7", self.asked())

    def test_nested_too_deep(self) -> None:
        """Of that object nothing is told, of all others everything."""
        self.begin()
        deep = b'{"type":"MODIFIED","object":' + b'{"a":' * DEPTH + b"1" + b"}" * DEPTH
        self.answer(chunk(deep + b"}\n"), line("MODIFIED", pod("one", "9")))
        self.assertEqual(self.taken(), ["MODIFIED one 9"])

    def test_given_up(self) -> None:
        """Who reads no more leaves no connection behind."""
        self.begin()
        assert self.reading is not None
        self.reading.addErrback(lambda _: None)
        self.reading.cancel()
        self.assertTrue(self.origin.disconnecting)


class StreamTests(WatchCase):
    """An API server that streams the initial objects."""

    streams = True

    def stream(self, known: str = "") -> None:
        """The objects are requested as part of the watch."""
        target = self.asked()
        self.assertIn("&sendInitialEvents=true&resourceVersionMatch=NotOlder", target)
        wanted = f"&resourceVersion={known}&" if known else "&timeoutSeconds"
        self.assertIn(wanted, target)
        if not known:
            self.assertNotIn("resourceVersion=", target)

    def marker(self, version: str) -> bytes:
        annotations = {"k8s.io/initial-events-end": "true"}
        metadata = {"resourceVersion": version, "annotations": annotations}
        return line("BOOKMARK", {"metadata": metadata})

    def test_one_request(self) -> None:
        """Objects, their end, and changes; only the end has a version."""
        self.read()
        self.stream()
        self.answer(
            HEAD, line("ADDED", pod("two", "9")), line("ADDED", pod("one", "3"))
        )
        self.assertEqual(self.taken(), ["RESET", "ADDED two", "ADDED one"])
        self.answer(line("BOOKMARK", {"metadata": {"resourceVersion": "9"}}))
        self.assertEqual(self.taken(), [])
        self.answer(self.marker("12"), line("MODIFIED", pod("one", "13")))
        self.assertEqual(self.taken(), ["SYNCED 12", "MODIFIED one 13"])
        self.clock.advance(LASTS)
        self.answer(chunk(b""))
        self.assertIn("resourceVersion=13", self.asked())

    def test_a_broken_connection(self) -> None:
        """Before the end, all begins again."""
        self.read()
        self.stream()
        self.answer(HEAD, line("ADDED", pod("one", "3")))
        self.origin.lose(clean=False)
        self.taken()
        self.pause()
        self.stream()
        self.answer(HEAD, self.marker("12"))
        self.assertEqual(self.taken(), ["RESET", "SYNCED 12"])

    def test_one_that_refuses(self) -> None:
        """The objects are listed, and so are those of other watches of the group."""
        self.read()
        self.stream()
        self.answer(whole({"message": "sendInitialEvents is forbidden"}, 422))
        self.assertTrue(self.asked().endswith("&limit=500"))
        self.answer(listed("7", "one"))
        self.assertEqual(self.taken(), ["RESET", "ADDED one", "SYNCED 7"])
        self.assertFalse(self.clients.initial_events.are_streamed(""))
        self.assertTrue(self.clients.initial_events.are_streamed("apps"))

    def test_one_that_ignores_it(self) -> None:
        """Some never send the end: after some silence the objects are listed."""
        self.read()
        self.stream()
        self.answer(HEAD, line("ADDED", pod("one", "3")))
        self.clock.advance(MARKER_SECONDS - 1)
        self.answer(line("ADDED", pod("two", "4")))
        self.clock.advance(MARKER_SECONDS - 1)
        self.taken()
        self.clock.advance(1)
        self.clock.advance(1)
        self.assertTrue(self.asked().endswith("&limit=500"))
        self.answer(listed("7", "one"))
        self.assertEqual(self.taken(), ["RESET", "ADDED one", "SYNCED 7"])

    def test_one_that_ignores_it_and_is_busy(self) -> None:
        """A change before the end of the initial objects says so as well."""
        self.read()
        self.stream()
        self.answer(HEAD, line("ADDED", pod("one", "3")))
        self.taken()
        self.answer(line("MODIFIED", pod("one", "4")))
        self.assertTrue(self.asked().endswith("&limit=500"))
        self.answer(listed("7", "one"))
        self.assertEqual(self.taken(), ["RESET", "ADDED one", "SYNCED 7"])

    def test_one_that_ends_without_a_marker(self) -> None:
        """The next request lists the objects."""
        self.read()
        self.stream()
        self.answer(HEAD)
        for number in range(int(LASTS / 6)):
            self.answer(line("ADDED", pod(f"p{number}", "3")))
            self.clock.advance(6)
        self.answer(chunk(b""))
        self.taken()
        self.assertTrue(self.asked().endswith("&limit=500"))

    def test_a_wrong_selector(self) -> None:
        """It is the reader's, and says nothing of the group."""
        self.read()
        self.stream()
        self.answer(whole({"message": "unable to parse"}, 400))
        self.assertTrue(self.asked().endswith("&limit=500"))
        self.answer(whole({"message": "unable to parse"}, 400))
        assert self.reading is not None
        error = self.failureResultOf(self.reading, CallError).value
        self.assertEqual(error.status, Status.INVALID_ARGUMENT)
        self.assertTrue(self.clients.initial_events.are_streamed(""))

    def test_forgotten_version(self) -> None:
        """From there on, and if that is forgotten as well, from anywhere."""
        gone = {"kind": "Status", "code": 410, "message": "too old"}
        self.read()
        self.stream()
        self.answer(HEAD, self.marker("12"), line("ERROR", gone))
        self.clock.advance(RETRY_MOST)
        self.stream(known="12")
        self.answer(whole(gone, 410))
        self.clock.advance(RETRY_MOST)
        self.stream()


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _PodShape(KubernetesShape):
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)


class ShapedWatchTests(WatchTests):
    """Every test of `WatchTests` with a watch that reads some fields only."""

    shape = _PodShape

    def test_fields_of_the_shape(self) -> None:
        nodes: list[str] = []

        def shown(event: WatchEvent) -> str:
            if event.object:
                nodes.append(event.object.spec.node_name)
            return ""

        self.shown = shown  # type: ignore[method-assign]
        self.read()
        self.asked()
        found = pod("one", "1") | {"spec": {"nodeName": "n-1", "other": [1]}}
        self.answer(whole({"items": [found], "metadata": {"resourceVersion": "7"}}))
        self.asked()
        moved = pod("one", "8") | {"spec": {"nodeName": "n-2"}}
        self.answer(HEAD, line("MODIFIED", moved))
        self.assertEqual(nodes, ["n-1", "n-2"])

    def test_an_object_of_other_types_is_left_out(self) -> None:
        odd = pod("odd", "1") | {"spec": []}
        items = {"items": [odd, pod("one", "1")], "metadata": {"resourceVersion": "7"}}
        self.read()
        self.asked()
        self.answer(whole(items))
        self.assertEqual(self.taken(), ["RESET", "ADDED one", "SYNCED 7"])
        self.asked()
        changed = pod("odd", "8") | {"spec": "x"}
        self.answer(HEAD, line("MODIFIED", changed), line("ADDED", pod("two", "9")))
        self.assertEqual(self.taken(), ["ADDED two 9"])

    def test_a_list_that_is_none(self) -> None:
        self.read()
        self.asked()
        self.answer(whole([]))
        self.assertEqual(self.taken(), ["RESET"])
        # It is asked for again.
        self.assertGreater(self.pause(), 0)


class ShapedStreamTests(StreamTests):
    """Every test of `StreamTests` with a watch that reads some fields only."""

    shape = _PodShape


COLUMNS = [{"name": "Name"}, {"name": "Node"}]


def table(version: str, *rows: Any, columns: Any = COLUMNS) -> dict[str, Any]:
    """Return a Table of objects, each with its name in its only cell."""
    return {
        "kind": "Table",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": columns,
        "rows": [
            {"cells": [one["metadata"].get("name")], "object": one} for one in rows
        ],
    }


class PrintedCase(WatchCase):
    """A watch of Tables, which a test reads with their cells."""

    shape = _PodShape
    printed = True

    def shown(self, event: WatchEvent) -> str:
        said = super().shown(event)
        if (printed := event.printed) is not None:
            parts = (printed.cells, printed.columns)
            said += "".join(f" {bytes(one).decode()}" for one in parts if one)
            if event.object is not None:
                text = json.loads(bytes(printed.text))
                self.assertEqual(text["metadata"]["name"], event.object.metadata.name)
        return said


class PrintedWatchTests(PrintedCase):
    """An API server that lists Tables."""

    def test_cells(self) -> None:
        columns = json.dumps(COLUMNS)
        self.read()
        asked = self.asked()
        self.assertIn("includeObject=Object", asked)
        self.answer(whole(table("7", pod("one", "1"))))
        self.assertEqual(
            self.taken(),
            ["RESET", f'ADDED one ["one"] {columns}', f"SYNCED 7 {columns}"],
        )
        self.assertIn("includeObject=Object", self.asked())
        # Only the first Table of a response has the columns.
        self.answer(
            HEAD,
            line("ADDED", table("8", pod("two", "8"))),
            line("MODIFIED", table("9", pod("two", "9"), columns=None)),
            line("BOOKMARK", table("12", pod("", "12"), columns=None)),
        )
        self.assertEqual(
            self.taken(),
            [
                f'ADDED two 8 ["two"] {columns}',
                f'MODIFIED two 9 ["two"] {columns}',
                "BOOKMARK 12",
            ],
        )

    def test_an_api_server_without_tables(self) -> None:
        self.read()
        self.asked()
        self.answer(listed("7", "one"))
        self.asked()
        self.answer(HEAD, line("ADDED", pod("two", "8")))
        self.assertEqual(
            self.taken(), ["RESET", "ADDED one", "SYNCED 7", "ADDED two 8"]
        )

    def test_errors(self) -> None:
        self.read()
        self.asked()
        self.answer(whole(table("7")))
        self.asked()
        gone = {"kind": "Status", "code": 410, "message": "too old"}
        self.answer(HEAD, line("ERROR", gone))
        self.taken()
        self.pause()
        self.asked()
        self.answer(whole(table("9", pod("odd", "8") | {"spec": []})))
        self.assertEqual(self.taken(), ["RESET", f"SYNCED 9 {json.dumps(COLUMNS)}"])


class PrintedStreamTests(PrintedCase):
    """An API server that streams Tables as initial objects."""

    streams = True

    def test_cells(self) -> None:
        columns = json.dumps(COLUMNS)
        self.read()
        self.asked()
        end = pod("", "7")
        end["metadata"]["annotations"] = {"k8s.io/initial-events-end": "true"}
        self.answer(
            HEAD,
            line("ADDED", table("5", pod("one", "5"))),
            line("BOOKMARK", table("7", end, columns=None)),
            line("DELETED", table("8", pod("one", "8"), columns=None)),
        )
        self.assertEqual(
            self.taken(),
            [
                "RESET",
                f'ADDED one ["one"] {columns}',
                f"SYNCED 7 {columns}",
                f'DELETED one 8 ["one"] {columns}',
            ],
        )
