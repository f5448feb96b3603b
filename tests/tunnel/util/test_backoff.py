"""Pauses between attempts."""

from __future__ import annotations

from tunnel.toolkit.backoff import Backoff


def test_doubles_up_to_the_most() -> None:
    backoff = Backoff(lambda: 1.0, 0.5, 3.0)
    assert [backoff.failed() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff.doublings == 3
    backoff.reset()
    assert backoff.failed() == 0.5


def test_half_of_a_pause_is_jitter() -> None:
    for random, expected in ((0.0, [1.0, 2.0]), (0.5, [1.5, 3.0]), (1.0, [2.0, 4.0])):
        backoff = Backoff(lambda value=random: value, 2.0, 60.0)  # type: ignore[misc]
        assert [backoff.pause(), backoff.pause()] == expected


def test_many_failures() -> None:
    """The numbers stay small, however long it takes."""
    backoff = Backoff(lambda: 0.0, 0.1, 1.0)
    for _ in range(10_000):
        assert backoff.failed() <= 1.0
    assert backoff.doublings == 4
