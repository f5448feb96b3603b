"""The objects in memory: as with a real API server, and what only tests do."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.tunnel.kubernetes.scenario import config_map, following, play, refused
from tunnel.api import KubernetesResource
from tunnel.errors import Status
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import KubernetesClients
from tunnel.testing import FakeCluster, objects
from tunnel.testing.objects import Refusal


class ObjectsTests(SynchronousTestCase):
    """`FakeObjects`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cluster = FakeCluster(self.clock)
        pool = UpstreamPool(self.cluster.endpoint, self.clock)
        clients = KubernetesClients(self.cluster, pool, self.clock, jitter=lambda: 0.0)
        self.client = clients.as_agentk()
        self.objects = self.cluster.objects

    def run_all(self, doing: Coroutine[Any, Any, Any] | Awaitable[Any]) -> Any:
        async def all_of_it() -> Any:
            return await doing

        running = Deferred.fromCoroutine(all_of_it())
        for _ in range(3000):
            self.clock.advance(0.01)
        return self.successResultOf(running)

    def test_scenario(self) -> None:
        """The same requests as to a real API server have the same answers."""
        self.run_all(play(self.client, "a"))
        self.assertEqual(self.objects.watchers, set())

    def test_put_and_find(self) -> None:
        """The test is another client."""
        self.objects.put(config_map("a", "m", key="value"))
        self.objects.put(config_map("b", "m"))

        async def look() -> None:
            maps = await self.client.resource("v1", "ConfigMap")
            found = await self.client.get(maps, "m", "a")
            self.assertEqual(found["data"], {"key": "value"})
            everywhere = [one async for page in self.client.list(maps) for one in page]
            self.assertEqual(len(everywhere), 2)
            await self.client.delete(maps, "m", "a")

        self.run_all(look())
        self.assertIsNone(self.objects.find("v1", "ConfigMap", "m", "a"))
        found = self.objects.find("v1", "ConfigMap", "m", "b")
        assert found is not None
        found["data"] = "changed outside"
        self.assertEqual(self.objects.find("v1", "ConfigMap", "m", "b")["data"], {})  # type: ignore[index]

    def test_kinds(self) -> None:
        """One that the cluster did not have comes."""
        widget = {
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "metadata": {"name": "w"},
            "spec": {"size": 1},
        }
        self.run_all(
            refused(self.client.resource("example.com/v1", "Widget"), Status.NOT_FOUND)
        )
        with self.assertRaisesRegex(KeyError, "add_kind"):
            self.objects.put(widget)
        self.objects.add_kind(
            KubernetesResource("example.com", "v1", "Widget", "widgets", False)
        )
        self.clock.advance(10)
        made = self.run_all(self.client.apply(widget, field_manager="test"))
        self.assertEqual(made["metadata"]["generation"], 1)
        widget["spec"] = {"size": 2}
        made = self.run_all(self.client.apply(widget, field_manager="test"))
        self.assertEqual(made["metadata"]["generation"], 2)

    def test_forget(self) -> None:
        """A watch that goes on from a version that is forgotten begins again."""
        self.objects.streams = False
        self.objects.put(config_map("a", "m"))

        async def look() -> None:
            maps = await self.client.resource("v1", "ConfigMap")
            events = self.client.watch(maps, "a")
            seen = await following(events, 3)
            self.assertEqual(seen, [("RESET", ""), ("ADDED", "m"), ("SYNCED", "")])
            self.objects.put(config_map("a", "n"))
            self.assertEqual(await following(events, 1), [("ADDED", "n")])
            await events.aclose()

            events = self.client.watch(maps, "a")
            await following(events, 4)
            self.objects.remove("v1", "ConfigMap", "m", "a")
            self.objects.forget()
            seen = await following(events, 3)
            self.assertEqual(seen, [("RESET", ""), ("ADDED", "n"), ("SYNCED", "")])
            await events.aclose()

        self.run_all(look())

    def test_refused(self) -> None:
        """What it does not know it says, rather than answer otherwise."""
        self.objects.put(config_map("a", "m"))

        async def look() -> None:
            maps = await self.client.resource("v1", "ConfigMap")
            await refused(
                self.client.patch(maps, "m", [], "a", kind="json"),
                Status.FAILED_PRECONDITION,
                "FakeObjects",
            )
            pages = self.client.list(maps, "a", label_selector="x notin (y)")
            await refused(anext(pages), Status.INVALID_ARGUMENT, "select by")

        self.run_all(look())

    def ask(self, target: str, method: str = "GET", body: bytes = b"") -> Any:
        return self.objects.respond(method, f"/api/v1/{target}", "", body)

    def told(self, query: str) -> list[str]:
        """Names in the events of a watch that begins."""
        lines: list[bytes] = []
        self.ask(f"configmaps?watch=true&{query}").begin(lines.append)
        return [json.loads(line)["object"]["metadata"]["name"] for line in lines]

    def test_watch_without_a_version(self) -> None:
        """It begins with what is there now."""
        for name in ("m", "n"):
            self.objects.put(config_map("a", name))
        self.objects.remove("v1", "ConfigMap", "m", "a")
        self.assertEqual(self.told(""), ["n"])
        self.assertEqual(self.told("resourceVersion=0"), ["n"])
        self.assertEqual(self.told("resourceVersion=1"), ["n", "m"])

    def test_what_is_kept(self) -> None:
        """Events and lists that were begun, as many as the limits say."""
        for number in range(objects.MAX_EVENTS + 1):
            self.objects.put(config_map("a", "m", number=str(number)))
        self.assertEqual(len(self.told("resourceVersion=1")), objects.MAX_EVENTS)
        self.objects.put(config_map("a", "n"))
        with self.assertRaises(Refusal) as raised:
            self.told("resourceVersion=1")
        self.assertEqual(raised.exception.code, 410)
        begun = [
            self.ask("configmaps?limit=1")[1]["metadata"]["continue"]
            for _ in range(objects.MAX_LISTS + 1)
        ]
        with self.assertRaises(Refusal):
            self.ask(f"configmaps?continue={begun[0]}")
        for one in begun[1:]:
            found = self.ask(f"configmaps?continue={one}")[1]["items"]
            self.assertEqual(found[0]["metadata"]["name"], "n")

    def test_no_name(self) -> None:
        """An object has one; what makes names up runs in no test."""
        for body in (b"{}", b'{"metadata": {"name": ""}}', b'{"metadata":{"name":1}}'):
            with self.assertRaises(Refusal) as raised:
                self.ask("namespaces/a/configmaps", "POST", body)
            self.assertEqual(raised.exception.code, 422)
