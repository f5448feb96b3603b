"""Tokens with which a browser opens a WebSocket."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from modules.kubernetes_api.server import KubernetesApiServer
from modules.kubernetes_api.websocket_tokens import (
    LIFETIME,
    MAX_USED,
    SealedCredential,
    UsedTokens,
    WebSocketTokens,
)
from tests.modules.kubernetes_api.cases import ProxyCase
from tests.modules.kubernetes_api.pair import ALICE
from tests.tunnel.http1.wire import Wire
from tunnel.api import SESSION_COOKIE

PATH = b"/api/v1/namespaces/a/pods/b/exec"
CREDENTIAL = SealedCredential(SESSION_COOKIE, "7", "csrf key")
SESSION = (b"Cookie: _gitlab_kas=key", b"X-Csrf-Token: csrf", b"Gitlab-Agent-Id: 7")
UPGRADE = (b"Connection: Upgrade", b"Upgrade: websocket")
SECRET = bytes(32)


class SealTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.now = 1_700_000_000.0
        self.tokens = WebSocketTokens(SECRET, lambda: self.now)
        self.token = self.tokens.seal(CREDENTIAL, PATH).encode()

    def refused(self, token: bytes, path: bytes = PATH) -> str:
        with self.assertRaises(ValueError) as caught:
            self.tokens.open(token, path)
        return str(caught.exception)

    def test_another_kas(self) -> None:
        """One with the same secret opens it, one with another does not."""
        other = WebSocketTokens(SECRET, lambda: self.now + 3)
        self.assertEqual(other.open(self.token, PATH), CREDENTIAL)
        self.tokens = WebSocketTokens(b"x" * 32, lambda: self.now)
        self.assertIn("not valid", self.refused(self.token))

    def test_sealed(self) -> None:
        """Nothing can be read in it, and no two are the same."""
        self.assertNotIn(b"csrf", self.token)
        self.assertNotEqual(self.token, self.tokens.seal(CREDENTIAL, PATH).encode())
        self.assertNotIn("csrf", repr(CREDENTIAL))

    def test_path(self) -> None:
        self.refused(self.token, PATH + b"/")
        self.refused(self.token, b"/")

    def test_expired(self) -> None:
        self.now += LIFETIME - 1
        self.assertEqual(self.tokens.open(self.token, PATH), CREDENTIAL)
        self.now += 10
        self.assertIn("expired", self.refused(self.token))
        self.now -= 2 * LIFETIME
        self.assertIn("expired", self.refused(self.token))

    def test_wrong(self) -> None:
        """Whatever a client makes up."""
        first = b"B" if self.token[:1] == b"A" else b"A"
        for token in (
            b"",
            b"a",
            b"A" * 16,
            b"A" * 40,
            b"A" * 50_000,
            b"\xff",
            b"a.b.c",
            self.token[:-4],
            self.token + b"AAAA",
            first + self.token[1:],
        ):
            self.assertIn("not valid", self.refused(token))


class WebSocketTests(ProxyCase):
    """The way of a page: ask, and open."""

    def setUp(self) -> None:
        super().setUp()
        self.world.server_api.access["csrf key"] = ALICE

    def ask(self, target: bytes, *lines: bytes, method: bytes = b"GET") -> Wire:
        wire = self.world.client()
        head = (method + b" " + target + b" HTTP/1.1", b"Host: kas", *lines)
        wire.receive(b"".join(line + b"\r\n" for line in head) + b"\r\n")
        self.world.run()
        return wire

    def token(self, target: bytes = PATH + b"?stdin=1&") -> bytes:
        target += b"kas-websocket-token-request=true"
        head, _, body = self.ask(target, *SESSION).taken().partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 200 "), head)
        self.assertIn(b"\r\nCache-Control: no-store", head)
        token: str = json.loads(body)["token"]
        return b"websocket-token.kas.gitlab.com." + token.encode()

    def test_opened(self) -> None:
        protocol = self.token()
        self.assertEqual(self.world.link.opened, [])
        self.ask(
            PATH + b"?stdin=1",
            *UPGRADE,
            b"Cookie: _gitlab_kas=key",
            b"Sec-WebSocket-Protocol: v5.channel.k8s.io, " + protocol,
        )
        self.assertEqual(
            self.world.server_api.asked, [(SESSION_COOKIE, "7", "csrf key")] * 2
        )
        request = self.world.origin.taken()
        self.assertIn(b"\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n", request)
        self.assertIn(b"Impersonate-User: alice\r\n", request)
        for secret in (b"websocket-token", b"csrf", b"_gitlab_kas"):
            self.assertNotIn(secret, request)

    def test_once(self) -> None:
        """A token opens one WebSocket, at whichever kas."""
        protocol = self.token()
        lines = (*UPGRADE, b"Sec-WebSocket-Protocol: v5.a, " + protocol)
        self.ask(PATH, *lines)
        self.assertIn(b"Impersonate-User: alice", self.world.origin.taken())
        self.assert_error(self.ask(PATH, *lines), 401, "was used before")
        # Written in another way it is the same token.
        padded = (*UPGRADE, b"Sec-WebSocket-Protocol: v5.a, " + protocol + b"=")
        self.assertIn(b" 401 ", self.ask(PATH, *padded).taken())
        # Another kas has the same store, and the same secret.
        other: Any = KubernetesApiServer(self.world.server_api)  # type: ignore[arg-type]
        other.tokens = self.world.server.tokens
        self.world.server = other
        self.assert_error(self.ask(PATH, *lines), 401, "was used before")

    def test_once_while_the_store_is_away(self) -> None:
        """Each kas remembers what it saw."""
        self.world.server_api.stores.down = True
        lines = (*UPGRADE, b"Sec-WebSocket-Protocol: v5.a, " + self.token())
        self.ask(PATH, *lines)
        self.assertIn(b"Impersonate-User: alice", self.world.origin.taken())
        self.assert_error(self.ask(PATH, *lines), 401, "was used before")

    def test_used_are_bounded(self) -> None:
        used = UsedTokens(lambda: self.world.server_api.store("websocket-tokens"))
        self.world.server_api.stores.down = True
        for number in range(MAX_USED + 10):
            coroutine = used.use(f"{number}")
            self.successResultOf(Deferred.fromCoroutine(coroutine))
        self.assertEqual(len(used._here), MAX_USED)

    def test_same_lines_again(self) -> None:
        """A head that is remembered does not use the token a second time."""
        protocol = self.token()
        lines = (
            b"GET " + PATH + b" HTTP/1.1",
            b"Host: kas",
            *UPGRADE,
            b"Sec-WebSocket-Protocol: v5.a, " + protocol,
        )
        head = b"".join(line + b"\r\n" for line in lines) + b"\r\n"
        self.world.link.connected = False
        wire = self.world.client()
        wire.receive(head)
        self.world.run()
        self.assert_error(wire, 503)
        self.world.link.connected = True
        wire.receive(head)
        self.world.run()
        self.assert_error(wire, 401, "was used before")

    def test_bearer(self) -> None:
        """Whatever the credential is, and it only serves a WebSocket."""
        target = b"/agents/1" + PATH
        self.world.server_api.access["t"] = ALICE
        wire = self.ask(
            target + b"?kas-websocket-token-request=true", b"Authorization: Bearer t"
        )
        _, _, body = wire.taken().partition(b"\r\n\r\n")
        protocol = b"websocket-token.kas.gitlab.com." + (
            json.loads(body)["token"].encode()
        )
        line = b"Sec-WebSocket-Protocol: " + protocol
        self.assert_error(self.ask(target, line), 401)
        self.assert_error(self.ask(b"/agents/2" + PATH, line, *UPGRADE), 401)
        self.ask(target, line, *UPGRADE)
        self.assertNotIn(b"Sec-WebSocket-Protocol", self.world.origin.taken())

    def test_refused(self) -> None:
        """Only those who have a credential get one, and one is not enough for two."""
        target = PATH + b"?kas-websocket-token-request=true"
        for lines in ((), SESSION[:1], (*SESSION[:1], b"Gitlab-Agent-Id: 7")):
            self.assert_error(self.ask(target, *lines), 401)
        wrong = (b"Cookie: _gitlab_kas=other", *SESSION[1:])
        self.assert_error(self.ask(target, *wrong), 401)
        protocol = self.token()
        for protocols in (
            protocol + b", " + self.token(),
            protocol + b"x",
            b"websocket-token.kas.gitlab.com.",
        ):
            line = b"Sec-WebSocket-Protocol: a, " + protocols
            self.assert_error(self.ask(PATH, line, *UPGRADE), 401)
        self.assert_error(
            self.ask(b"/api", b"Sec-WebSocket-Protocol: " + protocol, *UPGRADE), 401
        )
        # With Authorization nothing else is looked at.
        line = b"Sec-WebSocket-Protocol: " + protocol
        basic = b"Authorization: Basic x"
        self.assert_error(self.ask(PATH, line, basic, *UPGRADE), 401)
        self.assertEqual(self.world.link.opened, [])
        self.assert_clean()

    def test_no_token_for_a_token(self) -> None:
        """One that leaked does not last longer than 30 seconds."""
        line = b"Sec-WebSocket-Protocol: " + self.token()
        target = PATH + b"?kas-websocket-token-request=true"
        self.assert_error(self.ask(target, line, *UPGRADE), 401)

    def test_not_asked_for(self) -> None:
        """The parameter means a token only where it says so."""
        for query in (
            b"kas-websocket-token-request=false",
            b"kas-websocket-token-request=true&kas-websocket-token-request=true",
        ):
            self.ask(b"/api?" + query + b"&a=1", *SESSION)
            self.assertIn(b"GET /api?a=1 HTTP/1.1", self.world.origin.taken())
