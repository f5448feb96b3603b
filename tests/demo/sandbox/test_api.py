"""Who may ask, for what, and what the answers are; the objects are `FakeObjects`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from demo.sandbox.api import MAX_BODY, MAX_WATCH
from demo.sandbox.feeds import MAX_BEHIND, MAX_LINES
from tests.demo.sandbox.memory import Connection, Memory

MAPS = "/api/v1/namespaces/default/configmaps"
LOG = "/api/v1/namespaces/default/pods/ticker/log"


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


class ApiCase(SynchronousTestCase):
    """One sandbox."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.memory = Memory(Path(folder.name))
        self.ask = self.memory.ask


class RequestTests(ApiCase):
    def test_rights(self) -> None:
        """Who has the token may do everything, also as somebody else."""
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        review = {"kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {}}}
        answer = self.ask("POST", path, review)
        self.assertEqual(answer.status, 201)
        self.assertEqual(answer.json, {**review, "status": {"allowed": True}})
        for body in (b"", b"[1]", b"x"):
            self.assertEqual(self.ask("POST", path, body).status, 400)

    def test_without_the_token_nothing_is_done(self) -> None:
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
        run = "/api/v1/namespaces/default/pods/shell/exec?command=id"
        for given in ("", "Bearer other", "Bearer secret2", "Basic secret", "secret"):
            for answer in (
                self.ask("GET", "/version", Authorization=given),
                self.ask("POST", MAPS, b"{", Authorization=given),
                self.ask("GET", run, Authorization=given, **upgrade),
            ):
                self.assertEqual(answer.status, 401, given)
                self.assertEqual(answer.json["reason"], "Unauthorized")
        self.assertEqual(self.memory.reactor.spawned, [])

    def test_what_there_is(self) -> None:
        for path, seen in (
            ("/version", "no Kubernetes"),
            ("/readyz", "ok"),
            ("/api", "configmaps"),
            ("/apis", "deployments"),
            ("/api/v1/namespaces", "kube-system"),
            ("/api/v1/pods", "ticker"),
            (f"{MAPS}/about", "stand-in"),
        ):
            answer = self.ask("GET", path)
            self.assertEqual(answer.status, 200, path)
            self.assertIn(seen, answer.body.decode(), path)
        self.assertIn("as=APIGroupDiscoveryList", self.ask("GET", "/api").head)
        for path in ("/x", "/api/v1/unknown", "/api/v2/pods", f"{MAPS}/none"):
            self.assertEqual(self.ask("GET", path).status, 404, path)

    def test_pods_are_as_they_are(self) -> None:
        path = "/api/v1/namespaces/default/pods"
        for method, end in (("POST", ""), ("DELETE", "/shell"), ("PUT", "/shell")):
            answer = self.ask(method, path + end, config_map("one"))
            self.assertEqual(answer.status, 405, method)

    def test_requests_that_make_no_sense(self) -> None:
        for body in (b"{", b"[]", b'{"metadata": 1}', b"[" * 100_000, b"\xff"):
            self.assertEqual(self.ask("POST", MAPS, body).status, 400, body[:20])
        answer = self.ask("POST", MAPS, b"a: b", Content_Type="application/yaml")
        self.assertEqual(answer.status, 415)
        # An empty field is not sent: so the Kubernetes library creates objects.
        answer = self.ask("POST", MAPS, config_map("untyped"), Content_Type="")
        self.assertEqual(answer.status, 201)
        for query in ("limit=x", "watch=1&resourceVersion=x"):
            self.assertEqual(self.ask("GET", f"{MAPS}?{query}").status, 400, query)

    def test_body_beyond_the_limit(self) -> None:
        whole = b'{"metadata": {"name": "big"}}'.ljust(MAX_BODY)
        self.assertEqual(self.ask("POST", MAPS, whole).status, 201)
        self.assertEqual(self.ask("POST", MAPS, whole + b" ").status, 413)

    def test_chunked_body_beyond_the_limit(self) -> None:
        connection = self.memory.connect()
        connection.send("POST", MAPS, Transfer_Encoding="chunked")
        chunk = b"%x\r\n%b\r\n" % (2**20, bytes(2**20))
        connection.wire.receive(chunk, chunk, chunk)
        self.assertEqual(connection.wire.value(), b"")
        connection.wire.receive(chunk)
        self.assertEqual(connection.answer().status, 413)


class WatchTests(ApiCase):
    def watch(self, query: str = "") -> Connection:
        connection = self.memory.connect()
        connection.send("GET", f"{MAPS}?watch=true&{query}")
        return connection

    def test_changes_come_as_they_happen(self) -> None:
        watch = self.watch()
        self.assertEqual(watch.answer().events, [("ADDED", "about")])
        self.ask("POST", MAPS, config_map("one"))
        self.ask("DELETE", f"{MAPS}/one")
        events = watch.answer().events
        self.assertEqual(events[1:], [("ADDED", "one"), ("DELETED", "one")])

    def test_version_that_is_forgotten(self) -> None:
        self.memory.objects.forget()
        answer = self.watch("resourceVersion=1").answer()
        self.assertEqual((answer.status, answer.json["reason"]), (410, "Expired"))

    def test_ends(self) -> None:
        for seconds, after in ((5, 5), (10**9, MAX_WATCH), (-1, 0)):
            watch = self.watch(f"timeoutSeconds={seconds}")
            self.memory.reactor.advance(max(0, after - 1))
            self.assertEqual(len(self.memory.objects.watchers), after > 0)
            self.memory.reactor.advance(1)
            self.assertTrue(watch.wire.value().endswith(b"0\r\n\r\n"))
            self.assertEqual(self.memory.objects.watchers, set())

    def test_client_that_leaves_is_forgotten(self) -> None:
        watch = self.watch()
        self.assertEqual(len(self.memory.objects.watchers), 1)
        watch.wire.lose()
        self.assertEqual(self.memory.objects.watchers, set())

    def test_client_that_does_not_read_is_dropped(self) -> None:
        watch = self.watch()
        assert watch.wire.producer is not None
        watch.wire.producer.pauseProducing()
        self.ask("POST", MAPS, config_map("one", data="x" * (MAX_BEHIND // 2)))
        self.assertFalse(watch.wire.aborted)
        self.ask("POST", MAPS, config_map("two", data="x" * (MAX_BEHIND // 2)))
        self.assertTrue(watch.wire.aborted)
        self.assertEqual(self.memory.objects.watchers, set())


class LogTests(ApiCase):
    def setUp(self) -> None:
        super().setUp()
        self.log = self.memory.logs["default", "ticker"]
        for number in range(3):
            self.log.write(f"line {number}")

    def test_all_of_it_or_its_end(self) -> None:
        self.assertEqual(self.ask("GET", LOG).body, b"line 0\nline 1\nline 2\n")
        self.assertEqual(self.ask("GET", f"{LOG}?tailLines=1").body, b"line 2\n")
        self.assertEqual(self.ask("GET", f"{LOG}?tailLines=0").body, b"")

    def test_follow(self) -> None:
        connection = self.memory.connect()
        connection.send("GET", f"{LOG}?follow=true&tailLines=1")
        self.assertEqual(connection.answer().body, b"line 2\n")
        self.log.write("line 3")
        self.assertEqual(connection.answer().body, b"line 2\nline 3\n")
        connection.wire.lose()
        self.assertEqual(self.log.followers, set())

    def test_only_the_last_lines_are_kept(self) -> None:
        for number in range(MAX_LINES):
            self.log.write(f"new {number}")
        lines = self.ask("GET", LOG).body.splitlines()
        self.assertEqual((len(lines), lines[0]), (MAX_LINES, b"new 0"))

    def test_what_there_is_not(self) -> None:
        for query in ("tailLines=x", "container=other"):
            self.assertEqual(self.ask("GET", f"{LOG}?{query}").status, 400, query)
        for path in (LOG.replace("ticker", "none"), LOG.replace("/log", "/attach")):
            self.assertEqual(self.ask("GET", path).status, 404)

    def test_requests_are_in_the_log_of_the_server(self) -> None:
        self.ask("GET", "/version?token=secret")
        path = "/api/v1/namespaces/kube-system/pods/sandbox/log"
        self.assertIn(b"GET /version\n", self.ask("GET", path).body)
