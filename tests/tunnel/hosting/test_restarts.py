"""One module fails and starts again; the others do not notice."""

from __future__ import annotations

from twisted.internet import defer
from twisted.internet.defer import Deferred

from tests.tunnel.hosted import HostCase
from tunnel.hosting.modules import RESTART_FIRST, RESTART_MOST, STOP_TIMEOUT


class RestartTests(HostCase):
    """One fails, the others do not notice."""

    def setUp(self) -> None:
        super().setUp()
        # Each failure is in the log, with its traceback.
        self.addCleanup(self.flushLoggedErrors, ValueError, OSError)

    def wait(self) -> float:
        """Seconds until the module is made again."""
        (call,) = self.clock.getDelayedCalls()
        return call.getTime() - self.clock.seconds()

    def test_alone(self) -> None:
        """It is stopped, what it registered is taken back, and it is made again."""
        host = self.started("a", "b", "c")
        self.api("b").fail(ValueError("lost its database"))
        self.assertEqual(self.script.take(), ["release b", "stop b"])
        self.assertEqual(
            host.states, {"a": "running", "b": "restarting", "c": "running"}
        )
        self.clock.advance(RESTART_FIRST)
        self.assertEqual(self.script.take(), ["make b", "start b"])
        self.assertEqual(set(host.states.values()), {"running"})
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_backoff(self) -> None:
        """It doubles up to its bound, and half of it is jitter."""
        self.started("a")
        waits = []
        for _ in range(9):
            self.api("a").fail(ValueError("again"))
            waits.append(self.wait())
            self.clock.advance(waits[-1])
        self.assertEqual(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60])
        self.jitter = 0.0
        self.api("a").fail(ValueError("again"))
        self.assertEqual(self.wait(), RESTART_MOST / 2)

    def test_backoff_begins_anew(self) -> None:
        """Once it ran for as long as the longest wait."""
        self.started("a")
        for _ in range(4):
            self.api("a").fail(ValueError("again"))
            self.clock.advance(self.wait())
        self.clock.advance(RESTART_MOST + 1)
        self.api("a").fail(ValueError("again"))
        self.assertEqual(self.wait(), RESTART_FIRST)

    def test_restart_fails(self) -> None:
        """It is tried for ever, each time later, though it ran for long before."""
        host = self.started("a", "b")
        self.clock.advance(10 * RESTART_MOST)
        self.raises("make a", OSError("not yet"))
        self.api("a").fail(ValueError("gone"))
        waits = []
        for _ in range(5):
            waits.append(self.wait())
            self.clock.advance(waits[-1])
        self.assertEqual(waits, [1, 2, 4, 8, 16])
        self.assertEqual(host.states["a"], "restarting")
        self.script.take()
        del self.script.does["make a"]
        self.clock.advance(self.wait())
        self.assertEqual(self.script.take(), ["make a", "start a"])
        self.assertEqual(host.states["a"], "running")

    def test_half_made(self) -> None:
        """What a failed attempt registered does not stay."""
        self.started("a")
        self.raises("start a", OSError("not yet"))
        self.api("a").fail(ValueError("gone"))
        self.script.take()
        self.clock.advance(self.wait())
        self.assertEqual(
            self.script.take(), ["make a", "start a", "release a", "stop a"]
        )
        self.raises("make a", OSError("not even that"))
        self.clock.advance(self.wait())
        self.assertEqual(self.script.take(), ["make a", "release a"])

    def test_says_it_twice(self) -> None:
        """Failing more than once is one failure."""
        self.started("a")
        api = self.api("a")
        for _ in range(3):
            api.fail(ValueError("gone"))
        self.assertEqual(self.script.take(), ["release a", "stop a"])
        self.wait()

    def test_never_two_at_a_time(self) -> None:
        """The next one is not made before the last one has stopped."""
        stopped: Deferred[None] = Deferred()
        self.started("a")
        self.does("stop a", lambda: stopped)
        self.api("a").fail(ValueError("gone"))
        self.clock.advance(RESTART_FIRST * 3)
        self.assertNotIn("make a", self.script.take())
        stopped.callback(None)
        self.clock.advance(RESTART_FIRST)
        self.assertEqual(self.script.take(), ["make a", "start a"])

    def test_does_not_stop(self) -> None:
        """One that hangs while stopping is left behind."""
        self.started("a")
        self.does("stop a", lambda: Deferred())
        self.api("a").fail(ValueError("gone"))
        self.clock.advance(STOP_TIMEOUT)
        self.clock.advance(RESTART_FIRST)
        self.assertEqual(self.script.happened[-1], "start a")
        self.assertEqual(len(self.flushLoggedErrors(defer.TimeoutError)), 1)

    def test_told(self) -> None:
        """The log has type and traceback, and agentk is told for kas."""
        host = self.started("a")
        changes: list[dict[str, str]] = []
        host.on_changed = lambda: changes.append(host.problems)
        try:
            raise ValueError("gone\nfor good")
        except ValueError as error:
            self.api("a").fail(error)
        (logged,) = self.flushLoggedErrors(ValueError)
        self.assertIn("test_told", logged.getTraceback())
        self.clock.advance(RESTART_FIRST)
        self.assertEqual(changes, [{"a": "ValueError: gone for good"}, {}])

    def test_stop_meanwhile(self) -> None:
        """A module that waits for its restart stays as it is."""
        host = self.started("a", "b")
        self.api("a").fail(ValueError("gone"))
        self.script.take()
        self.successResultOf(Deferred.fromCoroutine(host.stop()))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertNotIn("stop a", self.script.take())
        self.api("b").fail(ValueError("too late"))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_waits_for_the_failed_one(self) -> None:
        """The program goes on once nothing of any module is left."""
        host = self.started("a")
        stopped: Deferred[None] = Deferred()
        self.does("stop a", lambda: stopped)
        self.api("a").fail(ValueError("gone"))
        stopping = Deferred.fromCoroutine(host.stop())
        self.assertNoResult(stopping)
        stopped.callback(None)
        self.successResultOf(stopping)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_while_it_starts_again(self) -> None:
        """No attempt follows the end."""
        host = self.started("a")
        self.does("start a", lambda: Deferred())
        self.api("a").fail(ValueError("gone"))
        self.clock.advance(RESTART_FIRST)
        self.successResultOf(Deferred.fromCoroutine(host.stop()))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.script.happened[-1], "stop a")

    def test_fails_while_it_starts_again(self) -> None:
        """`fail` during a restart counts as one."""
        self.started("a")
        self.does("start a", lambda: Deferred())
        self.api("a").fail(ValueError("gone"))
        self.clock.advance(RESTART_FIRST)
        self.api("a").fail(ValueError("still gone"))
        self.assertEqual(self.wait(), 2 * RESTART_FIRST)
