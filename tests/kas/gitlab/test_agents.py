"""GitLab says which agent a token belongs to, and when it does no longer."""

from __future__ import annotations

import hashlib
from typing import Any
from unittest.mock import Mock

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from zope.interface.verify import verifyObject

from kas.config.gitlab import ApiRateLimit
from kas.gitlab.agents import MAX_TOKEN, GitLabAgents
from kas.gitlab.cache import Lifetimes
from kas.gitlab.renewal import MAX_RENEWING, Renewal
from kas.identity.authenticators import CHECK_TIMEOUT, Authenticators
from tests.fakes.gitlab import FakeAgent
from tests.kas.gitlab.cases import TOKEN, GitLabCase
from tunnel.api import AgentIdentity, IAuthenticator
from tunnel.errors import CallError, Status

LIFETIMES = Lifetimes(success=300, error=60, outage=14400)


class AgentsTests(GitLabCase):
    def setUp(self) -> None:
        super().setUp()
        self.connected: set[str] = set()
        self.revoked: list[str] = []
        self.agents = GitLabAgents(
            self.client, LIFETIMES, lambda: self.connected, self.clock
        )
        self.agents.renewal.on_revoked(self.revoked.append)
        self.agents.renewal.start()
        self.addCleanup(self.agents.renewal.stop)

    def authenticate(self, token: bytes = TOKEN) -> Any:
        """The identity, or the error."""
        try:
            answer = self.agents.authenticate_agent(token)
        except CallError as error:
            return error
        if not isinstance(answer, Deferred):
            return answer
        self.settle()
        found: list[Any] = []
        answer.addBoth(found.append)
        return getattr(found[0], "value", found[0])

    def connect(self) -> AgentIdentity:
        identity = self.authenticate()
        assert isinstance(identity, AgentIdentity)
        self.connected.add(identity.credential_id)
        return identity

    def test_nothing_is_kept(self) -> None:
        """With 0s GitLab is asked for each connection, and once a minute meanwhile."""
        self.agents.renewal.stop()
        self.agents = GitLabAgents(
            self.client,
            Lifetimes(success=0, error=0, outage=14400),
            lambda: self.connected,
            self.clock,
        )
        self.agents.renewal.on_revoked(self.revoked.append)
        self.agents.renewal.start()
        self.addCleanup(self.agents.renewal.stop)
        identity = self.connect()
        self.connect()
        self.assertEqual(self.gitlab.asked[TOKEN.decode()], 2)
        self.clock.advance(60)
        self.settle()
        self.assertEqual(self.gitlab.asked[TOKEN.decode()], 3)
        self.assertEqual(self.revoked, [])
        del self.gitlab.agents[TOKEN.decode()]
        self.assertIsInstance(self.authenticate(), CallError)
        self.clock.advance(60)
        self.settle()
        self.assertEqual(self.revoked, [identity.credential_id])

    def test_accepted(self) -> None:
        self.assertTrue(verifyObject(IAuthenticator, self.agents))
        identity = self.authenticate()
        self.assertEqual(
            (identity.agent_id, identity.agent_name, identity.project_id),
            ("7", "prod", 42),
        )
        self.assertTrue(identity.credential_id.startswith("agent:7:"))
        self.assertNotIn(TOKEN.decode(), repr(identity))
        # From now on at once.
        self.assertEqual(self.agents.authenticate_agent(TOKEN), identity)
        self.assertEqual(self.gitlab.asked[TOKEN.decode()], 1)
        self.assert_obeyed()

    def test_refused(self) -> None:
        """401, 403 and 404 are refusals that agentk does not try again soon."""
        for mood, status, word in (
            ("401", Status.UNAUTHENTICATED, "does not know this agent token"),
            ("403", Status.PERMISSION_DENIED, "does not permit"),
            ("404", Status.UNAUTHENTICATED, "does not have the agent"),
        ):
            token = f"glagent-{mood}".encode()
            self.gitlab.mood = mood
            for _ in range(2):
                error = self.authenticate(token)
                self.assertEqual(error.status, status)
                self.assertIn(word, error.message)
            self.assertEqual(self.gitlab.asked[token.decode()], 1)

    def test_no_token(self) -> None:
        """What cannot be one is not asked about."""
        blanks = (TOKEN + b" ", b"\t" + TOKEN, TOKEN + b"\r\n", b"a\r\nb: c", b"a\x00")
        for token in (b"", b"x" * (MAX_TOKEN + 1), b"\xff\xfe", *blanks):
            self.assertEqual(self.authenticate(token).status, Status.UNAUTHENTICATED)
        self.assertEqual(self.gitlab.times, [])

    def test_not_readable(self) -> None:
        """An answer that lacks something says nothing of the token."""
        self.gitlab.mood = "partial"
        self.assertEqual(self.authenticate().status, Status.UNAVAILABLE)
        self.gitlab.mood = "ok"
        for agent in (
            FakeAgent(0, "prod", 42),
            FakeAgent(7, "", 42),
            FakeAgent(7, "x" * 64, 42),
            FakeAgent(7, "a\nb", 42),
            FakeAgent(True, "prod", 42),
            FakeAgent(7, "prod", 2**63),
        ):
            self.gitlab.agents[TOKEN.decode()] = agent
            self.assertEqual(self.authenticate().status, Status.UNAVAILABLE)

    def test_revoked(self) -> None:
        """A token that GitLab took back ends within the lifetime of the answer."""
        identity = self.connect()
        del self.gitlab.agents[TOKEN.decode()]
        self.wait(200, 1)
        self.assertEqual(self.revoked, [])
        self.wait(100, 1)
        self.assertEqual(self.revoked, [identity.credential_id])
        self.assertEqual(self.authenticate().status, Status.UNAUTHENTICATED)
        # Once, and it is asked about no more.
        self.connected.clear()
        asked = self.gitlab.asked[TOKEN.decode()]
        self.wait(600, 1)
        self.assertEqual(len(self.revoked), 1)
        self.assertEqual(self.gitlab.asked[TOKEN.decode()], asked)

    def test_refused_elsewhere(self) -> None:
        """GitLab's no to a new connection ends the older ones soon, too."""
        identity = self.connect()
        self.gitlab.mood = "down"
        self.wait(299, 1)
        self.gitlab.mood = "ok"
        del self.gitlab.agents[TOKEN.decode()]
        self.clock.pump([0.5, 0.5])
        self.assertEqual(self.authenticate().status, Status.UNAUTHENTICATED)
        self.wait(16, 1)
        self.assertEqual(self.revoked, [identity.credential_id])

    def test_hangs(self) -> None:
        """An agent that GitLab knew comes back while GitLab does not answer."""
        self.connect()
        self.connected.clear()
        self.wait(301, 1)
        self.gitlab.delay = 3600
        every = Authenticators(self.clock)
        every.add(self.agents)
        answer = every.authenticate_agent(TOKEN)
        assert isinstance(answer, Deferred)
        self.wait(CHECK_TIMEOUT - 1, 0.5)
        self.assertEqual(self.successResultOf(answer).agent_id, "7")

    def test_few_at_a_time(self) -> None:
        """An agent that comes does not wait for all that are asked about again."""
        count = 10 * MAX_RENEWING
        tokens = [f"token-{number}" for number in range(count)]
        for number, token in enumerate(tokens):
            self.gitlab.agents[token] = FakeAgent(number + 10, "a", 42)
            answer = self.authenticate(token.encode())
            self.connected.add(answer.credential_id)
        self.gitlab.delay = 1
        self.wait(239, 1)
        asked = len(self.gitlab.times)
        self.wait(3, 0.25)
        self.assertLessEqual(len(self.gitlab.times) - asked, 3 * MAX_RENEWING)
        self.assertEqual(self.client.queue.waiting, 0)
        self.wait(15, 0.25)
        self.assertEqual({self.gitlab.asked[token] for token in tokens}, {2})
        # All at once, where each fails as soon as it is asked.
        self.gitlab.mood = "down"
        self.gitlab.delay = 0
        self.wait(300, 1)
        self.gitlab.mood = "ok"
        self.wait(30, 0.5)
        self.assertLess(max(self.agents.answers.age(k) for k in self.keys(tokens)), 60)

    def keys(self, tokens: list[str]) -> list[bytes]:
        return [hashlib.sha256(token.encode()).digest() for token in tokens]

    def test_wrong_secret(self) -> None:
        """It keeps new agents out, and ends no tunnel."""
        self.connect()
        self.gitlab.secret = b"x" * 32
        self.wait(LIFETIMES.success * 3, 1)
        self.assertEqual(self.revoked, [])
        self.assertEqual(self.authenticate(b"glagent-new").status, Status.UNAVAILABLE)

    def test_other_agent(self) -> None:
        """A token that belongs to another agent now ends what the first one opened."""
        identity = self.connect()
        self.gitlab.agents[TOKEN.decode()] = FakeAgent(8, "other", 42)
        self.wait(300, 1)
        self.assertEqual(self.revoked, [identity.credential_id])

    def test_still_good(self) -> None:
        """A connected agent costs GitLab one request in 240 seconds."""
        self.connect()
        self.wait(3000, 1)
        self.assertEqual(self.revoked, [])
        self.assertLessEqual(self.gitlab.asked[TOKEN.decode()], 1 + 3000 / 240)

    def test_not_connected(self) -> None:
        """An agent that left is not asked about."""
        self.authenticate()
        self.wait(3000, 1)
        self.assertEqual(self.gitlab.asked[TOKEN.decode()], 1)

    def test_outage(self) -> None:
        """
        An hour without GitLab: who is connected stays, and may come back.

        A new agent learns that it is GitLab, and is accepted as soon as it is back.
        """
        self.connect()
        self.gitlab.mood = "down"
        self.wait(3600, 1)
        self.assertEqual(self.revoked, [])
        self.assertIsInstance(self.authenticate(), AgentIdentity)
        new = b"glagent-new"
        self.gitlab.agents[new.decode()] = FakeAgent(9, "new", 42)
        error = self.authenticate(new)
        self.assertEqual(error.status, Status.UNAVAILABLE)
        self.assertIn("GitLab", error.message)
        self.gitlab.mood = "ok"
        self.assertEqual(self.authenticate(new).agent_id, "9")

    def test_outage_has_an_end(self) -> None:
        """After the documented bound an agent does not come back on an old answer."""
        self.authenticate()
        self.gitlab.mood = "down"
        self.wait(LIFETIMES.outage + 10, 10)
        self.assertEqual(self.authenticate().status, Status.UNAVAILABLE)


class StormTests(GitLabCase):
    """Agents that come at once after an outage."""

    limit = ApiRateLimit(refill_rate_per_second=5, bucket_size=12)
    count = 150

    def test_storm(self) -> None:
        """
        One question for each token, at the configured rate, and all get in.

        An agent that is told to wait tries again after some seconds, as agentk does.
        """
        for number in range(self.count):
            self.gitlab.agents[f"token-{number}"] = FakeAgent(number + 1, "a", 42)
        agents = GitLabAgents(self.client, LIFETIMES, set, self.clock)
        every = Authenticators(self.clock)
        every.add(agents)
        accepted: set[int] = set()

        def come(number: int) -> None:
            try:
                answer = every.authenticate_agent(f"token-{number}".encode())
            except CallError as error:
                self.assertEqual(error.status, Status.UNAVAILABLE)
                self.clock.callLater(3 + number % 7, come, number)
                return
            if not isinstance(answer, Deferred):
                accepted.add(number)
                return
            answer.addCallbacks(
                lambda identity: accepted.add(number),
                lambda failure: self.clock.callLater(3 + number % 7, come, number),
            )

        for number in range(self.count):
            come(number)
        self.settle()
        while len(accepted) < self.count:
            self.wait(1, 0.5)
            self.assertLess(self.clock.seconds(), 4 * self.count / 5)
        self.assertEqual(set(self.gitlab.asked.values()), {1})
        self.assertEqual(len(self.gitlab.asked), self.count)
        times = self.gitlab.times
        for first, later in zip(times, times[20:], strict=False):
            # The clock goes in steps of half a second.
            self.assertGreaterEqual(later - first, (20 - 12) / 5 - 0.5)


def test_a_credential_whose_look_fails() -> None:
    """Others are looked at all the same, and the next look comes."""
    clock = Clock()
    answers = Mock()
    answers.kept.return_value = "answer"
    answers.age.return_value = 0.0
    lifetimes = Lifetimes(success=300.0, error=60.0, outage=1000.0)
    renewal: Any = Renewal(answers, lifetimes, lambda: ["bad", "good"], clock)
    ended: list[str] = []
    renewal.on_revoked(ended.append)
    renewal.add("bad", b"1", "", "meaning", lambda answer: 1 / 0)
    renewal.add("good", b"2", "", "meaning", lambda answer: "another")
    renewal.start()
    with capturedLogs() as events:
        (call,) = clock.getDelayedCalls()
        clock.advance(call.getTime())
    assert ended == ["good"]
    assert len([one for one in events if "log_failure" in one]) == 1
    assert renewal._loop.running
    renewal.stop()
