"""The API server that tests of modules talk to."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from tunnel.api import Access, IAgentModule, ICluster, Impersonation
from tunnel.errors import CallError, Status
from tunnel.testing import FakeCluster, ModulePair


@attrs.frozen(kw_only=True)
class Settings:
    """None."""


@implementer(IAgentModule)
class Half:
    """An agent half that asks its cluster."""

    name = "half"
    configuration = Settings

    def __init__(self, api: Any) -> None:
        self.api = api

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


ALICE = Access("user:alice", "1", "agent-1", impersonation=Impersonation("alice"))


class ClusterTests(SynchronousTestCase):
    """Answers that a test wrote, and requests as they came."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cluster = FakeCluster(self.clock)
        self.pair = ModulePair(self.clock, cluster=self.cluster)
        self.half = self.pair.agent_half(Half)
        self.pair.start()
        self.addCleanup(self.pair.stop)

    def test_interface(self) -> None:
        self.assertTrue(verifyObject(ICluster, self.cluster))

    def test_answers(self) -> None:
        """In whose name it was asked is seen; what nobody answers is not found."""
        client = self.half.api.kubernetes_for(ALICE)
        self.cluster.answer("GET", "/api/v1/pods?limit=1", {"items": []})
        self.cluster.answer("POST", "/api/v1/x", b"no", status=403)
        found = self.pair.run(client.json("GET", "/api/v1/pods?limit=1"))
        self.assertEqual(found, {"items": []})
        made = self.pair.run(client.request("POST", "/api/v1/x", b"body"))
        self.assertEqual((made.status, made.body), (403, b"no"))
        own = self.half.api.kubernetes_as_agentk()
        missing = self.pair.run(own.request("GET", "/nothing"))
        self.assertEqual(missing.status, 404)
        self.assertEqual(
            [
                (one.method, one.path, one.user, one.body)
                for one in self.cluster.requests
            ],
            [
                ("GET", "/api/v1/pods?limit=1", "alice", b""),
                ("POST", "/api/v1/x", "alice", b"body"),
                ("GET", "/nothing", "", b""),
            ],
        )

    def test_refuses(self) -> None:
        """As where no API server runs."""
        self.cluster.refuses = True
        client = self.half.api.kubernetes_as_agentk()
        with self.assertRaises(CallError) as caught:
            self.pair.run(client.request("GET", "/api"))
        self.assertEqual(caught.exception.status, Status.UNAVAILABLE)

    def test_clock(self) -> None:
        """It moves by itself, and not without end."""
        begin = self.clock.seconds()

        async def waits(seconds: float) -> str:
            await deferLater(self.clock, seconds, lambda: None)
            return "done"

        self.assertEqual(self.pair.run(waits(30)), "done")
        self.assertEqual(self.clock.seconds() - begin, 30)
        with self.assertRaisesRegex(AssertionError, "still waiting after 5 s"):
            self.pair.run(waits(30), patience=5)
