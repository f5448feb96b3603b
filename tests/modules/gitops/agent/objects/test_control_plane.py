"""Fields that the control plane writes, in what is applied and in what is compared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from modules.gitops.agent.objects.control_plane import without_owned
from modules.gitops.agent.objects.differences import changed_fields
from modules.gitops.agent.objects.manifests import ObjectKey, read_source


def of(api_version: str, kind: str, annotations: Any = None, **rest: Any) -> Any:
    metadata: dict[str, Any] = {"name": "a"}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


RBAC = "rbac.authorization.k8s.io/v1"
AGGREGATED = {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]}
RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
TOKEN = "kubernetes.io/service-account-token"

#: What stands in Git, and what is applied of it.
OWNED = [
    (
        of(RBAC, "ClusterRole", aggregationRule=AGGREGATED, rules=[]),
        of(RBAC, "ClusterRole", aggregationRule=AGGREGATED),
    ),
    (
        of(RBAC, "ClusterRole", aggregationRule=AGGREGATED, rules=RULES),
        of(RBAC, "ClusterRole", aggregationRule=AGGREGATED),
    ),
    (
        of(
            "apps/v1", "Deployment", {"deployment.kubernetes.io/revision": "7", "b": ""}
        ),
        of("apps/v1", "Deployment", {"b": ""}),
    ),
    (
        of("apps/v1", "DaemonSet", {"deprecated.daemonset.template.generation": "3"}),
        of("apps/v1", "DaemonSet", {}),
    ),
    (
        of(
            *("autoscaling/v1", "HorizontalPodAutoscaler"),
            {
                "autoscaling.alpha.kubernetes.io/conditions": "[]",
                "autoscaling.alpha.kubernetes.io/current-metrics": "[]",
            },
        ),
        of("autoscaling/v1", "HorizontalPodAutoscaler", {}),
    ),
    (
        of(
            *("v1", "PersistentVolumeClaim"),
            {
                "pv.kubernetes.io/bind-completed": "yes",
                "pv.kubernetes.io/bound-by-controller": "yes",
                "volume.beta.kubernetes.io/storage-provisioner": "x",
                "volume.kubernetes.io/selected-node": "node-1",
                "volume.kubernetes.io/storage-provisioner": "x",
            },
        ),
        of("v1", "PersistentVolumeClaim", {}),
    ),
    (
        of(
            *("v1", "PersistentVolume"),
            {"pv.kubernetes.io/bound-by-controller": "yes"},
            spec={"claimRef": {"name": "b", "uid": "u", "resourceVersion": "1"}},
        ),
        of("v1", "PersistentVolume", {}, spec={"claimRef": {"name": "b"}}),
    ),
    (
        of(
            *("v1", "Secret"),
            {
                "kubernetes.io/service-account.name": "b",
                "kubernetes.io/service-account.uid": "u",
            },
            type=TOKEN,
            data={"token": "eA==", "ca.crt": "eA==", "namespace": "eA==", "more": ""},
            stringData={"token": "x"},
        ),
        of(
            *("v1", "Secret"),
            {"kubernetes.io/service-account.name": "b"},
            type=TOKEN,
            data={"more": ""},
            stringData={},
        ),
    ),
]


@pytest.mark.parametrize(("written", "applied"), OWNED)
def test_what_is_applied(written: Any, applied: Any) -> None:
    """Without these fields, and nothing else is left out."""
    before = json.dumps(written)
    (manifest,) = read_source([("a.yaml", before.encode())]).manifests
    assert manifest.object == applied
    assert json.dumps(written) == before


@pytest.mark.parametrize(("one", "other"), OWNED)
def test_what_is_compared(one: Any, other: Any) -> None:
    """They are no drift, whichever side has them."""
    key = ObjectKey("", one["kind"], "", "a")
    for wanted, live in ((one, other), (other, one)):
        assert changed_fields(key, wanted, live) == ([], 0)


@pytest.mark.parametrize(
    "found",
    [
        of(RBAC, "ClusterRole", rules=RULES),
        of(RBAC, "ClusterRole", aggregationRule=None, rules=RULES),
        of(RBAC, "Role", aggregationRule=AGGREGATED, rules=RULES),
        of("example.org/v1", "ClusterRole", aggregationRule=AGGREGATED, rules=RULES),
        of("v1", "Secret", type="Opaque", data={"token": "eA=="}),
        of("v1", "PersistentVolume", spec=["claimRef"]),
        of("apps/v1", "Deployment", ["deployment.kubernetes.io/revision"]),
        {"apiVersion": 1, "kind": []},
    ],
)
def test_what_stays(found: Any) -> None:
    assert without_owned(found) is found
