"""Requests of agent halves to the API server, in the name of a caller."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from typing import Any, cast

import yaml
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.modules.kubernetes_api.pair import ALICE, ROOT, Cluster
from tests.tunnel.http1.wire import Wire
from tunnel.api import Access, IKubernetesClient, Impersonation
from tunnel.errors import CallError, Status
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import KubernetesClient, KubernetesClients, OwnNamespace
from tunnel.kubernetes.answers import MAX_BODY, MAX_DEPTH, MAX_MESSAGE, error_of
from tunnel.kubernetes.discovery import parse_resources

PODS = "/api/v1/namespaces/a/pods?limit=1"


class ClientTests(SynchronousTestCase):
    """`KubernetesClients`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cluster = Cluster()
        self.pool = UpstreamPool(self.cluster.endpoint, self.clock)
        self.clients = KubernetesClients(
            cast(Any, self.cluster), self.pool, self.clock, jitter=lambda: 0.5
        )
        self.alice = self.clients.acting_for(ALICE)

    @property
    def origin(self) -> Wire:
        wire: Wire = self.cluster.connections.wires[-1]
        return wire

    def ask(self, coroutine: Coroutine[Any, Any, Any], *answer: bytes) -> Deferred[Any]:
        asking = Deferred.fromCoroutine(coroutine)
        self.clock.advance(0)
        for part in answer:
            self.origin.receive(part)
        return asking

    def fails(self, asking: Deferred[Any]) -> CallError:
        error: CallError = self.failureResultOf(asking, CallError).value
        return error

    def test_interface(self) -> None:
        """What modules are told of it is there."""
        verifyObject(IKubernetesClient, self.alice)

    def test_as_a_user(self) -> None:
        """agentk's credential, and the user whom the API server is to judge."""
        asking = self.ask(
            self.alice.json("GET", PODS),
            b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n",
            b'{"items": []}',
        )
        self.assertEqual(self.successResultOf(asking), {"items": []})
        request = self.origin.taken()
        self.assertTrue(request.startswith(b"GET " + PODS.encode() + b" HTTP/1.1\r\n"))
        for line in (
            b"Authorization: Bearer agent-token",
            b"Impersonate-User: alice",
            b"Impersonate-Group: dev",
            b"Impersonate-Group: ops",
        ):
            self.assertIn(b"\r\n" + line + b"\r\n", request)

    def test_as_agentk(self) -> None:
        """A step of its own, or what a user was given by name."""
        for client in (self.clients.as_agentk(), self.clients.acting_for(ROOT)):
            self.ask(client.request("GET", PODS))
            self.assertNotIn(b"Impersonate-", self.origin.taken())

    def test_nobody(self) -> None:
        """Without a caller there is no client; agentk is never the fallback."""
        error = self.assertRaises(CallError, self.clients.acting_for, None)
        self.assertEqual(error.status, Status.PERMISSION_DENIED)
        broken = Access("user:x", "1", "agent-1", Impersonation(""))
        error = self.assertRaises(CallError, self.clients.acting_for, broken)
        self.assertEqual(error.status, Status.PERMISSION_DENIED)

    def test_read_only(self) -> None:
        """Nothing but reading leaves agentk."""
        reader = self.clients.acting_for(Access("user:ro", "1", "a", None, True))
        for method, path in (("POST", PODS), ("GET", "/api/v1/nodes/n/proxy/run")):
            error = self.fails(self.ask(reader.request(method, path, b"{}")))
            self.assertEqual(error.status, Status.PERMISSION_DENIED)
            self.assertIn("user ro is read-only", str(error))
        error = self.fails(self.ask(reader.request("GET", "/api/v1/secrets")))
        self.assertEqual(error.status, Status.PERMISSION_DENIED)
        self.assertIn("may not read Secrets", str(error))
        self.assertEqual(self.cluster.connections.wires, [])
        self.assertNoResult(self.ask(reader.request("GET", PODS)))

    def test_own_namespace(self) -> None:
        """A caller with agentk's rights gets no records of agentk; agentk does."""
        clients = KubernetesClients(
            cast(Any, self.cluster),
            self.pool,
            self.clock,
            lambda: 0.5,
            own_namespace=OwnNamespace("txkas", is_closed=True),
        )
        path = "/api/v1/namespaces/txkas/secrets"
        account = Impersonation("system:serviceaccount:txkas:agentk")
        for access in (ROOT, Access("user:x", "1", "agent-1", account)):
            error = self.fails(self.ask(clients.acting_for(access).json("GET", path)))
            self.assertEqual(error.status, Status.PERMISSION_DENIED)
            self.assertIn("allow_own_namespace", str(error))
        self.assertEqual(self.cluster.connections.wires, [])
        for client in (
            clients.acting_for(ALICE),
            clients.as_agentk(),
            clients.as_service_account("txkas", "deployer"),
        ):
            self.ask(client.request("GET", path))
            self.assertIn(f"GET {path} HTTP".encode(), self.origin.taken())
        self.ask(clients.acting_for(ROOT).request("GET", "/api/v1/secrets"))
        self.assertIn(b"metadata.namespace%21%3Dtxkas ", self.origin.taken())

    def test_body(self) -> None:
        """An object travels as JSON."""
        asking = self.ask(
            self.alice.json("POST", "/api/v1/namespaces", {"kind": "Namespace"}),
            b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
        )
        self.assertIsNone(self.successResultOf(asking))
        request = self.origin.taken()
        self.assertIn(b"\r\nContent-Type: application/json\r\n", request)
        self.assertEqual(
            json.loads(request.partition(b"\r\n\r\n")[2])["kind"], "Namespace"
        )

    def test_applied(self) -> None:
        """The API server reads it as YAML, which has no pairs of escapes."""
        wanted = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "b"},
            "data": {"title": "\U0001f4e6 \x7f\u2028 東京"},
        }
        kinds = {
            "kind": "APIResourceList",
            "groupVersion": "v1",
            "resources": [{"name": "configmaps", "namespaced": True, "verbs": []}],
        }
        kinds["resources"][0]["kind"] = "ConfigMap"  # type: ignore[index]
        self.clients.discovery.learn([*parse_resources(kinds)])
        self.ask(self.alice.apply(wanted, field_manager="test"))
        head, _, body = self.origin.taken().partition(b"\r\n\r\n")
        self.assertIn(b"application/apply-patch+yaml", head)
        self.assertEqual(yaml.load(body, yaml.CSafeLoader), wanted)

    def test_statuses(self) -> None:
        """An error of the API server, with its words."""
        for code, status in (
            (403, Status.PERMISSION_DENIED),
            (404, Status.NOT_FOUND),
            (418, Status.FAILED_PRECONDITION),
            (500, Status.INTERNAL),
            (502, Status.UNAVAILABLE),
            (503, Status.UNAVAILABLE),
        ):
            body = json.dumps({"message": f"because {code}"}).encode()
            head = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (code, len(body))
            error = self.fails(self.ask(self.alice.json("GET", PODS), head + body))
            self.assertEqual(
                (error.status, error.message), (status, f"API server: because {code}")
            )
        answer = b"HTTP/1.1 401 X\r\nContent-Length: 0\r\n\r\n"
        error = self.fails(self.ask(self.alice.json("GET", PODS), answer))
        self.assertEqual(error.message, "API server: status 401")
        self.assertEqual(self.cluster.rejections, 1, "a newer credential is looked for")

    def test_manifests_that_do_not_fit(self) -> None:
        """The API server calls them its own failure; they are refused all the same."""
        for words in (
            "failed to create typed patch object (a/b; /v1, Kind=ConfigMap): "
            ".data.port: expected string, got &value.valueUnstructured{Value:80}",
            "failed to convert new object (a/b; /v1, Kind=Secret) to proper version: "
            "illegal base64 data at input byte 0",
        ):
            error = error_of(500, {"message": words, "code": 500})
            self.assertIs(error.status, Status.INVALID_ARGUMENT)
        away = error_of(500, {"message": "etcdserver: request timed out", "code": 500})
        self.assertIs(away.status, Status.UNAVAILABLE)

    def test_long_words(self) -> None:
        """They are cut off: they may quote the whole object."""
        error = error_of(422, {"message": "x" * (MAX_MESSAGE + 1)})
        self.assertEqual(error.message, f"API server: {'x' * MAX_MESSAGE}…")

    def test_nested_too_deep(self) -> None:
        """An object that Python cannot read is a failure of this request."""
        for depth in (MAX_DEPTH + 1, 900, 200_000):
            body = b'{"a":' * depth + b"1" + b"}" * depth
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
            error = self.fails(self.ask(self.alice.json("GET", PODS), head, body))
            self.assertEqual(error.status, Status.FAILED_PRECONDITION)
            self.assertIn("levels cannot be read", error.message)

    def test_no_answer(self) -> None:
        """The time limit, a lost connection, an answer that is too large."""
        asking = self.ask(self.alice.request("GET", PODS, timeout=3))
        self.clock.advance(3)
        self.assertEqual(self.fails(asking).status, Status.DEADLINE_EXCEEDED)
        self.assertTrue(self.origin.disconnecting, "nobody waits for that answer")
        self.origin.settle()
        asking = self.ask(self.alice.request("POST", PODS, b"{}"))
        self.origin.lose()
        self.assertEqual(self.fails(asking).status, Status.UNAVAILABLE)
        asking = self.ask(
            self.alice.request("GET", PODS),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            *[b"%x\r\n%b\r\n" % (1 << 20, bytes(1 << 20))] * (MAX_BODY >> 20),
        )
        self.assertNoResult(asking)
        self.origin.receive(b"1\r\nx\r\n")
        self.assertEqual(self.fails(asking).status, Status.RESOURCE_EXHAUSTED)

    def test_malformed_path(self) -> None:
        """A path cannot become two requests."""
        for path in ("", "api", "/a b", "/a\r\nX: y", "/ä", "/../c-2", "/a/..%2f../b"):
            asking = Deferred.fromCoroutine(self.alice.request("GET", path))
            self.failureResultOf(asking, ValueError)

    def test_malformed_head(self) -> None:
        """Nor can a method or a content type."""
        for method, kind in (
            ("GET / HTTP/1.1\r\n\r\nGET", "a/b"),
            ("get", "a/b"),
            ("POST", "a/b\r\nImpersonate-Group: system:masters"),
            ("POST", ""),
            ("POST", "a/b\n"),
        ):
            asking = Deferred.fromCoroutine(
                self.alice.request(method, "/api", b"{}", content_type=kind)
            )
            self.failureResultOf(asking, ValueError)
        self.assertEqual(self.cluster.connections.wires, [])

    def test_closed_pool(self) -> None:
        """Requests under way fail."""
        client: KubernetesClient = self.clients.as_agentk()
        asking = self.ask(client.request("POST", PODS, b"{}"))
        self.pool.close()
        self.origin.settle()
        self.assertEqual(self.fails(asking).status, Status.UNAVAILABLE)
