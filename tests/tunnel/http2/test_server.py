"""The server side: how connections end, and which stream's turn it is."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from h2.errors import ErrorCodes
from h2.events import PingAckReceived, PingReceived, TrailersReceived
from h2.settings import SettingCodes
from hyperframe.frame import GoAwayFrame, PingFrame
from twisted.internet.address import IPv6Address
from twisted.logger import capturedLogs

from kas.api.limits import DEFAULT_LIMITS
from tests.kas.api.clients import ExternalCase, token
from tests.proto.echo_pb2 import Text
from tunnel.errors import ErrorCode, StreamReset
from tunnel.grpc.messages import envelope
from tunnel.http2 import server
from tunnel.http2.stream import Http2Stream
from tunnel.rpc.messages import MAX_PENDING


class LifeTests(ExternalCase):
    """How connections end when nobody did anything wrong."""

    def proven(self) -> tuple[Any, Any]:
        client, pipe = self.http2()
        client.send(client.open("Say"), "hello", end=True)
        pipe.flush()
        return client, pipe

    def test_no_token(self) -> None:
        """Who never makes a call with a token has to go."""
        client, pipe = self.http2()
        client.open("Say", with_token=token(b"x" * 32))
        pipe.flush()
        self.clock.advance(self.limits.unproven)
        pipe.flush()
        self.assertTrue(client.lost)
        good, pipe = self.proven()
        self.clock.advance(self.limits.unproven)
        pipe.flush()
        self.assertFalse(good.lost)

    def test_turns_of_one_network(self) -> None:
        """Clients of an IPv6 network share their turns: it has 2**64 addresses."""
        owners = Mock()
        self.patch(server, "Poller", owners)
        for host in ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"):
            client, pipe = self.http2()
            transport: Any = pipe.transports[1]
            transport._address = IPv6Address("TCP", host, 1)
            client.send(client.open("Say"), "hello", end=True)
            pipe.flush()
        one, same, other = (call.args[2] for call in owners.limit.call_args_list)
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)

    def test_ping(self) -> None:
        """Silence is asked about; who answers stays."""
        client, pipe = self.proven()
        for count in range(1, 4):
            self.clock.advance(self.limits.ping_after)
            pipe.flush()
            self.assertEqual(len(client.of(PingReceived)), count)
        pipe.cut = True
        self.clock.advance(self.limits.ping_after)
        self.clock.advance(self.limits.ping_timeout)
        self.assertTrue(pipe.transports[1].disconnecting)

    def test_age(self) -> None:
        """GOAWAY twice; what runs is finished, and what comes late is refused."""
        client, pipe = self.proven()
        running = client.open("Say")
        client.send(running, "wait", end=True)
        pipe.flush()
        while not client.goodbyes:
            self.clock.advance(10)
            pipe.flush()
        self.assertAlmostEqual(self.clock.seconds(), self.age, delta=30)
        self.assertEqual(client.goodbyes[0].error_code, ErrorCodes.NO_ERROR)
        self.assertEqual(client.goodbyes[0].last_stream_id, 2**31 - 1)
        self.clock.advance(self.limits.goaway)
        pipe.flush()
        self.assertEqual(client.goodbyes[1].last_stream_id, running)
        self.assertFalse(client.lost)
        self.echo.waiting[0].callback(None)
        pipe.flush()
        self.assertTrue(client.lost)

    def test_age_grace(self) -> None:
        """What runs on and on is cut in the end."""
        client, pipe = self.proven()
        client.send(client.open("Say"), "wait", end=True)
        for _ in range(250):
            self.clock.advance(45)
            pipe.flush()
        self.assertTrue(client.lost)
        self.assertEqual(self.echo.cancelled, 1)

    def test_jitter(self) -> None:
        """Connections differ by a tenth, up and down."""
        self.assertEqual(DEFAULT_LIMITS.age_jitter, 0.1)
        for number, age in ((0.0, 6480), (1.0, 7920)):
            self.factory._jitter = iter([number]).__next__
            self.proven()
            (connection,) = self.factory.http2 - set(getattr(self, "seen", ()))
            self.seen = set(self.factory.http2)
            self.assertAlmostEqual(connection._age, age)

    def test_drain(self) -> None:
        """Told to stop: idle connections go at once, busy ones when they are done."""
        idle, idle_pipe = self.proven()
        busy, pipe = self.proven()
        busy.send(busy.open("Say"), "wait", end=True)
        pipe.flush()
        self.factory.drain(30)
        self.clock.advance(self.limits.goaway)
        idle_pipe.flush()
        pipe.flush()
        self.assertTrue(idle.lost)
        self.assertFalse(busy.lost)
        self.assertEqual(self.factory.calls, 1)
        self.clock.advance(30)
        pipe.flush()
        self.assertTrue(busy.lost)


class ClientLeavesTests(ExternalCase):
    """A client that says GOAWAY, and still wants what it asked for."""

    def leaving(self, code: ErrorCodes = ErrorCodes.NO_ERROR) -> tuple[Any, Any, int]:
        client, pipe = self.http2()
        client.reads = False
        stream = client.open("Spell")
        client.send(stream, "endless", end=True)
        pipe.flush()
        # The last stream of ours that it saw: there are none.
        client.raw(GoAwayFrame(0, 0, code).serialize())
        pipe.flush()
        return client, pipe, stream

    def test_answers_go_on(self) -> None:
        """Beyond the window, so that its updates count as well; then the end."""
        client, pipe, stream = self.leaving()
        client.h2.increment_flow_control_window(100_000)
        client.h2.increment_flow_control_window(100_000, stream)
        client.flush()
        pipe.flush()
        self.assertEqual(client.received, 65535 + 100_000)
        self.assertFalse(client.lost)
        client.h2.reset_stream(stream, ErrorCodes.CANCEL)
        client.flush()
        pipe.flush()
        self.assertTrue(client.lost)

    def test_requests_go_on(self) -> None:
        """What is in the same bytes as the GOAWAY is taken; PINGs are answered."""
        client, pipe = self.http2()
        stream = client.open("Chat")
        pipe.flush()
        goaway = GoAwayFrame(0, 0, 0).serialize()
        client.raw(goaway + PingFrame(0, b"12345678").serialize())
        client.send(stream, "hello")
        pipe.flush()
        self.assertEqual(client.texts(stream), ["HELLO"])
        self.assertEqual(len(client.of(PingAckReceived)), 1)
        client.send(stream, "bye", end=True)
        pipe.flush()
        self.assertEqual(client.status(stream), 0)
        self.assertTrue(client.lost)

    def test_nothing_new(self) -> None:
        """It said that it would not."""
        client, pipe, _ = self.leaving()
        late = client.open("Say")
        pipe.flush()
        (reset,) = client.resets(late)
        self.assertEqual(reset.error_code, ErrorCodes.REFUSED_STREAM)
        self.assertFalse(client.lost)

    def test_error(self) -> None:
        """One that found a fault wants nothing more."""
        client, _, _ = self.leaving(ErrorCodes.PROTOCOL_ERROR)
        self.assertTrue(client.lost)


class BackPressureTests(ExternalCase):
    """What a slow client, or a slow handler, makes us hold."""

    def test_slow_reader(self) -> None:
        """A client that grants no credit: the handler waits, and goes on later."""
        client, pipe = self.http2()
        client.reads = False
        stream = client.open("Spell")
        client.send(stream, "endless", end=True)
        pipe.flush()
        window = 65535
        self.assertEqual(client.received, window)
        held = self.echo.produced * 1000 - window
        self.assertLess(held, self.limits.outgoing + 10_000)
        # The others on the connection are not stopped by an answer in one window.
        before = self.echo.produced
        client.h2.increment_flow_control_window(500_000)
        client.h2.increment_flow_control_window(100_000, stream)
        client.flush()
        pipe.flush()
        self.assertEqual(client.received, window + 100_000)
        self.assertGreater(self.echo.produced, before + 90)
        other = client.open("Say")
        client.send(other, "hello", end=True)
        pipe.flush()
        self.assertEqual(client.status(other), 0)

    def test_larger_window_by_settings(self) -> None:
        """SETTINGS may grant credit, too."""
        client, pipe = self.http2()
        client.reads = False
        stream = client.open("Spell")
        client.send(stream, "endless", end=True)
        client.h2.increment_flow_control_window(500_000)
        client.flush()
        pipe.flush()
        self.assertEqual(client.received, 65535)
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 100_000})
        client.flush()
        pipe.flush()
        self.assertEqual(client.received, 100_000)

    def test_transport_is_full(self) -> None:
        """A client that does not read its socket at all."""
        client, pipe = self.http2(capacity=32768)
        client.h2.increment_flow_control_window(2**30)
        stream = client.open("Spell")
        client.h2.increment_flow_control_window(2**30, stream)
        client.send(stream, "endless", end=True)
        pipe.transports[0].reading = False
        pipe.flush()
        held = self.echo.produced * 1000
        self.assertLess(held, 32768 + 2 * self.limits.outgoing + 10_000)
        self.assertEqual(client.received, 0)

    def test_handler_does_not_read(self) -> None:
        """Its stream stops within its window; the others go on."""
        client, pipe = self.http2()
        slow = [client.open("Join") for _ in range(5)]
        sent = 0
        for stream in slow:
            client.send(stream, "stop reading")
            pipe.flush()
            for _ in range(100):
                if client.h2.local_flow_control_window(stream) < 10_010:
                    break
                client.send(stream, "x" * 10_000)
                sent += 1
                pipe.flush()
            # Here the stream has no window left although everything was delivered.
            self.assertLess(client.h2.local_flow_control_window(stream), 10_010)
        self.assertLess(sent / len(slow) * 10_000, MAX_PENDING + 2 * 65536)
        other = client.open("Say")
        client.send(other, "hello", end=True)
        pipe.flush()
        self.assertEqual(client.status(other), 0)
        self.echo.waiting[0].callback(None)
        pipe.flush()
        self.assertGreater(client.h2.local_flow_control_window(slow[0]), 40_000)

    def test_turns(self) -> None:
        """A small answer does not wait for the end of a large one."""
        client, pipe = self.http2()
        client.h2.increment_flow_control_window(2**24)
        large = client.open("Say")
        client.h2.increment_flow_control_window(2**24, large)
        client.flush()
        data = envelope(Text(text="x" * 1_000_000).SerializeToString())
        for start in range(0, len(data), 30_000):
            pipe.flush()
            client.send_bytes(large, data[start : start + 30_000])
        client.h2.end_stream(large)
        small = client.open("Say")
        client.send(small, "small", end=True)
        pipe.flush()
        self.assertEqual(client.status(small), 0)
        self.assertEqual(client.status(large), 0)
        ends = [one.stream_id for one in client.of(TrailersReceived)]
        self.assertEqual(ends, [small, large])


@pytest.mark.parametrize("who", ["reader", "producer"])
def test_one_stream_fails_at_its_end(who: str) -> None:
    """Neither its reader nor its producer keeps the other from being told."""
    stream = Http2Stream(Mock(), 1)
    stream.reader, stream._producer = reader, producer = Mock(), Mock()
    failing = reader.gone if who == "reader" else producer.stopProducing
    failing.side_effect = ValueError
    with capturedLogs() as events:
        stream.closed(StreamReset(ErrorCode.INTERNAL, "", by_peer=True))
    assert (reader.gone.call_count, producer.stopProducing.call_count) == (1, 1)
    assert len(events) == 1
