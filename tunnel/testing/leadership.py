"""Leader election in tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from zope.interface import implementer

from tunnel.api import ILeadership

__all__ = ["FakeLeadership"]


@implementer(ILeadership)
class FakeLeadership:
    """`ILeadership` that does not lead until the test sets `leads`."""

    def __init__(self) -> None:
        self.leads = False
        self.lease = "default/agent-1-lock"
        #: Functions that the module passed to `lead`; the test runs them.
        self.led: list[Callable[[], Awaitable[None]]] = []

    def lead(self, run: Callable[[], Awaitable[None]]) -> None:
        self.led.append(run)
