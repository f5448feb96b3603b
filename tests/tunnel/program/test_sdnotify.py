"""What systemd is told."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tunnel.program import sdnotify
from tunnel.program.parts import Phase


class NotifyTests(SynchronousTestCase):
    """The datagram to ``$NOTIFY_SOCKET``."""

    def listen(self, address: str) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(sock.close)
        sock.settimeout(5)
        sock.bind(address)
        return sock

    def point_to(self, address: str) -> None:
        self.patch(os, "environ", {"NOTIFY_SOCKET": address})

    def test_path(self) -> None:
        """A socket in the file system."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = str(Path(folder.name, "notify"))
        sock = self.listen(path)
        self.point_to(path)
        self.assertTrue(sdnotify.notify("READY=1"))
        self.assertEqual(sock.recv(100), b"READY=1")

    def test_abstract(self) -> None:
        """One that has no file; systemd writes an ``@`` for its first byte."""
        name = f"txkas-test-{os.getpid()}"
        sock = self.listen(f"\0{name}")
        self.point_to(f"@{name}")
        self.assertTrue(sdnotify.notify("STOPPING=1"))
        self.assertEqual(sock.recv(100), b"STOPPING=1")

    def test_nobody_listens(self) -> None:
        """The service itself works without."""
        self.point_to("/nowhere/at/all")
        self.assertFalse(sdnotify.notify("READY=1"))

    def test_no_systemd(self) -> None:
        """Without the variable nothing is sent."""
        self.patch(os, "environ", {})
        self.assertFalse(sdnotify.notify("READY=1"))


class WatchdogTests(SynchronousTestCase):
    """How often systemd wants to hear of us."""

    def interval(self, **variables: str) -> float | None:
        self.patch(os, "environ", variables)
        return sdnotify.watchdog_interval()

    def test_on(self) -> None:
        """Twice as often as it asks for."""
        self.assertEqual(self.interval(WATCHDOG_USEC="30000000"), 15.0)
        own = str(os.getpid())
        self.assertEqual(self.interval(WATCHDOG_USEC="3000000", WATCHDOG_PID=own), 1.5)

    def test_off(self) -> None:
        """Not set, meant for another process, or no number."""
        self.assertIsNone(self.interval())
        self.assertIsNone(self.interval(WATCHDOG_USEC="1000000", WATCHDOG_PID="1"))
        self.assertIsNone(self.interval(WATCHDOG_USEC="soon"))

    def test_until_the_end(self) -> None:
        """Nothing is sent after a stop, not even where the start was not over."""
        clock = Clock()
        told: list[str] = []
        self.patch(sdnotify, "notify", told.append)
        self.patch(os, "environ", {"WATCHDOG_USEC": "30000000"})
        watchdog, late = sdnotify.Watchdog(clock), sdnotify.Watchdog(clock)
        watchdog.start()
        clock.advance(15)
        self.assertEqual(told, ["WATCHDOG=1"] * 2)
        for one in (watchdog, late):
            one.stop()
        late.start()
        self.assertEqual((clock.getDelayedCalls(), len(told)), ([], 2))

    def test_stopping(self) -> None:
        """systemd learns of the end when it begins, and hears nothing after it."""
        clock = Clock()
        told: list[str] = []
        self.patch(sdnotify, "notify", told.append)
        self.patch(os, "environ", {"WATCHDOG_USEC": "30000000"})
        watchdog = sdnotify.Watchdog(clock)
        watchdog.start()
        for phase in Phase:
            watchdog.drain(phase)
        watchdog.stop()
        self.assertEqual(told, ["WATCHDOG=1", "STOPPING=1"])
        self.assertEqual(clock.getDelayedCalls(), [])
