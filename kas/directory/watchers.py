"""Who waits for news of an agent."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from twisted.logger import Logger

__all__ = ["Watchers"]


@attrs.define(eq=False)
class Watchers:
    """
    Each is told once.

    :ivar waiting: by agent; nobody waits for the others.
    """

    waiting: dict[str, dict[object, Callable[[], None]]] = attrs.field(
        factory=dict, init=False
    )
    _log = Logger()

    def add(self, agent_id: str, told: Callable[[], None]) -> Callable[[], None]:
        """Have *told* called at the next news; the result ends it."""
        watchers = self.waiting.setdefault(agent_id, {})
        key = object()
        watchers[key] = told

        def give_up() -> None:
            watchers.pop(key, None)
            if not watchers and self.waiting.get(agent_id) is watchers:
                del self.waiting[agent_id]

        return give_up

    def wake(self, agent_id: str) -> None:
        """There are news."""
        for told in tuple(self.waiting.pop(agent_id, {}).values()):
            try:
                told()
            except Exception:
                # What one of them does with the news must not harm the others.
                self._log.failure("a request for {agent_id} failed", agent_id=agent_id)
