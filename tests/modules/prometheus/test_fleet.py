"""Questions to several clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import attrs
import pytest
from twisted.internet.defer import Deferred

from modules.prometheus.server.fleet import (
    CLUSTER_SECONDS,
    MAX_CLUSTERS,
)
from modules.prometheus.server.parameters import read_question
from tests.modules.prometheus.stand import ALICE, UP, MemoryStand, envelope, healthy
from tunnel.api import CredentialRevoked, PageCaller


@pytest.fixture
def stand() -> Iterator[MemoryStand]:
    stand = MemoryStand()
    stand.add_prometheus()
    yield stand
    stand.close()


def test_one_answer(stand: MemoryStand) -> None:
    """Each series has its cluster, and all clusters use the same time."""
    found = stand.fleet("query?query=up&clusters=agent-1")
    (series,) = found["data"]["result"]
    assert series == {"metric": {"cluster": "agent-1"}, "value": [1, "1"]}
    assert set(found) == {"status", "data"}
    _, _, form = stand.cluster.asked[-1]
    assert set(form) == {"query", "time"}


def test_an_agent_is_asked_once(stand: MemoryStand) -> None:
    """Its name and its id are the same cluster."""
    found = stand.fleet("series?match[]=up&clusters=agent-1,1,agent-1")
    assert found["data"] == [{"job": "x", "cluster": "agent-1"}]


def test_missing_clusters_are_named(stand: MemoryStand) -> None:
    """A denied cluster, and the warnings of the others."""

    def partial(path: str, form: Any) -> tuple[int, bytes]:
        if path == "/api/v1/query":
            return 200, envelope(UP, warnings=["a store is missing"], infos=["hint"])
        return healthy(path, form)

    stand.cluster.backends["monitoring/http:prom:web"] = partial
    found = stand.fleet("query?query=up&clusters=agent-1,paris")
    assert len(found["data"]["result"]) == 1
    assert found["warnings"] == [
        "cluster paris is missing: the token is for another agent",
        "cluster agent-1: a store is missing",
    ]
    assert found["infos"] == ["cluster agent-1: hint"]


def test_no_cluster_answers(stand: MemoryStand) -> None:
    """The status is the one of all clusters."""
    stand.cluster.rights.clear()
    refused = stand.fleet("query?query=up&clusters=agent-1", 403)
    assert "get services/proxy" in refused["error"]
    assert "cluster agent-1" in refused["error"]
    stand.fleet("query?query=up&clusters=agent-1", 401, token="wrong")
    answer = stand.pair.visit("/fleet/prometheus/api/v1/query?clusters=agent-1")
    assert answer.status == 401


def test_prometheus_refuses(stand: MemoryStand) -> None:
    """A wrong query is the client's error."""
    said = b'{"status":"error","errorType":"bad_data","error":"parse error"}'
    stand.ask("/labels")
    stand.cluster.backends["monitoring/http:prom:web"] = lambda path, form: (400, said)
    refused = stand.fleet("query?query=(&clusters=agent-1", 400)
    assert "bad_data: parse error" in refused["error"]


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("query?query=up", 400, "1 to 50"),
        ("query?query=up&clusters=,", 400, "1 to 50"),
        ("query?query=sum(up)&clusters=agent-1", 422, "by (cluster)"),
        ("query_range?query=absent(up)&clusters=agent-1", 422, "absent"),
        ("series?match[]=%7Bcluster%3D%22a%22%7D&clusters=agent-1", 422, "clusters"),
        ("labels?limit=x&clusters=agent-1", 400, "limit"),
        ("rules?clusters=agent-1", 404, "ask one at"),
        ("admin/tsdb/snapshot?clusters=agent-1", 404, "only requests that read"),
        ("query?query=up&query=up&clusters=agent-1", 400, "more than once"),
    ],
    ids=[
        *("none", "empty", "sum", "absent", "matcher", "limit", "rules", "admin"),
        "twice",
    ],
)
def test_refused_questions(
    stand: MemoryStand, path: str, status: int, reason: str
) -> None:
    """No cluster is asked."""
    refused = stand.fleet(path, status)
    assert reason in refused["error"] and refused["status"] == "error"
    assert not stand.cluster.asked


def test_too_many_clusters(stand: MemoryStand) -> None:
    """kas checks the token for each."""
    names = ",".join(f"c{n}" for n in range(MAX_CLUSTERS + 1))
    assert "1 to 50" in stand.fleet(f"labels?clusters={names}", 400)["error"]


def test_labels(stand: MemoryStand) -> None:
    """The label cluster is one of the names, and its values are the clusters."""
    found = stand.fleet("labels?clusters=agent-1")
    assert found["data"] == ["cluster", "job"]
    found = stand.fleet("label/cluster/values?clusters=agent-1&match[]=up")
    assert found["data"] == ["agent-1"]
    assert stand.cluster.asked[-1][1:] == ("/api/v1/labels", {"match[]": ["up"]})
    assert stand.fleet("label/job/values?clusters=agent-1")["data"] == ["job"]


def test_a_long_answer_is_missing(
    stand: MemoryStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All clusters share the memory of one answer."""
    monkeypatch.setattr("modules.prometheus.server.fleet.MAX_TOTAL", 40)
    refused = stand.fleet("query?query=up&clusters=agent-1", 422)
    assert "more than 40 bytes" in refused["error"]


def asking(stand: MemoryStand, query: str = "up", token: str = "alice") -> Any:
    """Begin a question to ``agent-1`` and return the Deferred of its answer."""
    request = Mock(**{"requestHeaders.getRawHeaders.return_value": [f"Bearer {token}"]})
    caller = PageCaller.of(stand.server.api.users, request)
    question = read_question(
        "GET", "/api/v1/query", f"query={query}&clusters=agent-1", "", b""
    )
    found = Deferred.fromCoroutine(stand.server.questions.answer(question, caller))
    stand.pair.settle()
    return found


def test_a_slow_cluster(stand: MemoryStand) -> None:
    """It is missing after a minute."""
    stand.ask("/labels")
    stand.cluster.silent = True
    found = asking(stand)
    stand.clock.advance(CLUSTER_SECONDS - 1)
    stand.pair.settle()
    assert not found.called
    stand.clock.advance(1)
    stand.pair.settle()
    refused = found.result.value
    assert refused.status in (503, 504) and "agent-1" in str(refused)
    found.addErrback(lambda _: None)


def test_a_revoked_credential(stand: MemoryStand) -> None:
    """A question ends with the credential of its user, and only then."""
    stand.ask("/labels")
    stand.cluster.silent = True
    found = asking(stand)
    events = stand.server.api.events
    events.publish(CredentialRevoked("another"))
    assert not found.called
    events.publish(CredentialRevoked(ALICE.credential_id))
    assert found.result.value.status == 401
    found.addErrback(lambda _: None)
    assert not stand.server.questions._answering


def test_post(stand: MemoryStand) -> None:
    """Grafana sends the clusters in the URL, and the query in a form."""
    answer = stand.pair.visit(
        "/fleet/prometheus/api/v1/query?clusters=agent-1",
        "POST",
        b"query=up",
        headers={
            "Authorization": "Bearer user:1:alice",
            "Content-Type": "application/x-www-form-urlencoded",
        },
        wait=0.25,
    )
    assert answer.status == 200, answer.body


def test_a_token_for_another_agent(stand: MemoryStand) -> None:
    """A token that names its agent gives no access to others."""
    stand.server.api.users.tokens["carol"] = attrs.evolve(
        ALICE, agent_id="2", agent_name="agent-2"
    )
    refused = stand.fleet("labels?clusters=agent-1", 403, token="carol")
    assert "for another agent" in refused["error"]
