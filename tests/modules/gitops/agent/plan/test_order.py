"""The order of a source's objects."""

from __future__ import annotations

import random
from typing import Any

import pytest

from modules.gitops.agent.objects.manifests import Manifest, ObjectKey, Origin
from modules.gitops.agent.plan import order as module
from modules.gitops.agent.plan.order import DEPENDS_ON, WAVE, Order, order_of


def manifest(
    kind: str,
    name: str,
    namespace: str = "",
    *,
    group: str = "",
    wave: str = "",
    needs: str = "",
    **fields: Any,
) -> Manifest:
    annotations = {WAVE: wave, DEPENDS_ON: needs}
    metadata = {
        "name": name,
        "annotations": {key: one for key, one in annotations.items() if one},
    }
    return Manifest(
        ObjectKey(group, kind, namespace, name),
        {
            "apiVersion": f"{group}/v1" if group else "v1",
            "kind": kind,
            "metadata": metadata,
            **fields,
        },
        Origin("a.yaml", 1),
    )


def definition(group: str, kind: str, **more: Any) -> Manifest:
    return manifest(
        "CustomResourceDefinition",
        f"{kind.lower()}s.{group}",
        group="apiextensions.k8s.io",
        spec={"group": group, "names": {"kind": kind}},
        **more,
    )


def layers(*manifests: Manifest) -> list[list[str]]:
    """Names, after it was seen that no other order of the files changes them."""
    found = order_of(manifests)
    assert found.problems == ()
    shuffled = list(manifests)
    random.Random(7).shuffle(shuffled)
    assert order_of(shuffled).layers == found.layers
    return [[key.name for key in layer] for layer in found.layers]


def problems(*manifests: Manifest) -> list[str]:
    found = order_of(manifests)
    assert found.layers == ()
    return [str(one) for one in found.problems]


def test_nothing() -> None:
    found = order_of([])
    assert isinstance(found, Order)
    assert (found.layers, found.awaited, found.problems) == ((), frozenset(), ())


def test_namespaces_and_definitions_come_first() -> None:
    crd = definition("x.io", "Thing")
    assert layers(
        manifest("Thing", "t", "here", group="x.io"),
        manifest("ConfigMap", "c", "here"),
        manifest("ConfigMap", "d", "elsewhere"),
        manifest("Namespace", "here"),
        manifest("ClusterRole", "r", group="rbac.authorization.k8s.io"),
        crd,
    ) == [["d", "here", "things.x.io", "r"], ["c", "t"]]


def test_only_what_is_needed_is_awaited() -> None:
    """A Namespace is used at once; a definition has to be established."""
    used, unused = definition("x.io", "Thing"), definition("x.io", "Other")
    space = manifest("Namespace", "here")
    thing = manifest("Thing", "t", "here", group="x.io")
    found = order_of([used, unused, space, thing])
    assert found.awaited == {used.key}
    assert found.needs[thing.key] == {used.key, space.key}
    assert found.needs[space.key] == frozenset()


def test_depends_on() -> None:
    a = manifest("ConfigMap", "a", "n", needs="apps/namespaces/n/Deployment/b")
    b = manifest("Deployment", "b", "n", group="apps", needs="/Node/c, /Node/d")
    c, d = manifest("Node", "c"), manifest("Node", "d")
    assert layers(a, b, c, d) == [["c", "d"], ["b"], ["a"]]
    found = order_of([a, b, c, d])
    assert found.awaited == {b.key, c.key, d.key}
    assert found.needs[b.key] == {c.key, d.key}


def test_waves() -> None:
    first = manifest("Job", "first", "n", wave="-5")
    last = manifest("Job", "last", "n", wave="10")
    usual = manifest("Job", "usual", "n")
    space = manifest("Namespace", "n", wave="3")
    assert layers(first, last, usual, space) == [["n"], ["first"], ["usual"], ["last"]]
    found = order_of([first, last, usual, space])
    assert found.awaited == {first.key, usual.key, space.key}


def test_what_the_api_server_calls_comes_last() -> None:
    group = "admissionregistration.k8s.io"
    hook = manifest("ValidatingWebhookConfiguration", "hook", group=group)
    service = manifest("APIService", "v1.x", group="apiregistration.k8s.io")
    work = manifest("Deployment", "work", "n", group="apps")
    later = manifest("ConfigMap", "later", "n", wave="1")
    assert layers(hook, service, work, later) == [["work"], ["hook", "v1.x"], ["later"]]
    needs = f"{group}/ValidatingWebhookConfiguration/hook"
    assert layers(hook, manifest("ConfigMap", "c", "n", needs=needs)) == [
        ["hook"],
        ["c"],
    ]


def test_circles() -> None:
    a = manifest("Node", "a", needs="/Node/b")
    b = manifest("Node", "b", needs="/Node/c")
    c = manifest("Node", "c", needs="/Node/b")
    assert problems(a, b, c, manifest("Node", "d")) == [
        "a.yaml:1: Node b: a circle: Node b needs Node c needs Node b"
    ]


@pytest.mark.parametrize(
    ("needs", "problem"),
    [
        ("/Node/x", "names Node x, which this source does not have"),
        ("/Node/a", "names the object itself"),
        ("/Node/b,/Node/b", "names Node b twice"),
        ("Node/b", "'Node/b' is neither"),
        ("/namespaces/n/ConfigMap/", "is neither"),
        ("/Node/b,", "'' is neither"),
    ],
)
def test_references_that_lead_nowhere(needs: str, problem: str) -> None:
    (found,) = problems(manifest("Node", "a", needs=needs), manifest("Node", "b"))
    assert found.startswith("a.yaml:1: Node a: config.kubernetes.io/depends-on")
    assert problem in found


def test_a_later_wave_cannot_be_needed() -> None:
    a = manifest("Node", "a", needs="/Node/b")
    assert (
        problems(a, manifest("Node", "b", wave="1"))[0]
        == "a.yaml:1: Node a: needs Node b, which has a later wave"
    )


def test_waves_are_numbers() -> None:
    assert problems(manifest("Node", "a", wave="soon")) == [
        f"a.yaml:1: Node a: {WAVE} is not a whole number: 'soon'"
    ]


def test_references_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REFERENCES", 1)
    a = manifest("Node", "a", needs="/Node/b,/Node/c")
    (found,) = problems(a, manifest("Node", "b"), manifest("Node", "c"))
    assert "names more than 1 objects" in found


@pytest.mark.parametrize(
    "spec", [None, {}, {"group": 1, "names": {"kind": "A"}}, {"group": "a", "names": 7}]
)
def test_definitions_that_define_nothing(spec: Any) -> None:
    """The API server says what is wrong with them."""
    one = manifest(
        "CustomResourceDefinition", "x", group="apiextensions.k8s.io", spec=spec
    )
    assert layers(one) == [["x"]]


def test_a_long_chain() -> None:
    chain = [
        manifest("Node", f"n{n:04}", needs=f"/Node/n{n - 1:04}" if n else "")
        for n in range(3000)
    ]
    assert len(layers(*chain)) == 3000


def test_problems_are_bounded() -> None:
    """A file of a few hundred kilobytes can have a million of them."""
    names = ",".join(f"/namespaces/a/ConfigMap/gone{number}" for number in range(50))
    found = problems(
        *(manifest("ConfigMap", f"x{n}", "a", needs=names) for n in range(3))
    )
    assert len(found) == module.MAX_PROBLEMS + 1
    assert found[-1].endswith("and 50 more problems")


def test_a_large_circle() -> None:
    """Some of its objects are named."""
    count = 500
    (found,) = problems(
        *(
            manifest(
                "ConfigMap",
                f"x{n}",
                "a",
                needs=f"/namespaces/a/ConfigMap/x{(n + 1) % count}",
            )
            for n in range(count)
        )
    )
    assert found.count(" needs ") == module.MAX_CIRCLE
    assert found.endswith(f" needs {count + 1 - module.MAX_CIRCLE} more")
