"""Questions to one cluster: rights, limits, errors, and what is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from prometheus_client import generate_latest
from twisted.internet.defer import Deferred

from modules.prometheus.agent.body_parts import IDLE_SECONDS
from modules.prometheus.agent.questions import (
    MAX_AT_ONCE,
    MAX_OF_USER,
    MAX_WAITING,
    WAIT_SECONDS,
)
from modules.prometheus.server.agent_path import SECONDS
from modules.prometheus.wire.endpoints import MAX_ANSWER
from tests.modules.prometheus.stand import (
    ALICE,
    BOB,
    UP,
    MemoryStand,
    envelope,
    service,
)
from tunnel.api import Access, AgentPathRequest, AgentPathsStarted, Impersonation
from tunnel.errors import CallError
from tunnel.testing import FakePathResponse


@pytest.fixture
def stand() -> Iterator[MemoryStand]:
    stand = MemoryStand()
    stand.add_prometheus()
    yield stand
    stand.close()


def test_a_query(stand: MemoryStand) -> None:
    """GET and POST of the client become the same request; nothing else is sent."""
    assert stand.ask("/query?query=up&timeout=5s")["data"] == UP
    stand.ask("/query", method="POST", body=b"query=up&timeout=5s")
    assert (
        stand.cluster.asked[-2:]
        == [("monitoring/http:prom:web", "/api/v1/query", {"query": ["up"]} | T)] * 2
    )
    received = stand.cluster.received[-1]
    assert received.method == "POST" and "?" not in received.path
    assert set(received.fields) == {
        *("accept", "accept-encoding", "authorization", "content-length"),
        *("content-type", "host"),
    }
    # The API server removes agentk's own credential.
    assert received.fields["authorization"] == ["Bearer of-agentk"]
    assert received.user == ""


T = {"timeout": ["5s"]}


def test_label_values_are_a_get(stand: MemoryStand) -> None:
    """Prometheus accepts no form there."""
    stand.ask("/label/job/values?match[]=up")
    assert stand.cluster.received[-1].method == "GET"
    assert stand.cluster.asked[-1][2] == {"match[]": ["up"]}


def test_a_missing_right(stand: MemoryStand) -> None:
    """The refusal names the right and the Service; Prometheus is not asked."""
    stand.cluster.rights.clear()
    refused = stand.ask("/query?query=up", 403)
    assert refused["status"] == "error" and refused["errorType"] == "execution"
    assert "get services/proxy" in refused["error"]
    assert "monitoring/prom" in refused["error"]
    assert "/api/v1/query" not in [
        path for _, path, form in stand.cluster.asked if form != {"query": ["1"]}
    ]


@pytest.mark.parametrize("name", ["prom", "prom:web", "http:prom:web"])
def test_rights_for_one_name(stand: MemoryStand, name: str) -> None:
    """A role may name the Service as paths of kubectl do."""
    stand.cluster.rights = {("alice", f"monitoring/{name}")}
    stand.ask("/labels")


def test_rights_are_remembered_for_a_while(stand: MemoryStand) -> None:
    """By user, and a refusal for a shorter time."""
    stand.ask("/labels")
    stand.ask("/labels")
    assert stand.cluster.reviews == 1
    stand.ask("/labels", access=BOB)
    assert stand.cluster.reviews == 2
    stand.cluster.rights.clear()
    stand.clock.advance(59)
    stand.ask("/labels")
    stand.clock.advance(2)
    stand.ask("/labels", 403)
    stand.cluster.rights.add(("alice", "monitoring/prom"))
    stand.ask("/labels", 403)
    stand.clock.advance(11)
    stand.ask("/labels")


def test_other_groups_of_the_same_credential(stand: MemoryStand) -> None:
    """A remembered right belongs to everything that the API server sees."""
    stand.ask("/labels")
    other = attrs.evolve(ALICE, impersonation=Impersonation("alice", ("g",)))
    stand.ask("/labels", access=other)
    assert stand.cluster.reviews == 2


def test_read_only_users(stand: MemoryStand) -> None:
    """POST is reading here."""
    stand.ask("/query", access=BOB, method="POST", body=b"query=up")


def test_errors_of_prometheus_pass(stand: MemoryStand) -> None:
    """Status, type and text are Prometheus' own."""
    said = {"status": "error", "errorType": "bad_data", "error": "parse error"}

    def broken(path: str, form: Any) -> tuple[int, bytes]:
        return (400, json.dumps(said).encode()) if form != {} else (200, envelope({}))

    stand.cluster.backends["monitoring/http:prom:web"] = broken
    stand.find()
    setting = {"namespace": "monitoring", "name": "prom"}
    stand.pair.sections.apply({"prometheus": json.dumps({"service": setting})})
    assert stand.ask("/query?query=sum(", 400) == said


def test_errors_of_the_api_server(stand: MemoryStand) -> None:
    """A Kubernetes Status becomes an error that clients of Prometheus understand."""
    stand.ask("/labels")
    stand.cluster.backends.clear()
    refused = stand.ask("/labels", 503)
    assert refused["errorType"] == "unavailable"
    assert "no endpoints for http:prom:web" in refused["error"]
    assert "create services/proxy" in refused["error"]


def test_redirects_are_not_followed(stand: MemoryStand) -> None:
    """The message names the setting for the path."""
    stand.ask("/labels")
    stand.cluster.backends["monitoring/http:prom:web"] = lambda path, form: (302, b"")
    refused = stand.ask("/labels", 503)
    assert "prometheus.service.path" in refused["error"]


def test_a_long_answer(stand: MemoryStand) -> None:
    """A response with a length is refused before it begins."""
    stand.ask("/labels")
    body = b"x" * (MAX_ANSWER + 1)
    stand.cluster.backends["monitoring/http:prom:web"] = lambda path, form: (200, body)
    refused = stand.ask("/query?query=up", 422)
    assert refused["errorType"] == "execution"
    assert f"more than {MAX_ANSWER} bytes" in refused["error"]
    body = body[:-1]
    assert len(stand.request("/api/v1/query?query=up").body) == MAX_ANSWER


def test_an_incomplete_answer(stand: MemoryStand) -> None:
    """A response takes a limited time; the client notices that it is incomplete."""
    stand.ask("/labels")
    response = FakePathResponse()

    async def write(data: bytes) -> None:
        # The client reads so slowly that it would hold its turn.
        stand.clock.advance(SECONDS)

    response.write = write  # type: ignore[method-assign]
    path = stand.pair.paths.served["prometheus"]
    stand.cluster.backends["monitoring/http:prom:web"] = lambda _, form: (
        200,
        b"x" * 500_000,
    )
    request = AgentPathRequest(ALICE, "GET", "/api/v1/labels", "", {}, b"")

    async def ask() -> None:
        await path.answer(request, response)

    with pytest.raises(CallError):
        stand.pair.run(ask())
    metrics = generate_latest(stand.server.api.metrics).decode()
    assert "kas_prometheus_broken_responses_total 1.0" in metrics


def asking(stand: MemoryStand, access: Access = ALICE) -> list[FakePathResponse]:
    """Begin a question; its response is in the list when it has arrived."""
    done: list[FakePathResponse] = []
    request = stand.pair.paths.request(access, "/prometheus/api/v1/labels")
    Deferred.fromCoroutine(request).addCallback(done.append)
    stand.pair.settle()
    return done


def test_a_silent_prometheus(stand: MemoryStand) -> None:
    """The question ends after 130 seconds, and its turn is free."""
    stand.ask("/labels")
    stand.cluster.silent = True
    done = asking(stand)
    stand.clock.advance(IDLE_SECONDS - 1)
    stand.pair.settle()
    assert not done
    stand.clock.advance(2)
    stand.pair.settle()
    (response,) = done
    assert response.status == 504
    assert json.loads(response.body)["errorType"] == "timeout"
    stand.cluster.silent = False
    stand.ask("/labels")


def users(count: int) -> list[Access]:
    return [
        Access(f"user:u{n}", "1", "agent-1", impersonation=Impersonation(f"u{n}"))
        for n in range(count)
    ]


def test_questions_at_once(stand: MemoryStand) -> None:
    """Four of a user and eight of all run; the others wait, and then give up."""
    names = users(3)
    for one in names:
        assert one.impersonation is not None
        stand.cluster.rights.add((one.impersonation.username, "monitoring/prom"))
        stand.ask("/labels", access=one)
    stand.cluster.silent = True
    before = len(stand.cluster.requests)
    first = [asking(stand, names[0]) for _ in range(MAX_OF_USER + 1)]
    turns = stand.agent._questions._turns
    assert (turns.running, turns.waiting) == (MAX_OF_USER, 1)
    second = [asking(stand, names[1]) for _ in range(MAX_OF_USER)]
    assert (turns.running, turns.waiting) == (MAX_AT_ONCE, 1)
    third = asking(stand, names[2])
    assert (turns.running, turns.waiting) == (MAX_AT_ONCE, 2)
    assert len(stand.cluster.requests) == before
    stand.clock.advance(WAIT_SECONDS)
    stand.pair.settle()
    for (refused,) in (first[-1], third):
        assert refused.status == 429
        assert "at most 4 of a user and 8 of all" in refused.body.decode()
    stand.clock.advance(IDLE_SECONDS)
    stand.pair.settle()
    assert all(one for one in first + second)
    assert (turns.running, turns.waiting) == (0, 0)


def test_too_many_wait(stand: MemoryStand) -> None:
    """The queue is limited."""
    stand.ask("/labels")
    stand.cluster.silent = True
    waiting = [asking(stand) for _ in range(MAX_OF_USER + MAX_WAITING)]
    (refused,) = asking(stand)
    assert (
        refused.status == 429
        and f"{MAX_WAITING} of this user wait" in refused.body.decode()
    )
    stand.clock.advance(WAIT_SECONDS)
    stand.clock.advance(IDLE_SECONDS)
    stand.pair.settle()
    assert all(waiting)


def test_the_trail_for_users(stand: MemoryStand) -> None:
    """Who may list Services sees the search."""
    refused = stand.request("/discovery")
    assert refused.status == 403
    assert "list services in all namespaces" in refused.body.decode()
    stand.cluster.rights.add(("alice", "list"))
    stand.clock.advance(11)
    shown = json.loads(stand.request("/discovery").body)
    assert shown["target"] == {
        "namespace": "monitoring",
        "name": "prom",
        "port": "web",
        "scheme": "http",
    }
    assert stand.request("/discovery", method="POST").status == 405


def test_an_agent_without_the_module(stand: MemoryStand) -> None:
    """The message says what to enable."""
    stand.pair.agent.dispatcher.withdraw("PrometheusAgent")
    refused = stand.ask("/labels", 503)
    assert (
        "enable modules.prometheus in the configuration of agentk" in refused["error"]
    )


def test_the_listener_restarts(stand: MemoryStand) -> None:
    """The path is registered again."""
    stand.pair.paths.served.clear()
    stand.server._withdraw = lambda: None
    stand.server.api.events.publish(AgentPathsStarted())
    stand.ask("/labels")


def test_metrics(stand: MemoryStand) -> None:
    """Numbers by endpoint and result, without names of users or clusters."""
    stand.ask("/labels")
    stand.ask("/nothing", 404)
    stand.cluster.rights.clear()
    stand.ask("/labels", 403, access=users(1)[0])
    kas = generate_latest(stand.server.api.metrics).decode()
    assert (
        'kas_prometheus_requests_total{code="2xx",endpoint="labels",scope="agent"} 1.0'
        in kas
    )
    assert 'code="4xx",endpoint="other"' in kas
    agent = generate_latest(stand.agent._api.metrics).decode()
    assert 'agentk_prometheus_questions_total{result="refused"} 1.0' in agent
    assert "agentk_prometheus_found 1.0" in agent


def test_an_unknown_service_name_is_not_dialled() -> None:
    """In a pod, agentk dials names of Services only."""
    stand = MemoryStand(reach="cluster-ip")
    stand.add(
        service(
            "prom",
            {"txkas/prometheus": "true"},
            type="ExternalName",
            externalName="169.254.169.254",
        )
    )
    assert "ExternalName" in stand.find().steps[1].reason
    assert not stand.find().HasField("target")
    stand.close()
