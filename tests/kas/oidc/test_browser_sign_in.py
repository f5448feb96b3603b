"""How users of kas' pages sign in with an identity provider."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote_plus, urlsplit

import attrs
import pytest
from prometheus_client import CollectorRegistry
from treq.testing import RequestTraversalAgent
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher
from zope.interface.verify import verifyObject

from kas.config.oidc import OidcAccess, OpenIdConnect
from kas.oidc import browser_sign_in as module
from kas.oidc.authenticator import TOKEN_PREFIX, OidcAuthenticator
from kas.oidc.browser_sign_in import BrowserSignIn
from kas.oidc.code_flow import MAX_BODY, MAX_TOKEN
from kas.oidc.description import MAX_AGE, RETRY_PAUSE, ProviderDescription
from kas.oidc.keys import ProviderKeys
from kas.oidc.requests import TIMEOUT, ProviderRequests
from kas.oidc.sign_in import LOOK_INTERVAL, client_secret
from kas.oidc.verifier import MAX_LOGOUT_AGE
from tests.fakes.identity_provider import CLIENT_ID, make_key
from tests.fakes.signing_in import SigningIn, SigningInResource
from tests.kas.oidc.cases import FewAgents
from tunnel.api import Access, ISignInProvider, SignedIn, SignInBegun
from tunnel.errors import CallError, Status
from tunnel.program.runtime import Runtime

ISSUER = "https://id.example.com"
BACK = "https://kas.example.com/auth/callback"
NOW = 1_700_000_000.0
DESCRIPTION = "/.well-known/openid-configuration"
SECRET = "s3cret of: the/client+"

#: Member of the claim ``events`` of logout tokens.
LOGOUT = "http://schemas.openid.net/event/backchannel-logout"

_T = TypeVar("_T")


@attrs.define(eq=False)
class Page:
    """kas' side of a provider in memory."""

    settings: dict[str, Any] = attrs.field(factory=dict)
    clock: Clock = attrs.field(factory=Clock)
    provider: SigningIn = attrs.field(init=False)
    resource: SigningInResource = attrs.field(init=False)
    traversal: Any = attrs.field(init=False)
    authenticator: OidcAuthenticator = attrs.field(init=False)
    sign_in: BrowserSignIn = attrs.field(init=False)
    made: int = 0

    def __attrs_post_init__(self) -> None:
        self.provider = SigningIn(ISSUER, self.now)
        self.provider.tokens.description["end_session_endpoint"] = f"{ISSUER}/end"
        self.resource = SigningInResource(self.provider)
        self.traversal = RequestTraversalAgent(self.resource)
        self.configure()

    def configure(self, **more: Any) -> None:
        """Begin again with these settings, as another process of kas."""
        settings = OpenIdConnect(
            **{
                "issuer": ISSUER,
                "client_id": CLIENT_ID,
                "access": (OidcAccess(users=("oidc:alice",), agents=("*",)),),
                **more,
            }
        )
        runtime = Runtime(reactor=self.clock, now=self.now)
        requests = ProviderRequests(self.traversal, self.clock)
        description = ProviderDescription(settings.issuer, requests, self.clock)
        keys = ProviderKeys(settings, description, requests, self.clock)
        self.authenticator = OidcAuthenticator(
            settings, keys, FewAgents({"prod": ("1", "prod")}), set, runtime
        )
        self.sign_in = BrowserSignIn(
            settings,
            description,
            requests,
            self.authenticator,
            client_secret(settings, runtime),
            self.clock,
            self.now,
            self.make_text,
        )

    def now(self) -> float:
        return NOW + self.clock.seconds()

    def make_text(self) -> str:
        self.made += 1
        return f"text-{self.made}"

    def start(self, work: Any) -> list[Any]:
        """Let *work* run; the list that gets its result."""
        ends: list[Any] = []
        Deferred.fromCoroutine(work).addBoth(ends.append)
        self.settle()
        return ends

    def settle(self) -> None:
        for _ in range(8):
            self.traversal.flush()
            self.clock.advance(0)

    def run(self, work: Awaitable[_T]) -> _T:
        (found,) = self.start(work)
        if hasattr(found, "raiseException"):
            found.raiseException()
        return found  # type: ignore[no-any-return]

    def refused(self, work: Awaitable[object], says: str, *, unavailable: bool) -> str:
        """The message of an error that is expected."""
        with pytest.raises(CallError, match=says) as caught:
            self.run(work)
        wanted = Status.UNAVAILABLE if unavailable else Status.UNAUTHENTICATED
        assert caught.value.status is wanted
        return caught.value.message

    def begin(self) -> SignInBegun:
        return self.run(self.sign_in.begin(BACK))

    def visit(self, begun: SignInBegun) -> dict[str, str]:
        """Sign in at the provider; the parameters that come back."""
        to = self.provider.authorize(dict(parse_qsl(urlsplit(begun.url).query)))
        assert to.startswith(f"{BACK}?")
        return dict(parse_qsl(urlsplit(to).query))

    def finish(self, begun: SignInBegun, answer: dict[str, str]) -> Awaitable[SignedIn]:
        return self.sign_in.finish(begun.secret, begun.state, answer, BACK)

    def signed_in(self) -> SignedIn:
        begun = self.begin()
        return self.run(self.finish(begun, self.visit(begun)))

    def logout_token(self, **claims: Any) -> str:
        wanted = {
            "events": {LOGOUT: {}},
            "jti": "1",
            "sid": "session",
            "exp": int(self.now()) + 120,
            **claims,
        }
        return self.provider.tokens.token(header={"typ": "logout+jwt"}, **wanted)


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture
def logged() -> Iterator[EventLoggingObserver]:
    observer = EventLoggingObserver()
    globalLogPublisher.addObserver(observer)
    yield observer
    globalLogPublisher.removeObserver(observer)


def texts(logged: EventLoggingObserver) -> str:
    return "\n".join(str(dict(event)) for event in logged)


class TestSignIn:
    """Beginning and end of a sign-in."""

    def test_signed_in(self, page: Page, logged: EventLoggingObserver) -> None:
        """The token is a credential of kas, and no log line contains a secret."""
        page.provider.claims = {"sid": "session", "preferred_username": "Alice"}
        verifyObject(ISignInProvider, page.sign_in)
        assert page.sign_in.title == "id.example.com"
        begun = page.begin()
        assert begun.state == "text-1"
        answer = page.visit(begun)
        asked = page.provider.asked
        assert asked["redirect_uri"] == BACK
        assert asked["scope"] == "openid profile email offline_access"
        assert asked["prompt"] == "consent"
        assert asked["nonce"] == "text-2"
        found = page.run(page.finish(begun, answer))
        assert (found.kind, found.name) == ("oidc", "Alice")
        assert (found.subject, found.session) == ("alice", "session")
        assert found.expires_at == NOW + 600
        assert found.refresh_token.startswith("refresh-")
        # The authenticator has verified the token, and does not verify it again.
        access = page.authenticator.authorize_user("prod", found.token)
        assert isinstance(access, Access)
        assert access.impersonation is not None
        assert access.impersonation.username == "oidc:alice"
        text = texts(logged) + repr(begun) + repr(found)
        for secret in (answer["code"], found.token, found.refresh_token, "text-3"):
            assert secret not in text

    def test_settings(self, page: Page) -> None:
        page.configure(title="Example Ltd.", scopes=("groups",))
        assert page.sign_in.title == "Example Ltd."
        page.visit(page.begin())
        assert page.provider.asked["scope"] == "openid groups offline_access"

    @pytest.mark.parametrize(
        "redirect",
        ["http://kas.example.com/back", "x", "javascript:1", "https://" + "x" * 3000],
        ids=["plain", "relative", "script", "long"],
    )
    def test_redirect(self, page: Page, redirect: str) -> None:
        page.refused(page.sign_in.begin(redirect), "https://", unavailable=False)

    def test_mixed_up(self, page: Page) -> None:
        """State, secret and answer belong together; nothing else is sent."""
        first, second = page.begin(), page.begin()
        answer = page.visit(first)
        for secret, state, said in (
            (second.secret, first.state, answer),
            (first.secret, second.state, answer),
            (second.secret, second.state, answer),
            (first.secret, first.state, {**answer, "state": second.state}),
            (first.secret, first.state, {"code": answer["code"]}),
            (first.secret, first.state, {**answer, "state": "\udcff"}),
        ):
            work = page.sign_in.finish(secret, state, said, BACK)
            page.refused(work, "does not belong", unavailable=False)
        odd = first.secret.replace(b'"nonce": "text-2"', b'"nonce": 2')
        assert odd != first.secret
        for secret in (b"", b"[]", b"{}", b"\xff", b"[" * 9999, odd):
            work = page.sign_in.finish(secret, first.state, answer, BACK)
            page.refused(work, "not known", unavailable=False)
        assert not page.provider.posted
        page.run(page.finish(first, answer))

    def test_too_late(self, page: Page) -> None:
        begun = page.begin()
        answer = page.visit(begun)
        page.clock.advance(module.SIGN_IN_TIMEOUT)
        page.run(page.finish(begun, answer))
        page.clock.advance(1)
        page.refused(page.finish(begun, answer), "longer than", unavailable=False)

    def test_replay(self, page: Page) -> None:
        """A code is valid once, and a token for the sign-in with its nonce."""
        first = page.begin()
        answer = page.visit(first)
        found = page.run(page.finish(first, answer))
        page.refused(page.finish(first, answer), "invalid_grant", unavailable=False)
        second = page.begin()
        page.provider.answers = [(200, {"id_token": found.token})]
        work = page.finish(second, page.visit(second))
        page.refused(work, "nonce", unavailable=False)

    @pytest.mark.parametrize(
        ("returned", "says"),
        [
            ({"error": "access_denied", "error_description": "no\n"}, "denied: no"),
            ({}, "no reason given"),
            ({"code": "x", "iss": "https://other.example"}, "another issuer"),
            ({"code": "x" * (module.MAX_CODE + 1)}, "more than"),
        ],
        ids=["denied", "empty", "issuer", "long"],
    )
    def test_refused(self, page: Page, returned: dict[str, str], says: str) -> None:
        page.provider.returned = returned
        begun = page.begin()
        work = page.finish(begun, page.visit(begun))
        page.refused(work, says, unavailable=False)
        assert not page.provider.posted

    @pytest.mark.parametrize(
        ("claims", "says"),
        [
            ({"nonce": "another"}, "nonce"),
            ({"nonce": None}, "nonce"),
            ({"aud": "another"}, "aud"),
            ({"azp": "another"}, "azp"),
            ({"iss": "https://other.example"}, "iss"),
            ({"exp": int(NOW) - 60}, "expired"),
            ({"exp": int(NOW) + 90_000}, "more than"),
            ({"sub": None}, "sub"),
            ({"events": {}}, "events"),
        ],
        ids=["nonce", "none", "aud", "azp", "iss", "exp", "long", "sub", "events"],
    )
    def test_wrong_token(
        self,
        page: Page,
        logged: EventLoggingObserver,
        claims: dict[str, Any],
        says: str,
    ) -> None:
        page.provider.claims = claims
        begun = page.begin()
        work = page.finish(begun, page.visit(begun))
        page.refused(work, says, unavailable=False)
        text = texts(logged)
        assert "refused a user's sign-in" in text
        # Each token begins with these characters.
        assert TOKEN_PREFIX not in text

    def test_wrong_signature(self, page: Page) -> None:
        """A token that the provider's key did not sign."""
        begun = page.begin()
        answer = page.visit(begun)
        forged = page.provider.tokens.token(
            signed_with=("ES256", make_key("ES256", 9)), nonce="text-2"
        )
        page.provider.answers = [(200, {"id_token": forged})]
        page.refused(page.finish(begun, answer), "signature", unavailable=False)

    def test_azp_of_another_client(self, page: Page) -> None:
        """Another client's tokens are credentials, but do not end this sign-in."""
        page.configure(authorized_parties=("other",))
        page.provider.claims = {"azp": "other"}
        begun = page.begin()
        work = page.finish(begun, page.visit(begun))
        page.refused(work, "another client", unavailable=False)

    def test_sub_of_another_claim(self, page: Page) -> None:
        """The subject is needed even if another claim names the user."""
        page.configure(username_claim="preferred_username")
        for sub in (None, "", "x" * 256, 7):
            page.provider.claims = {"preferred_username": "alice", "sub": sub}
            begun = page.begin()
            work = page.finish(begun, page.visit(begun))
            page.refused(work, "'sub'", unavailable=False)

    def test_long_tokens(self, page: Page) -> None:
        begun = page.begin()
        answer = page.visit(begun)
        issued = page.provider.given(nonce="text-2")
        page.provider.answers = [
            (200, {"id_token": "x" * (MAX_TOKEN + 1)}),
            (200, {**issued, "refresh_token": "x" * (MAX_TOKEN + 1)}),
            (200, {**issued, "refresh_token": ["x"]}),
        ]
        page.refused(page.finish(begun, answer), "ID token of at", unavailable=False)
        page.refused(page.finish(begun, answer), "refresh token", unavailable=False)
        assert page.run(page.finish(begun, answer)).refresh_token == ""

    def test_another_issuer_meanwhile(self, page: Page) -> None:
        """Code and verifier are sent to the provider of the sign-in only."""
        begun = page.begin()
        answer = page.visit(begun)
        page.configure(issuer=f"{ISSUER}/new")
        page.refused(page.finish(begun, answer), "has changed", unavailable=False)
        assert page.resource.requested == [DESCRIPTION]


class TestConfidentialClient:
    """A client with a secret."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        file = tmp_path / "secret"
        file.write_text(f"{SECRET}\n")
        file.chmod(0o600)
        return file

    @pytest.mark.parametrize(
        ("methods", "is_basic"),
        [
            (None, True),
            (["client_secret_post", "client_secret_basic"], True),
            (["private_key_jwt", "client_secret_post"], False),
        ],
        ids=["default", "both", "post"],
    )
    def test_method(
        self, page: Page, file: Path, methods: list[str] | None, is_basic: bool
    ) -> None:
        """As the provider announces, in one place."""
        page.configure(client_secret_file=file)
        page.provider.secret = SECRET
        description = page.provider.tokens.description
        description["token_endpoint_auth_methods_supported"] = methods
        found = page.run(page.sign_in.renew(page.signed_in()))
        assert found.subject == "alice"
        assert [bool(one) for one in page.provider.authorized] == [is_basic] * 2

    def test_no_method(self, page: Page, file: Path) -> None:
        page.configure(client_secret_file=file)
        description = page.provider.tokens.description
        description["token_endpoint_auth_methods_supported"] = ["private_key_jwt"]
        begun = page.begin()
        work = page.finish(begun, page.visit(begun))
        page.refused(work, "public client", unavailable=False)
        assert not page.provider.posted

    def test_secret_stays_secret(
        self, page: Page, file: Path, logged: EventLoggingObserver
    ) -> None:
        """The provider may repeat it; neither the user nor the log sees it."""
        page.configure(client_secret_file=file)
        page.provider.secret = SECRET
        old = page.signed_in()
        page.run(page.sign_in.renew(old))
        (_, sent) = page.provider.authorized[-1].split()
        said = f"{sent} {quote_plus(SECRET)} {SECRET}"
        answer = {"error": "invalid_client", "error_description": said}
        page.provider.answers = [(401, answer), (400, answer)]
        page.refused(page.sign_in.renew(old), "unavailable", unavailable=True)
        begun = page.begin()
        work = page.finish(begun, page.visit(begun))
        page.refused(work, r"client: \.\.\. \.\.\. \.\.\.$", unavailable=False)
        assert not any(one in texts(logged) for one in (SECRET, sent))

    def test_new_secret(self, page: Page, file: Path) -> None:
        """kas reads the file again; an unusable secret changes nothing."""
        page.configure(client_secret_file=file)
        page.provider.secret = SECRET
        page.signed_in()
        for content, secret in (("x" * 40, "x" * 40), ("short", "x" * 40)):
            file.write_text(content)
            page.provider.secret = secret
            page.clock.advance(LOOK_INTERVAL)
            page.signed_in()


class TestRenewal:
    """Refresh tokens."""

    def test_rotation(self, page: Page) -> None:
        """Each renewal returns the next refresh token, and keeps the session."""
        page.provider.claims = {"sid": "session"}
        first = page.signed_in()
        page.provider.claims = {}
        page.clock.advance(300)
        second = page.run(page.sign_in.renew(first))
        assert second.refresh_token not in ("", first.refresh_token)
        assert second.expires_at == first.expires_at + 300
        assert second.session == "session"
        # The provider takes the old one once only.
        page.refused(page.sign_in.renew(first), "invalid_grant", unavailable=False)
        # A provider that does not rotate returns none.
        page.provider.answers = [(200, {"id_token": page.provider.tokens.token()})]
        third = page.run(page.sign_in.renew(second))
        assert third.refresh_token == second.refresh_token

    def test_after_a_restart(self, page: Page) -> None:
        """A credential from a store goes on at another process."""
        stored = page.signed_in().to_bytes()
        page.configure()
        found = page.run(page.sign_in.renew(SignedIn.from_bytes(stored)))
        assert found.subject == "alice"

    @pytest.mark.parametrize(
        ("answer", "says"),
        [
            ((200, {"access_token": "x"}), "did not renew the ID token"),
            ((400, {"error": "invalid_grant"}), "invalid_grant"),
            ((400, {"error": "interaction_required"}), "interaction_required"),
            ((200, {"id_token": "x.y.z"}), "JWT"),
        ],
        ids=["none", "revoked", "interaction", "garbage"],
    )
    def test_sign_in_again(
        self, page: Page, answer: tuple[int, dict[str, Any]], says: str
    ) -> None:
        old = page.signed_in()
        page.provider.answers = [answer]
        page.refused(page.sign_in.renew(old), says, unavailable=False)

    def test_another_user(self, page: Page) -> None:
        old = page.signed_in()
        page.provider.claims = {"sub": "eve"}
        page.refused(page.sign_in.renew(old), "another user's", unavailable=False)

    def test_no_refresh_token(self, page: Page) -> None:
        old = attrs.evolve(page.signed_in(), refresh_token="")
        page.refused(page.sign_in.renew(old), "no refresh token", unavailable=False)

    def test_another_provider(self, page: Page) -> None:
        """A refresh token is sent to the provider that issued it only."""
        old = page.signed_in()
        posted = len(page.provider.posted)
        page.configure(issuer=f"{ISSUER}/new")
        page.refused(page.sign_in.renew(old), "has changed", unavailable=False)
        assert page.run(page.sign_in.end_url(old, BACK)) == ""
        assert len(page.provider.posted) == posted

    @pytest.mark.parametrize("path", [DESCRIPTION, "/token"])
    @pytest.mark.parametrize("status", [200, 302, 404])
    def test_strange_answers(self, page: Page, path: str, status: int) -> None:
        """Responses of a proxy before the provider end no session."""
        old = page.signed_in()
        page.configure()
        page.provider.pages[path] = (status, {}, b"<html>")
        page.refused(page.sign_in.renew(old), "try again", unavailable=True)
        page.provider.pages.clear()
        page.clock.advance(RETRY_PAUSE)
        # A provider that rotates has not seen the refresh token in the meantime.
        if path == DESCRIPTION:
            page.run(page.sign_in.renew(old))

    def test_clocks_of_two_kas(self, page: Page) -> None:
        """A sign-in may end at a kas whose clock is behind."""
        page.clock.advance(10)
        begun = page.begin()
        page.clock.rightNow -= 5
        page.run(page.finish(begun, page.visit(begun)))

    @pytest.mark.parametrize(
        "answer",
        [
            (503, {}),
            (429, {}),
            (401, {"error": "invalid_client"}),
            (403, {}),
            (400, {"error": ["invalid_grant"]}),
        ],
        ids=["503", "429", "401", "403", "strange"],
    )
    def test_provider_fails(
        self, page: Page, answer: tuple[int, dict[str, Any]]
    ) -> None:
        """The credential stays valid until it expires."""
        old = page.signed_in()
        page.provider.answers = [answer]
        page.refused(page.sign_in.renew(old), "try again", unavailable=True)
        page.run(page.sign_in.renew(old))


class TestHostileProvider:
    """Responses that no provider should send."""

    @pytest.mark.parametrize(
        ("answer", "says", "unavailable"),
        [
            ((200, {}, b"[]"), "JSON object", False),
            ((200, {}, b"[" * 9999), "JSON object", False),
            ((200, {}, b" " * (MAX_BODY + 1)), "more than", False),
            ((404, {}, b"<html>"), "404", False),
            ((503, {}, b""), "unavailable", True),
            ((302, {"Location": "/keys"}, b""), "302", False),
            ((200, {}, b'{"issuer": "https://other.example"}'), "calls itself", False),
        ],
        ids=["list", "deep", "huge", "missing", "down", "redirect", "issuer"],
    )
    def test_description(
        self,
        page: Page,
        answer: tuple[int, dict[str, str], bytes],
        says: str,
        unavailable: bool,
    ) -> None:
        page.provider.pages[DESCRIPTION] = answer
        page.refused(page.sign_in.begin(BACK), says, unavailable=unavailable)
        # Until a pause has passed, sign-ins cause no further request.
        page.refused(page.sign_in.begin(BACK), says, unavailable=unavailable)
        assert page.resource.requested == [DESCRIPTION]
        page.provider.pages.clear()
        page.clock.advance(RETRY_PAUSE)
        page.begin()

    @pytest.mark.parametrize(
        ("answer", "says", "unavailable"),
        [
            ((200, {}, b"{}" + b" " * MAX_BODY), "more than", False),
            ((307, {"Location": "https://evil.example/"}, b""), "307", False),
            ((500, {}, b"code-1"), "try again", True),
            ((200, {}, b"\xff"), "JSON object", False),
        ],
        ids=["huge", "redirect", "down", "binary"],
    )
    def test_tokens(
        self,
        page: Page,
        answer: tuple[int, dict[str, str], bytes],
        says: str,
        unavailable: bool,
    ) -> None:
        begun = page.begin()
        came = page.visit(begun)
        page.provider.pages["/token"] = answer
        said = page.refused(page.finish(begun, came), says, unavailable=unavailable)
        assert "code-1" not in said
        assert page.resource.requested.count("/token") == 1

    def test_endpoints(self, page: Page) -> None:
        """They are https URLs, or kas sends nothing."""
        description = page.provider.tokens.description
        for wrong in ("http://id.example.com/token", "https://x/#y", 7, None):
            description["token_endpoint"] = wrong
            page.configure()
            begun = page.begin()
            work = page.finish(begun, page.visit(begun))
            page.refused(work, "token_endpoint", unavailable=False)
        assert not page.provider.posted

    def test_silence(self, page: Page, logged: EventLoggingObserver) -> None:
        """A silent provider holds a step for a limited time, and kas logs it once."""
        begun = page.begin()
        answer = page.visit(begun)
        page.resource.silent = True
        for _ in range(2):
            ends = page.start(page.finish(begun, answer))
            page.clock.advance(TIMEOUT - 0.1)
            assert ends == []
            page.clock.advance(0.1)
            assert ends[0].value.status is Status.UNAVAILABLE
        lines = [one for one in logged if "users cannot sign in" in str(one)]
        assert len(lines) == 1
        assert "no complete response" in lines[0]["reason"]
        page.resource.silent = False
        page.traversal.flush()
        page.signed_in()
        assert "succeed again" in texts(logged)

    def test_slow(self, page: Page) -> None:
        """All responses together have a limit, too."""
        begun = page.begin()
        answer = page.visit(begun)
        page.configure()
        page.resource.silent = True
        ends = page.start(page.finish(begun, answer))
        for path in (DESCRIPTION, "/token"):
            assert page.resource.requested[-1] == path
            page.clock.advance(TIMEOUT - 0.5)
            page.resource.speak()
            page.settle()
        # The keys remain, which kas reads together with the description.
        assert page.resource.requested[-1] == DESCRIPTION
        page.clock.advance(0.9)
        assert ends == []
        page.clock.advance(0.1)
        assert ends[0].value.status is Status.UNAVAILABLE

    def test_one_description(self, page: Page) -> None:
        """Many sign-ins cause one request, and again after `MAX_AGE`."""
        page.resource.silent = True
        works = [page.start(page.sign_in.begin(BACK)) for _ in range(5)]
        assert page.resource.requested == [DESCRIPTION]
        page.clock.advance(TIMEOUT)
        assert all(ends[0].value.status is Status.UNAVAILABLE for ends in works)
        page.resource.silent = False
        page.clock.advance(RETRY_PAUSE)
        page.begin()
        page.clock.advance(MAX_AGE)
        page.begin()
        assert len(page.resource.requested) == 2
        page.clock.advance(1)
        page.begin()
        assert len(page.resource.requested) == 3

    def test_too_many(self, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
        """Further steps fail at once, and steps of other kinds continue."""
        monkeypatch.setattr(module, "MAX_STEPS", 2)
        old = page.signed_in()
        begun = page.begin()
        answer = page.visit(begun)
        page.resource.silent = True
        works = [page.start(page.finish(begun, answer)) for _ in range(3)]
        assert works[:2] == [[], []]
        assert works[2][0].value.status is Status.RESOURCE_EXHAUSTED
        renewing = page.start(page.sign_in.renew(old))
        assert renewing == []
        page.clock.advance(TIMEOUT)
        page.resource.silent = False
        page.signed_in()

    def test_metrics(self, page: Page) -> None:
        metrics = CollectorRegistry()
        metrics.register(page.sign_in)
        old = page.signed_in()
        page.provider.answers = [(503, {}), (400, {"error": "invalid_grant"})]
        for _ in range(2):
            with pytest.raises(CallError):
                page.run(page.sign_in.renew(old))

        def count(step: str, result: str) -> float | None:
            labels = {"step": step, "result": result}
            return metrics.get_sample_value("kas_oidc_sign_in_steps_total", labels)

        assert count("finish", "ok") == 1
        assert count("renew", "unavailable") == 1
        assert count("renew", "refused") == 1
        assert count("logout", "ok") == 0


class TestEnd:
    """Sign-outs, here and at the provider."""

    def test_end_url(self, page: Page) -> None:
        found = page.signed_in()
        back = "https://kas.example.com/"
        url = page.run(page.sign_in.end_url(found, back))
        assert url.startswith(f"{ISSUER}/end?")
        query = dict(parse_qsl(urlsplit(url).query))
        assert query == {
            "id_token_hint": found.token,
            "client_id": CLIENT_ID,
            "post_logout_redirect_uri": back,
        }
        del page.provider.tokens.description["end_session_endpoint"]
        page.configure()
        assert page.run(page.sign_in.end_url(found, back)) == ""

    def test_logged_out(self, page: Page) -> None:
        """One session of a user, or all of them; a repeated token is the same."""
        page.provider.claims = {"sid": "session"}
        found = page.signed_in()
        for claims, ends in (
            ({}, True),
            ({"sub": None}, True),
            ({"sid": None}, True),
            ({"sid": "other"}, False),
            ({"sid": "other", "sub": None}, False),
            ({"sub": "bob"}, False),
        ):
            token = page.logout_token(**claims)
            for _ in range(2):
                gone = page.run(page.sign_in.logged_out(token))
                assert gone.ends(found) is ends
                assert gone.issued_at == NOW + 30
        unnamed = attrs.evolve(found, session="")
        by_user = page.run(page.sign_in.logged_out(page.logout_token(sid="other")))
        assert by_user.ends(unnamed)
        by_session = page.run(page.sign_in.logged_out(page.logout_token(sub=None)))
        assert not by_session.ends(unnamed)

    @pytest.mark.parametrize(
        ("claims", "says"),
        [
            ({"events": None}, "events"),
            ({"events": {"other": {}}}, "events"),
            ({"events": {LOGOUT: None}}, "events"),
            ({"events": [LOGOUT]}, "events"),
            ({"nonce": "x"}, "nonce"),
            ({"sub": None, "sid": None}, "neither"),
            ({"sid": 7}, "'sid'"),
            ({"sub": "x" * 256}, "'sub'"),
            ({"jti": None}, "'jti'"),
            ({"jti": ""}, "'jti'"),
            ({"iat": None}, "iat"),
            ({"iat": int(NOW - MAX_LOGOUT_AGE) - 31}, "iat"),
            ({"iat": int(NOW) + 31}, "iat"),
            ({"exp": None}, "exp"),
            ({"exp": int(NOW) - 31}, "expired"),
            ({"aud": "another"}, "audience"),
            ({"iss": "https://other.example"}, "issuer"),
        ],
        ids=str,
    )
    def test_wrong_logout(self, page: Page, claims: dict[str, Any], says: str) -> None:
        token = page.logout_token(**claims)
        page.refused(page.sign_in.logged_out(token), says, unavailable=False)

    def test_other_tokens(self, page: Page) -> None:
        """An ID token ends no session, and a logout token begins none."""
        found = page.signed_in()
        work = page.sign_in.logged_out(found.token)
        page.refused(work, "events", unavailable=False)
        tokens = page.provider.tokens
        event: dict[str, Any] = {"events": {LOGOUT: {}}, "jti": "1"}
        plain = tokens.token(**event)
        assert page.run(page.sign_in.logged_out(plain)).subject == "alice"
        access = tokens.token(header={"typ": "at+jwt"}, **event)
        page.refused(page.sign_in.logged_out(access), "typ", unavailable=False)
        forged = tokens.token(signed_with=("ES256", make_key("ES256", 9)), **event)
        page.refused(page.sign_in.logged_out(forged), "signature", unavailable=False)
        begun = page.begin()
        answer = page.visit(begun)
        page.provider.answers = [(200, {"id_token": page.logout_token(nonce="text-5")})]
        page.refused(page.finish(begun, answer), "typ", unavailable=False)
        for wrong in ("", "x", "é", "x" * (MAX_TOKEN + 1)):
            page.refused(page.sign_in.logged_out(wrong), "token|JWT", unavailable=False)
