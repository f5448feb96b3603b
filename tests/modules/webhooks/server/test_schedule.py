"""What follows an attempt, by its number and status."""

from __future__ import annotations

import pytest

from modules.webhooks.server.schedule import (
    MAX_RETRY_AFTER,
    PAUSES,
    SLOW_PAUSE,
    next_step,
)
from modules.webhooks.wire.webhooks_pb2 import DELIVERED, DISABLED, FAILED, PENDING

NOW = 1_800_000_000.0
MINUTE, HOUR = 60, 3600


def test_pauses() -> None:
    """The schedule of Standard Webhooks."""
    hours = [2, 5, 10, 14, 20, 24]
    expected = [0, 5, 5 * MINUTE, 30 * MINUTE, *(one * HOUR for one in hours)]
    assert list(PAUSES) == expected


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_success(status: int) -> None:
    assert next_step(1, status, 0, NOW).state == DELIVERED


def test_gone() -> None:
    assert next_step(1, 410, 0, NOW).state == DISABLED


@pytest.mark.parametrize("status", [0, 101, 300, 302, 400, 404, 500, 503])
def test_failures(status: int) -> None:
    for attempts in range(1, len(PAUSES)):
        step = next_step(attempts, status, 0, NOW)
        assert step.state == PENDING
        assert step.next_attempt == NOW + PAUSES[attempts]
        assert step.slow_until == 0
    assert next_step(len(PAUSES), status, 0, NOW).state == FAILED


@pytest.mark.parametrize("status", [429, 502, 504])
def test_overload(status: int) -> None:
    step = next_step(1, status, 0, NOW)
    assert step.next_attempt == step.slow_until == NOW + SLOW_PAUSE
    later = next_step(3, status, 0, NOW)
    assert later.next_attempt == NOW + PAUSES[3]
    assert later.slow_until == NOW + SLOW_PAUSE


def test_retry_after() -> None:
    """It only ever delays an attempt, by at most a day."""
    assert next_step(1, 503, 1000, NOW).next_attempt == NOW + 1000
    assert next_step(4, 503, 1000, NOW).next_attempt == NOW + PAUSES[4]
    step = next_step(1, 503, 10**9, NOW)
    assert step.next_attempt == step.slow_until == NOW + MAX_RETRY_AFTER
