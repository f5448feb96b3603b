"""Events inside one program."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import attrs
from twisted.trial.unittest import SynchronousTestCase

from tunnel.hosting.events import EventBus


@attrs.frozen
class NewMoon:
    """An event."""

    phase: int


@attrs.frozen
class Sunrise:
    """Another event."""

    height: int


class EventBusTests(SynchronousTestCase):
    """Which subscriber gets which event."""

    def setUp(self) -> None:
        self.bus = EventBus()
        self.told: list[Any] = []

    def test_classes_are_apart(self) -> None:
        """Subscribers of the class get the event, at once and in order."""
        self.bus.subscribe("a", NewMoon, lambda event: self.told.append(("a", event)))
        self.bus.subscribe("b", NewMoon, lambda event: self.told.append(("b", event)))
        self.bus.subscribe("a", Sunrise, self.told.append)
        self.bus.publish(NewMoon(1))
        self.bus.publish("nobody")
        self.assertEqual(self.told, [("a", NewMoon(1)), ("b", NewMoon(1))])

    def test_a_subscriber_that_ends_the_program(self) -> None:
        """It does not, and the others get the event."""
        for error in (SystemExit, asyncio.CancelledError):

            def fail(event: object, error: type[BaseException] = error) -> None:
                raise error

            self.bus.subscribe("a", NewMoon, fail)
        self.bus.subscribe("b", NewMoon, self.told.append)
        self.bus.publish(NewMoon(1))
        self.assertEqual(self.told, [NewMoon(1)])
        errors = self.flushLoggedErrors(SystemExit, asyncio.CancelledError)
        self.assertEqual(len(errors), 2)

    def test_end(self) -> None:
        """A subscription ends once, and alone."""
        end = self.bus.subscribe("a", NewMoon, self.told.append)
        self.bus.subscribe("a", NewMoon, self.told.append)
        end()
        end()
        self.bus.publish(NewMoon(1))
        self.assertEqual(self.told, [NewMoon(1)])

    def test_withdraw(self) -> None:
        """Everything of one owner, nothing of another."""

        def tell(owner: str, event: object) -> None:
            self.told.append(owner)

        for owner in "ab":
            for kind in (NewMoon, Sunrise):
                self.bus.subscribe(owner, kind, partial(tell, owner))
        self.bus.withdraw("a")
        self.bus.withdraw("nobody")
        self.bus.publish(NewMoon(1))
        self.bus.publish(Sunrise(1))
        self.assertEqual(self.told, ["b", "b"])

    def test_subscriber_fails(self) -> None:
        """The others are told all the same, and the log says who it was."""

        def fail(event: Any) -> None:
            raise ZeroDivisionError

        self.bus.subscribe("a", NewMoon, fail)
        self.bus.subscribe("b", NewMoon, self.told.append)
        self.bus.publish(NewMoon(1))
        self.assertEqual(self.told, [NewMoon(1)])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_changes_while_telling(self) -> None:
        """Who comes or goes meanwhile does not disturb."""

        def once(event: Any) -> None:
            end()
            self.bus.subscribe("a", NewMoon, self.told.append)

        end = self.bus.subscribe("a", NewMoon, once)
        self.bus.publish(NewMoon(1))
        self.assertEqual(self.told, [])
        self.bus.publish(NewMoon(2))
        self.assertEqual(self.told, [NewMoon(2)])
