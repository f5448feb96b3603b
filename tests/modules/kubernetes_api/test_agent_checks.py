"""The requests of kas that agentk refuses, whatever kas has checked."""

from __future__ import annotations

import attrs

from modules.kubernetes_api.fields import METHOD
from tests.modules.kubernetes_api.cases import HELLO, ProxyCase
from tests.modules.kubernetes_api.pair import ALICE, ROOT
from tests.tunnel.http1.wire import Wire
from tunnel.api import Impersonation
from tunnel.kubernetes import OwnNamespace


class _Kas:
    """A kas that sends what it likes."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    def headers_received(self, block: bytes) -> None:
        self.heads.append(block)

    def data_received(self, data: bytes) -> None: ...

    def fin_received(self) -> None: ...

    def stream_closed(self, reason: Exception | None) -> None: ...


class PathTests(ProxyCase):
    """Paths that lead out of the cluster, behind a server with several clusters."""

    def ask(self, target: bytes) -> list[bytes]:
        kas = _Kas()
        block = b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n"
        self.world.link.open_stream("agent-1", METHOD, kas, block, True)
        self.world.run()
        return kas.heads

    def test_climbing(self) -> None:
        """Each spelling is refused, and the API server hears nothing."""
        for target in (
            b"/..",
            b"/../c-2/api",
            b"/api/../../c-2",
            b"/%2e%2E/c-2/api",
            b"/.%2e/c-2/api?x=1",
            b"/..%2fc-2/api",
            b"/api/..%5c..%5cc-2",
            b"/..;x/c-2",
        ):
            (head,) = self.ask(target)
            self.assertIn(b" 400 ", head)
        self.assertEqual(self.world.cluster.connections.wires, [])
        self.assert_clean()

    def test_others(self) -> None:
        """Dots that stay in the cluster pass."""
        for target in (b"/api/v1/../v1", b"/a?x=../..", b"/api/v1/pods/%2e%2e/x"):
            self.assertEqual(self.ask(target), [])
            self.assertIn(b"GET " + target, self.world.origin.taken())
            self.world.origin.receive(HELLO)
            self.world.run()
        self.assert_clean()


class SystemNameTests(ProxyCase):
    """Users and groups of Kubernetes itself."""

    def as_(self, username: str, *groups: str) -> None:
        access = attrs.evolve(ALICE, impersonation=Impersonation(username, groups))
        self.world.server_api.access["alice"] = access

    def test_refused(self) -> None:
        """A user or a group that begins with system: goes no further."""
        for identity in (
            ("system:kube-controller-manager",),
            ("system:admin",),
            ("System:admin",),
            ("system:anonymous2",),
            ("system:serviceaccount",),
            ("a", "system:masters"),
            ("a", "b", "system:nodes"),
            ("a", "system:serviceaccountsx"),
            ("a", "system:authenticated:x"),
        ):
            self.as_(*identity)
            # The second request finds what was remembered of the first one.
            for _ in range(2):
                wire = self.world.request()
                self.assert_error(wire, 403, "kas -> agent", "allow_system_names")
        self.assertEqual(self.world.cluster.connections.wires, [])
        self.assert_clean()

    def test_of_a_client(self) -> None:
        """``kubectl --as`` of a user who has agentk's own rights is refused as well."""
        self.world.server_api.access["alice"] = ROOT
        for line in (
            b"impersonate-USER:  system:kube-controller-manager",
            b"Impersonate-Group: system:masters",
        ):
            wire = self.world.request(b"GET /api HTTP/1.1", line)
            self.assert_error(wire, 403, "allow_system_names")
        self.assert_clean()

    def test_allowed(self) -> None:
        """Service accounts and the groups that everyone is in pass."""
        for identity in (
            ("system:serviceaccount:a:b", "system:serviceaccounts"),
            ("system:serviceaccount:a:b", "system:serviceaccounts:a"),
            ("system:anonymous", "system:unauthenticated"),
            ("a", "system:authenticated"),
            ("asystem:x", "b:system:masters"),
        ):
            self.passes(*identity)

    def test_permitted(self) -> None:
        """The owner of the cluster may permit all of them."""
        self.world.agent.allow_system_names = True
        self.passes("system:admin", "system:masters")

    def passes(self, *identity: str) -> None:
        self.as_(*identity)
        self.world.request()
        self.assertIn(
            f"Impersonate-User: {identity[0]}\r\n".encode(), self.world.origin.taken()
        )
        self.world.origin.receive(HELLO)
        self.assert_clean()


class OwnNamespaceTests(ProxyCase):
    """agentk's own namespace, for clients that have agentk's own rights."""

    def ask(
        self, line: bytes, *lines: bytes, identity: Impersonation | None = None
    ) -> Wire:
        access = attrs.evolve(ALICE, impersonation=identity)
        self.world.server_api.access["alice"] = access
        return self.world.request(line + b" HTTP/1.1", *lines)

    def assert_passes(self, wire: Wire, target: bytes) -> None:
        self.assertIn(b" " + target + b" HTTP/1.1\r\n", self.world.origin.taken())
        self.world.origin.receive(HELLO)
        self.world.run()
        self.assertIn(b" 200 ", wire.taken())

    def test_refused(self) -> None:
        """Secrets are not read there, and nothing is changed or run."""
        path = b"/api/v1/namespaces/txkas/"
        account = Impersonation("system:serviceaccount:txkas:agentk")
        for line in (
            b"GET " + path + b"secrets/agentk-token",
            b"DELETE " + path + b"secrets",
            b"DELETE " + path + b"configmaps",
            b"GET " + path + b"pods/agentk-0/exec?command=cat",
        ):
            # agentk's service account has the same rights under its name.
            for identity in (None, account):
                wire = self.ask(line, identity=identity)
                self.assert_error(wire, 403, "kas -> agent", "allow_own_namespace")
        self.assertEqual(self.world.cluster.connections.wires, [])
        self.assert_clean()

    def test_of_a_client(self) -> None:
        """A client that names agentk's account, or no one, acts as agentk."""
        for lines in (
            (b"Impersonate-User: system:serviceaccount:txkas:agentk",),
            (b"impersonate-USER: ",),
        ):
            wire = self.ask(b"GET /api/v1/namespaces/txkas/secrets", *lines)
            self.assert_error(wire, 403, "allow_own_namespace")
        target = b"/api/v1/namespaces/txkas/secrets"
        wire = self.ask(b"GET " + target, b"Impersonate-User: alice")
        self.assert_passes(wire, target)
        self.assert_clean()

    def test_allowed(self) -> None:
        """Users are for the cluster to judge; agentk reads the rest there."""
        secret = b"/api/v1/namespaces/txkas/secrets/agentk-token"
        self.assert_passes(self.ask(b"GET " + secret, identity=ALICE_ALONE), secret)
        for target in (b"/api/v1/namespaces/txkas/pods", b"/api/v1/namespaces/a/pods"):
            self.assert_passes(self.ask(b"GET " + target), target)
        self.assert_clean()

    def test_all_secrets(self) -> None:
        """Those of agentk are left out of a list of all; a user's list is its own."""
        target = b"/api/v1/secrets?limit=5"
        left = b"/api/v1/secrets?fieldSelector=metadata.namespace%21%3Dtxkas&limit=5"
        # The second request finds what was remembered of the first one.
        for _ in range(2):
            self.assert_passes(self.ask(b"GET " + target), left)
        wire = self.ask(b"GET " + target, identity=ALICE_ALONE)
        self.assert_passes(wire, target)
        self.assert_clean()

    def test_permitted(self) -> None:
        """The owner of the cluster may leave it open."""
        self.world.agent.own_namespace = OwnNamespace("txkas", True, False)
        target = b"/api/v1/namespaces/txkas/secrets"
        self.assert_passes(self.ask(b"GET " + target), target)
        self.assert_clean()


ALICE_ALONE = Impersonation("alice")
