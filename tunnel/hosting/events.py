"""Events inside one program: their classes and their subscribers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from twisted.logger import Logger
from zope.interface import implementer

from tunnel.api import IEvents
from tunnel.hosting.scope import ModuleScope

__all__ = ["EventBus", "ModuleEvents"]

_E = TypeVar("_E")


class EventBus:
    """Publisher of events: `publish` calls the subscribers before it returns."""

    _log = Logger()

    def __init__(self) -> None:
        self._subscribers: dict[
            type[Any], dict[object, tuple[str, Callable[[Any], object]]]
        ] = {}

    def subscribe(
        self, owner: str, kind: type[_E], callback: Callable[[_E], object]
    ) -> Callable[[], None]:
        """
        Call *callback* with each event of a class; return a function that unsubscribes.

        :param owner: name of the module, which is logged if *callback* fails.
        """
        subscribers = self._subscribers.setdefault(kind, {})
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

    def publish(self, event: object) -> None:
        """
        Call the subscribers; a failure of one does not affect the others, whatever it
        raises: modules may call `sys.exit`, or raise the cancellation of asyncio.
        """
        for owner, callback in list(self._subscribers.get(type(event), {}).values()):
            try:
                callback(event)
            except BaseException:
                self._log.failure(
                    "{owner} failed to handle {event}",
                    owner=owner,
                    event=type(event).__name__,
                )


@implementer(IEvents)
class ModuleEvents:
    """Access of one module to the event bus."""

    def __init__(self, scope: ModuleScope, bus: EventBus) -> None:
        self._scope = scope
        self._bus = bus
        #: Calls the subscribers of an event.
        self.publish = bus.publish
        scope.on_release(lambda: bus.withdraw(scope.name))

    def subscribe(
        self, kind: type[_E], callback: Callable[[_E], object]
    ) -> Callable[[], None]:
        """Call *callback* with each event of a class."""
        return self._bus.subscribe(self._scope.name, kind, callback)
