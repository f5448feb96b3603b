"""Requests to Services by name."""

from __future__ import annotations

from twisted.internet.task import Clock

from modules.prometheus.agent.body_parts import BodyParts
from modules.prometheus.agent.service_client import MAX_POOLS, DnsServiceClient
from modules.prometheus.agent.services import ServiceTarget
from tests.tunnel.http1.pools import Endpoint


def test_by_name() -> None:
    """The connection and the Host field name the Service, and nothing names a user."""
    clock, endpoint = Clock(), Endpoint()
    dialled: list[tuple[str, int]] = []

    def connect(host: str, port: int) -> Endpoint:
        dialled.append((host, port))
        return endpoint

    client = DnsServiceClient(clock, connect)
    target = ServiceTarget("monitoring", "prom", "web", 9090, path="/p")
    parts = BodyParts(clock)
    client.send(target, "/api/v1/query", "query=up", True, parts)
    clock.advance(0)
    assert dialled == [("prom.monitoring.svc", 9090)]
    (wire,) = endpoint.wires
    head, _, body = wire.taken().partition(b"\r\n\r\n")
    assert head.startswith(b"POST /p/api/v1/query HTTP/1.1\r\n")
    assert b"\r\nHost: prom.monitoring.svc:9090" in head
    assert b"authorization" not in head.lower() and body == b"query=up"
    parts.close()
    for number in range(MAX_POOLS + 1):
        other = ServiceTarget("monitoring", f"s{number}", "web", 9090)
        client.send(other, "/api/v1/query", "query=1", False, BodyParts(clock))
    assert len(client._pools) == MAX_POOLS
    client.close()
    assert not client._pools
