"""Receivers of exported events."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceResponse,
)
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IResponse
from zope.interface import implementer

from kas.audit.exports import receivers
from kas.audit.exports.cursor import Cursor
from kas.audit.exports.exporter import NotAccepted, Unsent
from kas.audit.exports.reader import Exported
from kas.audit.exports.receivers import (
    CONFIRM_SECONDS,
    TIMEOUT,
    OtlpReceiver,
    SyslogReceiver,
    WebhookReceiver,
)
from tests.kas.audit.exports.test_formats import frames
from tests.tunnel.transport import certificates
from tunnel.transport.tls import CertificateFiles, client_context

URL = "https://siem.example.com/in"
EVENTS = [
    Exported(b'{"seq":%d}' % seq, {"seq": seq}, Cursor("", 0)) for seq in range(2)
]


@implementer(IResponse)
class FakeResponse:
    """A response with a body."""

    version = (b"HTTP", 1, 1)
    phrase = b""
    headers = Headers()
    previousResponse = None
    request = None

    def __init__(self, code: int, body: bytes = b"") -> None:
        self.code, self.body, self.length = code, body, len(body)

    def deliverBody(self, protocol: Any) -> None:
        protocol.makeConnection(None)
        protocol.dataReceived(self.body)
        protocol.connectionLost(Failure(ResponseDone()))

    def setPreviousResponse(self, response: Any) -> None:
        raise NotImplementedError


@implementer(IAgent)
class FakeServer:
    """A server that answers as the test says."""

    def __init__(self) -> None:
        self.answer: Callable[[], Deferred[Any]] = lambda: succeed(FakeResponse(200))
        self.headers: list[Headers] = []

    def request(
        self, method: bytes, uri: bytes, headers: Any = None, bodyProducer: Any = None
    ) -> Deferred[Any]:
        assert (method, uri) == (b"POST", URL.encode())
        self.headers.append(headers)
        return self.answer()


def in_thread(act: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
    try:
        return succeed(act(*arguments))
    except (Unsent, ValueError) as error:
        return fail(error)


class HttpWorld:
    """A webhook and its receiver."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.server = Clock(), FakeServer()
        self.secret = folder / "secret"
        self.secret.write_text(f"whsec_{base64.b64encode(b'k' * 32).decode()}")
        shared: Any = (URL, self.server, self.clock, lambda: 5.0, in_thread)
        self.webhook = WebhookReceiver(self.secret, *shared)
        self.otlp = OtlpReceiver("host", self.secret, *shared)

    def send(self, receiver: Any = None) -> Exception | None:
        """Return the error; None if the events were accepted."""
        results: list[Any] = []
        done = Deferred.fromCoroutine((receiver or self.webhook).send(EVENTS))
        done.addBoth(results.append)
        if not results:
            self.clock.advance(TIMEOUT)
        (result,) = results
        if not isinstance(result, Failure):
            return None
        assert isinstance(result.value, Exception)
        return result.value


@pytest.fixture
def http(tmp_path: Path) -> HttpWorld:
    return HttpWorld(tmp_path)


def test_accepted(http: HttpWorld) -> None:
    assert http.send() is None
    (headers,) = http.server.headers
    (kind,) = headers.getRawHeaders(b"content-type") or ()
    assert kind == b"application/x-ndjson"
    assert headers.getRawHeaders(b"webhook-timestamp") == [b"5"]


@pytest.mark.parametrize("code", [301, 307, 401, 403, 404, 408, 429, 500, 503])
def test_events_that_are_sent_again(http: HttpWorld, code: int) -> None:
    """Also redirects, which are not followed."""
    http.server.answer = lambda: succeed(FakeResponse(code, b"no\n\x1b"))
    error = http.send()
    assert isinstance(error, Unsent)
    assert str(error) == f"the receiver responded with {code}: no"
    assert len(http.server.headers) == 1


def test_a_gateway_that_repeats_the_request(http: HttpWorld) -> None:
    """Its text goes to the log of kas, and the token must not."""
    token = http.secret.read_text()
    text = f"not allowed: Authorization: Bearer {token}".encode()
    http.server.answer = lambda: succeed(FakeResponse(403, text))
    error = str(http.send(http.otlp))
    assert error.endswith("403: not allowed: Authorization: ***")


@pytest.mark.parametrize(
    ("code", "too_large"), [(413, True), (400, False), (422, False)]
)
def test_events_that_are_refused(http: HttpWorld, code: int, too_large: bool) -> None:
    http.server.answer = lambda: succeed(FakeResponse(code))
    error = http.send()
    assert isinstance(error, NotAccepted)
    assert error.too_large is too_large


def test_no_connection(http: HttpWorld) -> None:
    http.server.answer = lambda: fail(ConnectionRefusedError())
    error = http.send()
    assert isinstance(error, Unsent)
    assert "refused" in str(error)


def test_a_receiver_that_does_not_respond(http: HttpWorld) -> None:
    http.server.answer = Deferred
    assert str(http.send()) == "no response in 30 s"


def test_an_endless_response(http: HttpWorld) -> None:
    body = b"x" * (receivers.MAX_ANSWER + 1)
    http.server.answer = lambda: succeed(FakeResponse(200, body))
    assert http.send() is None


def test_a_secret_that_was_removed(http: HttpWorld) -> None:
    """The exporter retries; the text does not contain the secret."""
    http.secret.write_text("short")
    error = http.send()
    assert isinstance(error, ValueError)
    assert "whsec" not in str(error)


def test_opentelemetry_drops_events(http: HttpWorld) -> None:
    """The protocol forbids to send them again; they are counted."""
    answer: Any = ExportLogsServiceResponse()
    answer.partial_success.rejected_log_records = 2
    body = answer.SerializeToString()
    http.server.answer = lambda: succeed(FakeResponse(200, body))
    assert http.send(http.otlp) is None
    assert http.otlp.dropped == 2
    http.server.answer = lambda: succeed(FakeResponse(200, b"\xff"))
    assert http.send(http.otlp) is None
    assert http.otlp.dropped == 2


class SyslogServer:
    """A server for syslog over TLS, with one thread."""

    def __init__(self, folder: Path) -> None:
        certificate, key = certificates.server_identity().write(folder, "server")
        self.ca = certificates.authority().write(folder)
        self._context = CertificateFiles(certificate, key).load(
            (), ssl.TLSVersion.TLSv1_2
        )
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.received = b""
        self.connections: list[socket.socket] = []
        self.arrived = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                raw, _ = self._listening.accept()
                connection = self._context.wrap_socket(raw, server_side=True)
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        while True:
            try:
                data = connection.recv(65536)
            except OSError:
                return
            if not data:
                return
            with self.arrived:
                self.received += data
                self.arrived.notify_all()

    def wait_for(self, count: int) -> list[bytes]:
        """Wait for messages, and return all of them."""
        with self.arrived:
            assert self.arrived.wait_for(
                lambda: len(frames(self.received)) >= count, 30.0
            )
            return frames(self.received)

    def drop(self) -> None:
        """Close all connections."""
        for one in self.connections:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self.connections.clear()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.drop()


@pytest.fixture
def syslog(tmp_path: Path) -> Iterator[SyslogServer]:
    server = SyslogServer(tmp_path)
    yield server
    server.close()


def receiver_for(server: SyslogServer, **options: Any) -> SyslogReceiver:
    options = {"ca_file": server.ca, "system_pool": False, "alpn": (), **options}
    context = partial(client_context, **options)
    return SyslogReceiver("127.0.0.1", server.port, context, in_thread, "host")


def result(coroutine: Any) -> Any:
    """Return the error of a coroutine that does not wait; None without one."""
    results: list[Any] = []
    Deferred.fromCoroutine(coroutine).addBoth(results.append)
    (found,) = results
    return found.value if isinstance(found, Failure) else found


def test_syslog_over_tls(syslog: SyslogServer) -> None:
    receiver = receiver_for(syslog)
    assert receiver.confirm_seconds == CONFIRM_SECONDS
    for _ in range(2):
        assert result(receiver.send(EVENTS)) is None
        assert result(receiver.check()) is None
    messages = syslog.wait_for(4)
    assert [one.rpartition(b"\xbf")[2] for one in messages] == [
        one.line for one in (*EVENTS, *EVENTS)
    ]
    assert len(syslog.connections) == 1
    receiver.close()


def test_a_syslog_connection_that_was_closed(syslog: SyslogServer) -> None:
    """The next look notices it, and the next attempt connects again."""
    receiver = receiver_for(syslog)
    assert result(receiver.send(EVENTS)) is None
    syslog.wait_for(2)
    syslog.drop()
    error = result(receiver.check())
    assert isinstance(error, Unsent)
    assert result(receiver.check()) is None
    assert result(receiver.send(EVENTS)) is None
    syslog.wait_for(4)
    receiver.close()


def test_a_syslog_server_with_another_certificate(
    syslog: SyslogServer, tmp_path: Path
) -> None:
    """No event is sent to it."""
    other = certificates.other_authority().write(tmp_path, "other.crt")
    receiver = receiver_for(syslog, ca_file=other)
    error = result(receiver.send(EVENTS))
    assert isinstance(error, Unsent)
    assert "certificate" in str(error)
    assert syslog.received == b""


def test_a_syslog_server_that_reads_nothing(
    syslog: SyslogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt ends after a while, and the events are sent again."""
    monkeypatch.setattr(receivers, "TIMEOUT", 0.05)
    monkeypatch.setattr(receivers, "_unconfirmed", lambda connection: 1)
    error = result(receiver_for(syslog).send(EVENTS))
    assert isinstance(error, Unsent)
    assert "read nothing" in str(error)


def test_kas_stops_while_a_thread_sends(
    syslog: SyslogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread ends soon, so that kas does not wait for the receiver."""
    receiver = receiver_for(syslog)
    assert result(receiver.send(EVENTS)) is None
    syslog.wait_for(2)
    waiting = threading.Event()

    def unconfirmed(connection: socket.socket) -> int:
        waiting.set()
        return int(connection.fileno() >= 0)

    monkeypatch.setattr(receivers, "_unconfirmed", unconfirmed)
    thread = threading.Thread(target=result, args=(receiver.send(EVENTS),))
    thread.start()
    assert waiting.wait(30.0)
    receiver.close()
    thread.join(30.0)
    assert not thread.is_alive()


def test_no_syslog_server(syslog: SyslogServer) -> None:
    syslog.close()
    assert isinstance(result(receiver_for(syslog).send(EVENTS)), Unsent)


def test_a_sequence_of_events_is_kept(syslog: SyslogServer) -> None:
    receiver = receiver_for(syslog)
    events: Sequence[Exported] = [
        Exported(b'{"seq":%d}' % seq, {"seq": seq}, Cursor("", 0)) for seq in range(500)
    ]
    assert result(receiver.send(events)) is None
    found = [one.rpartition(b"\xbf")[2] for one in syslog.wait_for(500)]
    assert found == [one.line for one in events]
    receiver.close()
