"""The user of a request for a page, as the audit log sees the client."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.web.server import Request
from twisted.web.test.requesthelper import DummyChannel

from tunnel.api import (
    PAGE_COOKIE,
    PAGE_SESSION,
    Access,
    PageCaller,
    Reach,
    ReachableAgent,
    page_session,
    program_of,
)
from tunnel.errors import CallError, Status
from tunnel.testing.users import FakeUsers


def caller(*programs: str) -> PageCaller:
    request = Request(DummyChannel(), False)
    request.client = IPv4Address("TCP", "192.0.2.1", 1)
    request.requestHeaders.setRawHeaders("authorization", ["Bearer token"])
    request.requestHeaders.setRawHeaders("user-agent", list(programs))
    return PageCaller.of(FakeUsers(), request)


def test_program() -> None:
    assert program_of(caller("curl/8", "other")) == "curl/8"
    assert len(program_of(caller("x" * 5000))) == 256
    assert caller("curl/8").peer_address == IPv4Address("TCP", "192.0.2.1", 1)


def test_without_a_program() -> None:
    assert program_of(caller()) == ""
    assert program_of(None) == ""


OWN = "https://kas.example.com"
ACCESS = Access("user:alice", "1", "prod")


class RecordingUsers(FakeUsers):
    """Users that record the kinds and agents of credentials."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str, str]] = []

    def authorize(
        self, kind: str, agent: str, token: str, peer: Any = None
    ) -> Access | Deferred[Access]:
        self.asked.append((kind, agent, token))
        return super().authorize(kind, agent, token, peer)


@pytest.fixture
def users() -> RecordingUsers:
    users = RecordingUsers()
    users.tokens.update(secret=ACCESS, cookie=ACCESS)
    agents = (ReachableAgent("1", "prod"), ReachableAgent("2", "test"))
    users.reaches.update(dict.fromkeys(("secret", "cookie"), Reach("a", "a", agents)))
    return users


def of(users: FakeUsers, method: bytes = b"GET", **fields: str) -> PageCaller:
    request: Any = Request(DummyChannel(), False)
    request.client = IPv4Address("TCP", "192.0.2.1", 1)
    request.method = method
    request.own_origin = OWN
    for name, value in fields.items():
        request.requestHeaders.addRawHeader(name.replace("_", "-"), value)
    return PageCaller.of(users, request)


def result(call: Any) -> Any:
    found: list[Any] = []
    Deferred.fromCoroutine(call).addBoth(found.append)
    return found[0]


COOKIE = f"a=b; {PAGE_COOKIE}=cookie"


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        (b"GET", {}),
        (b"GET", {"origin": OWN}),
        (b"GET", {"sec_fetch_site": "same-origin"}),
        (b"GET", {"sec_fetch_site": "none"}),
        (b"POST", {"origin": OWN, "sec_fetch_site": "same-origin"}),
    ],
)
def test_session(users: RecordingUsers, method: bytes, fields: dict[str, str]) -> None:
    """kas' own page needs only its cookie."""
    made = of(users, method, cookie=COOKIE, **fields)
    assert result(made.access_of("prod")) == ACCESS
    assert users.asked == [(PAGE_SESSION, "prod", "cookie")]
    assert "cookie" not in repr(made)


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        (b"GET", {"origin": "https://evil.example.com"}),
        (b"GET", {"origin": "null"}),
        (b"GET", {"sec_fetch_site": "same-site"}),
        (b"GET", {"sec_fetch_site": "cross-site"}),
        (b"POST", {}),
        (b"POST", {"sec_fetch_site": "same-origin"}),
        (b"POST", {"origin": "https://kas.example.com:8443"}),
        (b"DELETE", {"origin": f"{OWN}, {OWN}"}),
    ],
)
def test_other_pages(
    users: RecordingUsers, method: bytes, fields: dict[str, str]
) -> None:
    """A browser adds the cookie to requests of other pages, which get nothing."""
    with pytest.raises(CallError) as caught:
        of(users, method, cookie=COOKIE, **fields)
    assert caught.value.status is Status.PERMISSION_DENIED


def test_token_before_session(users: RecordingUsers) -> None:
    """A script with a token is the owner of this token, whatever cookies it has."""
    made = of(users, cookie=COOKIE, authorization="Bearer secret", origin="null")
    assert result(made.access_of("prod")) == ACCESS
    assert users.asked == [("", "prod", "secret")]


@pytest.mark.parametrize(
    "cookies",
    [[], ["a=b"], [f"{PAGE_COOKIE}="], [f"{PAGE_COOKIE}=x", f"{PAGE_COOKIE}=y"]],
)
def test_no_session(cookies: list[str]) -> None:
    assert page_session(cookies) == ""


@pytest.mark.parametrize("kind", [PAGE_SESSION, "session cookie"])
def test_kinds_of_browsers_in_a_token(users: RecordingUsers, kind: str) -> None:
    """No token may name them: the cookies count only with checks of the page."""
    made = of(users, authorization=f"Bearer {kind}:prod:cookie")
    assert result(made.access_of("prod")).value.status is Status.UNAUTHENTICATED
    assert users.asked == []


def test_reach(users: RecordingUsers) -> None:
    everything = result(of(users, authorization="Bearer secret").reach())
    assert [one.agent_name for one in everything.agents] == ["prod", "test"]
    for name in ("test", "2"):
        one = result(of(users, authorization=f"Bearer user:{name}:secret").reach())
        assert [agent.agent_id for agent in one.agents] == ["2"]
