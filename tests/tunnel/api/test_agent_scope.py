"""The namespaces that an agent works in."""

from __future__ import annotations

import json

import pytest

from tunnel.api import MAX_SCOPE, SCOPE, AgentScope
from tunnel.config import read
from tunnel.errors import ConfigurationError


def test_the_whole_cluster() -> None:
    scope = read("", SCOPE, AgentScope)
    assert scope.is_whole_cluster
    assert scope.contains("a")
    assert scope.contains("")
    assert scope.why_outside("") == ""


def test_some_namespaces() -> None:
    """Objects without a namespace are outside."""
    scope = read('{"namespaces": ["a", "b"]}', SCOPE, AgentScope)
    assert scope.contains("b")
    assert not scope.contains("c")
    assert not scope.contains("")
    assert scope.why_outside("c") == (
        "namespace c is outside of the agent's scope: a, b"
    )
    assert scope.why_outside("").startswith("an object of no namespace is outside")


@pytest.mark.parametrize(
    ("namespaces", "problem"),
    [
        (["A"], "cannot be a namespace"),
        ([""], "cannot be a namespace"),
        (["a/../b"], "cannot be a namespace"),
        (["a" * 64], "cannot be a namespace"),
        (["a", "a"], "must name each namespace once"),
        ([f"n{number}" for number in range(MAX_SCOPE + 1)], "at most 20 namespaces"),
    ],
    ids=["upper case", "empty", "path", "long", "twice", "many"],
)
def test_scopes_that_cannot_be(namespaces: list[str], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read(json.dumps({"namespaces": namespaces}), SCOPE, AgentScope)
