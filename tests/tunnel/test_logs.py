"""What the log looks like, for people and for machines."""

from __future__ import annotations

import io
import json
import shutil
import tempfile
from typing import Any

from twisted.application.service import Application, Service
from twisted.logger import ILogObserver, Logger, LogLevel
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tunnel.logs import MAX_FIELD, LogsItsOwnWay, observer


class Terminal(io.StringIO):
    """A file that is one."""

    def isatty(self) -> bool:
        return True


class LogTests(SynchronousTestCase):
    """Observers by their names."""

    def setUp(self) -> None:
        self.out = io.StringIO()

    def log(self, kind: str = "json", level: str = "info") -> Logger:
        return Logger("acme.part", observer=observer(kind, level, self.out))

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.getvalue().splitlines()]

    def test_json(self) -> None:
        """One flat object in a line, with the plain fields of the event."""
        self.log().info(
            "agent {agent} came with {things}",
            agent="ünïcode",
            count=3,
            up=True,
            things=["a", "list"],
        )
        (line,) = self.lines()
        self.assertTrue(line.pop("time").endswith("+00:00"))
        self.assertEqual(
            line,
            {
                "level": "info",
                "logger": "acme.part",
                "message": "agent ünïcode came with ['a', 'list']",
                "agent": "ünïcode",
                "count": 3,
                "up": True,
            },
        )

    def test_one_line_each(self) -> None:
        """Whatever a peer puts into a text, it forges no second line."""
        self.log().warn("{peer}", peer='x"}\n{"level": "forged"}')
        (line,) = self.lines()
        self.assertEqual(line["level"], "warn")

    def test_fields_do_not_replace_ours(self) -> None:
        """A field named as one of our own does not hide it."""
        self.log().error("real", logger="forged", time="forged")
        (line,) = self.lines()
        self.assertEqual((line["level"], line["logger"]), ("error", "acme.part"))
        self.assertTrue(line["time"].endswith("+00:00"))

    def test_failure(self) -> None:
        """The traceback is a field."""
        try:
            raise ZeroDivisionError("by zero")
        except ZeroDivisionError:
            self.log().failure("it broke", Failure())
        (line,) = self.lines()
        self.assertEqual((line["level"], line["message"]), ("critical", "it broke"))
        self.assertIn("ZeroDivisionError: by zero", line["traceback"])

    def test_long_fields(self) -> None:
        """They are cut: a log is no place for payloads."""
        self.log().info("{text}", text="x" * 10 * MAX_FIELD)
        (line,) = self.lines()
        self.assertEqual(len(line["text"]), MAX_FIELD)
        self.assertEqual(len(line["message"]), 4 * MAX_FIELD)

    def test_levels(self) -> None:
        """Less important events are not written."""
        log = self.log(level="warn")
        for level in (LogLevel.debug, LogLevel.info, LogLevel.warn, LogLevel.critical):
            log.emit(level, "x")
        self.assertEqual([e["level"] for e in self.lines()], ["warn", "critical"])

    def test_text(self) -> None:
        """For people."""
        self.log("text").info("hello {name}", name="world")
        self.assertIn("[acme.part#info] hello world\n", self.out.getvalue())

    def test_auto(self) -> None:
        """Text on a terminal, JSON elsewhere."""
        self.log("auto").info("hello")
        self.assertEqual(self.lines()[0]["message"], "hello")
        self.out = Terminal()
        self.log("auto").info("hello")
        self.assertIn("#info] hello", self.out.getvalue())


class Logging(LogsItsOwnWay, Service):
    """A service that brings its observer."""


class LogsItsOwnWayTests(SynchronousTestCase):
    """How the observer reaches twistd."""

    def test_application(self) -> None:
        """It becomes that of the application, where twistd looks for one."""
        service = Logging()
        service.log_observer = observer("json", "info", io.StringIO())
        application = Application("kas")
        service.setServiceParent(application)
        self.assertIs(ILogObserver(application), service.log_observer)

    def test_other_parents(self) -> None:
        """As part of something else the service leaves the log alone."""
        from twisted.application.service import MultiService

        parent, service = MultiService(), Logging()
        service.setServiceParent(parent)
        self.assertIn(service, list(parent))


class LogAsToldTests(SynchronousTestCase):
    """When the log is ours to write, and when it is twistd's."""

    def chosen(self, kind: str, **options: object) -> object:
        service = LogsItsOwnWay()
        service.log_as_told(options, kind, "info")
        return service.log_observer

    def test_foreground(self) -> None:
        """Ours, on standard output."""
        self.assertIsNotNone(self.chosen("auto", nodaemon=1, logfile=None))

    def test_background_and_files_are_twistds(self) -> None:
        """It knows where to write, and how to rotate."""
        self.assertIsNone(self.chosen("auto", nodaemon=0, logfile=None))
        self.assertIsNone(self.chosen("text", nodaemon=1, logfile="kas.log"))
        self.assertIsNone(self.chosen("auto", nodaemon=1, syslog=1))

    def test_json_goes_into_the_file(self) -> None:
        """When it was told, wherever the log is."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        path = f"{folder}/log"
        chosen: Any = self.chosen("json", nodaemon=0, logfile=path)
        event = {"log_format": "hello", "log_level": LogLevel.info, "log_time": 0.0}
        chosen({**event, "log_namespace": "test"})
        with open(path) as written:
            self.assertEqual(json.loads(written.read())["message"], "hello")
