"""The commands that the demo prints: a user can copy them, whatever the path."""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from demo.__main__ import _advise
from demo.gitlab import GitLabStory
from demo.gitops import GitopsStory
from demo.screen import Screen
from demo.stack import Ports, Stack


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    """Create a stack in a folder whose path contains a space, a quote and an é."""
    state = tmp_path / "kas' démo state"
    (state / "kas").mkdir(parents=True)
    return Stack(state, Ports(1, 2, 3, 4, "observability: {}\n", ""), {})


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def paths(printed: str, stack: Stack) -> set[str]:
    """Return the arguments of all commands that name a file of the demo."""
    commands = (line for line in printed.splitlines() if line.startswith("  "))
    words = {word for line in commands for word in shlex.split(line)}
    return {word.replace(str(stack.state), "STATE") for word in words if "kas'" in word}


def test_start(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stack, "_twistd", Mock())
    found = paths(f"  {stack.start_kas()}", stack)
    assert found == {"STATE/kas", "STATE/kas.yaml"}


def test_kubectl_and_curl(stack: Stack, out: io.StringIO) -> None:
    cluster: Any = Mock(log_pod="ticker", exec_pod="shell", namespace="default")
    _advise(Screen(out), stack, "https://127.0.0.1:1", cluster)
    found = paths(out.getvalue(), stack)
    assert found == {
        "KUBECONFIG=STATE/kubeconfig",
        "STATE/curl.conf",
        "STATE/page-token",
    }


def test_gitlab(
    stack: Stack, out: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GitLabStory, "_client", Mock())
    story = GitLabStory(Screen(out), stack, Mock())
    story.advise()
    found = paths(out.getvalue(), stack)
    assert found == {"KUBECONFIG=STATE/kubeconfig", "STATE/kas.yaml"}


def test_gitops(stack: Stack, out: io.StringIO) -> None:
    story = GitopsStory(Screen(out), stack, Mock(choice="kube"))
    story._client = Mock()
    story.advise()
    found = paths(out.getvalue(), stack)
    assert found == {
        "KUBECONFIG=STATE/kubeconfig",
        "STATE/gitops/demo.git",
        "STATE/kas",
    }
