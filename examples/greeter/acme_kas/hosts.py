"""View ``hosts`` of live data: the host names of all Ingresses, with their Services."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from tunnel.api import (
    ClusterObject,
    ClusterView,
    KubernetesShape,
    ObjectKind,
    ViewRow,
)

INGRESS = ObjectKind("networking.k8s.io", "v1", "Ingress")


class Ingress(KubernetesShape):
    """The fields of an Ingress that agentk reads; it skips all others."""

    spec: dict[str, Any] | None = None


def _rows(one: ClusterObject) -> Iterator[ViewRow]:
    ingress = cast(Ingress, one.found)
    for rule in (ingress.spec or {}).get("rules") or []:
        paths = (rule.get("http") or {}).get("paths") or []
        backends = [path["backend"].get("service") or {} for path in paths]
        services = sorted({one["name"] for one in backends if one})
        host = rule.get("host", "*")
        yield ViewRow({"host": host, "services": services}, part=host)


HOSTS = ClusterView("hosts", {INGRESS: Ingress}, _rows)
