"""Events of clusters, joined with the audit log of kas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kas.audit import cluster
from kas.audit.cluster import ClusterLog, TooManyEvents
from kas.audit.search import AuditQuery


def line(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def theirs(event_id: str, second: int = 0, **fields: Any) -> bytes:
    """A line of a cluster's log, of a request that agentk's account made."""
    event = {
        "time": f"2026-05-01T12:00:{second:02}.000000+00:00",
        "action": "cluster.request",
        "stage": "ended",
        "id": event_id,
        "agent_id": "7",
        "agent": "edge",
        "user": "system:serviceaccount:txkas:agentk",
        "by_agentk": True,
        "verb": "delete",
        "resource": "pods",
        "namespace": "prod",
        "name": "web-0",
        "outcome": "200",
        "log": "file:1",
        "offset": 17,
    }
    return line(**{**event, **fields})


def ours(event_id: str, **fields: Any) -> bytes:
    """A line of the log of kas."""
    event = {
        "action": "kubernetes.request",
        "time": "2026-05-01T12:00:00.000000+00:00",
        "id": event_id,
        "agent_id": "7",
        "credential": "user:alice",
    }
    return line(**{**event, **fields})


def joined(
    clusters: list[bytes], kas: list[bytes], **query: Any
) -> list[dict[str, Any]]:
    log = ClusterLog(AuditQuery(**query))
    log.add(clusters)
    log.join(kas)
    return [dict(one.event) for one in log.found()]


ADMIN: dict[str, Any] = {"by_agentk": False, "user": "admin"}


def test_each_kind_of_request() -> None:
    log = ClusterLog(AuditQuery())
    log.add([theirs("3", 3), theirs("1", 1), theirs("2", 2, **ADMIN)])
    log.join([ours("1"), b"{", b'"kubernetes.request"\n'])
    through, beside, own = log.found()
    assert through.event["credential"] == "user:alice"
    assert "bypassed" not in through.event
    assert beside.event["bypassed"] is True
    assert "bypassed" not in own.event
    assert "log" not in json.loads(own.line)
    what = "edge  delete pods prod/web-0  200"
    assert str(through) == f"2026-05-01T12:00:01Z  user:alice  {what}"
    assert str(beside) == f"2026-05-01T12:00:02Z  bypassed (admin)  {what}"
    assert "agentk (system:serviceaccount:txkas:agentk)" in str(own)


def test_forged_ids() -> None:
    """A client that bypasses kas sends the id of a request that came through kas."""
    (found,) = joined([theirs("1", **ADMIN)], [ours("1")])
    assert found["bypassed"] is True
    assert "credential" not in found


def test_ids_that_the_client_chose() -> None:
    """Each request of a client is found, whatever id it sends."""
    mallory = {**ADMIN, "user": "mallory"}
    clusters = [
        theirs("1", outcome="403", **mallory),
        theirs("1", 1, **mallory),
        theirs("1", name="web-1", **mallory),
        theirs("1", stage="begun", resource="secrets", **mallory),
        theirs("1", verb="get"),
    ]
    found = joined(clusters, [ours("1", verb="get", resource="pods")])
    assert len(found) == len(clusters)
    assert [one["verb"] for one in found if "credential" in one] == ["get"]


@pytest.mark.parametrize(
    "changed",
    [{"verb": "get"}, {"resource": "secrets"}, {"name": "web-1"}, {"as": "bob"}],
    ids=lambda changed: next(iter(changed)),
)
def test_an_event_of_kas_about_another_request(changed: dict[str, str]) -> None:
    """The id alone does not name a credential."""
    (found,) = joined([theirs("1")], [ours("1", **changed)])
    assert "credential" not in found


def test_the_fields_of_kas() -> None:
    """kas does not know the name of a new object, and has longer texts."""
    clusters = [theirs("1", verb="create"), theirs("2", name="x" * 300)]
    user: dict[str, Any] = {"as": "alice"}
    clusters += [theirs("3", **user)]
    kas = [ours("1", verb="create"), ours("2", name="x" * 400)]
    kas += [ours("3", **user)]
    assert all("credential" in one for one in joined(clusters, kas))
    assert "credential" in joined([theirs("4", stage="begun")], [ours("4")])[0]


def test_another_agent() -> None:
    (found,) = joined([theirs("1")], [ours("1", agent_id="8")])
    assert "credential" not in found


def test_a_file_that_somebody_changed() -> None:
    """A line of the file does not decide about the credential."""
    (found,) = joined([theirs("1", credential="user:bob", bypassed=False)], [])
    assert "credential" not in found


def test_events_of_one_request() -> None:
    """The last one counts, also if it was stored twice."""
    begun = theirs("1", stage="begun", outcome="101")
    assert joined([begun, theirs("1"), theirs("1"), begun], [])[0]["outcome"] == "200"
    assert len(joined([begun, theirs("1")], [])) == 1


@pytest.mark.parametrize("user", ["alice", "user:alice", "admin"])
def test_users(user: str) -> None:
    """The credential of kas, or the user in the cluster."""
    clusters = [theirs("1"), theirs("2", **ADMIN)]
    (found,) = joined(clusters, [ours("1")], user=user)
    assert found["id"] == ("2" if user == "admin" else "1")


def test_other_selectors() -> None:
    clusters = [theirs("1", outcome="403"), theirs("2", 9)]
    assert [one["id"] for one in joined(clusters, [], denied=True)] == ["1"]
    since = "2026-05-01T12:00:05.000000+00:00"
    assert [one["id"] for one in joined(clusters, [], since=since)] == ["2"]


def test_events_that_are_missing() -> None:
    """The number of events that agentk could not read is shown."""
    left_out = line(
        time="2026-05-01T12:00:09.000000+00:00", action="cluster.left_out", count=3
    )
    assert joined([left_out, theirs("1")], [])[-1]["count"] == 3


def test_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "MAX_JOINED", 2)
    with pytest.raises(TooManyEvents, match="--since"):
        joined([theirs(str(number)) for number in range(3)], [])
