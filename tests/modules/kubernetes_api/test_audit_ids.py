"""The id that the audit logs of kas and of the API server share."""

from __future__ import annotations

import re

import pytest

from tests.modules.kubernetes_api.cases import EXEC
from tests.modules.kubernetes_api.pair import World
from tests.modules.kubernetes_api.test_watch_api import Page
from tunnel.api import AuditLevel

FORGED = b"0198c0de-0000-7000-8000-000000000000"
WEBSOCKET = (
    EXEC[0].replace(b"POST", b"GET"),
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    b"Sec-WebSocket-Protocol: v5.channel.k8s.io",
)


def arrived(world: World) -> list[str]:
    """Return the ids in the request that the API server got last."""
    head = world.origin.taken()
    return [
        value.decode()
        for value in re.findall(rb"(?i)\r\nAudit.ID:[ \t]*([^\r]*)", head)
    ]


@pytest.mark.parametrize(
    "lines",
    [
        (b"GET /api/v1/pods HTTP/1.1",),
        (b"POST /api/v1/namespaces HTTP/1.1", b"Content-Length: 0"),
        (b"GET /api/v1/pods?watch=true HTTP/1.1",),
        EXEC,
        WEBSOCKET,
    ],
    ids=["get", "post", "watch", "spdy", "websocket"],
)
@pytest.mark.parametrize("name", [b"Audit-ID", b"audit-id"])
def test_kas_replaces_the_id_of_a_client(lines: tuple[bytes, ...], name: bytes) -> None:
    world = World(audit_level=AuditLevel.ALL)
    forged = name + b": " + FORGED
    client = world.request(*lines, forged, forged)
    (found,) = arrived(world)
    client.lose()
    assert {one.id for one in world.server_api.audit.events} == {found}
    assert FORGED.decode() != found


def test_each_request_of_a_connection_has_its_own_id() -> None:
    """Also if the header lines are the same, and kas uses what it knows of them."""
    world = World(audit_level=AuditLevel.ALL)
    client = world.client()
    found = []
    for _ in range(3):
        client.receive(
            b"GET /api HTTP/1.1\r\nHost: kas\r\nAuthorization: Bearer user:1:alice\r\n"
            b"\r\n"
        )
        world.run()
        found += arrived(world)
        world.origin.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        world.run()
    assert [one.id for one in world.server_api.audit.events] == found
    assert len(set(found)) == 3


@pytest.mark.parametrize("line", [b"Connection: audit-id", b"Audit_ID: x"])
def test_fields_that_two_parsers_could_read_differently(line: bytes) -> None:
    world = World(audit_level=AuditLevel.ALL)
    client = world.request(b"GET /api HTTP/1.1", line)
    assert b"HTTP/1.1 400" in client.taken()


def test_without_an_audit_log() -> None:
    """The API server chooses the id; a client cannot."""
    world = World(audit_level=AuditLevel.NONE)
    world.request(b"GET /api HTTP/1.1", b"Audit-ID: " + FORGED)
    assert arrived(world) == []


def test_a_watch_of_a_page() -> None:
    world = World(audit_level=AuditLevel.ALL)
    page = Page(world)
    page.watch("pods")
    (found,) = arrived(world)
    page.wire.lose()
    assert [one.id for one in world.server_api.audit.events][1:] == [found] * 2


def test_a_refused_request_has_no_id_of_the_client() -> None:
    world = World(audit_level=AuditLevel.ALL)
    world.request(b"GET /api HTTP/1.1", b"Audit-ID: " + FORGED, token=b"user:1:nobody")
    (event,) = world.server_api.audit.events
    assert (event.outcome, event.id) == ("401", "")
