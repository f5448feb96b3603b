"""What the audit log learns of requests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.modules.kubernetes_api.cases import EXEC, HELLO, SWITCH, ProxyCase
from tests.modules.kubernetes_api.pair import ALICE, World
from tunnel.api import AuditLevel

PODS = b"/api/v1/namespaces/a/pods"


class AuditTests(ProxyCase):
    """One event for each answer, as the operator wants them."""

    def begin(self, level: AuditLevel) -> None:
        self.world = World(audit_level=level)

    def events(self) -> list[dict[str, Any]]:
        return [
            {"outcome": one.outcome, "who": one.access, **one.details}
            for one in self.world.server_api.audit.events
        ]

    def ask(
        self, head: bytes, *lines: bytes, answer: bytes = HELLO, **more: Any
    ) -> None:
        self.world.request(head, *lines, **more)
        if answer:
            self.world.origin.receive(answer)
            self.world.run()

    def test_changes(self) -> None:
        """What only reads is left out; a command is none of that."""
        self.begin(AuditLevel.CHANGES)
        self.ask(b"GET " + PODS + b" HTTP/1.1")
        program = b"User-Agent: kubectl/v1.36 (linux)"
        delete = b"DELETE " + PODS + b"/x HTTP/1.1"
        self.ask(delete, b"Content-Length: 0", program)
        self.ask(*EXEC, answer=SWITCH)
        self.world.server._draining(None)
        with pytest.raises(StopIteration):
            self.world.server.stop().send(None)
        deleted, begun, executed = self.events()
        self.assertEqual(
            deleted,
            {
                "outcome": "200",
                "who": ALICE,
                "verb": "delete",
                "path": PODS.decode() + "/x",
                "version": "v1",
                "resource": "pods",
                "namespace": "a",
                "name": "x",
                "client": "192.168.1.1",
                "user_agent": "kubectl/v1.36 (linux)",
            },
        )
        for one, outcome in ((begun, ""), (executed, "101")):
            self.assertEqual(
                (one["outcome"], one["verb"], one["subresource"]),
                (outcome, "create", "exec"),
            )
        self.assertEqual(executed["reason"], "kas stopped")

    def test_all(self) -> None:
        """Reading, too; without the query, which may say more than it should."""
        self.begin(AuditLevel.ALL)
        self.ask(b"GET " + PODS + b"?labelSelector=secret HTTP/1.1")
        (event,) = self.events()
        self.assertEqual((event["verb"], event["path"]), ("list", PODS.decode()))

    def test_refused(self) -> None:
        """By kas and by the API server, reading or not."""
        self.begin(AuditLevel.CHANGES)
        get = b"GET " + PODS + b" HTTP/1.1"
        self.ask(get, token=b"user:1:nobody", answer=b"")
        self.ask(get, token=b"nonsense", answer=b"")
        forbidden = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
        self.ask(get, answer=forbidden)
        found = [(one["outcome"], one["who"]) for one in self.events()]
        self.assertEqual(found, [("401", None), ("401", None), ("403", ALICE)])

    def test_none(self) -> None:
        self.begin(AuditLevel.NONE)
        self.ask(b"DELETE " + PODS + b"/x HTTP/1.1", b"Content-Length: 0")
        self.assertEqual(self.events(), [])
