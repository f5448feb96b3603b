"""``kubectl auth can-i`` of users who are read-only: kas and the cluster agree."""

from __future__ import annotations

import json
from typing import Any

import attrs

from modules.kubernetes_api.reviews import MAX_REVIEW
from tests.modules.kubernetes_api.cases import HELLO, ProxyCase
from tests.modules.kubernetes_api.pair import ALICE
from tests.tunnel.http1.wire import Wire

REVIEW = b"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RULES = b"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
ALLOWED = b'{"status":{"allowed":true}}'


def resource(verb: str, kind: str, /, **more: str) -> dict[str, Any]:
    return {"resourceAttributes": {"verb": verb, "resource": kind, **more}}


def path(verb: str, path: str) -> dict[str, Any]:
    return {"nonResourceAttributes": {"verb": verb, "path": path}}


def message(fields: dict[int, bytes]) -> bytes:
    """Protobuf, with every field a string or a message."""
    return b"".join(
        bytes([number << 3 | 2, len(text)]) + text for number, text in fields.items()
    )


def protobuf(spec: dict[int, dict[int, bytes]]) -> bytes:
    """A review as kubectl sends it."""
    inner = message({number: message(one) for number, one in spec.items()})
    review = message({1: b"", 2: inner, 3: message({2: b""}) + b"\x08\x00"})
    kind = message({1: b"authorization.k8s.io/v1", 2: b"SelfSubjectAccessReview"})
    return b"k8s\0" + message({1: kind, 2: review, 3: b"", 4: b""})


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
            self.assert_denied(
                spec, "user alice is read-only: only get, list and watch"
            )
        for spec in (
            resource("get", "secrets", namespace="a", name="b"),
            resource("list", "secrets"),
            resource("watch", "secrets", namespace="a"),
            resource("list", "*", group="*"),
            resource("list", "*"),
            resource("list", "secrets", group="*"),
            resource("get", "secrets", group="*", namespace="a", name="b"),
            resource("list", "secrets.*"),
            resource("list", "secrets."),
            resource("list", "*.*"),
        ):
            self.assert_denied(spec, "may not read Secrets")

    def test_passed_on(self) -> None:
        """The cluster decides what kas would let through."""
        for spec in (
            resource("list", "pods"),
            resource("get", "pods", namespace="a", name="b", subresource="log"),
            resource("watch", "deployments", group="apps", namespace="a"),
            resource("get", "secrets", group="x.example"),
            resource("get", "secrets.x.example"),
            resource("list", "*", group="apps"),
            resource("list", "pods", group="*"),
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

    def test_protobuf(self) -> None:
        """kubectl asks in protobuf, and reads the answer in JSON."""
        for spec, denied in (
            ({1: {1: b"a", 2: b"create", 5: b"pods"}}, True),
            ({1: {2: b"get", 5: b"secrets", 7: b"x"}}, True),
            ({1: {2: b"list", 5: b"pods", 8: b"other"}}, False),
            ({2: {1: b"/metrics", 2: b"get"}}, True),
            ({2: {1: b"/version", 2: b"get"}}, False),
        ):
            body = protobuf(spec)
            wire = self.ask(body)
            if denied:
                self.assertIn(b'"allowed": false', wire.taken())
            else:
                self.assertTrue(self.world.origin.taken().endswith(body))
                self.world.origin.receive(HELLO)
            self.assert_clean()

    def test_unreadable(self) -> None:
        """What kas cannot read goes no further."""
        for body in (
            b"k8s\0",
            b"k8s\0\x12",
            b"k8s\0\x12" + b"\xff" * 12,
            b"k8s\0\x12\x05a",
            b"k8s\0\x15aaaa",
            b"k8s\0" + message({2: b""}),
            protobuf({}),
            protobuf({1: {2: b"get", 5: b"\xff"}}),
            b"[]",
            b"{}",
            b'{"spec":{}}',
            b'{"spec":[]}',
            b"[" * 10_000,
        ):
            self.assert_error(self.ask(body), 400, "cannot parse the access review")
        self.assert_error(self.ask(b""), 400, "no body")
        self.assert_error(self.ask(b" " * (MAX_REVIEW + 1)), 413, "too large")
        self.assertEqual(self.world.cluster.connections.wires, [])
        self.assert_clean()
