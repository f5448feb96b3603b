"""PINGs of clients wait for the API server to be done."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from modules.kubernetes_api.heartbeats import (
    LONGEST,
    MAX_HELD,
    QUIET,
    Heartbeats,
    is_ping,
)

WEBSOCKET = b"\x89\x80" + bytes.fromhex("9c01e7a3")
SPDY = bytes.fromhex("80030006 00000004 00000001")


@pytest.mark.parametrize(
    "data",
    [
        WEBSOCKET,
        b"\x89\xfd" + bytes(4) + bytes(125),
        SPDY,
    ],
)
def test_pings(data: bytes) -> None:
    assert is_ping(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x89",
        b"\x89\x00",  # not masked: no client's
        WEBSOCKET + b"\x82",  # more behind it
        b"\x82\x80" + bytes(4),  # of another kind
        b"\x09\x80" + bytes(4),  # not all of it
        b"\x89\xfe\x00\x7e" + bytes(4) + bytes(126),  # longer than a PING may be
        SPDY + b"\x00",
        SPDY[:11],
        bytes.fromhex("80030007 00000004 00000001"),
        b"ls -l\r",
    ],
)
def test_others(data: bytes) -> None:
    assert not is_ping(data)


class HeartbeatsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.sent = b""
        self.heartbeats = Heartbeats(self.clock, self.write)

    def write(self, data: bytes) -> None:
        self.sent += data

    def speak(self, seconds: float) -> None:
        """The server sends for a while."""
        for _ in range(round(seconds / (QUIET / 2))):
            self.heartbeats.server_spoke()
            self.clock.advance(QUIET / 2)

    def test_quiet(self) -> None:
        """Where nothing comes they pass at once."""
        self.clock.advance(QUIET)
        self.heartbeats.from_client(WEBSOCKET)
        self.assertEqual(self.sent, WEBSOCKET)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_server_speaks(self) -> None:
        """They wait until it is done."""
        self.heartbeats.server_spoke()
        self.heartbeats.from_client(WEBSOCKET)
        self.speak(5)
        self.heartbeats.from_client(SPDY)
        self.speak(5)
        self.assertEqual(self.sent, b"")
        self.clock.advance(QUIET)
        self.assertEqual(self.sent, WEBSOCKET + SPDY)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_paused(self) -> None:
        """A server that is not read has not said all it has."""
        self.heartbeats.paused = True
        self.heartbeats.from_client(WEBSOCKET)
        self.clock.pump([QUIET] * 5)
        self.assertEqual(self.sent, b"")
        self.heartbeats.paused = False
        self.heartbeats.server_spoke()
        self.speak(QUIET)
        self.clock.pump([QUIET] * 2)
        self.assertEqual(self.sent, WEBSOCKET)

    def test_not_for_ever(self) -> None:
        """The client gives up without an answer."""
        self.heartbeats.server_spoke()
        self.heartbeats.from_client(WEBSOCKET)
        self.speak(LONGEST - QUIET)
        self.assertEqual(self.sent, b"")
        self.speak(2 * QUIET)
        self.assertEqual(self.sent, WEBSOCKET)

    def test_order(self) -> None:
        """What is no PING passes at once, and not before those it came after."""
        self.heartbeats.server_spoke()
        self.heartbeats.from_client(WEBSOCKET)
        self.heartbeats.from_client(b"\x03")
        self.assertEqual(self.sent, WEBSOCKET + b"\x03")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_too_many(self) -> None:
        """A flood of them is none of our business."""
        self.heartbeats.server_spoke()
        flood = b""
        while len(flood) <= MAX_HELD:
            flood += WEBSOCKET
            self.heartbeats.from_client(WEBSOCKET)
        self.assertEqual(self.sent, flood)

    def test_the_end(self) -> None:
        """Nobody waits for an answer after it."""
        self.heartbeats.server_spoke()
        self.heartbeats.from_client(WEBSOCKET)
        self.heartbeats.stop()
        self.assertEqual((self.sent, self.clock.getDelayedCalls()), (b"", []))
