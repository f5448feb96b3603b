"""A verdict for each kind and state, as kstatus has it but for what health.py says."""

from __future__ import annotations

from typing import Any

import pytest

from tunnel.kubernetes import (
    HealthStatus,
    ObjectHealth,
    health_of,
    why_it_stays,
)

C, P, F, T = (
    HealthStatus.CURRENT,
    HealthStatus.IN_PROGRESS,
    HealthStatus.FAILED,
    HealthStatus.TERMINATING,
)

#: 2026-11-23T00:00:00Z
NOW = 1_795_392_000.0

VERSIONS = {
    "ConfigMap": "v1",
    "CronJob": "batch/v1",
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "DaemonSet": "apps/v1",
    "Deployment": "apps/v1",
    "Job": "batch/v1",
    "PersistentVolumeClaim": "v1",
    "Pod": "v1",
    "PodDisruptionBudget": "policy/v1",
    "ReplicaSet": "apps/v1",
    "Service": "v1",
    "StatefulSet": "apps/v1",
    "Thing": "x.io/v1",
}


def on(kind: str, status: str = "True", **more: str) -> dict[str, str]:
    return {"type": kind, "status": status, **more}


def health(kind: str, spec: Any, status: Any, **metadata: Any) -> ObjectHealth:
    found = {
        "apiVersion": VERSIONS[kind],
        "kind": kind,
        "metadata": {"name": "a", **metadata},
        "spec": spec,
        "status": status,
    }
    return health_of(found, NOW)


def counts(**numbers: Any) -> dict[str, Any]:
    return {"observedGeneration": 1, **numbers}


def rolled(n: int = 2, *conditions: dict[str, str], **other: Any) -> dict[str, Any]:
    """A Deployment's status after a rollout."""
    numbers = dict.fromkeys(
        ("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), n
    )
    usual = (on("Progressing", reason="NewReplicaSetAvailable"), on("Available"))
    return counts(**{**numbers, "conditions": list(conditions or usual), **other})


TWO = {"replicas": 2, "progressDeadlineSeconds": 600}
SET = counts(
    replicas=2,
    readyReplicas=2,
    currentReplicas=2,
    updatedReplicas=2,
    currentRevision="a",
    updateRevision="a",
)
DAEMONS = counts(
    desiredNumberScheduled=2,
    currentNumberScheduled=2,
    updatedNumberScheduled=2,
    numberAvailable=2,
    numberReady=2,
)
REPLICAS = counts(
    replicas=2, fullyLabeledReplicas=2, availableReplicas=2, readyReplicas=2
)
WAITS = {"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
PARTITION = {"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "expected"),
    [
        # Any kind.
        ("ConfigMap", None, None, C),
        ("Thing", {}, {}, C),
        ("Thing", {}, {"conditions": [on("Ready")]}, C),
        ("Thing", {}, {"conditions": [on("Ready", "False")]}, P),
        ("Thing", {}, {"conditions": [on("Ready", "Unknown")]}, P),
        ("Thing", {}, {"conditions": [on("Reconciling"), on("Ready")]}, P),
        ("Thing", {}, {"conditions": [on("Reconciling", "False")]}, C),
        ("Thing", {}, {"conditions": [on("Stalled")]}, F),
        ("Thing", {}, {"conditions": [on("Stalled", "False"), on("Ready")]}, C),
        ("Thing", {}, {"observedGeneration": 1}, C),
        ("Thing", {}, {"observedGeneration": 0, "conditions": [on("Ready")]}, P),
        ("Thing", {}, {"conditions": "none"}, C),
        ("Thing", "odd", "odd", C),
        # Deployments.
        ("Deployment", TWO, rolled(), C),
        ("Deployment", TWO, {}, P),
        ("Deployment", TWO, rolled(replicas=1), P),
        ("Deployment", TWO, rolled(updatedReplicas=1), P),
        ("Deployment", TWO, rolled(replicas=3), P),
        ("Deployment", TWO, rolled(availableReplicas=1), P),
        ("Deployment", TWO, rolled(readyReplicas=1), P),
        ("Deployment", TWO, rolled(2, on("Available")), P),
        ("Deployment", TWO, rolled(2, on("Progressing", reason="Other")), P),
        (
            "Deployment",
            TWO,
            rolled(2, on("Progressing", reason="NewReplicaSetAvailable")),
            P,
        ),
        ("Deployment", {"replicas": 2}, rolled(2, on("Available")), C),
        ("Deployment", {}, rolled(1), C),
        ("Deployment", {"replicas": 0}, rolled(0), C),
        (
            "Deployment",
            TWO,
            rolled(1, on("Progressing", "False", reason="ProgressDeadlineExceeded")),
            F,
        ),
        # StatefulSets.
        ("StatefulSet", {"replicas": 2}, SET, C),
        ("StatefulSet", {"replicas": 2}, {**SET, "replicas": 1}, P),
        ("StatefulSet", {"replicas": 2}, {**SET, "readyReplicas": 1}, P),
        ("StatefulSet", {"replicas": 2}, {**SET, "replicas": 3}, P),
        ("StatefulSet", {"replicas": 2}, {**SET, "currentReplicas": 1}, P),
        ("StatefulSet", {"replicas": 2}, {**SET, "updateRevision": "b"}, P),
        ("StatefulSet", {"updateStrategy": {"type": "OnDelete"}}, {}, C),
        ("StatefulSet", PARTITION, {**SET, "updatedReplicas": 0}, P),
        (
            "StatefulSet",
            PARTITION,
            {**SET, "updatedReplicas": 1, "updateRevision": "b"},
            C,
        ),
        # DaemonSets.
        ("DaemonSet", {}, DAEMONS, C),
        ("DaemonSet", {}, {}, P),
        ("DaemonSet", {}, counts(), P),
        ("DaemonSet", {}, {**DAEMONS, "currentNumberScheduled": 1}, P),
        ("DaemonSet", {}, {**DAEMONS, "updatedNumberScheduled": 1}, P),
        ("DaemonSet", {}, {**DAEMONS, "numberAvailable": 1}, P),
        ("DaemonSet", {}, {**DAEMONS, "numberReady": 1}, P),
        ("DaemonSet", {}, counts(desiredNumberScheduled=0), C),
        # ReplicaSets.
        ("ReplicaSet", {"replicas": 2}, REPLICAS, C),
        ("ReplicaSet", {"replicas": 2}, {**REPLICAS, "fullyLabeledReplicas": 1}, P),
        ("ReplicaSet", {"replicas": 2}, {**REPLICAS, "availableReplicas": 1}, P),
        ("ReplicaSet", {"replicas": 2}, {**REPLICAS, "readyReplicas": 1}, P),
        ("ReplicaSet", {"replicas": 1}, REPLICAS, P),
        (
            "ReplicaSet",
            {"replicas": 2},
            {**REPLICAS, "conditions": [on("ReplicaFailure", message="quota")]},
            P,
        ),
        # Jobs.
        ("Job", {}, {}, P),
        ("Job", {}, {"startTime": "2026-11-22T00:00:00Z", "active": 1}, P),
        ("Job", {}, {"conditions": [on("Complete")]}, C),
        ("Job", {}, {"conditions": [on("Failed", reason="BackoffLimitExceeded")]}, F),
        ("Job", {}, {"conditions": [on("Suspended")]}, C),
        ("CronJob", {}, {}, C),
        # Pods.
        ("Pod", {}, {}, P),
        ("Pod", {}, {"phase": "Pending"}, P),
        ("Pod", {}, {"phase": "Succeeded"}, C),
        ("Pod", {}, {"phase": "Failed", "reason": "Evicted"}, F),
        ("Pod", {}, {"phase": "Running", "conditions": [on("Ready")]}, C),
        ("Pod", {}, {"phase": "Running", "conditions": [on("Ready", "False")]}, P),
        ("Pod", {}, {"phase": "Running", "containerStatuses": [WAITS]}, F),
        (
            "Pod",
            {},
            {
                "phase": "Running",
                "conditions": [on("Ready")],
                "containerStatuses": [WAITS],
            },
            C,
        ),
        # The rest.
        ("PersistentVolumeClaim", {}, {"phase": "Bound"}, C),
        ("PersistentVolumeClaim", {}, {"phase": "Pending"}, P),
        ("Service", {"type": "LoadBalancer"}, {}, P),
        ("Service", {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}, {}, C),
        ("Service", {"type": "ExternalName"}, {}, C),
        ("PodDisruptionBudget", {}, {"disruptionsAllowed": 0}, C),
        ("CustomResourceDefinition", {}, {}, P),
        ("CustomResourceDefinition", {}, {"conditions": [on("Established")]}, C),
        (
            "CustomResourceDefinition",
            {},
            {"conditions": [on("Established", "False", reason="Installing")]},
            P,
        ),
        (
            "CustomResourceDefinition",
            {},
            {"conditions": [on("Established", "False", reason="Other")]},
            F,
        ),
        (
            "CustomResourceDefinition",
            {},
            {"conditions": [on("NamesAccepted", "False"), on("Established")]},
            F,
        ),
    ],
)
def test_verdicts(kind: str, spec: Any, status: Any, expected: HealthStatus) -> None:
    found = health(kind, spec, status, generation=1)
    assert found.status is expected
    assert bool(found.reason) == (expected is not C)


@pytest.mark.parametrize(("seconds", "expected"), [(14, P), (16, F)])
def test_a_pod_that_no_node_takes(seconds: int, expected: HealthStatus) -> None:
    since = {14: "2026-11-22T23:59:46Z", 16: "2026-11-22T23:59:44Z"}[seconds]
    condition = {**UNSCHEDULABLE, "lastTransitionTime": since, "message": "no memory"}
    found = health("Pod", {}, {"phase": "Pending", "conditions": [condition]})
    assert found.status is expected
    assert ("no memory" in found.reason) == (expected is F)


def test_a_pod_without_a_time() -> None:
    status = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
    assert health("Pod", {}, status).status is P


def test_what_is_being_deleted() -> None:
    """Whatever else it says; what keeps it is named."""
    stuck = health(
        "Thing",
        {},
        {"conditions": [on("Ready")]},
        deletionTimestamp="2026-11-22T00:00:00Z",
        finalizers=["x.io/never"],
    )
    assert stuck == ObjectHealth(T, "it is being deleted; its finalizers: x.io/never")
    gone = health("Pod", {}, {}, deletionTimestamp="2026-11-22T00:00:00Z")
    assert gone == ObjectHealth(T, "it is being deleted")


def test_why_a_namespace_stays() -> None:
    """Its own conditions say what of it remains."""
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "a", "deletionTimestamp": "2026-11-22T00:00:00Z"},
        "status": {
            "conditions": [
                {"type": "NamespaceDeletionDiscoveryFailure", "status": "False"},
                on("NamespaceContentRemaining", message="pods. has 1 instance"),
                on("NamespaceFinalizersRemaining", message="x.io/never in 1"),
            ]
        },
    }
    assert why_it_stays(namespace, 0.0) == "pods. has 1 instance; x.io/never in 1"
    del namespace["status"]
    assert why_it_stays(namespace, 0.0) == "it is being deleted"
    assert why_it_stays({"kind": "Pod", "metadata": {}}, 0.0)


def test_reasons() -> None:
    assert health("Deployment", TWO, rolled(readyReplicas=1), generation=1).reason == (
        "ready replicas: 1 of 2"
    )
    failed = {"conditions": [on("Failed", reason="BackoffLimitExceeded", message="x")]}
    assert health("Job", {}, failed).reason == "BackoffLimitExceeded: x"
    running = {"phase": "Running", "containerStatuses": [WAITS]}
    assert health("Pod", {}, running).reason == ("containers crash repeatedly: c")
