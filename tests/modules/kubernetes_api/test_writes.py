"""Which credential changed what, told to other modules of agentk."""

from __future__ import annotations

from tests.modules.kubernetes_api.cases import HELLO, ProxyCase
from tunnel.interfaces import KubernetesWrite

MAP = b"/api/v1/namespaces/a/configmaps/x"
DATED = HELLO.replace(b"\r\n", b"\r\nDate: Thu, 01 Jan 1970 00:01:40 GMT\r\n", 1)


class WriteTests(ProxyCase):
    """Of requests that changed an object, and of no others."""

    def setUp(self) -> None:
        super().setUp()
        self.told: list[KubernetesWrite] = []
        self.world.agent_api.subscribe("kubernetes.written", self.told.append)

    def ask(self, head: bytes, *lines: bytes, answer: bytes = DATED) -> bytes:
        self.world.request(head + b" HTTP/1.1", *lines, b"Content-Length: 0")
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
