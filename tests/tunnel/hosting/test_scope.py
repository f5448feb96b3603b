"""What one module registered, and takes back."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.logger import LogLevel, globalLogPublisher
from zope.interface import Interface, implementer

from tunnel.hosting.capabilities import CapabilityTable, ModuleCapabilities
from tunnel.hosting.scope import ModuleScope


class ICounter(Interface):
    """A capability of a test."""

    def count() -> int:
        """Return a number."""


@implementer(ICounter)
class CounterOne:
    """It counts to one."""

    def count(self) -> int:
        return 1


def scope(name: str = "one") -> ModuleScope:
    return ModuleScope(name, None, lambda reason: None)


def test_release_once_and_in_order() -> None:
    """A failure is logged, and the others are released all the same."""
    failures: list[Any] = []
    observer: Any = failures.append
    globalLogPublisher.addObserver(observer)
    released: list[str] = []
    one = scope()
    one.on_release(lambda: released.append("a"))
    one.on_release(lambda: 1 / 0)
    one.on_release(lambda: released.append("b"))
    try:
        one.release()
        one.release()
    finally:
        globalLogPublisher.removeObserver(observer)
    assert released == ["a", "b"]
    critical = [one for one in failures if one["log_level"] is LogLevel.critical]
    assert [one["name"] for one in critical] == ["one"]


def test_capabilities_of_another_module() -> None:
    """A capability is found until its module ends."""
    table = CapabilityTable()
    provider, user = scope("one"), scope("two")
    offered, found = (ModuleCapabilities(one, table) for one in (provider, user))
    assert found.get(ICounter) is None
    offered.provide(ICounter, CounterOne())
    assert found.get(ICounter).count() == 1
    provider.release()
    assert found.get(ICounter) is None


def test_refused_capabilities() -> None:
    """One module provides an interface, and provides all of it."""
    table = CapabilityTable()
    table.provide("one", ICounter, CounterOne())
    table.provide("one", ICounter, CounterOne())
    with pytest.raises(ValueError, match="module one already provides ICounter"):
        table.provide("two", ICounter, CounterOne())
    with pytest.raises(ValueError, match="object does not provide ICounter"):
        table.provide("one", ICounter, object())
