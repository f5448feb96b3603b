"""Events inside one program."""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tunnel.hosting.events import EventBus


class EventBusTests(SynchronousTestCase):
    """Who is told what."""

    def setUp(self) -> None:
        self.bus = EventBus()
        self.told: list[Any] = []

    def test_topics_are_apart(self) -> None:
        """Subscribers of the topic are told, at once and in order."""
        self.bus.subscribe("a", "moon", lambda event: self.told.append(("a", event)))
        self.bus.subscribe("b", "moon", lambda event: self.told.append(("b", event)))
        self.bus.subscribe("a", "sun", self.told.append)
        self.bus.publish("moon", 1)
        self.bus.publish("nobody", 2)
        self.assertEqual(self.told, [("a", 1), ("b", 1)])

    def test_end(self) -> None:
        """A subscription ends once, and alone."""
        end = self.bus.subscribe("a", "moon", self.told.append)
        self.bus.subscribe("a", "moon", self.told.append)
        end()
        end()
        self.bus.publish("moon", 1)
        self.assertEqual(self.told, [1])

    def test_withdraw(self) -> None:
        """Everything of one owner, nothing of another."""

        def tell(owner: str, event: Any) -> None:
            self.told.append(owner)

        for owner in "ab":
            for topic in ("moon", "sun"):
                self.bus.subscribe(owner, topic, partial(tell, owner))
        self.bus.withdraw("a")
        self.bus.withdraw("nobody")
        self.bus.publish("moon", 1)
        self.bus.publish("sun", 1)
        self.assertEqual(self.told, ["b", "b"])

    def test_subscriber_fails(self) -> None:
        """The others are told all the same, and the log says who it was."""

        def fail(event: Any) -> None:
            raise ZeroDivisionError

        self.bus.subscribe("a", "moon", fail)
        self.bus.subscribe("b", "moon", self.told.append)
        self.bus.publish("moon", 1)
        self.assertEqual(self.told, [1])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_changes_while_telling(self) -> None:
        """Who comes or goes meanwhile does not disturb."""

        def once(event: Any) -> None:
            end()
            self.bus.subscribe("a", "moon", self.told.append)

        end = self.bus.subscribe("a", "moon", once)
        self.bus.publish("moon", 1)
        self.assertEqual(self.told, [])
        self.bus.publish("moon", 2)
        self.assertEqual(self.told, [2])
