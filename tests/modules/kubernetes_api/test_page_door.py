"""Requests of kas' own page to the Kubernetes API, with the session of its user."""

from __future__ import annotations

import json

import pytest

from modules.kubernetes_api.frontdoor import Refused, parse_page_request
from tests.modules.kubernetes_api.cases import SWITCH, head_of, status_of
from tests.modules.kubernetes_api.pair import ALICE, World
from tests.tunnel.http1.wire import Wire
from tunnel.api import CSRF_FIELD, PAGE_COOKIE, PAGE_SESSION, page_csrf

SESSION = "s" * 43
COOKIE = f"Cookie: a=b; {PAGE_COOKIE}={SESSION}".encode()
SITE, DEST = b"Sec-Fetch-Site: same-origin", b"sec-fetch-dest: empty"
CSRF = f"{CSRF_FIELD}: {page_csrf(SESSION)}".encode()


@pytest.fixture
def world() -> World:
    world = World()
    world.server_api.access[SESSION] = ALICE
    return world


def ask(
    world: World, *lines: bytes, head: bytes = b"GET /agents/7/api HTTP/1.1"
) -> Wire:
    prefix, factory = world.server_api.handed_over
    assert prefix == "/agents"
    wire = Wire(factory.buildProtocol(None))
    wire.receive(b"".join(one + b"\r\n" for one in (head, b"Host: kas", *lines)))
    wire.receive(b"\r\n")
    world.run()
    return wire


def test_read(world: World) -> None:
    """The cluster gets the user, and nothing of the session."""
    wire = ask(world, COOKIE, SITE, DEST)
    assert world.server_api.asked == [(PAGE_SESSION, "7", SESSION)]
    request = world.origin.taken()
    assert request.startswith(b"GET /api HTTP/1.1\r\n")
    assert b"Impersonate-User: alice\r\n" in request
    assert SESSION.encode() not in request
    world.origin.receive(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1\r\n"
        b"Set-Cookie: __Host-kas=evil\r\nClear-Site-Data: *\r\n\r\nx"
    )
    world.run()
    answer = wire.taken()
    assert b"\r\nContent-Security-Policy: sandbox\r\n" in answer
    assert b"evil" not in answer and b"Clear-Site-Data" not in answer


def test_redirect(world: World) -> None:
    """A script would repeat a change at another cluster, which is the same origin."""
    head = b"DELETE /agents/7/api/v1/pods/x HTTP/1.1"
    wire = ask(world, COOKIE, SITE, DEST, CSRF, head=head)
    world.origin.receive(
        b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /agents/8/api/v1/namespaces/x"
        b"\r\nContent-Length: 0\r\n\r\n"
    )
    world.run()
    answer = wire.taken()
    assert answer.startswith(b"HTTP/1.1 307")
    assert b"ocation" not in answer


def test_change(world: World) -> None:
    """It needs the CSRF token, which does not reach the cluster."""
    head = b"DELETE /agents/7/api/v1/pods/x HTTP/1.1"
    for lines in ((), (CSRF_FIELD.encode() + b": x",), (b"X-Csrf-Token: " + CSRF,)):
        wire = ask(world, COOKIE, SITE, DEST, *lines, head=head)
        assert status_of(wire)[0] == 403
    assert world.server_api.asked == []
    ask(world, COOKIE, SITE, DEST, CSRF, head=head)
    request = world.origin.taken()
    assert request.startswith(b"DELETE /api/v1/pods/x HTTP/1.1\r\n")
    assert page_csrf(SESSION).encode() not in request


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((SITE, DEST), 401),
        ((b"Authorization: Bearer user:7:alice", SITE, DEST), 401),
        ((b"Cookie: _gitlab_kas=x", b"X-Csrf-Token: y", SITE, DEST), 401),
        ((COOKIE, COOKIE, SITE, DEST), 401),
        ((COOKIE,), 403),
        ((COOKIE, SITE), 403),
        ((COOKIE, DEST), 403),
        # A link to the API, a frame, an image, and pages of other origins.
        ((COOKIE, SITE, b"Sec-Fetch-Dest: document"), 403),
        ((COOKIE, SITE, b"Sec-Fetch-Dest: iframe"), 403),
        ((COOKIE, SITE, b"Sec-Fetch-Dest: image"), 403),
        ((COOKIE, b"Sec-Fetch-Site: none", DEST), 403),
        ((COOKIE, b"Sec-Fetch-Site: same-site", DEST), 403),
        ((COOKIE, b"Sec-Fetch-Site: cross-site", DEST), 403),
        ((COOKIE, SITE, DEST, b"Sec-Fetch-Site: cross-site"), 403),
    ],
)
def test_refused(world: World, lines: tuple[bytes, ...], status: int) -> None:
    """Only scripts of the page itself may ask, and only with a session."""
    wire = ask(world, *lines)
    assert status_of(wire)[0] == status
    assert world.server_api.asked == []


@pytest.mark.parametrize(
    "target", [b"/api", b"/agents/", b"/agents/a%20b/api", b"/agents/7/../../x"]
)
def test_no_agent(world: World, target: bytes) -> None:
    with pytest.raises(Refused) as caught:
        head = head_of(COOKIE, SITE, DEST, target=target)
        parse_page_request(head, world.server.tokens)
    assert caught.value.status == 400


def test_the_door_for_kubectl_takes_no_session(world: World) -> None:
    """Cookies ignore ports, so a browser sends the session there as well."""
    wire = world.client()
    lines = (b"GET /agents/7/api HTTP/1.1", b"Host: kas", COOKIE, SITE, DEST)
    wire.receive(b"".join(one + b"\r\n" for one in lines) + b"\r\n")
    world.run()
    assert status_of(wire)[0] == 401
    assert world.server_api.asked == []


def test_web_socket(world: World) -> None:
    """A script gets a token for one WebSocket, for which browsers say nothing."""
    path = b"/agents/7/api/v1/pods/x/exec"
    wire = ask(
        world,
        *(COOKIE, SITE, DEST),
        head=b"GET " + path + b"?kas-websocket-token-request=true HTTP/1.1",
    )
    head, _, body = wire.taken().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    token = json.loads(body)["token"].encode()
    protocols = b"Sec-WebSocket-Protocol: v5, websocket-token.kas.gitlab.com." + token
    upgrade = (b"Upgrade: websocket", b"Connection: upgrade", protocols)
    # The door for kubectl does not know the session behind it.
    wire = world.client()
    head = b"GET " + path + b" HTTP/1.1"
    wire.receive(b"\r\n".join((head, b"Host: kas", *upgrade, b"", b"")))
    world.run()
    assert status_of(wire)[0] == 401
    ask(world, *upgrade, head=b"GET " + path + b"?command=sh HTTP/1.1")
    request = world.origin.taken()
    assert request.startswith(b"GET /api/v1/pods/x/exec?command=sh HTTP/1.1\r\n")
    assert token not in request
    world.origin.receive(SWITCH)
    # Once, for this path, and never without a token.
    for lines, target in (
        (upgrade, path),
        (upgrade, b"/agents/7/api/v1/pods/y/exec"),
        (upgrade, b"/agents/8/api/v1/pods/x/exec"),
        ((*upgrade[:2], COOKIE, SITE, DEST), path),
    ):
        wire = ask(world, *lines, head=b"GET " + target + b" HTTP/1.1")
        assert status_of(wire)[0] == 401
