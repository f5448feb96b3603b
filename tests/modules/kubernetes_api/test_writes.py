"""Which credential changed what, told to other modules of agentk."""

from __future__ import annotations

from modules.kubernetes_api import writes
from tests.modules.kubernetes_api.cases import HELLO, ProxyCase
from tunnel.api import KubernetesWrite

MAP = b"/api/v1/namespaces/a/configmaps/x"
DATED = HELLO.replace(b"\r\n", b"\r\nDate: Thu, 01 Jan 1970 00:01:40 GMT\r\n", 1)


class WriteTests(ProxyCase):
    """Of requests that changed an object, and of no others."""

    def setUp(self) -> None:
        super().setUp()
        self.told: list[KubernetesWrite] = []
        self.world.agent_api.subscribe("kubernetes.written", self.told.append)

    def ask(
        self, head: bytes, *lines: bytes, answer: bytes = DATED, body: bytes = b""
    ) -> bytes:
        length = b"Content-Length: %d" % len(body)
        self.world.request(head + b" HTTP/1.1", *lines, length, body=body)
        sent: bytes = self.world.origin.value()
        self.world.origin.receive(answer)
        self.world.run()
        return sent

    def test_a_write(self) -> None:
        sent = self.ask(
            b"PATCH " + MAP + b"?fieldManager=kubectl-edit",
            b"User-Agent: kubectl/v1.34",
            b"Txkas-Credential: user:mallory",
        )
        # It stays between kas and agentk.
        self.assertIn(b"PATCH", sent)
        self.assertNotIn(b"redential:", sent)
        (written,) = self.told
        self.assertEqual(written.credential_id, "user:alice")
        self.assertEqual(
            (written.verb, written.resource, written.namespace, written.name),
            ("patch", "configmaps", "a", "x"),
        )
        self.assertEqual((written.manager, written.time), ("kubectl-edit", 100.0))

    def test_the_manager_of_a_client_that_names_none(self) -> None:
        self.ask(b"DELETE " + MAP, b"User-Agent: curl/8 (x)")
        self.assertEqual(self.told[0].manager, "curl")
        # As API servers have it.
        self.ask(b"DELETE " + MAP)
        self.assertEqual(self.told[1].manager, "unknown")

    def test_what_changes_nothing(self) -> None:
        self.ask(b"GET " + MAP)
        self.ask(b"PATCH " + MAP + b"?dryRun=All")
        self.ask(b"DELETE " + MAP, answer=DATED.replace(b"200", b"404", 1))
        self.ask(b"POST /api/v1/namespaces/a/configmaps")
        self.ask(b"DELETE " + MAP, answer=HELLO)
        self.assertEqual(self.told, [])

    def test_a_manager_named_twice(self) -> None:
        """What the API server takes: the first one that can be read."""
        self.ask(b"PATCH " + MAP + b"?fieldManager=a;b&fieldManager=c&fieldManager=d")
        self.ask(b"PATCH " + MAP + b"?fieldManager=&fieldManager=d", b"User-Agent: e/1")
        self.assertEqual([one.manager for one in self.told], ["c", "e"])

    def test_a_date_that_is_none(self) -> None:
        """The answer goes on to the client as any other."""
        for date in (b"Thu, 01 Jan 1970 00:01:40 +99999999999999", b"0", b"x" * 40):
            dated = HELLO.replace(b"\r\n", b"\r\nDate: " + date + b"\r\n", 1)
            client = self.world.request(
                b"DELETE " + MAP + b" HTTP/1.1", b"Content-Length: 0"
            )
            self.world.origin.taken()
            self.world.origin.receive(dated)
            self.world.run()
            self.assertIn(b"200", client.taken().partition(b"\r\n")[0])
        self.assertEqual(self.told, [])

    def test_options_of_a_delete(self) -> None:
        """A dry run is in them, as JSON or as protobuf."""
        json, protobuf = b'{"dryRun":["All"]}', b"k8s\x00\n\x00\x12\x05*\x03All"
        for body in (json, protobuf, b" " * (writes.MAX_OPTIONS + 1)):
            self.ask(b"DELETE " + MAP, body=body)
        self.assertEqual(self.told, [])
        self.ask(b"DELETE " + MAP, body=b'{"propagationPolicy":"Background"}')
        self.assertEqual(len(self.told), 1)

    def test_what_is_beside_an_object(self) -> None:
        for part in (b"pods/b/exec", b"services/b/proxy/x", b"serviceaccounts/b/token"):
            self.ask(b"POST /api/v1/namespaces/a/" + part)
        self.assertEqual(self.told, [])
        self.ask(b"PUT /apis/apps/v1/namespaces/a/deployments/b/scale")
        self.assertEqual(len(self.told), 1)
