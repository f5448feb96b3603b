"""Events inside one program: topics and their subscribers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

Callback = Callable[[Any], None]


class EventBus:
    """Publishes at once, to everyone subscribed at that moment."""

    _log = Logger()

    def __init__(self) -> None:
        self._subscribers: dict[str, dict[object, tuple[str, Callback]]] = {}

    def subscribe(
        self, owner: str, topic: str, callback: Callback
    ) -> Callable[[], None]:
        """Call *callback* with what is published; call the result to end that."""
        subscribers = self._subscribers.setdefault(topic, {})
        key = object()
        subscribers[key] = (owner, callback)

        def end() -> None:
            subscribers.pop(key, None)

        return end

    def withdraw(self, owner: str) -> None:
        """End every subscription of *owner*."""
        for subscribers in self._subscribers.values():
            for key in [k for k, (name, _) in subscribers.items() if name == owner]:
                del subscribers[key]

    def publish(self, topic: str, event: Any) -> None:
        """One subscriber that fails does not keep the others from being called."""
        for owner, callback in list(self._subscribers.get(topic, {}).values()):
            try:
                callback(event)
            except Exception:
                self._log.failure("{owner} failed on {topic}", owner=owner, topic=topic)
