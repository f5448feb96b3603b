"""Tests of both halves, connected by a tunnel in memory, without sockets or waiting."""

from __future__ import annotations

import json
from typing import Any

from tunnel.api import Access, Impersonation
from tunnel.testing import FakeCluster, ModulePair, view_rows
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from acme_kas.agent import GreeterAgent
from acme_kas.hosts import HOSTS
from acme_kas.server import GreeterServer


class GreeterTests(SynchronousTestCase):
    """Tests of greetings, from an HTTP request to kas."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cluster = FakeCluster(self.clock)
        self.pair = ModulePair(self.clock, cluster=self.cluster)
        self.agent = self.pair.agent_half(GreeterAgent, greeting="Good morning")
        self.server = self.pair.server_half(GreeterServer, keep=2)
        self.server.api.users.tokens["t0ken"] = Access("user:alice", "1", "agent-1")
        self.pair.start()
        self.addCleanup(self.pair.stop)

    def get(self, path: str, token: str = "t0ken", wait: float = 0) -> tuple[int, Any]:
        """
        Return the response of the HTTP API, after the clock has moved by *wait*
        seconds.
        """
        (site,) = self.server.api.network.listening.values()
        transport = StringTransport()
        protocol = site.buildProtocol(None)
        protocol.makeConnection(transport)
        protocol.dataReceived(
            f"GET {path} HTTP/1.0\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )
        self.pair.settle()
        self.clock.advance(wait)
        head, _, body = transport.value().partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)

    def test_greets(self) -> None:
        """The response comes from the agent."""
        self.assertEqual(
            self.get("/greet/agent-1?name=Ada"), (200, {"text": "Good morning, Ada!"})
        )

    def test_reports(self) -> None:
        """
        The agent reports the greeted name to kas, which remembers the latest ones.
        """
        for name in ("Ada", "Grace", "Mary"):
            self.get(f"/greet/agent-1?name={name}")
        self.assertEqual(
            self.get("/sightings/agent-1"), (200, {"names": ["Grace", "Mary"]})
        )

    def test_counts(self) -> None:
        """The number of greetings outlives a restart of the module."""
        self.assertEqual(self.get("/greeted/agent-1"), (200, {"count": 0}))
        for name in ("Ada", "Grace", "Mary"):
            self.get(f"/greet/agent-1?name={name}")
        self.pair.stop()
        self.server = self.pair.server_half(GreeterServer)
        self.server.api.users.tokens["t0ken"] = Access("user:alice", "1", "agent-1")
        self.pair.run(self.server.start())
        self.assertEqual(self.get("/greeted/agent-1"), (200, {"count": 3}))
        self.pair.store.down = True
        self.assertEqual(self.get("/greeted/agent-1")[0], 503)

    def test_nobody_to_greet(self) -> None:
        """A refusal of the agent becomes an HTTP error with its reason."""
        self.assertEqual(
            self.get("/greet/agent-1"), (400, {"error": "whom shall I greet?"})
        )
        self.assertEqual(self.get("/sightings/agent-1"), (200, {"names": []}))

    def test_pods_of_a_user(self) -> None:
        """
        The request to the cluster impersonates the user, and a refusal reaches the
        user.
        """
        path = "/api/v1/namespaces/a%20b/pods"
        who = Impersonation("alice@example.org")
        self.server.api.users.tokens["as"] = Access("user:alice", "1", "agent-1", who)
        self.cluster.answer("GET", path, {"items": [{"metadata": {"name": "p-1"}}]})
        found = self.get("/pods/agent-1/a%20b", token="as")
        self.assertEqual(found, (200, {"names": ["p-1"]}))
        self.assertEqual([r.user for r in self.cluster.requests], ["alice@example.org"])
        self.cluster.answer("GET", path, {"message": "not you"}, status=403)
        found = self.get("/pods/agent-1/a%20b", token="as")
        self.assertEqual(found, (403, {"error": "API server: not you"}))

    def test_strangers(self) -> None:
        """Without a valid token, no page shows any data."""
        for path in ("/greet/agent-1?name=Ada", "/sightings/agent-1"):
            self.assertEqual(self.get(path, token="wrong")[0], 401)

    def test_silent_agent(self) -> None:
        """A silent agent delays its caller by no more than the timeout."""
        self.pair.pipe.cut = True
        self.assertEqual(self.get("/greet/agent-1?name=Ada", wait=5)[0], 504)

    def test_kas_takes_no_reports(self) -> None:
        """A failed report does not affect the greeting."""
        self.pair.server.dispatcher.withdraw("greeter")
        self.assertEqual(self.get("/greet/agent-1?name=Ada")[0], 200)
        self.assertEqual(self.get("/sightings/agent-1"), (200, {"names": []}))


class HostsTests(SynchronousTestCase):
    """Tests of the view of live data."""

    def test_rows(self) -> None:
        """Each host of an Ingress is a row."""
        service = {"backend": {"service": {"name": "web"}}}
        ingress = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {"name": "shop", "namespace": "shop"},
            "spec": {
                "rules": [
                    {"host": "shop.example", "http": {"paths": [service]}},
                    {"http": None},
                ]
            },
        }
        self.assertEqual(
            [row.columns for row in view_rows(HOSTS, ingress)],
            [
                {"host": "shop.example", "services": ["web"]},
                {"host": "*", "services": []},
            ],
        )
