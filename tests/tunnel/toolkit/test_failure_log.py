"""Lines of errors that clients saw."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tunnel.toolkit.failure_log import MAX_LINES, MAX_MESSAGE, FailureLog


class FailureLogTests(SynchronousTestCase):
    """What the log has of them."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.log = FailureLog(self.clock)
        self.seen = 0
        self.events = EventLoggingObserver()
        globalLogPublisher.addObserver(self.events)
        self.addCleanup(globalLogPublisher.removeObserver, self.events)

    def lines(self) -> list[str]:
        """Those since the last call."""
        lines = [formatEvent(one) for one in self.events][self.seen :]
        self.seen += len(lines)
        return lines

    def test_one(self) -> None:
        """The client and the log have the same id."""
        told = self.log.report("no\nroute", "abc", ours=True, status=502)
        self.assertEqual(told, "no\nroute [trace abc]")
        (event,) = self.events
        self.assertEqual(formatEvent(event), "no?route [trace abc]")
        self.assertEqual(
            (event["log_level"], event["trace_id"], event["status"]),
            (LogLevel.warn, "abc", 502),
        )

    def test_of_clients(self) -> None:
        """Those are no warnings, and their texts are cut."""
        self.log.report("x" * (MAX_MESSAGE + 1), "abc", ours=False)
        (event,) = self.events
        self.assertEqual(event["log_level"], LogLevel.info)
        self.assertEqual(formatEvent(event), "x" * MAX_MESSAGE + " [trace abc]")

    def test_flood(self) -> None:
        """Clients are told more than the log, which says how many it left out."""
        for _ in range(MAX_LINES + 3):
            self.assertIn("[trace a]", self.log.report("bad", "a", ours=False))
        self.assertEqual(len(self.lines()), MAX_LINES)
        # That hides no error of ours.
        self.log.report("bad", "b", ours=True)
        self.assertEqual(len(self.lines()), 1)
        self.clock.advance(1)
        self.log.report("bad", "c", ours=False)
        dropped, line = self.lines()
        self.assertTrue(dropped.startswith("3 errors that clients received are not"))
        self.assertEqual(line, "bad [trace c]")
