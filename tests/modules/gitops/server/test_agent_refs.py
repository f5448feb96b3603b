"""Refs of one agent: their number is limited, for each repository and agent."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from kas.git.live_refs import MAX_LIVE
from modules.gitops.server.agent_refs import MAX_REFS, AgentRefs
from modules.gitops.wire.settings import MAX_PROJECTS
from tunnel.api import GitAddress
from tunnel.errors import CallError, Status

APPS = GitAddress(url="https://git.example.org/apps.git")
OTHER = GitAddress(url="https://git.example.org/other.git")


def test_at_most_so_many() -> None:
    """Another agent, another repository and a ref that is in use have room."""
    refs = AgentRefs()
    with ExitStack() as streams:
        for number in range(MAX_REFS):
            streams.enter_context(refs.using("a", APPS, f"refs/heads/{number}"))
        for one in (
            refs.using("a", APPS, "refs/heads/0"),
            refs.using("a", OTHER, "refs/heads/more"),
            refs.using("b", APPS, "refs/heads/more"),
        ):
            with one:
                pass
        with (
            pytest.raises(CallError, match=f"at most {MAX_REFS} branches") as caught,
            refs.using("a", APPS, "refs/heads/more"),
        ):
            pass
        assert caught.value.status is Status.RESOURCE_EXHAUSTED
        # The ref that was used twice is still in use.
        assert len(refs) == 1
    assert len(refs) == 0


def test_limits_fit_together() -> None:
    """Each project may have its own ref, and one agent does not fill a copy."""
    assert MAX_PROJECTS < MAX_REFS
    assert 3 * MAX_REFS <= MAX_LIVE
