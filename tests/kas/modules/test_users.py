"""Credentials with open connections."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher

from kas.modules.users import HeldCredentials


@pytest.fixture
def logged() -> Iterator[EventLoggingObserver]:
    observer = EventLoggingObserver()
    globalLogPublisher.addObserver(observer)
    yield observer
    globalLogPublisher.removeObserver(observer)


def test_a_module_that_fails(logged: EventLoggingObserver) -> None:
    """Its credentials of before stay, and so do those of other modules."""
    held, fails = HeldCredentials(), [False]

    def failing() -> list[str]:
        if fails[0]:
            raise SystemExit
        return ["a", "b"]

    remove = held.add(failing)
    held.add(lambda: ["c"])
    assert held.ids() == {"a", "b", "c"}
    fails[0] = True
    assert held.ids() == {"a", "b", "c"}
    assert len(list(logged)) == 1
    remove()
    remove()
    assert held.ids() == {"c"}
