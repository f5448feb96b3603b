"""The objects of a source, and what is said of those that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from modules.gitops.agent.objects import manifests
from modules.gitops.agent.objects.manifests import (
    ObjectKey,
    Origin,
    Source,
    SourceProblem,
    read_source,
)


def source(text: str, path: str = "a.yaml") -> Source:
    return read_source([(path, text.encode())])


def config_map(name: str = "one", **metadata: Any) -> str:
    """As YAML, which JSON is."""
    metadata = {"name": name, **metadata}
    found = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return json.dumps(found) + "\n"


def problems(text: str, path: str = "a.yaml") -> list[str]:
    return [str(one) for one in source(text, path).problems]


def test_objects_and_their_places() -> None:
    first = config_map("one", namespace="here") + "---\n# nothing\n---\n"
    files = [
        ("a.yaml", (first + config_map("two")).encode()),
        ("b/c.json", b'\n{"apiVersion": "apps/v1", "kind": "Deployment", '
         b'"metadata": {"name": "three", "namespace": ""}}'),
    ]  # fmt: skip
    found = read_source(files)
    assert found.problems == ()
    assert [(one.key, one.origin) for one in found.manifests] == [
        (ObjectKey("", "ConfigMap", "here", "one"), Origin("a.yaml", 1)),
        (ObjectKey("", "ConfigMap", "", "two"), Origin("a.yaml", 5)),
        (ObjectKey("apps", "Deployment", "", "three"), Origin("b/c.json", 2)),
    ]
    one, _, three = found.manifests
    assert one.api_version == "v1"
    assert three.api_version == "apps/v1"
    assert three.object["metadata"] == {"name": "three"}
    assert str(one.key) == "ConfigMap here/one"
    assert str(three.key) == "Deployment.apps three"


def test_what_the_server_sets_is_left_out() -> None:
    text = config_map(
        uid="u",
        resourceVersion="7",
        generation=3,
        creationTimestamp=None,
        managedFields=[{}],
        annotations={"a": "b"},
        labels=None,
    )
    (found,) = source(text).manifests
    assert found.object["metadata"] == {
        "name": "one",
        "annotations": {"a": "b"},
        "labels": None,
    }
    assert found.annotations == {"a": "b"}


def test_lists_are_the_objects_in_them() -> None:
    inner = f"{{apiVersion: v1, kind: List, items: [{config_map('b')}]}}"
    text = f"""
apiVersion: v1
kind: ConfigMapList
items:
- {config_map("a")}
- {inner}
- {config_map("c")}
"""
    found = source(text)
    assert [one.key.name for one in found.manifests] == ["a", "b", "c"]
    assert {one.origin for one in found.manifests} == {Origin("a.yaml", 2)}


def test_a_kind_that_only_ends_like_a_list() -> None:
    text = "{apiVersion: x.io/v1, kind: AllowList, metadata: {name: a}, spec: {}}"
    (found,) = source(text).manifests
    assert found.key == ObjectKey("x.io", "AllowList", "", "a")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("just text", "this is not an object"),
        ("[1]", "this is not an object"),
        ("{kind: A, metadata: {name: a}}", "apiVersion is missing"),
        ("{apiVersion: 1, kind: A, metadata: {name: a}}", "apiVersion is not text"),
        ("{apiVersion: a/b/c, kind: A}", "apiVersion 'a/b/c' is not valid: write"),
        ("{apiVersion: v1, metadata: {name: a}}", "kind is missing"),
        (
            "{apiVersion: v1, kind: a b, metadata: {name: a}}",
            "kind 'a b' is not valid: write",
        ),
        ("{apiVersion: v1, kind: A}", "this A has no metadata"),
        ("{apiVersion: v1, kind: A, metadata: {}}", "metadata.name is missing"),
        ("{apiVersion: v1, kind: A, metadata: {name: ''}}", "metadata.name is missing"),
        ("{apiVersion: v1, kind: A, metadata: {name: 1}}", "metadata.name is not text"),
        (
            "{apiVersion: v1, kind: A, metadata: {name: a/b}}",
            "'a/b' is not valid: write",
        ),
        (
            "{apiVersion: v1, kind: A, metadata: {name: '..'}}",
            "'..' is not valid: write",
        ),
        ("{apiVersion: v1, kind: A, metadata: {generateName: a}}", "generateName"),
        (
            "{apiVersion: v1, kind: A, metadata: {name: a, namespace: ../b}}",
            "metadata.namespace '../b' is not valid: write",
        ),
        (
            "{apiVersion: v1, kind: A, metadata: {name: a, labels: {b: 1}}}",
            "A a: metadata.labels: the value of 'b' is not text",
        ),
        (
            "{apiVersion: v1, kind: A, metadata: {name: a, annotations: []}}",
            "A a: metadata.annotations is not a mapping",
        ),
    ],
)
def test_what_is_no_object(text: str, problem: str) -> None:
    (found,) = problems(f"---\n\n{text}")
    assert found.startswith("a.yaml:3: ")
    assert problem in found


def test_one_that_is_there_twice() -> None:
    text = config_map() + "---\n" + config_map(namespace="x") + "---\n" + config_map()
    found = source(text)
    assert len(found.manifests) == 2
    assert problems(text) == [
        "a.yaml:5: ConfigMap one is also at a.yaml:1; remove one of the two"
    ]


def test_the_rest_of_the_files_is_read() -> None:
    files = [
        ("a.yaml", config_map().encode() + b"---\na: b: c"),
        ("b.yaml", config_map("two").encode()),
    ]
    found = read_source(files)
    assert [one.key.name for one in found.manifests] == ["one", "two"]
    (problem,) = found.problems
    assert problem.origin == Origin("a.yaml", 3, 5)


def test_problems_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "MAX_PROBLEMS", 2)
    found = source("---\n1\n" * 5)
    assert len(found.problems) == 3
    assert found.problems[-1] == SourceProblem(
        Origin("a.yaml", 4), "and 3 more problems"
    )


def test_a_source_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing after the limit is read."""
    monkeypatch.setattr(manifests, "MAX_DOCUMENTS", 3)
    files = [(f"{n}.yaml", config_map(str(n) + "x").encode()) for n in range(5)]
    found = read_source(files)
    assert len(found.manifests) == 3
    assert [str(one) for one in found.problems] == [
        "3.yaml:1:1: the files hold too many documents"
    ]
    monkeypatch.setattr(manifests, "MAX_VALUES", 3)
    found = read_source(files)
    assert found.manifests == ()
    assert "too many values" in str(found.problems[0])


@pytest.mark.parametrize(
    "kind", ["apiVersion: v1\nkind: ConfigMap", "apiVersion: x.io/v1\nkind: Secret"]
)
def test_encrypted_with_sops(kind: str) -> None:
    """What is no Secret is refused, and nothing of it is said."""
    text = (
        f"{kind}\nmetadata: {{name: a}}\n"
        "data: {k: 'ENC[AES256_GCM,data:xyz]'}\nsops: {mac: 'ENC[abc]', version: 3}\n"
    )
    source = read_source([("a.yaml", text.encode())])
    (problem,) = source.problems
    assert str(problem).startswith("a.yaml:1: this is encrypted with SOPS, but is")
    assert "xyz" not in str(problem)
