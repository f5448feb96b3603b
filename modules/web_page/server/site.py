"""The resources below ``/ui``."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable
from typing import Any, ClassVar, Final
from urllib.parse import quote, urlencode, urlsplit

from klein import Klein
from klein.resource import KleinResource
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from modules.web_page.server.agents import ReachedAgents
from modules.web_page.server.assets import Assets
from modules.web_page.server.authenticator import SessionAuthenticator, secret_of
from modules.web_page.server.browser import Browser
from modules.web_page.server.documents import (
    THEMES,
    Frame,
    ProviderLink,
    error_document,
    page_document,
    sign_in_document,
)
from modules.web_page.server.headers import protect
from modules.web_page.server.secret import SessionSecret
from modules.web_page.server.sessions import LONGEST_SECONDS, UserSession
from modules.web_page.server.sign_in import (
    BEGUN_SECONDS,
    HOME,
    BegunSignIn,
    PageSignIn,
    is_own_path,
)
from tunnel.api import (
    CSRF_FIELD,
    PAGE_COOKIE,
    IServerModuleApi,
    PageCaller,
    is_page_csrf,
    page_session,
)
from tunnel.errors import CallError, Status

__all__ = ["PREFIX", "PageRoutes"]

#: Path of the page.
PREFIX: Final = "/ui"

#: Cookie of a sign-in that has begun, and of the selected theme.
_BEGUN_COOKIE: Final = "__Host-kas-sign-in"
_THEME_COOKIE: Final = "kas-theme"

#: HTTP status of each status of a call; 500 for others.
_CODES: Final = {
    Status.INVALID_ARGUMENT: 400,
    Status.UNAUTHENTICATED: 401,
    Status.PERMISSION_DENIED: 403,
    Status.FAILED_PRECONDITION: 403,
    Status.NOT_FOUND: 404,
    Status.RESOURCE_EXHAUSTED: 429,
    Status.UNAVAILABLE: 503,
    Status.DEADLINE_EXCEEDED: 504,
}


#: Fields that a browser sends with such a request, and a provider does not.
_OF_BROWSERS: Final = ("origin", "sec-fetch-site")


class PageResource(KleinResource):
    """Resource that adds the slash of the page's own path."""

    def render(self, request: Any) -> Any:
        if request.postpath:
            return super().render(request)
        protect(request)
        _, mark, query = request.uri.partition(b"?")
        return _redirect(request, f"{PREFIX}/" + (mark + query).decode("latin-1"))


class PageRoutes:
    """
    The page, sign-in, and what only the page asks for.

    :param version: version of kas.
    :param now: returns the time of day.
    """

    app: ClassVar[Klein] = Klein()
    _log = Logger()

    def __init__(
        self,
        api: IServerModuleApi,
        assets: Assets,
        sign_in: PageSignIn,
        authenticator: SessionAuthenticator,
        agents: ReachedAgents,
        version: str,
        now: Callable[[], float],
    ) -> None:
        self._users = api.users
        self._assets = assets
        self._sign_in = sign_in
        self._authenticator = authenticator
        self._agents = agents
        self._version = version
        self._now = now

    def resource(self) -> PageResource:
        """Return the resource for `PREFIX`."""
        return PageResource(self.app)

    @app.route("/static/", branch=True)
    def static(self, request: Any) -> Assets:
        """Return the built files."""
        return self._assets

    @app.route("/api/session", methods=["GET"])
    def session(self, request: Any) -> Deferred[bytes]:
        """Return the session; the page asks while its user works."""
        return self._run(request, self._session, _say_json)

    @app.route("/api/agents", methods=["GET"])
    def agents(self, request: Any) -> Deferred[bytes]:
        """Return the agents that the user may reach."""
        return self._run(request, self._list_agents, _say_json)

    @app.route("/sign-in", methods=["GET"])
    def sign_in(self, request: Any) -> bytes:
        """Return the form."""
        return self._form(request, _parameter(request, "next"))

    @app.route("/sign-in", methods=["POST"])
    def sign_in_by_token(self, request: Any) -> Deferred[bytes]:
        """Create a session for a token."""
        return self._run(request, self._by_token, self._say_in_form)

    @app.route("/sign-in/<provider>", methods=["GET"])
    def begin(self, request: Any, provider: str) -> Deferred[bytes]:
        """Redirect the browser to a provider."""
        return self._run(
            request, lambda one: self._begin(one, provider), self._say_in_form
        )

    @app.route("/sign-in/<provider>/callback", methods=["GET"])
    def finish(self, request: Any, provider: str) -> Deferred[bytes]:
        """Create a session after the provider's redirect."""
        return self._run(
            request, lambda one: self._finish(one, provider), self._say_in_form
        )

    @app.route("/sign-in/<provider>/signed-out", methods=["POST"])
    def signed_out(self, request: Any, provider: str) -> Deferred[bytes]:
        """End sessions, because the provider says that a user has signed out."""
        return self._run(
            request, lambda one: self._signed_out(one, provider), _say_json
        )

    @app.route("/sign-out", methods=["POST"])
    def sign_out(self, request: Any) -> Deferred[bytes]:
        """End the session."""
        return self._run(request, self._sign_out, _say_json)

    @app.route("/", branch=True, methods=["GET"])
    def page(self, request: Any) -> Deferred[bytes]:
        """Return the document of all pages."""
        return self._run(request, self._page, self._say_page)

    def _run(
        self, request: Any, work: Any, say: Callable[[Any, CallError], bytes]
    ) -> Deferred[bytes]:
        """Return the body of a response, also for an error."""
        working = Deferred.fromCoroutine(self._ran(request, work, say))
        request.notifyFinish().addErrback(lambda failure: working.cancel())
        return working

    async def _ran(
        self, request: Any, work: Any, say: Callable[[Any, CallError], bytes]
    ) -> bytes:
        protect(request)
        try:
            body: bytes = await work(request)
        except CallError as error:
            request.setResponseCode(_CODES.get(error.status, 500))
            return say(request, error)
        except CancelledError:
            return b""
        return body

    async def _page(self, request: Any) -> bytes:
        cookie = _cookie(request)
        if not cookie:
            return self._to_sign_in(request)
        try:
            secret, session = await self._authenticator.opened(cookie)
        except CallError as error:
            if error.status is not Status.UNAUTHENTICATED:
                raise
            return self._to_sign_in(request)
        request.setHeader(b"content-type", b"text/html; charset=utf-8")
        return page_document(self._frame(request), self._boot(secret, session))

    def _boot(self, secret: SessionSecret, session: UserSession) -> dict[str, Any]:
        return {
            "version": self._version,
            "build": self._assets.build,
            "now": self._now(),
            "user": {"name": session.name, "method": session.method},
            "csrf": secret.csrf,
            "endsAt": session.ends_at,
            "parts": [],
        }

    def _to_sign_in(self, request: Any) -> bytes:
        path = request.uri.decode("latin-1")
        after = path if is_own_path(path) else HOME
        # A query in the sign-in's own URL is not kept in the browser's history of
        # other hosts, because kas sends no referrer.
        return _redirect(request, f"{PREFIX}/sign-in?{urlencode({'next': after})}")

    async def _session(self, request: Any) -> bytes:
        _, session = await self._opened(request)
        return _json(
            request,
            {
                "user": {"name": session.name, "method": session.method},
                "endsAt": session.ends_at,
                "now": self._now(),
                "build": self._assets.build,
            },
        )

    async def _list_agents(self, request: Any) -> bytes:
        caller = PageCaller.of(self._users, request)
        return _json(request, await self._agents.answer(caller.reach))

    async def _opened(self, request: Any) -> tuple[SessionSecret, UserSession]:
        PageCaller.of(self._users, request)
        return await self._authenticator.opened(_cookie(request))

    def _form(self, request: Any, after: str, error: str = "") -> bytes:
        protect(request)
        request.setHeader(b"content-type", b"text/html; charset=utf-8")
        after = after if is_own_path(after) else HOME
        query = urlencode({"next": after})
        providers = [
            ProviderLink(f"{PREFIX}/sign-in/{quote(one.name)}?{query}", one.title)
            for one in self._sign_in.providers
        ]
        return sign_in_document(
            self._frame(request), f"{PREFIX}/sign-in", after, providers, error
        )

    async def _by_token(self, request: Any) -> bytes:
        # Another page must not sign the browser in as somebody else.
        origin = request.getHeader("origin") or "none"
        if origin != request.own_origin:
            raise CallError(
                Status.PERMISSION_DENIED,
                f"the browser names {origin[:200]} as the origin of this form, and kas "
                f"is at {request.own_origin}; if a proxy is in front of kas, name it "
                "in web.trusted_proxies, and let it send X-Forwarded-Proto and "
                "X-Forwarded-Host with the port",
            )
        _check_private(request)
        secret = await self._sign_in.by_token(
            _parameter(request, "token"), _browser(request)
        )
        return self._enter(request, secret, _parameter(request, "next"))

    async def _begin(self, request: Any, provider: str) -> bytes:
        _check_private(request)
        after = _parameter(request, "next")
        url, begun = await self._sign_in.begin(
            provider,
            _callback(request, provider),
            after if is_own_path(after) else HOME,
        )
        _set_cookie(request, _BEGUN_COOKIE, begun.to_text(), BEGUN_SECONDS)
        return _redirect(request, url)

    async def _finish(self, request: Any, provider: str) -> bytes:
        text = request.getCookie(_BEGUN_COOKIE.encode()) or b""
        _set_cookie(request, _BEGUN_COOKIE, "", 0)
        begun = BegunSignIn.from_text(text.decode("latin-1"))
        if begun.provider != provider:
            raise CallError(Status.UNAUTHENTICATED, "another sign-in has begun since")
        answer = {
            name.decode("latin-1"): _parameter(request, name.decode("latin-1"))
            for name in request.args
        }
        secret = await self._sign_in.finish(
            begun, answer, _callback(request, provider), _browser(request)
        )
        return self._enter(request, secret, begun.after)

    def _enter(self, request: Any, secret: SessionSecret, after: str) -> bytes:
        _set_cookie(request, PAGE_COOKIE, secret.text, round(LONGEST_SECONDS))
        return _redirect(request, after if is_own_path(after) else HOME)

    async def _signed_out(self, request: Any, provider: str) -> bytes:
        if any(request.getHeader(name) is not None for name in _OF_BROWSERS):
            # A page could send this with the browser of any visitor.
            raise CallError(
                Status.PERMISSION_DENIED,
                "a provider sends this message itself, not through a browser",
            )
        ended = await self._sign_in.logged_out(
            provider, _parameter(request, "logout_token"), _browser(request)
        )
        self._log.info(
            "{provider} ended {count} sessions", provider=provider, count=ended
        )
        return b""

    async def _sign_out(self, request: Any) -> bytes:
        PageCaller.of(self._users, request)
        secret = secret_of(_cookie(request))
        if not is_page_csrf(secret.text, request.getHeader(CSRF_FIELD) or ""):
            raise CallError(
                Status.PERMISSION_DENIED, f"the field {CSRF_FIELD} is missing or wrong"
            )
        url = await self._sign_in.end(secret, f"{request.own_origin}{PREFIX}/sign-in")
        _set_cookie(request, PAGE_COOKIE, "", 0)
        return _json(request, {"next": url or f"{PREFIX}/sign-in"})

    def _frame(self, request: Any) -> Frame:
        theme = (request.getCookie(_THEME_COOKIE.encode()) or b"").decode("latin-1")
        return Frame(
            theme if theme in THEMES else THEMES[0],
            f"{PREFIX}/{self._assets.script}",
            f"{PREFIX}/{self._assets.style}",
        )

    def _say_in_form(self, request: Any, error: CallError) -> bytes:
        return self._form(request, _parameter(request, "next"), error.message)

    def _say_page(self, request: Any, error: CallError) -> bytes:
        request.setHeader(b"content-type", b"text/html; charset=utf-8")
        return error_document(
            self._frame(request),
            "kas cannot show this page",
            error.message,
            ProviderLink(HOME, "Try again"),
        )


def _say_json(request: Any, error: CallError) -> bytes:
    if error.status is Status.UNAUTHENTICATED:
        _set_cookie(request, PAGE_COOKIE, "", 0)
    return _json(request, {"message": error.message})


def _json(request: Any, content: object) -> bytes:
    request.setHeader(b"content-type", b"application/json")
    return json.dumps(content).encode() + b"\n"


def _parameter(request: Any, name: str) -> str:
    """Return a parameter of the query or the form; empty if it is missing."""
    values = request.args.get(name.encode(), [b""])
    return str(values[0].decode("utf-8", "replace"))


def _cookie(request: Any) -> str:
    """Return the secret of the session; empty without one."""
    return page_session(request.requestHeaders.getRawHeaders("cookie", []))


def _browser(request: Any) -> Browser:
    program = request.getHeader("user-agent") or ""
    return Browser(request.getClientAddress(), program[:256])


def _callback(request: Any, provider: str) -> str:
    return f"{request.own_origin}{PREFIX}/sign-in/{quote(provider)}/callback"


def _check_private(request: Any) -> None:
    """
    Check that the browser will keep the cookie of a session.

    :raises CallError: FAILED_PRECONDITION if it would drop the cookie, and so ask for a
        sign-in again and again.
    """
    parts = urlsplit(request.own_origin)
    if parts.scheme != "https" and not _is_this_machine(parts.hostname or ""):
        raise CallError(
            Status.FAILED_PRECONDITION,
            "browsers keep a session only over https; configure TLS in web.listen, or, "
            "if a proxy with TLS is in front of kas, name it in web.trusted_proxies",
        )


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _set_cookie(request: Any, name: str, value: str, seconds: int) -> None:
    """Set a cookie that only kas gets, and no script reads."""
    request.responseHeaders.addRawHeader(
        b"set-cookie",
        f"{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={seconds}",
    )


def _redirect(request: Any, url: str) -> bytes:
    request.setResponseCode(303)
    request.setHeader(b"location", url.encode())
    return b""
