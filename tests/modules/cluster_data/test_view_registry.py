"""Views of other modules, from their registration to readers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import capturedLogs
from zope.interface.verify import verifyObject

from modules.cluster_data.agent.shapes import Workload
from modules.cluster_data.agent.view_registry import OWN_VIEWS, ViewRegistry
from modules.cluster_data.server.store.row_store import Publication
from modules.cluster_data.wire import cluster_data_pb2 as wire
from modules.cluster_data.wire.view_names import MAX_VIEWS, VIEWS
from tests.modules.cluster_data.pair import deployment
from tests.modules.cluster_data.test_rest import RestStand
from tunnel.api import (
    ClusterObject,
    ClusterView,
    IClusterViews,
    KubernetesShape,
    ObjectKind,
    ViewRow,
)

DEPLOYMENT = ObjectKind("apps", "v1", "Deployment")


def _owners(one: ClusterObject) -> Iterator[ViewRow]:
    labels = one.found.metadata.labels or {}
    if "broken" in labels:
        raise RuntimeError("a fault of the view")
    yield ViewRow({"owner": labels.get("owner", "nobody")})


OWNERS = ClusterView("owners", {DEPLOYMENT: Workload}, _owners, pause=0.25)


def named(name: str, shape: type[KubernetesShape] = Workload) -> ClusterView:
    return ClusterView(name, {DEPLOYMENT: shape}, _owners)


def test_add_and_remove() -> None:
    changes: list[int] = []
    registry = ViewRegistry(lambda: changes.append(1))
    verifyObject(IClusterViews, registry)
    remove = registry.add(OWNERS)
    assert list(registry.views) == [*OWN_VIEWS, OWNERS]
    # A module may add its view again, because `cluster_data` may have restarted.
    registry.add(OWNERS)
    assert list(registry.views) == [*OWN_VIEWS, OWNERS]
    remove()
    remove()
    assert list(registry.views) == list(OWN_VIEWS)
    assert len(changes) == 2


class Other(KubernetesShape):
    """Another shape."""


@pytest.mark.parametrize(
    ("view", "problem"),
    [
        (named("Owners"), "no name of a view"),
        (named(""), "no name of a view"),
        (named("a" * 41), "no name of a view"),
        (named("summary"), "exists already"),
        (named("workloads"), "exists already"),
        (named("others", Other), "another view reads Deployment with the shape Work"),
    ],
    ids=["capital", "empty", "long", "computed", "own", "shape"],
)
def test_refused_views(view: ClusterView, problem: str) -> None:
    registry = ViewRegistry(lambda: None)
    with pytest.raises(ValueError, match=problem):
        registry.add(view)
    assert list(registry.views) == list(OWN_VIEWS)


def test_number_of_views() -> None:
    registry = ViewRegistry(lambda: None)
    for number in range(MAX_VIEWS - len(VIEWS)):
        registry.add(named(f"v{number}"))
    with pytest.raises(ValueError, match=f"there are {MAX_VIEWS} views"):
        registry.add(named("more"))


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[RestStand]:
    stand = RestStand(tmp_path)
    stand.add(
        deployment("web", labels={"owner": "ada"}),
        deployment("api", labels={"broken": "yes"}),
    )
    stand.lead()
    stand.advance(3)
    yield stand
    stand.close()


def views_of(stand: RestStand) -> Any:
    return stand.pair.agent.capabilities.get(IClusterViews)


def test_a_view_of_another_module(stand: RestStand) -> None:
    """A view that is added while agentk leads, and is withdrawn again."""
    with capturedLogs() as logs:
        remove = views_of(stand).add(OWNERS)
        stand.advance(3)
        # A view that fails for an object has no row of it, and the others go on.
        assert stand.rows("owners") == {"web": {"owner": "ada"}}
        assert set(stand.rows("workloads")) == {"web", "api"}
        stand.add(deployment("api", labels={"owner": "bob"}))
        stand.advance(2)
        assert stand.rows("owners")["api"] == {"owner": "bob"}
    failures = [one for one in logs if "view" in one]
    assert len(failures) == 1
    remove()
    stand.advance(3)
    assert stand.rows("owners") == {}
    assert set(stand.rows("workloads")) == {"web", "api"}


def test_rights_of_a_view(stand: RestStand) -> None:
    """A row is visible with the right to list the object that it is derived from."""
    views_of(stand).add(OWNERS)
    stand.advance(3)
    path = "views/owners?clusters=agent-1"
    assert stand.names(path) == set()
    stand.clock.advance(60)
    stand.allowed = {("alice", "apps/deployments@shop")}
    assert stand.names(path) == {"web"}
    answer = stand.get("views/unknown?clusters=agent-1", status=404)
    expected = "none of these clusters has a view 'unknown'; every cluster has"
    assert expected in answer["message"]
    stand.get("views/un%20known?clusters=agent-1", status=400)


def test_views_of_other_users_look_unknown(stand: RestStand) -> None:
    """A view that only clusters of other users have is not confirmed."""
    other = Publication("2", "other", b"call")
    hello = wire.Hello(epoch=b"e", cluster_uid="u", views=["private"])
    snapshot = wire.Snapshot(view="private", sequence=1, first=True, last=True)
    stand.pair.run(stand.server._store.welcome(other, hello))
    stand.pair.run(stand.server._store.snapshot(other, snapshot))
    for clusters in ("agent-1", "agent-1,other", "other"):
        private, unknown = (
            stand.get(f"views/{view}?clusters={clusters}", status=404)["message"]
            for view in ("private", "unknown")
        )
        assert private.replace("private", "unknown") == unknown
    # An operator sees that it exists, and has no rows.
    assert stand.rows("private") == {}
