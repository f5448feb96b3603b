"""How people sign in with an identity provider."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import HTTPRedirectHandler, build_opener, urlopen

import pytest

from kas.ctl import sign_in
from kas.ctl.kept_tokens import Tokens
from kas.ctl.sign_in import Provider
from kas.oidc.code_flow import MAX_BODY, SignInFailed, Unreachable
from tests.fakes.identity_provider import CLIENT_ID
from tests.fakes.signing_in import Browser, SigningIn, signing_in


class _Stays(HTTPRedirectHandler):
    """Follows nothing."""

    def redirect_request(self, *_: Any) -> None:
        """None."""


class _Clock:
    """Goes on while the client sleeps, and only then."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def seconds(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class _Client:
    """kasctl, beside a provider."""

    def __init__(self, provider: SigningIn) -> None:
        self.shown: list[str] = []
        self.clock = _Clock()
        self.browser = Browser()
        self.provider = self.of(provider.issuer)

    def of(self, issuer: str, *scopes: str) -> Provider:
        return Provider(
            issuer,
            CLIENT_ID,
            scopes,
            None,
            self.shown.append,
            seconds=self.clock.seconds,
            sleep=self.clock.sleep,
        )

    def redirect(self) -> str:
        """Where the browser comes back to, by the URL that was shown."""
        query = urlsplit(self.shown[-1].splitlines()[-1]).query
        return parse_qs(query)["redirect_uri"][0]

    def by_browser(self) -> Tokens:
        try:
            return self.provider.by_browser(0, self.browser.open)
        finally:
            self.browser.end()


@pytest.fixture
def there() -> Iterator[SigningIn]:
    """A provider."""
    with signing_in() as provider:
        yield provider


@pytest.fixture
def client(there: SigningIn) -> _Client:
    """What signs in there."""
    return _Client(there)


class TestBrowser:
    """Authorization code with PKCE."""

    def test_signed_in(self, there: SigningIn, client: _Client) -> None:
        """The provider of the test verifies the challenge."""
        tokens = client.by_browser()
        assert tokens.refresh_token == "refresh-2"
        assert abs(tokens.expires_at - time.time() - 600) < 60
        asked = there.asked
        assert asked["tenant"] == "one"
        assert asked["scope"] == "openid offline_access"
        assert asked["prompt"] == "consent"
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/callback", asked["redirect_uri"])
        assert "close this window" in client.browser.pages[0]
        assert tokens.id_token not in repr(tokens)

    def test_what_another_user_can_see(self, there: SigningIn, client: _Client) -> None:
        """
        What the browser is started with leads to the provider once.

        With the URL itself another user of this machine could sign in as another
        person, and this one would go on as that.
        """
        opened: list[str] = []

        def open_browser(url: str) -> None:
            opened.append(url)
            client.browser.open(url)

        client.provider.by_browser(0, open_browser)
        (url,) = opened
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/start/[\w-]{43}", url)

    def test_opened_by_another_user(self, there: SigningIn, client: _Client) -> None:
        """Who comes second, the person, is told."""

        def open_browser(url: str) -> None:
            with pytest.raises(HTTPError) as caught:
                build_opener(_Stays).open(url)
            assert caught.value.code == 302
            with pytest.raises(HTTPError) as caught:
                urlopen(url)
            assert caught.value.code == 410
            assert "already used" in caught.value.read().decode()
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            client.provider.by_browser(0, open_browser)

    def test_scopes(self, there: SigningIn, client: _Client) -> None:
        """Those that are asked for; a provider without offline_access is not asked."""
        there.tokens.description["scopes_supported"] = ["openid"]
        client.provider = client.of(there.issuer, "email", "groups")
        client.by_browser()
        assert there.asked["scope"] == "openid email groups"
        assert "prompt" not in there.asked

    @pytest.mark.parametrize(
        ("claims", "says"),
        [
            ({"nonce": "another"}, "nonce"),
            ({"nonce": None}, "nonce"),
            ({"aud": "another"}, "aud"),
            ({"azp": "another"}, "azp"),
            ({"iss": "https://other.example"}, "iss"),
            ({"exp": 1_000_000}, "expired"),
            ({"exp": None}, "exp"),
        ],
    )
    def test_wrong_token(
        self, there: SigningIn, client: _Client, claims: dict[str, Any], says: str
    ) -> None:
        """It is refused, and not shown."""
        there.claims = {"jti": "secret", **claims}
        with pytest.raises(SignInFailed, match=says) as caught:
            client.by_browser()
        assert there.tokens.token(jti="secret").split(".")[0] not in str(caught.value)

    @pytest.mark.parametrize("token", [None, 7, "a.b", "a.%.c", "x" * 20_000])
    def test_no_token(self, there: SigningIn, client: _Client, token: object) -> None:
        """Nothing that could be one is an error as any."""
        there.answers = [(200, {"id_token": token})]
        with pytest.raises(SignInFailed, match="ID token"):
            client.by_browser()

    @pytest.mark.parametrize(
        ("returned", "says"),
        [
            (
                {"error": "access_denied", "error_description": "no\n\x1b[31m"},
                r"access_denied: no\?\?\[31m$",
            ),
            ({}, "no reason given"),
            ({"code": "x", "iss": "https://other.example"}, "another issuer"),
        ],
    )
    def test_refused(
        self,
        there: SigningIn,
        client: _Client,
        returned: dict[str, str],
        says: str,
    ) -> None:
        """What the browser brings back is no code, or not this provider's."""
        there.returned = returned
        with pytest.raises(SignInFailed, match=says):
            client.by_browser()
        assert not there.posted

    def test_issuer_demanded(self, there: SigningIn, client: _Client) -> None:
        """Where the provider says that it names itself, it has to (RFC 9207)."""
        name = "authorization_response_iss_parameter_supported"
        there.tokens.description[name] = True
        with pytest.raises(SignInFailed, match="another issuer"):
            client.by_browser()

    def test_foreign_answer(self, there: SigningIn, client: _Client) -> None:
        """An answer without the state does not count, and takes nothing away."""
        refused: list[int] = []

        def open_both(url: str) -> None:
            redirect = client.redirect()
            for wrong in (
                f"{redirect}?code=theirs&state=wrong",
                f"{redirect}?code=theirs",
                redirect.replace("callback", "other"),
            ):
                with pytest.raises(HTTPError) as caught:
                    urlopen(wrong)
                refused.append(caught.value.code)
                caught.value.close()
            client.browser.open(url)

        client.provider.by_browser(0, open_both)
        client.browser.end()
        assert refused == [400, 400, 404]

    def test_silent_connections(self, there: SigningIn, client: _Client) -> None:
        """Browsers open connections before they need them: one more is served."""
        idle: list[socket.socket] = []

        def open_both(url: str) -> None:
            redirect = urlsplit(client.redirect())
            assert redirect.port
            idle.append(socket.create_connection(("127.0.0.1", redirect.port)))
            client.browser.open(url)

        client.provider.by_browser(0, open_both)
        client.browser.end()
        idle[0].close()

    def test_nobody(
        self, there: SigningIn, client: _Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It ends by itself, and the URL was shown."""
        monkeypatch.setattr(sign_in, "SIGN_IN_TIMEOUT", 0.01)
        with pytest.raises(SignInFailed, match="the user did not sign in"):
            client.provider.by_browser(0, None)
        assert f"{there.issuer}/authorize?tenant=one&" in client.shown[0]

    def test_port(self, client: _Client) -> None:
        """One that is taken is said."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(SignInFailed, match=f"port {port} .*--device"):
                client.provider.by_browser(port, None)

    def test_secrets_stay_secret(self, there: SigningIn, client: _Client) -> None:
        """A provider that repeats what it was sent does not get it shown."""
        said = {"error": "invalid_grant", "error_description": "code-1 is unknown"}
        there.answers = [(400, said)]
        with pytest.raises(SignInFailed, match=r"400: invalid_grant: \.\.\. is"):
            client.by_browser()


class TestDevice:
    """Device code."""

    def test_signed_in(self, there: SigningIn, client: _Client) -> None:
        """It asks no sooner than it may."""
        there.device["verification_uri_complete"] = f"{there.issuer}/device?c=ABCD-EFGH"
        there.answers = [
            (400, {"error": "authorization_pending"}),
            (400, {"error": "slow_down"}),
            (400, {"error": "authorization_pending"}),
            (503, {}),
        ]
        tokens = client.provider.by_device()
        assert tokens.refresh_token is not None
        assert client.clock.slept == [2, 2, 7, 7, 14]
        assert there.posted[0] == {
            "client_id": CLIENT_ID,
            "scope": "openid offline_access",
            "prompt": "consent",
        }
        shown = "\n".join(client.shown)
        assert "ABCD-EFGH" in shown
        assert f"{there.issuer}/device?c=ABCD-EFGH" in shown
        assert "device-secret" not in shown

    @pytest.mark.parametrize("error", ["access_denied", "expired_token", "nonsense"])
    def test_refused(self, there: SigningIn, client: _Client, error: str) -> None:
        """It is said, without the device code."""
        there.answers = [
            (400, {"error": error, "error_description": "no: device-secret"})
        ]
        with pytest.raises(SignInFailed, match=rf"{error}: no: \.\.\.$"):
            client.provider.by_device()
        assert len(client.clock.slept) == 1

    @pytest.mark.parametrize(
        "lifetime", [20, 1e9, float("inf"), float("nan"), 10**400, None, "x", True]
    )
    def test_nobody(self, there: SigningIn, client: _Client, lifetime: object) -> None:
        """It ends when the code does, and at `SIGN_IN_TIMEOUT` at the latest."""
        there.device = {**there.device, "expires_in": lifetime, "interval": None}
        there.answers = [(400, {"error": "authorization_pending"})] * 200
        with pytest.raises(SignInFailed, match="expired"):
            client.provider.by_device()
        assert set(client.clock.slept) <= {sign_in.POLL_INTERVAL}
        assert sum(client.clock.slept) <= sign_in.SIGN_IN_TIMEOUT

    @pytest.mark.parametrize(
        "change",
        [
            {"device_code": None},
            {"user_code": 7},
            {"verification_uri": "http://id.example.com/device"},
        ],
    )
    def test_unusable(
        self, there: SigningIn, client: _Client, change: dict[str, object]
    ) -> None:
        """Nobody is sent to such a place."""
        there.device.update(change)
        with pytest.raises(SignInFailed, match="did not return"):
            client.provider.by_device()
        assert client.shown == []

    def test_not_offered(self, there: SigningIn, client: _Client) -> None:
        """It says what to do."""
        del there.tokens.description["device_authorization_endpoint"]
        with pytest.raises(SignInFailed, match="without --device"):
            client.provider.by_device()


class TestRenewal:
    """Refresh tokens."""

    def test_renewed(self, there: SigningIn, client: _Client) -> None:
        """A refresh token that is replaced is, and one that is not is kept."""
        first = client.by_browser()
        second = client.provider.renew(first)
        assert second is not None
        assert second.refresh_token not in (None, first.refresh_token)
        there.answers = [(200, {"id_token": there.tokens.token(jti="other")})]
        third = client.provider.renew(second)
        assert third is not None
        assert third.refresh_token == second.refresh_token
        assert third.id_token != second.id_token

    def test_to_sign_in_again(self, there: SigningIn, client: _Client) -> None:
        """Where the provider took it back, gives no ID token, or another person's."""
        first = client.by_browser()
        there.answers = [(200, {"access_token": "x"}), (200, there.given(sub="eve"))]
        assert client.provider.renew(first) is None
        assert client.provider.renew(first) is None
        there.answers = [(400, {"error": "interaction_required"})]
        assert client.provider.renew(first) is None
        there.revoke()
        assert client.provider.renew(first) is None
        assert client.provider.renew(first._replace(refresh_token=None)) is None

    def test_kept_garbage(self, client: _Client) -> None:
        """What is kept may be anything."""
        first = client.by_browser()
        assert client.provider.renew(first._replace(id_token="x")) is None

    def test_provider_fails(self, there: SigningIn, client: _Client) -> None:
        """That it is down is no reason to sign in again."""
        first = client.by_browser()
        assert first.refresh_token
        said = {"error": "invalid_client", "error_description": first.refresh_token}
        there.answers = [(503, {}), (429, {}), (401, said)]
        for _ in range(2):
            with pytest.raises(Unreachable):
                client.provider.renew(first)
        with pytest.raises(SignInFailed, match=r"401: invalid_client: \.\.\."):
            client.provider.renew(first)


class TestRequests:
    """Where kasctl sends what, and what it takes."""

    @pytest.mark.parametrize(
        "issuer", ["http://id.example.com", "file:///etc/passwd", "x", "ftp://a", ""]
    )
    def test_issuer(self, client: _Client, issuer: str) -> None:
        """Plain http is for this machine only."""
        with pytest.raises(SignInFailed, match="https://"):
            client.of(issuer)

    @pytest.mark.parametrize(
        "endpoint", ["http://id.example.com/a", "https://id.example.com/\x1b[m", 7]
    )
    def test_endpoint(
        self, there: SigningIn, client: _Client, endpoint: object
    ) -> None:
        """So are the endpoints; what a terminal would obey is none."""
        there.tokens.description["authorization_endpoint"] = endpoint
        with pytest.raises(SignInFailed, match="authorization_endpoint"):
            client.by_browser()

    @pytest.mark.parametrize(
        ("page", "says"),
        [
            ((200, {}, b"[]"), "did not return a JSON object"),
            ((200, {}, b"[" * 9999), "did not return a JSON object"),
            ((200, {}, b" " * (MAX_BODY + 1)), "more than"),
            ((404, {}, b"<html>"), "responded with 404"),
            ((503, {}, b""), "responded with 503"),
            ((302, {"Location": "/keys"}, b""), "responded with 302"),
            ((200, {}, b'{"issuer": "https://other.example"}'), "calls itself https"),
        ],
    )
    def test_description(
        self,
        there: SigningIn,
        client: _Client,
        page: tuple[int, dict[str, str], bytes],
        says: str,
    ) -> None:
        """It is of this issuer, of bounded size, and where it was asked for."""
        there.pages["/.well-known/openid-configuration"] = page
        with pytest.raises(SignInFailed, match=says):
            client.by_browser()
        assert "/keys" not in there.tokens.asked

    def test_silence(self, client: _Client, monkeypatch: pytest.MonkeyPatch) -> None:
        """One byte now and then does not keep kasctl."""
        monkeypatch.setattr(sign_in, "TIMEOUT", 0.3)
        ended = threading.Event()

        def drip(server: socket.socket) -> None:
            connection = server.accept()[0]
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while not ended.wait(0.05):
                    connection.sendall(b"x")

        with socket.create_server(("127.0.0.1", 0)) as server:
            dripping = threading.Thread(target=drip, args=(server,))
            dripping.start()
            provider = client.of(f"http://127.0.0.1:{server.getsockname()[1]}")
            try:
                with pytest.raises(Unreachable, match="no complete response"):
                    provider.by_device()
            finally:
                ended.set()
                dripping.join()

    def test_no_proxy_for_plain_http(
        self, client: _Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is for this machine does not leave it."""
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        client.by_browser()

    def test_nothing_there(self, client: _Client) -> None:
        """In words."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(Unreachable, match="Connection refused"):
            client.of(url).by_device()
