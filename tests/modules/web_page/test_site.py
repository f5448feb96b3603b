"""Requests of browsers: the page, sign-in and sign-out, with and without a session."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import attrs
import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs

from modules.web_page.server.authenticator import (
    CHECKS_AT_ONCE,
    LOOK_SECONDS,
    RENEW_SECONDS,
)
from modules.web_page.server.headers import CONTENT_SECURITY_POLICY
from modules.web_page.server.sessions import (
    IDLE_SECONDS,
    LONGEST_SECONDS,
    MAX_SESSIONS_EACH,
    TOUCH_SECONDS,
    UserSession,
)
from modules.web_page.server.sign_in import (
    FAILED_AT_ONCE,
    FAILED_PER_SECOND,
    BegunSignIn,
)
from tests.modules.web_page.stand import OWN, START, PageBrowser, PageStand
from tunnel.api import (
    PAGE_COOKIE,
    PAGE_SESSION,
    Access,
    CredentialRevoked,
    LoggedOut,
    Reach,
    SignedIn,
)
from tunnel.errors import CallError, Status


@pytest.fixture
def stand() -> Iterator[PageStand]:
    stand = PageStand()
    yield stand
    stand.close()


@pytest.fixture
def browser(stand: PageStand) -> PageBrowser:
    return PageBrowser(stand)


def test_without_a_session(browser: PageBrowser) -> None:
    """Each page leads to the form, and returns to itself afterwards."""
    assert browser.get("/").fields["location"].endswith("/ui/")
    for path in ("/ui", "/ui?a=b"):
        answer = browser.get(path)
        assert answer.status == 303
        assert answer.fields["location"] == path.replace("/ui", "/ui/")
    place = ""
    for path in ("/ui/", "/ui/clusters/prod?tab=nodes"):
        answer = browser.get(path)
        place = answer.fields["location"]
        assert answer.status == 303
        assert place == f"/ui/sign-in?next={quote(path, safe='')}"
    form = browser.get(place)
    assert form.status == 200
    assert b'value="/ui/clusters/prod?tab=nodes"' in form.body
    assert b"Sign in with id.example.com" in form.body


def test_switched_off() -> None:
    stand = PageStand(enabled=False)
    assert PageBrowser(stand).get("/ui/").status == 404
    assert PageBrowser(stand).get("/").status == 404
    stand.close()


def test_token(stand: PageStand, browser: PageBrowser) -> None:
    answer = browser.sign_in(" secret\n")
    assert (answer.status, answer.fields["location"]) == (303, "/ui/fleet")
    boot = browser.boot()
    assert boot["user"] == {"name": "alice", "method": "token"}
    assert boot["endsAt"] == pytest.approx(START + IDLE_SECONDS, abs=1)
    (session,) = stand.sessions
    assert (session.owner, session.credential_id) == ("user:alice", "user:alice")
    agents = browser.json("/ui/api/agents")
    assert agents["complete"] is True
    assert agents["agents"] == [
        {
            "id": "1",
            "name": "prod",
            "labels": {"env": "prod"},
            "connected": True,
            "agentkVersion": "",
            "kubernetesVersion": "",
        },
        {"id": "2", "name": "test", "labels": {}, "connected": False},
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Bearer secret",
        "Authorization: Bearer secret\n",
        "users:\n- name: me\n  user:\n    token: secret\n",
        "user:   token: 'secret'",
        '{"user": {"token": "secret"}}',
    ],
)
def test_pasted_text(browser: PageBrowser, text: str) -> None:
    """A token with what is around it where users find it."""
    assert browser.sign_in(text).status == 303


@pytest.mark.parametrize(
    "token", ["", "wrong", "a b", "ä", "x" * 30_000, "a:b:", ":::"]
)
def test_refused_token(browser: PageBrowser, token: str) -> None:
    """The form says why, and there is no session."""
    answer = browser.sign_in(token, "/ui/problems")
    assert answer.status == 401
    assert b'role="alert"' in answer.body
    assert b'value="/ui/problems"' in answer.body
    assert browser.cookies == {}


def test_kinds_of_browsers_are_no_tokens(
    stand: PageStand, browser: PageBrowser
) -> None:
    """A session cannot be made from a session."""
    browser.sign_in()
    cookie = browser.cookies[PAGE_COOKIE]
    other = PageBrowser(stand)
    assert other.sign_in(f"{PAGE_SESSION}:prod:{cookie}").status == 401
    assert other.sign_in(f"session cookie:prod:{cookie}").status == 401


def test_token_for_one_agent(stand: PageStand, browser: PageBrowser) -> None:
    browser.sign_in("user:test:secret")
    (agent,) = browser.json("/ui/api/agents")["agents"]
    assert agent["name"] == "test"
    assert PageBrowser(stand).sign_in("user:other:secret").status == 303


def test_token_whose_agents_kas_cannot_list(
    stand: PageStand, browser: PageBrowser
) -> None:
    stand.users.tokens["job"] = Access("ci:1", "7", "ci")
    answer = browser.sign_in("job")
    assert answer.status == 401
    assert b"must name its agent" in answer.body
    assert browser.sign_in("ci:7:job").status == 303
    found = browser.json("/ui/api/agents")
    assert (found["agents"], found["complete"]) == ([], False)
    assert "by its name" in found["reason"]


@pytest.mark.parametrize(
    "after",
    [
        "https://evil.example.com/",
        "//evil.example.com",
        "/\\evil.example.com",
        "/ui\\..\\x",
        "/uix",
        "/api/v1/clusters",
        "/ui/\r\nSet-Cookie: a=b",
        "/ui/" + "x" * 2000,
        "javascript:alert(1)",
    ],
)
def test_no_other_place_afterwards(browser: PageBrowser, after: str) -> None:
    assert browser.sign_in(after=after).fields["location"] == "/ui/"


@pytest.mark.parametrize("origin", ["https://evil.example.com", "null", OWN + ":81"])
def test_sign_in_from_another_page(browser: PageBrowser, origin: str) -> None:
    """Nobody can sign a browser in as somebody else."""
    answer = browser.post("/ui/sign-in", "token=secret", Origin=origin)
    assert answer.status == 403
    assert browser.cookies == {}


def test_sign_out(stand: PageStand, browser: PageBrowser) -> None:
    browser.sign_in()
    csrf = browser.boot()["csrf"]
    for fields in (
        {},
        {"X-Kas-Csrf": csrf[1:] + csrf[:1]},
        {"X-Kas-Csrf": csrf, "Origin": "https://evil.example.com"},
    ):
        assert browser.post("/ui/sign-out", "", **fields).status == 403
    assert len(stand.sessions) == 1
    (before,) = stand.sessions
    cookies = dict(browser.cookies)
    answer = browser.post("/ui/sign-out", "", **{"X-Kas-Csrf": csrf})
    assert answer.body == b'{"next": "/ui/sign-in"}\n'
    assert (browser.cookies, stand.sessions) == ({}, [])
    assert stand.revoked == [f"session:{before.id}"]
    # A copy of the cookie is worth nothing.
    browser.cookies = cookies
    assert browser.json("/ui/api/agents", 401)["message"].endswith("sign in again")
    assert browser.get("/ui/").status == 303


def test_secrets(stand: PageStand, browser: PageBrowser) -> None:
    """Neither the store nor a log has a cookie or a token."""
    with capturedLogs() as events:
        browser.sign_in()
        browser.sign_in("wrong-token")
        browser.boot()
    (session,) = stand.sessions
    seen = repr(events) + repr(stand.sessions) + session.to_bytes().decode()
    for secret in ("secret", "wrong-token", browser.cookies[PAGE_COOKIE]):
        assert secret not in seen


def test_headers(browser: PageBrowser) -> None:
    """Documents and answers cannot be framed, cached or read by other pages."""
    browser.sign_in()
    for path in ("/ui/fleet", "/ui/sign-in", "/ui/api/agents", "/ui/static/none.js"):
        fields = browser.get(path).fields
        assert fields["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert fields["cache-control"] == "no-store"
        assert fields["x-content-type-options"] == "nosniff"
        assert fields["cross-origin-opener-policy"] == "same-origin"
    script = browser.get("/ui/fleet").body.split(b'src="')[1].split(b'"')[0].decode()
    plain = browser.get(script)
    assert plain.fields["cache-control"].endswith("immutable")
    assert plain.fields["content-type"].startswith("text/javascript")
    small = browser.get(script, **{"Accept-Encoding": "gzip, br"})
    assert small.fields["content-encoding"] == "br"
    assert len(small.body) < len(plain.body) / 2
    refused = browser.get(script, **{"Accept-Encoding": "br;q=0, gzip"})
    assert refused.fields["content-encoding"] == "gzip"


def test_text_stays_text(stand: PageStand, browser: PageBrowser) -> None:
    """Names with markup do not become markup."""
    name = "</script><script>alert(1)</script>&amp;"
    reach = Reach("user:x", f"user:{name}", ())
    stand.users.reaches["secret"] = reach
    browser.sign_in()
    assert browser.boot()["user"]["name"] == name
    assert b"alert(1)</script>" not in browser.answer.body
    stand.provider.title = "<b>x</b>"
    assert b"&lt;b&gt;" in browser.get("/ui/sign-in?next=%22%3E%3Cb%3E").body


def test_theme(browser: PageBrowser) -> None:
    """The first paint has the right theme, and nothing else from the cookie."""
    for cookie, theme in (("dark", "dark"), ('x"><b>', "system")):
        browser.cookies["kas-theme"] = cookie
        assert f'data-theme="{theme}"' in browser.get("/ui/sign-in").body.decode()


def test_idle(stand: PageStand, browser: PageBrowser) -> None:
    """A session ends without requests, and continues with them."""
    browser.sign_in()
    for _ in range(3):
        stand.clock.advance(IDLE_SECONDS - 10)
        if stand.clock.seconds() < LONGEST_SECONDS - 10:
            assert browser.json("/ui/api/session")["user"]["name"] == "alice"
    (session,) = stand.sessions
    stand.clock.advance(IDLE_SECONDS)
    assert browser.get("/ui/").status == 303
    assert stand.sessions == []
    assert stand.revoked == [f"session:{session.id}"]


def test_longest(stand: PageStand, browser: PageBrowser) -> None:
    """A session ends after a day, however much it is used."""
    browser.sign_in()
    while stand.clock.seconds() < LONGEST_SECONDS - IDLE_SECONDS / 2:
        stand.clock.advance(IDLE_SECONDS / 2)
        assert browser.get("/ui/api/session").status == 200
    stand.clock.advance(IDLE_SECONDS / 2)
    assert browser.get("/ui/api/session").status == 401


def test_use_is_recorded_rarely(stand: PageStand, browser: PageBrowser) -> None:
    browser.sign_in()
    versions = set()
    for _ in range(20):
        stand.clock.advance(TOUCH_SECONDS / 10)
        browser.get("/ui/api/session")
        versions.add(stand.sessions[0].used_at)
    assert len(versions) == 3


def test_sessions_of_one_user_are_limited(stand: PageStand) -> None:
    """The oldest ends, and other users keep theirs."""
    bob = Access("user:bob", "1", "prod")
    stand.users.tokens["b"] = bob
    stand.users.reaches["b"] = Reach("user:bob", "user:bob", ())
    other = PageBrowser(stand)
    other.sign_in("b")
    browsers = [PageBrowser(stand) for _ in range(MAX_SESSIONS_EACH + 1)]
    for one in browsers:
        stand.clock.advance(1)
        one.sign_in()
    answers = [one.get("/ui/api/session").status for one in browsers]
    assert answers == [401] + [200] * MAX_SESSIONS_EACH
    assert other.get("/ui/api/session").status == 200


def test_many_sign_ins_at_once(stand: PageStand, browser: PageBrowser) -> None:
    """However long the store takes, the user has no more sessions."""
    browser.sign_in()
    (session,) = stand.sessions
    sessions, put = stand.module._sessions, stand.module._sessions._put

    async def put_slowly(changed: UserSession, version: int) -> None:
        await deferLater(stand.clock, 1)
        await put(changed, version)

    sessions._put = put_slowly
    adding = [
        Deferred.fromCoroutine(sessions.add(attrs.evolve(session, key=f"{one:064x}")))
        for one in range(5 * MAX_SESSIONS_EACH)
    ]
    stand.clock.advance(1)
    assert all(one.called for one in adding)
    assert len(stand.sessions) == MAX_SESSIONS_EACH


def test_a_credential_that_is_revoked(stand: PageStand, browser: PageBrowser) -> None:
    """Its sessions end with it, also if kas learns it only from a refusal."""
    browser.sign_in()
    stand.module._api.events.publish(CredentialRevoked("user:alice"))
    assert browser.get("/ui/").status == 303
    browser.sign_in()
    del stand.users.tokens["secret"]
    del stand.users.reaches["secret"]
    assert browser.get("/ui/api/agents").status == 401
    assert stand.sessions == []


def test_rights_of_a_session(stand: PageStand, browser: PageBrowser) -> None:
    """They are the credential's, with the session's own id."""
    browser.sign_in()
    browser.get("/ui/")
    (authenticator,) = stand.users.authenticators
    (session,) = stand.sessions
    access = authenticator.authorize_user("prod", browser.cookies[PAGE_COOKIE])
    assert access.credential_id == f"session:{session.id}"
    assert (access.owner, access.agent_id) == ("user:alice", "1")
    assert stand.users.held[0]() == {"user:alice"}
    with pytest.raises(CallError) as caught:
        authenticator.authenticate_agent(b"x")
    assert caught.value.status is Status.UNAUTHENTICATED


def begun(browser: PageBrowser) -> str:
    """Begin a sign-in at the provider, and return its state."""
    answer = browser.get("/ui/sign-in/oidc?next=/ui/events")
    assert answer.status == 303
    url = answer.fields["location"]
    assert url.startswith("https://id.example.com/authorize?")
    assert f"redirect_uri={OWN}/ui/sign-in/oidc/callback" in url
    return url.split("state=")[1].split("&")[0]


def returned(browser: PageBrowser, state: str, code: str = "code") -> Any:
    return browser.get(f"/ui/sign-in/oidc/callback?state={state}&code={code}")


def test_provider(stand: PageStand, browser: PageBrowser) -> None:
    stand.can_sign_in()
    answer = returned(browser, begun(browser))
    assert (answer.status, answer.fields["location"]) == (303, "/ui/events")
    assert browser.boot()["user"] == {"name": "Bob", "method": "oidc"}
    csrf = browser.boot()["csrf"]
    answer = browser.post("/ui/sign-out", "", **{"X-Kas-Csrf": csrf})
    assert b"https://id.example.com/end?" in answer.body


def test_answers_of_other_sign_ins(stand: PageStand, browser: PageBrowser) -> None:
    """Neither another browser nor another state can finish a sign-in."""
    stand.can_sign_in()
    state = begun(browser)
    other = PageBrowser(stand)
    assert returned(other, state).status == 401
    assert b"has begun no sign-in" in other.answer.body
    begun(other)
    assert returned(other, state).status == 401
    assert stand.sessions == []
    assert returned(browser, state).status == 303


def test_provider_refuses(stand: PageStand, browser: PageBrowser) -> None:
    """The form says why, and does not try again by itself."""
    answer = browser.get(
        f"/ui/sign-in/oidc/callback?state={begun(browser)}&error=access_denied"
    )
    assert answer.status == 401
    assert b"access_denied" in answer.body
    stand.provider.failure = CallError(Status.UNAVAILABLE, "it does not respond")
    answer = browser.get("/ui/sign-in/oidc")
    assert answer.status == 503
    assert b"it does not respond" in answer.body
    assert browser.get("/ui/sign-in/unknown").status == 404


def test_flood_of_sign_ins(stand: PageStand) -> None:
    """A stranger cannot keep the provider busy, and others sign in beside it."""
    stand.can_sign_in()
    asked: list[str] = []

    def noted(method: str) -> None:
        found = getattr(stand.provider, method)

        def ask(*given: Any) -> Any:
            asked.append(method)
            return found(*given)

        setattr(stand.provider, method, ask)

    noted("finish")
    noted("logged_out")
    stranger = PageBrowser(stand)
    statuses = []
    for _ in range(2 * FAILED_AT_ONCE):
        stranger.cookies = {
            "__Host-kas-sign-in": BegunSignIn("oidc", "s", b"x", "/").to_text()
        }
        statuses.append(returned(stranger, "s").status)
        path = "/ui/sign-in/oidc/signed-out"
        statuses.append(stranger.notify(path, "logout_token=x").status)
    assert asked.count("finish") == asked.count("logged_out") == FAILED_AT_ONCE
    assert statuses.count(429) == 2 * FAILED_AT_ONCE
    stand.clock.advance(1 / FAILED_PER_SECOND)
    good = PageBrowser(stand)
    assert returned(good, begun(good)).status == 303


def test_renewal(stand: PageStand, browser: PageBrowser) -> None:
    """Shortly before the credential expires, once for any number of tabs."""
    stand.can_sign_in()
    returned(browser, begun(browser))
    stand.clock.advance(590)
    assert browser.get("/ui/api/agents").status == 200
    (session,) = stand.sessions
    before = session.sealed
    assert list(stand.provider.refreshed) == ["refresh-2"]
    stand.clock.advance(500)
    assert browser.get("/ui/api/agents").status == 200
    assert stand.sessions[0].sealed == before
    stand.clock.advance(600)
    assert browser.get("/ui/api/agents").status == 200
    assert stand.sessions[0].sealed != before


def test_renewal_beside_another_change(stand: PageStand, browser: PageBrowser) -> None:
    """Another kas records the use of the session while the provider renews it."""
    stand.can_sign_in()
    returned(browser, begun(browser))
    (session,) = stand.sessions
    store = stand.module._api.stores.open("sessions")
    put, others = stand.module._sessions._put, [3]

    async def put_later(changed: UserSession, version: int) -> None:
        if changed.sealed != session.sealed and others[0]:
            others[0] -= 1
            await store.set(session.key, session.to_bytes())
        await put(changed, version)

    stand.module._sessions._put = put_later
    stand.clock.advance(590)
    assert browser.get("/ui/api/agents").status == 200
    assert others == [0]
    (renewed,) = stand.sessions
    assert renewed.sealed != session.sealed


class TestOpenConnections:
    """A connection that makes no further request, with rights of a provider."""

    @pytest.fixture
    def connected(self, stand: PageStand, browser: PageBrowser) -> PageStand:
        stand.can_sign_in()
        returned(browser, begun(browser))
        browser.get("/ui/")
        (authenticator,) = stand.users.authenticators
        authenticator.authorize_user("prod", browser.cookies[PAGE_COOKIE])
        return stand

    def wait(self, stand: PageStand, seconds: float) -> None:
        for _ in range(round(seconds / LOOK_SECONDS)):
            stand.clock.advance(LOOK_SECONDS)

    def test_renewed(self, connected: PageStand) -> None:
        """It stays while the provider renews the credential."""
        self.wait(connected, 3000)
        assert connected.revoked == []
        assert len(connected.sessions) == 1

    def test_refused(self, connected: PageStand) -> None:
        """It ends with the session when the provider refuses."""
        connected.provider.refreshed.clear()
        self.wait(connected, 530)
        assert connected.revoked == []
        self.wait(connected, 20)
        assert connected.sessions == []
        assert len(set(connected.revoked)) == 1

    def test_fewer_rights(self, connected: PageStand) -> None:
        """It ends, and the session stays, if the rights have changed."""
        for token, access in connected.users.tokens.items():
            if token.startswith("token-") and token != "token-0":
                changed = attrs.evolve(access, read_only=True)
                connected.users.tokens[token] = changed
        self.wait(connected, 560)
        assert len(connected.revoked) == len(connected.sessions) == 1

    def test_provider_is_away(self, connected: PageStand) -> None:
        """It ends with the credential, and the session may be renewed later."""
        connected.provider.failure = CallError(Status.UNAVAILABLE, "away")
        self.wait(connected, 590)
        assert connected.revoked == []
        self.wait(connected, 30)
        assert len(connected.revoked) == len(connected.sessions) == 1


@pytest.mark.parametrize("life", [303, 603])
@pytest.mark.parametrize("polled", ["agent", "page"])
def test_requests_beside_a_connection(
    stand: PageStand, browser: PageBrowser, life: int, polled: str
) -> None:
    """They renew the credential, and the connection ends with its former rights."""
    stand.can_sign_in(expires_at=START + life)
    returned(browser, begun(browser))
    browser.get("/ui/")
    (authenticator,) = stand.users.authenticators
    cookie = browser.cookies[PAGE_COOKIE]
    authenticator.authorize_user("prod", cookie)
    fewer = attrs.evolve(stand.users.tokens["token-0"], read_only=True)

    async def renew(signed_in: SignedIn) -> SignedIn:
        stand.users.tokens["token-1"] = fewer
        now = START + stand.clock.seconds()
        return attrs.evolve(signed_in, token="token-1", expires_at=now + life)

    stand.provider.renew = renew
    while not stand.revoked and stand.clock.seconds() < 2 * life:
        stand.clock.advance(0.2)
        if polled == "page":
            browser.get("/ui/api/session")
        else:
            maybeDeferred(authenticator.authorize_user, "prod", cookie)
    assert stand.clock.seconds() <= life - RENEW_SECONDS + LOOK_SECONDS
    # One end: of the connections with the former rights.
    stand.clock.pump([LOOK_SECONDS] * 4)
    assert len(stand.revoked) == len(stand.sessions) == 1


def test_provider_that_hangs(stand: PageStand) -> None:
    """Connections end with their credential, however many renewals wait."""
    (authenticator,) = stand.users.authenticators
    count = 3 * CHECKS_AT_ONCE
    for number in range(count):
        browser = PageBrowser(stand)
        token, owner = f"token-of-{number}", f"oidc_user:{number}"
        stand.can_sign_in(token=token, expires_at=START + 600)
        access = Access(f"{owner}:1", "1", "prod", owner=owner)
        stand.users.tokens[token] = access
        stand.users.reaches[token] = Reach(access.credential_id, owner, ())
        assert returned(browser, begun(browser)).status == 303
        authenticator.authorize_user("prod", browser.cookies[PAGE_COOKIE])
    waiting: list[int] = []

    async def renew(signed_in: SignedIn) -> SignedIn:
        waiting.append(1)
        await deferLater(stand.clock, 20)
        waiting.pop()
        raise CallError(Status.UNAVAILABLE, "it does not respond")

    stand.provider.renew = renew
    most = 0
    while stand.clock.seconds() < 599:
        stand.clock.advance(1)
        most = max(most, len(waiting))
    assert most == CHECKS_AT_ONCE
    assert stand.revoked == []
    stand.clock.advance(1 + LOOK_SECONDS)
    assert len(set(stand.revoked)) == count


def test_logout_from_a_page(stand: PageStand, browser: PageBrowser) -> None:
    """A page of another origin takes no place of a provider's message."""
    path, fields = "/ui/sign-in/oidc/signed-out", {"Sec-Fetch-Site": "cross-site"}
    for origin in ("https://evil.example.com", "null", OWN):
        answer = browser.post(path, "logout_token=x", Origin=origin, **fields)
        assert answer.status == 403
        assert b"through a browser" in answer.body
    for _ in range(FAILED_AT_ONCE):
        assert browser.notify(path, "logout_token=x").status == 401
    assert browser.notify(path, "logout_token=x").status == 429
    assert returned(browser, "unknown").status == 401


def test_sign_out_while_the_provider_is_away(
    stand: PageStand, browser: PageBrowser
) -> None:
    """The session ends here in any case, also with an expired credential."""
    stand.can_sign_in()
    returned(browser, begun(browser))
    csrf = browser.boot()["csrf"]
    stand.provider.failure = CallError(Status.UNAVAILABLE, "away")
    stand.clock.advance(700)
    answer = browser.post("/ui/sign-out", "", **{"X-Kas-Csrf": csrf})
    assert (answer.status, answer.body) == (200, b'{"next": "/ui/sign-in"}\n')
    assert stand.sessions == []
    assert PAGE_COOKIE not in browser.cookies


def test_another_try_after_a_failed_renewal(
    stand: PageStand, browser: PageBrowser
) -> None:
    """It begins at once, and no other kas has to wait."""
    stand.can_sign_in()
    returned(browser, begun(browser))
    stand.provider.failure = CallError(Status.UNAVAILABLE, "away")
    stand.clock.advance(590)
    browser.get("/ui/api/agents")
    assert stand.sessions[0].renewing_until == 0.0
    stand.provider.failure = None
    sealed = stand.sessions[0].sealed
    browser.get("/ui/api/agents")
    assert stand.sessions[0].sealed != sealed


def test_a_token_of_another_agent(stand: PageStand, browser: PageBrowser) -> None:
    """A request for one agent never reaches another one."""
    stand.users.tokens["secret"] = Access("user:alice", "2", "test")
    browser.sign_in("user:test:secret")
    browser.get("/ui/")
    (authenticator,) = stand.users.authenticators
    text = browser.cookies[PAGE_COOKIE]
    for name in ("test", "2"):
        assert authenticator.authorize_user(name, text).agent_id == "2"
    for name in ("prod", "1"):
        with pytest.raises(CallError) as caught:
            authenticator.authorize_user(name, text)
        assert caught.value.status is Status.PERMISSION_DENIED


def test_a_cookie_of_brackets(browser: PageBrowser) -> None:
    """What kas cannot read as a sign-in is none."""
    text = base64.urlsafe_b64encode(b"[" * 6000).rstrip(b"=").decode()
    browser.cookies["__Host-kas-sign-in"] = text
    assert returned(browser, "x").status == 401


def test_renewal_is_refused(stand: PageStand, browser: PageBrowser) -> None:
    stand.can_sign_in()
    returned(browser, begun(browser))
    stand.provider.refreshed.clear()
    stand.clock.advance(590)
    assert browser.get("/ui/api/agents").status == 401
    assert PAGE_COOKIE not in browser.cookies
    assert stand.sessions == []


def test_provider_is_away_at_renewal(stand: PageStand, browser: PageBrowser) -> None:
    """The credential is used until it expires, and the session stays."""
    stand.can_sign_in()
    returned(browser, begun(browser))
    stand.provider.failure = CallError(Status.UNAVAILABLE, "it does not respond")
    stand.clock.advance(590)
    assert browser.get("/ui/api/agents").status == 200
    stand.clock.advance(30)
    assert browser.get("/ui/api/agents").status == 503
    stand.provider.failure = None
    stand.clock.advance(30)
    assert browser.get("/ui/api/agents").status == 200


@pytest.mark.parametrize(
    ("logged_out", "ends"),
    [
        (LoggedOut(subject="sub-bob", session="", issued_at=START + 10), True),
        (LoggedOut(subject="", session="sid-1", issued_at=START + 10), True),
        (LoggedOut(subject="sub-bob", session="sid-1", issued_at=START + 10), True),
        (LoggedOut(subject="sub-bob", session="sid-2", issued_at=START + 10), False),
        (LoggedOut(subject="sub-eve", session="", issued_at=START + 10), False),
        (LoggedOut(subject="sub-bob", session="", issued_at=START - 10), False),
    ],
)
def test_signed_out_elsewhere(
    stand: PageStand, browser: PageBrowser, logged_out: LoggedOut, ends: bool
) -> None:
    stand.can_sign_in()
    returned(browser, begun(browser))
    stand.provider.logouts["good"] = logged_out
    path = "/ui/sign-in/oidc/signed-out"
    provider = PageBrowser(stand)
    assert provider.notify(path, "logout_token=bad").status == 401
    assert len(stand.sessions) == 1
    assert provider.notify(path, "logout_token=good").status == 200
    assert (stand.sessions == []) is ends
    status = browser.get("/ui/api/agents").status
    assert status == (401 if ends else 200)


def test_store_is_away(stand: PageStand, browser: PageBrowser) -> None:
    """Known sessions stay, and others get a page that says why."""
    browser.sign_in()
    stand.pair.store.down = True
    assert browser.get("/ui/api/agents").status == 200
    cookies = dict(browser.cookies)
    stand.module._sessions._known.clear()
    assert browser.get("/ui/").status == 503
    assert browser.cookies == cookies
    assert PageBrowser(stand).sign_in().status == 503
    stand.pair.store.down = False
    assert browser.get("/ui/").status == 200


def test_somebody_changes_the_store(stand: PageStand, browser: PageBrowser) -> None:
    """A changed credential is none."""
    browser.sign_in()
    (session,) = stand.sessions
    stand.module._authenticator.forget(session)
    changed = attrs.evolve(session, sealed=b"x" * 60)
    stand.module._sessions._known[session.key] = changed
    assert browser.get("/ui/api/session").status == 401


@pytest.mark.parametrize(
    "change",
    [
        {"created_at": "x"},
        {"used_at": True},
        {"used_at": float("nan")},
        {"renewing_until": None},
        {"owner": 7},
        {"sealed": 7},
        {"name": None},
        None,
    ],
)
def test_values_of_others(
    stand: PageStand, browser: PageBrowser, change: dict[str, Any] | None
) -> None:
    """What no kas wrote is no session, and kas goes on following the store."""
    browser.sign_in()
    (session,) = stand.sessions
    content = json.loads(session.to_bytes())
    value = b"[" * 5000 if change is None else json.dumps(content | change).encode()
    assert UserSession.from_bytes(session.key, value) is None
    store = stand.module._api.stores.open("sessions")
    stand.pair.run(store.set(session.key, value))
    assert browser.get("/ui/").status == 303
    browser.sign_in()
    assert browser.get("/ui/api/session").status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("kas.example.com", 403),
        ("192.0.2.1:8156", 403),
        ("localhost:8156", 303),
        ("127.0.0.1:8156", 303),
        ("[::1]:8156", 303),
    ],
)
def test_browsers_keep_no_session_without_tls(
    browser: PageBrowser, host: str, status: int
) -> None:
    """The form says so, because the browser would ask for a sign-in again."""
    answer = browser.post(
        "/ui/sign-in", "token=secret", Host=host, Origin=f"http://{host}"
    )
    assert answer.status == status
    assert browser.get("/ui/sign-in/oidc", Host=host).status == status
    if status == 403:
        assert b"only over https" in answer.body


def test_metrics(stand: PageStand, browser: PageBrowser) -> None:
    stand.can_sign_in()
    browser.sign_in("wrong")
    browser.sign_in()
    returned(PageBrowser(stand), begun(PageBrowser(stand)))
    other = PageBrowser(stand)
    returned(other, begun(other))
    stand.pair.store.down = True
    browser.sign_in()
    registry = stand.module._api.metrics
    found = {
        labels: registry.get_sample_value(
            "kas_web_page_sign_ins_total", {"method": labels[0], "result": labels[1]}
        )
        for labels in (
            ("token", "accepted"),
            ("token", "refused"),
            ("token", "failed"),
            ("oidc", "accepted"),
        )
    }
    assert set(found.values()) == {1.0}
    assert registry.get_sample_value("kas_web_page_user_sessions") == 2
