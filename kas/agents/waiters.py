"""Table of callbacks that wait for an agent to connect."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from tunnel.toolkit.for_each import for_each

__all__ = ["Waiters"]


@attrs.define(eq=False)
class Waiters:
    """
    Table of callbacks that wait for the next event of an agent, such as its connection
    or its revocation; each callback is called once unless it is cancelled.

    :ivar waiting: the callbacks by agent.
    """

    waiting: dict[str, dict[object, Callable[[], None]]] = attrs.field(
        factory=dict, init=False
    )

    def add(self, agent_id: str, callback: Callable[[], None]) -> Callable[[], None]:
        """
        Call *callback* at the agent's next event; return a function that cancels this.
        """
        waiters = self.waiting.setdefault(agent_id, {})
        key = object()
        waiters[key] = callback

        def give_up() -> None:
            waiters.pop(key, None)
            if not waiters and self.waiting.get(agent_id) is waiters:
                del self.waiting[agent_id]

        return give_up

    def wake(self, agent_id: str) -> None:
        """Call all callbacks for the agent."""
        callbacks = self.waiting.pop(agent_id, {}).values()
        # An exception from one callback must not affect the other callbacks.
        for_each(
            tuple(callbacks),
            lambda callback: callback(),
            "a request for {agent_id}",
            agent_id=agent_id,
        )

    def __len__(self) -> int:
        return sum(map(len, self.waiting.values()))
