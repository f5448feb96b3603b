"""Both halves of ``cluster_data`` in memory, and a cluster with some objects."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from modules.cluster_data.agent.module import ClusterDataAgent
from modules.cluster_data.server.fleet import FLEET
from modules.cluster_data.server.module import ClusterDataServer
from modules.cluster_data.wire import fleet_pb2
from tunnel.api import ConfigurationRead
from tunnel.testing import FakeCluster, ModulePair


class _Threads:
    """A pool that runs everything at once, in the thread of the test."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] | None = None

    def pause(self) -> None:
        """Run nothing until `resume`."""
        self._waiting = []

    def step(self) -> None:
        """Run the first work that waits; its followers wait."""
        assert self._waiting is not None
        self._waiting.pop(0)()

    def resume(self) -> None:
        """Run what waits."""
        waiting, self._waiting = self._waiting, None
        for one in waiting or ():
            one()

    def callInThreadWithCallback(
        self, done: Callable[[bool, Any], None], work: Callable[..., Any], *rest: Any
    ) -> None:
        if self._waiting is not None:
            self._waiting.append(lambda: self._run(done, work, *rest))
        else:
            self._run(done, work, *rest)

    def _run(
        self, done: Callable[[bool, Any], None], work: Callable[..., Any], *rest: Any
    ) -> None:
        try:
            result = work(*rest)
        except Exception:
            done(False, Failure())
        else:
            done(True, result)


class ThreadedClock(Clock):
    """A clock that has threads, too, as a reactor does."""

    def __init__(self) -> None:
        super().__init__()
        self._pool = _Threads()

    def getThreadPool(self) -> Any:
        return self._pool

    def callFromThread(self, call: Callable[..., Any], *rest: Any) -> None:
        call(*rest)


def deployment(name: str, ready: int = 1, image: str = "web:1", **more: Any) -> Any:
    labels = more.pop("labels", {"app": name})
    status = {
        "observedGeneration": 1,
        "replicas": 1,
        "updatedReplicas": 1,
        "readyReplicas": ready,
        "availableReplicas": ready,
        "conditions": [
            {"type": "Available", "status": "True" if ready else "False"},
            {
                "type": "Progressing",
                "status": "True",
                "reason": "NewReplicaSetAvailable",
            },
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", "labels": labels},
        "spec": {
            "replicas": 1,
            "template": {"spec": {"containers": [{"name": "main", "image": image}]}},
        },
        "status": status,
    } | more


def node(name: str, ready: bool = True) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "nodeInfo": {"kubeletVersion": "v1.36.3"},
            "capacity": {"cpu": "4", "memory": "8Gi"},
        },
    }


class LivePair:
    """
    A `ModulePair` with ``cluster_data`` on both sides.

    :ivar objects: the objects of the cluster.
    :ivar others: the pairs of the other kas; see `join`.
    """

    make_cluster: type[FakeCluster] = FakeCluster

    def __init__(
        self, folder: Path, clock: ThreadedClock | None = None, **options: Any
    ) -> None:
        self._folder = folder
        self.clock = clock or ThreadedClock()
        self.cluster = self.make_cluster(self.clock)
        self.objects = self.cluster.objects
        self.pair = ModulePair(self.clock, cluster=self.cluster, folders=folder)
        self.server = self.pair.server_half(ClusterDataServer)
        self.agent = self.pair.agent_half(ClusterDataAgent, **options)
        self.pair.start()
        self.agent._api.events.publish(ConfigurationRead())
        self._leading: Deferred[Any] | None = None
        self.others: list[LivePair] = []
        self.add(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "kube-system"},
                "status": {"phase": "Active"},
            }
        )

    def add(self, *objects: Any) -> None:
        """Create or replace objects of the cluster."""
        for one in objects:
            self.objects.put(one)

    def lead(self) -> None:
        """Let the agentk lead."""
        leadership = self.agent._api.leadership
        leadership.leads = True
        (run,) = leadership.led
        self._leading = Deferred.fromCoroutine(run())
        self._leading.addErrback(lambda failure: failure.trap(CancelledError))
        self.advance(1)

    def follow(self) -> None:
        """Let another agentk lead."""
        assert self._leading is not None
        self._leading.cancel()
        self.advance(1)

    def join(self, other: LivePair, address: str, is_worker: bool = False) -> None:
        """Make *other* a kas that this one can ask."""
        self.pair.peers.join(other.pair.peers, address, is_worker)
        self.others.append(other)

    def advance(self, seconds: float) -> None:
        """Let time pass, in steps of a quarter of a second."""
        for _ in range(round(seconds * 4)):
            self._settle()
            self.clock.advance(0.25)
            self._settle()

    def _settle(self) -> None:
        for one in (self, *self.others, self):
            one.pair.settle()

    def ask(self, method: str, **request: Any) -> Any:
        """Return what the service `Fleet` of the external API answers."""
        client = self.pair.external(FLEET)
        message = {
            "Query": fleet_pb2.QueryRequest,
            "Clusters": fleet_pb2.ClustersRequest,
        }
        return self.pair.run(client.call(method, message[method](**request)))

    def rows(self, view: str, **request: Any) -> dict[str, Any]:
        """Return the columns of rows by name of their object."""
        answer = self.ask("Query", view=view, **request)
        return {one.name or one.kind: json.loads(one.columns) for one in answer.rows}

    def fail_write(self) -> None:
        """Let the next write of the store fail."""
        store = self.server._store
        thread = store._thread

        def fail(work: Any, *rest: Any) -> Any:
            store._thread = thread
            raise sqlite3.OperationalError("disk I/O error")

        store._thread = fail

    def damage(self, columns: str = "{}", view: str = "workloads") -> None:
        """Change the rows of a view behind the back of kas."""
        with sqlite3.connect(
            self._folder / "ClusterDataServer" / "rows.sqlite"
        ) as file:
            change = "UPDATE rows SET columns = ? WHERE view = ?"
            file.execute(change, (columns, view))
            file.execute("UPDATE views SET sum = sum + 1 WHERE view = ?", (view,))
        file.close()

    def withdraw(self) -> None:
        """Let kas have no such module."""
        self.pair.server.dispatcher.withdraw("ClusterDataServer")

    def failures(self) -> list[Exception]:
        """Return what the modules reported."""
        return self.pair.failures

    def close(self) -> None:
        """Stop everything."""
        if self._leading is not None:
            self.follow()
        self.pair.stop()
