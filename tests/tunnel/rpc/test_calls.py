"""Calls of every kind, and every way in which one can end."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.proto.echo_pb2 import Text
from tests.tunnel.rpc.echo import ECHO, Echo
from tunnel.api import SpanKind
from tunnel.errors import CallError, ErrorCode, Status
from tunnel.rpc.messages import MAX_MESSAGE, MAX_PENDING
from tunnel.testing import FakeTracer, RecordingReceiver, connected


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.agent, self.kas, self.pipe = connected(self.clock)
        self.echo = Echo()
        self.agent.dispatcher.handle("tests", ECHO, self.echo)
        self.client = self.kas.client(ECHO)

    def start(self, coroutine: Any) -> Deferred[Any]:
        deferred = Deferred.fromCoroutine(coroutine)
        self.pipe.flush()
        return deferred

    def run_(self, coroutine: Any) -> Any:
        return self.successResultOf(self.start(coroutine))

    def fails(self, coroutine: Any) -> CallError:
        error = self.failureResultOf(self.start(coroutine), CallError).value
        assert isinstance(error, CallError)
        return error

    def assertIdle(self) -> None:
        """No stream is left on either side, and no timer but the sweeps."""
        self.pipe.flush()
        self.assertEqual((self.agent.tunnel.load, self.kas.tunnel.load), (0, 0))
        self.assertEqual(len(self.clock.getDelayedCalls()), 2)


class CallTests(_Case):
    """kas calls a service of an agent."""

    def test_unary(self) -> None:
        """One request, one response."""
        answer = self.run_(self.client.call("Say", Text(text="hi"), timeout=5))
        self.assertEqual(answer.text, "HI")
        self.assertIdle()

    def test_server_streaming(self) -> None:
        """Responses one by one."""

        async def spell() -> list[str]:
            return [t.text async for t in self.client.stream("Spell", Text(text="abc"))]

        self.assertEqual(self.run_(spell()), ["a", "b", "c"])
        self.assertIdle()

    def test_client_streaming(self) -> None:
        """Requests one by one, one response."""

        async def join() -> str:
            call = self.client.open("Join")
            for text in ("a", "b", "c"):
                await call.send(Text(text=text))
            call.finish()
            answer: str = (await call.response()).text
            return answer

        self.assertEqual(self.run_(join()), "abc")
        self.assertIdle()

    def test_bidirectional(self) -> None:
        """Question and answer in turn; the handler may end it."""
        heard: list[str] = []

        async def chat() -> None:
            call = self.client.open("Chat")
            for text in ("hello", "bye"):
                await call.send(Text(text=text))
                heard.append((await anext(call)).text)
            async for more in call:
                heard.append(more.text)

        self.run_(chat())
        self.assertEqual(heard, ["HELLO", "BYE"])
        self.assertIdle()

    def test_metadata_both_ways(self) -> None:
        """Names in lower case, values of any text."""
        call = self.client.open("Say", metadata={"From": "zoë\r\n: %"})

        async def say() -> str:
            await call.send(Text(text="metadata"))
            call.finish()
            answer: str = (await call.response()).text
            return answer

        self.assertEqual(self.run_(say()), "zoë\r\n: %")
        self.assertEqual(call.metadata, {"server": "echo"})
        self.assertEqual(self.echo.calls[0].method, "/tests.proto.Echo/Say")

    def test_handler_refuses(self) -> None:
        """Its status and its words reach the caller, in one line."""
        error = self.fails(self.client.call("Say", Text(text="refuse")))
        self.assertEqual(error.status, Status.PERMISSION_DENIED)
        self.assertEqual(error.message, "not you: ünïcode  %")
        self.assertIdle()

    def test_handler_crashes(self) -> None:
        """INTERNAL, without its words, which go to the log."""
        error = self.fails(self.client.call("Say", Text(text="crash")))
        self.assertEqual(error.status, Status.INTERNAL)
        self.assertNotIn("secret", error.message)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_failure_after_responses(self) -> None:
        """The responses are read first."""
        heard: list[str] = []

        async def spell() -> None:
            async for text in self.client.stream("Spell", Text(text="a!")):
                heard.append(text.text)

        error = self.fails(spell())
        self.assertEqual(heard, ["a", "!"])
        self.assertEqual(error.status, Status.OUT_OF_RANGE)

    def test_unknown_service(self) -> None:
        """UNIMPLEMENTED."""
        self.agent.dispatcher.withdraw("tests")
        error = self.fails(self.client.call("Say", Text()))
        self.assertEqual(error.status, Status.UNIMPLEMENTED)

    def test_deadline(self) -> None:
        """Both sides stop: the caller with an error, the handler where it waits."""
        failed = self.start(self.client.call("Say", Text(text="wait"), timeout=3))
        self.assertAlmostEqual(self.echo.calls[0].time_left, 3.0)
        self.clock.advance(3)
        self.pipe.flush()
        error = self.failureResultOf(failed, CallError).value
        assert isinstance(error, CallError)
        self.assertEqual(error.status, Status.DEADLINE_EXCEEDED)
        self.assertEqual(self.echo.cancelled, 1)
        self.assertIdle()

    def test_handler_keeps_the_deadline_though_the_caller_is_silent(self) -> None:
        """A caller that lost interest without a word."""
        failed = self.start(self.client.call("Say", Text(text="wait"), timeout=3))
        self.pipe.cut = True
        self.clock.advance(3)
        self.assertEqual(self.echo.cancelled, 1)
        self.failureResultOf(failed, CallError)

    def test_no_deadline(self) -> None:
        """Is None for the handler."""
        self.run_(self.client.call("Say", Text(text="x")))
        self.assertIsNone(self.echo.calls[0].time_left)

    def test_caller_gives_up(self) -> None:
        """The handler is cancelled."""
        deferred = self.start(self.client.call("Say", Text(text="wait")))
        deferred.addErrback(lambda failure: None)
        deferred.cancel()
        self.pipe.flush()
        self.assertEqual(self.echo.cancelled, 1)
        self.assertIdle()

    def test_leaving_a_stream_of_responses_cancels_it(self) -> None:
        """And what was produced meanwhile is bounded by what the caller took."""

        async def look() -> None:
            stream = self.client.stream("Spell", Text(text="flood"))
            async for _ in stream:
                break
            await stream.aclose()

        self.run_(look())
        self.assertIdle()
        self.assertLess(self.echo.produced, 2_000)

    def test_cancelled_by_the_server(self) -> None:
        """Responses that wait are dropped, the handler ends, and its caller is told."""
        calls: list[Any] = []
        ended: list[bool] = []

        async def flood(request: Any, call: Any) -> Any:
            calls.append(call)
            try:
                while True:
                    yield Text(text="x" * 100_000)
            finally:
                ended.append(True)

        self.patch(self.echo, "spell", flood)
        self.agent.dispatcher.handle("tests", ECHO, self.echo)
        self.agent.tunnel.writer.pauseProducing()

        async def read() -> None:
            async for _ in self.client.stream("Spell", Text(text="flood")):
                raise AssertionError("a response arrived")

        reading = self.start(read())
        self.assertGreater(self.agent.tunnel.session.all_queued, 100_000)
        calls[0].cancel("enough")
        self.assertEqual((ended, self.agent.tunnel.session.all_queued), ([True], 0))
        calls[0].cancel("again")
        self.agent.tunnel.writer.resumeProducing()
        self.pipe.flush()
        error = self.failureResultOf(reading, CallError).value
        self.assertEqual((error.status, error.message), (Status.CANCELLED, "enough"))
        self.assertIdle()

    def test_a_cancelled_call_leaves_no_cycle(self) -> None:
        """Its response is freed at once, without the garbage collector."""
        calls: list[weakref.ref[Any]] = []

        async def spell_and_hold(request: Any, call: Any) -> Any:
            calls.append(weakref.ref(call))
            yield Text(text="x" * 1000)
            await Deferred()

        self.patch(self.echo, "spell", spell_and_hold)
        self.agent.dispatcher.handle("tests", ECHO, self.echo)
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        call = self.client.open("Spell")
        self.start(call.send(Text(text="a")))
        call.finish()
        self.pipe.flush()
        self.assertIsNotNone(calls[0]())
        call.cancel()
        self.pipe.flush()
        self.assertIsNone(calls[0]())

    def test_a_handler_ends_with_its_call(self) -> None:
        """A handler whose response waits releases its resources at once."""
        held: list[Any] = []
        spell = self.echo.spell

        def spell_and_hold(*rest: Any) -> Any:
            # Without a reference, the garbage collector would end the handler.
            held.append(spell(*rest))
            return held[-1]

        self.patch(self.echo, "spell", spell_and_hold)
        self.agent.dispatcher.handle("tests", ECHO, self.echo)
        call = self.client.open("Spell")
        self.start(call.send(Text(text="flood")))
        call.finish()
        self.pipe.flush()
        self.assertEqual(self.echo.closed, 0)
        call.cancel()
        self.pipe.flush()
        self.assertEqual(self.echo.closed, 1)
        self.assertIdle()

    def test_slow_reader_slows_the_sender(self) -> None:
        """Responses wait at the sender, not here."""
        call = self.client.open("Spell")
        self.start(call.send(Text(text="flood")))
        call.finish()
        self.pipe.flush()
        window = self.kas.tunnel.session.window_target
        high = self.kas.tunnel.session.limits.send_high
        most = (MAX_PENDING + window + high) // 1000 + 100
        self.assertLess(self.echo.produced, most)

        async def rest() -> int:
            return len([1 async for _ in call])

        self.assertEqual(self.run_(rest()), 10_000 + len("flood"))

    def test_connection_lost(self) -> None:
        """UNAVAILABLE for the caller, cancelled for the handler."""
        failed = self.start(self.client.call("Say", Text(text="wait")))
        self.agent.tunnel.end(ErrorCode.SHUTDOWN, "bye")
        self.pipe.flush()
        error = self.failureResultOf(failed, CallError).value
        assert isinstance(error, CallError)
        self.assertEqual(error.status, Status.UNAVAILABLE)
        self.assertEqual(self.echo.cancelled, 1)

    def test_no_connection(self) -> None:
        """Is an error of the call as well."""
        self.kas.tunnel.end(ErrorCode.SHUTDOWN)
        self.pipe.flush()
        error = self.fails(self.client.call("Say", Text(text="x")))
        self.assertEqual(error.status, Status.UNAVAILABLE)

    def test_message_that_is_too_large(self) -> None:
        """Is not sent, and is not taken."""
        error = self.fails(self.client.call("Say", Text(text="x" * MAX_MESSAGE)))
        self.assertEqual(error.status, Status.RESOURCE_EXHAUSTED)
        self.assertEqual(self.raw((MAX_MESSAGE + 1).to_bytes(4, "big")), "8")

    def test_request_that_cannot_be_read(self) -> None:
        """INVALID_ARGUMENT."""
        self.assertEqual(self.raw(b"\0\0\0\2\xff\xff", fin=True), "3")

    def test_missing_request(self) -> None:
        """INVALID_ARGUMENT."""
        self.assertEqual(self.raw(b"", fin=True), "3")

    def test_cut_within_a_request(self) -> None:
        """INTERNAL."""
        self.assertEqual(self.raw(b"\0\0\0\\9ab", fin=True), "13")

    def test_headers_of_a_caller(self) -> None:
        """End the call."""
        receiver = RecordingReceiver()
        stream = self.kas.open_stream("/tests.proto.Echo/Say", receiver)
        stream.send_headers(b"x: y\r\n")
        self.pipe.flush()
        self.assertEqual(len(receiver.closed), 1)

    def raw(self, data: bytes, fin: bool = False) -> str:
        """The status that the answering side gives to these bytes."""
        receiver = RecordingReceiver()
        stream = self.kas.open_stream("/tests.proto.Echo/Say", receiver)
        stream.write(data)
        if fin:
            stream.finish()
        self.pipe.flush()
        fields = dict(
            line.split(b": ", 1) for line in receiver.headers[-1].split(b"\r\n") if line
        )
        return fields[b"status"].decode()

    def answer(self, reply: Callable[[Any], None]) -> CallError:
        """What a caller makes of an answer that no server of ours gives."""

        def accept(stream: Any, open_: Any) -> RecordingReceiver:
            reply(stream)
            stream.finish()
            return RecordingReceiver()

        self.agent.dispatcher.withdraw("tests")
        self.agent.dispatcher.handle_stream("t", "/tests.proto.Echo/Say", accept)
        return self.fails(self.client.call("Say", Text(text="x")))

    def test_answer_without_trailers(self) -> None:
        """Is not an answer, even with a response in it."""
        error = self.answer(lambda stream: stream.write(b"\0\0\0\0"))
        self.assertEqual(error.status, Status.INTERNAL)

    def test_answer_with_two_responses(self) -> None:
        """Is not the answer of a unary call."""

        def reply(stream: Any) -> None:
            stream.write(b"\0\0\0\0" * 2)
            stream.send_headers(b"status: 0\r\n")

        self.assertEqual(self.answer(reply).status, Status.INTERNAL)

    def test_answer_that_is_no_answer(self) -> None:
        """Bytes that cannot be read, none at all, or a status that nobody knows."""
        for data, block, status in (
            (b"\0\0\0\1\xff", b"status: 0\r\n", Status.INTERNAL),
            (b"", b"status: 0\r\n", Status.INTERNAL),
            (b"", b"status: 99\r\n", Status.UNKNOWN),
            (b"", b"status: x\r\n", Status.UNKNOWN),
            (b"\xff\xff\xff\xff", b"status: 0\r\n", Status.RESOURCE_EXHAUSTED),
        ):

            def reply(stream: Any, data: bytes = data, block: bytes = block) -> None:
                stream.write(data)
                stream.send_headers(block)

            self.assertEqual(self.answer(reply).status, status)

    def test_service_with_a_method_missing(self) -> None:
        """Is refused when it is registered, with the name that is missing."""

        class Half:
            async def say(self, request: Text, call: Any) -> Text:
                return request

        self.agent.dispatcher.withdraw("tests")
        with self.assertRaisesRegex(ValueError, "Half has no method spell"):
            self.agent.dispatcher.handle("other", ECHO, Half())

    def test_method_of_another_module(self) -> None:
        """Cannot be taken over."""
        with self.assertRaisesRegex(ValueError, "already handled by the module tests"):
            self.agent.dispatcher.handle("other", ECHO, self.echo)

    def test_services_are_announced(self) -> None:
        """By their full names."""
        self.assertEqual(self.agent.dispatcher.services, ["tests.proto.Echo"])


class TraceTests(_Case):
    """Spans of calls, and the calls that are made on their behalf."""

    PARENT = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"

    def setUp(self) -> None:
        super().setUp()
        self.tracer = self.agent.dispatcher.tracer = FakeTracer(begins=False)
        self.agent.dispatcher.handle("tests", ECHO, self.echo)

    def say(self, text: str) -> Any:
        metadata = {"traceparent": self.PARENT}
        return self.client.call("Say", Text(text=text), timeout=5, metadata=metadata)

    def test_span(self) -> None:
        """From the request to the answer, below that of the caller."""
        deferred = self.start(self.say("wait"))
        (span,) = self.tracer.spans
        self.assertEqual(
            (span.name, span.parent), ("tests.proto.Echo/Say", self.PARENT)
        )
        self.assertEqual((span.kind, span.ended), (SpanKind.SERVER, False))
        self.echo.waiting[0].callback(None)
        self.pipe.flush()
        self.successResultOf(deferred)
        self.assertEqual((span.ended, span.problem), (True, ""))

    def test_failed(self) -> None:
        """It says why, in the words that the caller gets."""
        self.fails(self.say("refuse"))
        self.assertIn("not you", self.tracer.spans[0].problem)
        self.fails(self.say("crash"))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertNotIn("secret", self.tracer.spans[1].problem)

    def test_given_up(self) -> None:
        """The caller did not wait."""
        deferred = self.start(self.say("wait"))
        deferred.addErrback(lambda _: None)
        deferred.cancel()
        self.pipe.flush()
        self.assertEqual(self.tracer.spans[0].problem, "the caller gave up")

    def test_carried_on(self) -> None:
        """Calls of a handler carry its trace, across everything that it awaits."""
        seen: list[dict[str, str]] = []
        waiting: list[Deferred[None]] = []

        class Passer(Echo):
            async def say(self, request: Text, call: Any) -> Text:
                waiting.append(Deferred())
                await waiting[-1]
                answer: Text = await client.call("Say", request)
                return answer

        class Seer(Echo):
            async def say(self, request: Text, call: Any) -> Text:
                seen.append(call.metadata)
                return request

        client = self.agent.client(ECHO)
        self.kas.dispatcher.handle("tests", ECHO, Seer())
        self.agent.dispatcher.handle("tests", ECHO, Passer())
        others = "00-" + "c" * 32 + "-" + "d" * 16 + "-00"
        for parent in (self.PARENT, others, "nonsense"):
            metadata = {"traceparent": parent}
            self.start(self.client.call("Say", Text(), metadata=metadata))
        self.start(self.client.call("Say", Text()))
        for one in waiting:
            one.callback(None)
            self.pipe.flush()
        spans = [span.traceparent for span in self.tracer.spans]
        self.assertEqual([one.get("traceparent") for one in seen], [*spans, None, None])
        self.assertEqual(len(spans), 2)
