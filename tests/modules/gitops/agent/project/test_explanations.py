"""Texts for operators about passes that ended early."""

from __future__ import annotations

import pytest

from modules.gitops.agent.project.explanations import why_nothing_was_done
from tunnel.errors import CallError, Status


@pytest.mark.parametrize(
    ("status", "is_away"),
    [
        (Status.UNAVAILABLE, True),
        (Status.DEADLINE_EXCEEDED, True),
        (Status.FAILED_PRECONDITION, False),
        (Status.RESOURCE_EXHAUSTED, False),
        (Status.PERMISSION_DENIED, False),
        (Status.INTERNAL, False),
    ],
    ids=lambda one: one.name if isinstance(one, Status) else None,
)
def test_whether_the_api_server_is_away(status: Status, is_away: bool) -> None:
    """Only then, the text says so; any other error has its own reason."""
    text = why_nothing_was_done(CallError(status, "the reason"), "here")
    prefix = "the API server cannot be reached: " if is_away else ""
    assert text == f"{prefix}the reason"
