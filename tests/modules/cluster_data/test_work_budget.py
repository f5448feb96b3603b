"""Live data for some users while another one repeats expensive work."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred

from modules.cluster_data.server import work_budget as work_budget_module
from modules.cluster_data.server.store.queries import RowQuery
from modules.cluster_data.server.work_budget import (
    BURST_SECONDS,
    SECONDS_EACH,
    WAIT_SECONDS,
    WorkBudget,
)
from tests.modules.cluster_data.pair import deployment, node
from tests.modules.cluster_data.test_channels import ChannelStand
from tests.modules.cluster_data.test_fleet_rows import FleetStand
from tests.modules.cluster_data.test_rest import ALICE, BOB, DEPLOYMENTS
from tunnel.errors import CallError, Status
from tunnel.testing import FakeCableSubscription

#: Processor time of each query of the store in seconds.
QUERY = 0.05


class BudgetedStand(ChannelStand):
    """
    A stand whose store takes a certain time for each query.

    :ivar queries: number of queries that the store has answered.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.queries = 0
        store: Any = self.server._store
        times = count()
        store._processor = lambda: next(times) * QUERY
        read = store._with_reader

        def counting(query: Any) -> Any:
            self.queries += 1
            return read(query)

        store._with_reader = counting

    def flood(self, times: int, user: Any = ALICE, **params: Any) -> list[Any]:
        """Subscribe and unsubscribe; return the results."""
        results: list[Any] = []
        channel = self.channel("ClusterChannel")
        for _ in range(times):
            made = FakeCableSubscription("ClusterChannel", params, {"agent-1": user})
            asking = Deferred.fromCoroutine(channel.subscribe(made))
            asking.addBoth(results.append)
            self._settle()
            channel.unsubscribe(made)
        return results


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[BudgetedStand]:
    stand = BudgetedStand(tmp_path)
    stand.add(deployment("web"), node("a"))
    stand.lead()
    stand.advance(3)
    stand.allowed = {(user, "apps/deployments") for user in ("alice", "bob")}
    yield stand
    stand.close()


def test_repeated_subscriptions(stand: BudgetedStand) -> None:
    """Each takes three expensive queries, until the budget is spent."""
    before = stand.queries
    results = stand.flood(200, cluster="agent-1")
    most = BURST_SECONDS / QUERY
    assert most / 2 < stand.queries - before < 2 * most
    refused = [one for one in results if one is not None]
    assert {one.value.status for one in refused} == {Status.RESOURCE_EXHAUSTED}
    # A tenth of a processor, and no more.
    before, began = stand.queries, stand.clock.seconds()
    for _ in range(400):
        stand.clock.advance(1)
        stand.flood(5, cluster="agent-1")
    used = (stand.queries - before) * QUERY
    # Work that has begun may overdraw the budget, which is paid back afterwards.
    assert 0.9 < used / (stand.clock.seconds() - began) / SECONDS_EACH < 1.1
    # Another user does not notice it.
    assert stand.subscribe("ClusterChannel", BOB, cluster="agent-1").sent


def test_doors_share_the_budget(stand: BudgetedStand) -> None:
    """A user who has spent it waits, and gets 429 if this would take long."""
    assert stand.names(DEPLOYMENTS) == {"web"}
    used = (BURST_SECONDS + 1) / QUERY
    budget: WorkBudget = stand.server._reader._budget
    budget.charge("user:alice", used * QUERY)
    answer = stand.get(DEPLOYMENTS, status=429)
    assert "10% of a processor: the budget is spent" in answer["message"]
    assert stand.refused("ClusterChannel", cluster="agent-1").status is (
        Status.RESOURCE_EXHAUSTED
    )
    assert budget.refused == 2
    assert stand.names(DEPLOYMENTS, "bob") == {"web"}
    stand.clock.advance(10 + WAIT_SECONDS)
    assert stand.names(DEPLOYMENTS) == {"web"}


def test_work_for_a_client_that_left_counts(stand: BudgetedStand) -> None:
    """The thread of a query goes on if the client unsubscribes."""
    pool = stand.clock.getThreadPool()
    budgets = stand.server._reader._budget._budgets
    budgets.charge("user:alice", (BURST_SECONDS - QUERY) * 1000)
    channel = stand.channel("ClusterChannel")
    made = FakeCableSubscription(
        "ClusterChannel", {"cluster": "agent-1"}, {"agent-1": ALICE}
    )
    asking = Deferred.fromCoroutine(channel.subscribe(made))
    asking.addErrback(lambda failure: None)
    # The clusters are found; the query of the lists runs.
    pool.pause()
    stand._settle()
    asking.cancel()
    pool.resume()
    stand._settle()
    assert budgets.due("user:alice") > 0


def test_repeated_snapshots(stand: BudgetedStand) -> None:
    made = stand.subscribe("ClusterChannel", cluster="agent-1")
    budget: WorkBudget = stand.server._reader._budget
    budget.charge("user:alice", BURST_SECONDS + 0.1)
    made.sent.clear()
    channel = stand.channel("ClusterChannel")
    sending = Deferred.fromCoroutine(channel.send_snapshot(made))
    # A change in the meantime is a part of the snapshot.
    (query,) = stand.server._queries._queries.values()
    for listener in query.listeners:
        listener.changed(query, {}, ["a"])
    assert made.sent == []
    stand.clock.advance(WAIT_SECONDS)
    assert sending.called
    assert "snapshot" in made.sent[0][0]


def test_rows_count(stand: BudgetedStand) -> None:
    """Each row and each KiB costs time of the reactor."""
    budget = WorkBudget(stand.clock)
    rows = int(BURST_SECONDS / work_budget_module.ROW_SECONDS) + 1
    budget.charge_rows("alice", rows, 0)
    assert budget._budgets.due("alice") > 0
    budget.charge_rows(
        "bob", 0, int(1024 * BURST_SECONDS / work_budget_module.KIB_SECONDS) + 1024
    )
    assert budget._budgets.due("bob") > 0


def test_kas_itself_has_no_limit(stand: BudgetedStand) -> None:
    budget = WorkBudget(stand.clock)
    budget.charge("", 1e6)
    stand.pair.run(budget.admit(""))


def test_jobs_of_a_project_share_the_budget(stand: BudgetedStand) -> None:
    jobs = [
        attrs.evolve(ALICE, owner=f"ci_job:{number}", budget_owner="ci_project:3")
        for number in (1, 2)
    ]
    budget: WorkBudget = stand.server._reader._budget
    budget.charge("ci_project:3", BURST_SECONDS + WAIT_SECONDS)
    for job in jobs:
        error = stand.refused("ClusterChannel", user=job, cluster="agent-1")
        assert error.status is Status.RESOURCE_EXHAUSTED


def test_a_reader_of_another_kas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kas that refuses the reader is not missing, so no rows seem to disappear."""
    fleet = FleetStand(tmp_path, monkeypatch)
    fleet.publish(fleet.near, "10", "a")
    fleet.publish(fleet.far, "11", "b")
    located = fleet.run(fleet.near.server._fleet.locate(["10", "11"]))
    fleet.far.server._reader._budget.charge("user:alice", 10.0)
    asked = RowQuery(view="workloads", agents=["10", "11"], reader="user:alice")
    for work in (located.scopes(asked), located.rows(asked, None)):
        with pytest.raises(CallError) as caught:
            fleet.run(work)
        assert caught.value.status is Status.RESOURCE_EXHAUSTED
    assert located.missing == set()
    rows, _ = fleet.run(located.rows(attrs.evolve(asked, reader="user:bob"), None))
    assert [one.name for one in rows] == ["a", "b"]
    fleet.close()
