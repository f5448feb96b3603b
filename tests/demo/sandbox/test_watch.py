"""``watch`` and ``logs -f``: answers that go on."""

from __future__ import annotations

import json

from demo.sandbox.feeds import MAX_BEHIND, MAX_LINES
from demo.sandbox.store import MAX_HISTORY
from tests.demo.sandbox.memory import Connection
from tests.demo.sandbox.test_api import MAPS, ApiCase, config_map

LOG = "/api/v1/namespaces/default/pods/ticker/log"


class WatchTests(ApiCase):
    def watch(self, query: str = "", **headers: str) -> Connection:
        connection = self.memory.connect()
        connection.send("GET", f"{MAPS}?watch=true&{query}", **headers)
        return connection

    def version(self) -> str:
        return str(self.memory.store.version)

    def test_begins_with_what_is_there(self) -> None:
        self.assertEqual(self.watch().answer().events, [("ADDED", "about")])

    def test_changes_come_as_they_happen(self) -> None:
        watch = self.watch(f"resourceVersion={self.version()}")
        self.assertEqual(watch.answer().events, [])
        self.ask("POST", MAPS, config_map("one"))
        self.assertEqual(watch.answer().events, [("ADDED", "one")])
        self.ask("DELETE", f"{MAPS}/one")
        kinds = [kind for kind, _ in watch.answer().events]
        self.assertEqual(kinds, ["ADDED", "DELETED"])

    def test_nothing_is_lost_between_list_and_watch(self) -> None:
        before = self.version()
        self.ask("POST", MAPS, config_map("one"))
        watch = self.watch(f"resourceVersion={before}")
        self.assertEqual(watch.answer().events, [("ADDED", "one")])

    def test_other_kinds_and_namespaces_are_not_told(self) -> None:
        watch = self.watch(f"resourceVersion={self.version()}")
        elsewhere = MAPS.replace("default", "kube-system")
        self.ask("POST", elsewhere, config_map("one"))
        self.assertEqual(watch.answer().events, [])

    def test_version_that_nobody_remembers(self) -> None:
        before = self.version()
        for _ in range(MAX_HISTORY // 2):
            self.ask("POST", MAPS, config_map("one"))
            self.ask("DELETE", f"{MAPS}/one")
        watch = self.watch(f"resourceVersion={before}")
        self.assertEqual(len(watch.answer().events), MAX_HISTORY)
        self.ask("POST", MAPS, config_map("one"))
        answer = self.watch(f"resourceVersion={before}").answer()
        event = json.loads(answer.body)
        self.assertEqual((event["type"], event["object"]["code"]), ("ERROR", 410))

    def test_ends_after_its_time(self) -> None:
        watch = self.watch("timeoutSeconds=5")
        self.memory.reactor.advance(4)
        self.assertFalse(watch.wire.value().endswith(b"0\r\n\r\n"))
        self.memory.reactor.advance(1)
        self.assertTrue(watch.wire.value().endswith(b"0\r\n\r\n"))
        self.assertEqual(self.memory.store._watchers, set())

    def test_client_that_leaves_is_forgotten(self) -> None:
        watch = self.watch("timeoutSeconds=5")
        self.assertEqual(len(self.memory.store._watchers), 1)
        watch.wire.lose()
        self.assertEqual(self.memory.store._watchers, set())

    def test_client_that_does_not_read_is_dropped(self) -> None:
        watch = self.watch(f"resourceVersion={self.version()}")
        assert watch.wire.producer is not None
        watch.wire.producer.pauseProducing()
        data = {"data": "x" * (MAX_BEHIND // 2)}
        self.ask("POST", MAPS, config_map("one") | {"data": data})
        self.assertFalse(watch.wire.aborted)
        self.ask("POST", MAPS, config_map("two") | {"data": data})
        self.assertTrue(watch.wire.aborted)
        self.assertEqual(self.memory.store._watchers, set())

    def test_arguments_that_are_no_numbers(self) -> None:
        for query in ("resourceVersion=x", "timeoutSeconds=-1"):
            self.assertEqual(self.watch(query).answer().status, 400)


class LogTests(ApiCase):
    def setUp(self) -> None:
        super().setUp()
        self.log = self.memory.logs["default", "ticker"]
        for number in range(3):
            self.log.write(f"line {number}")
            self.memory.later(10)

    def test_all_of_it_or_its_end(self) -> None:
        self.assertEqual(self.ask("GET", LOG).body, b"line 0\nline 1\nline 2\n")
        self.assertEqual(self.ask("GET", f"{LOG}?tailLines=1").body, b"line 2\n")
        self.assertEqual(self.ask("GET", f"{LOG}?tailLines=0").body, b"")

    def test_timestamps(self) -> None:
        body = self.ask("GET", f"{LOG}?tailLines=1&timestamps=true").body
        self.assertEqual(body, b"2026-01-01T00:00:20Z line 2\n")

    def test_follow(self) -> None:
        connection = self.memory.connect()
        connection.send("GET", f"{LOG}?follow=true&tailLines=1")
        self.assertEqual(connection.answer().body, b"line 2\n")
        self.log.write("line 3")
        self.assertEqual(connection.answer().body, b"line 2\nline 3\n")
        connection.wire.lose()
        self.assertEqual(self.log._followers, {})

    def test_only_the_last_lines_are_kept(self) -> None:
        for number in range(MAX_LINES):
            self.log.write(f"new {number}")
        lines = self.ask("GET", LOG).body.splitlines()
        self.assertEqual((len(lines), lines[0]), (MAX_LINES, b"new 0"))

    def test_what_nobody_has(self) -> None:
        for query in ("tailLines=x", "container=other"):
            self.assertEqual(self.ask("GET", f"{LOG}?{query}").status, 400, query)
        path = LOG.replace("ticker", "nobody")
        self.assertEqual(self.ask("GET", path).status, 404)

    def test_requests_are_in_the_log_of_the_server(self) -> None:
        self.ask("GET", "/version?token=secret")
        path = "/api/v1/namespaces/kube-system/pods/sandbox/log"
        self.assertIn(b"GET /version\n", self.ask("GET", path).body)
