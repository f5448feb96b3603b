"""WebSockets of modules on the listener of pages: requests, messages, limits, ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import Mock

import pytest
from twisted.internet.address import IPv4Address, UNIXAddress
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs
from twisted.web.resource import Resource
from websockets.frames import Frame, Opcode

from kas.web.listener import WebCollector
from kas.web.requests import MAX_EARLY_BYTES
from tests.kas.web.socket_client import Listener, Receiver, SocketClient
from tests.stubborn import stubborn
from tunnel.api import AcceptedWebSocket
from tunnel.errors import CallError, Status
from tunnel.hosting.web_sockets import ACCEPT_TIMEOUT, CLOSE_SECONDS, MAX_REASON_BYTES
from tunnel.transport.websocket_core import MAX_PONG_BYTES


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def failures() -> Iterator[Sequence[Any]]:
    """The logged events."""
    with capturedLogs() as events:
        yield events


def opened(listener: Listener, **fields: Any) -> SocketClient:
    client = SocketClient(listener, **fields)
    assert client.open() == 101
    assert listener.receiver.seen == ["opened"]
    listener.receiver.seen.clear()
    return client


def test_messages(listener: Listener) -> None:
    """Texts are texts, bytes are bytes, in both directions."""
    client = opened(listener)
    client.send("ä")
    client.send(b"\xff")
    assert listener.receiver.seen == ["ä", b"\xff"]
    listener.receiver.socket.send("ö")
    listener.receiver.socket.send(b"\xfe")
    assert client.read() == ["ö", b"\xfe"]


def test_request(listener: Listener) -> None:
    """The module sees path, query, headers, origin, subprotocols and address."""
    listener.options = {"subprotocol": "b"}
    client = opened(
        listener,
        path="/m/socket/x%2Fy/z?a=1&b=%20&a=",
        subprotocols=["a", "b"],
        Origin="https://page.example.com",
        X_Other="1",
    )
    seen = listener.requests[0]
    assert seen.path == ("x/y", "z")
    assert seen.query == {"a": ("1", ""), "b": (" ",)}
    assert seen.origin == "https://page.example.com"
    assert seen.own_origin == "http://kas"
    assert seen.subprotocols == ("a", "b")
    assert seen.headers["x-other"] == ("1",)
    assert seen.peer_address.host == "192.0.2.1"  # type: ignore[attr-defined]
    assert client.core.subprotocol == "b"
    assert "a=1" not in repr(seen)


def test_proxies() -> None:
    """Only a trusted proxy may name the client and the address of kas."""
    fields = {
        "X_Forwarded_For": "198.51.100.7",
        "X_Forwarded_Host": "Public.example.com",
        "X_Forwarded_Proto": "https",
    }
    for trusted, peer, host, origin in (
        ((), "192.0.2.1", "192.0.2.1", "http://kas"),
        (("10.0.0.0/8",), "192.0.2.1", "192.0.2.1", "http://kas"),
        (("10.0.0.0/8",), "10.0.0.1", "198.51.100.7", "https://public.example.com"),
    ):
        listener = Listener(trusted_proxies=trusted)
        opened(listener, peer=IPv4Address("TCP", peer, 1), **fields)
        seen: Any = listener.requests[0]
        assert (seen.peer_address.host, seen.own_origin) == (host, origin)
    listener = Listener(trusted_proxies=("unix",))
    opened(listener, peer=UNIXAddress("/run/kas"), **fields)
    assert listener.requests[0].own_origin == "https://public.example.com"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (Status.UNAUTHENTICATED, 401),
        (Status.PERMISSION_DENIED, 403),
        (Status.NOT_FOUND, 404),
        (Status.INVALID_ARGUMENT, 400),
        (Status.RESOURCE_EXHAUSTED, 429),
        (Status.UNAVAILABLE, 503),
    ],
)
def test_refused(listener: Listener, status: Status, expected: int) -> None:
    """The client gets a status before the upgrade, and the connection ends."""
    listener.decision = CallError(status, "not you")
    client = SocketClient(listener)
    assert client.open() == expected
    assert b"not you" in client.text
    assert client.closing()
    assert listener.receivers == []
    # Frames that a client sent at once do not count as a request.
    client.raw(b"GET /m/socket HTTP/1.1\r\nHost: kas\r\n\r\n")
    assert client.text.count(b"HTTP/1.1") == 1
    assert len(listener.requests) == 1


def test_decision_fails(listener: Listener, failures: Sequence[Any]) -> None:
    """The client learns that it failed, the operator why."""
    for wrong in (
        ZeroDivisionError("secret"),
        CallError(Status.INTERNAL, "secret"),
        object(),
        AcceptedWebSocket(Receiver(), subprotocol="not offered"),
    ):
        listener.decision = wrong
        client = SocketClient(listener)
        assert client.open() == 500
        assert b"secret" not in client.text
        client.lose()
    assert len([one for one in failures if "log_failure" in one]) == 4


def test_later_decision(listener: Listener) -> None:
    """Frames that arrive before the decision are delivered after it."""
    listener.decision = Deferred()
    client = SocketClient(listener)
    assert client.open() == 0
    frame = Frame(Opcode.TEXT, b"early").serialize(mask=True)
    client.raw(frame)
    listener.reactor.advance(1)
    listener.decision.callback(listener.accepted())
    assert client.status == 101
    assert listener.receiver.seen == ["opened", "early"]


def test_early_bytes(listener: Listener) -> None:
    """kas reads only a little before the decision."""
    listener.decision = Deferred()
    client = SocketClient(listener)
    client.open()
    frame = Frame(Opcode.BINARY, bytes(MAX_EARLY_BYTES)).serialize(mask=True)
    client.raw(frame[:MAX_EARLY_BYTES])
    assert client.transport.producerState == "producing"
    client.raw(frame[MAX_EARLY_BYTES:])
    assert client.transport.producerState == "paused"
    listener.decision.callback(listener.accepted())
    assert client.transport.producerState == "producing"
    assert listener.receiver.seen == ["opened", bytes(MAX_EARLY_BYTES)]


def test_frames_behind_the_head(listener: Listener) -> None:
    """Frames in the same packet as the request are delivered."""
    client = SocketClient(listener)
    frame = Frame(Opcode.TEXT, b"early").serialize(mask=True)
    client.raw(client.head.serialize() + frame)
    assert listener.receiver.seen == ["opened", "early"]


def test_client_leaves(listener: Listener) -> None:
    """The decision is cancelled, and a late one opens nothing."""
    cancelled: list[Any] = []
    listener.decision = Deferred(cancelled.append)
    client = SocketClient(listener)
    client.open()
    assert listener.factory.calls == 1
    client.lose()
    assert len(cancelled) == 1
    assert listener.factory.calls == listener.factory.connections == 0


@pytest.mark.parametrize("is_stubborn", [False, True], ids=["waits", "survives"])
def test_no_decision(listener: Listener, is_stubborn: bool) -> None:
    """A module that does not decide delays a client for a limited time."""
    listener.decision = (
        Deferred.fromCoroutine(stubborn()) if is_stubborn else Deferred()
    )
    client = SocketClient(listener)
    client.open()
    listener.reactor.advance(ACCEPT_TIMEOUT - 0.1)
    assert client.status == 0
    listener.reactor.advance(0.2)
    assert client.status == 503


def test_not_a_websocket(listener: Listener) -> None:
    """Other requests at the path get the status of RFC 6455, and reach no module."""
    key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
    upgrade = ["Connection: Upgrade", "Upgrade: websocket"]
    whole = [*upgrade, key, "Sec-WebSocket-Version: 13"]
    for line, fields, status in (
        ("GET /m/socket HTTP/1.1", [], 426),
        ("GET /m/socket HTTP/1.0", whole, 426),
        ("POST /m/socket HTTP/1.1", whole, 405),
        ("HEAD /m/socket HTTP/1.1", whole, 405),
        ("GET /m/socket HTTP/1.1", [*upgrade, "Sec-WebSocket-Version: 13"], 400),
        ("GET /m/socket HTTP/1.1", [*upgrade, key], 400),
        ("GET /m/socket HTTP/1.1", [*whole, "Content-Length: 1"], 400),
        ("GET /m/other HTTP/1.1", whole, 404),
    ):
        client = SocketClient(listener)
        body = "x" if "Content-Length: 1" in fields else ""
        text = "\r\n".join([line, "Host: kas", *fields, "", body])
        client.raw(text.encode())
        client.text = client.transport.value()
        assert int(client.text.split()[1]) == status, line
        client.lose()
    assert listener.requests == []


def test_fragments(listener: Listener) -> None:
    """A message in fragments is one message; a ping between them is answered."""
    client = opened(listener)
    client.core.send_text(b"one ", fin=False)
    client.core.send_ping(b"now")
    client.core.send_continuation(b"", fin=False)
    client.core.send_continuation(b"two", fin=True)
    client.flush()
    assert listener.receiver.seen == ["one two"]
    assert client.read() == ["pong"]


@pytest.mark.parametrize("fragments", [1, 2])
def test_too_large(listener: Listener, fragments: int) -> None:
    """A message beyond the limit closes with 1009, in fragments, too."""
    listener.options = {"max_message_bytes": 100}
    client = opened(listener)
    client.send("x" * 100)
    if fragments == 1:
        client.core.send_text(b"x" * 101)
    else:
        client.core.send_text(b"x" * 100, fin=False)
        client.core.send_continuation(b"x", fin=True)
    client.flush()
    ((code, _),) = client.read()
    assert code == 1009
    assert client.closing()
    client.lose()
    assert listener.receiver.seen[0] == "x" * 100
    assert listener.receiver.seen[1][0] == 1009


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (Frame(Opcode.TEXT, b"\xff").serialize(mask=True), 1007),
        (Frame(Opcode.TEXT, b"unmasked").serialize(mask=False), 1002),
        (Frame(Opcode.CONT, b"x").serialize(mask=True), 1002),
        (b"\x83\x80\0\0\0\0", 1002),
    ],
    # Masks are random, and names of tests must not be.
    ids=["not UTF-8", "no mask", "no beginning", "unknown"],
)
def test_rules(listener: Listener, frame: bytes, code: int) -> None:
    """A client that breaks the protocol is closed with the code for it."""
    client = opened(listener)
    client.raw(frame)
    assert client.read()[0][0] == code
    client.raw(Frame(Opcode.TEXT, b"late").serialize(mask=True))
    client.lose()
    assert [one[0] for one in listener.receiver.seen] == [code]


def test_memory(listener: Listener) -> None:
    """Incomplete messages share the memory of all requests, and return it."""
    listener.options = {"max_message_bytes": 1000}
    memory = listener.factory.site.bounds.memory
    memory.each = 100
    client = opened(listener)
    # Neither an accepted nor a refused request keeps any.
    refused = SocketClient(listener)
    refused.head.headers["Transfer-Encoding"] = "chunked"
    refused.core.send_request(refused.head)
    refused.flush()
    refused.raw(b"64\r\n" + b"x" * 100)
    assert memory.bytes == 100
    refused.raw(b"\r\n0\r\n\r\n")
    assert refused.transport.value().startswith(b"HTTP/1.1 400 ")
    refused.lose()
    assert memory.bytes == 0
    client.core.send_text(b"x" * 500, fin=False)
    client.flush()
    assert 500 <= memory.bytes <= 520
    client.core.send_continuation(b"", fin=True)
    client.flush()
    assert memory.bytes == 0
    client.raw(Frame(Opcode.TEXT, b"x" * 500).serialize(mask=True)[:300])
    assert memory.bytes == 300
    client.lose()
    assert memory.bytes == 0
    memory.bytes = memory.total
    client = opened(listener)
    client.raw(Frame(Opcode.TEXT, b"x" * 500).serialize(mask=True)[:300])
    assert client.read()[0][0] == 1013


def test_pause_reading(listener: Listener) -> None:
    """A receiver that pauses gets nothing, and its client has to wait."""
    client = opened(listener)
    receiver = listener.receiver
    one, two = (Frame(Opcode.TEXT, x).serialize(mask=True) for x in (b"1", b"2"))
    receiver.message_received = Mock(
        side_effect=lambda _: receiver.socket.pause_reading()
    )
    client.raw(one + two)
    assert receiver.message_received.call_args_list == [(("1",),)]
    assert client.transport.producerState == "paused"
    receiver.socket.resume_reading()
    assert receiver.message_received.call_count == 1
    listener.reactor.advance(0)
    assert receiver.message_received.call_count == 2
    assert client.transport.producerState == "paused"
    receiver.socket.resume_reading()
    listener.reactor.advance(0)
    assert client.transport.producerState == "producing"


def test_slow_client(listener: Listener) -> None:
    """The receiver learns of it; a client beyond the limit is cut."""
    listener.options = {"max_unsent_bytes": 1000}
    client = opened(listener)
    receiver = listener.receiver
    client.protocol.pauseProducing()
    client.protocol.resumeProducing()
    assert receiver.seen == ["paused", "resumed"]
    client.unread = 1000
    receiver.socket.send("x")
    assert receiver.socket.unsent == 1000
    assert not client.cut()
    client.unread = 1001
    receiver.socket.send("x")
    assert client.cut()
    assert receiver.seen[-1] == (1006, "")
    receiver.socket.send("nothing happens")


def test_idle(listener: Listener) -> None:
    """The idle timeout of the listener does not cut a WebSocket whose client lives."""
    client = opened(listener)
    for _ in range(100):
        listener.reactor.advance(20)
        assert client.read() == ["ping"]
        client.flush()
    assert not client.cut()


def test_gone(listener: Listener) -> None:
    """A client without a sign of life during three periods is cut."""
    listener.options = {"ping_seconds": 10}
    client = opened(listener)
    listener.reactor.pump([10, 10])
    assert not client.cut()
    listener.reactor.advance(10)
    assert client.cut()
    assert listener.receiver.seen == [(1006, "")]


def test_slow_but_alive(listener: Listener) -> None:
    """A client that only reads, or that the receiver does not read, is not cut."""
    client = opened(listener)
    for _ in range(10):
        listener.receiver.socket.send("x" * 100)
        client.unread += 50
        listener.reactor.advance(20)
    assert not client.cut()
    client.unread = 0
    listener.receiver.socket.pause_reading()
    listener.reactor.pump([20] * 10)
    assert not client.cut()
    # One that does not read, either, is.
    client.transport.clear()
    client.unread = 50
    for _ in range(5):
        listener.reactor.advance(20)
        # Pings of kas wait, too.
        client.unread += len(client.transport.value())
        client.transport.clear()
    assert client.cut()


def test_pings_without_reading(listener: Listener) -> None:
    """Responses to pings are limited."""
    client = opened(listener)
    client.unread = 1
    ping = Frame(Opcode.PING, b"x" * 100).serialize(mask=True)
    for _ in range(MAX_PONG_BYTES // 102):
        client.raw(ping)
    assert not client.cut()
    client.raw(ping)
    assert client.cut()


def test_client_closes(listener: Listener) -> None:
    """The receiver learns code and reason; what came before is delivered."""
    client = opened(listener)
    client.core.send_text(b"last")
    client.core.send_close(3001, "bye")
    client.flush()
    assert client.read() == [(3001, "bye")]
    assert client.closing()
    assert listener.receiver.seen == ["last"]
    listener.receiver.socket.send("too late")
    listener.receiver.socket.close()
    client.lose()
    assert listener.receiver.seen == ["last", (3001, "bye")]
    assert listener.reactor.getDelayedCalls() == []


def test_receiver_closes(listener: Listener) -> None:
    """A close frame follows the messages, and kas waits for the client's."""
    client = opened(listener)
    socket = listener.receiver.socket
    socket.send("last")
    socket.close(3002, "ä" * MAX_REASON_BYTES)
    socket.send("too late")
    assert client.read() == ["last", (3002, "ä" * (MAX_REASON_BYTES // 2))]
    client.raw(Frame(Opcode.TEXT, b"dropped").serialize(mask=True))
    assert not client.closing()
    client.flush()
    assert client.closing()
    client.lose()
    assert [one[0] for one in listener.receiver.seen] == [3002]


def test_close_unanswered(listener: Listener) -> None:
    """A client that does not close is cut, unless it still reads."""
    client = opened(listener)
    listener.receiver.socket.close()
    listener.reactor.advance(CLOSE_SECONDS)
    assert client.cut()
    reading = opened(listener)
    listener.receiver.socket.send("x" * 100)
    reading.unread = 100
    listener.receiver.socket.close()
    for _ in range(3):
        reading.unread -= 20
        listener.reactor.advance(CLOSE_SECONDS)
        assert not reading.cut()
    listener.reactor.advance(CLOSE_SECONDS)
    assert reading.cut()


def test_close_while_paused(listener: Listener) -> None:
    """The client's close frame is read although the receiver has paused."""
    client = opened(listener)
    listener.receiver.socket.pause_reading()
    listener.receiver.socket.close()
    assert client.transport.producerState == "producing"


def test_receiver_fails(listener: Listener, failures: Sequence[Any]) -> None:
    """Its WebSocket is closed with 1011; others stay."""
    client, other = opened(listener), opened(listener)
    client.send("x")
    other.send("fail")
    assert other.read() == [(1011, "an internal error")]
    assert client.read() == []
    seen = [one["log_failure"].type for one in failures if "log_failure" in one]
    assert seen == [ZeroDivisionError]


def test_connections(listener: Listener) -> None:
    """WebSockets count in the limit of the listener."""
    clients = [opened(listener) for _ in range(3)]
    assert SocketClient(listener).protocol is None
    clients[0].lose()
    assert listener.factory.connections == 2
    opened(listener)


def test_module_stops(listener: Listener) -> None:
    """Its WebSockets are closed, and it hears nothing more."""
    client = opened(listener)
    listener.decision = Deferred()
    deciding = SocketClient(listener)
    deciding.open()
    listener.scope.release()
    assert client.read() == [(1012, "the module stops")]
    assert listener.receiver.seen == [(1012, "the module stops")]
    client.lose()
    assert len(listener.receiver.seen) == 1
    listener.decision.callback(listener.accepted())
    assert deciding.status == 503
    fresh = SocketClient(listener)
    assert fresh.open() == 404


def test_drain(listener: Listener) -> None:
    """kas waits for receivers that say goodbye; others close at once with 1001."""

    class Polite(Receiver):
        def draining(self, seconds: float) -> None:
            self.seen.append(("draining", seconds))

    plain = opened(listener)
    listener.make = Polite
    polite = opened(listener)
    listener.decision = Deferred()
    deciding = SocketClient(listener)
    deciding.open()
    listener.factory.drain(7.0)
    assert plain.read() == [(1001, "kas stops")]
    assert listener.receiver.seen == [("draining", 7.0)]
    assert listener.factory.unfinished == 3
    plain.flush()
    plain.lose()
    assert polite.read() == []
    listener.factory.close()
    assert polite.read() == [(1001, "kas stops")]
    polite.lose()
    # A decision that comes too late opens the WebSocket only to close it.
    listener.decision.callback(listener.accepted())
    assert deciding.status == 101
    assert deciding.read() == [(1001, "kas stops")]
    deciding.lose()
    assert listener.factory.unfinished == 0


def test_upgrade_while_draining(listener: Listener) -> None:
    """A request that arrives while kas drains is refused."""
    client = SocketClient(listener)
    listener.factory._draining = True
    assert client.open() == 503


def test_metrics(listener: Listener) -> None:
    """By module, direction and close code; unknown codes count together."""
    client, other = opened(listener), opened(listener)
    client.send("four")
    listener.receivers[0].socket.send("ok")
    for one, code in ((client, 4321), (other, 1000)):
        one.core.send_close(code)
        one.flush()
        one.lose()
    opened(listener)
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in WebCollector(listener.factory).collect()
        for sample in metric.samples
    }
    assert values["kas_web_sockets", "m"] == 1
    assert values["kas_web_socket_messages_total", "m", "received"] == 1
    assert values["kas_web_socket_bytes_total", "m", "received"] == 4
    assert values["kas_web_socket_bytes_total", "m", "sent"] == 2
    assert values["kas_web_sockets_closed_total", "m", "other"] == 1
    assert values["kas_web_sockets_closed_total", "m", "1000"] == 1
    assert values["kas_web_requests_total", "m", "1xx"] == 3
    assert values["kas_web_requests_broken_total",] == 0
    assert values["kas_web_requests_in_flight",] == 0


def test_prefixes(listener: Listener) -> None:
    """A WebSocket's prefix belongs to its module like a page's."""
    with pytest.raises(ValueError, match="because module m uses /m/socket"):
        listener.pages.mount("other", "/m/socket/x", Resource())
