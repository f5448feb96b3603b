"""PINGs inside an upgraded connection: answered here, or passed on; never lost."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from modules.kubernetes_api.heartbeats import (
    LOOK,
    MAX_FRAMES,
    MAX_UNREAD,
    QUIET,
    Heartbeats,
)

MASK = bytes.fromhex("9c01e7a3")


def websocket(opcode: int, payload: bytes, mask: bytes = b"") -> bytes:
    """One frame, as a client sends it where there is a mask."""
    size = len(payload)
    flag = 0x80 if mask else 0
    if size < 126:
        head = bytes((0x80 | opcode, flag | size))
    elif size < 1 << 16:
        head = bytes((0x80 | opcode, flag | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, flag | 127)) + size.to_bytes(8, "big")
    if mask:
        payload = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    return head + mask + payload


def spdy(number: int) -> bytes:
    """A PING."""
    return bytes.fromhex("80030006 00000004") + number.to_bytes(4, "big")


def spdy_data(payload: bytes) -> bytes:
    return b"\x00\x00\x00\x01\x00" + len(payload).to_bytes(3, "big") + payload


PING = websocket(9, b"now", MASK)
PONG = websocket(10, b"now")
OUTPUT = websocket(2, b"\x01" + b"o" * 40_000)


class Ends:
    """A client, a server, and what is between them."""

    def __init__(self, protocol: bytes = b"websocket") -> None:
        self.clock = Clock()
        self.sent = b""
        self.received = b""
        self.answer_paused = False
        self.answer_resumed_at = 0.0
        self.heartbeats = Heartbeats(
            protocol, self.clock, self._to_server, self._to_client, self
        )

    def _to_server(self, data: bytes) -> None:
        assert data
        self.sent += data

    def _to_client(self, data: bytes) -> None:
        assert data
        self.received += data

    def pause(self) -> None:
        self.answer_paused = True

    def resume(self) -> None:
        self.answer_paused = False
        self.answer_resumed_at = self.clock.seconds()


class HeartbeatsTests(SynchronousTestCase):
    """`Heartbeats`."""

    def test_quiet(self) -> None:
        """Where nothing flows a PING goes on: for the server, and all on the way."""
        for protocol, ping in ((b"websocket", PING), (b"SPDY/3.1", spdy(1))):
            ends = Ends(protocol)
            ends.clock.advance(QUIET)
            ends.heartbeats.from_client(ping)
            self.assertEqual((ends.sent, ends.received), (b"", b""))
            ends.clock.advance(LOOK)
            self.assertEqual((ends.sent, ends.received), (ping, b""))
            ends.heartbeats.from_client(ping)
            ends.heartbeats.from_client(ping + ping)
            self.assertEqual((ends.sent, ends.received), (ping * 3, b""))
            ends.heartbeats.stop()
            self.assertEqual(ends.clock.getDelayedCalls(), [])

    def test_seemed_quiet(self) -> None:
        """A process that was stopped reads the server's bytes behind the PING."""
        ends = Ends()
        ends.clock.advance(QUIET)
        ends.heartbeats.from_client(PING)
        ends.heartbeats.from_server(OUTPUT)
        ends.clock.advance(LOOK)
        self.assertEqual((ends.sent, ends.received), (b"", OUTPUT + PONG))

    def test_last_one(self) -> None:
        """At the half-close of the client it goes on."""
        ends = Ends()
        ends.clock.advance(QUIET)
        ends.heartbeats.from_client(PING + PING[:3])
        ends.heartbeats.client_finished()
        self.assertEqual((ends.sent, ends.received), (PING + PING[:3], b""))
        self.assertEqual(ends.clock.getDelayedCalls(), [])

    def test_busy(self) -> None:
        """While output flows it is answered at once, and no byte reaches the server."""
        for protocol, ping, pong in (
            (b"WebSocket", PING, PONG),
            (b"SPDY/3.1", spdy(3), spdy(3)),
        ):
            ends = Ends(protocol)
            ends.heartbeats.from_client(ping)
            self.assertEqual((ends.sent, ends.received), (b"", pong))

    def test_within_a_frame(self) -> None:
        """A PONG stands between two frames of the output; the newest is enough."""
        ends = Ends()
        ends.heartbeats.from_server(OUTPUT[:1000])
        ends.heartbeats.from_client(websocket(9, b"old", MASK) + PING)
        self.assertEqual(ends.received, OUTPUT[:1000])
        ends.heartbeats.from_server(OUTPUT[1000:2000])
        ends.heartbeats.from_server(OUTPUT[2000:] + OUTPUT[:5])
        self.assertEqual(ends.received, OUTPUT + PONG + OUTPUT[:5])
        self.assertEqual(ends.sent, b"")

    def test_client_that_reads_nothing(self) -> None:
        """It gets a few answers, and fills no memory."""
        ends = Ends()
        ends.clock.advance(QUIET)
        ends.pause()
        for _ in range(1000):
            ends.heartbeats.from_client(PING)
        self.assertEqual(ends.received, PONG * MAX_UNREAD)
        self.assertEqual(ends.sent, b"")
        ends.resume()
        ends.heartbeats.from_client(PING)
        self.assertEqual(ends.received, PONG * (MAX_UNREAD + 1))

    def test_what_only_begins_like_one(self) -> None:
        """At the half-close of the client, bytes that look like a PING go on."""
        for protocol, ping in ((b"websocket", PING), (b"spdy/3.1", spdy(1))):
            for size in range(1, len(ping)):
                ends = Ends(protocol)
                ends.heartbeats.from_client(ping[:size])
                ends.heartbeats.client_finished()
                ends.heartbeats.client_finished()
                self.assertEqual(ends.sent, ping[:size])

    def test_ping_in_data(self) -> None:
        """What looks like a PING inside a frame is data."""
        for protocol, data in (
            (b"websocket", websocket(2, PING * 60, MASK)),
            (b"spdy/3.1", spdy_data(spdy(1) * 60)),
        ):
            ends = Ends(protocol)
            for at in range(len(data)):
                ends.heartbeats.from_client(data[at : at + 1])
            self.assertEqual((ends.sent, ends.received), (data, b""))

    def test_answers_to_the_server(self) -> None:
        """What answers a PING of the server goes there."""
        for protocol, answer in (
            (b"websocket", websocket(10, b"x", MASK)),
            (b"spdy/3.1", spdy(2)),
        ):
            ends = Ends(protocol)
            ends.heartbeats.from_client(answer)
            self.assertEqual((ends.sent, ends.received), (answer, b""))

    def test_other_protocols(self) -> None:
        """Nothing is read in what is not known."""
        ends = Ends(b"h3")
        ends.heartbeats.from_client(PING)
        ends.heartbeats.from_server(OUTPUT)
        self.assertEqual((ends.sent, ends.received), (PING, OUTPUT))

    def test_flood_of_small_frames(self) -> None:
        """All of it passes, in order; following it ends before it costs much."""
        for protocol, frame in (
            (b"websocket", b"\x82\x00"),
            (b"websocket", websocket(2, b"", MASK)),
            (b"spdy/3.1", spdy_data(b"")),
        ):
            flood = frame * (2 * MAX_FRAMES)
            ends = Ends(protocol)
            ends.heartbeats.from_client(PING[:3])
            ends.heartbeats.from_server(flood)
            ends.heartbeats.from_client(PING[3:])
            self.assertEqual((ends.received, ends.sent), (flood, PING))
            ends = Ends(protocol)
            ends.heartbeats.from_client(flood)
            self.assertEqual((ends.received, ends.sent), (b"", flood))
            ends.heartbeats.from_client(PING)
            self.assertEqual((ends.received, ends.sent), (b"", flood + PING))

    def test_flood_of_pings(self) -> None:
        """Few are answered, the rest is the server's."""
        ends = Ends()
        ends.heartbeats.from_client(PING * (2 * MAX_FRAMES))
        answered = len(ends.received) // len(PONG)
        self.assertEqual(answered, MAX_FRAMES)
        self.assertEqual(ends.sent, PING * MAX_FRAMES)

    def test_each_pause_has_its_answers(self) -> None:
        """A client that went on reading meanwhile gets as many again."""
        ends = Ends()
        for _ in range(2):
            ends.pause()
            ends.heartbeats.from_client(PING * (MAX_UNREAD + 1))
            ends.clock.advance(QUIET)
            ends.resume()
        self.assertEqual(ends.received, PONG * (2 * MAX_UNREAD))

    def test_client_went_on(self) -> None:
        """What it had not read before is no silence of the server."""
        ends = Ends()
        ends.pause()
        ends.clock.advance(10 * QUIET)
        ends.resume()
        ends.clock.advance(QUIET / 2)
        ends.heartbeats.from_client(PING)
        self.assertEqual((ends.sent, ends.received), (b"", PONG))
        ends.clock.advance(QUIET)
        ends.heartbeats.from_client(PING)
        ends.clock.advance(LOOK)
        self.assertEqual((ends.sent, ends.received), (PING, PONG))


FRAMES = {
    b"websocket": [PING, websocket(2, b"\x00ls", MASK), websocket(2, b"y" * 300, MASK)],
    b"spdy/3.1": [spdy(1), spdy_data(b"ls"), spdy_data(b""), spdy_data(b"y" * 300)],
}
ANSWERS = {
    b"websocket": [websocket(2, b""), websocket(1, b"x" * 70_000), websocket(8, b"ab")],
    b"spdy/3.1": [spdy_data(b""), spdy_data(b"x" * 70_000), spdy(2)],
}


@given(st.data(), st.sampled_from(sorted(FRAMES)))
def test_however_it_is_cut(data: Any, protocol: bytes) -> None:
    """All but the PINGs arrives, as it was, and each PONG between two frames."""
    frames = data.draw(st.lists(st.sampled_from(FRAMES[protocol]), max_size=8))
    answers = data.draw(st.lists(st.sampled_from(ANSWERS[protocol]), max_size=5))
    ends = Ends(protocol)
    pieces = [(ends.heartbeats.from_client, one) for one in cut(data, b"".join(frames))]
    server = [
        (ends.heartbeats.from_server, one) for one in cut(data, b"".join(answers))
    ]
    # One end first, or in turns: each side's bytes keep their order.
    while pieces or server:
        side = data.draw(st.sampled_from([one for one in (pieces, server) if one]))
        take, piece = side.pop(0)
        take(piece)
    pings = [frame for frame in frames if frame in (PING, spdy(1))]
    assert ends.sent == b"".join(one for one in frames if one not in pings)
    left = list(answers)
    received, seen = ends.received, 0
    pong = PONG if protocol == b"websocket" else spdy(1)
    while received:
        if left and received.startswith(left[0]):
            received = received[len(left.pop(0)) :]
        else:
            assert received.startswith(pong)
            received = received[len(pong) :]
            seen += 1
    assert not left
    assert seen <= len(pings) and bool(seen) == bool(pings)


@given(st.data(), st.sampled_from(sorted(FRAMES)))
def test_quiet_however_it_is_cut(data: Any, protocol: bytes) -> None:
    """Where nothing flows all of it goes on in its order, half frames included."""
    frames = data.draw(st.lists(st.sampled_from(FRAMES[protocol]), max_size=8))
    whole = b"".join(frames)
    whole = whole[: data.draw(st.integers(0, len(whole)))]
    ends = Ends(protocol)
    ends.clock.advance(QUIET)
    for piece in cut(data, whole):
        ends.heartbeats.from_client(piece)
        ends.clock.advance(data.draw(st.sampled_from([0.0, LOOK / 2, LOOK])))
    ends.heartbeats.client_finished()
    assert (ends.sent, ends.received) == (whole, b"")
    assert ends.clock.getDelayedCalls() == []


def cut(data: Any, whole: bytes) -> Sequence[bytes]:
    """*whole* in pieces, none of them empty."""
    places = data.draw(st.lists(st.integers(0, len(whole)), max_size=6))
    ends = sorted({0, len(whole), *places})
    return [whole[a:b] for a, b in itertools.pairwise(ends)]
