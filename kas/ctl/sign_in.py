"""
Sign-in with an identity provider, and renewal of the tokens.

A sign-in uses an authorization code with PKCE on a loopback port (RFC 8252, RFC 7636),
or a device code (RFC 8628).  kasctl does not verify the signature of an ID token,
because the token comes from the provider itself over TLS (OpenID Connect Core,
3.1.3.7), and kas verifies the signature.
"""

from __future__ import annotations

import json
import math
import queue
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qsl, urlencode, urlsplit
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    ProxyHandler,
    Request,
    build_opener,
    getproxies,
)

from kas.ctl.kept_tokens import Tokens
from kas.identity.jwt import read_claims
from kas.oidc.code_flow import (
    MAX_BODY,
    MAX_REASON,
    CodeFlow,
    IssuedTokens,
    SignInAgain,
    SignInFailed,
    Unreachable,
    checked_description,
    description_url,
    is_same,
    name_of,
    read_object,
    unusable,
    unverified_claims,
    unverified_payload,
)
from tunnel.errors import CallError
from tunnel.toolkit.texts import clean
from tunnel.toolkit.urls import is_private
from tunnel.transport.tls import ALPN_HTTP, client_context

__all__ = ["Provider", "SignInFailed", "Unreachable"]

#: Maximum seconds for one response from the provider, including the lookup of its name.
TIMEOUT = 15.0

#: Maximum seconds of a sign-in, during which the lock is held.
SIGN_IN_TIMEOUT = 600.0

#: Tolerated difference between the clocks of the provider and of this machine, in
#: seconds.
CLOCK_SKEW = 60.0

#: Seconds between two polls of a device code if the provider does not name an interval
#: (RFC 8628, 3.2), and the increment after slow_down (3.5).
POLL_INTERVAL = 5.0
SLOW_DOWN = 5.0

#: Maximum number of connections to the redirect listener: a browser opens six.
MAX_CONNECTIONS = 16

#: Maximum seconds without data on a connection of the browser.
_BROWSER_TIMEOUT = 10.0

#: Path of the URL for the provider's redirect of the browser.
_CALLBACK = "/callback"

_PAGE = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>kasctl login</title></head>
<body><p>{}</p></body></html>
"""

_T = TypeVar("_T")

#: Function that requests a URL, or posts form fields; it returns the status and the
#: JSON object.
Fetch = Callable[[str, "Mapping[str, str] | None"], tuple[int, dict[str, Any]]]


class Provider:
    """
    Client of an identity provider, which signs users in and renews tokens.

    :param scopes: scopes in addition to ``openid``, and to ``offline_access`` if the
        provider supports it.
    :param ca_file: file of CAs that may sign the provider's certificate, in addition to
        the system's CAs.
    :param show: shows a line to the user.
    :param now: returns the time of day.
    :param seconds: returns the time of a monotonic clock.
    :param sleep: waits for some seconds.
    """

    def __init__(
        self,
        issuer: str,
        client_id: str,
        scopes: tuple[str, ...],
        ca_file: Path | None,
        show: Callable[[str], object],
        *,
        now: Callable[[], float] = time.time,
        seconds: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if not is_private(issuer):
            raise SignInFailed(
                f"the issuer must be an https:// URL, not {clean(issuer, MAX_REASON)}"
            )
        self._issuer = issuer
        self._client_id = client_id
        self._scopes = scopes
        self._fetch = _fetcher(ca_file)
        self._show = show
        self._now = now
        self._seconds = seconds
        self._sleep = sleep
        self._known: CodeFlow | None = None

    def by_browser(
        self, port: int, open_browser: Callable[[str], object] | None
    ) -> Tokens:
        """
        Sign a user in with a browser on this machine.

        :param port: port for the browser's redirect; 0 for any free port.
        :param open_browser: opens a URL in a browser; None if the user has to open it.
        :raises SignInFailed: if the provider refuses, or the user does not sign in
            within `SIGN_IN_TIMEOUT`.
        """
        flow = self._flow()
        with _listening(port) as listener:
            redirect = f"http://127.0.0.1:{listener.server_port}{_CALLBACK}"
            begun = flow.begin(redirect)
            listener.state, url = begun.state, begun.url
            self._show(f"Sign in with a browser on this machine:\n{url}")
            if open_browser is not None:
                # Open a local URL that redirects: other users of this machine can read
                # the arguments of a program, and could use the provider's URL to sign
                # this user in as themselves.
                listener.urls.put(url)
                open_browser(f"http://127.0.0.1:{listener.server_port}{listener.start}")
            try:
                answer = listener.answers.get(timeout=SIGN_IN_TIMEOUT)
            except queue.Empty:
                raise SignInFailed(
                    f"the user did not sign in within {SIGN_IN_TIMEOUT:g} s"
                ) from None
        code = flow.code(answer)
        form = flow.code_form(code, redirect, begun.verifier)
        status, found = self._token(form)
        issued = flow.issued(status, found, code, begun.verifier)
        return self._accepted(issued, begun.nonce)

    def by_device(self) -> Tokens:
        """
        Sign a user in with a browser on another machine, with a code.

        :raises SignInFailed: if the provider refuses, or the code expires.
        """
        flow = self._flow()
        where = flow.endpoint(
            "device_authorization_endpoint", "; sign in without --device"
        )
        status, answer = self._fetch(where, flow.parameters())
        if status != 200:
            raise flow.refusal(status, answer)
        code, shown = answer.get("device_code"), answer.get("user_code")
        url = answer.get("verification_uri")
        if not all(isinstance(one, str) and one for one in (code, shown, url)):
            raise SignInFailed(
                "the identity provider did not return a code for this device"
            )
        assert isinstance(code, str)
        if not is_private(str(url)):
            raise SignInFailed(
                "the identity provider did not return an https URL for its code"
            )
        whole = answer.get("verification_uri_complete")
        self._show(
            f"Open {clean(str(url), 2000)} on any machine, and enter the code "
            f"{clean(str(shown), 100)}"
        )
        if isinstance(whole, str) and is_private(whole):
            self._show(f"or open {clean(whole, 2000)}")
        lifetime = _seconds(answer.get("expires_in"), SIGN_IN_TIMEOUT)
        interval = _seconds(answer.get("interval"), POLL_INTERVAL)
        ends = self._seconds() + lifetime
        return self._poll(code, interval, ends)

    def _poll(self, code: str, interval: float, ends: float) -> Tokens:
        fields = {
            "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
            "device_code": code,
            "client_id": self._client_id,
        }
        while self._seconds() + interval < ends:
            self._sleep(interval)
            try:
                status, answer = self._token(fields)
            except Unreachable:
                interval *= 2
                continue
            error = answer.get("error")
            if status == 200:
                return self._accepted(self._flow().issued(status, answer))
            if error == "slow_down":
                interval += SLOW_DOWN
            elif error != "authorization_pending":
                raise self._flow().refusal(status, answer, code)
        raise SignInFailed("the user did not enter the code before it expired")

    def renew(self, kept: Tokens) -> Tokens | None:
        """
        Renew the cached tokens, and return the new tokens; None if the user has to sign
        in again.

        :raises SignInFailed: if the provider refuses for another reason; `Unreachable`
            if the old tokens may still be valid.
        """
        if kept.refresh_token is None:
            return None
        flow = self._flow()
        status, answer = self._token(flow.renewal_form(kept.refresh_token))
        try:
            issued = flow.renewed(status, answer, kept.refresh_token)
            return self._accepted(issued, old=kept)
        except SignInAgain:
            return None

    def _accepted(
        self,
        issued: IssuedTokens,
        nonce: str | None = None,
        old: Tokens | None = None,
    ) -> Tokens:
        try:
            claims = read_claims(
                unverified_payload(issued.id_token),
                self._client_id,
                self._issuer,
                now=self._now(),
                leeway=CLOCK_SKEW,
                longest=math.inf,
            )
        except CallError as error:
            raise unusable(error.message) from None
        self._flow().check_claims(claims, nonce)
        if old is not None:
            subject = unverified_claims(old.id_token).get("sub")
            self._flow().check_subject(claims, subject)
        return Tokens(issued.id_token, float(claims["exp"]), issued.refresh_token)

    def _token(self, fields: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        return self._fetch(self._flow().endpoint("token_endpoint"), fields)

    def _flow(self) -> CodeFlow:
        if self._known is None:
            url = description_url(self._issuer)
            found = checked_description(self._issuer, *self._fetch(url, None))
            self._known = CodeFlow(self._issuer, self._client_id, self._scopes, found)
        return self._known


def person_of(tokens: Tokens) -> str:
    """Return the name of the tokens' user, to show to that user."""
    return name_of(json.loads(unverified_payload(tokens.id_token)))


def _seconds(found: object, default: float) -> float:
    """Return a number of seconds from the provider, at least one."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return default
    # Compare before converting: an int may be too large for a float.
    return default if found != found else float(max(1, min(found, SIGN_IN_TIMEOUT)))


# Functions that send requests to the provider.


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """
        Return None, so that no redirect is followed: a secret would be sent to an
        unverified URL.
        """


def _fetcher(ca_file: Path | None) -> Fetch:
    context = client_context(
        ca_file=None if ca_file is None else str(ca_file),
        alpn=(ALPN_HTTP,),
        minimum_version=ssl.TLSVersion.TLSv1_2,
    )
    # Use a proxy only for https: plain http is allowed only for this machine, and never
    # through a proxy.
    proxies = {name: url for name, url in getproxies().items() if name == "https"}
    opener = build_opener(
        HTTPSHandler(context=context), ProxyHandler(proxies), _NoRedirect()
    )

    def ask(url: str, form: Mapping[str, str] | None) -> tuple[int, bytes]:
        data = None if form is None else urlencode(form).encode()
        headers = {"Accept": "application/json", "User-Agent": "kasctl"}
        request = Request(url, data, headers)  # noqa: S310
        try:
            with opener.open(request, timeout=TIMEOUT) as answer:
                return answer.status, answer.read(MAX_BODY + 1)
        except HTTPError as error:
            with error:
                return error.code, error.read(MAX_BODY + 1)

    def fetch(url: str, form: Mapping[str, str] | None) -> tuple[int, dict[str, Any]]:
        try:
            status, body = _within(TIMEOUT, lambda: ask(url, form))
        except (OSError, HTTPException, ValueError) as error:
            raise Unreachable(f"{url}: {_reason(error)}") from None
        return status, read_object(url, status, body)

    return fetch


def _within(limit: float, ask: Callable[[], _T]) -> _T:
    """
    Return the result of *ask*, or raise its exception; give up after *limit* seconds.

    A socket timeout is not enough, because it applies to each read, and not to name
    lookups.
    """
    results: queue.SimpleQueue[tuple[list[_T], Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put(([ask()], None))
        except Exception as error:
            results.put(([], error))

    threading.Thread(target=run, daemon=True).start()
    try:
        found, error = results.get(timeout=limit)
    except queue.Empty:
        raise TimeoutError(f"no complete response within {limit:g} s") from None
    if error is not None:
        raise error
    return found[0]


def _reason(error: Exception) -> str:
    if isinstance(error, URLError) and isinstance(error.reason, Exception):
        error = error.reason
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"{error.verify_message}; --ca-file adds a CA to the system's"
    return clean(str(text), MAX_REASON)


# Listener for the browser's redirect.


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int) -> None:
        self.answers: queue.Queue[dict[str, str]] = queue.Queue()
        #: State of the sign-in, which begins when the port is known; until then, a text
        #: that no browser knows.
        self.state = secrets.token_urlsafe(32)
        #: URL of the provider; *start* redirects the browser there, once.
        self.urls: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.start = f"/start/{secrets.token_urlsafe(32)}"
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing, because the traceback could contain the code."""


class _Page(NamedTuple):
    status: int
    text: str
    answer: dict[str, str] | None = None
    location: str = ""


class _Handler(BaseHTTPRequestHandler):
    timeout = _BROWSER_TIMEOUT
    server: _Listener

    def do_GET(self) -> None:
        page = self._page()
        body = _PAGE.format(page.text).encode()
        self.send_response(page.status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        if page.location:
            self.send_header("Location", page.location)
        self.send_header("Content-Security-Policy", "default-src 'none'")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
        if page.answer is not None:
            self.server.answers.put(page.answer)

    def _page(self) -> _Page:
        parts = urlsplit(self.path)
        if is_same(parts.path, self.server.start):
            with suppress(queue.Empty):
                url = self.server.urls.get_nowait()
                return _Page(302, "Continue to the identity provider.", location=url)
            return _Page(
                410,
                "The sign-in link was already used.  If that was not you, end kasctl "
                "and start again with --no-browser.",
            )
        if parts.path != _CALLBACK:
            return _Page(404, "This page does not exist.")
        try:
            answer = dict(parse_qsl(parts.query, max_num_fields=20))
        except ValueError:
            answer = {}
        # Check the state: any page in the browser could redirect to this listener, but
        # only the provider's page knows the state.
        if not is_same(answer.get("state"), self.server.state):
            return _Page(
                400,
                "This response does not belong to kasctl's current sign-in.",
            )
        if "error" in answer:
            return _Page(200, "The sign-in failed; the terminal says why.", answer)
        return _Page(
            200, "You may close this window and continue in the terminal.", answer
        )

    def log_message(self, format: str, *args: object) -> None:
        """Do nothing, because the log line would contain the code."""


@contextmanager
def _listening(port: int) -> Iterator[_Listener]:
    try:
        listener = _Listener(port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SignInFailed(
            f"cannot use port {port} of 127.0.0.1 ({reason}); --port selects "
            "another, and --device needs none"
        ) from None
    serving = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
    serving.start()
    try:
        yield listener
    finally:
        listener.shutdown()
        listener.server_close()
        serving.join()
