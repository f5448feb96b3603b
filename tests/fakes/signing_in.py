"""An identity provider with which people sign in at once, and their browser."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit
from urllib.request import urlopen

from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from tests.fakes.identity_provider import CLIENT_ID, FakeIdentityProvider


class SigningIn:
    """
    The provider: codes, device codes and refresh tokens, each good once.

    :ivar asked: the query of the last page of it that a browser opened.
    :ivar posted: forms, as they came.
    :ivar claims: of its ID tokens, besides those that they have.
    :ivar returned: what goes back to the browser instead, besides the state.
    :ivar answers: to the token endpoint, before its own.
    :ivar pages: by path, what is there instead: status, headers and body.
    :ivar secret: of the client, if it is a confidential one.
    :ivar authorized: headers with this name of forms, as they came.
    """

    def __init__(self, issuer: str, now: Callable[[], float] = time.time) -> None:
        self.tokens = FakeIdentityProvider(issuer, now)
        self.secret = ""
        self.authorized: list[str] = []
        self.issuer = issuer
        self.asked: dict[str, str] = {}
        self.posted: list[dict[str, str]] = []
        self.claims: dict[str, Any] = {}
        self.returned: dict[str, str] | None = None
        self.answers: list[tuple[int, dict[str, Any]]] = []
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.device: dict[str, Any] = {
            "device_code": "device-secret",
            "user_code": "ABCD-EFGH",
            "verification_uri": f"{issuer}/device",
            "expires_in": 300,
            "interval": 2,
        }
        self.rotates = True
        self._codes: dict[str, tuple[str, str, str]] = {}
        self._refresh: set[str] = set()
        self._made = 0
        self.tokens.description = {
            "authorization_endpoint": f"{issuer}/authorize?tenant=one",
            "token_endpoint": f"{issuer}/token",
            "device_authorization_endpoint": f"{issuer}/code",
            "scopes_supported": ["openid", "offline_access", "email"],
        }

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser goes next."""
        self.asked = query
        assert query["code_challenge_method"] == "S256"
        self._made += 1
        code = f"code-{self._made}"
        redirect = query["redirect_uri"]
        self._codes[code] = query["code_challenge"], redirect, query["nonce"]
        found = {"code": code} if self.returned is None else self.returned
        return f"{redirect}?{urlencode({**found, 'state': query['state']})}"

    def post(
        self, path: str, form: dict[str, str], authorization: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """What is answered to a form."""
        self.posted.append(form)
        self.authorized.append(authorization)
        if not self._knows(form, authorization):
            return 401, {"error": "invalid_client"}
        if path == "/code":
            return 200, self.device
        if self.answers:
            return self.answers.pop(0)
        kind = form["grant_type"]
        if kind == "authorization_code":
            if form["code"] not in self._codes:
                return 400, {"error": "invalid_grant"}
            challenge, redirect, nonce = self._codes.pop(form["code"])
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == challenge
            assert form["redirect_uri"] == redirect
            return 200, self.given(nonce=nonce)
        if kind == "refresh_token":
            if form["refresh_token"] not in self._refresh:
                return 400, {"error": "invalid_grant"}
            if self.rotates:
                self._refresh.remove(form["refresh_token"])
            return 200, self.given()
        assert form["device_code"] == self.device["device_code"]
        return 200, self.given()

    def _knows(self, form: dict[str, str], authorization: str) -> bool:
        """Whether it is the client, with its secret in one place."""
        if authorization:
            kind, _, pair = authorization.partition(" ")
            name, _, secret = base64.b64decode(pair).decode().partition(":")
            assert kind == "Basic" and not {"client_id", "client_secret"} & form.keys()
            return (unquote_plus(name), unquote_plus(secret)) == (
                CLIENT_ID,
                self.secret,
            )
        assert form["client_id"] == CLIENT_ID
        return form.get("client_secret", "") == self.secret

    def given(self, **claims: Any) -> dict[str, Any]:
        """Tokens."""
        self._made += 1
        token = f"refresh-{self._made}"
        self._refresh.add(token)
        found = self.tokens.token(**{"jti": str(self._made), **claims, **self.claims})
        return {"id_token": found, "refresh_token": token, "access_token": "access"}

    def revoke(self) -> None:
        """No refresh token is good any more."""
        self._refresh.clear()


@contextmanager
def signing_in() -> Iterator[SigningIn]:
    """One that listens."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path in provider.pages:
                self.answer(*provider.pages[parts.path])
            elif parts.path == "/authorize":
                to = provider.authorize(dict(parse_qsl(parts.query)))
                self.answer(302, {"Location": to}, b"")
            else:
                body = provider.tokens.answer(parts.path)
                self.answer(404 if body is None else 200, {}, body or b"")

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            if self.path in provider.pages:
                self.rfile.read(length)
                return self.answer(*provider.pages[self.path])
            form = dict(parse_qsl(self.rfile.read(length).decode()))
            said = self.headers.get("Authorization", "")
            status, content = provider.post(self.path, form, said)
            self.answer(status, {}, json.dumps(content).encode())

        def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            # Otherwise, clients with persistent connections use this one again.
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = SigningIn(f"http://127.0.0.1:{server.server_port}")
    serving = threading.Thread(target=server.serve_forever, args=(0.02,))
    serving.start()
    try:
        yield provider
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


class Browser:
    """Opens URLs and follows where they lead."""

    def __init__(self) -> None:
        self.pages: list[str] = []
        self._running: list[threading.Thread] = []

    def open(self, url: str) -> None:
        """As a person would, beside what goes on."""
        self._running.append(threading.Thread(target=self._read, args=(url,)))
        self._running[-1].start()

    def end(self) -> None:
        """Wait for the pages."""
        for one in self._running:
            one.join()

    def _read(self, url: str) -> None:
        with urlopen(url, timeout=20) as page:
            self.pages.append(page.read().decode())


class SigningInResource(Resource):
    """
    The same provider in memory, for `treq.testing`.

    :ivar silent: it takes requests, and does not answer them before `speak`.
    :ivar requested: paths, as they were asked for.
    """

    isLeaf = True

    def __init__(self, provider: SigningIn) -> None:
        super().__init__()
        self.provider = provider
        self.silent = False
        self.requested: list[str] = []
        self._held: list[tuple[Any, int, bytes]] = []

    def speak(self) -> None:
        """Answer what came while it was silent."""
        held, self._held = self._held, []
        for request, status, body in held:
            request.write(self._page(request, status, body))
            request.finish()

    def render_GET(self, request: Any) -> bytes | int:
        path = request.path.decode()
        body = self.provider.tokens.answer(path)
        return self._respond(request, 404 if body is None else 200, body or b"")

    def render_POST(self, request: Any) -> bytes | int:
        form = dict(parse_qsl(request.content.read().decode()))
        said = request.getHeader("Authorization") or ""
        status, content = self.provider.post(request.path.decode(), form, said)
        return self._respond(request, status, json.dumps(content).encode())

    def _respond(self, request: Any, status: int, body: bytes) -> bytes | int:
        self.requested.append(request.path.decode())
        if self.silent:
            self._held.append((request, status, body))
            return NOT_DONE_YET
        return self._page(request, status, body)

    def _page(self, request: Any, status: int, body: bytes) -> bytes:
        path = request.path.decode()
        page = self.provider.pages.get(path, (status, {}, body))
        request.setResponseCode(page[0])
        for name, value in page[1].items():
            request.setHeader(name, value)
        return page[2]
