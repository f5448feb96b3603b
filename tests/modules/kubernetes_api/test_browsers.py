"""Browsers: sessions of GitLab, pages of other origins, hostile clusters (P06, P07)."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from modules.kubernetes_api.frontdoor import Refused, parse_request
from tests.modules.kubernetes_api.cases import SWITCH, ProxyCase, head_of
from tests.modules.kubernetes_api.pair import ALICE, World
from tests.tunnel.http1.wire import Wire
from tunnel.api import SESSION_COOKIE, Access, Impersonation
from tunnel.errors import CallError, Status

ORIGIN = "https://gitlab.example.com"
PAGE = b"Origin: https://gitlab.example.com"
COOKIE = b"Cookie: a=b; _gitlab_kas=key%2Bvalue%3D%3D; c=d"
CSRF = b"X-Csrf-Token: csrf+1=="
AGENT = b"Gitlab-Agent-Id: 7"
TOKEN = "csrf+1== key+value=="


class SessionTests(ProxyCase):
    """Which session a request comes with, and for which agent."""

    def entered(self, *lines: bytes, target: bytes = b"/api") -> tuple[str, ...]:
        entry = parse_request(head_of(*lines, target=target), b"/")
        return entry.kind, entry.agent, entry.token, entry.target.decode()

    def test_headers(self) -> None:
        expected = (SESSION_COOKIE, "7", TOKEN, "/api")
        self.assertEqual(self.entered(COOKIE, CSRF, AGENT), expected)
        self.assertEqual(self.entered(COOKIE, CSRF, target=b"/agents/7/api"), expected)

    def test_query(self) -> None:
        """Where headers cannot be set; what the cluster is asked is without them."""
        asked = b"gitlab-agent-id=7&watch=1&gitlab-csrf-token=csrf%2B1%3D%3D&a=%2f;+"
        self.assertEqual(
            self.entered(COOKIE, target=b"/api?" + asked),
            (SESSION_COOKIE, "7", TOKEN, "/api?watch=1&a=%2f;+"),
        )
        self.assertEqual(
            self.entered(COOKIE, CSRF, target=b"/api?gitlab-agent-id=7")[3], "/api"
        )
        # Of a bearer, too: they are no business of the cluster.
        bearer = b"Authorization: Bearer user:1:alice"
        target = b"/api?gitlab-csrf-token=x&limit=1"
        self.assertEqual(self.entered(bearer, target=target)[3], "/api?limit=1")

    def test_header_before_query(self) -> None:
        target = b"/api?gitlab-agent-id=8&gitlab-csrf-token=other"
        self.assertEqual(
            self.entered(COOKIE, CSRF, AGENT, target=target)[:3],
            (SESSION_COOKIE, "7", TOKEN),
        )

    def test_bearer_before_cookie(self) -> None:
        """With Authorization the cookie is never looked at, right or wrong."""
        bearer = b"Authorization: Bearer pat:7:t"
        self.assertEqual(self.entered(COOKIE, CSRF, AGENT, bearer)[0], "pat")
        with self.assertRaises(Refused) as caught:
            self.entered(COOKIE, CSRF, AGENT, b"Authorization: Basic x")
        self.assertEqual(caught.exception.status, 401)

    def test_refused(self) -> None:
        """401, and nothing is asked of anyone."""
        for lines in (
            (COOKIE,),
            (COOKIE, AGENT),
            (COOKIE, CSRF),
            (COOKIE, AGENT, CSRF, CSRF),
            (COOKIE, AGENT, AGENT, CSRF),
            (COOKIE, COOKIE, AGENT, CSRF),
            (COOKIE, AGENT, b"X-Csrf-Token: a b"),
            (b"Cookie: _gitlab_kas=", AGENT, CSRF),
            (b"Cookie: _gitlab_kas=a%20b", AGENT, CSRF),
            (b"Cookie: _gitlab_kas=a%0d%0ab", AGENT, CSRF),
            (b"Cookie: _gitlab_kasx=a", AGENT, CSRF),
            (AGENT, CSRF),
        ):
            wire = self.ask(*lines)
            head = self.assert_error(wire, 401, "client -> kas")
            self.assertIn(b"Gitlab-Unauthorized: true", head)
        for query in (
            b"gitlab-agent-id=7&gitlab-agent-id=7&gitlab-csrf-token=x",
            b"gitlab-agent-id=7&gitlab-csrf-token=x&gitlab-csrf-token=y",
            b"gitlab-agent-id=7&gitlab-csrf-token=a+b",
        ):
            wire = self.ask(COOKIE, target=b"/api?" + query)
            self.assert_error(wire, 401)
        self.assertEqual(self.world.server_api.asked, [])

    def test_no_bearer_is_one(self) -> None:
        """The kind of a session cannot be named by a token."""
        for kind in (b"session cookie", b"session_cookie", b"session+cookie"):
            self.ask(b"Authorization: Bearer " + kind + b":7:csrf key")
        self.assertNotIn(
            SESSION_COOKIE, [kind for kind, _, _ in self.world.server_api.asked]
        )

    def ask(self, *lines: bytes, target: bytes = b"/api") -> Wire:
        wire = self.world.client()
        head = (b"GET " + target + b" HTTP/1.1", b"Host: kas", *lines)
        wire.receive(b"".join(line + b"\r\n" for line in head) + b"\r\n")
        self.world.run()
        return wire

    def test_isolated(self) -> None:
        """What a cluster says to a browser about its own (P06) does not arrive."""
        self.world = World(extra_allowed_response_headers=("X-Mine",))
        self.world.server_api.access[TOKEN] = ALICE
        wire = self.ask(COOKIE, CSRF, AGENT)
        request = self.world.origin.taken()
        for secret in (b"key", b"csrf", b"Gitlab-Agent", b"ookie"):
            self.assertNotIn(secret, request)
        self.assertIn(b"Impersonate-User: alice\r\n", request)
        self.world.origin.receive(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1\r\n"
            b"Set-Cookie: _gitlab_kas=evil\r\nClear-Site-Data: *\r\nX-Other: 1\r\n"
            b"Access-Control-Allow-Origin: *\r\nRefresh: 0;url=https://evil\r\n"
            b"Service-Worker-Allowed: /\r\nLink: <x>;rel=preload\r\n"
            b"x-mine: yes\r\nAudit-Id: 1\r\nContent-Typex: evil\r\n\r\nx"
        )
        self.world.run()
        head = wire.taken()
        for passed in (
            b"\r\nContent-Type: text/html\r\n",
            b"\r\nx-mine: yes\r\n",
            b"\r\nAudit-Id: 1\r\n",
            b"\r\nContent-Security-Policy: sandbox\r\n",
            b"\r\nX-Content-Type-Options: nosniff\r\n",
        ):
            self.assertIn(passed, head)
        for cut in (b"evil", b"Clear-", b"X-Other", b"Access-", b"Service-", b"Link"):
            self.assertNotIn(cut, head)
        self.assert_clean()


class CrossOriginTests(ProxyCase):
    """Pages of GitLab may ask, others may not (P07)."""

    def setUp(self) -> None:
        super().setUp()
        self.world = World(page_origins=(ORIGIN,))

    def answer(self, wire: Wire) -> bytes:
        self.world.origin.receive(
            b"HTTP/1.1 200 OK\r\nVary: Accept\r\nContent-Length: 0\r\n"
            b"Access-Control-Allow-Origin: *\r\n\r\n"
        )
        self.world.run()
        return wire.taken()

    def assert_allowed(self, head: bytes) -> None:
        for line in (
            b"\r\nAccess-Control-Allow-Origin: https://gitlab.example.com\r\n",
            b"\r\nAccess-Control-Allow-Credentials: true\r\n",
            b"\r\nVary: Origin\r\n",
        ):
            self.assertEqual((head + b"\r\n").count(line), 1, line)

    def test_gitlab(self) -> None:
        """Every answer says so, whatever it is."""
        wire = self.world.request(b"GET /api HTTP/1.1", PAGE)
        self.assertIn(
            b"\r\nOrigin: https://gitlab.example.com\r\n",
            self.world.origin.taken(),
        )
        head = self.answer(wire)
        self.assert_allowed(head)
        self.assertIn(b"\r\nVary: Accept\r\n", head)
        self.assertNotIn(b"Allow-Origin: *", head)
        for code, token, line in (
            (401, b"user:1:nobody", PAGE),
            (401, b"nonsense", PAGE),
            (400, b"user:1:alice", b"Impersonate-User: eve\r\n" + PAGE),
        ):
            wire = self.world.request(b"GET /api HTTP/1.1", line, token=token)
            self.assert_allowed(self.assert_error(wire, code))
        waiting: Deferred[Access] = Deferred()
        self.world.server_api.access["slow"] = waiting
        wire = self.world.request(b"GET /api HTTP/1.1", PAGE, token=b"pat:1:slow")
        waiting.errback(CallError(Status.UNAUTHENTICATED, "no"))
        self.assert_allowed(self.assert_error(wire, 401))
        self.assert_clean()

    def test_same_lines_again(self) -> None:
        """The cluster gets the line once, also where the page's access changed."""
        wire = self.world.client()
        lines = b"Host: a\r\nAuthorization: Bearer user:1:alice\r\n" + PAGE
        for name in ("alice", "bob", "carol"):
            changed = Access("user:alice", "1", "agent-1", Impersonation(name))
            self.world.server_api.access["alice"] = changed
            wire.receive(b"GET /api HTTP/1.1\r\n" + lines + b"\r\n\r\n")
            self.world.run()
            sent = self.world.origin.taken()
            self.assertIn(b"Impersonate-User: " + name.encode(), sent)
            self.assertEqual(sent.count(b"\r\nOrigin: "), 1)
            self.assert_allowed(self.answer(wire))

    def test_upgrade(self) -> None:
        wire = self.world.request(
            b"GET /api/v1/namespaces/a/pods/b/exec HTTP/1.1",
            b"Connection: Upgrade",
            b"Upgrade: SPDY/3.1",
            PAGE,
        )
        self.world.origin.receive(SWITCH)
        self.world.run()
        self.assert_allowed(wire.taken())

    def test_others(self) -> None:
        """403 and nothing else, before any credential is looked at."""
        for line in (
            b"Origin: https://evil.example.com",
            b"Origin: https://gitlab.example.com.evil.example",
            b"Origin: http://gitlab.example.com",
            b"Origin: https://gitlab.example.com:8443",
            b"Origin: null",
            b"Origin: ",
            b"Origin: *",
            PAGE + b"\r\n" + PAGE,
        ):
            for method in (b"GET", b"POST", b"OPTIONS"):
                wire = self.world.request(method + b" /api HTTP/1.1", line)
                head, _, body = wire.taken().partition(b"\r\n\r\n")
                self.assertTrue(head.startswith(b"HTTP/1.1 403 "), line)
                self.assertEqual(body, b"")
                self.assertNotIn(b"Access-Control", head)
        self.assertEqual(self.world.server_api.asked, [])
        self.assertEqual(self.world.link.opened, [])

    def test_preflight(self) -> None:
        """Without a credential, for anything."""
        wire = self.world.client()
        wire.receive(
            b"OPTIONS /api HTTP/1.1\r\nHost: kas\r\n" + PAGE + b"\r\n"
            b"Access-Control-Request-Method: DELETE\r\n"
            b"Access-Control-Request-Headers: gitlab-agent-id, x-csrf-token\r\n\r\n"
        )
        self.world.run()
        head, _, body = wire.taken().partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 200 "))
        self.assert_allowed(head)
        for line in (
            b"\r\nAccess-Control-Allow-Headers: gitlab-agent-id, x-csrf-token\r\n",
            b"\r\nAccess-Control-Allow-Methods: GET, HEAD, POST, PUT, DELETE, CONNECT, "
            b"OPTIONS, TRACE, PATCH\r\n",
            b"\r\nAccess-Control-Max-Age: 86400\r\n",
        ):
            self.assertIn(line, head + b"\r\n")
        self.assertEqual(body, b"")
        self.assertEqual(self.world.link.opened, [])

    def test_not_configured(self) -> None:
        """Without pages that may ask, all goes on to the cluster."""
        self.world = World()
        self.world.request(b"OPTIONS /api HTTP/1.1", b"Origin: https://any.example")
        self.assertIn(b"Origin: https://any.example", self.world.origin.taken())
