"""Who waits for an agent, or for news of one."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from tunnel.util.for_each import for_each

__all__ = ["Watchers"]


@attrs.define(eq=False)
class Watchers:
    """
    Each is told once, or gives up.

    :ivar waiting: by agent; nobody waits for the others.
    """

    waiting: dict[str, dict[object, Callable[[], None]]] = attrs.field(
        factory=dict, init=False
    )

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
        told = self.waiting.pop(agent_id, {}).values()
        # What one of them does with the news must not harm the others.
        for_each(
            tuple(told),
            lambda tell: tell(),
            "a request for {agent_id}",
            agent_id=agent_id,
        )

    def __len__(self) -> int:
        return sum(map(len, self.waiting.values()))
