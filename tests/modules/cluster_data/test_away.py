"""A cluster that is away for hours: what its readers see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modules.cluster_data.server.module import SWEEP
from modules.cluster_data.server.reader import LATE, LIVE
from modules.cluster_data.server.rights import OFFLINE_SECONDS
from tests.modules.cluster_data.pair import ThreadedClock, deployment, node
from tests.modules.cluster_data.test_channels import ChannelStand
from tests.modules.cluster_data.test_rest import ALICE, BOB, DEPLOYMENTS
from tunnel.errors import CallError, Status

HOUR = 3600.0

#: Time of day when the clock is at 0.
NOON = 1_000_000.0


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChannelStand]:
    """A stand whose agentk ends after alice has read rows."""
    clock = ThreadedClock()
    monkeypatch.setattr("time.time", lambda: NOON + clock.seconds())
    stand = ChannelStand(tmp_path, clock)
    stand.add(deployment("web"), deployment("api", ready=0), node("a"))
    stand.lead()
    stand.advance(3)
    stand.allowed = {("alice", "apps/deployments"), ("bob", "apps/deployments")}
    assert stand.names(DEPLOYMENTS) == {"web", "api"}
    stand.follow()
    stand.cluster.refuses = True
    stand.cluster.cut()
    yield stand
    stand.close()


def pass_time(stand: ChannelStand, seconds: float) -> None:
    """Let time pass in large steps, which sweep the store as usual."""
    for _ in range(round(seconds / SWEEP)):
        stand.clock.advance(SWEEP)
        stand._settle()


def incomplete(stand: ChannelStand, token: str) -> Any:
    (found,) = stand.get(DEPLOYMENTS, token)["clusters"]["incomplete"]
    return found


def test_three_hours(away: ChannelStand) -> None:
    """The last rows, their age to a minute, and the rights of then."""
    left = away.clock.seconds()
    pass_time(away, 3 * HOUR)
    found = away.get(DEPLOYMENTS)
    assert {one["name"] for one in found["items"]} == {"web", "api"}
    (cluster,) = found["clusters"]["incomplete"]
    assert cluster["state"] == "offline"
    assert cluster["lastSeen"] == pytest.approx(NOON + left, abs=LIVE)
    passed = away.clock.seconds() - left
    (age,) = [int(one) for one in cluster["reason"].split() if one.isdecimal()]
    assert age == pytest.approx(passed, abs=60)
    assert found["asOf"] == pytest.approx(NOON + away.clock.seconds(), abs=1)
    # Counts are marked as well, and nothing is green.
    (state,) = away.get("clusters?clusters=agent-1")["clusters"]
    assert (state["state"], set(state["summary"])) == ("offline", {"deployments"})
    made = away.subscribe("ClusterChannel", cluster="agent-1")
    ((first, _),) = made.sent
    assert first["snapshot"]["cluster/1"]["state"] == "offline"
    assert first["snapshot"]["cluster/1"]["lastSeen"] == cluster["lastSeen"]
    assert "asOf" not in first["snapshot"]


def test_calls_that_wait_for_the_agent(
    away: ChannelStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first minutes, kas waits for the agent, and a review ends before that."""

    async def wait(*_: object) -> None:
        raise CallError(Status.DEADLINE_EXCEEDED, "no response within the given time")

    monkeypatch.setattr(away.server._rights, "_review", wait)
    pass_time(away, HOUR)
    assert away.names(DEPLOYMENTS) == {"web", "api"}
    assert away.names(DEPLOYMENTS, "bob") == set()


def test_a_user_without_earlier_answers(away: ChannelStand) -> None:
    """A right that the API server has not confirmed before opens nothing."""
    pass_time(away, LATE)
    found = away.get(DEPLOYMENTS, "bob")
    assert found["items"] == []
    assert incomplete(away, "bob")["state"] == "offline"
    made = away.subscribe("ClusterChannel", BOB, cluster="agent-1")
    ((first, _),) = made.sent
    assert set(first["snapshot"]) == {"cluster/1"}


def test_rights_end_after_a_day(away: ChannelStand) -> None:
    pass_time(away, OFFLINE_SECONDS - HOUR)
    assert away.names(DEPLOYMENTS) == {"web", "api"}
    made = away.subscribe("ClusterChannel", ALICE, cluster="agent-1")
    made.sent.clear()
    pass_time(away, 2 * HOUR)
    assert away.names(DEPLOYMENTS) == set()
    deleted = [key for message, _ in made.sent for key in message["delete"]]
    assert len(deleted) == 2


def test_it_comes_back(away: ChannelStand) -> None:
    pass_time(away, 3 * HOUR)
    made = away.subscribe("FleetChannel", clusters=["agent-1"])
    made.sent.clear()
    away.cluster.refuses = False
    away.objects.remove("apps/v1", "Deployment", "api", "shop")
    away.lead()
    away.advance(10)
    assert away.names(DEPLOYMENTS) == {"web"}
    assert away.get(DEPLOYMENTS)["clusters"]["incomplete"] == []
    state = made.sent[-1][0]["put"]["cluster/1"]
    assert state["state"] == "live"
    assert state["summary"]["deployments"]["total"] == 1


def test_it_is_forgotten_after_the_retention(away: ChannelStand) -> None:
    pass_time(away, away.server._retention + 2 * SWEEP)
    assert away.rows("workloads") == {}
    assert incomplete(away, "alice")["state"] == "never"
