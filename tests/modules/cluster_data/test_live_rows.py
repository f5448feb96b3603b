"""Rows of a cluster, from its objects to a reader of kas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modules.cluster_data.agent.module import SCOPE_SECONDS
from modules.cluster_data.agent.publisher import BEAT, SUM_EVERY
from tests.modules.cluster_data.pair import LivePair, deployment, node
from tunnel.api import ConfigurationRead


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LivePair]:
    pair = LivePair(tmp_path)
    yield pair
    pair.close()


def watched(live: LivePair) -> list[str]:
    """Return the paths of the watches."""
    return [one.path for one in live.cluster.requests if "watch=" in one.path]


def test_workloads_and_problems(live: LivePair) -> None:
    live.add(deployment("web", image="registry/web:7"), deployment("api", ready=0))
    live.lead()
    live.advance(2)
    rows = live.rows("workloads")
    assert rows["web"]["health"] == "current"
    assert rows["web"]["images"] == ["registry/web:7"]
    assert (rows["api"]["ready"], rows["api"]["wanted"]) == (0, 1)
    assert rows["api"]["health"] == "in progress"
    assert set(live.rows("problems")) == {"api"}
    assert live.rows("summary")["Deployment"] == {
        "total": 2,
        "states": {"current": 1, "in progress": 1},
    }


def test_a_scope(live: LivePair) -> None:
    """Live data waits for the scope, and begins again when it changes."""
    live.add(deployment("web"), node("a"))
    live.agent._knows_scope = False
    live.lead()
    assert not watched(live)
    live.pair.sections.apply({"scope": json.dumps({"namespaces": ["other"]})})
    live.agent._api.events.publish(ConfigurationRead())
    live.advance(2)
    assert not live.rows("workloads")
    assert all("/other/" in one for one in watched(live))
    live.pair.sections.apply({"scope": json.dumps({"namespaces": ["shop"]})})
    live.advance(4)
    assert set(live.rows("workloads")) == {"web"}
    assert not live.rows("nodes")


def test_no_configuration(live: LivePair) -> None:
    """A kas without configuration from Git delays live data, and does not stop it."""
    live.add(deployment("web"))
    live.agent._knows_scope = False
    live.lead()
    live.advance(SCOPE_SECONDS + 2)
    assert set(live.rows("workloads")) == {"web"}


def test_nodes(live: LivePair) -> None:
    live.add(node("a"), node("b", ready=False))
    live.lead()
    live.advance(2)
    rows = live.rows("nodes")
    assert rows["a"]["state"] == "Ready"
    assert rows["a"]["version"] == "v1.36.3"
    assert rows["a"]["capacity"] == {"cpu": "4", "memory": "8Gi"}
    assert rows["b"]["state"] == "NotReady"
    assert set(live.rows("problems")) == {"b"}


def test_warnings(live: LivePair) -> None:
    common = {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {"kind": "Pod", "name": "web-1", "namespace": "shop"},
    }
    warning = {
        "metadata": {"name": "web-1.1", "namespace": "shop"},
        "type": "Warning",
        "reason": "BackOff",
        "message": "x" * 300 + "\nsecond line",
        "count": 7,
        "lastTimestamp": "2026-11-23T00:00:00Z",
    }
    newer = {
        "metadata": {"name": "web-1.2", "namespace": "shop"},
        "type": "Warning",
        "reason": "Failed",
        "lastTimestamp": None,
        "eventTime": "2026-11-23T00:00:01.000000Z",
        "series": {"count": 3, "lastObservedTime": "2026-11-23T00:00:02.000000Z"},
    }
    normal = {
        "metadata": {"name": "web-1.3", "namespace": "shop"},
        "type": "Normal",
        "reason": "Pulled",
    }
    live.add(common | warning, common | newer, common | normal)
    live.lead()
    live.advance(3)
    rows = live.rows("events")
    assert set(rows) == {"web-1.1", "web-1.2"}
    first = rows["web-1.1"]
    assert (first["object"], first["reason"], first["count"]) == (
        "Pod/web-1",
        "BackOff",
        7,
    )
    assert len(first["message"]) == 256
    assert rows["web-1.2"]["count"] == 3
    assert rows["web-1.2"]["last"] == "2026-11-23T00:00:02.000000Z"


def test_changes_arrive_within_their_pause(live: LivePair) -> None:
    live.lead()
    live.advance(2)
    live.add(deployment("web", ready=0))
    live.advance(0.5)
    assert set(live.rows("problems")) == {"web"}
    live.add(deployment("web"))
    live.advance(0.5)
    assert not live.rows("problems")
    live.advance(1)
    assert live.rows("workloads")["web"]["ready"] == 1
    live.objects.remove("apps/v1", "Deployment", "web", "shop")
    live.advance(1.25)
    assert not live.rows("workloads")


def messages(live: LivePair, kind: str) -> int:
    found: int = live.server._receiver.messages[kind]
    return found


def test_many_changes_are_one_message(live: LivePair) -> None:
    live.add(*(deployment(f"web-{count}") for count in range(50)))
    live.lead()
    live.advance(3)
    before = messages(live, "delta")
    for count in range(50):
        live.add(deployment(f"web-{count}", labels={"new": "yes"}))
    live.advance(2)
    # The first change at once, and all others after a pause.
    assert messages(live, "delta") - before == 2
    labels = {tuple(one["labels"]) for one in live.rows("workloads").values()}
    assert labels == {("new",)}


def test_rows_of_a_cluster_that_is_away(live: LivePair) -> None:
    live.add(deployment("web"))
    live.lead()
    live.advance(2)
    (cluster,) = live.ask("Clusters").clusters
    assert (cluster.agent_name, cluster.state, cluster.reason) == (
        "agent-1",
        "live",
        "",
    )
    assert json.loads(cluster.summary)["deployments"]["total"] == 1
    live.follow()
    answer = live.ask("Query", view="workloads")
    assert [one.name for one in answer.rows] == ["web"]
    (state,) = answer.incomplete
    assert state.state == "offline"
    assert "offline: its rows are" in state.reason


def test_only_changes_after_a_break(live: LivePair) -> None:
    live.add(*(deployment(f"web-{count}") for count in range(20)))
    live.lead()
    live.advance(3)
    before = messages(live, "snapshot")
    live.fail_write()
    live.add(deployment("late"))
    live.advance(5)
    assert messages(live, "snapshot") == before
    assert len(live.rows("workloads")) == 21


def test_another_leader_sends_all_rows(live: LivePair) -> None:
    live.add(deployment("web"))
    live.lead()
    live.advance(3)
    before = messages(live, "snapshot")
    live.follow()
    live.objects.remove("apps/v1", "Deployment", "web", "shop")
    live.lead()
    live.advance(3)
    assert messages(live, "snapshot") > before
    assert not live.rows("workloads")


def test_rows_that_differ_are_sent_again(live: LivePair) -> None:
    live.add(deployment("web"))
    live.lead()
    live.advance(3)
    live.damage()
    assert live.rows("workloads")["web"] == {}
    live.advance(BEAT * SUM_EVERY + 5)
    assert live.rows("workloads")["web"]["health"] == "current"
    assert live.server._receiver.repeated == 1


def test_large_tables_in_parts(live: LivePair) -> None:
    image = "registry.example.org/" + "x" * 200
    live.add(*(deployment(f"web-{count}", image=image) for count in range(1000)))
    live.lead()
    live.advance(5)
    answer = live.ask("Query", view="workloads", limit=5000)
    assert len(answer.rows) == 1000
    assert messages(live, "snapshot") > 6


def test_pages_and_filters(live: LivePair) -> None:
    live.add(deployment("a"), deployment("b", image="other:1"))
    live.lead()
    live.advance(3)
    first = live.ask("Query", kind="deploy", limit=1)
    second = live.ask("Query", kind="deploy", limit=1, page=first.next_page)
    assert [first.rows[0].name, second.rows[0].name] == ["a", "b"]
    assert second.next_page == ""
    assert set(live.rows("workloads", image="other")) == {"b"}
    nobody = live.ask("Query", kind="deploy", clusters=["nobody"])
    assert len(nobody.rows) == 0
    (missing,) = nobody.incomplete
    assert (missing.agent_name, missing.state) == ("nobody", "never")
    assert live.ask("Query", kind="deploy", clusters=["agent-1"]).queried == 1


def test_a_kas_without_the_module(live: LivePair) -> None:
    """agentk goes on, and finds it later."""
    live.withdraw()
    live.add(deployment("web"))
    live.lead()
    live.advance(30)
    assert live.failures() == []


def test_without_the_right_to_read_kube_system(live: LivePair) -> None:
    refusal = {"kind": "Status", "code": 403, "message": "forbidden"}
    live.cluster.answer("GET", "/api/v1/namespaces/kube-system", refusal, 403)
    live.add(deployment("web"))
    live.lead()
    live.advance(3)
    assert set(live.rows("workloads")) == {"web"}
    (cluster,) = live.ask("Clusters").clusters
    assert cluster.cluster_uid == ""


def test_secrets_are_not_read(live: LivePair) -> None:
    live.add(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "login", "namespace": "shop"},
            "data": {"password": "c2VjcmV0"},
        }
    )
    live.lead()
    live.advance(3)
    asked = [one.path for one in live.cluster.requests if "/secrets" in one.path]
    assert asked == []


def test_one_request_for_each_kind(live: LivePair) -> None:
    live.add(deployment("web"), node("a"))
    live.lead()
    live.advance(5)
    paths = [one.path.partition("?")[0] for one in live.cluster.requests]
    lists: dict[str, Any] = {path: paths.count(path) for path in paths}
    assert lists["/apis/apps/v1/deployments"] == 1
    assert lists["/api/v1/nodes"] == 1
