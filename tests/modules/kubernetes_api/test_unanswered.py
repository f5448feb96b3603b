"""Requests that end without an answer, in the audit log and for other modules."""

from __future__ import annotations

import json

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError
from twisted.logger import capturedLogs

from modules.kubernetes_api import writes
from modules.kubernetes_api.shares import HEAVIEST, room_of
from modules.kubernetes_api.websocket_tokens import REQUEST
from tests.modules.kubernetes_api.cases import EXEC
from tests.modules.kubernetes_api.pair import ALICE, World
from tests.modules.kubernetes_api.test_watch_api import Page
from tunnel.api import (
    AuditLevel,
    AuditStage,
    CredentialRevoked,
    KubernetesWrite,
)
from tunnel.errors import ErrorCode, StreamReset

POD = b"/api/v1/namespaces/a/pods/x"
DELETE = b"DELETE " + POD + b" HTTP/1.1"
EMPTY = b"Content-Length: 0"

Ends = list[tuple[str, bool]]


@pytest.fixture
def world() -> World:
    return World(audit_level=AuditLevel.ALL)


def ends(world: World) -> Ends:
    """Outcome of each end, and whether the request may have been executed."""
    return [
        (one.outcome, bool(one.details.get("unanswered", False)))
        for one in world.server_api.audit.events
        if one.stage is not AuditStage.BEGUN
    ]


def clean(world: World) -> None:
    world.run()
    for wire in world.cluster.connections.wires:
        wire.settle()
    assert {name: count for name, count in world.counts().items() if count} == {}
    assert world.link.errors == []


def test_the_client_leaves(world: World) -> None:
    client = world.request(DELETE, EMPTY)
    client.lose()
    assert ends(world) == [("client left", True)]
    (event,) = world.server_api.audit.events
    assert event.access is ALICE
    assert (event.details["verb"], event.details["name"]) == ("delete", "x")
    clean(world)


def test_the_client_closes_its_half(world: World) -> None:
    client = world.request(DELETE, EMPTY)
    client.protocol.readConnectionLost()
    assert ends(world) == [("client left", True)]
    clean(world)


def test_the_client_leaves_with_an_upgrade(world: World) -> None:
    for part in (b"exec", b"attach", b"portforward"):
        head = EXEC[0].replace(b"/exec", b"/" + part)
        world.request(head, *EXEC[1:]).lose()
        world.run()
    assert ends(world) == [("client left", True)] * 3
    clean(world)


def test_the_client_leaves_a_watch(world: World) -> None:
    world.request(b"GET /api/v1/pods?watch=true HTTP/1.1").lose()
    assert ends(world) == [("client left", True)]
    clean(world)


def test_reads_only_with_all_events() -> None:
    world = World(audit_level=AuditLevel.CHANGES)
    world.request(b"GET /api/v1/pods HTTP/1.1").lose()
    assert ends(world) == []
    world.request(DELETE, EMPTY).lose()
    assert ends(world) == [("client left", True)]


def test_the_client_leaves_with_half_a_body(world: World) -> None:
    client = world.request(DELETE, b"Content-Length: 9", body=b"1234")
    client.lose()
    assert ends(world) == [("client left", True)]


def test_a_body_that_does_not_come(world: World) -> None:
    """The outcome is the status that the client got."""
    client = world.request(DELETE, b"Content-Length: 9", body=b"1234")
    world.clock.pump([30.0] * 4)
    assert b"HTTP/1.1 408" in client.taken()
    assert ends(world) == [("408", True)]
    clean(world)


def test_a_handler_that_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = world.request(DELETE, b"Content-Length: 9", body=b"1234")

    def broken(data: bytes) -> None:
        raise ValueError("broken")

    for one in world.link.open:
        monkeypatch.setattr(one, "write", broken)
    with capturedLogs() as said:
        client.receive(b"56")
    assert any("log_failure" in one for one in said)
    assert b"HTTP/1.1 500" in client.taken()
    assert ends(world) == [("500", True)]


def test_one_event_for_an_answered_request(world: World) -> None:
    client = world.request(DELETE, EMPTY)
    world.origin.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel")
    world.run()
    client.lose()
    assert ends(world) == [("200", False)]
    clean(world)


def test_not_forwarded(world: World) -> None:
    """A request that waits for its turn was not executed."""
    world.request(DELETE, EMPTY, token=b"user:1:root")
    clients = [world.request(DELETE, EMPTY) for _ in range(room_of(HEAVIEST) + 1)]
    clients[-1].lose()
    assert ends(world) == [("client left", False)]


def test_credential_unknown_yet(world: World) -> None:
    """No user is known, and nothing was done or refused."""
    world.server_api.access["late"] = Deferred()
    world.request(DELETE, EMPTY, token=b"user:1:late").lose()
    assert ends(world) == []


def test_kas_stops(world: World) -> None:
    world.request(DELETE, EMPTY)
    world.request(*EXEC)
    with pytest.raises(StopIteration):
        world.server.stop().send(None)
    assert ends(world) == [("kas stopped", True)] * 2


def test_drained_requests_end_as_others(world: World) -> None:
    client = world.request(DELETE, EMPTY)
    world.server._draining(None)
    client.lose()
    assert ends(world) == [("client left", True)]


@pytest.mark.parametrize(
    ("code", "status", "unanswered"),
    [
        (ErrorCode.INTERNAL, "502", True),
        (ErrorCode.PATH_LOST, "502", True),
        (ErrorCode.SHUTDOWN, "503", True),
        (ErrorCode.DEADLINE, "504", True),
        (ErrorCode.REFUSED, "503", False),
        (ErrorCode.UNKNOWN_METHOD, "502", False),
    ],
)
def test_the_stream_is_reset(
    world: World, code: ErrorCode, status: str, unanswered: bool
) -> None:
    world.request(DELETE, EMPTY)
    for stream in tuple(world.link.open):
        stream.close(StreamReset(code, "reset"))
    assert ends(world) == [(status, unanswered)]


def test_the_agent_is_away(world: World) -> None:
    world.link.connected = False
    world.request(DELETE, EMPTY)
    assert ends(world) == [("503", False)]


def test_the_api_server_is_lost(world: World) -> None:
    world.request(DELETE, EMPTY)
    world.origin.lose()
    world.run()
    assert ends(world) == [("502", True)]
    clean(world)


def test_an_answer_that_cannot_be_read(world: World) -> None:
    world.request(DELETE, EMPTY)
    world.origin.receive(b"nonsense\r\n\r\n")
    world.run()
    assert ends(world) == [("502", True)]


def test_revoked_before_the_answer(world: World) -> None:
    world.request(DELETE, EMPTY)
    world.server._revoked(CredentialRevoked(ALICE.credential_id))
    assert ends(world) == [("401", True)]


# Watches of a page.


def test_a_page_leaves(world: World) -> None:
    page = Page(world)
    page.watch()
    page.wire.lose()
    assert ends(world) == [("101", False), ("client left", True)]


def test_a_page_ends_a_watch(world: World) -> None:
    page = Page(world)
    page.watch("pods")
    page.say(type="unwatch", watch_id="pods")
    assert ends(world) == [("101", False), ("client left", True)]
    page.wire.lose()
    assert len(ends(world)) == 2


def test_a_watch_fails(world: World) -> None:
    page = Page(world)
    page.watch()
    for stream in tuple(world.link.open):
        stream.close(StreamReset(ErrorCode.INTERNAL, "reset"))
    assert ends(world) == [("101", False), ("502", True)]


def test_a_watch_without_an_agent(world: World) -> None:
    page = Page(world)
    world.link.connected = False
    page.say(
        type="watch",
        watch_id="pods",
        watch_params={"version": "v1", "resource": "pods"},
    )
    assert ends(world) == [("101", False), ("503", False)]


def test_too_many_watches() -> None:
    world = World(audit_level=AuditLevel.ALL, max_requests_per_credential=1)
    page = Page(world)
    page.say(
        type="watch",
        watch_id="pods",
        watch_params={"version": "v1", "resource": "pods"},
    )
    assert ends(world) == [("101", False), ("429", False)]


def test_kas_stops_with_a_watch(world: World) -> None:
    page = Page(world)
    page.watch()
    with pytest.raises(StopIteration):
        world.server.stop().send(None)
    assert ends(world) == [("101", False), ("kas stopped", True)]


# The report to other modules of agentk.


@pytest.fixture
def told(world: World) -> list[KubernetesWrite]:
    found: list[KubernetesWrite] = []
    world.agent_api.subscribe(KubernetesWrite, found.append)
    return found


def test_a_possible_change(world: World, told: list[KubernetesWrite]) -> None:
    world.clock.advance(100.0)
    client = world.request(DELETE, EMPTY, b"User-Agent: kubectl/v1")
    world.clock.advance(3.0)
    client.lose()
    world.run()
    (write,) = told
    assert not write.answered
    assert (write.credential_id, write.verb, write.name, write.manager) == (
        "user:alice",
        "delete",
        "x",
        "kubectl",
    )
    # From the request until the API server gives it up, with both clocks' error.
    assert write.time == 103.0 + writes.LATE + writes.SKEW
    assert write.time - write.seconds == pytest.approx(100.0 - writes.SKEW)
    clean(world)


def test_the_api_server_is_lost_with_a_change(
    world: World, told: list[KubernetesWrite]
) -> None:
    world.request(DELETE, EMPTY)
    world.origin.lose()
    world.run()
    assert [one.answered for one in told] == [False]


def test_agentk_stops_with_a_change(world: World, told: list[KubernetesWrite]) -> None:
    world.request(DELETE, EMPTY)
    with pytest.raises(StopIteration):
        world.agent.stop().send(None)
    assert [one.answered for one in told] == [False]


def test_a_change_whose_answer_is_too_large(
    world: World, told: list[KubernetesWrite]
) -> None:
    world.request(DELETE, EMPTY)
    date = b"Date: Thu, 01 Jan 1970 00:01:40 GMT\r\n"
    lines = b"".join(b"A%d: %b\r\n" % (n, b"x" * 1000) for n in range(62))
    world.origin.receive(
        b"HTTP/1.1 200 OK\r\n" + date + lines + b"Content-Length: 0\r\n\r\n"
    )
    world.run()
    assert [one.answered for one in told] == [True]


def test_requests_that_cannot_have_run(
    world: World, told: list[KubernetesWrite]
) -> None:
    # Half a body.
    world.request(DELETE, b"Content-Length: 9", body=b"1234").lose()
    world.run()
    # A dry run.
    world.request(b"DELETE " + POD + b"?dryRun=All HTTP/1.1", EMPTY).lose()
    world.run()
    # No connection.
    world.cluster.connections.at_once = False
    world.request(DELETE, EMPTY)
    world.cluster.connections.fail(ConnectionRefusedError())
    world.run()
    assert told == []


# Requests that kas answers itself.


def test_a_token_for_a_websocket(world: World) -> None:
    query = b"?" + REQUEST + b"=true"
    client = world.request(b"GET " + POD + query + b" HTTP/1.1")
    assert b'{"token":' in client.taken()
    assert ends(world) == [("200", False)]
    clean(world)


def test_a_review_of_a_read_only_user(world: World) -> None:
    looker = attrs.evolve(ALICE, read_only=True)
    world.server_api.access["looker"] = looker
    attributes = {"verb": "delete", "resource": "pods"}
    body = json.dumps({"spec": {"resourceAttributes": attributes}}).encode()
    client = world.request(
        b"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1",
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(body),
        token=b"user:1:looker",
        body=body,
    )
    assert b"HTTP/1.1 201" in client.taken()
    assert ends(world) == [("201", False)]
    clean(world)


def test_only_clients_without_an_accepted_credential_are_strangers(
    world: World,
) -> None:
    """The audit log limits their events, and no others."""
    world.request(DELETE, EMPTY, token=b"nonsense")
    world.request(DELETE, EMPTY, token=b"user:1:nobody")
    world.request(DELETE, EMPTY).lose()
    found = [(one.outcome, one.stranger) for one in world.server_api.audit.events]
    assert found == [("401", True), ("401", True), ("client left", False)]
