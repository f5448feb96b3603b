"""The webhook for an API server: it answers at once, and its memory is limited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from modules.cluster_audit.agent import webhook as module
from modules.cluster_audit.agent.events import EventReader
from modules.cluster_audit.agent.module import ClusterAuditOptions
from modules.cluster_audit.agent.webhook import AuditWebhook, WebhookEvents
from modules.cluster_audit.wire import cluster_audit_pb2 as wire
from tests.modules.cluster_audit.pair import (
    ODD_BODIES,
    event,
    in_one_thread,
    text_of,
    with_body,
)
from tunnel.config import read
from tunnel.errors import CallError, ConfigurationError, Status

TOKEN = b"0123456789abcdef"


@attrs.define(eq=False)
class Stuck:
    """A webhook, and a kas whose answers the test gives."""

    events: WebhookEvents = attrs.field(factory=WebhookEvents)
    clock: Clock = attrs.field(factory=Clock)
    requests: list[wire.StoreRequest] = attrs.field(factory=list)
    waiting: list[Deferred[Any]] = attrs.field(factory=list)
    stored: int = 0
    errors: list[Any] = attrs.field(factory=list)

    def post(
        self,
        body: bytes,
        token: bytes = TOKEN,
        target: bytes = b"/audit?timeout=30s",
        method: bytes = b"POST",
    ) -> bytes:
        """Send a request, and return the status line of the response."""
        server = self.connect()
        server.dataReceived(self.head(len(body), token, target, method))
        for start in range(0, len(body), 1000):
            server.dataReceived(body[start : start + 1000])
        return bytes(server.transport.value().partition(b"\r\n")[0])

    def connect(self) -> Any:
        """Return the webhook's protocol of a new connection."""
        handler = AuditWebhook(self.events, lambda: TOKEN)
        server = handler.factory(self.clock).buildProtocol(None)
        server.makeConnection(StringTransport())
        return server

    def head(
        self,
        length: int,
        token: bytes = TOKEN,
        target: bytes = b"/audit?timeout=30s",
        method: bytes = b"POST",
    ) -> bytes:
        """Return the head of a request."""
        line = b"%b %b HTTP/1.1\r\nHost: a\r\n" % (method, target)
        length_field = b"Content-Length: %d\r\n\r\n" % length
        return line + b"Authorization: Bearer %b\r\n" % token + length_field

    def run(self) -> None:
        """Begin to send events to kas."""

        def call(name: str, request: wire.StoreRequest) -> Deferred[Any]:
            assert name == "Store"
            self.requests.append(request)
            answer: Deferred[Any] = Deferred()
            self.waiting.append(answer)
            return answer

        def sent(count: int) -> None:
            self.stored += count

        running = Deferred.fromCoroutine(self.events.run(EventReader(), call, sent))
        running.addErrback(self.errors.append)

    def answer(self, offset: int | None = None) -> None:
        """Let kas confirm the last request."""
        end = self.requests[-1].end if offset is None else offset
        self.waiting.pop().callback(wire.StoreResponse(offset=end))

    def ids(self) -> list[str]:
        """Return the ids of the last request."""
        return [one.audit_id for one in self.requests[-1].events]


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Stuck:
    in_one_thread(monkeypatch)
    return Stuck()


def body_of(*ids: str, **changed: Any) -> bytes:
    items = [event(one, **changed) for one in ids]
    return json.dumps({"kind": "EventList", "items": items}).encode()


OK = b"HTTP/1.1 200 OK"


def test_events(stuck: Stuck) -> None:
    """The API server has its response before kas has the events."""
    stuck.run()
    assert stuck.post(body_of("1", "2")) == OK
    assert stuck.ids() == ["1", "2"]
    assert stuck.stored == 0
    assert stuck.post(body_of("3")) == OK
    stuck.answer()
    assert stuck.stored == 2
    first, second = stuck.requests
    assert (first.start, first.end, second.start, second.end) == (0, 2, 2, 3)
    assert [one.end for one in first.events] == [1, 2]
    assert first.log == second.log
    assert first.log.startswith("webhook:")


def test_kas_that_does_not_respond(
    stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory is limited, and kas gets the number of events without room."""
    monkeypatch.setattr(module, "MAX_WAITING", 10_000)
    stuck.run()
    for number in range(100):
        assert stuck.post(body_of(f"{number}-a", f"{number}-b")) == OK
    assert stuck.events._size <= 10_000
    kept = 0
    while stuck.waiting:
        kept += len(stuck.requests[-1].events)
        stuck.answer()
    told = sum(one.left_out for one in stuck.requests)
    assert kept + told == 200
    assert told == stuck.events.left_out > 100


def test_a_large_request(stuck: Stuck, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 5000)
    stuck.run()
    assert stuck.post(body_of(*map(str, range(20)))) == OK
    assert stuck.events.left_out == 20


def test_large_bodies(stuck: Stuck, monkeypatch: pytest.MonkeyPatch) -> None:
    """They need no room, and the body of one request hides no others."""
    monkeypatch.setattr(module, "MAX_WAITING", 5000)
    stuck.run()
    large = event("2", requestObject={"data": {"auditID": "x" * 1_000_000}})
    body = json.dumps({"items": [event("1"), large, event("3")]}).encode()
    assert stuck.post(body) == OK
    assert stuck.ids() == ["1", "2", "3"]
    assert stuck.events.left_out == 0


def test_requests_that_arrive(stuck: Stuck, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have room before they are whole, until their client leaves."""
    monkeypatch.setattr(module, "MAX_WAITING", 1000)
    begun = stuck.connect()
    begun.dataReceived(stuck.head(5000) + b'{"items":[' + b"1," * 300)
    assert stuck.events._size > 600
    assert stuck.post(body_of("1")) == OK
    assert stuck.events.left_out == 1
    begun.connectionLost(Failure(ConnectionDone()))
    assert stuck.events._size == 0
    assert stuck.post(body_of("2")) == OK
    assert stuck.events.left_out == 1


def test_many_requests(stuck: Stuck, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones take memory, too."""
    monkeypatch.setattr(module, "MAX_BODIES", 5)
    for number in range(9):
        assert stuck.post(body_of(str(number))) == OK
    assert stuck.events.left_out == 4


def test_after_an_error(stuck: Stuck) -> None:
    """agentk sends the same events again, and kas may have them already."""
    stuck.run()
    stuck.post(body_of("1"))
    stuck.waiting.pop().errback(CallError(Status.UNAVAILABLE, "away"))
    assert len(stuck.errors) == 1
    stuck.post(body_of("2"))
    stuck.run()
    assert stuck.ids() == ["1"]
    stuck.answer()
    assert stuck.ids() == ["2"]
    # kas has restored its state: it has less than agentk thinks.
    stuck.answer(offset=1)
    assert (stuck.requests[-1].start, stuck.ids()) == (1, ["2"])
    stuck.answer()
    assert stuck.stored == 2


def test_repeated_requests(stuck: Stuck) -> None:
    """The API server has not received the response."""
    for _ in range(3):
        stuck.post(body_of("1"))
    stuck.run()
    assert stuck.ids() == ["1"]
    stuck.answer()
    assert not stuck.waiting


def test_an_audit_id_that_the_client_chose(stuck: Stuck) -> None:
    """Each request is stored, also with the id of another one."""
    changes: list[dict[str, Any]] = [
        {},
        {"user": {"username": "mallory"}},
        {"verb": "delete"},
        {"responseStatus": {"code": 403}},
        {"requestReceivedTimestamp": "2026-05-01T12:00:00.204107Z"},
    ]
    for changed in changes:
        stuck.post(body_of("1", **changed))
        stuck.post(body_of("1", **changed))
    stuck.run()
    while stuck.waiting:
        stuck.answer()
    assert stuck.stored == len(changes)


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b"{}", b'{"items": 7}', b'{"items": [7, {}]}', b"[" * 9999],
    ids=["half", "list", "none", "number", "no events", "nested"],
)
def test_requests_that_are_not_events(stuck: Stuck, body: bytes) -> None:
    stuck.run()
    assert stuck.post(body) == OK
    stuck.post(body_of("1"))
    while stuck.waiting:
        stuck.answer()
    assert stuck.ids() == ["1"]
    assert stuck.errors == []


@pytest.mark.parametrize("name", ODD_BODIES)
def test_bodies_that_clients_choose(stuck: Stuck, name: str) -> None:
    """The body of one request hides neither that request nor others."""
    odd = with_body(text_of(event("2")), ODD_BODIES[name])
    items = [text_of(event("1")).encode(), odd, text_of(event("3")).encode()]
    stuck.run()
    assert stuck.post(b'{"items":[' + b",".join(items) + b"]}") == OK
    assert stuck.ids() == ["1", "2", "3"]
    assert stuck.events.left_out == 0


def test_an_item_that_is_not_an_event(stuck: Stuck) -> None:
    """The others are stored."""
    stuck.run()
    items = [{}, event("1"), 7]
    assert stuck.post(json.dumps({"items": items}).encode()) == OK
    assert stuck.ids() == ["1"]
    assert stuck.requests[0].left_out == 2


def test_refused_requests(stuck: Stuck) -> None:
    stuck.run()
    body = body_of("1")
    assert stuck.post(body, token=b"wrong").startswith(b"HTTP/1.1 401")
    assert stuck.post(body, target=b"/other").startswith(b"HTTP/1.1 404")
    assert stuck.post(b"", method=b"GET").startswith(b"HTTP/1.1 405")
    assert stuck.post(b"").startswith(b"HTTP/1.1 400")
    assert stuck.requests == []


def test_a_token_file_that_was_removed(stuck: Stuck) -> None:
    def token() -> bytes:
        raise ValueError("no file")

    server = AuditWebhook(stuck.events, token).factory(stuck.clock).buildProtocol(None)
    transport = StringTransport()
    server.makeConnection(transport)
    server.dataReceived(
        b"POST /audit HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\n\r\n"
    )
    assert transport.value().startswith(b"HTTP/1.1 503")


def test_settings(tmp_path: Path) -> None:
    """A listener for other machines needs TLS, and each one a token."""
    token = tmp_path / "token"
    token.write_bytes(TOKEN)

    def problem(text: str) -> str:
        with pytest.raises(ConfigurationError) as caught:
            read(text, str(tmp_path / "agentk.yaml"), ClusterAuditOptions)
        return str(caught.value)

    assert "neither 'file' nor 'webhook'" in problem("{}")
    assert "token_file" in problem("webhook: {address: '127.0.0.1:8444'}")
    opened = f"{{address: '0.0.0.0:8444', token_file: {token}}}"
    assert "certificate_file" in problem(f"webhook: {opened}")
    local = f"webhook: {{address: '127.0.0.1:8444', token_file: {token}}}"
    options = read(local, str(tmp_path / "agentk.yaml"), ClusterAuditOptions)
    assert options.webhook is not None
    token.write_bytes(b"short")
    assert "at least 16" in problem(local)
