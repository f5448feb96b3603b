"""Who may come in, and as whom (P01, P02, P05)."""

from __future__ import annotations

from twisted.internet.defer import ensureDeferred

from modules.kubernetes_api.agent import KNOWN_SECONDS, MAX_KNOWN_HEADS
from modules.kubernetes_api.frontdoor import (
    _OVERHEAD,
    MAX_CACHED,
    MAX_NOTED,
    OutgoingFields,
    Refused,
    parse_request,
)
from tests.modules.kubernetes_api.cases import HELLO, ProxyCase, head_of
from tests.modules.kubernetes_api.pair import World
from tests.tunnel.http1.test_head import REFUSED
from tunnel.api import (
    Access,
    Impersonation,
    TunnelDisconnected,
)


class CredentialTests(ProxyCase):
    """`Authorization` and the agent it names."""

    def test_forms(self) -> None:
        """Three kinds of strings that a client may send."""
        for target, value, expected in (
            (b"/api", b"Bearer user:7:t", ("user", "7", "t", b"/api")),
            (b"/api", b"bearer ci:7:a:b", ("ci", "7", "a:b", b"/api")),
            (b"/agents/x/api", b"Bearer t", ("", "x", "t", b"/api")),
            (b"/agents/x/api", b"Bearer pat:x:t", ("pat", "x", "t", b"/api")),
        ):
            entry = parse_request(
                head_of(b"Authorization: " + value, target=target), b"/"
            )
            self.assertEqual(
                (entry.kind, entry.agent, entry.token, entry.target), expected
            )

    def test_unauthorized(self) -> None:
        """401, marked as ours so that it is not taken for the cluster's."""
        for lines in (
            (),
            (b"Authorization: Bearer user:1:alice", b"Authorization: Basic x"),
            (
                b"Authorization: Bearer user:1:alice",
                b"authorization: Bearer user:1:alice",
            ),
            (b"Authorization: Basic YTpi",),
            (b"Authorization: Bearer",),
            (b"Authorization: Bearer ",),
            (b"Authorization: Bearer user:1:",),
            (b"Authorization: Bearer :1:x",),
            (b"Authorization: Bearer user::x",),
            (b"Authorization: Bearer user:1%2e:x",),
            (b"Authorization: Bearer user:1/2:x",),
            (b"Authorization: Bearer USER:1:x",),
            (b"Authorization: Bearer alice",),
            (b"Authorization: Bearer user:1:alice b",),
            (b"Authorization: Bearer user:1:unknown",),
        ):
            wire = self.world.client()
            wire.receive(
                b"GET /api HTTP/1.1\r\nHost: a\r\n"
                + b"".join(line + b"\r\n" for line in lines)
                + b"\r\n"
            )
            self.world.run()
            head = self.assert_error(wire, 401, "client -> kas")
            self.assertIn(b"WWW-Authenticate: Bearer\r\n", head)
            self.assertIn(b"Gitlab-Unauthorized: true", head)
        self.assertEqual(self.world.link.opened, [])

    def test_path_and_credential_disagree(self) -> None:
        """Neither of the two is believed."""
        wire = self.world.request(b"GET /agents/2/api HTTP/1.1", token=b"user:1:alice")
        self.assert_error(wire, 400, "different agents")


class KnownHeadTests(ProxyCase):
    """The same header lines again, on the same connection."""

    LINES = b"Host: a\r\nAuthorization: Bearer user:1:alice\r\nX: y\r\n\r\n"

    def setUp(self) -> None:
        super().setUp()
        self.wire = self.world.client()

    def ask(self, start: bytes = b"GET /api HTTP/1.1") -> bytes:
        """What reaches the API server; empty: nothing."""
        origins = self.world.cluster.connections.wires
        self.wire.receive(start + b"\r\n" + self.LINES)
        self.world.run()
        sent = origins[-1].taken() if origins else b""
        if sent:
            origins[-1].receive(HELLO)
            self.world.run()
        return sent

    def test_only_the_request_line_differs(self) -> None:
        """All else is as it was the first time."""
        first = self.ask()
        self.assertIn(b"Impersonate-User: alice", first)
        second = self.ask(b"DELETE /api/v1/pods/b?c=d HTTP/1.1")
        start = b"DELETE /api/v1/pods/b?c=d "
        self.assertEqual(second, first.replace(b"GET /api ", start))
        self.assertEqual(self.wire.taken().count(b"200 OK"), 2)

    def test_revoked(self) -> None:
        """The next request is refused."""
        self.assertNotEqual(self.ask(), b"")
        self.wire.taken()
        del self.world.server_api.access["alice"]
        self.assertEqual(self.ask(), b"")
        self.assert_error(self.wire, 401, "not known")

    def test_changed(self) -> None:
        """The next request runs as somebody else, or at another agent."""
        self.ask()
        changed = Access("user:alice", "2", "agent-2", Impersonation("bob"))
        self.world.server_api.access["alice"] = changed
        second = self.ask()
        self.assertIn(b"Impersonate-User: bob", second)
        self.assertNotIn(b"alice", second)

    def test_agent_in_the_path(self) -> None:
        """It is read each time."""
        lines = self.LINES.replace(b"user:1:", b"")
        self.LINES = lines
        for agent in ("7", "8", "7"):
            self.ask(b"GET /agents/" + agent.encode() + b"/api HTTP/1.1")
            self.assertEqual(self.world.server_api.asked[-1], ("", agent, "alice"))

    def test_new_token_of_agentk(self) -> None:
        """agentk sends the credential that is good now."""
        self.assertIn(b"Authorization: Bearer agent-token\r\n", self.ask())
        self.world.cluster.token = b"Bearer rotated"
        second = self.ask()
        self.assertIn(b"Authorization: Bearer rotated\r\n", second)
        self.assertNotIn(b"agent-token", second)
        self.world.cluster.token = None
        self.assertNotIn(b"Authorization", self.ask())

    def test_agentk_forgets_with_the_tunnel(self) -> None:
        """What clients sent is gone when the connection it came by is."""

        async def started() -> None:
            await self.world.agent.start()

        ensureDeferred(started())
        self.ask()
        self.assertEqual(len(self.world.agent.known), 1)
        self.world.agent_api.publish(TunnelDisconnected("1"))
        self.assertEqual(len(self.world.agent.known), 0)

    def test_agentk_forgets_after_a_minute(self) -> None:
        """Also where other clients keep the tunnel busy."""
        self.ask()
        (first,) = self.world.agent.known
        self.world.clock.advance(KNOWN_SECONDS / 2)
        self.LINES = b"X: other\r\n" + type(self).LINES
        self.ask()
        self.assertIn(first, self.world.agent.known)
        self.world.clock.advance(KNOWN_SECONDS / 2)
        self.ask()
        self.assertEqual(len(self.world.agent.known), 1)
        self.assertNotIn(first, self.world.agent.known)
        ensureDeferred(self.world.agent.stop())
        self.assertEqual(len(self.world.agent.known), 0)

    def test_agentk_is_bounded(self) -> None:
        """Clients whose heads never repeat fill nothing."""
        for number in range(MAX_KNOWN_HEADS + 10):
            self.LINES = b"X: %d\r\n" % number + type(self).LINES
            self.assertNotEqual(self.ask(), b"")
            self.assertLessEqual(len(self.world.agent.known), MAX_KNOWN_HEADS)


class P01Tests(ProxyCase):
    """Nobody becomes the proxy, or somebody else."""

    def test_p01_connection_names_identity(self) -> None:
        """`Connection` must not take away what kas sets (CVE-2021-31999)."""
        for name in (
            b"Impersonate-User",
            b"impersonate-group",
            b"Impersonate_User",
            b"Impersonate-Extra-Scopes",
            b"Authorization",
            b"Authorization, X-Forwarded-For",
            b"X-Forwarded-Host",
            b"Via",
            b"Host",
            b"Content-Length",
            b"Transfer-Encoding",
            b"X-Remote-User",
            b"Sec-WebSocket-Protocol",
            b"close, Impersonate-Uid",
        ):
            for token in (b"user:1:alice", b"user:1:root"):
                wire = self.world.request(
                    b"GET /api HTTP/1.1", b"Connection: " + name, token=token
                )
                self.assert_error(wire, 400, "Connection")
        self.assertEqual(self.world.link.opened, [])

    def test_p01_identity_is_added_last(self) -> None:
        """Hop-by-hop lines are gone before identity is written."""
        self.world.request(b"GET /api HTTP/1.1", b"Connection: x-a", b"X-A: 1")
        request = self.world.origin.taken()
        self.assertEqual(request.count(b"Impersonate-User: alice\r\n"), 1)
        self.assertNotIn(b"X-A", request)

    def test_p01_nested_impersonation(self) -> None:
        """Who runs as somebody cannot become somebody else, however it is spelled."""
        for line in (
            b"Impersonate-User: root",
            b"impersonate-user: root",
            b"IMPERSONATE-GROUP: system:masters",
            b"Impersonate-Uid: 0",
            b"Impersonate-Extra-%2F: x",
            b"Impersonate-Extra-scopes: x",
            b"Impersonate-Anything: x",
        ):
            wire = self.world.request(b"GET /api HTTP/1.1", line)
            self.assert_error(wire, 400, "nested impersonation is not supported")
        self.assertEqual(self.world.link.opened, [])
        self.assert_clean()

    def test_p01_underscores(self) -> None:
        """A spelling that only some servers understand is refused for everybody."""
        for name in (b"Impersonate_User", b"impersonate_Extra_a", b"X_Remote_User"):
            for token in (b"user:1:alice", b"user:1:root"):
                wire = self.world.request(
                    b"GET /api HTTP/1.1", name + b": root", token=token
                )
                self.assert_error(wire, 400, "underscore")
        self.assertEqual(self.world.link.opened, [])

    def test_p01_agent_mode_may_impersonate(self) -> None:
        """The API server decides what agentk's account may."""
        self.world.request(
            b"GET /api HTTP/1.1",
            b"Impersonate-User: bob",
            b"Impersonate-Group: a",
            b"impersonate-group: b",
            b"Impersonate-Extra-acme.com%2Fproject: p",
            token=b"user:1:root",
        )
        request = self.world.origin.taken().lower()
        for line in (
            b"impersonate-user: bob\r\n",
            b"impersonate-group: a\r\n",
            b"impersonate-group: b\r\n",
            b"impersonate-extra-acme.com%2fproject: p\r\n",
        ):
            self.assertEqual(request.count(line), 1, line)

    def test_p01_agent_mode_is_not_ambiguous(self) -> None:
        """One user, one uid, known names."""
        for lines in (
            (b"Impersonate-User: a", b"impersonate-user: b"),
            (b"Impersonate-Uid: a", b"Impersonate-Uid: b"),
            (b"Impersonate-Nobody: a",),
            (b"Impersonate-Extra-: a",),
        ):
            wire = self.world.request(
                b"GET /api HTTP/1.1", *lines, token=b"user:1:root"
            )
            self.assert_error(wire, 400, "unknown or repeated")
        self.assert_clean()

    def test_p01_remote_user(self) -> None:
        """Headers that the API server believes from a proxy never arrive."""
        for token in (b"user:1:alice", b"user:1:root"):
            self.world.request(
                b"GET /api HTTP/1.1",
                b"X-Remote-User: root",
                b"X-Remote-Extra-a: b",
                token=token,
            )
            self.assertNotIn(b"x-remote", self.world.origin.taken().lower())

    def test_p01_own_credentials_do_not_travel(self) -> None:
        """The client's token stays in kas."""
        self.world.request()
        self.assertNotIn(
            b"alice",
            b"".join(self.world.link.opened).replace(b"Impersonate-User: alice", b""),
        )


class P02Tests(ProxyCase):
    """Ambiguous requests never become a second one."""

    def test_p02_ambiguous_heads(self) -> None:
        """400, and nothing at the API server."""
        smuggled = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        for name, block in REFUSED.items():
            if not block:
                continue
            wire = self.world.client()
            wire.receive(
                block + b"Authorization: Bearer user:1:alice\r\n\r\n" + smuggled
            )
            self.world.run()
            self.assertIn(b"HTTP/1.1 400 ", wire.taken(), name)
        self.assertEqual(self.world.link.opened, [])

    def test_p02_chunk_abuse(self) -> None:
        """A broken body ends the request; what follows it is not read."""
        smuggled = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        for body in (
            b"0x3\r\nabc\r\n0\r\n\r\n",
            b"3;\x00\r\nabc\r\n0\r\n\r\n",
            b"3\nabc\r\n0\r\n\r\n",
            b"3\r\nabcd\r\n0\r\n\r\n",
            b"3 \r\nabc\r\n0\r\n\r\n",
            b"1;" + b"a" * 300 + b"\r\nx\r\n0\r\n\r\n",
        ):
            opened = len(self.world.link.opened)
            wire = self.world.request(
                b"POST /api HTTP/1.1",
                b"Transfer-Encoding: chunked",
                body=body + smuggled,
            )
            self.assertIn(b" 400 ", wire.taken())
            self.assertLessEqual(len(self.world.link.opened), opened + 1)
            for origin in self.world.cluster.connections.wires:
                self.assertNotIn(b"smuggled", origin.taken())
                origin.settle()
        self.assert_clean()

    def test_p02_agent_segment(self) -> None:
        """Games with the agent's name in the path."""
        for target in (
            b"/agents//api",
            b"/agents/",
            b"/agents/%31/api",
            b"/agents/1%2f2/api",
            b"/agents/1;x/api",
            b"/agents/;/api",
            b"/agents/../api",
            b"/agents/./api",
            b"/agents/1/../2/api",
            b"/agents/1/api/../../x",
            b"/agents/1/api//../../x",
            b"/agents/1/./..\\x",
            b"/agents/1/%2e%2e/2/api",
            b"/agents/1/%2E./api",
            b"/agents/1/a%2f..%2f..%2fb",
            b"/agents/1/..;/b",
            b"/agents/1/..",
            b"/agents/" + b"a" * 129 + b"/api",
        ):
            wire = self.world.request(b"GET " + target + b" HTTP/1.1", token=b"alice")
            self.assert_error(wire, 400, "client -> kas")
        self.assertEqual(self.world.server_api.asked, [])

    def test_p02_not_an_agent_path(self) -> None:
        """What only resembles one names no agent."""
        for target in (
            b"//agents/1/api",
            b"/Agents/1/api",
            b"/agents%2f1/api",
            b"/agents",
        ):
            wire = self.world.request(b"GET " + target + b" HTTP/1.1", token=b"alice")
            self.assert_error(wire, 401)

    def test_p02_byte_identical(self) -> None:
        """Odd, but meaning one thing only: passed on as it is."""
        for target in (
            b"/api//v1/?a=../..&b=%2e%2e/;?&c=%zz",
            b"/api/%20%C3%A4/x:y@z",
            b"/api/v1/namespaces/a/services/https:b:443/proxy/.well-known/x...y/",
            b"//agents/1/api",
            b"/?",
            b"/api/v1/../v1/./pods/%2e%2e",
            b"/a/b/c/..%2f..;x/..",
            b"/.well-known/openid-configuration",
        ):
            self.world.request(b"GET " + target + b" HTTP/1.1")
            self.assertTrue(
                self.world.origin.taken().startswith(
                    b"GET " + target + b" HTTP/1.1\r\n"
                )
            )

    def test_p02_one_request_one_stream(self) -> None:
        """The API server counts as many requests as the client sent."""
        wire = self.world.request(
            b"POST /a HTTP/1.1",
            b"Content-Length: 40",
            body=b"GET /b HTTP/1.1\r\nHost: a\r\nX: 0123456789\r\n",
        )
        origin = self.world.origin
        self.assertEqual(len(self.world.link.opened), 1)
        origin.receive(HELLO)
        self.world.run()
        self.assertEqual(wire.taken().count(b"HTTP/1.1 "), 1)


class P05Tests(ProxyCase):
    """Redirects and loops."""

    def test_p05_redirect_is_passed_on(self) -> None:
        """Wherever it points, only the client may follow."""
        for location in (b"http://169.254.169.254/", b"https://kas/agents/2/api"):
            wire = self.world.request()
            origin = self.world.origin
            origin.receive(
                b"HTTP/1.1 302 Found\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n"
                % location
            )
            self.world.run()
            self.assertIn(b"Location: " + location, wire.taken())
        self.assertEqual(len(self.world.cluster.connections.wires), 1)

    def test_p05_loop(self) -> None:
        """A request that passed here already is refused; a chain of kas is not."""
        self.world.request()
        via = next(
            line
            for line in self.world.origin.taken().split(b"\r\n")
            if line.startswith(b"Via: ")
        )
        wire = self.world.request(b"GET /api HTTP/1.1", via)
        self.assert_error(wire, 508, "came back to kas")
        self.world.request(b"GET /api HTTP/1.1", via.replace(b"feed", b"beef"))
        self.assertIn(via[5:], self.world.origin.taken().replace(b"beef", b"feed"))

    def test_p05_loop_through_others(self) -> None:
        """Circles in which nobody knows himself end as well."""
        wire = self.world.request(
            b"GET /api HTTP/1.1", b"Via: " + b", ".join([b"1.1 x"] * 17)
        )
        self.assert_error(wire, 508, "came back")


class S01Tests(ProxyCase):
    """Slow clients of kas; `tests.tunnel.http1.test_server` has the rest."""

    def test_s01_slow_head_and_body(self) -> None:
        """Both end in 408, and the stream of the second is freed."""
        slow = self.world.client()
        slow.receive(b"GET /api HTTP/1.1\r\nHo")
        body = self.world.request(
            b"PUT /api HTTP/1.1", b"Content-Length: 9", body=b"abc"
        )
        self.world.clock.pump([1.0] * 11)
        self.assert_error(slow, 408)
        self.world.clock.pump([1.0] * 60)
        self.world.run()
        self.assert_error(body, 408)
        self.assertTrue(self.world.origin.aborted)
        self.world.origin.settle()
        self.assert_clean()

    def test_s01_others_are_not_slowed(self) -> None:
        """Five hundred slow heads cost other clients nothing."""
        world = World(max_connections=1000)
        for _ in range(500):
            world.client().receive(b"GET /")
        wire = world.request()
        world.origin.receive(HELLO)
        world.run()
        self.assertIn(b"hello", wire.taken())
        self.assertEqual(world.clock.seconds(), 0)


class ImpersonationTests(ProxyCase):
    """The ``Impersonate-*`` of `OutgoingFields`."""

    def fields(self, impersonation: Impersonation) -> bytes:
        access = Access("c", "1", "a", impersonation)
        head = head_of()
        fields = OutgoingFields(b"kas").of(head, access)
        return fields.removeprefix(head.fields + b"\r\nVia: 1.1 kas")

    def test_all_fields(self) -> None:
        """Escaped like client-go does it."""
        self.assertEqual(
            self.fields(
                Impersonation(
                    "gitlab:user:ä",
                    ("g:1", "g:2"),
                    "42",
                    {"agent.gitlab.com/id": ("7", ""), "50%": ("x",)},
                )
            ),
            "\r\nImpersonate-User: gitlab:user:ä\r\nImpersonate-Uid: 42"
            "\r\nImpersonate-Group: g:1\r\nImpersonate-Group: g:2"
            "\r\nImpersonate-Extra-agent.gitlab.com%2Fid: 7"
            "\r\nImpersonate-Extra-agent.gitlab.com%2Fid: "
            "\r\nImpersonate-Extra-50%25: x".encode(),
        )

    def test_malformed(self) -> None:
        """Never a header that means somebody else, or nobody."""
        for impersonation in (
            Impersonation(""),
            Impersonation(" root"),
            Impersonation("a\r\nImpersonate-User: root"),
            Impersonation("a\0"),
            Impersonation("a", ("",)),
            Impersonation("a", ("b\n",)),
            Impersonation("a", (), "\t"),
            Impersonation("a", (), "", {"": ("x",)}),
            Impersonation("a", (), "", {"k": ("x\r",)}),
        ):
            error = self.assertRaises(Refused, self.fields, impersonation)
            self.assertEqual(error.status, 500)

    def test_cache_follows_the_credential(self) -> None:
        """A credential whose impersonation changed gets the new one."""
        cache = OutgoingFields(b"kas")
        for name in ("a", "b", "b"):
            access = Access("c", "1", "a", Impersonation(name))
            self.assertIn(name.encode(), cache.of(head_of(), access))

    def test_long_fields_are_not_noted(self) -> None:
        """With each head of each connection they would take more than the heads."""
        for count, noted in ((10, True), (1_000, False)):
            groups = tuple(f"team-{number}" for number in range(count))
            access = Access("c", "1", "a", Impersonation("u", groups))
            outgoing, head = OutgoingFields(b"kas"), head_of()
            made = outgoing.of(head, access)
            self.assertEqual(made.count(b"Impersonate-Group"), count)
            self.assertEqual(outgoing in head.notes, noted)
            self.assertEqual(len(made) <= MAX_NOTED, noted)
            self.assertEqual(outgoing.of(head, access), made)

    def test_cache_is_bounded(self) -> None:
        """It holds what is in use, not what ever was."""
        cache, head = OutgoingFields(b"kas"), head_of()
        who = Impersonation("u" * 100_000)
        for number in range(MAX_CACHED // 100_000 + 10):
            cache.of(head, Access(str(number), "1", "a", who))
            cache.of(head, Access("busy", "1", "a", Impersonation("u")))
        kept = sum(len(identity) for _, identity in cache._cached.values())
        self.assertEqual(
            cache._cached_bytes, kept + len(cache._cached) * _OVERHEAD, "counted wrong"
        )
        self.assertLessEqual(cache._cached_bytes, MAX_CACHED)
