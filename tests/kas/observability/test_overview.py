"""Every agent, as far as is known."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from kas.observability.overview import overview
from tunnel.errors import CallError, Status


class _Nobody:
    """A directory and what was seen last, where nothing is connected."""

    def __init__(self, problem: str = "") -> None:
        self.problem = problem
        self.id, self.name = "1", "prod"

    async def agents(self) -> list[Any]:
        if self.problem:
            raise CallError(Status.UNAVAILABLE, self.problem)
        return []

    def own(self) -> list[Any]:
        return []

    async def of(self, agent_ids: list[str]) -> dict[str, float]:
        return {}


class OverviewTests(SynchronousTestCase):
    def _look(self, nobody: Any) -> Any:
        looking = overview([nobody], nobody, nobody)
        try:
            looking.send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("it waits")

    def test_away(self) -> None:
        found = self._look(_Nobody())
        self.assertEqual(found["problem"], "")
        self.assertIs(found["agents"][0]["connected"], False)

    def test_unknown(self) -> None:
        """Another kas may have it, and cannot be asked."""
        found = self._look(_Nobody("no Redis"))
        self.assertEqual(found["problem"], "no Redis")
        self.assertIsNone(found["agents"][0]["connected"])
