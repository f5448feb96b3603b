"""Who waits for an agent is told once, however it is found."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from kas.directory.lookups import LOOK_INTERVAL
from tests.kas.directory.memory import kas, record
from tests.kas.directory.several import POLL, Fleet, passes


class WatchTests(SynchronousTestCase):
    """Who waits is told."""

    def setUp(self) -> None:
        self.fleet = Fleet()
        self.one, self.two = self.fleet.all
        self.told: list[str] = []

    def watch(self, name: str = "x") -> object:
        return self.one.watch("agent", lambda: self.told.append(name))

    def test_told_once_by_news(self) -> None:
        self.one.routes("agent")
        self.watch("a")
        give_up = self.one.watch("agent", lambda: self.told.append("b"))
        self.watch("c")
        give_up()
        self.two.connected(record("other"))
        self.assertEqual(self.told, [])
        self.two.connected(record())
        self.assertEqual(self.told, ["a", "c"])
        self.two.connected(record(generation=2))
        self.assertEqual(self.told, ["a", "c"])
        give_up()

    def test_told_when_nobody_asked_before(self) -> None:
        self.watch()
        self.two.connected(record())
        self.assertEqual(self.told, ["x"])
        self.assertEqual(list(self.one.routes("agent")), [record()])

    def test_told_by_a_look_up(self) -> None:
        self.two.connected(record())
        self.fleet.hub.held = []
        self.one.routes("agent")
        self.watch()
        self.fleet.hub.release()
        self.assertEqual(self.told, ["x"])

    def test_one_that_fails_does_not_harm_the_others(self) -> None:
        self.one.watch("agent", lambda: 1 / 0)  # type: ignore[arg-type]
        self.watch()
        self.two.connected(record())
        self.assertEqual(self.told, ["x"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_what_was_missed_is_found_after_the_gap(self) -> None:
        self.one.routes("agent")
        self.watch()
        self.one.listening(False)
        self.fleet.hub.records["agent", b"i", kas(2).kas_id] = record()
        self.fleet.clock.advance(LOOK_INTERVAL)
        self.one.listening(True)
        passes(self.fleet.clock, POLL)
        self.assertEqual(self.told, ["x"])

    def test_no_timer_runs_on_while_news_come_in(self) -> None:
        self.one.routes("agent")
        self.watch()
        passes(self.fleet.clock, 3 * POLL)
        # Only the sweepers.
        self.assertEqual(len(self.fleet.clock.getDelayedCalls()), 2)
