"""Watches that go on, over connections of which the test is the other end."""

from __future__ import annotations

import json
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.modules.kubernetes_api.pair import Cluster
from tests.tunnel.http1.wire import Wire
from tunnel.api import KubernetesResource, WatchEvent
from tunnel.errors import CallError, Status
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import KubernetesClients
from tunnel.kubernetes.answers import MAX_LINE, MAX_WAITING
from tunnel.kubernetes.watch import LASTS, LATE, RETRY_MOST

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


class WatchTests(SynchronousTestCase):
    """`KubernetesClient.watch`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cluster = Cluster()
        pool = UpstreamPool(self.cluster.endpoint, self.clock)
        clients = KubernetesClients(
            cast(Any, self.cluster), pool, self.clock, lambda: 0.0
        )
        self.events = clients.as_agentk().watch(PODS, "a", label_selector="x=y")
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
        name = event.object["metadata"]["name"] if event.object else ""
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
            self.assertIn("resourceVersion=7", self.asked())
            self.origin.lose(clean=False)
        self.assertEqual(pauses[:4], [0.25, 0.5, 1.0, 2.0])
        self.assertEqual(pauses[-1], RETRY_MOST / 2)

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
        self.assertIn("resourceVersion=7", self.asked())

    def test_silent_connection(self) -> None:
        """One that does not end when it should is given up."""
        self.begin()
        first = self.origin
        self.clock.advance(LASTS + LATE)
        self.assertTrue(first.disconnecting)
        first.settle()
        self.clock.advance(RETRY_MOST)
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
