"""exec, attach, port-forward: connections that change protocol, all the way."""

from __future__ import annotations

import attrs

from tests.modules.kubernetes_api.cases import EXEC, SWITCH, ProxyCase
from tests.modules.kubernetes_api.pair import ALICE


class UpgradeTests(ProxyCase):
    """exec, attach, port-forward."""

    def test_raw_both_ways(self) -> None:
        """Early bytes of both sides, data, and each half by itself (lesson 8)."""
        wire = self.world.request(*EXEC, body=b"early client")
        origin = self.world.origin
        request = origin.taken()
        self.assertIn(b"exec?command=sh&stdin=true HTTP/1.1\r\n", request)
        self.assertIn(b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n", request)
        origin.receive(SWITCH + b"early server")
        self.world.run()
        answer = wire.taken()
        self.assertTrue(answer.startswith(b"HTTP/1.1 101 Switching Protocols\r\n"))
        self.assertIn(b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n", answer)
        self.assertTrue(answer.endswith(b"\r\n\r\nearly server"))
        self.assertEqual(origin.taken(), b"early client")
        wire.receive(b"in")
        origin.receive(b"out")
        self.world.run()
        self.assertEqual((origin.taken(), wire.taken()), (b"in", b"out"))
        wire.receive_end()
        self.world.run()
        self.assertTrue(origin.half_closed)
        origin.receive(b"last")
        self.world.run()
        self.assertEqual(wire.taken(), b"last")
        origin.receive_end()
        self.world.run()
        self.assertTrue(wire.disconnecting)
        origin.settle()
        wire.settle()
        self.assert_clean()
        self.assertEqual(self.world.server.metrics.upgrades["switched"], 1)
        self.assertEqual(self.world.server.metrics.broken, 0)

    def test_api_server_first(self) -> None:
        """The usual end of an exec: the server closes, then the client."""
        wire = self.world.request(*EXEC)
        self.world.origin.receive(SWITCH + b"bye")
        self.world.origin.lose()
        self.world.run()
        self.assertTrue(wire.taken().endswith(b"bye"))
        self.assertTrue(wire.half_closed)
        wire.receive_end()
        wire.settle()
        self.assert_clean()

    def test_api_server_breaks(self) -> None:
        """The client gets all that was read, and then the end."""
        wire = self.world.request(*EXEC)
        self.world.origin.receive(SWITCH)
        self.world.run()
        self.world.origin.receive(b"last words")
        self.world.origin.lose(clean=False)
        self.world.run()
        self.assertTrue(wire.taken().endswith(b"last words"))
        self.assertTrue(wire.half_closed)
        self.assertEqual(self.world.agent.metrics.broken, 1)
        wire.receive_end()
        wire.settle()
        self.assert_clean()

    def test_client_breaks(self) -> None:
        """At once at the API server, too."""
        wire = self.world.request(*EXEC)
        self.world.origin.receive(SWITCH)
        self.world.run()
        wire.lose(clean=False)
        self.world.run()
        self.assertTrue(self.world.origin.aborted)
        self.world.origin.settle()
        self.assert_clean()

    def test_refused_upgrade_of_a_patient_client(self) -> None:
        """What it sends after the answer is its next request, as straight."""
        wire = self.world.request(*EXEC)
        origin = self.world.origin
        origin.receive(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        self.world.run()
        self.assertTrue(origin.disconnecting)
        answer = wire.taken()
        self.assertIn(b"403", answer)
        self.assertNotIn(b"Connection:", answer)
        origin.settle()
        wire.receive(
            b"GET /b HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer user:1:alice\r\n\r\n"
        )
        self.world.run()
        self.assertIsNot(self.world.origin, origin)
        self.assertTrue(self.world.origin.taken().startswith(b"GET /b "))

    def test_p03_refused_upgrade(self) -> None:
        """
        P03: 200, 302, 403 stay HTTP, and no pipe remains.

        The connection closes, because the client did not wait for the answer.
        """
        for status in (b"200 OK", b"302 Found", b"403 Forbidden"):
            wire = self.world.request(*EXEC, body=b"GET /secret HTTP/1.1\r\n\r\n")
            origin = self.world.origin
            origin.taken()
            origin.receive(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\nno")
            self.world.run()
            answer = wire.taken()
            self.assertIn(status, answer)
            self.assertIn(b"Connection: close\r\n", answer)
            wire.receive(b"GET /secret HTTP/1.1\r\n\r\n")
            self.world.run()
            self.assertEqual(origin.taken(), b"", "nothing reaches the API server")
            self.assertTrue(origin.disconnecting)
            origin.settle()
        self.assertEqual(self.world.server.metrics.upgrades["refused"], 3)
        self.assertEqual(len(self.world.link.opened), 3)
        self.assert_clean()

    def test_p03_unasked_switch(self) -> None:
        """P03: a 101 to a plain request, or to another protocol, is an error."""
        wire = self.world.request()
        self.world.origin.receive(SWITCH)
        self.world.run()
        self.assert_error(wire, 502, "agent -> API server")
        wire = self.world.request(*EXEC)
        self.world.origin.receive(SWITCH.replace(b"SPDY/3.1", b"h2c"))
        self.world.run()
        self.assert_error(wire, 502, "agent -> API server")

    def test_p04_authorization_ignores_the_method(self) -> None:
        """
        P04: a WebSocket exec by GET runs as the same user as one by POST.

        kas derives no right from a method: what an upgrade may do is decided by the API
        server for the impersonated user, in whose rules exec is ``create``.
        """
        for method in (b"GET", b"POST"):
            self.world.request(
                method + b" /api/v1/namespaces/a/pods/b/exec HTTP/1.1", *EXEC[1:]
            )
            self.assertIn(b"Impersonate-User: alice\r\n", self.world.origin.taken())

    def test_secrets_are_left_out(self) -> None:
        """Who is read-only reads no Secrets, however the path says it, unless told."""
        looker = attrs.evolve(ALICE, read_only=True)
        self.world.server_api.access["looker"] = looker
        targets = (
            b"/api/v1/secrets",
            b"/api/v1/namespaces/a/secrets",
            b"/api/v1/namespaces/a/secrets/b",
            b"/api/v1/namespaces/a/secrets?watch=1",
            b"/api/v1/watch/secrets",
            b"/api/v1/watch/namespaces/a/secrets/b",
            b"/api/v1/namespaces/a/s%65crets",
        )
        for target in targets:
            line = b"GET " + target + b" HTTP/1.1"
            wire = self.world.request(line, token=b"user:1:looker")
            self.assert_error(wire, 403, "may not read Secrets")
        self.assertEqual(self.world.cluster.connections.wires, [])
        others = (
            b"/apis/x.example/v1/secrets",
            b"/api/v1/namespaces/secrets",
            b"/api/v1/namespaces/secrets/pods/secrets",
        )
        for target in others:
            self._passes(target)
        for access in (attrs.evolve(looker, secrets=True), ALICE):
            self.world.server_api.access["looker"] = access
            for target in targets:
                self._passes(target)

    def _passes(self, target: bytes) -> None:
        self.world.request(b"GET " + target + b" HTTP/1.1", token=b"user:1:looker")
        self.assertIn(b"GET " + target, self.world.origin.taken())

    def test_p04_exec_by_get_is_not_reading(self) -> None:
        """P04: a WebSocket exec passes no rule that lets only reading through."""
        self.world.server_api.access["looker"] = attrs.evolve(ALICE, read_only=True)
        for line in (
            b"GET /api/v1/namespaces/a/pods/b/exec?command=sh HTTP/1.1",
            b"GET /api/v1/namespaces/a/pods/namespaces/exec?command=sh HTTP/1.1",
            b"GET /apis/x/v1/namespaces/a/machines/vm/console HTTP/1.1",
            b"GET /api/v1/namespaces/a/pods/b HTTP/1.1",
            b"GET /api/v1/namespaces/a/pods/b/%65xec HTTP/1.1",
            b"GET /api/v1/namespaces/a/pods/b/Attach HTTP/1.1",
            b"GET /api/v1/namespaces/a/pods/b/portforward HTTP/1.1",
            b"GET /api/v1/namespaces/a/services/b/proxy/metrics HTTP/1.1",
            b"GET /api/v1/nodes/n/proxy/exec/a/b HTTP/1.1",
            b"POST /api/v1/namespaces/a/pods HTTP/1.1",
            b"DELETE /api/v1/namespaces/a HTTP/1.1",
            b"POST /apis/authorization.k8s.io/v1/subjectaccessreviews HTTP/1.1",
        ):
            wire = self.world.request(line, *EXEC[1:], token=b"user:1:looker")
            self.assert_error(wire, 403, "is read-only")
        for line in (
            b"GET /api/v1/namespaces/proxy/pods?watch=1 HTTP/1.1",
            b"HEAD /api HTTP/1.1",
            b"POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1",
        ):
            self.world.request(line, token=b"user:1:looker")
            self.assertIn(b"Impersonate-User: alice\r\n", self.world.origin.taken())

    def test_h2c_is_not_passed_on(self) -> None:
        """A pipe in which other requests travel unseen is not made."""
        self.world.request(
            b"GET /api HTTP/1.1",
            b"Connection: Upgrade, HTTP2-Settings",
            b"Upgrade: h2c",
            b"HTTP2-Settings: AAMAAABk",
        )
        request = self.world.origin.taken()
        self.assertNotIn(b"h2c", request)
        self.assertNotIn(b"HTTP2-Settings", request)
