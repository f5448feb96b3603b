"""``kubectl auth can-i`` of users who are read-only: kas and the cluster agree."""

from __future__ import annotations

import json
from typing import Any

import attrs

from modules.kubernetes_api.reviews import MAX_REVIEW
from tests.modules.kubernetes_api.cases import ProxyCase
from tests.modules.kubernetes_api.pair import ALICE
from tests.tunnel.http1.wire import Wire

REVIEW = b"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RULES = b"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
ALLOWED = b'{"status":{"allowed":true}}'


def resource(verb: str, kind: str, /, **more: str) -> dict[str, Any]:
    return {"resourceAttributes": {"verb": verb, "resource": kind, **more}}


def path(verb: str, path: str) -> dict[str, Any]:
    return {"nonResourceAttributes": {"verb": verb, "path": path}}


class ReviewTests(ProxyCase):
    """Questions, and where they are answered."""

    def setUp(self) -> None:
        super().setUp()
        self.may(read_only=True)

    def may(self, read_only: bool, secrets: bool = False) -> None:
        access = attrs.evolve(ALICE, read_only=read_only, secrets=secrets)
        self.world.server_api.access["looker"] = access

    def ask(self, body: bytes, target: bytes = REVIEW) -> Wire:
        return self.world.request(
            b"POST " + target + b"?a=b HTTP/1.1",
            b"Content-Type: application/json",
            b"Content-Length: %d" % len(body),
            token=b"user:1:looker",
            body=body,
        )

    def assert_passed_on(self, spec: dict[str, Any]) -> None:
        """The cluster decides."""
        body = json.dumps({"kind": "SelfSubjectAccessReview", "spec": spec}).encode()
        wire = self.ask(body)
        asked = self.world.origin.taken()
        self.assertIn(b"POST " + REVIEW + b"?a=b HTTP/1.1", asked)
        self.assertTrue(asked.endswith(body), asked)
        self.world.origin.receive(
            b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n" % len(ALLOWED)
            + ALLOWED
        )
        self.world.run()
        self.assertIn(ALLOWED, wire.taken())
        self.assert_clean()

    def assert_denied(self, spec: dict[str, Any], why: str) -> None:
        wires = len(self.world.cluster.connections.wires)
        head, _, body = (
            self.ask(json.dumps({"spec": spec}).encode()).taken().partition(b"\r\n\r\n")
        )
        self.assertIn(b" 201 ", head)
        answer = json.loads(body)
        self.assertEqual(answer["kind"], "SelfSubjectAccessReview")
        self.assertEqual(answer["apiVersion"], "authorization.k8s.io/v1")
        self.assertIs(answer["status"]["allowed"], False)
        self.assertIn(why, answer["status"]["reason"])
        self.assertEqual(len(self.world.cluster.connections.wires), wires)
        self.assert_clean()

    def test_denied(self) -> None:
        """kas denies what it would refuse, and asks no one."""
        for spec in (
            resource("create", "pods", namespace="a"),
            resource("delete", "nodes", name="x"),
            resource("*", "*", group="*"),
            resource("impersonate", "users"),
            resource("get", "pods", subresource="exec", namespace="a"),
            resource("get", "pods", subresource="portforward"),
            resource("get", "nodes", subresource="proxy", name="n"),
            path("post", "/api"),
            path("get", "/metrics"),
        ):
            self.assert_denied(spec, "user alice is read-only: get, list and watch")
        for spec in (
            resource("get", "secrets", namespace="a", name="b"),
            resource("list", "secrets"),
            resource("watch", "secrets", namespace="a"),
            resource("list", "*", group="*"),
        ):
            self.assert_denied(spec, "may not read Secrets")

    def test_passed_on(self) -> None:
        """The cluster decides what kas would let through."""
        for spec in (
            resource("list", "pods"),
            resource("get", "pods", namespace="a", name="b", subresource="log"),
            resource("watch", "deployments", group="apps", namespace="a"),
            resource("get", "secrets", group="x.example"),
            path("get", "/version"),
        ):
            self.assert_passed_on(spec)
        self.may(read_only=True, secrets=True)
        self.assert_passed_on(resource("get", "secrets", namespace="a"))
        self.may(read_only=False)
        self.assert_passed_on(resource("delete", "pods"))

    def test_all_rights(self) -> None:
        """kas does not list them, and says how to ask."""
        wire = self.ask(b'{"spec":{"namespace":"a"}}', RULES)
        self.assert_error(wire, 403, "kubectl auth can-i list pods")
        self.assert_clean()

    def test_unreadable(self) -> None:
        """What kas cannot read goes no further."""
        for body in (b"k8s\0", b"[]", b"{}", b'{"spec":{}}', b'{"spec":[]}'):
            self.assert_error(self.ask(body), 400, "only as JSON")
        self.assert_error(self.ask(b""), 400, "no body")
        self.assert_error(self.ask(b" " * (MAX_REVIEW + 1)), 413, "too large")
        self.assertEqual(self.world.cluster.connections.wires, [])
        self.assert_clean()
