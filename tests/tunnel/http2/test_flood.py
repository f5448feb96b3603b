"""Clients that keep to the letter of HTTP/2 and mean no good, and some that do not."""

from __future__ import annotations

import struct
from typing import Any, cast

from h2.errors import ErrorCodes
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher

from tests.kas.api.clients import ExternalCase, Http2Client, token
from tunnel.testing import Pipe
from tunnel.toolkit.log_budget import LINES_AT_ONCE

CALM = ErrorCodes.ENHANCE_YOUR_CALM


class _Case(ExternalCase):
    def assertSentAway(
        self, client: Http2Client, pipe: Pipe, code: ErrorCodes = CALM
    ) -> None:
        """The connection was closed, and the client told why."""
        pipe.flush()
        self.assertEqual([one.error_code for one in client.goodbyes], [code])
        self.assertTrue(client.lost)
        other, other_pipe = self.http2()
        stream = other.open("Say")
        other.send(stream, "still here", end=True)
        other_pipe.flush()
        self.assertEqual(other.status(stream), 0)

    def frames(self, client: Http2Client, pipe: Pipe, *frames: Frame) -> None:
        client.raw(b"".join(frame.serialize() for frame in frames))
        pipe.flush()


class _Unknown(PriorityFrame):
    """A frame of a type that nobody knows."""

    type = 0xBA


class FloodTests(_Case):
    """Each limit is kept to, and is exceeded by one."""

    def test_rapid_reset(self) -> None:
        """Calls that are reset at once (CVE-2023-44487)."""
        client, pipe = self.http2()
        for _ in range(int(self.limits.resets.burst)):
            stream = client.open("Say")
            client.h2.reset_stream(stream, ErrorCodes.CANCEL)
            client.flush()
        pipe.flush()
        self.assertEqual(client.goodbyes, [])
        self.assertEqual(self.factory.calls, 0)
        stream = client.open("Say")
        client.h2.reset_stream(stream, ErrorCodes.CANCEL)
        client.flush()
        self.assertSentAway(client, pipe)

    def test_rapid_reset_in_one_piece(self) -> None:
        """None of them is begun when the end arrives with the beginning."""
        client, pipe = self.http2()
        for _ in range(50):
            stream = client.open("Say")
            client.h2.reset_stream(stream, ErrorCodes.CANCEL)
        client.flush()
        begun = []
        self.services.open = lambda *a: begun.append(a)  # type: ignore[method-assign,assignment]
        pipe.flush()
        self.assertEqual(begun, [])

    def test_resets_come_back(self) -> None:
        """Over time as many as an honest client needs."""
        client, pipe = self.http2()
        for _ in range(1000):
            stream = client.open("Say")
            client.h2.reset_stream(stream, ErrorCodes.CANCEL)
            client.flush()
            pipe.flush()
            self.clock.advance(1 / self.limits.resets.per_second)
        pipe.flush()
        self.assertEqual(client.goodbyes, [])

    def test_made_to_reset(self) -> None:
        """Calls that we have to refuse, over and over."""
        client, pipe = self.http2()
        client.h2.end_stream(client.open("Say"))
        client.flush()
        pipe.flush()
        self.refused(client, pipe, int(self.limits.refusals.burst))

    def test_a_stranger(self) -> None:
        """Without a good token before, fewer of them end the connection."""
        client, pipe = self.http2()
        self.refused(client, pipe, int(self.limits.refusals_unproven.burst))

    def test_many_calls_of_a_stranger_in_one_read(self) -> None:
        """kas handles no more of them than it may refuse, however they arrive."""
        client, pipe = self.http2()
        (server,) = cast(Any, self.factory.http2)
        begun: list[object] = []
        begin = server._begin

        def counted(*arguments: Any) -> Any:
            begun.append(arguments[1])
            return begin(*arguments)

        server._begin = counted
        for _ in range(90):
            client.h2.end_stream(client.open("Say", with_token=token(b"x" * 32)))
        client.flush()
        pipe.flush()
        self.assertTrue(client.lost)
        most = int(self.limits.refusals_unproven.burst)
        self.assertLessEqual(len(begun), most + 1)

    def test_lines_that_strangers_cause(self) -> None:
        """They fill no disk, whatever they send."""
        observer = EventLoggingObserver()
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        for _ in range(2 * LINES_AT_ONCE):
            _, pipe = self.http2()
            for server in tuple(cast(Any, self.factory.http2)):
                server.fail(ErrorCodes.PROTOCOL_ERROR, "nonsense")
            pipe.flush()
        lines = [one for one in observer if "closed a connection" in one["log_format"]]
        self.assertEqual(len(lines), LINES_AT_ONCE)

    def refused(self, client: Http2Client, pipe: Pipe, times: int) -> None:
        """So many calls are refused, and the next one ends the connection."""
        bad = token(b"x" * 32)
        for _ in range(times):
            client.h2.end_stream(client.open("Say", with_token=bad))
            client.flush()
            pipe.flush()
        self.assertEqual(client.goodbyes, [])
        client.open("Say", with_token=bad)
        self.assertSentAway(client, pipe)

    def test_made_to_reset_after_a_goaway(self) -> None:
        """The same with calls that come after the last."""
        client, pipe = self.http2()
        client.reads = False
        client.send(client.open("Spell"), "endless", end=True)
        self.frames(client, pipe, GoAwayFrame(0, 0, 0))
        for _ in range(int(self.limits.refusals.burst)):
            client.h2.end_stream(client.open("Say"))
            client.flush()
            pipe.flush()
        self.assertFalse(client.lost)
        client.open("Say")
        self.assertSentAway(client, pipe)

    def test_frames_on_refused_streams(self) -> None:
        """Nothing is won by sending on where nobody listens."""
        client, pipe = self.http2()
        stream = client.open("Say", with_token=token(b"x" * 32))
        pipe.flush()
        allowed = int(self.limits.control.burst) - 5
        self.frames(client, pipe, *[DataFrame(stream, b"x")] * allowed)
        self.assertEqual(client.goodbyes, [])
        self.frames(client, pipe, *[DataFrame(stream, b"x")] * 10)
        self.assertSentAway(client, pipe)

    def test_control_frames(self) -> None:
        """PING, SETTINGS, PRIORITY, empty DATA, padded DATA and unknown frames."""
        for make in (
            lambda stream: PingFrame(0, b"12345678"),
            lambda stream: SettingsFrame(0, {1: 4096}),
            lambda stream: PriorityFrame(stream, depends_on=0, stream_weight=1),
            lambda stream: DataFrame(stream, b""),
            lambda stream: DataFrame(stream, b"", pad_length=1, flags=["PADDED"]),
            _Unknown,
        ):
            client, pipe = self.http2()
            stream = client.open("Join")
            pipe.flush()
            # The greeting counts, too.
            allowed = int(self.limits.control.burst) - 5
            self.frames(client, pipe, *[make(stream)] * allowed)
            self.assertEqual(client.goodbyes, [])
            self.frames(client, pipe, *[make(stream)] * 10)
            self.assertSentAway(client, pipe)

    def test_window_updates(self) -> None:
        """More than there is anything to update for."""
        client, pipe = self.http2()
        update = WindowUpdateFrame(0, window_increment=1)
        allowed = int(self.limits.window_updates.burst)
        self.frames(client, pipe, *[update] * allowed)
        self.assertEqual(client.goodbyes, [])
        self.frames(client, pipe, update)
        self.assertSentAway(client, pipe)

    def test_window_updates_for_data(self) -> None:
        """Who reads much may update much."""
        client, pipe = self.http2()
        stream = client.open("Spell")
        client.send(stream, "endless", end=True)
        for _ in range(3 * int(self.limits.window_updates.burst)):
            client.h2.increment_flow_control_window(1000)
            client.h2.increment_flow_control_window(1000, stream)
            client.flush()
            pipe.step()
            pipe.step()
        self.assertEqual(client.goodbyes, [])

    def test_header_flood(self) -> None:
        """One block without end: CONTINUATION after CONTINUATION."""
        client, pipe = self.http2()
        first = HeadersFrame(1, b"\x00\x01a\x01b" * 10)
        more = ContinuationFrame(1, b"\x00\x01a\x01b" * 1000)
        self.frames(client, pipe, first, *[more] * 2)
        self.assertEqual(client.goodbyes, [])
        self.frames(client, pipe, *[more] * 2)
        self.assertSentAway(client, pipe)

    def test_header_list(self) -> None:
        """A small block that becomes a large list (CVE-2016-6581)."""
        client, pipe = self.http2()
        # The first field goes into the table, and is then named by one byte.
        big = ("x-a", "b" * 3000)
        stream = client.h2.get_next_available_stream_id()
        client.h2.send_headers(stream, client.headers("/x", *[big] * 6))
        sent = client.h2.data_to_send()
        self.assertLess(len(sent), 4000)
        client.raw(sent)
        self.assertSentAway(client, pipe)

    def test_large_headers(self) -> None:
        """A token of 100 KB does not even become a header."""
        client, pipe = self.http2()
        stream = client.h2.get_next_available_stream_id()
        field = ("authorization", "Bearer " + "x" * 100_000)
        client.h2.remote_settings.acknowledge()
        client.h2.send_headers(stream, client.headers("/x", field))
        client.flush()
        self.assertSentAway(client, pipe)

    def test_large_frame(self) -> None:
        """Sixteen megabytes: said by its header, and not waited for."""
        client, pipe = self.http2()
        client.raw(struct.pack(">I", (self.limits.frame + 1) << 8 | 0)[:3] + bytes(6))
        self.assertSentAway(client, pipe, ErrorCodes.FRAME_SIZE_ERROR)

    def test_streams(self) -> None:
        """A hundred calls at once are taken, one more is not."""
        client, pipe = self.http2()
        streams = [client.open("Say") for _ in range(self.limits.streams)]
        for stream in streams:
            client.send(stream, "wait", end=True)
        pipe.flush()
        self.assertEqual(self.factory.calls, 100)
        client.h2.remote_settings[3] = 1000
        client.h2.remote_settings.acknowledge()
        client.open("Say")
        self.assertSentAway(client, pipe, ErrorCodes.PROTOCOL_ERROR)

    def test_pings_without_reading(self) -> None:
        """Answers that nobody reads do not pile up."""
        client, pipe = self.http2(capacity=1000)
        # Otherwise it has to go for another reason.
        client.send(client.open("Say"), "hello", end=True)
        pipe.flush()
        ping = PingFrame(0, b"12345678").serialize()
        pipe.transports[0].reading = False
        most = 0
        for _ in range(2000):
            client.raw(ping * 10)
            pipe.flush()
            most = max(most, len(pipe.transports[1].buffer))
            self.clock.advance(10 / self.limits.control.per_second)
            if pipe.transports[1].disconnecting:
                break
        self.assertTrue(pipe.transports[1].disconnecting)
        self.assertLess(most, self.limits.unread + 2000)
        self.assertGreater(most, self.limits.unread - 2000)


class FaultTests(_Case):
    """What the protocol forbids ends the connection with the right code."""

    def faulty(self, code: ErrorCodes, *frames: Frame) -> None:
        client, pipe = self.http2()
        stream = client.open("Join")
        pipe.flush()
        for frame in frames:
            if frame.stream_id == 1:
                frame.stream_id = stream
        self.frames(client, pipe, *frames)
        self.assertSentAway(client, pipe, code)

    def test_window_overrun(self) -> None:
        """More than the window of a stream."""
        client, pipe = self.http2()
        stream = client.open("Join")
        client.send(stream, "stop reading")
        pipe.flush()
        # Empty messages fill memory as others do.
        data = DataFrame(stream, b"\0\0\0\0\0" * 3000)
        for _ in range(200):
            if client.goodbyes:
                break
            self.frames(client, pipe, data)
        self.assertSentAway(client, pipe, ErrorCodes.FLOW_CONTROL_ERROR)

    def test_window_overflow(self) -> None:
        """Credit beyond 2**31 - 1, and none at all."""
        large = WindowUpdateFrame(0, window_increment=2**31 - 1)
        self.faulty(ErrorCodes.FLOW_CONTROL_ERROR, large, large)

    def test_zero_window_update(self) -> None:
        """An update by nothing."""
        client, pipe = self.http2()
        client.raw(b"\0\0\4\x08\0\0\0\0\0\0\0\0\0")
        self.assertSentAway(client, pipe, ErrorCodes.PROTOCOL_ERROR)

    def test_wrong_places(self) -> None:
        """DATA without a stream, a stream of ours, CONTINUATION of nothing."""
        self.faulty(ErrorCodes.PROTOCOL_ERROR, DataFrame(99, b"x"))
        self.faulty(ErrorCodes.PROTOCOL_ERROR, ContinuationFrame(1, b""))
        self.faulty(
            ErrorCodes.PROTOCOL_ERROR,
            HeadersFrame(2, b"\x82", flags=["END_HEADERS"]),
        )

    def test_goodbye(self) -> None:
        """A client that says GOAWAY is let go."""
        client, pipe = self.http2()
        self.frames(client, pipe, GoAwayFrame(0, 0, 0))
        self.assertTrue(client.lost)

    def test_garbage(self) -> None:
        """After the preface, anything."""
        client, pipe = self.http2()
        client.raw(bytes(range(256)) * 100)
        pipe.flush()
        self.assertTrue(client.lost)
