"""The listener of modules' pages: who gets what, and what clients come up against."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import attrs
import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import capturedLogs
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from kas.config.schema import Web, WebListen
from kas.web import requests
from kas.web.draining import DrainingFactory
from kas.web.listener import WebFactory, WebListener
from tunnel.hosting.pages import MAX_DEPTH, Pages
from tunnel.program.listening import Listening
from tunnel.program.runtime import Runtime

PEER = IPv4Address("TCP", "192.0.2.1", 40000)

SETTINGS = Web(
    listen=WebListen(listen_grace_period=5.0, shutdown_grace_period=10.0),
    request_timeout=30.0,
    idle_timeout=60.0,
    max_body_bytes=1000,
    max_connections=3,
)


class Hook(Resource):
    """A webhook that says what came."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Any] = []

    def render(self, request: Any) -> Any:
        what = request.args.get(b"do", [b""])[0]
        if what == b"fail":
            request.setHeader(b"x-secret", b"1")
            request.addCookie(b"secret", b"1")
            raise ZeroDivisionError("secret")
        if what == b"half":
            request.write(b"half")
            raise ZeroDivisionError("secret")
        if what == b"wait":
            self.waiting.append(request)
            return NOT_DONE_YET
        said = [request.method, *request.prepath, b"|", *request.postpath]
        return b" ".join(said) + b" " + request.content.read()


class _Client:
    def __init__(self, case: Any) -> None:
        self.transport = StringTransport()
        self.transport.abortConnection = self._abort  # type: ignore[method-assign]
        #: Bytes of the answer that the client has not read.
        self.unread = 0
        self.transport.unsent = lambda: self.unread  # type: ignore[attr-defined]
        self.aborted = False
        self.protocol: Any = case.factory.buildProtocol(PEER)
        if self.protocol is not None:
            self.protocol.makeConnection(self.transport)

    def _abort(self) -> None:
        self.aborted = True
        self.lose()

    def lose(self) -> None:
        protocol, self.protocol = self.protocol, None
        if protocol is not None:
            protocol.connectionLost(Failure(ConnectionDone()))

    def send(self, data: bytes) -> bytes:
        self.transport.clear()
        self.protocol.dataReceived(data)
        answer: bytes = self.transport.value()
        return answer

    def ask(self, path: str, *fields: str, body: bytes = b"") -> tuple[int, str, str]:
        method = "POST" if body else "GET"
        lines = [f"{method} {path} HTTP/1.1", "Host: kas", *fields]
        lines += [f"Content-Length: {len(body)}", "", ""]
        answer = self.send("\r\n".join(lines).encode() + body)
        head, _, rest = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), head.decode().lower(), rest.decode()


class _Case(SynchronousTestCase):
    settings = SETTINGS

    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.pages = Pages()
        self.hook = Hook()
        self.pages.mount("greeter", "/greeter", self.hook)
        self.factory = WebFactory(self.settings, self.pages, self.reactor)


class RequestTests(_Case):
    """From a path to the resource of a module."""

    def test_prefixes(self) -> None:
        """A resource sees what is below its prefix, and nothing else."""
        deep = Hook()
        self.pages.mount("other", "/hooks/git-lab", deep)
        client = _Client(self)
        for path, seen in (
            ("/greeter", "GET greeter | "),
            ("/greeter/", "GET greeter |  "),
            ("/greeter/a%2Fb/c?x=/hooks", "GET greeter | a/b c "),
            ("/hooks/git-lab/a", "GET hooks git-lab | a "),
        ):
            status, head, body = client.ask(path)
            self.assertEqual((status, body), (200, seen))
            self.assertNotIn("twistedweb", head)
        self.assertEqual(client.ask("/greeter", body=b"{}")[2], "POST greeter | {}")

    def test_address_of_the_client(self) -> None:
        """Only a trusted proxy may name it."""
        proxy = "192.168.1.1"  # the peer of a `StringTransport`
        for proxies, address in (((), proxy), ((proxy,), "198.51.100.7")):
            settings = attrs.evolve(self.settings, trusted_proxies=proxies)
            self.factory = WebFactory(settings, self.pages, self.reactor)
            _Client(self).send(
                b"GET /greeter?do=wait HTTP/1.1\r\nHost: kas\r\n"
                b"X-Forwarded-For: 198.51.100.7\r\n\r\n"
            )
            request = self.hook.waiting.pop()
            self.assertEqual(request.getClientAddress().host, address)

    def test_no_page(self) -> None:
        """404, in the words that the client reads."""
        client = _Client(self)
        for path in ("/", "/greete", "/greeters", "//greeter", "/hooks/..", "/GREETER"):
            status, head, body = client.ask(path)
            self.assertEqual((status, body), (404, "this page does not exist\n"))
            self.assertIn("content-type: text/plain", head)
        status, head, body = client.ask("/x", "Accept: application/json")
        self.assertEqual((status, json.loads(body)["message"]), (404, body[13:-3]))
        self.assertIn("content-type: application/json", head)
        answer = client.send(b"HEAD /x HTTP/1.1\r\nHost: kas\r\n\r\n")
        self.assertTrue(answer.endswith(b"\r\n\r\n"))

    def test_resource_fails(self) -> None:
        """The client learns that it did, the operator why."""
        client = _Client(self)
        status, head, body = client.ask("/greeter?do=fail")
        self.assertEqual((status, body), (500, "an internal error\n"))
        self.assertNotIn("secret", head)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(client.ask("/greeter")[0], 200)
        client.send(b"GET /greeter?do=half HTTP/1.1\r\nHost: kas\r\n\r\n")
        self.assertTrue(client.aborted)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_withdrawn(self) -> None:
        """What a module served is gone with it; what runs ends."""
        client = _Client(self)
        client.send(b"GET /greeter?do=wait HTTP/1.1\r\nHost: kas\r\n\r\n")
        self.pages.withdraw("greeter")
        other = _Client(self)
        self.assertEqual(other.ask("/greeter")[0], 404)
        self.hook.waiting[0].write(b"late")
        self.hook.waiting[0].finish()
        self.assertIn(b"late", client.transport.value())

    def test_metrics(self) -> None:
        """By module and class; of no path."""
        runtime = Runtime(reactor=self.reactor)
        registry = runtime.metrics
        listener = WebListener(
            self.settings, self.pages, Listening(self.reactor), runtime
        )
        self.factory = listener.factory  # type: ignore[assignment]
        client, leaving, large = (_Client(self) for _ in range(3))
        for path in ("/greeter", "/greeter/a", "/secret"):
            client.ask(path)
        client.send(b"GET /greeter?do=wait HTTP/1.1\r\nHost: kas\r\n\r\n")
        leaving.send(b"GET /greeter?do=wait HTTP/1.1\r\nHost: kas\r\n\r\n")
        leaving.lose()
        self.assertEqual(large.ask("/greeter", body=b"x" * 1001)[0], 413)
        large.lose()
        for name, labels, value in (
            ("kas_web_requests_total", {"module": "greeter", "code": "2xx"}, 2),
            ("kas_web_requests_total", {"module": "", "code": "4xx"}, 2),
            ("kas_web_requests_broken_total", {}, 1),
            ("kas_web_requests_in_flight", {}, 1),
            ("kas_web_connections", {}, 1),
        ):
            self.assertEqual(registry.get_sample_value(name, labels), value, name)


class FormTests(_Case):
    """Which forms are parsed: parsing blocks kas."""

    def seen(self, kind: str, body: bytes, query: str = "") -> dict[bytes, list[bytes]]:
        seen: dict[bytes, list[bytes]] = {}

        class Form(Resource):
            isLeaf = True

            def render(self, request: Any) -> bytes:
                seen.update(request.args)
                assert request.content.read() == body
                return b"x"

        self.pages.withdraw("form")
        self.pages.mount("form", "/form", Form())
        fields = f"Content-Type: {kind}"
        client = _Client(self)
        self.assertEqual(client.ask("/form" + query, fields, body=body)[0], 200)
        client.lose()
        return seen

    def test_small(self) -> None:
        form = "application/x-www-form-urlencoded; charset=utf-8"
        self.assertEqual(
            self.seen(form, b"a=1&b=&a=%32", "?a=0&c"),
            {b"a": [b"1", b"2"], b"b": [b""], b"c": [b""]},
        )

    def test_others(self) -> None:
        """Pages read other bodies themselves."""
        form = "application/x-www-form-urlencoded"
        self.assertEqual(self.seen(form, b"a=1"), {b"a": [b"1"]})
        self.patch(requests, "MAX_FORM_BYTES", 2)
        self.assertEqual(self.seen(form, b"a=1"), {})
        self.patch(requests, "MAX_FORM_BYTES", 10**6)
        self.patch(requests, "MAX_FIELDS", 3)
        self.assertEqual(self.seen(form, b"a&b&c&d"), {})
        self.assertEqual(self.seen("text/plain", b"a=1"), {})
        part = b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x--\r\n"
        self.assertEqual(self.seen("multipart/form-data; boundary=x", part), {})


class LimitTests(_Case):
    """What one client can take."""

    def test_body(self) -> None:
        """One that is too large is refused, announced or not."""
        for fields, rest in (
            (b"Content-Length: 1001\r\n\r\n", b""),
            (
                b"Transfer-Encoding: chunked\r\n\r\n",
                b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n",
            ),
        ):
            client = _Client(self)
            head = b"POST /greeter HTTP/1.1\r\nHost: kas\r\n"
            answer = client.send(head + fields + rest)
            self.assertTrue(answer.startswith(b"HTTP/1.1 413 "), answer)
            self.assertEqual(answer.count(b"HTTP/1.1"), 1)
            self.assertTrue(client.transport.disconnecting)
            client.lose()
        self.assertEqual(_Client(self).ask("/greeter", body=b"x" * 1000)[0], 200)

    def test_head(self) -> None:
        """One that is too large is refused."""
        client = _Client(self)
        field = "X: " + "x" * 8000
        lines = ["GET /greeter HTTP/1.1", "Host: kas", field, field, field, "", ""]
        answer = client.send("\r\n".join(lines).encode())
        self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), answer)

    def test_time(self) -> None:
        """A request that does not arrive is cut; so is a connection without one."""
        slow, idle = _Client(self), _Client(self)
        slow.send(b"POST /greeter HTTP/1.1\r\nHost: kas\r\nContent-Length: 10\r\n\r\n")
        for _ in range(5):
            self.reactor.advance(5.9)
            slow.send(b"x")
        self.assertFalse(slow.aborted)
        self.reactor.advance(0.6)
        self.assertTrue(slow.aborted)
        self.assertEqual(idle.ask("/greeter")[0], 200)
        self.reactor.advance(59)
        self.assertFalse(idle.transport.disconnecting)
        self.reactor.advance(2)
        self.assertTrue(idle.transport.disconnecting)

    def test_an_answer_may_take_its_time(self) -> None:
        """Only what the client does is timed."""
        client = _Client(self)
        client.send(b"GET /greeter?do=wait HTTP/1.1\r\nHost: kas\r\n\r\n")
        self.reactor.advance(3600)
        self.hook.waiting[0].finish()
        self.assertIn(b" 200 ", client.transport.value())

    def test_nothing_is_read(self) -> None:
        """A client that takes nothing of its answer is cut; a slow one is not."""
        client = _Client(self)
        client.send(b"GET /greeter?do=wait HTTP/1.1\r\nHost: kas\r\n\r\n")
        self.hook.waiting[0].write(b"x" * 1000)
        client.unread = 1000
        client.protocol.pauseProducing()
        for _ in range(5):
            client.unread -= 1
            self.reactor.advance(60)
        # What a page adds meanwhile is not what the client reads.
        client.transport.clear()
        self.hook.waiting[0].write(b"x" * 1000)
        client.unread += len(client.transport.value())
        self.assertFalse(client.aborted)
        self.reactor.advance(60)
        self.assertTrue(client.aborted)
        self.assertEqual(self.factory.counters.broken, 1)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_read_in_the_end(self) -> None:
        """One that was late and went on may wait for more as long as it likes."""
        client = _Client(self)
        client.send(b"GET /greeter?do=wait HTTP/1.1\r\nHost: kas\r\n\r\n")
        client.protocol.pauseProducing()
        client.protocol.resumeProducing()
        self.reactor.advance(3600)
        self.assertFalse(client.aborted)

    def test_a_last_answer_is_read_slowly(self) -> None:
        """Closing waits while the client reads; so does the time between requests."""
        last, first = _Client(self), _Client(self)
        last.unread = first.unread = 11
        last.ask("/greeter", "Connection: close")
        first.ask("/greeter")
        for unread in range(10, 0, -1):
            last.unread = first.unread = unread
            self.reactor.advance(60)
            self.assertEqual((last.aborted, first.transport.disconnecting), (0, 0))
        self.reactor.advance(60)
        self.assertTrue(last.aborted)
        self.assertTrue(first.transport.disconnecting)

    def test_connections(self) -> None:
        """One too many is closed; a place that becomes free is given again."""
        clients = [_Client(self) for _ in range(3)]
        self.assertIsNone(_Client(self).protocol)
        clients[0].lose()
        self.assertIsNotNone(_Client(self).protocol)

    def test_bodies_together(self) -> None:
        """All bodies share what memory there is; each may have a little."""
        memory = self.factory.site.bounds.memory
        memory.bytes, memory.each = memory.total, 100
        self.assertEqual(_Client(self).ask("/greeter", body=b"x" * 100)[0], 200)
        status = _Client(self).ask("/greeter", body=b"x" * 101)[0]
        self.assertEqual(status, 503)


class EndTests(_Case):
    """A kas that stops."""

    def test_drain(self) -> None:
        """Idle connections are closed, what runs may finish, and the rest is cut."""
        listener = WebListener(
            self.settings,
            self.pages,
            Listening(self.reactor),
            Runtime(reactor=self.reactor),
        )
        self.successResultOf(Deferred.fromCoroutine(listener.start()))
        self.factory = listener.factory  # type: ignore[assignment]
        idle, busy, stuck = (_Client(self) for _ in range(3))
        for one in (busy, stuck):
            one.send(b"GET /greeter?do=wait HTTP/1.1\r\nHost: kas\r\n\r\n")
        draining = Deferred.fromCoroutine(listener.finish_requests())
        self.assertEqual(idle.ask("/greeter")[0], 200)
        self.reactor.advance(5)
        self.assertTrue(idle.transport.disconnecting)
        # TLS waits with its goodbye as long as there is one.
        self.assertIsNone(idle.transport.producer)
        self.hook.waiting[0].finish()
        self.assertIn(b"connection: close", busy.transport.value().lower())
        self.assertTrue(busy.transport.disconnecting)
        for _ in range(110):
            self.assertFalse(stuck.transport.disconnecting)
            if draining.called:
                break
            self.reactor.advance(0.1)
        self.successResultOf(draining)
        stopping = Deferred.fromCoroutine(listener.stop())
        for one in (idle, busy):
            one.lose()
        self.reactor.pump([0.1] * 12)
        self.successResultOf(stopping)
        self.assertTrue(stuck.aborted)


class MountTests(SynchronousTestCase):
    """Which prefixes there can be."""

    def test_collisions(self) -> None:
        """A prefix of another module, or one above or below it, names both."""
        pages = Pages()
        pages.mount("one", "/a/b", Hook())
        for prefix in ("/a/b", "/a", "/a/b/c"):
            with self.assertRaisesRegex(
                ValueError, "module two .*, because module one uses /a/b"
            ):
                pages.mount("two", prefix, Hook())
        pages.mount("two", "/a/c", Hook())
        pages.mount("two", "/a/bb", Hook())
        self.assertEqual(pages.of("two"), ["/a/c", "/a/bb"])
        pages.withdraw("one")
        pages.mount("two", "/a/b", Hook())

    def test_root(self) -> None:
        """A page at / serves this path alone, beside the pages of others."""
        pages = Pages()
        pages.mount("one", "/a", Hook())
        pages.mount("two", "/", Hook())
        pages.mount("one", "/b", Hook())
        for path, owner in (
            ([b""], "two"),
            ([], "two"),
            ([b"a"], "one"),
            ([b"b", b""], "one"),
            ([b"c"], None),
            ([b"", b""], None),
        ):
            found = pages.find(path)
            self.assertEqual(found.owner if found else None, owner)
        with self.assertRaisesRegex(ValueError, "module two uses it"):
            pages.mount("one", "/", Hook())
        pages.withdraw("two")
        self.assertIsNone(pages.find([b""]))

    def test_what_is_none(self) -> None:
        """Each says what is wrong."""
        pages = Pages()
        for prefix in (
            "",
            "a",
            "/a/",
            "//a",
            "/a b",
            "/ä",
            "/a/../b",
            "/.",
            "/a?",
        ):
            with self.assertRaisesRegex(ValueError, "not a prefix"):
                pages.mount("one", prefix, Hook())
        with self.assertRaisesRegex(ValueError, "at most 8 names"):
            pages.mount("one", "/a" * (MAX_DEPTH + 1), Hook())
        nothing: Any = object()
        with self.assertRaisesRegex(ValueError, "not an IResource"):
            pages.mount("one", "/a", nothing)


@pytest.mark.parametrize("end", ["drain", "close", "abort"])
def test_one_connection_of_a_listener_fails(end: str) -> None:
    """The others are closed all the same."""

    class Connections(DrainingFactory):
        def connect(self, address: Any) -> Any:
            return None

    factory: Any = Connections("pages", 10)
    bad, good = Mock(), Mock()
    bad.close.side_effect = bad.transport.abortConnection.side_effect = ValueError
    factory.open = [bad, good]
    with capturedLogs() as events:
        getattr(factory, end)(*([1.0] if end == "drain" else []))
    called = good.transport.abortConnection if end == "abort" else good.close
    assert (called.call_count, len(events)) == (1, 1)
