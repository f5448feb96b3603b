"""Ports: why one cannot be had, whose TLS failed, and whose certificate expires."""

from __future__ import annotations

import errno
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.address import IPv4Address
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import (
    EventLoggingObserver,
    MemoryReactorClock,
    StringTransport,
)
from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.tunnel.transport.certificates import authority
from tunnel.config import Listen
from tunnel.errors import ConfigurationError
from tunnel.program.handshakes import INTERVAL
from tunnel.program.listening import EXPIRY_INTERVAL, Listening
from tunnel.program.process_metrics import register_process_metrics
from tunnel.transport.tls import HANDSHAKE_LABELS

_END = datetime(2031, 5, 6, 7, 8, tzinfo=UTC)


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.reactor: Any = MemoryReactorClock()
        self.day = _END - timedelta(days=30)
        self.listening = Listening(
            self.reactor, program="agentk", now=lambda: self.day.timestamp()
        )
        case: Any = self
        self.log = EventLoggingObserver.createWithCleanup(case, globalLogPublisher)

    def warnings(self) -> list[str]:
        return [
            event["log_format"].format(**event)
            for event in self.log
            if event["log_level"] is LogLevel.warn
        ]

    def listen(self, **more: Any) -> Any:
        listening = self.listening.listen(
            Listen(address=":8080", **more),
            Factory.forProtocol(Protocol),
            what="health",
            setting="--address",
        )
        try:
            listening.send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("it waits")

    def listen_tls(self) -> Any:
        files = authority().issue("localhost", end=_END).write(self.folder, "own")
        certificate, key = map(Path, files)
        self.listen(certificate_file=certificate, key_file=key)
        return self.reactor.tcpServers[-1][1]

    def metrics(self) -> str:
        from tunnel.program.site import exposition

        registry = CollectorRegistry()
        register_process_metrics(registry, "agentk", self.listening, lambda: 7)
        return exposition(registry).body.decode()


class RefusedTests(_Case):
    """A port that cannot be had: why, and what to change."""

    def refused(self, code: int) -> str:
        def refuse(*arguments: Any, **more: Any) -> Any:
            raise CannotListenError("", 8080, OSError(code, "text"))

        self.reactor.listenTCP = refuse
        error = self.assertRaises(ConfigurationError, self.listen)
        return str(error)

    def test_in_use(self) -> None:
        """By another one of ours, perhaps."""
        self.assertEqual(
            self.refused(errno.EADDRINUSE),
            (
                "cannot listen for health: port 8080 is in use (by another agentk?); "
                "choose another with --address"
            ),
        )

    def test_in_use_by_another_worker(self) -> None:
        """A module asks each of them for a port that is in no section."""
        self.listening.handed = {"agent.listen": 7}
        self.assertIn(
            "or by another worker of this one", self.refused(errno.EADDRINUSE)
        )

    def test_others(self) -> None:
        """No address of ours, no right to it, anything else."""
        for code, text in (
            (errno.EADDRNOTAVAIL, "port 8080 is not an address of this machine"),
            (errno.EACCES, "port 8080 may not be used by this user"),
            (errno.EMFILE, "port 8080: Too many open files"),
        ):
            self.assertIn(f"health: {text}; choose", self.refused(code))


class HandshakeTests(_Case):
    """Clients that do not get through TLS."""

    def fail(self, factory: Any, said: bytes) -> None:  # type: ignore[override]
        one = factory.buildProtocol(IPv4Address("TCP", "192.0.2.3", 4))
        address = IPv4Address("TCP", "192.0.2.3", 4)
        one.makeConnection(StringTransport(peerAddress=address))
        one.dataReceived(said)

    def test_told_once_a_minute(self) -> None:
        """The first at once, those of the next minute together."""
        factory = self.listen_tls()
        self.fail(factory, b"GET / HTTP/1.1\r\n\r\n")
        (first,) = self.warnings()
        self.assertTrue(
            first.startswith(
                "a TLS handshake of health with 192.0.2.3:4 failed: the peer does not "
                "use TLS here"
            ),
            first,
        )
        for _ in range(5):
            self.fail(factory, b"nonsense" * 10)
        self.reactor.advance(INTERVAL - 1)
        self.assertEqual(len(self.warnings()), 1)
        self.reactor.advance(1)
        (_, second) = self.warnings()
        self.assertTrue(
            second.startswith(
                "5 TLS handshakes of health failed; the last, with 192.0.2.3:4: "
            ),
            second,
        )
        self.reactor.advance(10 * INTERVAL)
        self.assertEqual(len(self.warnings()), 2)

    def test_counted(self) -> None:
        """By a label of a fixed set, each there from the start."""
        factory = self.listen_tls()
        name = "agentk_tls_handshake_failures_total"
        for label in HANDSHAKE_LABELS:
            line = f'{name}{{listener="health",reason="{label}"}} 0.0'
            self.assertIn(line, self.metrics())
        self.fail(factory, b"GET / HTTP/1.1\r\n\r\n")
        line = f'{name}{{listener="health",reason="not-tls"}} 1.0'
        self.assertIn(line, self.metrics())

    def test_port_checks(self) -> None:
        """What only connects is counted, and worth no line."""
        factory = self.listen_tls()
        one = factory.buildProtocol(IPv4Address("TCP", "192.0.2.3", 4))
        one.makeConnection(StringTransport())
        one.readConnectionLost()
        self.assertEqual(self.listening.handshakes["health"].counts["closed"], 1)
        self.assertEqual(self.warnings(), [])


class ExpiryTests(_Case):
    """Certificates that files name."""

    def test_told(self) -> None:
        """At the start, and each day from two weeks before the end."""
        self.listen_tls()
        self.assertEqual(self.warnings(), [])
        for days in (20, 10, -1):
            self.day = _END - timedelta(days=days)
            self.reactor.advance(EXPIRY_INTERVAL)
        soon, expired = self.warnings()
        self.assertIn("expires on 2031-05-06 07:08 UTC, in 10 days; replace", soon)
        self.assertIn("expired on 2031-05-06", expired)
        self.listen_tls()
        self.assertEqual(len(self.warnings()), 3)

    def test_metric(self) -> None:
        """Seconds that are left."""
        self.listen_tls()
        line = 'agentk_certificate_expiry_seconds{for="health"} '
        self.assertIn(f"{line}2.592e+06", self.metrics())
        self.day = _END + timedelta(seconds=5)
        self.assertIn(f"{line}-5.0", self.metrics())

    def test_as_a_client(self) -> None:
        """A certificate that we show to others is looked at as well."""
        files = authority().issue("kas", end=_END).write(self.folder, "client")
        self.day = _END - timedelta(days=3)
        self.listening.follow("redis", Path(files[0]))
        (soon,) = self.warnings()
        self.assertIn("in 3 days", soon)
        line = 'agentk_certificate_expiry_seconds{for="redis"} 259200.0'
        self.assertIn(line, self.metrics())
        Path(files[0]).unlink()
        self.assertNotIn('for="redis"', self.metrics())

    def test_nothing_is_left(self) -> None:
        """No timer, once the ports are closed."""
        factory = self.listen_tls()
        HandshakeTests.fail(self, factory, b"nonsense" * 10)  # type: ignore[arg-type]
        closing = self.listening.stop()
        self.reactor.tcpServers.clear()
        with self.assertRaises(StopIteration):
            closing.send(None)
        timers = [call.time for call in self.reactor.getDelayedCalls()]
        # That of the handshake itself.
        self.assertLessEqual(len(timers), 1)


class ProgramTests(_Case):
    """What both programs say of themselves."""

    def test_metrics(self) -> None:
        """Version, process, and the log."""
        text = self.metrics()
        for name in (
            "agentk_build_info{build=",
            "process_resident_memory_bytes ",
            "process_open_fds ",
            "process_cpu_seconds_total ",
            "agentk_log_lines_dropped_total 7.0",
        ):
            self.assertIn(f"\n{name}", text)
