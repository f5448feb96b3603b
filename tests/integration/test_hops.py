"""What only a hop in between can do wrong, and what it says of itself."""

from __future__ import annotations

import uuid

import pytest

from tests.integration.cluster import ControlPlane
from tests.integration.objects import JSON, config_maps
from tests.integration.processes import eventually
from tests.integration.rawhttp import Way
from tests.integration.stack import Agentk, Kas


def test_abort_in_a_body(
    ways: dict[str, Way], namespace: str, kas: Kas, agentk: Agentk
) -> None:
    """A client that leaves in the middle changes nothing, and holds nothing."""
    way = ways["proxied"]
    for framing in "Content-Length: 1000", "Transfer-Encoding: chunked":
        with way.connect() as connection:
            head = way.head("POST", config_maps(namespace), JSON, framing)
            connection.send(head + b'200\r\n{"metadata":{"name":"half"}')
    eventually(lambda: kas.metric("kas_kubernetes_api_requests_in_flight") == 0)
    eventually(lambda: agentk.metric("agentk_kubernetes_api_requests_in_flight") == 0)
    assert ways["direct"].ask("GET", config_maps(namespace) + "/half").status == 404


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 4", "Transfer-Encoding: chunked"),
        ("Content-Length: 4", "Content-Length: 5"),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding : chunked",),
        ("Content-Length: +4",),
        ("Bad\x00Name: x",),
        ("Folded: a\r\n b",),
        ("X: a\rb",),
        ("Host: two",),
    ],
)
def test_smuggling(
    lines: tuple[str, ...], ways: dict[str, Way], control_plane: ControlPlane
) -> None:
    """What two servers may read differently reaches no second server."""
    way = ways["proxied"]
    audit = control_plane.audit()
    mark = uuid.uuid4().hex
    inner = way.head("GET", f"/api/v1/namespaces/{mark}")
    with way.connect() as connection:
        head = way.head("POST", f"/api/v1/namespaces/default/{mark}", *lines)
        connection.send(head + b"0\r\n\r\n" + inner)
        answer = connection.answer()
        assert answer.status == 400, answer
        assert connection.is_closed()
    fence = uuid.uuid4().hex
    way.ask("GET", f"/api/v1/namespaces/{fence}")
    audit.wait_for(fence)
    assert not audit.about(mark)


def test_targets_arrive_as_they_are(
    ways: dict[str, Way], control_plane: ControlPlane
) -> None:
    """Byte for byte, as the audit log shows."""
    audit = control_plane.audit()
    mark = uuid.uuid4().hex
    query = "?a=%2f%2F+%20&b&=&b=1&labelSelector=x%3D1,y%21%3D2&ü".replace(
        "ü", "%c3%bc"
    )
    ways["proxied"].ask("GET", f"/api/v1/namespaces/{mark}{query}")
    assert audit.wait_for(mark)[0]["requestURI"] == f"/api/v1/namespaces/{mark}{query}"


def test_via(ways: dict[str, Way]) -> None:
    """Both hops name themselves, in order."""
    via = ways["proxied"].ask("GET", "/readyz").field("Via")
    agent, kas = via.split(", ")
    assert agent.startswith("1.1 gitlab-agent/") and kas.startswith("1.1 gitlab-kas/")
