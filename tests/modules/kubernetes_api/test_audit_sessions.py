"""Requests that may last: an event before the first byte, and an event at the end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.modules.kubernetes_api.cases import CHUNKED, EXEC, SWITCH
from tests.modules.kubernetes_api.pair import ALICE, World
from tests.modules.kubernetes_api.test_watch_api import Page
from tunnel.api import AuditLevel, AuditStage, CredentialRevoked
from tunnel.errors import ErrorCode, StreamReset

WATCH = (b"GET /api/v1/pods?watch=true HTTP/1.1",)
LOGS = (b"GET /api/v1/namespaces/a/pods/b/log?follow=true HTTP/1.1",)
POD = b"/api/v1/namespaces/a/pods/b/"


@pytest.fixture
def world() -> World:
    return World(audit_level=AuditLevel.ALL)


def stages(world: World) -> list[tuple[str, str]]:
    return [(one.stage.value, one.outcome) for one in world.server_api.audit.events]


def ended(world: World) -> dict[str, Any]:
    """Return the details of the last event, which ends what the first one began."""
    begun, *_, last = world.server_api.audit.events
    assert (begun.stage, last.stage) == (AuditStage.BEGUN, AuditStage.ENDED)
    assert begun.id == last.id != ""
    assert begun.access is last.access is ALICE
    shared = begun.details.keys()
    assert {name: last.details[name] for name in shared} == begun.details
    return {name: last.details[name] for name in last.details.keys() - shared}


@pytest.mark.parametrize(
    "lines",
    [
        WATCH,
        LOGS,
        EXEC,
        *(
            (b"POST " + POD + part + b" HTTP/1.1", *EXEC[1:])
            for part in (b"attach", b"portforward")
        ),
    ],
    ids=["watch", "logs", "exec", "attach", "portforward"],
)
def test_the_beginning_is_recorded_before_the_first_byte(
    world: World, lines: tuple[bytes, ...]
) -> None:
    world.link.connected = False
    world.request(*lines)
    assert stages(world) == [("begun", ""), ("ended", "503")]
    assert "unanswered" not in ended(world)


def test_the_beginning_without_an_answer(world: World) -> None:
    """A kas that is killed leaves an event without its end."""
    world.request(*EXEC)
    assert stages(world) == [("begun", "")]


def test_bytes_time_and_reason(world: World) -> None:
    client = world.request(*EXEC)
    world.origin.receive(SWITCH)
    world.run()
    assert stages(world) == [("begun", "")]
    client.receive(b"12345")
    world.run()
    world.origin.receive(b"123")
    world.clock.advance(2.5)
    world.run()
    client.lose()
    assert stages(world) == [("begun", ""), ("ended", "101")]
    assert ended(world) == {
        "bytes_in": 5,
        "bytes_out": 3,
        "ms": 2500,
        "reason": "client left",
    }


@pytest.mark.parametrize("lines", [WATCH, LOGS], ids=["watch", "logs"])
def test_the_api_server_ends_a_response(world: World, lines: tuple[bytes, ...]) -> None:
    world.request(*lines)
    world.origin.receive(CHUNKED + b"2\r\n{}\r\n0\r\n\r\n")
    world.run()
    assert stages(world) == [("begun", ""), ("ended", "200")]
    assert ended(world)["reason"] == "finished"


def test_refused_by_the_api_server(world: World) -> None:
    world.request(*EXEC)
    world.origin.receive(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
    world.run()
    assert stages(world) == [("begun", ""), ("ended", "403")]


def test_revoked(world: World) -> None:
    world.request(*EXEC)
    world.origin.receive(SWITCH)
    world.run()
    world.server._revoked(CredentialRevoked(ALICE.credential_id))
    assert ended(world)["reason"] == "client -> kas: the credential was revoked"


def test_the_agent_is_lost(world: World) -> None:
    world.request(*EXEC)
    world.origin.receive(SWITCH)
    world.run()
    for stream in tuple(world.link.open):
        stream.close(StreamReset(ErrorCode.PATH_LOST, "reset"))
    assert stages(world) == [("begun", ""), ("ended", "101")]
    assert ended(world)["reason"].startswith("kas -> agent: ")


def test_refused_by_kas(world: World) -> None:
    """One event, which says so, for any kind of request."""
    for lines in (EXEC, WATCH, (b"GET /api HTTP/1.1",)):
        world.request(*lines, token=b"user:1:nobody")
    assert stages(world) == [("denied", "401")] * 3


def test_only_changes() -> None:
    world = World(audit_level=AuditLevel.CHANGES)
    world.request(*WATCH)
    world.origin.receive(CHUNKED + b"0\r\n\r\n")
    world.run()
    assert stages(world) == []
    world.request(*WATCH)
    world.origin.receive(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
    world.run()
    assert stages(world) == [("answered", "403")]


def test_a_watch_of_a_page(world: World) -> None:
    page = Page(world)
    page.watch("pods")
    world.origin.receive(CHUNKED + b"2\r\n{}\r\n")
    world.run()
    assert stages(world) == [("answered", "101"), ("begun", "")]
    page.wire.lose()
    assert stages(world)[2:] == [("ended", "200")]
    last = world.server_api.audit.events[-1].details
    assert (last["bytes_out"], last["resource"]) == (2, "pods")
