"""Who may ask, for what, and what the answers are."""

from __future__ import annotations

import shutil
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from demo.sandbox.api import MAX_BODY
from demo.sandbox.discovery import DOCUMENTS
from tests.demo.sandbox.memory import Memory

MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "data": {"a": "b"}}


def field(number: int, data: bytes) -> bytes:
    """A field of protobuf."""
    return bytes([number << 3 | 2, len(data)]) + data


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
    def test_create_get_update_patch_delete(self) -> None:
        made = self.ask("POST", MAPS, config_map("one")).json
        self.assertEqual(made["metadata"]["namespace"], "default")
        self.assertEqual(self.ask("GET", f"{MAPS}/one").json, made)
        made["data"] = {"c": "d"}
        updated = self.ask("PUT", f"{MAPS}/one", made).json
        self.assertEqual(updated["data"], {"c": "d"})
        patch = {"data": {"c": None, "e": "f"}}
        kind = "application/strategic-merge-patch+json"
        patched = self.ask("PATCH", f"{MAPS}/one", patch, kind).json
        self.assertEqual(patched["data"], {"e": "f"})
        versions = [
            int(one["metadata"]["resourceVersion"]) for one in (made, updated, patched)
        ]
        self.assertEqual(versions, sorted(set(versions)))
        self.assertEqual(self.ask("DELETE", f"{MAPS}/one").json["status"], "Success")
        self.assertEqual(self.ask("GET", f"{MAPS}/one").status, 404)

    def test_name_is_taken_once(self) -> None:
        self.ask("POST", MAPS, config_map("one"))
        answer = self.ask("POST", MAPS, config_map("one"))
        self.assertEqual((answer.status, answer.json["reason"]), (409, "AlreadyExists"))

    def test_update_of_an_older_version_is_refused(self) -> None:
        old = self.ask("POST", MAPS, config_map("one")).json
        self.ask("PUT", f"{MAPS}/one", old)
        self.assertEqual(self.ask("PUT", f"{MAPS}/one", old).status, 409)

    def test_no_namespace(self) -> None:
        answer = self.ask("POST", "/api/v1/namespaces/nowhere/configmaps", {})
        self.assertEqual(answer.status, 422)
        path = "/api/v1/namespaces/nowhere/configmaps"
        self.assertEqual(self.ask("POST", path, config_map("one")).status, 404)

    def test_namespace_goes_with_its_content(self) -> None:
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "new"}})
        self.ask("POST", "/api/v1/namespaces/new/configmaps", config_map("one"))
        self.assertIn("one", self.names("/api/v1/configmaps"))
        self.ask("DELETE", "/api/v1/namespaces/new")
        self.assertNotIn("one", self.names("/api/v1/configmaps"))
        self.assertEqual(self.ask("DELETE", "/api/v1/namespaces/default").status, 409)

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

    def test_protobuf_as_kubectl_sends_it(self) -> None:
        metadata = field(1, b"pb") + field(2, b"") + bytes([7 << 3, 0])
        entry = field(1, b"a") + field(2, b"b")
        content = field(1, metadata) + field(2, entry)
        about = field(1, b"v1") + field(2, b"ConfigMap")
        body = b"k8s\0" + field(1, about) + field(2, content) + field(3, b"")
        made = self.ask("POST", MAPS, body, PROTOBUF)
        self.assertEqual(made.status, 201, made.body)
        self.assertEqual(made.json["metadata"]["name"], "pb")
        self.assertEqual(made.json["data"], {"a": "b"})

    def test_protobuf_of_a_kind_that_is_not_known(self) -> None:
        body = b"k8s\0" + field(1, field(1, b"v1") + field(2, b"Secret"))
        self.assertEqual(self.ask("POST", MAPS, body, PROTOBUF).status, 415)

    def test_protobuf_that_is_none(self) -> None:
        for body in (b"{}", b"k8s\0", b"k8s\0\x0a\xff", b"k8s\0" + b"\xff" * 20):
            self.assertEqual(self.ask("POST", MAPS, body, PROTOBUF).status, 400, body)


class SelectionTests(ApiCase):
    def test_selectors(self) -> None:
        self.ask("POST", MAPS, config_map("one", app="a", tier="x"))
        self.ask("POST", MAPS, config_map("two", app="b"))
        for query, expected in (
            ("fieldSelector=metadata.name%3Dtwo", ["two"]),
            ("labelSelector=app%3Da", ["one"]),
            ("labelSelector=app%3D%3Db,tier!%3Dx", ["two"]),
            ("labelSelector=tier", ["one"]),
            ("labelSelector=!tier,app", ["two"]),
            ("labelSelector=app!%3Da", ["about", "two"]),
        ):
            self.assertEqual(self.names(f"{MAPS}?{query}"), expected, query)

    def test_selector_that_is_not_known_is_not_ignored(self) -> None:
        answer = self.ask("GET", f"{MAPS}?labelSelector=app+in+(a)")
        self.assertEqual(answer.status, 400)

    def test_tables_for_kubectl(self) -> None:
        self.memory.later(300)
        for plural, row in (
            ("pods", ["shell", "1/1", "Running", 0, "5m"]),
            ("configmaps", ["about", 1, "5m"]),
            ("namespaces", ["default", "Active", "5m"]),
        ):
            table = self.ask("GET", f"/api/v1/{plural}", Accept=TABLE).json
            self.assertEqual(table["kind"], "Table")
            self.assertEqual(table["rows"][0]["cells"], row)
            self.assertEqual(len(table["columnDefinitions"]), len(row))


class ReviewTests(ApiCase):
    def test_everything_is_allowed(self) -> None:
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = self.ask("POST", path, {"spec": {}})
        self.assertTrue(answer.json["status"]["allowed"])

    def test_who_one_is(self) -> None:
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        answer = self.ask("POST", path, {}, Impersonate_User="jane")
        self.assertEqual(answer.json["status"]["userInfo"]["username"], "jane")

    def test_unknown_review(self) -> None:
        path = "/apis/authorization.k8s.io/v1/others"
        self.assertEqual(self.ask("POST", path, {}).status, 404)
