"""Requests that kas forwards only after their first event is on disk."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from tests.modules.kubernetes_api.cases import EXEC, HELLO, SWITCH, status_of
from tests.modules.kubernetes_api.pair import World
from tests.modules.kubernetes_api.test_agent_paths import Echo
from tests.modules.kubernetes_api.test_audit_sessions import stages
from tests.modules.kubernetes_api.test_watch_api import Page
from tunnel.api import (
    AuditLevel,
    AuditStage,
    CredentialRevoked,
    EnforcedEvents,
    IAgentPaths,
)
from tunnel.errors import CallError, Status
from tunnel.kubernetes import opens_session

SECRETS = b"/api/v1/namespaces/a/secrets"
CREATE = (b"POST /api/v1/namespaces/a/configmaps HTTP/1.1", b"Content-Length: 2")
FULL = CallError(Status.UNAVAILABLE, "the log cannot be written: No space left")


def world_of(*enforced: EnforcedEvents, level: AuditLevel = AuditLevel.ALL) -> World:
    return World(audit_level=level, enforced=enforced)


def left(world: World) -> dict[str, int]:
    """Return what is left of requests at kas."""
    counts = world.counts()
    names = ("in flight at kas", "credentials", "agents", "streams")
    return {name: counts[name] for name in names if counts[name]}


def pending(world: World) -> Deferred[None]:
    """Make the next event wait."""
    waiting: Deferred[None] = Deferred()
    world.server_api.audit.commits.append(waiting)
    return waiting


@pytest.mark.parametrize(
    ("method", "target", "upgrade", "expected"),
    [
        (b"GET", b"/api/v1/namespaces/a/pods/b/exec", True, True),
        (b"POST", b"/api/v1/namespaces/a/pods/b/exec", False, True),
        (b"POST", b"/api/v1/namespaces/a/pods/b/%65xec", False, True),
        (b"POST", b"/api/v1/namespaces/a/pods/b/attach", False, True),
        (b"GET", b"/api/v1/namespaces/a/pods/b/portforward", True, True),
        (b"PATCH", b"/api/v1/namespaces/a/pods/b/ephemeralcontainers", False, True),
        (b"GET", b"/api/v1/nodes/n/proxy/exec/a/b/c", False, True),
        (b"GET", b"/api/v1/proxy/nodes/n/run", False, True),
        (b"GET", b"/api/v1/namespaces/a/services/b/proxy/", False, True),
        (b"GET", b"/apis/x.io/v1/namespaces/a/vms/b/console", True, True),
        (b"GET", b"/api/v1/namespaces/a/pods/exec", False, False),
        (b"GET", b"/api/v1/namespaces/exec/pods", False, False),
        (b"GET", b"/api/v1/pods?watch=true", True, False),
        (b"POST", b"/api/v1/namespaces/a/pods", False, False),
        (b"GET", b"/api/v1/namespaces/a/pods/b/log?follow=true", False, False),
    ],
)
def test_sessions(method: bytes, target: bytes, upgrade: bool, expected: bool) -> None:
    assert opens_session(method, target, upgrade) is expected


def test_a_session_waits_for_the_disk() -> None:
    world = world_of(EnforcedEvents.SESSIONS)
    committed = pending(world)
    client = world.request(*EXEC)
    # The client may send data at once.
    client.receive(b"early")
    world.run()
    assert stages(world) == [("begun", "")]
    assert not world.link.opened
    committed.callback(None)
    world.run()
    assert len(world.link.opened) == 1
    world.origin.receive(SWITCH)
    world.run()
    assert world.origin.taken().endswith(b"early")
    client.lose()
    world.run()
    assert stages(world) == [("begun", ""), ("ended", "101")]
    assert left(world) == {}


def test_a_change_has_two_events() -> None:
    """The first one is on disk before the API server may execute the change."""
    world = world_of(EnforcedEvents.CHANGES)
    committed = pending(world)
    client = world.request(*CREATE, body=b"{}")
    assert not world.link.opened
    committed.callback(None)
    world.run()
    assert world.origin.taken().endswith(b"{}")
    world.origin.receive(HELLO)
    world.run()
    assert client.taken().startswith(b"HTTP/1.1 200")
    assert stages(world) == [("begun", ""), ("ended", "200")]
    begun, ended = world.server_api.audit.events
    assert begun.id == ended.id
    assert begun.id.encode() in world.link.opened[0]
    assert ended.details["bytes_in"] == 2


@pytest.mark.parametrize("lines", [EXEC, CREATE], ids=["exec", "create"])
def test_the_log_cannot_be_written(lines: tuple[bytes, ...]) -> None:
    """The client gets a Status that says why, and the cluster gets nothing."""
    world = world_of(*EnforcedEvents)
    committed = pending(world)
    client = world.request(*lines, body=b"{}")
    committed.errback(FULL)
    world.run()
    code, status, head = status_of(client)
    assert (code, status["reason"]) == (503, "ServiceUnavailable")
    assert "kas: the log cannot be written: No space left" in status["message"]
    # kubectl would retry silently.
    assert b"Retry-After" not in head
    assert not world.link.opened
    assert stages(world) == [("begun", ""), ("ended", "503")]
    assert "unanswered" not in world.server_api.audit.events[1].details
    assert left(world) == {}


def test_reads_go_on() -> None:
    world = world_of(*EnforcedEvents)
    world.request(b"GET /api/v1/pods HTTP/1.1")
    assert len(world.link.opened) == 1
    world.origin.receive(HELLO)
    world.run()
    assert stages(world) == [("answered", "200")]
    assert world.server_api.audit.committed == []


def test_the_next_request_of_a_connection() -> None:
    """A refused request leaves the connection usable."""
    world = world_of(EnforcedEvents.SECRETS)
    committed = pending(world)
    client = world.request(b"GET " + SECRETS + b" HTTP/1.1")
    committed.errback(FULL)
    world.run()
    assert status_of(client)[0] == 503
    client.receive(
        b"GET /api HTTP/1.1\r\nHost: kas\r\nAuthorization: Bearer user:1:alice\r\n\r\n"
    )
    world.run()
    world.origin.receive(HELLO)
    world.run()
    assert client.taken().startswith(b"HTTP/1.1 200")


def test_the_client_leaves_while_its_request_waits() -> None:
    world = world_of(EnforcedEvents.SESSIONS)
    committed = pending(world)
    world.request(*EXEC).lose()
    committed.callback(None)
    world.run()
    assert not world.link.opened
    assert stages(world) == [("begun", ""), ("ended", "client left")]
    assert left(world) == {}


def test_a_credential_is_revoked_while_its_request_waits() -> None:
    world = world_of(EnforcedEvents.SESSIONS)
    committed = pending(world)
    client = world.request(*EXEC)
    world.server._revoked(CredentialRevoked("user:alice"))
    committed.callback(None)
    world.run()
    assert status_of(client)[0] == 401
    assert not world.link.opened


def test_refused_by_kas() -> None:
    """One event, because the request is not forwarded."""
    world = world_of(*EnforcedEvents)
    world.request(*EXEC, token=b"user:1:nobody")
    assert stages(world) == [("denied", "401")]
    assert not world.server_api.audit.committed


@pytest.mark.parametrize(
    ("target", "enforced"),
    [
        (SECRETS, True),
        (SECRETS + b"/x", True),
        (b"/api/v1/namespaces/a/%73ecrets/x", True),
        (b"/apis/x.io/v1/namespaces/a/secrets", False),
        (b"/api/v1/namespaces/secrets/pods", False),
    ],
)
def test_reads_of_secrets(target: bytes, enforced: bool) -> None:
    """They are in the log, although the level is `changes`."""
    world = world_of(EnforcedEvents.SECRETS, level=AuditLevel.CHANGES)
    world.request(b"GET " + target + b" HTTP/1.1")
    world.origin.receive(HELLO)
    world.run()
    committed = [one.stage for one in world.server_api.audit.committed]
    assert committed == ([AuditStage.BEGUN] if enforced else [])
    assert len(world.server_api.audit.events) == (2 if enforced else 0)


def test_a_watch_of_secrets_of_a_page() -> None:
    world = world_of(EnforcedEvents.SECRETS)
    page = Page(world)
    committed = pending(world)
    page.say(
        type="watch",
        watch_id="s",
        watch_params={"version": "v1", "resource": "secrets", "namespace": "a"},
    )
    assert stages(world) == [("answered", "101"), ("begun", "")]
    assert not world.link.opened
    committed.callback(None)
    world.run()
    assert len(world.link.opened) == 1


def test_a_watch_of_a_page_without_a_log() -> None:
    world = world_of(EnforcedEvents.SECRETS)
    page = Page(world)
    pending(world).errback(FULL)
    page.say(
        type="watch",
        watch_id="s",
        watch_params={"version": "v1", "resource": "secrets", "namespace": "a"},
    )
    assert not world.link.opened
    told, _ = page.told()
    assert "No space left" in str(told)
    assert stages(world)[-1] == ("ended", "503")
    page.wire.lose()
    world.run()
    assert left(world) == {}


@pytest.mark.parametrize("works", [True, False], ids=["written", "full"])
def test_reads_of_secrets_from_a_cache(works: bool) -> None:
    world = world_of(EnforcedEvents.SECRETS)
    echo = Echo()
    echo.is_kubernetes = True
    world.server_api.capabilities.get(IAgentPaths).serve("echo", echo)
    committed = pending(world)
    head = b"GET /agents/1/echo" + SECRETS + b" HTTP/1.1"
    client = world.request(head, token=b"alice")
    assert not echo.requests
    if works:
        committed.callback(None)
    else:
        committed.errback(FULL)
    world.run()
    assert len(echo.requests) == works
    assert client.taken().startswith(b"HTTP/1.1 200" if works else b"HTTP/1.1 503")
    assert left(world) == {}
