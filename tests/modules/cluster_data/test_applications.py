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
from modules.cluster_data.server.service_addresses import MAX_OF_WORKLOAD
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


def service(name: str, *ports: int, **spec: Any) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": spec.pop("namespace", "shop")},
        "spec": {"ports": [{"port": port} for port in ports], **spec},
    }


def with_pods(name: str, image: str, **labels: str) -> Any:
    found = labelled(name, image=image, labels={})
    found["spec"]["template"]["metadata"] = {"labels": labels}
    return found


def test_addresses_of_components(stand: RestStand) -> None:
    """A Service belongs to a workload whose pods it selects."""
    balancer = service("lb", 443, selector={"app": "g"}, type="LoadBalancer")
    balancer["spec"]["clusterIP"] = "10.0.0.1"
    balancer["status"] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    stand.add(
        with_pods("grafana", "grafana/grafana:12", app="g", tier="x"),
        service("one", 80, 9090, selector={"app": "g", "tier": "x"}),
        service("other", 80, selector={"app": "g", "tier": "y"}),
        service("nothing", 80),
        service("far", 80, selector={"app": "g"}, namespace="other"),
        service("headless", 80, selector={"tier": "x"}, clusterIP="None"),
        balancer,
    )
    stand.advance(3)
    found = external(stand, "Components", namespace="shop").components
    (grafana,) = [one for one in found if one.workload.name == "grafana"]
    assert sorted(grafana.addresses) == [
        "10.0.0.1",
        "192.0.2.1",
        "headless.shop.svc:80",
        "lb.shop.svc:443",
        "one.shop.svc:80",
        "one.shop.svc:9090",
    ]
    # A user sees the addresses of Services that the user may list.
    stand.allowed = {("alice", "apps/deployments")}
    assert items(stand, "components?clusters=agent-1")["grafana", "shop"]
    seen = stand.get("components?clusters=agent-1")["items"]
    assert all(one["addresses"] == [] for one in seen)
    stand.clock.advance(60)
    stand.allowed |= {("alice", "/services")}
    seen = stand.get("components?clusters=agent-1")["items"]
    assert any(one["addresses"] for one in seen)


def test_number_of_addresses(stand: RestStand) -> None:
    stand.add(
        with_pods("grafana", "grafana/grafana:12", app="g", tier="x"),
        service("many", *range(1, 40), selector={"app": "g"}),
        service("more", *range(1, 40), selector={"app": "g"}),
    )
    stand.advance(3)
    found = external(stand, "Components", namespace="shop").components
    (grafana,) = [one for one in found if one.workload.name == "grafana"]
    assert len(grafana.addresses) == MAX_OF_WORKLOAD


@pytest.mark.parametrize(
    "columns",
    [
        '{"selector": 5, "ports": 5, "addresses": 5}',
        '{"selector": {"app": 5}, "ports": ["x"], "type": 5}',
        '{"selector": {"app": "grafana"}, "ports": ["x"], "addresses": [5]}',
    ],
)
def test_services_of_a_hostile_agent(stand: RestStand, columns: str) -> None:
    stand.add(
        with_pods("grafana", "grafana/grafana:12", app="grafana"), service("a", 1)
    )
    stand.advance(3)
    stand.damage(columns, "services")
    found = external(stand, "Components").components
    assert found and not any(one.addresses for one in found)


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
