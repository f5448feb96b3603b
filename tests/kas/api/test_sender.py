"""What is sent waits for who reads it, and what arrives for who takes it."""

from __future__ import annotations

from h2.events import TrailersReceived
from h2.settings import SettingCodes

from kas.api.envelopes import envelope
from tests.kas.api.clients import ExternalCase
from tests.proto.echo_pb2 import Text
from tunnel.rpc.messages import MAX_PENDING


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
