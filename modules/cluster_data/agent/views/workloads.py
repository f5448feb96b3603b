"""View ``workloads``: controllers of pods, with their readiness and images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from modules.cluster_data.agent.shapes import Workload, images_of
from tunnel.api import (
    ClusterObject,
    ClusterView,
    ObjectKind,
    ViewRow,
    common_columns,
    shortened,
)

__all__ = ["WORKLOADS", "WORKLOAD_KINDS"]

#: Maximum number of images of a row.
MAX_IMAGES = 16

#: Maximum number of labels of the pods in a row.
MAX_LABELS = 32

WORKLOAD_KINDS = {
    ObjectKind("apps", "v1", "Deployment"): Workload,
    ObjectKind("apps", "v1", "StatefulSet"): Workload,
    ObjectKind("apps", "v1", "DaemonSet"): Workload,
    ObjectKind("batch", "v1", "Job"): Workload,
    ObjectKind("batch", "v1", "CronJob"): Workload,
}


def _rows(one: ClusterObject) -> Iterator[ViewRow]:
    workload = cast(Workload, one.found)
    status = workload.status or {}
    columns = common_columns(one)
    columns.update(_replicas(one.kind.kind, workload, status))
    template = workload.spec.template
    if workload.spec.job_template and workload.spec.job_template.spec:
        template = workload.spec.job_template.spec.template
    columns["images"] = images_of(template.spec if template else None)[:MAX_IMAGES]
    pods = template.metadata.labels if template and template.metadata else None
    if pods and pods != columns.get("labels"):
        columns["pod_labels"] = dict(sorted(pods.items())[:MAX_LABELS])
    columns.update(_tools(workload.metadata.annotations or {}))
    yield ViewRow(columns)


def _tools(annotations: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the applications that tools name in annotations, and not in labels."""
    if release := annotations.get("meta.helm.sh/release-name"):
        yield "helm_release", shortened(release)
    # NAME:GROUP/KIND:NAMESPACE/NAME, which Argo CD writes since version 3.
    tracked, colon, _ = annotations.get("argocd.argoproj.io/tracking-id", "").partition(
        ":"
    )
    if colon:
        yield "argo_application", shortened(tracked)


def _replicas(kind: str, found: Workload, status: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of ready and of wanted pods, where the kind has them."""
    if kind == "CronJob":
        return {
            "schedule": found.spec.schedule,
            "suspended": bool(found.spec.suspend),
            "last": status.get("lastScheduleTime") or "",
        }
    if kind == "Job":
        wanted = 1 if found.spec.completions is None else found.spec.completions
        return {"ready": status.get("succeeded", 0), "wanted": wanted}
    if kind == "DaemonSet":
        wanted = status.get("desiredNumberScheduled", 0)
        return {"ready": status.get("numberReady", 0), "wanted": wanted}
    wanted = 1 if found.spec.replicas is None else found.spec.replicas
    return {"ready": status.get("readyReplicas", 0), "wanted": wanted}


WORKLOADS = ClusterView("workloads", WORKLOAD_KINDS, _rows)
