"""A policy with its files and a cluster in memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from agentk.config import PolicySettings
from agentk.policy.floor import Floor
from agentk.policy.guard import PolicyGuard
from agentk.policy.state import ClusterState
from tunnel.api import Access, Impersonation
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import KubernetesClients, OwnNamespace
from tunnel.testing import FakeCluster

#: Friday, 17:30:30 in UTC.
FRIDAY = 1795800630.0

UID = "6a2e0c4c-0c7d-4c8e-9a3a-000000000001"

READ = """\
kind: AgentPolicy
rules:
- {name: read, allow: [get, list, watch], resources: ["*"], except: [secrets]}
"""


def access(user: str = "", *groups: str) -> Access:
    """Return the access of a user; of agentk itself without a name."""
    return Access(
        "user:test",
        "1",
        "main",
        impersonation=Impersonation(user, groups=groups) if user else None,
    )


class PolicyWorld:
    """
    A guard, its files in *folder*, and clients behind it.

    :ivar day: seconds since 1970 when the clock was at 0.
    """

    def __init__(
        self,
        folder: Path,
        policy: str | None = READ,
        keys: Path | None = None,
        signatures: int = 1,
    ) -> None:
        self.clock = Clock()
        self.day = FRIDAY
        self.cluster = FakeCluster(self.clock)
        self.put_namespace("kube-system", UID)
        self.folder = folder
        self.file = folder / "policy.yaml"
        if policy is not None:
            self.write(policy)
        self.settings = PolicySettings(file=self.file, keys=keys, signatures=signatures)
        self.changes = 0
        self.pool = UpstreamPool(self.cluster.endpoint, self.clock)
        self.guard = self.new_guard()
        own = OwnNamespace("txkas", True, True, True)
        self.clients = KubernetesClients(
            self.cluster,
            self.pool,
            self.clock,
            lambda: 0.5,
            own_namespace=own,
            reach=self.cluster.reach,
            guard=self.guard,
        )

    def new_guard(self) -> PolicyGuard:
        """Return another guard, as after a restart of agentk."""

        def changed() -> None:
            self.changes += 1

        own = KubernetesClients(self.cluster, self.pool, self.clock, jitter=lambda: 0.5)
        return PolicyGuard(
            self.settings,
            ClusterState(own.as_agentk(), "txkas"),
            Floor("txkas", True),
            self.pool,
            "",
            self.clock,
            self.now,
            changed,
        )

    def now(self) -> float:
        """Return the time of day."""
        return self.day + self.clock.seconds()

    def put_namespace(self, name: str, uid: str) -> None:
        """Answer requests for a namespace."""
        found = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "uid": uid},
        }
        self.cluster.answer("GET", f"/api/v1/namespaces/{name}", found)

    def write(self, policy: str) -> None:
        """Replace the policy, as a mounted ConfigMap is replaced."""
        new = self.folder / "new"
        new.write_text(policy)
        os.replace(new, self.file)

    def run(self, awaitable: Any, seconds: float = 1.0) -> Any:
        """Return the result of a coroutine, or raise its error."""
        results: list[Any] = []
        Deferred.fromCoroutine(awaitable).addBoth(results.append)
        for _ in range(50):
            if results:
                break
            self.clock.advance(seconds / 50)
        if not results:
            raise AssertionError("no result")
        if hasattr(results[0], "raiseException"):
            results[0].raiseException()
        return results[0]

    def start(self, guard: PolicyGuard | None = None) -> PolicyGuard:
        """Start a guard."""
        guard = guard or self.guard
        self.run(guard.start())
        return guard

    def later(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(20):
            self.clock.advance(seconds / 20)
