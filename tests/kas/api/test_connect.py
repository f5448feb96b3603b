"""Connect over HTTP/1.1: what is sent and answered, byte by byte."""

from __future__ import annotations

import base64
import json
from typing import Any

import attrs
from twisted.internet.protocol import Protocol
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure

from kas.api.limits import DEFAULT_LIMITS
from tests.kas.api.clients import ECHO, ExternalCase, Service, token
from tests.proto.echo_pb2 import Text
from tunnel.grpc.fields import metadata_from, metadata_to
from tunnel.grpc.messages import Envelopes, envelope
from tunnel.rpc.messages import MAX_MESSAGE
from tunnel.testing import FakeTracer, Pipe

JSON = "application/json"
PROTO = "application/proto"


class _Client(Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.lost = False

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.lost = True


class _Answer:
    def __init__(self, received: bytes) -> None:
        head, _, body = received.partition(b"\r\n\r\n")
        first, *fields = head.decode().split("\r\n")
        self.status = int(first.split()[1])
        self.fields = {
            name.lower(): value
            for name, _, value in (field.partition(": ") for field in fields)
        }
        if self.fields.get("transfer-encoding") == "chunked":
            whole = b""
            while body:
                size, _, body = body.partition(b"\r\n")
                length = int(size, 16)
                whole += body[:length]
                body = body[length + 2 :]
            body = whole
        self.body = body

    @property
    def code(self) -> str:
        found: str = json.loads(self.body)["code"]
        return found

    def stream(self) -> tuple[list[bytes], Any]:
        """The messages, and what the last envelope says."""
        *messages, (flags, end) = Envelopes().feed(self.body)
        assert flags == 2
        assert all(flag == 0 for flag, _ in messages)
        return [message for _, message in messages], json.loads(end)


class _Case(ExternalCase):
    def begin(
        self, path: str, body: bytes, content_type: str = JSON, **headers: str
    ) -> tuple[_Client, Pipe]:
        client = _Client()
        pipe = self.connect(client)
        pipe.transports[0].write(self.request(path, body, content_type, **headers))
        pipe.flush()
        return client, pipe

    def request(
        self, path: str, body: bytes, content_type: str = JSON, **headers: str
    ) -> bytes:
        fields = {
            "Host": "kas",
            "Authorization": f"Bearer {token()}",
            "Content-Type": content_type,
            "Content-Length": str(len(body)),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        method = path if path.startswith("/") else f"/tests.proto.Echo/{path}"
        return f"POST {method} HTTP/1.1\r\n{lines}\r\n".encode() + body

    def ask(
        self, path: str, body: bytes, content_type: str = JSON, **headers: str
    ) -> _Answer:
        client, _ = self.begin(path, body, content_type, **headers)
        return _Answer(client.received)


class UnaryTests(_Case):
    """One request, one response."""

    def test_json_and_protobuf(self) -> None:
        """The answer is in the format of the question."""
        answer = self.ask("Say", b'{"text": "hi", "unknown": 1}')
        self.assertEqual((answer.status, answer.body), (200, b'{"text": "HI"}'))
        self.assertEqual(answer.fields["content-type"], JSON)
        answer = self.ask("Say", Text(text="hi").SerializeToString(), PROTO)
        self.assertEqual(Text.FromString(answer.body).text, "HI")
        self.assertEqual(answer.fields["content-type"], PROTO)

    def test_keep_alive(self) -> None:
        """Several on one connection, sent without waiting."""
        client, pipe = self.begin("Say", b'{"text": "a"}')
        two = self.request("Say", b'{"text": "b"}') * 2
        pipe.transports[0].write(two)
        pipe.flush()
        self.assertEqual(client.received.count(b'{"text": "B"}'), 2)
        self.assertFalse(client.lost)

    def test_metadata(self) -> None:
        """What a handler hears and says; nothing of it is ours."""
        answer = self.ask("Say", b'{"text": "metadata"}', From="here")
        self.assertEqual(answer.body, b'{"text": "here"}')
        found = metadata_from(
            [
                (b"Authorization", b"Bearer x"),
                (b"cookie", b"x"),
                (b"grpc-timeout", b"1S"),
                (b"X-One", b"1"),
                (b"x-one", b"2"),
            ]
        )
        self.assertEqual(found, {"x-one": "1,2"})
        sent = metadata_to({"a b": "x", "grpc-status": "0", "x-ok": "a\r\nb: c\xff"})
        self.assertEqual(sent, [(b"x-ok", b"a??b: c?")])

    def test_errors(self) -> None:
        """Each with its HTTP status."""
        for path, body, status, code in (
            ("Say", b'{"text": "refuse"}', 403, "permission_denied"),
            ("Say", b'{"text": 5}', 400, "invalid_argument"),
            ("Say", b"", 400, "invalid_argument"),
            ("Say", b"[" * 100_000, 400, "invalid_argument"),
            ("Say", b"\xff", 400, "invalid_argument"),
            ("Shout", b"{}", 501, "unimplemented"),
            ("/a.B/C", b"{}", 501, "unimplemented"),
        ):
            answer = self.ask(path, body)
            self.assertEqual((answer.status, answer.code), (status, code), body[:20])
        answer = self.ask("Say", b"\xff", PROTO)
        self.assertEqual((answer.status, answer.code), (400, "invalid_argument"))

    def test_details(self) -> None:
        """Type, bytes, and for people what those of Google's kinds say."""
        answer = self.ask("Say", b'{"text": "explain 3 2"}')
        why, own = json.loads(answer.body)["details"]
        violation = {"field": "text", "description": "xxx"}
        self.assertEqual(why["type"], "google.rpc.BadRequest")
        self.assertEqual(why["debug"], {"fieldViolations": [violation]})
        value = base64.b64encode(Text(text="own").SerializeToString()).decode()
        self.assertEqual(own, {"type": "tests.proto.Text", "value": value.rstrip("=")})

    def test_handler_failed(self) -> None:
        """The log has it, the caller does not."""
        answer = self.ask("Say", b'{"text": "crash"}')
        self.assertEqual((answer.status, answer.code), (500, "internal"))
        self.assertNotIn(b"secret", answer.body)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_spans(self) -> None:
        """From the caller's trace to the handler's calls; the answer has its id."""
        tracer = self.services.tracer = FakeTracer()
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        self.ask("Say", b'{"text": "hi"}', Traceparent=parent)
        answer = self.ask("Say", b'{"text": "refuse"}')
        good, bad = tracer.spans
        self.assertEqual((good.name, good.parent), ("tests.proto.Echo/Say", parent))
        self.assertEqual((good.ended, good.problem), (True, ""))
        heard = self.echo.calls[0].metadata["traceparent"]
        self.assertEqual(heard, good.traceparent)
        self.assertIsNone(bad.parent)
        self.assertIn("not you", bad.problem)
        self.assertIn(f"[trace {bad.traceparent[3:35]}]".encode(), answer.body)
        # Who is a stranger, and what is not there, begins none.
        self.ask("Say", b"{}", Authorization="Bearer x")
        self.ask("Shout", b"{}")
        self.assertEqual(len(tracer.spans), 2)

    def test_trace(self) -> None:
        """By its id in the answer the log has the error, and what failed."""
        trace_id = "0af7651916cd43dd8448eb211c80319c"
        for body, traceparent, lines in (
            (b'{"text": "crash"}', f"00-{trace_id}-b7ad6b7169203331-01", 2),
            (b'{"text": "crash"}', trace_id, 2),
            (b'{"text": "refuse"}', "", 1),
            (b"{", "", 1),
        ):
            events = EventLoggingObserver()
            globalLogPublisher.addObserver(events)
            answer = self.ask("Say", body, Traceparent=traceparent)
            globalLogPublisher.removeObserver(events)
            self.flushLoggedErrors(ZeroDivisionError)
            message = json.loads(answer.body)["message"]
            told = message.rpartition(" [trace ")[2].rstrip("]")
            self.assertEqual(len(told), 32, message)
            self.assertEqual(told == trace_id, lines == 2 and traceparent != trace_id)
            found = [one for one in events if one.get("trace_id") == told]
            self.assertEqual(len(found), lines, list(events))

    def test_token(self) -> None:
        """Without a good one nothing is told, and the connection ends."""
        for bad in ("", "Basic eDp5", f"Bearer {token(b'x' * 32)}", "Bearer"):
            client, _ = self.begin("Nothing", b"{}", Authorization=bad)
            answer = _Answer(client.received)
            self.assertEqual((answer.status, answer.code), (401, "unauthenticated"))
            self.assertEqual(answer.fields["www-authenticate"], "Bearer")
            self.assertTrue(client.lost)

    def test_sign_ins(self) -> None:
        """The caller is recorded once, and a bad token, but not a missing one."""
        bad = f"Bearer {token(b'x' * 32)}"
        for sent in ("", bad, bad):
            self.begin("Say", b"{}", Authorization=sent, User_Agent="curl/8")
        for _ in range(2):
            self.ask("Say", b"{}", User_Agent="rails/1")
        refused, accepted = self.signed
        self.assertNotIn(bad[-20:], str(refused))
        self.assertEqual(
            (refused.outcome, refused.details["status"], refused.details["user_agent"]),
            ("refused", "UNAUTHENTICATED", "curl/8"),
        )
        self.assertEqual(
            accepted.details,
            {
                "method": "api",
                "credential": "api:gitlab",
                "client": "127.0.0.1",
                "user_agent": "rails/1",
            },
        )

    def test_deadline(self) -> None:
        """The client's, or none."""
        client, pipe = self.begin("Say", b'{"text": "wait"}', Connect_Timeout_Ms="500")
        self.assertEqual(client.received, b"")
        self.clock.advance(0.5)
        pipe.flush()
        answer = _Answer(client.received)
        self.assertEqual((answer.status, answer.code), (504, "deadline_exceeded"))
        for bad in ("x", "", "-1", "12345678901"):
            self.assertEqual(self.ask("Say", b"{}", Connect_Timeout_Ms=bad).status, 400)

    def test_encodings(self) -> None:
        """Compressed requests are refused by name."""
        answer = self.ask("Say", b"{}", Content_Encoding="gzip")
        self.assertEqual((answer.status, answer.code), (501, "unimplemented"))
        self.assertEqual(answer.fields["accept-encoding"], "identity")
        self.assertEqual(
            self.ask("Say", b"{}", Content_Encoding="identity").status, 200
        )

    def test_content_types(self) -> None:
        """What is not Connect, or not of this kind of method."""
        self.assertEqual(self.ask("Say", b"{}", f"{JSON}; charset=utf-8").status, 200)
        for kind in ("", "text/plain", f"{JSON}; charset=latin-1", "application/grpc"):
            self.assertEqual(self.ask("Say", b"{}", kind).status, 415)
        answer = self.ask("Spell", b"{}")
        self.assertEqual(answer.status, 415)
        self.assertIn("application/connect+json", answer.fields["accept-post"])
        self.assertIn(b"application/connect+json", answer.body)
        self.assertEqual(self.ask("Say", b"", "application/connect+json").status, 415)

    def test_not_a_method(self) -> None:
        """Neither by the path nor by the verb; none is a traceback."""
        for start, status in (
            (b"GET /tests.proto.Echo/Say", 405),
            (b"\xff\xfe /tests.proto.Echo/Say", 400),
            (b"POST /", 404),
            (b"POST /%ff/%fe", 404),
            (b"POST /a/b/c", 404),
        ):
            client = _Client()
            pipe = self.connect(client)
            head = b" HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
            pipe.transports[0].write(start + head)
            pipe.flush()
            self.assertEqual(_Answer(client.received).status, status, start)

    def test_gone(self) -> None:
        """The handler of a client that left is cancelled."""
        _, pipe = self.begin("Say", b'{"text": "wait"}')
        self.assertEqual(self.factory.calls, 1)
        pipe.transports[0].abortConnection()
        pipe.flush()
        self.assertEqual(self.echo.cancelled, 1)
        self.assertEqual(self.factory.calls, 0)


class StreamTests(_Case):
    """Messages in envelopes."""

    def test_server_streaming(self) -> None:
        """Each as soon as it is there; the last envelope says how it went."""
        body = envelope(b'{"text": "abc!"}')
        answer = self.ask("Spell", body, "application/connect+json")
        self.assertEqual(answer.status, 200)
        messages, end = answer.stream()
        self.assertEqual([json.loads(one)["text"] for one in messages], [*"abc!"])
        self.assertEqual(end["error"]["code"], "out_of_range")
        self.assertRegex(end["error"]["message"], r"^too loud \[trace [0-9a-f]{32}\]$")
        body = envelope(Text(text="ab").SerializeToString())
        messages, end = self.ask("Spell", body, "application/connect+proto").stream()
        self.assertEqual([Text.FromString(one).text for one in messages], ["a", "b"])
        self.assertEqual(end, {})

    def test_at_once(self) -> None:
        """The first message does not wait for the second."""
        body = envelope(b'{"text": "pause"}')
        client, _ = self.begin("Spell", body, "application/connect+json")
        self.assertIn(b'{"text": "a"}', client.received)

    def test_client_streaming(self) -> None:
        """Over HTTP/1.1 as long as it fits into one body; both ways it cannot."""
        kind = "application/connect+json"
        body = envelope(b'{"text": "a"}') * 3
        messages, end = self.ask("Join", body, kind).stream()
        self.assertEqual((len(messages), end), (1, {}))
        self.assertEqual(self.ask("Chat", body, kind).status, 505)

    def test_slow_reader(self) -> None:
        """A handler without end, and a client that does not read."""
        client = _Client()
        pipe = self.connect(client, capacity=32768)
        pipe.transports[0].reading = False
        body = envelope(b'{"text": "endless"}')
        request = self.request("Spell", body, "application/connect+json")
        pipe.transports[0].write(request)
        pipe.flush()
        self.assertLess(self.echo.produced, 100)

    def test_errors(self) -> None:
        """In the last envelope, with status 200."""
        kind = "application/connect+json"
        for body, headers, code in (
            (envelope(b"{}"), {"Authorization": "x"}, "unauthenticated"),
            (envelope(b"{}"), {"Connect_Content_Encoding": "gzip"}, "unimplemented"),
            (envelope(b"{}", 1), {}, "unimplemented"),
            (envelope(b"{}", 2), {}, "invalid_argument"),
            (envelope(b"{"), {}, "invalid_argument"),
            (b"\0\0\0\0\5ab", {}, "invalid_argument"),
            (b"", {}, "invalid_argument"),
            (b"\0\xff\xff\xff\xff", {}, "resource_exhausted"),
        ):
            answer = self.ask("Spell", body, kind, **headers)
            _, end = answer.stream()
            self.assertEqual((answer.status, end["error"]["code"]), (200, code))
        answer = self.ask("/no.Such/Method", envelope(b"{}"), kind)
        self.assertEqual(answer.stream()[1]["error"]["code"], "unimplemented")


class LimitTests(_Case):
    """Sizes and times over HTTP/1.1."""

    limits = attrs.evolve(DEFAULT_LIMITS, request=5.0)

    def test_body(self) -> None:
        """By its announced length, and by what comes."""
        length = self.limits.body + 1
        client = _Client()
        pipe = self.connect(client)
        head = self.request("Say", b"", Content_Length=str(length))
        pipe.transports[0].write(head)
        pipe.flush()
        self.assertIn(b" 413 ", client.received)
        self.assertTrue(client.lost)
        client = _Client()
        pipe = self.connect(client)
        head = self.request("Say", b"").replace(
            b"Content-Length: 0", b"Transfer-Encoding: chunked"
        )
        pipe.transports[0].write(head)
        for _ in range(length // 65536 + 2):
            pipe.transports[0].write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            pipe.flush()
        self.assertIn(b" 413 ", client.received)
        self.assertTrue(client.lost)

    def test_no_call_for_half_a_body(self) -> None:
        """Also where the last bytes come with those that were too many."""
        said: list[str] = []

        class Recording(Service):
            async def say(self, request: Text, call: Any) -> Text:
                said.append(request.text)
                return request

        self.services.withdraw("tests")
        self.services.handle("tests", ECHO, Recording())
        whole = Text(text="a").SerializeToString()
        for text, calls in ((bytes(self.limits.body + 1), []), (whole, ["a"])):
            client = _Client()
            pipe = self.connect(client)
            head = self.request("Say", b"", PROTO).replace(
                b"Content-Length: 0", b"Transfer-Encoding: chunked"
            )
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text)
            pipe.transports[0].write(head + body)
            pipe.flush()
            self.assertEqual(said, calls)

    def test_message(self) -> None:
        """What fits into the body and is too large as a message."""
        answer = self.ask("Say", bytes(MAX_MESSAGE + 1), PROTO)
        self.assertEqual((answer.status, answer.code), (429, "resource_exhausted"))

    def test_slow_request(self) -> None:
        """A head or a body that never ends."""
        whole = self.request("Say", b'{"text": "a"}')
        for part in (whole[:20], whole[:200], whole[:-1]):
            client = _Client()
            pipe = self.connect(client)
            pipe.transports[0].write(part)
            pipe.flush()
            if b"\r\n" in part:
                self.clock.advance(self.limits.request)
                pipe.flush()
                self.assertTrue(client.lost, part)

    def test_idle(self) -> None:
        """Between two requests, and within a line that never ends."""
        client, pipe = self.begin("Say", b'{"text": "a"}')
        self.clock.advance(self.limits.idle - 1)
        pipe.flush()
        self.assertFalse(client.lost)
        self.clock.advance(1)
        pipe.flush()
        self.assertTrue(client.lost)
        client = _Client()
        pipe = self.connect(client)
        pipe.transports[0].write(b"POST /tests.proto")
        pipe.flush()
        self.clock.advance(self.limits.idle)
        pipe.flush()
        self.assertTrue(client.lost)

    def test_drain(self) -> None:
        """Idle connections end at once; a busy one after its answer."""
        idle, idle_pipe = self.begin("Say", b'{"text": "a"}')
        busy, pipe = self.begin("Say", b'{"text": "wait"}')
        self.factory.drain(10)
        idle_pipe.flush()
        pipe.flush()
        self.assertTrue(idle.lost)
        self.assertFalse(busy.lost)
        self.echo.waiting[0].callback(None)
        pipe.flush()
        self.assertIn(b"WAIT", busy.received)


class AgeTests(_Case):
    """Connections that others would keep for ever."""

    age = 30.0

    def test_age(self) -> None:
        """An old connection ends after its next answer."""
        client, pipe = self.begin("Say", b'{"text": "a"}')
        self.clock.advance(self.age + 1)
        pipe.transports[0].write(self.request("Say", b'{"text": "b"}'))
        pipe.flush()
        self.assertIn(b'"B"', client.received)
        self.assertTrue(client.lost)
