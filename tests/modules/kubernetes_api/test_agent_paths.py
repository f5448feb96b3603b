"""Paths of other modules at the listener for kubectl."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs
from zope.interface import implementer

from modules.kubernetes_api.agent_paths import AgentPaths
from tests.modules.kubernetes_api.pair import ALICE, World
from tests.tunnel.http1.wire import Wire
from tunnel.api import (
    AgentPathRequest,
    AuditLevel,
    AuditStage,
    CredentialRevoked,
    IAgentPath,
    IAgentPaths,
)
from tunnel.errors import CallError, Status

GET = b"GET /agents/1/echo/a/b?c=d HTTP/1.1"


@implementer(IAgentPath)
class Echo:
    """A path that says what was asked, when the test lets it."""

    max_body_bytes = 10
    is_kubernetes = False

    def __init__(self) -> None:
        self.requests: list[AgentPathRequest] = []
        self.status = 200
        self.gate: Deferred[None] | None = None
        self.parts: list[bytes] = []
        self.error: Exception | None = None
        self.cancelled = 0

    async def answer(self, request: AgentPathRequest, response: Any) -> None:
        self.requests.append(request)
        if self.gate is not None:
            try:
                await self.gate
            except BaseException:
                self.cancelled += 1
                raise
        if not self.parts:
            response.respond(self.status, "text/plain", b"hello " + request.body)
        else:
            response.stream(200, "application/json")
            for one in self.parts:
                await response.write(one)
        if self.error is not None:
            raise self.error

    def render_error(self, status: int, message: str) -> tuple[str, bytes]:
        return "text/x-echo", f"{status}: {message}".encode()


def served(**settings: Any) -> tuple[World, Echo]:
    """kas with a path of a module."""
    world, echo = World(**settings), Echo()
    world.server_api.capabilities.get(IAgentPaths).serve("echo", echo)
    return world, echo


def ask(world: World, head: bytes = GET, *lines: bytes, **more: Any) -> bytes:
    """Return the response to a request with the token of alice."""
    return world.request(head, *lines, **{"token": b"alice", **more}).taken()


def test_a_request_with_a_path_and_a_body() -> None:
    """The module gets the request without credentials, and its access."""
    world, echo = served()
    response = ask(world, GET, b"Accept: text/*", b"Cookie: a=b")
    assert response.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n")
    assert response.endswith(b"\r\n\r\nhello ")
    (request,) = echo.requests
    assert (request.access, request.path, request.query) == (ALICE, "/a/b", "c=d")
    assert (request.method, request.fields) == ("GET", {"accept": "text/*"})
    post = b"POST /agents/1/echo HTTP/1.1"
    assert ask(world, post, b"Content-Length: 4", body=b"form").endswith(b"hello form")
    assert (echo.requests[1].path, echo.requests[1].body) == ("/", b"form")
    assert not world.link.opened
    assert world.server.metrics.in_flight == 0


@pytest.mark.parametrize(
    "target",
    [b"/echo/a", b"/agents/1/echos/a", b"/agents/1/api/echo/a", b"/agents/1/echo%2fa"],
)
def test_other_paths_go_to_the_cluster(target: bytes) -> None:
    """Only ``/agents/<agent>/<name>/`` belongs to the module."""
    world, echo = served()
    world.request(b"GET " + target + b" HTTP/1.1")
    assert world.link.opened and not echo.requests


def test_a_streamed_response() -> None:
    """A response of unknown length has chunks."""
    world, echo = served()
    echo.parts = [b"[", b"x" * 100_000, b"]"]
    wire = world.client()
    wire.receive(GET + b"\r\nHost: kas\r\nAuthorization: Bearer alice\r\n\r\n")
    world.run()
    assert wire.taken().endswith(b"0\r\n\r\n")


def test_a_slow_client() -> None:
    """`write` waits while the connection is full."""
    world, echo = served()
    echo.gate = Deferred()
    wire = world.client()
    wire.receive(GET + b"\r\nHost: kas\r\nAuthorization: Bearer alice\r\n\r\n")
    world.run()
    (request,) = world.server.shares.all()
    request.pauseProducing()
    echo.parts = [b"one", b"two"]
    echo.gate.callback(None)
    world.run()
    assert b"one" not in wire.taken()
    request.resumeProducing()
    world.run()
    assert b"one" in (end := wire.taken()) and end.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CallError(Status.UNAUTHENTICATED, "unknown"), 401),
        (CallError(Status.PERMISSION_DENIED, "no"), 403),
        (CallError(Status.UNAVAILABLE, "later"), 503),
    ],
    ids=["unknown", "denied", "unavailable"],
)
def test_refused_credentials(error: CallError, status: int) -> None:
    """The module writes the error, and does not see the request."""
    world, echo = served()
    checking: Deferred[Any] = Deferred()
    world.server_api.access["alice"] = checking
    wire = world.request(GET, token=b"alice")
    assert not wire.taken()
    checking.errback(error)
    world.run()
    response = wire.taken()
    assert response.startswith(b"HTTP/1.1 %d " % status), response
    assert b"Content-Type: text/x-echo" in response
    assert f"{status}: client -> kas: {error.message}".encode() in response
    assert not echo.requests


def test_a_long_body() -> None:
    """kas reads no more than the module permits."""
    world, echo = served()
    response = ask(
        world,
        b"POST /agents/1/echo HTTP/1.1",
        b"Content-Length: 11",
        body=b"x" * 11,
    )
    assert response.startswith(b"HTTP/1.1 413 ") and not echo.requests


def test_too_many_requests() -> None:
    """Requests for paths count with the other requests of a credential."""
    world, echo = served(max_requests_per_credential=1)
    echo.gate = Deferred()
    world.request(GET, token=b"alice")
    assert ask(world).startswith(b"HTTP/1.1 429 ")
    echo.gate.callback(None)
    assert ask(world).startswith(b"HTTP/1.1 200 ")


def test_no_impersonation() -> None:
    """The response would have the rights of the credential."""
    world, echo = served()
    response = ask(world, GET, b"Impersonate-User: bob")
    assert response.startswith(b"HTTP/1.1 403 ") and b"do not impersonate" in response
    assert not echo.requests
    assert world.server.metrics.in_flight == 0


def test_the_client_leaves() -> None:
    """The module's work is cancelled."""
    world, echo = served()
    echo.gate = Deferred()
    wire: Wire = world.request(GET, token=b"alice")
    wire.lose()
    assert echo.cancelled == 1
    assert not list(world.server.shares.all())


def test_a_revoked_credential() -> None:
    """The request ends with 401, and its work is cancelled."""
    world, echo = served()
    world.server_api.subscribe(CredentialRevoked, world.server._revoked)
    echo.gate = Deferred()
    wire = world.request(GET, token=b"alice")
    world.server_api.publish(CredentialRevoked(ALICE.credential_id))
    assert wire.taken().startswith(b"HTTP/1.1 401 ")
    assert echo.cancelled == 1


def test_a_failing_module() -> None:
    """The client gets 500, or notices that the response is incomplete."""
    world, echo = served()
    echo.gate = Deferred()
    wire = world.request(GET, token=b"alice")
    with capturedLogs() as logs:
        echo.gate.errback(KeyError("a bug"))
    assert wire.taken().startswith(b"HTTP/1.1 500 ") and len(logs) == 2
    echo.gate, echo.parts, echo.error = None, [b"half"], KeyError("a bug")
    response = ask(world)
    assert not response.endswith(b"0\r\n\r\n")


def test_audit_of_reads() -> None:
    """A POST of a path counts as a read; a refusal is recorded in any case."""
    world, _ = served(audit_level=AuditLevel.CHANGES)
    post = b"POST /agents/1/echo HTTP/1.1"
    ask(world, post)
    assert not world.server_api.audit.events
    ask(world, post, token=b"stranger")
    (event,) = world.server_api.audit.events
    assert event.outcome == "401"


def cached(level: AuditLevel) -> tuple[World, Echo]:
    """kas with a path below which the paths are those of the Kubernetes API."""
    world, echo = served(audit_level=level)
    echo.is_kubernetes = True
    return world, echo


PODS = "/echo/api/v1/namespaces/a/pods"


def test_audit_of_an_object() -> None:
    """Events of such a path have the object of the request."""
    world, echo = cached(AuditLevel.ALL)
    ask(world, f"GET /agents/1{PODS}/x?y=z HTTP/1.1".encode())
    (event,) = world.server_api.audit.events
    assert (event.stage, event.outcome) == (AuditStage.ANSWERED, "200")
    wanted = {
        "verb": "get",
        "path": f"{PODS}/x",
        "version": "v1",
        "resource": "pods",
        "namespace": "a",
        "name": "x",
    }
    assert {**event.details, **wanted} == event.details
    ask(world, b"GET /agents/1/echo HTTP/1.1")
    assert world.server_api.audit.events[1].details["path"] == "/echo/"
    assert len(echo.requests) == 2


def test_audit_of_a_refused_change() -> None:
    """Also if only changes are recorded."""
    world, echo = cached(AuditLevel.CHANGES)
    echo.status = 405
    ask(world, f"GET /agents/1{PODS} HTTP/1.1".encode())
    ask(world, f"DELETE /agents/1{PODS}/x HTTP/1.1".encode())
    (event,) = world.server_api.audit.events
    assert (event.stage, event.outcome) == (AuditStage.DENIED, "405")
    assert (event.details["verb"], event.details["name"]) == ("delete", "x")


def test_audit_of_a_watch() -> None:
    """It has a beginning and an end with one id."""
    world, echo = cached(AuditLevel.ALL)
    echo.parts, echo.gate = [b"12345"], Deferred()
    wire = world.request(
        f"GET /agents/1{PODS}?watch=1 HTTP/1.1".encode(), token=b"alice"
    )
    (begun,) = world.server_api.audit.events
    assert (begun.stage, begun.outcome) == (AuditStage.BEGUN, "")
    assert begun.details["verb"] == "watch"
    echo.gate.callback(None)
    wire.taken()
    _, ended = world.server_api.audit.events
    assert (ended.stage, ended.outcome, ended.id) == (
        AuditStage.ENDED,
        "200",
        begun.id,
    )
    assert ended.id
    assert (ended.details["bytes_in"], ended.details["bytes_out"]) == (0, 5)


@pytest.mark.parametrize("name", ["api", "Echo", "a/b", "", "x" * 33])
def test_names(name: str) -> None:
    """A path cannot hide a path of the API server."""
    with pytest.raises(ValueError, match="cannot be the name"):
        AgentPaths().serve(name, Echo())


def test_a_name_belongs_to_one_module() -> None:
    """Until it is withdrawn."""
    paths = AgentPaths()
    withdraw = paths.serve("echo", Echo())
    with pytest.raises(ValueError, match="another module"):
        paths.serve("echo", Echo())
    withdraw()
    second = paths.serve("echo", Echo())
    withdraw()
    assert paths.find(b"/echo/") is not None
    second()
    assert paths.find(b"/echo/") is None
