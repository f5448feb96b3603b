"""What the log looks like, for people and for machines."""

from __future__ import annotations

import io
import json
import os
import pty
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from twisted.application.service import Application, Service
from twisted.logger import ILogObserver, Logger, LogLevel
from twisted.python import syslog
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tunnel.errors import ConfigurationError
from tunnel.program.logs import MAX_FIELD, LoggingService, log_levels, observer


class LogTests(SynchronousTestCase):
    """Observers by their names."""

    def setUp(self) -> None:
        self.out = io.StringIO()

    def log(self, kind: str = "json", level: str = "info") -> Logger:
        chosen = observer(kind, log_levels(level), self.out.write)
        return Logger("acme.part", observer=chosen)

    def observer(self, kind: str) -> ILogObserver:
        return observer(kind, log_levels("info"), self.out.write)

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

    def test_fields_of_every_line(self) -> None:
        """Which worker says something is in each line, of whatever form."""
        for kind in ("json", "text"):
            chosen = observer(kind, log_levels("info"), self.out.write, {"worker": 2})
            log = Logger("acme.part", observer=chosen)
            log.info("{what}\nmore", what="it is up")
        json_line, text, more = self.out.getvalue().splitlines()
        self.assertEqual(json.loads(json_line)["worker"], 2)
        self.assertTrue(text.endswith(" [worker 2 acme.part#info] it is up"), text)
        self.assertEqual(more.strip(), "more")

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

    def test_twisteds_own(self) -> None:
        """Without full stops, and without what its factories do."""
        for kind in ("json", "text"):
            said = Logger("twisted.application.app", observer=self.observer(kind))
            said.info("Server Shut Down.")
            said.info("<object> starting on 8150")
            said.info("Starting factory <_HTTP11ClientFactory>")
            said.info("Stopping factory <_HTTP11ClientFactory>")
            legacy = Logger("log_legacy", observer=self.observer(kind))
            legacy.info("{log_text}", log_text="LayerFactory starting on 8150")
            legacy.info("{log_text}", log_text="(TCP Port 8150 Closed)")
            legacy.info("{log_text}", log_text="Main loop terminated.")
            Logger("kas", observer=self.observer(kind)).info("work is starting on 1.")
        said_lines = self.out.getvalue().splitlines()
        self.assertEqual(len(said_lines), 6)
        for line in said_lines[0], said_lines[1], said_lines[3], said_lines[4]:
            self.assertRegex(line, r"(Server Shut Down|Main loop terminated)($|\")")
        self.assertIn("work is starting on 1.", said_lines[5])


class Logging(LoggingService, Service):
    """A service that brings its observer."""


class LogsItsOwnWayTests(SynchronousTestCase):
    """How the observer reaches twistd."""

    def test_application(self) -> None:
        """It becomes that of the application, where twistd looks for one."""
        service = Logging()
        service.log_observer = observer("json", log_levels("info"), io.StringIO().write)
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
    """Where the log goes, in which form, and which events."""

    def setUp(self) -> None:
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        self.path = Path(folder) / "log"

    def told(self, kind: str, level: str = "info", **options: object) -> LoggingService:
        service = LoggingService()
        service.log_as_told(options, kind, level)
        return service

    def written(self, kind: str, level: str = "info", **options: Any) -> str:
        service = self.told(kind, level, logfile=str(self.path), **options)
        for name in LogLevel.debug, LogLevel.info:
            Logger("test", observer=service.log_observer).emit(name, f"at {name.name}")
        return self.path.read_text()

    def test_level(self) -> None:
        """Honoured wherever the log goes: in the background, and in files."""
        options: dict[str, Any]
        for options in ({"nodaemon": 0}, {"nodaemon": 1}):
            for kind in ("text", "json", "auto"):
                self.path.unlink(missing_ok=True)
                self.assertNotIn("at debug", self.written(kind, "info", **options))
                self.assertIn("at info", self.path.read_text())
        self.assertIn("at debug", self.written("text", "debug", nodaemon=1))

    def test_forms(self) -> None:
        """JSON in a file when it was told; text otherwise."""
        line = self.written("json", nodaemon=0)
        self.assertEqual(json.loads(line)["message"], "at info")
        self.path.unlink()
        self.assertIn("[test#info] at info\n", self.written("auto", nodaemon=0))

    def test_standard_output(self) -> None:
        """Text on a terminal, JSON elsewhere."""
        controller, terminal = pty.openpty()
        self.addCleanup(os.close, controller)
        for descriptor, form in ((terminal, "#info] hello"), (None, '"hello"')):
            if descriptor is None:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT)
                controller = os.open(self.path, os.O_RDONLY)
                self.addCleanup(os.close, controller)
            with open(descriptor, "w") as out:
                self.patch(sys, "stdout", out)
                service = self.told("auto", nodaemon=1)
                Logger("test", observer=service.log_observer).info("hello")
                self.assertIn(form, os.read(controller, 1000).decode())

    def test_closed_output(self) -> None:
        """A program that was started with it closed has no log, and runs."""
        self.patch(sys, "stdout", None)
        service = self.told("auto", nodaemon=1)
        Logger("test", observer=service.log_observer).info("hello")
        self.assertEqual(service.dropped_lines, 0)

    def test_unwritable_file(self) -> None:
        """A line with what to do."""
        path = str(self.path / "nowhere")
        error = self.assertRaises(
            ConfigurationError, self.told, "auto", nodaemon=1, logfile=path
        )
        self.assertIn(f"--logfile: cannot write {path} (No such", str(error))

    def test_another_runner(self) -> None:
        """It has a log of its own."""
        self.assertIsNone(self.told("json").log_observer)

    def test_syslog(self) -> None:
        """The level counts there, too."""
        said: list[Any] = []

        class Syslog:
            def __init__(self, prefix: str) -> None:
                said.append(prefix)

            def emit(self, event: Any) -> None:
                said.append(event["log_format"])

        self.patch(syslog, "SyslogObserver", Syslog)
        service = self.told("auto", syslog=1, nodaemon=0, prefix="kas")
        log = Logger("test", observer=service.log_observer)
        log.debug("less")
        log.info("more")
        self.assertEqual(said, ["kas", "more"])
