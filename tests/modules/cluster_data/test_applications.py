"""Applications and components, as readers see them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modules.cluster_data.server import applications as applications_module
from modules.cluster_data.server.applications import _tag
from modules.cluster_data.server.known_components import (
    COMPONENTS,
    MAX_COMPONENTS,
    ComponentTable,
)
from modules.cluster_data.wire import fleet_pb2
from tests.modules.cluster_data.pair import deployment
from tests.modules.cluster_data.test_rest import RestStand
from tunnel.api import IKnownComponents, KnownComponent

STANDARD = "app.kubernetes.io"


def labelled(name: str, namespace: str = "shop", **more: Any) -> Any:
    found = deployment(name, **more)
    found["metadata"]["namespace"] = namespace
    return found


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[RestStand]:
    stand = RestStand(tmp_path)
    shop = {f"{STANDARD}/instance": "shop", f"{STANDARD}/managed-by": "Helm"}
    stand.add(
        labelled("web", labels=shop | {f"{STANDARD}/version": "1.2"}),
        labelled("db", ready=0, image="example.org/db:16@sha256:00", labels=shop),
        labelled("web", "other", labels=shop),
        labelled("alone", labels={}),
        labelled("argo", labels={"argocd.argoproj.io/instance": "billing"}),
        labelled(
            "ingress",
            image="registry.example/ingress-nginx/controller:v1.12@sha256:00",
            labels={},
        ),
        labelled("own", labels={f"{STANDARD}/name": "grafana"}),
    )
    stand.lead()
    stand.advance(3)
    yield stand
    stand.close()


def items(stand: RestStand, path: str) -> dict[Any, Any]:
    found = stand.get(path)["items"]
    return {(one["name"], one["namespace"]): one for one in found}


def external(stand: RestStand, method: str, **request: Any) -> Any:
    client = stand.pair.external(fleet_pb2.DESCRIPTOR.services_by_name["Fleet"])
    message = fleet_pb2.ApplicationsRequest(**request)
    return stand.pair.run(client.call(method, message))


def test_applications(stand: RestStand) -> None:
    stand.allowed = {("alice", "apps/deployments")}
    found = items(stand, "applications?clusters=agent-1")
    shop = found["shop", "shop"]
    assert [one["name"] for one in shop["workloads"]] == ["db", "web"]
    assert shop["source"] == "helm"
    assert shop["version"] == "1.2, 16"
    # The worst health counts.
    assert shop["health"] == "in progress"
    assert shop["cluster"] == "agent-1"
    assert found["shop", "other"]["health"] == "current"
    # An image without a label is the version, a workload without labels an application.
    assert found["alone", "shop"]["version"] == "1"
    assert found["billing", "shop"]["source"] == "argocd"
    only = items(stand, "applications?clusters=agent-1&namespace=other")
    assert set(only) == {("shop", "other")}


def test_only_permitted_workloads(stand: RestStand) -> None:
    """An application shows the workloads that its reader may list."""
    path = "applications?clusters=agent-1"
    assert items(stand, path) == {}
    stand.clock.advance(60)
    stand.allowed = {("alice", "apps/deployments@other")}
    assert set(items(stand, path)) == {("shop", "other")}
    assert items(stand, "components?clusters=agent-1") == {}


def test_components(stand: RestStand) -> None:
    stand.allowed = {("alice", "apps/deployments")}
    found = items(stand, "components?clusters=agent-1")
    ingress = found["ingress-nginx", "shop"]
    assert ingress["version"] == "v1.12"
    assert ingress["recognizedBy"].startswith("registry.example/ingress-nginx/")
    assert ingress["workload"]["name"] == "ingress"
    assert found["grafana", "shop"]["recognizedBy"] == f"{STANDARD}/name=grafana"
    assert len(found) == 2


def test_for_operators(stand: RestStand) -> None:
    """The external API has all applications."""
    answer = external(stand, "Applications", namespace="other")
    (shop,) = answer.applications
    assert (shop.name, shop.workloads[0].ready) == ("shop", 1)
    assert answer.completeness.queried == 1
    assert not answer.completeness.cut
    answer = external(stand, "Components")
    assert [one.name for one in answer.components] == ["grafana", "ingress-nginx"]
    answer = external(stand, "Components", clusters=["unknown"])
    (missing,) = answer.completeness.incomplete
    assert missing.state == "never"


def test_components_of_other_modules(stand: RestStand) -> None:
    table = stand.pair.server.capabilities.get(IKnownComponents)
    acme = KnownComponent("acme", ("example.org/db",))
    remove = table.add(acme)
    table.add(acme)
    names = [one.name for one in external(stand, "Components").components]
    assert names == ["acme", "grafana", "ingress-nginx"]
    remove()
    remove()
    assert len(external(stand, "Components").components) == 2


def test_number_of_components() -> None:
    table = ComponentTable()
    for number in range(MAX_COMPONENTS - len(COMPONENTS)):
        table.add(KnownComponent(f"c{number}", ()))
    with pytest.raises(ValueError, match="components already"):
        table.add(KnownComponent("more", ()))


def test_pages(stand: RestStand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Applications are grouped from several pages, up to a limit."""
    monkeypatch.setattr(applications_module, "MAX_LIMIT", 2)
    answer = external(stand, "Applications")
    assert sum(len(one.workloads) for one in answer.applications) == 7
    monkeypatch.setattr(applications_module, "MAX_WORKLOADS", 3)
    answer = external(stand, "Applications")
    assert sum(len(one.workloads) for one in answer.applications) == 4
    assert answer.completeness.cut


def test_columns_of_a_hostile_agent(stand: RestStand) -> None:
    stand.damage('{"labels": 5, "images": {}, "ready": -1, "wanted": 1e99}')
    answer = external(stand, "Applications")
    assert all(one.ready == 0 for app in answer.applications for one in app.workloads)
    stand.damage('{"labels": {"app": 5}, "images": [5], "ready": 99999999999}')
    assert external(stand, "Components").components == []
    assert external(stand, "Applications").applications


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        ("web", ""),
        ("web:1", "1"),
        ("registry:5000/web", ""),
        ("registry:5000/web:1@sha256:00", "1"),
        ("web@sha256:00", ""),
    ],
)
def test_tag(image: str, tag: str) -> None:
    assert _tag(image) == tag


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("grafana/grafana:12", "grafana"),
        ("localhost:5000/grafana/grafana", "grafana"),
        ("evil-grafana/grafana", None),
        ("grafana/grafana-image-renderer:1", None),
        ("coredns:1", "coredns"),
    ],
)
def test_recognized_images(image: str, name: str | None) -> None:
    found = ComponentTable().recognize({}, [image])
    assert (found and found[0]) == name
