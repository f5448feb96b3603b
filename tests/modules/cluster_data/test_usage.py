"""CPU and memory of nodes and pods, from the metrics API of clusters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modules.cluster_data.agent.usage import ROWS, quantity
from modules.cluster_data.server.usage import FLEET_USAGE
from modules.cluster_data.wire import usage_pb2 as wire
from tests.modules.cluster_data.pair import LivePair

PODS = "/apis/metrics.k8s.io/v1beta1/pods"


def pod(name: str, *usages: tuple[str, str]) -> Any:
    containers = [{"usage": {"cpu": cpu, "memory": memory}} for cpu, memory in usages]
    return {"metadata": {"name": name, "namespace": "shop"}, "containers": containers}


@pytest.fixture
def usage(tmp_path: Path) -> Iterator[LivePair]:
    stand = LivePair(tmp_path)
    stand.lead()
    stand.advance(3)
    yield stand
    stand.close()


def top(stand: LivePair, *clusters: str, **request: Any) -> Any:
    client = stand.pair.external(FLEET_USAGE)
    asked = wire.UsageRequest(**{"resource": "pods", **request})
    calling = client.call("Top", wire.TopRequest(usage=asked, clusters=clusters))
    return stand.pair.run(calling)


def test_sums_and_order(usage: LivePair) -> None:
    items = [
        pod("small", ("250m", "64Mi"), ("1000000n", "1Ki")),
        pod("large", ("1.5", "32Mi")),
        pod("odd", ("x", "")),
    ]
    usage.cluster.answer("GET", PODS, {"items": items})
    found = top(usage)
    rows = [
        (one.agent_name, one.usage.namespace, one.usage.name, one.usage.millicores)
        for one in found.rows
    ]
    assert rows == [
        ("agent-1", "shop", "large", 1500),
        ("agent-1", "shop", "small", 251),
        ("agent-1", "shop", "odd", 0),
    ]
    assert (found.queried, found.cut, len(found.missing)) == (1, False, 0)
    found = top(usage, by_memory=True, limit=1)
    assert [one.usage.memory for one in found.rows] == [64 * 2**20 + 1024]
    assert found.cut


def test_selection(usage: LivePair) -> None:
    path = "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?labelSelector=app%3Dweb"
    usage.cluster.answer("GET", path, {"items": [pod("web", ("1", "1"))]})
    found = top(usage, namespace="shop", label_selector="app=web")
    assert [one.usage.name for one in found.rows] == ["web"]


def test_many_rows(usage: LivePair) -> None:
    items = [pod(f"pod-{number}", ("1", "1")) for number in range(2 * ROWS + 5)]
    usage.cluster.answer("GET", PODS, {"items": items})
    assert len(top(usage).rows) == len(items)
    assert len(top(usage, limit=ROWS).rows) == ROWS


def test_clusters_without_rows(usage: LivePair) -> None:
    (missing,) = top(usage).missing
    assert missing.agent_name == "agent-1" and "metrics-server" in missing.reason
    usage.cluster.answer("GET", PODS, {"message": "not ready"}, 503)
    assert "not ready" in top(usage).missing[0].reason
    (unknown,) = top(usage, "nowhere").missing
    assert unknown.agent_name == "nowhere"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        ("100m", 0.1),
        ("5k", 5000),
        ("3Gi", 3 * 2**30),
        ("1.5Ki", 1536),
        ("-1", 0),
        (None, 0),
        ("1xx", 0),
    ],
)
def test_quantities(text: object, value: float) -> None:
    assert float(quantity(text)) == pytest.approx(value)
