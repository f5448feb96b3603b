"""Drift while live data watch the same kinds, in the same agentk."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from modules.cluster_data.agent.module import ClusterDataAgent
from tests.modules.gitops.agent.drift.test_drift import DriftTestCase
from tests.modules.gitops.agent.project.test_reconcile import object_
from tunnel.api import ConfigurationRead, ObjectKind

WEB = object_("web", "Deployment", "apps/v1", spec={"replicas": 2})
MAP = object_("a", data={"x": "1"})


class LiveDataTests(DriftTestCase):
    """Both modules, with one watch for each kind."""

    def setUp(self) -> None:
        super().setUp()
        self.data = self.pair.agent_half(ClusterDataAgent)
        self.reading: Deferred[Any] | None = None
        self.addCleanup(self.end_live_data)

    def begin_live_data(self) -> None:
        self.data._api.events.publish(ConfigurationRead())
        (run,) = self.data._api.leadership.led
        self.reading = Deferred.fromCoroutine(run())
        self.reading.addErrback(lambda failure: failure.trap(CancelledError))
        self.passes(5)

    def end_live_data(self) -> None:
        if self.reading is not None:
            self.reading.cancel()
            self.reading = None

    def watchers(self, plural: str) -> int:
        """The open watches of a kind."""
        kinds = self.cluster.objects._kinds.values()
        (resource,) = [one for one in kinds if one.name == plural]
        probe = {"kind": resource.kind, "metadata": {"name": "b", "namespace": "b"}}
        watchers = self.cluster.objects.watchers
        return sum(one._wanted(resource, probe) for one in watchers)

    def asked_for(self, *parts: str) -> int:
        return sum(
            all(part in one.path for part in parts) for one in self.cluster.requests
        )

    def changes(self) -> None:
        """Both modules get the same change."""
        self.edit("web", "Deployment", spec={"replicas": 7})
        live = self.cluster.objects.find("apps/v1", "Deployment", "web", "default")
        assert live is not None
        self.assertEqual(live["spec"]["replicas"], 2)
        cache = self.data._metrics.cache
        if cache is not None:
            kept = cache.kinds[ObjectKind("apps", "v1", "Deployment")].objects[
                "default", "web"
            ]
            self.assertEqual(kept.version, live["metadata"]["resourceVersion"])

    def test_live_data_begin_first(self) -> None:
        """GitOps reads a list of metadata, and the watch continues."""
        self.begin_live_data()
        self.begin(WEB, MAP)
        self.changes()
        self.assertEqual(self.watchers("deployments"), 1)
        self.assertEqual(self.watchers("configmaps"), 1)
        self.assertEqual(self.asked_for("deployments", "watch="), 1)
        self.assertEqual(self.asked_for("deployments", "limit="), 1)
        # A kind that only GitOps needs is a watch of metadata.
        self.assertEqual(self.asked_for("configmaps", "watch="), 1)
        self.edit("a", data={"x": "2"})
        self.assertEqual(self.live("a")["data"], {"x": "1"})

    def test_gitops_begins_first(self) -> None:
        """The watch begins again with whole objects, and misses no drift meanwhile."""
        self.begin(WEB, MAP)
        self.assertEqual(self.asked_for("deployments", "watch="), 1)
        self.begin_live_data()
        self.assertEqual(self.asked_for("deployments", "watch="), 2)
        self.assertEqual(self.watchers("deployments"), 1)
        self.changes()

    def test_live_data_end(self) -> None:
        """GitOps keeps the watch until it has no followers."""
        self.begin_live_data()
        self.begin(WEB, MAP)
        self.end_live_data()
        self.passes(1)
        self.assertEqual(self.watchers("pods"), 0)
        self.assertEqual(self.watchers("deployments"), 1)
        self.changes()
        self.leave()
        self.passes(1)
        self.assertEqual(len(self.cluster.objects.watchers), 0)

    def test_replicas_that_do_not_lead(self) -> None:
        """They watch nothing."""
        self.leave()
        self.configure({"id": "apps"})
        self.passes(60)
        self.assertEqual(len(self.cluster.objects.watchers), 0)
        self.assertEqual(self.asked_for("watch="), 0)
