"""Who may ask, for what, and what the answers are."""

from __future__ import annotations

import shutil
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from demo.sandbox.api import DOCUMENTS, MAX_BODY
from tests.demo.sandbox.memory import Memory

MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "data": {"a": "b"}}


class ApiCase(SynchronousTestCase):
    """One sandbox."""

    def setUp(self) -> None:
        self.memory = Memory()
        self.addCleanup(shutil.rmtree, self.memory.folder)
        self.ask = self.memory.ask

    def names(self, path: str) -> list[str]:
        return [o["metadata"]["name"] for o in self.ask("GET", path).json["items"]]


class AuthenticationTests(ApiCase):
    def test_without_the_token_nothing_is_told(self) -> None:
        for given in ("", "Bearer other", "Bearer secret2", "Basic secret", "secret"):
            answer = self.ask("GET", "/version", Authorization=given)
            self.assertEqual(answer.status, 401, given)
            self.assertEqual(answer.json["reason"], "Unauthorized")
            self.assertNotIn("gitVersion", answer.json)

    def test_without_the_token_nothing_is_run(self) -> None:
        answer = self.ask(
            "GET",
            "/api/v1/namespaces/default/pods/shell/exec?command=id",
            Authorization="Bearer other",
            Connection="Upgrade",
            Upgrade="websocket",
        )
        self.assertEqual(answer.status, 401)
        self.assertEqual(self.memory.reactor.spawned, [])

    def test_body_of_a_stranger_is_not_looked_at(self) -> None:
        answer = self.ask("POST", MAPS, b"{", Authorization="Bearer other")
        self.assertEqual(answer.status, 401)


class DiscoveryTests(ApiCase):
    def test_every_document_is_there(self) -> None:
        for path in DOCUMENTS:
            self.assertEqual(self.ask("GET", path).status, 200, path)

    def test_listed_resources_can_be_listed(self) -> None:
        for resource in self.ask("GET", "/api/v1").json["resources"]:
            if "/" not in resource["name"]:
                answer = self.ask("GET", f"/api/v1/{resource['name']}")
                self.assertEqual(answer.json["kind"], f"{resource['kind']}List")

    def test_unknown_path(self) -> None:
        for path in ("/x", "/api/v1/secrets", "/apis/apps/v1/deployments", "/api/v2"):
            self.assertEqual(self.ask("GET", path).status, 404, path)


class ObjectTests(ApiCase):
    def test_create_get_delete(self) -> None:
        made = self.ask("POST", MAPS, config_map("one")).json
        self.assertEqual(made["metadata"]["namespace"], "default")
        self.assertEqual(self.ask("GET", f"{MAPS}/one").json, made)
        self.assertEqual(self.ask("DELETE", f"{MAPS}/one").json["status"], "Success")
        self.assertEqual(self.ask("GET", f"{MAPS}/one").status, 404)

    def test_name_is_taken_once(self) -> None:
        self.ask("POST", MAPS, config_map("one"))
        answer = self.ask("POST", MAPS, config_map("one"))
        self.assertEqual((answer.status, answer.json["reason"]), (409, "AlreadyExists"))

    def test_no_namespace(self) -> None:
        answer = self.ask("POST", "/api/v1/namespaces/nowhere/configmaps", {})
        self.assertEqual(answer.status, 422)
        path = "/api/v1/namespaces/nowhere/configmaps"
        self.assertEqual(self.ask("POST", path, config_map("one")).status, 404)

    def test_pods_are_as_they_are(self) -> None:
        path = "/api/v1/namespaces/default/pods"
        for method, end in (("POST", ""), ("DELETE", "/shell"), ("PUT", "/shell")):
            answer = self.ask(method, path + end, config_map("one"))
            self.assertEqual(answer.status, 405, method)

    def test_bodies_that_are_none(self) -> None:
        for body in (b"{", b"[]", b'{"metadata": 1}', b"[" * 100_000, b"\xff"):
            self.assertEqual(self.ask("POST", MAPS, body).status, 400, body[:20])
        answer = self.ask("POST", MAPS, b"a: b", "application/yaml")
        self.assertEqual(answer.status, 415)

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

    def test_selectors(self) -> None:
        self.ask("POST", MAPS, config_map("one", app="a"))
        self.ask("POST", MAPS, config_map("two", app="b"))
        for query, names in (
            ("labelSelector=app%3Da", ["one"]),
            ("labelSelector=app%3D%3Db", ["two"]),
            ("fieldSelector=metadata.name%3Dtwo,data.a%3Db", ["two"]),
            ("fieldSelector=metadata.name%3Done&labelSelector=app%3Db", []),
        ):
            self.assertEqual(self.names(f"{MAPS}?{query}"), names, query)
        for query in (
            "labelSelector=app",
            "fieldSelector=a!%3Db",
            "labelSelector=!app",
        ):
            self.assertEqual(self.ask("GET", f"{MAPS}?{query}").status, 400, query)
