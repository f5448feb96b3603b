"""What nobody can spend: requests that wait, and requests that are left."""

from __future__ import annotations

import secrets

import attrs
from twisted.internet.defer import Deferred

from modules.kubernetes_api import shares
from modules.kubernetes_api.fields import MAX_BLOCK, MAX_HEAD, PACKED_METHOD
from modules.kubernetes_api.frontdoor import MAX_CACHED, OutgoingFields
from modules.kubernetes_api.server import SMALL
from tests.modules.kubernetes_api.cases import (
    CHUNKED,
    EXEC,
    HELLO,
    SWITCH,
    ProxyCase,
    head_of,
)
from tests.modules.kubernetes_api.pair import WINDOW, World
from tunnel.api import (
    Access,
    CredentialRevoked,
    Impersonation,
)
from tunnel.errors import ErrorCode
from tunnel.testing import RecordingReceiver
from tunnel.toolkit.packing import pack


def crowded(count: int) -> Access:
    """A user of GitLab with three roles in each of *count* projects and groups."""
    groups = tuple(
        f"gitlab:{('group', 'project')[number % 2]}_role:{10_000_000 + number}:{role}"
        for number in range(count)
        for role in ("developer", "maintainer", "owner")
    )
    return Access("user:many", "1", "agent-1", Impersonation("many", groups))


class BackPressureTests(ProxyCase):
    """Nothing grows when somebody does not read."""

    def test_slow_client(self) -> None:
        """Its socket stops the stream, the stream the API server (lesson 22)."""
        wire = self.world.request()
        self.world.origin.receive(CHUNKED)
        self.world.run()
        assert wire.producer is not None
        wire.producer.pauseProducing()
        piece = b"8000\r\n" + b"x" * 32768 + b"\r\n"
        for _ in range(100):
            self.world.origin.receive(piece)
            self.world.run()
        self.assertLess(self.world.link.most, 2 * WINDOW)
        self.assertEqual(self.world.origin.producerState, "paused")
        wire.taken()
        wire.producer.resumeProducing()
        self.world.run()
        self.assertEqual(len(wire.taken()), 100 * len(piece))

    def test_small_answers(self) -> None:
        """One whose head says that it is small stops nothing, and gets no further."""
        for size, stops in ((SMALL, False), (SMALL + 1, True)):
            wire = self.world.request()
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
            self.world.origin.receive(head + b"x")
            self.world.run()
            self.assertEqual(wire.producer is not None, stops, size)
            self.world.origin.receive(b"x" * (size - 1))
            self.world.run()
            self.assertEqual(len(wire.taken().partition(b"\r\n\r\n")[2]), size)
            self.assertIsNone(wire.producer)

    def test_slow_api_server(self) -> None:
        """Its socket stops the stream, the stream the client."""
        wire = self.world.request(b"PUT /api HTTP/1.1", b"Content-Length: 3276800")
        producer = self.world.origin.producer
        assert producer is not None
        producer.pauseProducing()
        for _ in range(100):
            wire.receive(b"x" * 32768)
            self.world.run()
        self.assertLess(self.world.link.most, 2 * WINDOW)
        self.assertEqual(wire.producerState, "paused")
        self.world.origin.taken()
        producer.resumeProducing()
        self.world.run()
        self.assertEqual(len(self.world.origin.taken()), 3276800)
        self.world.origin.receive(HELLO)
        self.world.run()
        self.assertIn(b"hello", wire.taken())
        self.assert_clean()

    def test_slow_client_leaves(self) -> None:
        """A paused stream is freed like any other."""
        wire = self.world.request()
        self.world.origin.receive(CHUNKED)
        self.world.run()
        assert wire.producer is not None
        wire.producer.pauseProducing()
        self.world.origin.receive(b"1\r\nx\r\n")
        self.world.run()
        wire.lose(clean=False)
        self.world.run()
        self.world.origin.settle()
        self.assert_clean()


class AbortTests(ProxyCase):
    """Requests that end before they should."""

    def test_ten_thousand_aborts(self) -> None:
        """At every phase, by client, tunnel and API server: all counters at zero."""
        world = self.world
        for number in range(10_000):
            phase, who = number % 7, number // 7 % 3
            world.cluster.connections.at_once = phase != 0
            wire = world.client()
            if phase in (5, 6):
                lines = b"\r\n".join(EXEC) + b"\r\n"
            else:
                lines = b"POST /api HTTP/1.1\r\nContent-Length: 6\r\n"
            wire.receive(
                lines + b"Host: a\r\nAuthorization: Bearer user:1:alice\r\n\r\n"
            )
            world.run()
            if phase in (2, 3):
                wire.receive(b"abc")
            if phase == 3:
                world.run()
                world.origin.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab")
                world.run()
            if phase == 4:
                wire.receive(b"abcdef")
                world.run()
                world.origin.receive(CHUNKED + b"1\r\nx\r\n")
            if phase == 6:
                world.origin.receive(SWITCH + b"abc")
                world.run()
                wire.receive(b"abc")
            origin = None if phase == 0 else world.origin
            if who == 0 or origin is None:
                wire.lose(clean=False)
            elif who == 1:
                for stream in list(world.link.open):
                    stream.reset(ErrorCode.CANCELLED, "cut")
            else:
                origin.lose(clean=False)
            world.run()
            wire.lose(clean=False)
            for each in world.cluster.connections.wires:
                each.settle()
                each.lose(clean=False)
            world.cluster.connections.wires.clear()
        self.assert_clean()
        self.assertEqual(world.cluster.connections.attempts, [])
        self.assertEqual(world.server.front.connections, set())
        # Sweeps of connections, and what is remembered for a while: credentials, heads.
        world.clock.pump([1.0] * 61)
        self.assertEqual(world.clock.getDelayedCalls(), [])

    def test_abort_reaches_the_api_server_at_once(self) -> None:
        """The API server stops working for a client that left."""
        wire = self.world.request(b"GET /slow HTTP/1.1")
        wire.lose(clean=False)
        self.world.run()
        self.assertTrue(self.world.origin.aborted)

    def test_turns(self) -> None:
        """Connections of one user share turns, and not those of one address."""
        wire = self.world.request()
        self.assertEqual(wire.protocol._turns_of, "user:alice")
        stranger = self.world.request(token=b"user:1:unknown")
        self.assertIsNone(stranger.protocol._turns_of)
        self.world.origin.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.world.run()
        # A proxy sends requests of several users on one connection.
        wire.receive(
            b"GET /api HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer user:1:root\r\n\r\n"
        )
        self.world.run()
        self.assertEqual(wire.protocol._turns_of, "user:root")
        self.assertFalse(wire.protocol._turns_ended)
        # Between requests such a connection need not wait for the turns of one user,
        # and neither need others of the proxy.
        self.world.origin.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.world.run()
        self.assertTrue(wire.protocol._turns_ended)
        other = self.world.request()
        self.assertEqual(other.protocol._turns_of, "user:alice")
        self.world.origin.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.world.run()
        self.assertTrue(other.protocol._turns_ended)

    def test_revoked(self) -> None:
        """Every live request of the credential ends, others go on."""
        waiting = self.world.request()
        watch = self.world.request(b"GET /watch HTTP/1.1")
        self.world.origin.receive(CHUNKED)
        other = self.world.request(b"GET /x HTTP/1.1", token=b"user:1:root")
        self.world.run()
        self.successResultOf(Deferred.fromCoroutine(self.world.server.start()))
        for told in self.world.server_api.subscribers[CredentialRevoked]:
            told(CredentialRevoked("user:alice"))
        self.world.run()
        head = self.assert_error(waiting, 401, "revoked")
        self.assertIn(b"Gitlab-Unauthorized: true\r\n", head)
        self.assertTrue(watch.aborted)
        self.world.origin.receive(HELLO)
        self.world.run()
        self.assertIn(b"hello", other.taken())
        for origin in self.world.cluster.connections.wires:
            origin.settle()
        self.assert_clean()


class LimitTests(ProxyCase):
    """What one agent and one credential may have under way."""

    def test_per_credential(self) -> None:
        """429 with Retry-After, and room again when one is done."""
        self.world = World(max_requests_per_credential=2)
        first = self.world.request()
        self.world.request()
        head = self.assert_error(self.world.request(), 429, "user alice")
        self.assertIn(b"Retry-After: 1", head)
        other = self.world.request(token=b"user:1:root")
        self.assertEqual(other.taken(), b"")
        first.lose()
        self.world.run()
        self.assertEqual(self.world.request().taken(), b"")

    def test_per_agent(self) -> None:
        """Half of it is for any, the rest for each by its share."""
        self.world = World(max_requests_per_agent=4)
        for _ in range(2):
            self.assertEqual(self.world.request().taken(), b"")
        self.assert_error(self.world.request(), 429, " are in progress: its share is 2")
        self.assertEqual(self.world.request(token=b"user:1:root").taken(), b"")
        text = "user root at agent agent-1 are in progress: its share is 1"
        self.assert_error(self.world.request(token=b"user:1:root"), 429, text)

    def test_agent_is_full(self) -> None:
        """Whoever sends it."""
        self.world = World(max_requests_per_agent=1)
        self.assertEqual(self.world.request().taken(), b"")
        text = "too many requests at agent agent-1 are in progress"
        self.assert_error(self.world.request(token=b"user:1:root"), 429, text)

    def test_together_with_other_workers(self) -> None:
        """What they have under way counts here as well."""
        self.world = World(max_requests_per_credential=2, max_requests_per_agent=5)
        callers, agents = self.world.server_api.together.values()
        first = self.world.request()
        ((owner, _),) = callers.now()
        callers.heard("other", owner, 1)
        head = self.assert_error(self.world.request(), 429, "user alice")
        self.assertIn(b"Retry-After: 1", head)
        callers.heard("other", owner, 0)
        ((agent_id, _),) = agents.now()
        agents.heard("other", agent_id, 5)
        text = "too many requests at agent agent-1 are in progress"
        self.assert_error(self.world.request(), 429, text)
        agents.gone("other")
        self.assertEqual(self.world.request().taken(), b"")
        self.assertEqual(dict(agents.now()), {agent_id: 2})
        first.lose()
        self.world.run()
        self.assertEqual(dict(agents.now()), {agent_id: 1})

    def test_per_second(self) -> None:
        """429 with Retry-After, and room again after a while."""
        self.world = World(max_requests_per_second=2)
        for _ in range(2):
            self.assertEqual(self.world.request().taken(), b"")
        text = "too many requests of user alice arrive: 2 in a second are allowed"
        head = self.assert_error(self.world.request(), 429, text)
        self.assertIn(b"Retry-After: 1", head)
        self.assertEqual(self.world.request(token=b"user:1:root").taken(), b"")
        self.world.clock.advance(0.5)
        self.assertEqual(self.world.request().taken(), b"")
        self.assert_error(self.world.request(), 429, text)

    def test_flood(self) -> None:
        """Beside another credential a turn takes a few; none is lost, in order."""
        world = self.world
        self.assertEqual(world.request(token=b"user:1:root").taken(), b"")
        flood = [world.client() for _ in range(20)]
        for number, wire in enumerate(flood):
            wire.receive(
                b"POST /%d HTTP/1.1\r\nHost: kas\r\nAuthorization: Bearer user:1:alice"
                b"\r\nContent-Length: 4\r\n\r\nbody" % number
            )
        world.run()
        wires = world.cluster.connections.wires
        room = shares.room_of(shares.HEAVIEST)
        self.assertEqual(len(wires), 1 + room)
        wires[1].receive(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        world.run()
        # On the connection that the first one left.
        self.assertEqual(wires[1].taken().count(b"POST"), 2)
        while len(wires) < 20:
            world.clock.advance(shares.FAST_SECONDS)
            world.run()
        targets = [wire.taken().split()[1] for wire in wires[2:]]
        self.assertEqual(targets, [b"/%d" % n for n in range(1, 20) if n != room])

    def test_front_limits_come_from_the_configuration(self) -> None:
        """And their errors are Status objects, too."""
        self.world = World(
            max_header_bytes=1000, max_header_count=5, header_timeout=3.0
        )
        self.assert_error(
            self.world.request(b"GET / HTTP/1.1", b"A: " + b"x" * 1000), 431
        )
        self.assert_error(self.world.request(b"GET / HTTP/1.1", *[b"A: b"] * 4), 431)
        wire = self.world.client()
        wire.receive(b"GET")
        self.world.clock.pump([1.0] * 4)
        self.assert_error(wire, 408)

    def test_as_many_groups_as_gitlab_gives(self) -> None:
        """Three roles in each of 500 projects and 500 groups reach the API server."""
        self.let_in(crowded(1_000))
        for _ in range(2):
            wire = self.world.request(token=b"pat:1:many")
            sent = self.world.origin.taken()
            self.assertEqual(sent.count(b"Impersonate-Group: "), 3_000)
            self.assertIn(
                b"Impersonate-Group: gitlab:project_role:10000999:owner", sent
            )
            self.world.origin.receive(HELLO)
            self.world.run()
            self.assertIn(b"200 OK", wire.taken())
        self.assertLessEqual(max(map(len, self.world.link.opened)), MAX_BLOCK)
        self.assert_clean()

    def test_lines_are_counted_in_kas_alone(self) -> None:
        """What kas is configured to take, agentk takes, and kas takes the answer."""
        self.world = World(max_header_count=1_500)
        lines = [b"A: b"] * 1_490
        wire = self.world.request(b"GET /api HTTP/1.1", *lines)
        self.assertEqual(self.world.origin.taken().count(b"\r\nA: b"), 1_490)
        more = b"".join(b"B%d: c\r\n" % number for number in range(255))
        self.world.origin.receive(
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + more + b"\r\n"
        )
        self.world.run()
        self.assertEqual(wire.taken().count(b": c\r\n"), 255)
        self.assert_error(
            self.world.request(b"GET / HTTP/1.1", *[b"A: b"] * 1_501),
            431,
            "client -> kas: more than 1500 header lines",
        )
        self.assert_clean()

    def test_too_many_groups(self) -> None:
        """The error names the user's groups, and not the client's request."""
        self.let_in(crowded(4_000))
        wire = self.world.request(token=b"pat:1:many")
        self.assert_error(
            wire, 431, "kas -> agent: user many has too many groups: with 12000 of them"
        )
        self.assert_clean()

    def test_agentk_that_cannot_unpack(self) -> None:
        """An older one refuses the request, and does not send it as itself."""
        self.let_in(crowded(1_000))
        del self.world.link.handlers[PACKED_METHOD]
        wire = self.world.request(token=b"pat:1:many")
        self.assert_error(wire, 502, "agentk is too old", "3000 groups")
        self.assertEqual(self.world.cluster.connections.wires, [])
        self.assert_clean()

    def test_damaged_head(self) -> None:
        """agentk answers what it cannot unpack."""
        for block in (b"", b"\r\n", b"\r\nx", b"\r\n" + pack(bytes(MAX_HEAD + 1))):
            receiver = RecordingReceiver()
            self.world.link.open_stream("1", PACKED_METHOD, receiver, block, True)
            self.world.run()
            self.assertIn(b"502", receiver.headers[0], block[:10])
        self.assert_clean()

    def test_cached_identities_are_bounded(self) -> None:
        """In bytes: a few large ones displace each other."""
        fields, head = OutgoingFields(b"kas"), head_of()
        for number in range(200):
            access = attrs.evolve(crowded(1_000), credential_id=f"user:{number}")
            fields.of(head, access)
            kept = sum(len(entry[1]) for entry in fields._cached.values())
            self.assertLessEqual(kept, MAX_CACHED)
        self.assertGreater(len(fields._cached), 1)

    def let_in(self, access: Access) -> None:
        self.world.server_api.access["many"] = access

    def test_head_that_does_not_fit_the_tunnel(self) -> None:
        """A client's fields that cannot be packed either are the client's fault."""
        self.world = World(max_header_bytes=200_000)
        large = secrets.token_hex(65_000).encode()
        wire = self.world.request(b"GET / HTTP/1.1", b"A: " + large)
        self.assert_error(wire, 431, "too large")
        self.assert_clean()
