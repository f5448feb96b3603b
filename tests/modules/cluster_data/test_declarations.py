"""Applications that objects of other tools declare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modules.cluster_data.agent.views.applications import MAX_ENTRIES
from modules.cluster_data.server import applications as applications_module
from modules.cluster_data.server import declarations as declarations_module
from modules.cluster_data.wire.safe_links import MAX_LINK, is_safe_link
from tests.modules.cluster_data.pair import deployment
from tests.modules.cluster_data.test_applications import external
from tests.modules.cluster_data.test_rest import RestStand
from tunnel.api import KubernetesResource

ALL = {
    ("alice", "apps/deployments"),
    ("alice", "app.k8s.io/applications"),
    ("alice", "argoproj.io/applications"),
    ("alice", "kustomize.toolkit.fluxcd.io/kustomizations"),
    ("alice", "helm.toolkit.fluxcd.io/helmreleases"),
}

_KINDS = (
    ("app.k8s.io", "v1beta1", "Application", "applications"),
    ("argoproj.io", "v1alpha1", "Application", "applications"),
    ("kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations"),
    ("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases"),
)


def workload(name: str, namespace: str = "shop", **metadata: Any) -> Any:
    found = deployment(name)
    found["metadata"] = {"name": name, "namespace": namespace, **metadata}
    return found


def application(name: str = "web", namespace: str = "shop", **spec: Any) -> Any:
    return {
        "apiVersion": "app.k8s.io/v1beta1",
        "kind": "Application",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def argo(name: str, namespace: str = "argocd", **spec: Any) -> Any:
    return application(name, namespace, **spec) | {
        "apiVersion": "argoproj.io/v1alpha1",
        "status": {
            "health": {"status": "Degraded"},
            "sync": {"status": "OutOfSync", "revision": "0a1b"},
        },
    }


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[RestStand]:
    stand = RestStand(tmp_path)
    for group, version, kind, name in _KINDS:
        verbs = frozenset({"get", "list", "watch"})
        stand.objects.add_kind(
            KubernetesResource(group, version, kind, name, True, verbs)
        )
    stand.allowed = set(ALL)
    yield stand
    stand.close()


def show(stand: RestStand, *objects: Any) -> dict[Any, Any]:
    """Return the applications of a cluster with these objects."""
    stand.add(*objects)
    stand.lead()
    stand.advance(3)
    return applications(stand)


def applications(stand: RestStand, more: str = "") -> dict[Any, Any]:
    """Return declared ones by name and namespace, and others with ``labels`` behind."""
    found = stand.get(f"applications?clusters=agent-1{more}")["items"]
    return {
        (
            one["name"],
            one["namespace"],
            *([] if one["declarations"] else ["labels"]),
        ): one
        for one in found
    }


def names(found: Any) -> list[str]:
    return [one["name"] for one in found["workloads"]]


def test_a_selector_with_expressions(stand: RestStand) -> None:
    """All requirements count, and other namespaces are other applications."""
    expressions = [
        {"key": "tier", "operator": "In", "values": ["front", "back"]},
        {"key": "old", "operator": "DoesNotExist"},
        {"key": "tier", "operator": "Exists"},
        {"key": "tier", "operator": "NotIn", "values": ["back"]},
    ]
    labels = {"app": "web", "tier": "front"}
    found = show(
        stand,
        application(
            selector={"matchLabels": {"app": "web"}, "matchExpressions": expressions}
        ),
        workload("in", labels=labels),
        workload("back", labels=labels | {"tier": "back"}),
        workload("old", labels=labels | {"old": ""}),
        workload("other", labels=labels | {"app": "other"}),
        workload("elsewhere", "staging", labels=labels),
    )
    web = found["web", "shop"]
    assert names(web) == ["in"]
    # Labels name it for others, too, but it does not declare them.
    assert names(found["web", "shop", "labels"]) == ["back", "old"]
    assert [*found] == [
        ("other", "shop", "labels"),
        ("web", "shop"),
        ("web", "shop", "labels"),
        ("web", "staging", "labels"),
    ]
    (declared,) = web["declarations"]
    assert (declared["tool"], declared["problem"]) == ("app.k8s.io", "")


def test_kinds_of_components(stand: RestStand) -> None:
    """Live data has only workloads, and says which kinds it lacks."""
    kinds = [
        {"group": "apps/v1", "kind": "Deployment"},
        {"group": "core", "kind": "Service"},
        {"group": "batch", "kind": "Job"},
    ]
    found = show(
        stand,
        application(selector={"matchLabels": {"a": "b"}}, componentKinds=kinds),
        application(
            "jobs", selector={"matchLabels": {"a": "b"}}, componentKinds=kinds[2:]
        ),
        workload("one", labels={"a": "b"}),
    )
    assert names(found["web", "shop"]) == ["one"]
    (declared,) = found["web", "shop"]["declarations"]
    assert declared["unknownComponents"] == ["Service"]
    # No component is not a healthy application.
    assert names(found["jobs", "shop"]) == []
    assert found["jobs", "shop"]["health"] == ""


@pytest.mark.parametrize(
    ("selector", "problem"),
    [
        ({}, "the selector is empty"),
        (None, "the selector is empty"),
        ({"matchExpressions": [{"key": "a", "operator": "Like"}]}, "invalid"),
        ({"matchExpressions": ["a"]}, "invalid"),
        ({"matchLabels": {f"k{number}": "" for number in range(21)}}, "too long"),
        ({"matchLabels": {"k": "x" * 5000}}, "more than 1000 characters"),
    ],
    ids=["empty", "missing", "operator", "type", "many", "long"],
)
def test_a_selector_that_selects_nothing(
    stand: RestStand, selector: Any, problem: str
) -> None:
    """An application never takes all workloads of a namespace by accident."""
    found = show(stand, application(selector=selector), workload("one"))
    assert names(found["web", "shop"]) == []
    assert problem in found["web", "shop"]["declarations"][0]["problem"]
    assert names(found["one", "shop", "labels"]) == ["one"]


def test_several_applications_with_one_workload(stand: RestStand) -> None:
    selector = {"matchLabels": {"a": "b"}}
    found = show(
        stand,
        application(selector=selector),
        application("all", selector=selector),
        workload("one", labels={"a": "b", "app": "one"}),
    )
    assert [*found] == [("all", "shop"), ("web", "shop")]
    assert names(found["all", "shop"]) == names(found["web", "shop"]) == ["one"]


def test_descriptor(stand: RestStand) -> None:
    """A reader gets what the application says of itself, without code."""
    descriptor = {
        "type": "shop",
        "version": "1.2",
        "description": "Sells\nthings",
        "owners": [{"name": "team", "email": "team@example.org"}, "odd"],
        "links": [
            {"description": "Docs", "url": "https://example.org/docs"},
            {"description": "Evil", "url": "javascript:alert(1)"},
            {"description": "Evil", "url": "x|javascript:alert(1)"},
        ],
    }
    secret = {"type": "SecretKeyRef", "secretKeyRef": {"name": "db", "key": "pass"}}
    info = [
        {"name": "port", "type": "Value", "value": "80"},
        {"name": "password", "type": "Reference", "valueFrom": secret},
    ]
    stated = {
        "componentsReady": "3/5",
        "conditions": [{"type": "Ready", "status": "X"}],
    }
    found = show(
        stand,
        application(selector={}, descriptor=descriptor, info=info) | {"status": stated},
    )
    web = found["web", "shop"]
    assert web["version"] == "1.2"
    (declared,) = web["declarations"]
    assert declared["type"] == "shop"
    assert declared["description"] == "Sells"
    assert declared["owners"] == ["team <team@example.org>"]
    assert declared["links"] == {"https://example.org/docs": "Docs"}
    assert declared["info"] == {"port": "80"}
    assert declared["references"] == {"password": "SecretKeyRef db"}
    assert declared["stated"] == {"ready": "3/5", "Ready": "X"}
    (one,) = external(stand, "Applications").applications
    assert dict(one.declarations[0].links) == declared["links"]


def test_argo_cd(stand: RestStand) -> None:
    """Its workloads name it in an annotation or a label, also in other namespaces."""
    tracking = "argocd.argoproj.io/tracking-id"
    found = show(
        stand,
        argo(
            "billing",
            source={
                "repoURL": "https://user:secret@example.org/repo.git",
                "path": "billing",
                "targetRevision": "main",
            },
            destination={"namespace": "shop", "server": "https://kubernetes.default"},
        ),
        argo("empty", sources=[{"repoURL": "oci://example.org/x", "chart": "c"}]),
        argo("far", "teams", destination={"namespace": "far"}),
        workload("a", annotations={tracking: "billing:apps/Deployment:shop/a"}),
        workload("b", labels={"argocd.argoproj.io/instance": "billing"}),
        workload("c", labels={"app.kubernetes.io/instance": "billing"}),
        workload("d", "far", annotations={tracking: "teams_far:apps/Deployment:far/d"}),
        workload("e", annotations={tracking: "unknown:apps/Deployment:shop/e"}),
    )
    billing = found["billing", "shop"]
    assert names(billing) == ["a", "b", "c"]
    assert billing["source"] == "argocd"
    (declared,) = billing["declarations"]
    assert declared["repository"] == "https://example.org/repo.git"
    assert (declared["wanted"], declared["revision"]) == ("main", "0a1b")
    assert declared["stated"] == {"health": "Degraded", "sync": "OutOfSync"}
    # The health is that of the workloads, and not what the object states.
    assert billing["health"] == "current"
    assert names(found["far", "far"]) == ["d"]
    assert found["empty", "argocd"]["declarations"][0]["path"] == "c"
    assert names(found["unknown", "shop", "labels"]) == ["e"]


def test_flux(stand: RestStand) -> None:
    kustomize, helm = "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"
    chart = {"chart": "web", "version": "1.x", "sourceRef": {"kind": "HelmRepository"}}
    found = show(
        stand,
        application("apps", "flux-system", path="./apps", suspend=True)
        | {
            "apiVersion": f"{kustomize}/v1",
            "kind": "Kustomization",
            "status": {"lastAppliedRevision": "main@sha1:0a1b"},
        },
        application("web", "flux-system", chart={"spec": chart}, targetNamespace="shop")
        | {"apiVersion": f"{helm}/v2", "kind": "HelmRelease"},
        workload(
            "a",
            labels={
                f"{kustomize}/name": "apps",
                f"{kustomize}/namespace": "flux-system",
            },
        ),
        workload(
            "b",
            labels={f"{helm}/name": "web", f"{helm}/namespace": "flux-system"},
            annotations={"meta.helm.sh/release-name": "shop-web"},
        ),
        workload("c", annotations={"meta.helm.sh/release-name": "alone"}),
    )
    apps = found["apps", "shop"]
    assert (names(apps), apps["source"]) == (["a"], "flux")
    assert apps["declarations"][0]["revision"] == "main@sha1:0a1b"
    assert apps["declarations"][0]["stated"] == {"suspended": "true"}
    web = found["web", "shop"]
    assert (names(web), web["source"]) == (["b"], "flux, helm")
    assert web["declarations"][0]["wanted"] == "1.x"
    assert found["alone", "shop", "labels"]["source"] == "helm"


def test_only_permitted_declarations(stand: RestStand) -> None:
    """A reader without the right to list the objects gets only the labels' groups."""
    stand.allowed = {("alice", "apps/deployments")}
    found = show(
        stand, argo("billing"), workload("a", labels={"app": "billing"}), argo("b")
    )
    assert [*found] == [("billing", "shop", "labels")]


def test_one_namespace(stand: RestStand) -> None:
    """The object may be in another namespace than the workloads."""
    show(
        stand,
        argo("billing", destination={"namespace": "shop"}),
        workload("a", labels={"app.kubernetes.io/instance": "billing"}),
        workload("b", "other"),
    )
    found = applications(stand, "&namespace=shop")
    assert [*found] == [("billing", "shop")]
    assert len(found["billing", "shop"]["declarations"]) == 1


def test_limits(stand: RestStand, monkeypatch: pytest.MonkeyPatch) -> None:
    links = [{"url": f"https://example.org/{number}"} for number in range(20)]
    found = show(
        stand,
        application(selector={"matchLabels": {"a": "b"}}, descriptor={"links": links}),
        application("two", selector={"matchLabels": {"a": "b"}}),
        workload("one", labels={"a": "b"}),
        workload("two", labels={"a": "b"}),
    )
    assert len(found["web", "shop"]["declarations"][0]["links"]) == MAX_ENTRIES
    assert not external(stand, "Applications").completeness.cut
    monkeypatch.setattr(declarations_module, "MAX_COMPARISONS", 3)
    assert external(stand, "Applications").completeness.cut
    monkeypatch.undo()
    monkeypatch.setattr(applications_module, "MAX_LIMIT", 1)
    monkeypatch.setattr(applications_module, "MAX_DECLARATIONS", 1)
    assert external(stand, "Applications").completeness.cut


@pytest.mark.parametrize(
    "columns",
    [
        '{"tool": "app.k8s.io", "selector": 5, "links": ["x"], "stated": []}',
        '{"tool": "app.k8s.io", "selector": "a in (", "components": {}, "owners": 5}',
        '{"tool": 5, "selector": "a=b", "links": {"javascript:alert(1)": "x"}}',
    ],
)
def test_declarations_of_a_hostile_agent(stand: RestStand, columns: str) -> None:
    """kas takes only what has the expected type, and checks links again."""
    show(stand, application(selector={"matchLabels": {"a": "b"}}), workload("one"))
    stand.damage(columns, "applications")
    (web,) = [
        one for one in external(stand, "Applications").applications if one.declarations
    ]
    assert web.workloads == [] and not web.declarations[0].links


@pytest.mark.parametrize(
    ("link", "is_safe"),
    [
        ("https://example.org/a?b=c#d", True),
        ("HTTP://example.org", True),
        ("mailto:team@example.org", True),
        ("javascript:alert(1)", False),
        (" https://example.org", False),
        ("https://example.org/\x00", False),
        ("java\nscript:alert(1)", False),
        ("text|javascript:alert(1)", False),
        ("https://example.org|javascript:alert(1)", False),
        ("data:text/html,x", False),
        ("//example.org", False),
        ("https://" + "x" * MAX_LINK, False),
    ],
)
def test_links(link: str, is_safe: bool) -> None:
    assert is_safe_link(link) is is_safe
