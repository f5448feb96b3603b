"""Kinds of objects, and where they are."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tunnel.api import KubernetesResource
from tunnel.errors import CallError, Status
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import KubernetesClients
from tunnel.kubernetes.discovery import MISSING_SECONDS, path_of
from tunnel.testing import FakeCluster

PODS = KubernetesResource("", "v1", "Pod", "pods", True)
ROLES = KubernetesResource("rbac.k8s.io", "v1", "ClusterRole", "clusterroles", False)


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "path"),
    [
        (PODS, "", "", "/api/v1/pods"),
        (PODS, "a", "", "/api/v1/namespaces/a/pods"),
        (PODS, "a", "x", "/api/v1/namespaces/a/pods/x"),
        (
            ROLES,
            "",
            "system:a/b",
            "/apis/rbac.k8s.io/v1/clusterroles/system%3Aa%2Fb",
        ),
        (ROLES, "a", "x", "/apis/rbac.k8s.io/v1/clusterroles/x"),
    ],
)
def test_paths(
    resource: KubernetesResource, namespace: str, name: str, path: str
) -> None:
    assert path_of(resource, namespace, name) == path


@pytest.mark.parametrize(("namespace", "name"), [("", "x"), ("..", "x"), ("a", "..")])
def test_no_path(namespace: str, name: str) -> None:
    """Nothing that leads elsewhere."""
    with pytest.raises(ValueError, match="Pod"):
        path_of(PODS, namespace, name)


class DiscoveryTests(SynchronousTestCase):
    """`KubernetesClient.resource`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cluster = FakeCluster(self.clock)
        pool = UpstreamPool(self.cluster.endpoint, self.clock)
        self.client = KubernetesClients(
            self.cluster, pool, self.clock, jitter=lambda: 0.5
        ).as_agentk()

    def find(self, api_version: str, kind: str) -> Any:
        finding = Deferred.fromCoroutine(self.client.resource(api_version, kind))
        self.clock.pump([0] * 20)
        return finding

    def test_aggregated(self) -> None:
        """Both roots, subresources and groups that are away left out."""
        pods = {
            "resource": "pods",
            "responseKind": {"kind": "Pod", "version": "v1"},
            "scope": "Namespaced",
            "verbs": ["get"],
            "subresources": [{"subresource": "status"}],
        }
        core = {"versions": [{"version": "v1", "resources": [pods, {"resource": "x"}]}]}
        away = {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1"}]}
        kind = {"kind": "APIGroupDiscoveryList"}
        self.cluster.answer("GET", "/api", kind | {"items": [core]})
        self.cluster.answer("GET", "/apis", kind | {"items": [away]})
        found = self.successResultOf(self.find("v1", "Pod"))
        self.assertEqual((found.name, found.verbs), ("pods", frozenset({"get"})))
        self.assertEqual(len(self.cluster.requests), 2)
        self.assertIn(
            "g=apidiscovery.k8s.io", self.cluster.requests[0].fields["accept"][0]
        )
        self.successResultOf(self.find("v1", "Pod"))
        self.assertEqual(len(self.cluster.requests), 2, "it is remembered")

    def test_older_form(self) -> None:
        """One question for each group and version."""
        self.cluster.answer("GET", "/api", {"versions": ["v1"]})
        self.cluster.answer(
            "GET", "/apis", {"groups": [{"versions": [{"groupVersion": "apps/v1"}]}]}
        )
        pods = [
            {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": ["get"]},
            {
                "name": "pods/status",
                "kind": "Pod",
                "namespaced": True,
                "verbs": ["get"],
            },
        ]
        self.cluster.answer("GET", "/api/v1", {"groupVersion": "v1", "resources": pods})
        apps = [{"name": "deployments", "kind": "Deployment", "namespaced": True}]
        self.cluster.answer(
            "GET", "/apis/apps/v1", {"groupVersion": "apps/v1", "resources": apps}
        )
        found = self.successResultOf(self.find("apps/v1", "Deployment"))
        self.assertEqual((found.group, found.name), ("apps", "deployments"))
        self.assertEqual(self.successResultOf(self.find("v1", "Pod")).name, "pods")
        named = self.successResultOf(
            Deferred.fromCoroutine(self.client.resource_named("v1", "pods"))
        )
        self.assertEqual(named.kind, "Pod")

    def test_what_is_not_there(self) -> None:
        """It may come later, and is not looked for all the time."""
        nothing = {"kind": "APIGroupDiscoveryList", "items": []}
        for path in "/api", "/apis":
            self.cluster.answer("GET", path, nothing)
        for _ in range(100):
            error = self.failureResultOf(self.find("acme/v1", "Thing"), CallError).value
            self.assertEqual(error.status, Status.NOT_FOUND)
        self.assertEqual(len(self.cluster.requests), 2)
        self.clock.advance(MISSING_SECONDS)
        self.failureResultOf(self.find("acme/v1", "Thing"), CallError)
        self.assertEqual(len(self.cluster.requests), 4)
