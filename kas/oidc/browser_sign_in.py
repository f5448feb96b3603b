"""Sign-in of users of kas' pages with an identity provider."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar
from urllib.parse import quote_plus

import attrs
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector
from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from kas.config.oidc import OpenIdConnect
from kas.oidc.authenticator import OidcAuthenticator
from kas.oidc.code_flow import (
    MAX_REASON,
    MAX_TOKEN,
    CodeFlow,
    IssuedTokens,
    SignInAgain,
    SignInFailed,
    Unreachable,
    is_same,
    name_of,
    unusable,
    unverified_claims,
)
from kas.oidc.description import ProviderDescription
from kas.oidc.requests import ProviderRequests
from kas.oidc.verifier import MAX_ID, is_id
from tunnel.api import ISignInProvider, LoggedOut, SignedIn, SignInBegun
from tunnel.errors import CallError, Status
from tunnel.toolkit.log_budget import LogBudget
from tunnel.toolkit.texts import clean
from tunnel.toolkit.time_limit import within
from tunnel.toolkit.urls import is_private

__all__ = ["BrowserSignIn"]

#: Maximum seconds between the beginning and the end of a sign-in: enough for a user who
#: has to find a second factor.
SIGN_IN_TIMEOUT = 600.0

#: Maximum seconds of one step, in which a browser waits: the description, the tokens
#: and the keys of the provider.
STEP_TIMEOUT = 20.0

#: Maximum number of steps of one kind at the same time, each with a connection to the
#: provider: a client without credentials can cause one for each sign-in that it began.
MAX_STEPS = 100

#: Maximum characters of a code and of a redirect URI, which kas sends to the provider:
#: codes of providers have 20 to 2,000 characters.
MAX_CODE = 8192
MAX_URI = 2048

#: Methods of client authentication with a secret, beginning with the default (OpenID
#: Connect Discovery, 3, token_endpoint_auth_methods_supported).
_BASIC = "client_secret_basic"
_POST = "client_secret_post"

_STEPS = ("begin", "finish", "renew", "end", "logout")
_RESULTS = ("ok", "refused", "unavailable")

_IS_TEXT = attrs.validators.instance_of(str)

_T = TypeVar("_T")


@attrs.frozen
class _Begun:
    """Content of `SignInBegun.secret`."""

    issuer: str = attrs.field(validator=_IS_TEXT)
    state: str = attrs.field(validator=_IS_TEXT)
    nonce: str = attrs.field(validator=_IS_TEXT)
    verifier: str = attrs.field(validator=_IS_TEXT)
    begun_at: float = attrs.field(converter=float)


@implementer(ISignInProvider)
class BrowserSignIn(Collector):
    """
    Client of an identity provider for sign-ins in a browser.

    :param secret: returns the client's secret; an empty text for a public client.
    :param now: returns the time of day.
    :param make_text: returns a new random text of 256 bits.
    """

    name = "oidc"

    _log = Logger()

    def __init__(
        self,
        settings: OpenIdConnect,
        description: ProviderDescription,
        requests: ProviderRequests,
        authenticator: OidcAuthenticator,
        secret: Callable[[], str],
        clock: IReactorTime,
        now: Callable[[], float],
        make_text: Callable[[], str] = lambda: secrets.token_urlsafe(32),
    ) -> None:
        self.title = settings.shown_title
        self._settings = settings
        self._description = description
        self._requests = requests
        self._authenticator = authenticator
        self._secret = secret
        self._clock = clock
        self._now = now
        self._make_text = make_text
        self._running = dict.fromkeys(_STEPS, 0)
        self._counts = {(step, one): 0 for step in _STEPS for one in _RESULTS}
        self._failing = False
        self._budget = LogBudget()

    def collect(self) -> list[Metric]:
        """See `prometheus_client.registry.Collector`."""
        found = CounterMetricFamily(
            "kas_oidc_sign_in_steps",
            "Steps of sign-ins to kas' pages, by step and result.",
            labels=["step", "result"],
        )
        for labels, count in self._counts.items():
            found.add_metric(labels, count)
        return [found]

    async def begin(self, redirect_uri: str) -> SignInBegun:
        """See `ISignInProvider.begin`."""
        return await self._step("begin", self._begin(redirect_uri))

    async def finish(
        self,
        begun_secret: bytes,
        state: str,
        answer: Mapping[str, str],
        redirect_uri: str,
    ) -> SignedIn:
        """See `ISignInProvider.finish`."""
        work = self._finish(begun_secret, state, answer, redirect_uri)
        return await self._step("finish", work)

    async def renew(self, signed_in: SignedIn) -> SignedIn:
        """See `ISignInProvider.renew`."""
        return await self._step("renew", self._renew(signed_in))

    async def end_url(self, signed_in: SignedIn, back: str) -> str:
        """See `ISignInProvider.end_url`."""
        return await self._step("end", self._end_url(signed_in, back))

    async def logged_out(self, logout_token: str) -> LoggedOut:
        """See `ISignInProvider.logged_out`."""
        return await self._step("logout", self._logged_out(logout_token))

    async def _begin(self, redirect_uri: str) -> SignInBegun:
        if not is_private(redirect_uri) or len(redirect_uri) > MAX_URI:
            raise SignInFailed(
                "users can sign in only at an https:// address of this page, of at "
                f"most {MAX_URI} characters"
            )
        flow = await self._flow()
        begun = flow.begin(redirect_uri, self._make_text)
        kept = _Begun(
            flow.issuer, begun.state, begun.nonce, begun.verifier, self._now()
        )
        secret = json.dumps(attrs.asdict(kept)).encode()
        return SignInBegun(url=begun.url, state=begun.state, secret=secret)

    async def _finish(
        self,
        begun_secret: bytes,
        state: str,
        answer: Mapping[str, str],
        redirect_uri: str,
    ) -> SignedIn:
        begun = _read_begun(begun_secret)
        if not is_same(state, begun.state) or not is_same(
            answer.get("state"), begun.state
        ):
            raise SignInFailed("this response does not belong to the current sign-in")
        if self._now() - begun.begun_at > SIGN_IN_TIMEOUT:
            raise SignInFailed(
                f"the sign-in took longer than {SIGN_IN_TIMEOUT:g} s; sign in again"
            )
        # The configuration may have changed in the meantime: send the code and the
        # verifier to no other provider.
        if begun.issuer != self._settings.issuer:
            raise SignInFailed("the identity provider has changed; sign in again")
        flow = await self._flow()
        code = flow.code(answer)
        if len(code) > MAX_CODE:
            raise SignInFailed(
                f"the identity provider's code has more than {MAX_CODE} characters"
            )
        form = flow.code_form(code, redirect_uri, begun.verifier)
        status, found = await self._post(flow, form)
        hidden = (code, begun.verifier, *self._hidden())
        issued = flow.issued(status, found, *hidden)
        return await self._accepted(flow, issued, begun.nonce, None)

    async def _renew(self, signed_in: SignedIn) -> SignedIn:
        refresh_token = signed_in.refresh_token
        if not refresh_token:
            raise SignInFailed(
                "the identity provider issued no refresh token; sign in again"
            )
        # Send the refresh token to no other provider.
        if unverified_claims(signed_in.token).get("iss") != self._settings.issuer:
            raise SignInFailed("the identity provider has changed; sign in again")
        try:
            flow = await self._flow()
            status, found = await self._post(flow, flow.renewal_form(refresh_token))
            issued = flow.renewed(status, found, refresh_token, *self._hidden())
        except SignInAgain:
            raise
        except SignInFailed as error:
            # The user cannot mend this, and the provider did not end the session: the
            # credential stays valid until it expires.
            raise Unreachable(str(error)) from None
        return await self._accepted(flow, issued, None, signed_in)

    async def _end_url(self, signed_in: SignedIn, back: str) -> str:
        if unverified_claims(signed_in.token).get("iss") != self._settings.issuer:
            return ""
        return (await self._flow()).end_url(signed_in.token, back)

    async def _logged_out(self, logout_token: str) -> LoggedOut:
        found = await self._authenticator.verifier.logout_token(logout_token)
        claims = found.claims
        return LoggedOut(
            subject=claims.get("sub") or "",
            session=claims.get("sid") or "",
            issued_at=float(claims["iat"]) + self._settings.clock_skew,
        )

    async def _flow(self) -> CodeFlow:
        settings = self._settings
        description = await self._description.get()
        return CodeFlow(
            settings.issuer, settings.client_id, settings.scopes, description
        )

    def _hidden(self) -> tuple[str, ...]:
        """Return the forms of the client's secret that kas sends."""
        secret = self._secret()
        return secret, quote_plus(secret), _pair(self._settings.client_id, secret)

    async def _post(
        self, flow: CodeFlow, form: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:
        """Send a form to the token endpoint, and authenticate a confidential client."""
        url, secret = flow.endpoint("token_endpoint"), self._secret()
        if not secret:
            return await self._requests.fetch(url, form)
        offered = flow.description.get("token_endpoint_auth_methods_supported")
        methods = offered if isinstance(offered, list) else [_BASIC]
        if _BASIC in methods:
            # A client authenticates in one place only (RFC 6749, 2.3).
            form = {name: text for name, text in form.items() if name != "client_id"}
            authorization = f"Basic {_pair(flow.client_id, secret)}"
            return await self._requests.fetch(url, form, authorization)
        if _POST in methods:
            return await self._requests.fetch(url, {**form, "client_secret": secret})
        raise SignInFailed(
            f"the identity provider supports neither {_BASIC} nor {_POST}; register "
            "kas as a public client, and remove oidc.client_secret_file"
        )

    async def _accepted(
        self,
        flow: CodeFlow,
        issued: IssuedTokens,
        nonce: str | None,
        old: SignedIn | None,
    ) -> SignedIn:
        refresh_token = issued.refresh_token or ""
        if len(refresh_token) > MAX_TOKEN:
            raise SignInFailed(
                "the identity provider returned a refresh token of more than "
                f"{MAX_TOKEN} characters"
            )
        claims = await self._authenticator.verify(issued.id_token)
        flow.check_claims(claims, nonce)
        if old is not None:
            flow.check_subject(claims, old.subject)
        subject, session = claims.get("sub"), claims.get("sid")
        if not is_id(subject):
            raise unusable(f"its claim 'sub' is not a text of 1 to {MAX_ID} characters")
        if not is_id(session):
            session = "" if old is None else old.session
        return SignedIn(
            kind="oidc",
            token=issued.id_token,
            refresh_token=refresh_token,
            expires_at=float(claims["exp"]),
            name=name_of(claims),
            subject=str(subject),
            session=str(session),
        )

    async def _step(self, step: str, work: Coroutine[Any, Any, _T]) -> _T:
        """Do one step within the limits, and convert its exceptions."""
        if self._running[step] >= MAX_STEPS:
            work.close()
            self._counts[step, "unavailable"] += 1
            raise CallError(
                Status.RESOURCE_EXHAUSTED,
                "too many users sign in at the same time; try again",
            )
        self._running[step] += 1
        try:
            deferred = Deferred.fromCoroutine(work)
            found = await within(deferred, STEP_TIMEOUT, self._clock)
        except TimeoutError:
            reason = f"no complete response within {STEP_TIMEOUT:g} s"
            raise self._unavailable(step, reason) from None
        except Unreachable as error:
            raise self._unavailable(step, str(error)) from None
        except SignInFailed as error:
            self._log_refusal(step, str(error))
            raise CallError(Status.UNAUTHENTICATED, str(error)) from None
        except CallError as error:
            if error.status is Status.UNAUTHENTICATED:
                self._log_refusal(step, error.message)
            else:
                self._counts[step, "unavailable"] += 1
            raise
        finally:
            self._running[step] -= 1
        self._counts[step, "ok"] += 1
        if self._failing and step in ("finish", "renew"):
            self._failing = False
            self._log.info("sign-ins with the identity provider succeed again")
        return found

    def _log_refusal(self, step: str, reason: str) -> None:
        self._counts[step, "refused"] += 1
        more = self._budget.spend(self._clock.seconds())
        if more is not None:
            self._log.info(
                "refused a user's sign-in (step {step}): {reason}{more}",
                step=step,
                reason=clean(reason, 2 * MAX_REASON),
                more=more,
            )

    def _unavailable(self, step: str, reason: str) -> CallError:
        """Count and log a failure of the provider, and return the user's error."""
        self._counts[step, "unavailable"] += 1
        if not self._failing:
            self._failing = True
            self._log.error(
                "users cannot sign in with the identity provider: {reason}",
                reason=clean(reason, 2 * MAX_REASON),
            )
        # The reason may contain addresses of proxies; only the log has it.
        return CallError(
            Status.UNAVAILABLE,
            f"the identity provider {self.title} is unavailable; try again",
        )


def _read_begun(data: bytes) -> _Begun:
    try:
        begun = _Begun(**json.loads(data))
    except (ValueError, TypeError, RecursionError):
        raise SignInFailed("this sign-in is not known; sign in again") from None
    return begun


def _pair(client_id: str, secret: str) -> str:
    """Return the credentials for client_secret_basic (RFC 6749, 2.3.1)."""
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return base64.b64encode(pair.encode()).decode("ascii")
