"""Manifests that peers sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tunnel.toolkit.single_object import MAX_NAME, check_manifest, object_name

ONE: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop"},
}


def test_one_object() -> None:
    assert object_name(ONE) == ("apps", "Deployment", "shop", "web")
    core = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    assert object_name(core) == ("", "Namespace", "", "shop")
    assert check_manifest(json.dumps(ONE), object_name(ONE)) == ONE


@pytest.mark.parametrize(
    "found",
    [
        {**ONE, "items": []},
        {**ONE, "kind": "List"},
        {**ONE, "kind": "DeploymentList"},
        {**ONE, "metadata": None},
        {**ONE, "metadata": {"namespace": "shop"}},
        {**ONE, "metadata": {"name": 1}},
        {**ONE, "metadata": {"name": "\ud800"}},
        {**ONE, "metadata": {"name": "x" * (MAX_NAME + 1)}},
        {**ONE, "apiVersion": 1},
        [ONE],
        "text",
        None,
    ],
)
def test_not_one_object(found: Any) -> None:
    with pytest.raises(ValueError):
        object_name(found)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        json.dumps({**ONE, "apiVersion": "v1"}),
        json.dumps({**ONE, "kind": "ReplicaSet"}),
        json.dumps({**ONE, "metadata": {"name": "web"}}),
        json.dumps({**ONE, "metadata": {"name": "other", "namespace": "shop"}}),
    ],
)
def test_another_object(text: str) -> None:
    with pytest.raises(ValueError):
        check_manifest(text, object_name(ONE))
