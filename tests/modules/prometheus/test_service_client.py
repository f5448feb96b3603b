"""Connections to the ClusterIPs of Services."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from modules.prometheus.agent.body_parts import BodyParts
from modules.prometheus.agent.service_client import MAX_POOLS, DirectServiceClient
from modules.prometheus.agent.services import ServiceTarget
from tests.modules.prometheus.stand import MemoryStand, envelope, service
from tunnel.http1 import UpstreamError
from tunnel.testing import FakeService

SELECTOR = {"app": "prometheus"}


@pytest.fixture
def stand() -> Iterator[MemoryStand]:
    stand = MemoryStand(reach="cluster-ip")
    yield stand
    stand.close()


def prom(address: str, **spec: Any) -> Any:
    labels = {"txkas/prometheus": "true"}
    return service("prom", labels, clusterIP=address, selector=SELECTOR, **spec)


def test_by_cluster_ip(stand: MemoryStand) -> None:
    """The request names the Service, and neither a user nor agentk."""
    stand.add(prom("10.96.0.9"))
    backend = stand.cluster.services["10.96.0.9", 9090] = FakeService(
        body=envelope(["job"])
    )
    assert stand.ask("/labels")["data"] == ["job"]
    request = backend.requests[-1]
    assert request.fields["host"] == ["prom.monitoring.svc:9090"]
    assert "authorization" not in request.fields
    assert not stand.cluster.asked


@pytest.mark.parametrize(
    "changed",
    [
        {"type": "ExternalName", "externalName": "169.254.169.254"},
        {"clusterIP": "127.0.0.1"},
        {"selector": {}},
    ],
    ids=["external", "loopback", "no selector"],
)
def test_a_service_that_changes(stand: MemoryStand, changed: dict[str, Any]) -> None:
    """agentk reads it again for each connection."""
    stand.add(prom("10.96.0.9"))
    backend = FakeService(body=envelope(["job"]))
    for address in ("10.96.0.9", "127.0.0.1", "169.254.169.254"):
        stand.cluster.services[address, 9090] = backend
    stand.ask("/labels")
    count = len(backend.requests)
    found = prom("10.96.0.9")
    found["spec"] |= changed
    stand.add(found)
    stand.agent._direct.close()
    stand.ask("/labels", 503)
    assert len(backend.requests) == count


def test_the_number_of_pools(stand: MemoryStand) -> None:
    """The oldest connections end."""
    client = DirectServiceClient(stand.agent._api.kubernetes, stand.clock)
    beginning: list[Deferred[Any]] = []
    for number in range(MAX_POOLS + 1):
        target = ServiceTarget("monitoring", f"s{number}", "web", 9090)
        sent = partial(client.send, target, "/api/v1/query", "query=1", False)
        beginning.append(Deferred.fromCoroutine(BodyParts(stand.clock).begin(sent)))
    assert len(client._pools) == MAX_POOLS
    client.close()
    assert not client._pools
    for one in beginning:
        one.addErrback(lambda failure: failure.trap(UpstreamError))
