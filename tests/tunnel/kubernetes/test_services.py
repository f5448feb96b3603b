"""Services to which modules may send requests."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tunnel.errors import CallError, Status
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import KubernetesClients
from tunnel.testing import FakeCluster, FakeService

ADDRESS = "10.96.0.10"


def service(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "hooks", "namespace": "flux-system"},
        "spec": {
            "selector": {"app": "hooks"},
            "clusterIP": ADDRESS,
            "ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}],
            **spec,
        },
    }


def endpoint(found: dict[str, Any] | None, port: int = 80, **more: Any) -> Any:
    """The endpoint of the Service *found*, or the error."""
    clock = Clock()
    cluster = FakeCluster(clock)
    cluster.services[ADDRESS, 80] = FakeService()
    if found is not None:
        cluster.objects.put(found)
    clients = KubernetesClients(
        cluster,
        UpstreamPool(cluster.endpoint, clock),
        clock,
        lambda: 0.5,
        reach=cluster.reach,
    )
    results: list[Any] = []
    looking = Deferred.fromCoroutine(
        clients.service_endpoint("flux-system", "hooks", port, **more)
    )
    looking.addBoth(results.append)
    for _ in range(5):
        clock.advance(0)
    return results[0]


def refusal(found: dict[str, Any] | None, port: int = 80, **more: Any) -> CallError:
    result = endpoint(found, port, **more)
    result.trap(CallError)
    error: CallError = result.value
    return error


def test_a_service_of_pods() -> None:
    assert endpoint(service()).server.requests == []


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"type": "ExternalName", "externalName": "evil.example"}, "ExternalName"),
        ({"selector": None}, "has no selector"),
        ({"clusterIP": "None"}, "has no ClusterIP"),
        ({"clusterIP": ""}, "has no ClusterIP"),
        ({"clusterIP": "127.0.0.1"}, "127.0.0.1"),
        ({"clusterIP": "::1"}, "::1"),
        ({"clusterIP": "169.254.169.254"}, "169.254.169.254"),
        ({"clusterIP": "0.0.0.0"}, "0.0.0.0"),
        ({"clusterIP": "evil.example"}, "has no ClusterIP"),
        ({"ports": [{"port": 8080}]}, "has no TCP port 80; it has: 8080"),
    ],
    ids=lambda one: None if isinstance(one, str) else "-".join(map(str, one.values())),
)
def test_other_services(spec: dict[str, Any], why: str) -> None:
    """None leads to this machine, to a cloud's metadata or out of the cluster."""
    error = refusal(service(**spec))
    assert error.status is Status.FAILED_PRECONDITION
    assert why in error.message


def test_port_of_another_protocol() -> None:
    assert "has no TCP port 53" in refusal(service(), 53).message


def test_the_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeCluster, "host", ADDRESS)
    assert "is the API server" in refusal(service()).message


def test_no_service() -> None:
    assert refusal(None).status is Status.NOT_FOUND


def test_an_invalid_authority() -> None:
    """The error does not repeat the bytes."""
    error = refusal(service(), ca_certificate=b"secret")
    assert error.status is Status.FAILED_PRECONDITION
    assert "secret" not in error.message
    assert "is not a certificate" in error.message
