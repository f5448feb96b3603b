"""The client side of gRPC: every kind of call, what ends them, and connections."""

from __future__ import annotations

from typing import Any

import attrs
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame, HeadersFrame, PingFrame
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Protocol
from zope.interface import implementer

from kas.api.limits import DEFAULT_LIMITS
from tests.kas.api.clients import ADDRESS, ECHO, ExternalCase, token
from tests.proto.echo_pb2 import Text
from tunnel.details import readable
from tunnel.errors import CallError, Status
from tunnel.grpc.client import ChannelLimits, GrpcChannel
from tunnel.grpc.fields import encode_timeout, parse_timeout
from tunnel.grpc.messages import envelope
from tunnel.http2.client import CLIENT_LIMITS
from tunnel.rpc.client import ServiceClient
from tunnel.rpc.messages import MAX_MESSAGE, MAX_PENDING
from tunnel.testing import Pipe


@implementer(IStreamClientEndpoint)
class _Endpoint:
    """Connects to a server in memory, refuses, or says nothing."""

    def __init__(self, case: ClientCase) -> None:
        self.case = case
        self.refuses = False
        self.hangs = False
        self.attempts = 0
        self.cancelled = 0

    def connect(self, factory: Any) -> Deferred[Any]:
        self.attempts += 1
        if self.refuses:
            return fail(ConnectionRefusedError())
        if self.hangs:
            return Deferred(self._cancel)
        client = factory.buildProtocol(ADDRESS)
        pipe = Pipe(self.case.clock, client, self.case.server(), **self.case.pipe)
        self.case.pipes.append(pipe)
        return succeed(client)

    def _cancel(self, _: Deferred[Any]) -> None:
        self.cancelled += 1


class ClientCase(ExternalCase):
    """A channel to an external API in memory."""

    channel_limits = ChannelLimits()
    pipe: dict[str, int] = {}

    def setUp(self) -> None:
        super().setUp()
        self.endpoint = _Endpoint(self)
        self.channel = GrpcChannel(
            self.endpoint,
            self.clock,
            authority="kas.example:8153",
            limits=self.channel_limits,
            random=lambda: 1.0,
        )
        self.echoes = self.channel.client(ECHO)
        self.metadata = {"authorization": f"Bearer {token()}"}

    def server(self) -> Any:
        return self.factory.buildProtocol(ADDRESS)

    def settle(self) -> None:
        """Let everything that is under way arrive."""
        for pipe in list(self.pipes):
            pipe.flush()
        self.clock.advance(0)
        for pipe in list(self.pipes):
            pipe.flush()

    def start(self, coroutine: Any) -> Deferred[Any]:
        deferred = Deferred.fromCoroutine(coroutine)
        self.settle()
        return deferred

    def call(self, text: str, timeout: float = 0) -> Deferred[Any]:
        return self.start(
            self.echoes.call(
                "Say", Text(text=text), metadata=self.metadata, timeout=timeout
            )
        )

    def said(self, text: str) -> str:
        return str(self.successResultOf(self.call(text)).text)

    def assert_fails(
        self, deferred: Deferred[Any], status: Status, *parts: str
    ) -> CallError:
        """A call ended with *status*, and its text says *parts*."""
        error = self.failureResultOf(deferred, CallError).value
        assert isinstance(error, CallError)
        self.assertIs(error.status, status, error)
        for part in parts:
            self.assertIn(part, str(error))
        return error

    def close(self) -> None:
        closed = self.channel.close()
        self.settle()
        self.successResultOf(closed)
        super().close()


async def _texts(client: ServiceClient, *arguments: Any, **more: Any) -> list[str]:
    return [one.text async for one in client.stream(*arguments, **more)]


class CallTests(ClientCase):
    """Calls, as through the tunnel."""

    def test_unary(self) -> None:
        """One connection serves them all; nothing is left of any."""
        self.assertEqual([self.said(text) for text in "abc"], ["A", "B", "C"])
        self.assertEqual((self.endpoint.attempts, self.factory.calls), (1, 0))

    def test_server_stream(self) -> None:
        request = Text(text="xyz")
        found = self.start(
            _texts(self.echoes, "Spell", request, metadata=self.metadata)
        )
        self.assertEqual(self.successResultOf(found), ["x", "y", "z"])

    def test_client_stream(self) -> None:
        async def join() -> str:
            call = self.echoes.open("Join", metadata=self.metadata)
            for text in ("a", "b"):
                await call.send(Text(text=text))
            call.finish()
            return str((await call.response()).text)

        self.assertEqual(self.successResultOf(self.start(join())), "done")

    def test_both_ways(self) -> None:
        """Each request waits for the answer to the one before; the server ends it."""

        async def chat() -> list[str]:
            heard = []
            call = self.echoes.open("Chat", metadata=self.metadata)
            for word in ("one", "two", "bye"):
                await call.send(Text(text=word))
                heard.append((await anext(call)).text)
            async for more in call:
                heard.append(more.text)
            return heard

        found = self.start(chat())
        self.assertEqual(self.successResultOf(found), ["ONE", "TWO", "BYE"])
        self.assertEqual(self.factory.calls, 0)

    def test_metadata(self) -> None:
        """A handler sees the caller's, but nothing that belongs to HTTP."""
        self.metadata |= {"from": "here", "Content-Type": "text/html"}
        self.assertEqual(self.said("metadata"), "here")
        self.assertNotIn("content-type", self.echo.calls[0].metadata)

    def test_errors(self) -> None:
        """Status, text and details, whatever is in them."""
        self.assert_fails(
            self.call("refuse"), Status.PERMISSION_DENIED, "not you: ünïcode", "%"
        )
        error = self.assert_fails(self.call("explain 5 5"), Status.INVALID_ARGUMENT)
        found: Any = readable(error.details[0])
        self.assertEqual(found["fieldViolations"][0]["description"], "x" * 5)
        self.metadata = {}
        self.assert_fails(self.call("a"), Status.UNAUTHENTICATED)

    def test_error_in_a_stream(self) -> None:
        async def spell() -> list[str]:
            heard = []
            try:
                async for one in self.echoes.stream(
                    "Spell", Text(text="a!"), metadata=self.metadata
                ):
                    heard.append(one.text)
            except CallError as error:
                heard.append(error.status.name)
            return heard

        found = self.successResultOf(self.start(spell()))
        self.assertEqual(found, ["a", "!", "OUT_OF_RANGE"])

    def test_deadline(self) -> None:
        """The caller is told in time, and the server stops."""
        late = self.call("wait", timeout=5)
        self.assertAlmostEqual(self.echo.calls[0].time_left, 5, 2)
        self.clock.advance(5)
        self.assert_fails(late, Status.DEADLINE_EXCEEDED)
        self.settle()
        self.assertEqual((self.echo.cancelled, self.factory.calls), (1, 0))

    def test_cancel(self) -> None:
        """A call that is given up is cancelled at the server."""
        waiting = self.call("wait")
        waiting.addErrback(lambda _: None)
        waiting.cancel()
        self.settle()
        self.assertEqual((self.echo.cancelled, self.factory.calls), (1, 0))
        self.assertEqual(self.said("a"), "A")

    def test_too_large(self) -> None:
        """A message that is too large ends its call alone, either way."""
        self.assert_fails(self.call("x" * MAX_MESSAGE), Status.RESOURCE_EXHAUSTED)
        self.channel.limits = attrs.evolve(self.channel.limits, message=100)
        self.assert_fails(self.call("x" * 200), Status.RESOURCE_EXHAUSTED, "203")
        self.assertEqual(self.said("a"), "A")
        self.assertEqual(self.factory.calls, 0)

    def test_timeouts(self) -> None:
        """As many digits as gRPC allows, of the finest unit."""
        for seconds in (0.000001, 0.3, 5, 99, 86400, 1e8, 1e9):
            text = encode_timeout(seconds).decode()
            self.assertLessEqual(len(text), 9)
            found = parse_timeout(text)
            assert found is not None
            self.assertAlmostEqual(found / seconds, 1, 3)
        self.assertEqual(encode_timeout(1e15), b"99999999H")


class PressureTests(ClientCase):
    """What the other side does not read is not held either."""

    pipe = {"capacity": 16384, "chunk": 16384}

    def test_server_stream_that_is_not_read(self) -> None:
        """The server stops, and goes on with the reader."""
        stream = self.echoes.stream(
            "Spell", Text(text="endless"), metadata=self.metadata
        )
        self.start(anext(stream))
        held = self.echo.produced * 1000
        window = CLIENT_LIMITS.stream_window
        self.assertLess(held, window + MAX_PENDING + 4 * DEFAULT_LIMITS.outgoing)
        # Another call does not wait for it.
        self.assertEqual(self.said("a"), "A")

        async def read(count: int) -> None:
            for _ in range(count):
                await anext(stream)

        self.successResultOf(self.start(read(2000)))
        self.assertGreater(self.echo.produced, 2000)
        self.successResultOf(self.start(stream.aclose()))
        self.settle()
        self.assertEqual(self.factory.calls, 0)

    def test_server_that_does_not_read(self) -> None:
        """A sender waits for the server, and no more than a little is in between."""
        sent = 0

        async def join() -> None:
            nonlocal sent
            call = self.echoes.open("Join", metadata=self.metadata)
            await call.send(Text(text="stop reading"))
            for _ in range(3000):
                await call.send(Text(text="x" * 1000))
                sent += 1
            call.finish()
            await call.response()

        joining = self.start(join())
        self.assertNoResult(joining)
        self.assertLess(sent, 1000)
        (waiting,) = self.echo.waiting
        waiting.callback(None)
        self.settle()
        self.successResultOf(joining)

    def test_sender_hears_of_the_end(self) -> None:
        """A sender that waits for room is woken by the deadline."""

        async def join() -> None:
            call = self.echoes.open("Join", metadata=self.metadata, timeout=5)
            await call.send(Text(text="stop reading"))
            while True:
                await call.send(Text(text="x" * 1000))

        joining = self.start(join())
        self.clock.advance(5)
        self.assert_fails(joining, Status.DEADLINE_EXCEEDED)
        self.settle()


class ConnectionTests(ClientCase):
    """Connections: one at a time, made when there is a call."""

    def test_refused(self) -> None:
        """Calls fail at once while the pause lasts; it grows, and begins again."""
        self.endpoint.refuses = True
        self.assert_fails(self.call("a"), Status.UNAVAILABLE, "kas.example:8153")
        self.assert_fails(self.call("a"), Status.UNAVAILABLE, "refused")
        self.assertEqual(self.endpoint.attempts, 1)
        for pause in (1, 2, 4):
            self.clock.advance(pause - 0.01)
            self.assert_fails(self.call("a"), Status.UNAVAILABLE)
            attempts = self.endpoint.attempts
            self.clock.advance(0.01)
            self.assert_fails(self.call("a"), Status.UNAVAILABLE)
            self.assertEqual(self.endpoint.attempts, attempts + 1)
        self.endpoint.refuses = False
        self.clock.advance(8)
        self.assertEqual(self.said("a"), "A")

    def test_no_connection_in_time(self) -> None:
        self.endpoint.hangs = True
        waiting = self.call("a")
        self.assertNoResult(waiting)
        self.clock.advance(self.channel.limits.connect)
        self.assert_fails(waiting, Status.UNAVAILABLE, "within 20 s")
        self.assertEqual(self.endpoint.cancelled, 1)

    def test_deadline_before_the_connection(self) -> None:
        self.endpoint.hangs = True
        waiting = self.call("a", timeout=1)
        self.clock.advance(1)
        self.assert_fails(waiting, Status.DEADLINE_EXCEEDED)

    def test_too_many_wait(self) -> None:
        self.channel.limits = attrs.evolve(self.channel.limits, waiting=2)
        self.endpoint.hangs = True
        waiting = [self.call("a") for _ in range(2)]
        self.assert_fails(self.call("a"), Status.RESOURCE_EXHAUSTED)
        self.channel.close()
        for one in waiting:
            self.assert_fails(one, Status.UNAVAILABLE, "closed")
        self.assert_fails(self.call("a"), Status.UNAVAILABLE, "closed")

    def test_lost(self) -> None:
        """What runs fails; the next call makes another connection."""
        waiting = self.call("wait")
        self.pipes[0].transports[1].abortConnection()
        self.settle()
        self.assert_fails(waiting, Status.UNAVAILABLE)
        self.assertEqual(self.said("a"), "A")
        self.assertEqual(self.endpoint.attempts, 2)

    def test_goaway(self) -> None:
        """What runs is finished; the next call goes elsewhere."""
        waiting = self.call("wait")
        (old,) = self.factory.http2
        old.drain(60)
        self.settle()
        self.assertEqual(self.said("a"), "A")
        self.assertEqual(self.endpoint.attempts, 2)
        self.echo.waiting[0].callback(None)
        self.settle()
        self.assertEqual(self.successResultOf(waiting).text, "WAIT")
        self.clock.advance(1)
        self.settle()
        self.assertNotIn(old, self.factory.http2)

    def test_keepalive(self) -> None:
        """A server that is dead is found while a call runs, and only then."""
        self.said("a")
        self.clock.advance(CLIENT_LIMITS.ping_after - 1)
        waiting = self.call("wait")
        self.pipes[0].cut = True
        self.clock.advance(CLIENT_LIMITS.ping_after)
        self.clock.advance(CLIENT_LIMITS.ping_timeout - 1)
        self.assertNoResult(waiting)
        self.clock.advance(1)
        self.settle()
        self.assert_fails(waiting, Status.UNAVAILABLE, "no response to a PING")


class ManyTests(ClientCase):
    """More calls than the server takes at once."""

    limits = attrs.evolve(DEFAULT_LIMITS, streams=2)

    def test_max_concurrent_streams(self) -> None:
        """They wait for each other, in their order, and none is refused."""
        calls = [self.call("wait") for _ in range(5)]
        self.assertEqual(len(self.echo.waiting), 2)
        for number, call in enumerate(calls):
            self.echo.waiting[number].callback(None)
            self.settle()
            self.assertEqual(self.successResultOf(call).text, "WAIT")
        self.assertEqual(self.endpoint.attempts, 1)

    def test_one_that_gives_up(self) -> None:
        """It does not take a place later."""
        running = [self.call("wait") for _ in range(2)]
        late = self.call("late", timeout=1)
        waits = self.call("b")
        self.clock.advance(1)
        self.assert_fails(late, Status.DEADLINE_EXCEEDED)
        self.echo.waiting[0].callback(None)
        self.settle()
        self.successResultOf(running[0])
        self.assertEqual(self.successResultOf(waits).text, "B")
        self.echo.waiting[1].callback(None)
        self.settle()
        self.successResultOf(running[1])


class _Server(Protocol):
    """The h2 library as a server that answers as it is told."""

    def __init__(self) -> None:
        self.h2 = H2Connection(
            H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self.requests: list[dict[str, str]] = []
        self.bodies: dict[int, bytes] = {}
        self.lost = False

    def connectionMade(self) -> None:
        self.h2.initiate_connection()
        self.flush()

    def dataReceived(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, RequestReceived):
                headers: Any = event.headers
                self.requests.append(dict(headers))
            elif isinstance(event, DataReceived):
                number = event.stream_id or 0
                self.bodies[number] = self.bodies.get(number, b"") + (event.data or b"")
                self.h2.acknowledge_received_data(
                    event.flow_controlled_length or 0, number
                )
        self.flush()

    def flush(self) -> None:
        assert self.transport is not None
        self.transport.write(self.h2.data_to_send())

    def raw(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    def answer(
        self,
        data: bytes = b"",
        *trailers: tuple[str, str],
        stream: int = 1,
        end: bool = True,
        **head: str,
    ) -> None:
        """Head and body, and trailers if there are any."""
        fields = {"content-type": "application/grpc", **head}
        status = fields.pop("status", "200")
        named = [(name.replace("_", "-"), v) for name, v in fields.items()]
        self.h2.send_headers(stream, [(":status", status), *named])
        if data:
            self.h2.send_data(stream, data)
        if trailers:
            self.h2.send_headers(stream, trailers, end_stream=True)
        elif end:
            self.h2.end_stream(stream)
        self.flush()

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = True


class HostileTests(ClientCase):
    """A server that does what it must not, or what few servers do."""

    def server(self) -> Any:
        self.origin = _Server()
        return self.origin

    def answered(self, *arguments: Any, **more: Any) -> Deferred[Any]:
        """A call on a new connection, answered so."""
        self.call_made = call = self.call("a")
        self.origin.answer(*arguments, **more)
        self.settle()
        self.channel.close()
        self.settle()
        self.channel = GrpcChannel(self.endpoint, self.clock, authority="a:1")
        self.echoes = self.channel.client(ECHO)
        return call

    def test_head(self) -> None:
        """What gRPC asks of a request, and the caller's own fields."""
        call = self.call("a", timeout=2)
        head = self.origin.requests[0]
        self.assertEqual(head[":path"], "/tests.proto.Echo/Say")
        self.assertEqual(head[":authority"], "kas.example:8153")
        self.assertEqual((head[":method"], head["te"]), ("POST", "trailers"))
        self.assertEqual(head["grpc-timeout"], "2000000u")
        self.assertIn("Bearer", head["authorization"])
        self.origin.answer(envelope(b""), ("grpc-status", "0"))
        self.settle()
        self.successResultOf(call)

    def test_metadata_of_an_answer(self) -> None:
        """What comes before it and behind it, whatever its names."""

        async def ask() -> tuple[dict[str, str], dict[str, str]]:
            call = self.echoes.open("Say", metadata=self.metadata)
            await call.send(Text(text="a"))
            call.finish()
            await call.response()
            return call.metadata, call.trailers

        asked = self.start(ask())
        self.origin.answer(
            envelope(b""), ("grpc-status", "0"), ("after", "2 %"), note="1"
        )
        self.settle()
        before, behind = self.successResultOf(asked)
        self.assertEqual((before["note"], behind), ("1", {"after": "2 %"}))

    def test_not_grpc(self) -> None:
        """HTTP's statuses say what they say to other clients of gRPC."""
        for status, expected in (
            ("401", Status.UNAUTHENTICATED),
            ("404", Status.UNIMPLEMENTED),
            ("503", Status.UNAVAILABLE),
            ("200", Status.UNKNOWN),
        ):
            call = self.answered(b"<html>", status=status, content_type="text/html")
            self.assert_fails(call, expected, f"status {status}", "text/html")

    def test_broken_answers(self) -> None:
        """Each ends its call, and only that."""
        good = envelope(b"")
        for data, trailers, expected, said in (
            (good, (), Status.INTERNAL, "without a status"),
            (b"", (("grpc-status", "0"),), Status.INTERNAL, "without a response"),
            (
                good[:3],
                (("grpc-status", "0"),),
                Status.INTERNAL,
                "the stream ended within",
            ),
            (envelope(b"x", 1), (("grpc-status", "0"),), Status.INTERNAL, "compressed"),
            (good, (("grpc-status", "99"),), Status.UNKNOWN, ""),
            (good, (("grpc-status", "x"), ("status", "0")), Status.UNKNOWN, ""),
            (good, (("grpc-status", "5"), ("message", "no")), Status.NOT_FOUND, ""),
            (envelope(b"\xff"), (("grpc-status", "0"),), Status.INTERNAL, "malformed"),
        ):
            call = self.answered(data, *trailers)
            self.assert_fails(call, expected, said)

    def test_resets(self) -> None:
        """RST_STREAM in the words of calls."""
        for number, (code, expected) in enumerate(
            (
                (ErrorCodes.CANCEL, Status.CANCELLED),
                (ErrorCodes.ENHANCE_YOUR_CALM, Status.RESOURCE_EXHAUSTED),
                (ErrorCodes.PROTOCOL_ERROR, Status.INTERNAL),
            )
        ):
            call = self.call("a")
            self.origin.h2.reset_stream(2 * number + 1, code)
            self.origin.flush()
            self.settle()
            self.assert_fails(call, expected, code.name)

    def test_refused_unseen(self) -> None:
        """A call that the server did not look at is made again, a few times."""
        call = self.call("a")
        for stream in range(1, 11, 2):
            self.origin.h2.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
            self.origin.flush()
            self.settle()
            self.assertNoResult(call)
            # The server gets a moment, and no other call overtakes.
            self.assertNotIn(stream + 2, self.origin.bodies)
            self.clock.advance(self.channel.limits.refused)
            self.settle()
        self.origin.answer(envelope(b""), ("grpc-status", "0"), stream=11)
        self.settle()
        self.successResultOf(call)
        self.assertEqual(self.origin.bodies[1], self.origin.bodies[11])
        again = self.call("a")
        for stream in range(13, 25, 2):
            self.origin.h2.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
            self.origin.flush()
            self.settle()
            self.clock.advance(self.channel.limits.refused)
            self.settle()
        self.assert_fails(again, Status.UNAVAILABLE, "REFUSED_STREAM")

    def test_refused_too_late(self) -> None:
        """What is too large to be kept, or was answered, is not made again."""
        call = self.call("x" * self.channel.limits.replay)
        self.origin.h2.reset_stream(1, ErrorCodes.REFUSED_STREAM)
        self.origin.flush()
        self.settle()
        self.assert_fails(call, Status.UNAVAILABLE)
        call = self.call("a")
        self.origin.answer(end=False, stream=3)
        self.settle()
        self.origin.h2.reset_stream(3, ErrorCodes.REFUSED_STREAM)
        self.origin.flush()
        self.settle()
        self.assert_fails(call, Status.UNAVAILABLE)

    def test_goaway_before_a_call(self) -> None:
        """Those that the server has not looked at go elsewhere; others go on."""
        first, second = self.call("a"), self.call("b", timeout=5)
        old = self.origin
        self.clock.advance(2)
        old.raw(GoAwayFrame(0, 1, 0).serialize())
        self.settle()
        self.assertIsNot(self.origin, old)
        self.assertEqual(self.origin.requests[0]["grpc-timeout"], "3000000u")
        self.origin.answer(envelope(b""), ("grpc-status", "0"))
        self.settle()
        self.successResultOf(second)
        self.assertNoResult(first)
        old.answer(envelope(b""), ("grpc-status", "0"))
        self.settle()
        self.successResultOf(first)
        self.assertTrue(old.lost)

    def test_takes_no_calls(self) -> None:
        """A server that always leaves before a call is not asked in a circle."""

        class Closed(_Server):
            def connectionMade(self) -> None:
                none = {SettingCodes.MAX_CONCURRENT_STREAMS: 0}
                self.h2.local_settings = Settings(client=False, initial_values=none)
                super().connectionMade()
                self.raw(GoAwayFrame(0, 0, 0).serialize())

        self.server = Closed  # type: ignore[method-assign]
        self.assert_fails(self.call("a"), Status.UNAVAILABLE)
        self.assertEqual(self.endpoint.attempts, 1)

    def test_floods(self) -> None:
        """PINGs and informational heads have a limit, as those of clients have."""
        informational = HeadersFrame(1)
        informational.flags.add("END_HEADERS")
        for flood in (PingFrame(0, b"12345678").serialize(), None):
            call = self.call("a")
            for _ in range(300):
                if flood is not None:
                    self.origin.raw(flood)
                elif not self.origin.lost:
                    self.origin.h2.send_headers(1, [(":status", "103")])
                    self.origin.flush()
            self.settle()
            self.assert_fails(call, Status.UNAVAILABLE)
            self.assertTrue(self.origin.lost)

    def test_pings_while_we_send(self) -> None:
        """A server may PING to measure what we send it."""

        async def chat() -> None:
            call = self.echoes.open("Chat", metadata=self.metadata)
            for number in range(1000):
                await call.send(Text(text="x"))
                self.origin.raw(PingFrame(0, number.to_bytes(8, "big")).serialize())
                self.settle()
            call.cancel()

        first = self.call("a")
        self.origin.answer(envelope(b""), ("grpc-status", "0"))
        self.settle()
        self.successResultOf(first)
        self.successResultOf(self.start(chat()))
        self.assertFalse(self.origin.lost)

    def test_says_nothing(self) -> None:
        """A server whose settings do not come is none."""

        class Silent(_Server):
            def connectionMade(self) -> None:
                pass

            def dataReceived(self, data: bytes) -> None:
                pass

        self.server = Silent  # type: ignore[method-assign]
        waiting = self.call("a")
        self.clock.advance(self.channel.limits.connect)
        self.assert_fails(waiting, Status.UNAVAILABLE, "within 20 s")
        self.settle()

    def test_not_http2(self) -> None:
        """A server of something else."""
        call = self.call("a")
        self.origin.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
        self.settle()
        self.assert_fails(call, Status.UNAVAILABLE)
