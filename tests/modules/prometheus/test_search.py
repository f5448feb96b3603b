"""The search for Prometheus, and its trail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from modules.prometheus.agent.search import MAX_CANDIDATES
from modules.prometheus.wire.settings import MAX_PREFIX, PrometheusSection
from tests.modules.prometheus.stand import MemoryStand, healthy, service
from tunnel.api import KubernetesResource
from tunnel.config import read
from tunnel.errors import ConfigurationError

WELL_KNOWN = {"app.kubernetes.io/name": "prometheus"}


@pytest.fixture
def stand() -> Iterator[MemoryStand]:
    stand = MemoryStand()
    stand.cluster.backends.clear()
    yield stand
    stand.close()


def backend(stand: MemoryStand, *names: str) -> None:
    """Let Services answer as Prometheus."""
    for name in names:
        stand.cluster.backends[name] = healthy


def prometheus(name: str, **spec: Any) -> Any:
    """Return an object of the Prometheus operator."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": {"name": name, "namespace": "monitoring"},
        "spec": spec,
    }


def operated(stand: MemoryStand) -> None:
    """Let the cluster have the operator's kind."""
    stand.cluster.objects.add_kind(
        KubernetesResource(
            "monitoring.coreos.com",
            "v1",
            "Prometheus",
            "prometheuses",
            True,
            frozenset({"list"}),
        )
    )


def test_nothing(stand: MemoryStand) -> None:
    """The trail names each strategy that found nothing."""
    trail = stand.find()
    assert not trail.HasField("target")
    assert [one.strategy for one in trail.steps] == [
        *("setting", "label", "operator"),
        *("well-known", "well-known", "well-known"),
    ]
    assert "does not have this kind" in trail.steps[2].reason
    refused = stand.ask("/labels", 404)
    assert refused["errorType"] == "not_found"
    assert "prometheus.service" in refused["error"]


def test_the_setting_decides(stand: MemoryStand) -> None:
    """The Service of the setting is asked, also if others have labels."""
    stand.add_prometheus()
    stand.add(service("chosen", namespace="obs", ports=[{"port": 80}]))
    backend(stand, "obs/http:chosen:80", "monitoring/http:prom:web")
    setting = {"namespace": "obs", "name": "chosen", "path": "/p"}
    stand.pair.sections.apply({"prometheus": json.dumps({"service": setting})})
    assert stand.steps() == [("setting", "obs/chosen", "taken")]
    stand.cluster.rights.add(("alice", "obs/chosen"))
    stand.request("/api/v1/labels")
    assert stand.cluster.asked[-1][:2] == ("obs/http:chosen:80", "/p/api/v1/labels")
    # A change takes effect at once.
    stand.pair.sections.apply({})
    stand.ask("/labels")
    assert stand.cluster.asked[-1][0] == "monitoring/http:prom:web"


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"namespace": "obs", "name": "missing"}, "not found"),
        ({"namespace": "monitoring", "name": "prom", "port": "x"}, "no port x"),
        ({"namespace": "monitoring", "name": "away"}, "ExternalName"),
    ],
    ids=["missing", "port", "external"],
)
def test_a_setting_that_cannot_be_used(
    stand: MemoryStand, setting: Any, reason: str
) -> None:
    """No other strategy replaces the setting."""
    stand.add_prometheus()
    backend(stand, "monitoring/http:prom:web")
    stand.add(service("away", type="ExternalName", externalName="example.org"))
    stand.pair.sections.apply({"prometheus": json.dumps({"service": setting})})
    trail = stand.find()
    assert not trail.HasField("target")
    (step,) = trail.steps
    assert step.outcome == "failed" and reason in step.reason
    assert stand.ask("/labels", 503)["errorType"] == "unavailable"


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("service: {namespace: a}", "name"),
        ("service: {namespace: A, name: b}", "namespace"),
        ("service: {namespace: a, name: b, path: /x/}", "path"),
        ("service: {namespace: a, name: b, path: /../x}", "path"),
        ("service: {namespace: a, name: b, port: '70000'}", "port"),
        ("service: {namespace: a, name: b, scheme: ftp}", "scheme"),
        ("services: {}", "services"),
    ],
)
def test_invalid_settings(text: str, column: str) -> None:
    """The message names the key and its position."""
    with pytest.raises(ConfigurationError) as refused:
        read(text, "config.yaml", PrometheusSection)
    assert "config.yaml:1:" in str(refused.value) and column in str(refused.value)


def test_our_label_precedes_other_labels(stand: MemoryStand) -> None:
    """A selected Service is taken in place of others of its namespace."""
    stand.add_prometheus()
    stand.add(service("chart", WELL_KNOWN))
    backend(stand, "monitoring/http:prom:web", "monitoring/http:chart:web")
    assert stand.steps() == [
        ("well-known", "monitoring/chart", "passed over"),
        ("label", "monitoring/prom", "taken"),
    ]
    assert "version 2.42.0" in stand.find().steps[-1].reason


def test_our_label_in_another_namespace(stand: MemoryStand) -> None:
    """The owner of one namespace cannot replace the Prometheus of another."""
    stand.add(service("fake", {"txkas/prometheus": "true"}, namespace="team"))
    stand.add(service("chart", WELL_KNOWN))
    backend(stand, "team/http:fake:web", "monitoring/http:chart:web")
    assert stand.steps() == [
        ("label", "team/fake", "candidate"),
        ("well-known", "monitoring/chart", "candidate"),
    ]
    assert "2 candidates" in stand.ask("/labels", 503)["error"]


def test_without_a_selector(stand: MemoryStand) -> None:
    """Only a setting selects a Service whose addresses may be anywhere."""
    stand.add(service("prom", {"txkas/prometheus": "true"}, selector={}))
    backend(stand, "monitoring/http:prom:web")
    assert stand.steps() == [("label", "monitoring/prom", "passed over")]
    setting = {"namespace": "monitoring", "name": "prom"}
    stand.pair.sections.apply({"prometheus": json.dumps({"service": setting})})
    assert stand.steps() == [("setting", "monitoring/prom", "taken")]


def test_two_labelled_services(stand: MemoryStand) -> None:
    """None is taken, and both are shown."""
    stand.add_prometheus()
    stand.add(service("other", {"txkas/prometheus": "true"}))
    backend(stand, "monitoring/http:prom:web", "monitoring/http:other:web")
    assert sorted(stand.steps()) == [
        ("label", "monitoring/other", "candidate"),
        ("label", "monitoring/prom", "candidate"),
    ]
    refused = stand.ask("/labels", 503)["error"]
    assert "2 candidates" in refused
    # Names of Services are for users who may list them.
    assert "monitoring/other" not in refused
    stand.cluster.rights.add(("alice", "list"))
    stand.clock.advance(11)
    assert "monitoring/other" in stand.ask("/labels", 503)["error"]


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        (WELL_KNOWN | {"app.kubernetes.io/component": "server"}, "web"),
        ({"app": "kube-prometheus-stack-prometheus"}, "http-web"),
        ({"app": "prometheus", "component": "server"}, "http"),
        ({"app.kubernetes.io/name": "thanos-query"}, "http"),
        ({"app.kubernetes.io/name": "vmsingle"}, "http"),
        ({"headlamp-prometheus": "true"}, "any"),
    ],
    ids=["chart", "stack", "old-chart", "thanos", "victoria", "headlamp"],
)
def test_well_known_labels(
    stand: MemoryStand, labels: dict[str, str], name: str
) -> None:
    """The usual charts, with their ports."""
    ports = [{"name": name, "port": 1234}]
    stand.add(service("found", labels, ports=ports))
    backend(stand, f"monitoring/http:found:{name}")
    assert stand.steps() == [("well-known", "monitoring/found", "taken")]


def test_the_path_of_vmselect(stand: MemoryStand) -> None:
    """VictoriaMetrics' cluster has the API below a tenant."""
    ports = [{"name": "http", "port": 8481}]
    labels = {"app.kubernetes.io/name": "vmselect"}
    stand.add(service("vm", labels, ports=ports))

    def select(path: str, form: Any) -> tuple[int, bytes]:
        prefix = "/select/0/prometheus"
        return (
            healthy(path.removeprefix(prefix), form) if prefix in path else (400, b"")
        )

    stand.cluster.backends["monitoring/http:vm:http"] = select
    target = stand.find().target
    assert (target.name, target.path) == ("vm", "/select/0/prometheus")


def test_not_the_port_of_a_sidecar(stand: MemoryStand) -> None:
    """The port is chosen by name, then by number; otherwise the reason is shown."""
    sidecar = {"name": "grpc", "port": 10901}
    web = {"name": "x", "port": 9090}
    stand.add(service("by-number", WELL_KNOWN, ports=[sidecar, web]))
    backend(stand, "monitoring/http:by-number:x")
    assert stand.find().target.port == "x"
    odd = [sidecar, {"name": "y", "port": 1}]
    stand.add(service("by-number", WELL_KNOWN, ports=odd))
    (step,) = [one for one in stand.find().steps if one.service]
    assert step.outcome == "passed over" and "grpc, y" in step.reason


def test_components_of_the_chart(stand: MemoryStand) -> None:
    """Alertmanager has the chart's label in old charts."""
    stand.add(
        service("alerts", {"app": "prometheus", "component": "alertmanager"}),
        service("server", {"app": "prometheus", "component": "server"}),
    )
    backend(stand, "monitoring/http:alerts:web", "monitoring/http:server:web")
    assert stand.steps() == [
        ("well-known", "monitoring/alerts", "passed over"),
        ("well-known", "monitoring/server", "taken"),
    ]


def test_a_service_with_an_address_is_preferred(stand: MemoryStand) -> None:
    """The operator's headless Service has an address for each replica."""
    operated(stand)
    stand.add(prometheus("k8s", portName="web", routePrefix="/prom/"))
    selector = {"app.kubernetes.io/name": "prometheus"}
    stand.add(
        service("a-operated", clusterIP="None", selector=selector),
        service(
            "k8s",
            WELL_KNOWN,
            ports=[{"name": "http-web", "port": 9090, "targetPort": "web"}],
            selector={**selector, "prometheus": "k8s"},
        ),
        service("unrelated", selector={"app": "x"}),
    )
    stand.cluster.backends["monitoring/http:k8s:http-web"] = lambda path, form: healthy(
        path.removeprefix("/prom"), form
    )
    assert stand.steps() == [
        ("operator", "monitoring/a-operated", "passed over"),
        ("operator", "monitoring/k8s", "taken"),
    ]
    assert stand.find().target.path == "/prom"


@pytest.mark.parametrize(
    "prefix",
    [
        "/ HTTP/1.1\r\nHost: x\r\n\r\nDELETE /api/v1/nodes/node-0?x=",
        "/prom?x=",
        "/prom/../../../../../../secrets",
        "/prom%2f..",
        "prom",
        "/" + MAX_PREFIX * "p",
        {"not": "a text"},
    ],
    ids=["request", "query", "parents", "escapes", "relative", "long", "object"],
)
def test_a_prefix_that_is_not_a_path(stand: MemoryStand, prefix: Any) -> None:
    """Whoever may create Prometheus objects cannot change agentk's requests."""
    operated(stand)
    stand.add(prometheus("k8s", routePrefix=prefix))
    stand.add(service("k8s", selector={"prometheus": "k8s"}))
    asked: list[str] = []

    def answer(path: str, form: dict[str, list[str]]) -> tuple[int, bytes]:
        asked.append(path)
        return healthy(path, form)

    stand.cluster.backends["monitoring/http:k8s:web"] = answer
    steps = stand.steps()
    assert steps[0] == ("operator", "monitoring/k8s", "passed over")
    assert steps[1] == ("operator", "monitoring/k8s", "failed")
    assert not asked


def test_tls_of_the_operator(stand: MemoryStand) -> None:
    """An https Service is asked through the API server, also in a pod."""
    operated(stand)
    stand.add(prometheus("k8s", web={"tlsConfig": {"keySecret": {}}}))
    stand.add(service("k8s", selector={"prometheus": "k8s"}))
    backend(stand, "monitoring/https:k8s:web")
    assert stand.find().target.scheme == "https"


def test_same_pods(stand: MemoryStand) -> None:
    """Two Services for the same pods are one candidate."""
    pods = {"app": "p"}
    stand.add(
        service("one", WELL_KNOWN, selector=pods),
        service("two", WELL_KNOWN, selector=pods),
    )
    backend(stand, "monitoring/http:one:web", "monitoring/http:two:web")
    assert stand.steps() == [
        ("well-known", "monitoring/two", "passed over"),
        ("well-known", "monitoring/one", "taken"),
    ]


def test_something_else_behind_the_label(stand: MemoryStand) -> None:
    """A Service that is certainly not Prometheus is no candidate."""
    stand.add(service("page", WELL_KNOWN), service("real", WELL_KNOWN))
    backend(stand, "monitoring/http:real:web")
    stand.cluster.backends["monitoring/http:page:web"] = lambda path, form: (
        200,
        b"<html>",
    )
    assert stand.steps() == [
        ("well-known", "monitoring/page", "passed over"),
        ("well-known", "monitoring/real", "taken"),
    ]


def test_a_candidate_that_does_not_answer(stand: MemoryStand) -> None:
    """It may only be starting, so the other one is not taken because of that."""
    stand.add(service("down", WELL_KNOWN), service("real", WELL_KNOWN))
    backend(stand, "monitoring/http:real:web")
    trail = stand.find()
    assert not trail.HasField("target")
    assert "no endpoints" in trail.steps[-2].reason


def test_many_candidates(stand: MemoryStand) -> None:
    """agentk probes a limited number of Services that users of the cluster create."""
    for number in range(MAX_CANDIDATES + 2):
        stand.add(service(f"s{number:02}", WELL_KNOWN))
    outcomes = [outcome for _, _, outcome in stand.steps()]
    assert outcomes.count("candidate") == MAX_CANDIDATES
    assert outcomes.count("passed over") == 2


def test_rights_of_agentk(stand: MemoryStand) -> None:
    """A missing right of agentk is in the trail."""
    path = (
        "/api/v1/services?labelSelector=txkas%2Fprometheus%20in%20%28true%29&limit=50"
    )
    refusal = {"kind": "Status", "message": "forbidden", "code": 403}
    stand.cluster.answer("GET", path, refusal, 403)
    trail = stand.find()
    step = trail.steps[1]
    assert step.outcome == "failed"
    assert "agentk may not list services in all namespaces" in step.reason


def test_the_result_counts_for_a_while(stand: MemoryStand) -> None:
    """Questions do not search again, until the result is old or agentk shows it."""
    stand.add_prometheus()
    backend(stand, "monitoring/http:prom:web")

    def searches() -> int:
        wanted = "labelSelector=txkas"
        return sum(wanted in one.path for one in stand.cluster.requests)

    stand.ask("/labels")
    stand.ask("/labels")
    assert searches() == 1
    stand.find(again=False)
    assert searches() == 1
    stand.find()
    assert searches() == 2
    stand.clock.advance(301)
    stand.ask("/labels")
    assert searches() == 3


def test_a_scope(stand: MemoryStand) -> None:
    """Services of other namespaces are neither found nor asked."""
    stand.add(service("prom", WELL_KNOWN))
    stand.add(service("other", WELL_KNOWN, namespace="apps"))
    backend(stand, "monitoring/http:prom:web", "apps/http:other:web")
    scope = {"scope": json.dumps({"namespaces": ["apps"]})}
    stand.pair.sections.apply(scope)
    assert ("well-known", "apps/other", "taken") in stand.steps()
    assert all(
        not one.path.startswith("/api/v1/services") for one in (stand.cluster.requests)
    )
    setting = {"namespace": "monitoring", "name": "prom"}
    service_of = {"prometheus": json.dumps({"service": setting})}
    stand.pair.sections.apply(scope | service_of)
    (step,) = stand.find().steps
    assert step.outcome == "failed"
    assert "namespace monitoring is outside of the agent's scope" in step.reason
