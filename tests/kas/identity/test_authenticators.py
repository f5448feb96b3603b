"""Several authenticators: one that knows its answers, and one that has to ask."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from kas.identity import authenticators as module
from kas.identity.authenticators import CHECK_TIMEOUT, Authenticators
from kas.identity.file_authenticator import FileAuthenticator
from tests.kas.identities import IdentityCase
from tests.stubborn import stubborn
from tunnel.api import Access, AgentIdentity, IAuthenticator, Reach
from tunnel.errors import CallError, Status
from tunnel.program.runtime import Runtime

ALICE = Access("remote:alice", "1", "prod")
PROD = AgentIdentity("1", "prod", "agent:1:remote")


@implementer(IAuthenticator)
class Remote:
    """Asks another server for each answer."""

    user_kinds: Sequence[str] = ("remote", "ci")
    agent_prefixes: Sequence[bytes] = (b"remote-",)

    def __init__(self) -> None:
        self.asked: list[tuple[str, str] | bytes] = []
        self.accesses: list[Deferred[Access]] = []
        self.identities: list[Deferred[AgentIdentity]] = []
        self.cancelled = 0

    def _cancel(self, answer: Deferred[object]) -> None:
        self.cancelled += 1

    def authorize_user(self, agent: str, token: str) -> Deferred[Access]:
        self.asked.append((agent, token))
        answer: Deferred[Access] = Deferred(self._cancel)
        self.accesses.append(answer)
        return answer

    def authenticate_agent(self, token: bytes) -> Deferred[AgentIdentity]:
        self.asked.append(token)
        answer: Deferred[AgentIdentity] = Deferred(self._cancel)
        self.identities.append(answer)
        return answer


class AuthenticatorsTests(IdentityCase):
    def setUp(self) -> None:
        super().setUp()
        self.clock = Clock()
        self.file = FileAuthenticator(
            self.state.file("identity.json"),
            Runtime(reactor=self.clock, now=lambda: 0.0),
        )
        self.remote = Remote()
        self.all = Authenticators(self.clock)
        self.all.add(self.file)
        self.remove = self.all.add(self.remote)
        _, self.agent_token = self.store.add_agent("prod")
        _, self.user_token = self.store.add_user("bob", ["prod"], None)
        self.file.start()
        self.addCleanup(self.file.stop)

    def test_reach(self) -> None:
        """Of authenticators that can list agents; others say that they cannot."""
        found = self.all.reach_of_user("user", self.user_token)
        assert isinstance(found, Reach)
        self.assertEqual([one.agent_name for one in found.agents], ["prod"])
        self.assertEqual(found, self.all.reach_of_user("", self.user_token))
        for kind, status in (
            ("remote", Status.UNIMPLEMENTED),
            ("nobody", Status.UNAUTHENTICATED),
        ):
            with self.assertRaises(CallError) as refused:
                self.all.reach_of_user(kind, "token")
            self.assertEqual(refused.exception.status, status)
        self.assertEqual(self.remote.asked, [])

    def refused(self, kind: str) -> CallError:
        with self.assertRaises(CallError) as refused:
            self.all.authorize_user(kind, "prod", "token")
        error: CallError = refused.exception
        return error

    def ask(self) -> Deferred[Access]:
        answer = self.all.authorize_user("remote", "prod", "token")
        assert isinstance(answer, Deferred)
        return answer

    def test_interface(self) -> None:
        verifyObject(IAuthenticator, self.file)
        verifyObject(IAuthenticator, self.remote)

    def test_known_at_once(self) -> None:
        """No Deferred is made for what the file says."""
        for kind in ("user", ""):
            access = self.all.authorize_user(kind, "prod", self.user_token)
            assert isinstance(access, Access)
            self.assertEqual(access.credential_id, "user:bob")
        identity = self.all.authenticate_agent(self.agent_token.encode())
        assert isinstance(identity, AgentIdentity)
        self.assertEqual((identity.agent_name, self.all.checks), ("prod", 0))
        self.assertEqual(self.remote.asked, [])

    def test_answers_later(self) -> None:
        for kind in self.remote.user_kinds:
            answer = self.all.authorize_user(kind, "prod", "token")
            assert isinstance(answer, Deferred)
            self.assertNoResult(answer)
            self.assertEqual(self.all.checks, 1)
            self.remote.accesses.pop().callback(ALICE)
            self.assertIs(self.successResultOf(answer), ALICE)
        token = self.all.authenticate_agent(b"remote-token")
        assert isinstance(token, Deferred)
        self.remote.identities.pop().callback(PROD)
        self.assertIs(self.successResultOf(token), PROD)
        self.assertEqual(
            self.remote.asked, [("prod", "token"), ("prod", "token"), b"remote-token"]
        )
        self.assertEqual((self.all.checks, self.clock.getDelayedCalls()[1:]), (0, []))

    def test_unknown_kind(self) -> None:
        error = self.refused("pat")
        self.assertEqual(error.status, Status.UNAUTHENTICATED)
        self.assertEqual(
            error.message,
            (
                "credentials of kind 'pat' are unknown here; use 'user' or 'remote' or "
                "'ci'; if your kubeconfig contains one, get a new kubeconfig, because "
                "its token was changed"
            ),
        )
        self.assertLess(len(self.refused("x" * 999).message), 200)

    def test_unknown_kind_of_agent(self) -> None:
        """The first one says what it takes."""
        with self.assertRaises(CallError) as refused:
            self.all.authenticate_agent(b"glagent-token")
        self.assertIn("the agent token is not valid", refused.exception.message)

    def test_none(self) -> None:
        with self.assertRaises(CallError):
            Authenticators(self.clock).authenticate_agent(b"token")
        with self.assertRaises(CallError):
            Authenticators(self.clock).authorize_user("", "prod", "token")

    def test_removed(self) -> None:
        self.remove()
        self.assertIn("use 'user'", self.refused("remote").message)
        with self.assertRaises(CallError):
            self.all.authenticate_agent(b"remote-token")
        self.all.add(self.remote)
        self.ask()

    def test_what_a_token_begins_with(self) -> None:
        """It stands for a kind that is not named, until that is removed."""

        class Other(Remote):
            user_kinds: Sequence[str] = ("pat",)
            agent_prefixes: Sequence[bytes] = ()

        other = Other()
        remove = self.all.add(other, token_prefix="glpat-")
        for token in ("glpat-1", "1-glpat-"):
            with contextlib.suppress(CallError):
                self.all.authorize_user("", "prod", token)
        self.assertEqual(other.asked, [("prod", "glpat-1")])
        # A kind that is named counts more than what its token begins with.
        self.all.authorize_user("remote", "prod", "glpat-2")
        remove()
        with self.assertRaises(CallError):
            self.all.authorize_user("", "prod", "glpat-3")
        self.assertEqual(len(other.asked), 1)
        self.assertEqual(self.remote.asked, [("prod", "glpat-2")])

    def test_the_longest_prefix(self) -> None:
        """
        Whatever the order: the authenticator of any prefix receives no token of another
        one.
        """

        class Any(Remote):
            user_kinds: Sequence[str] = ("any",)
            agent_prefixes: Sequence[bytes] = (b"",)

        class Module(Remote):
            user_kinds: Sequence[str] = ("acme",)
            agent_prefixes: Sequence[bytes] = (b"acme-", b"re")

        for order in (1, -1):
            found = Authenticators(self.clock)
            gitlab, module = Any(), Module()
            for one, prefix in [(gitlab, "gl"), (module, "glacme-")][::order]:
                found.add(one, token_prefix=prefix)
            found.add(self.remote)
            self.remote.asked.clear()
            for token in (b"acme-1", b"acme", b"remote-1", b"re"):
                found.authenticate_agent(token)
            for text in ("glacme-2", "gl-2"):
                found.authorize_user("", "prod", text)
            self.assertEqual(gitlab.asked, [b"acme", ("prod", "gl-2")])
            self.assertEqual(module.asked, [b"acme-1", b"re", ("prod", "glacme-2")])
            self.assertEqual(self.remote.asked, [b"remote-1"])

    def test_one_for_each_kind(self) -> None:
        class Other(Remote):
            user_kinds: Sequence[str] = ("new", "ci")
            agent_prefixes: Sequence[bytes] = ()

        class Same(Other):
            user_kinds = ("new",)
            agent_prefixes = (b"remote-",)

        for other in (Other(), Same()):
            with self.assertRaises(ValueError):
                self.all.add(other)
        self.assertIn("'new'", self.refused("new").message)

    def test_refused_later(self) -> None:
        answer = self.ask()
        refusal = CallError(Status.PERMISSION_DENIED, "no")
        self.remote.accesses.pop().errback(refusal)
        self.assertIs(self.failureResultOf(answer, CallError).value, refusal)
        self.assertEqual(self.all.checks, 0)

    def test_fails(self) -> None:
        """Its fault is logged, and the client learns nothing of it."""
        answer = self.ask()
        self.remote.accesses.pop().errback(ZeroDivisionError("secret"))
        error = self.failureResultOf(answer, CallError).value
        self.assertEqual(error.status, Status.INTERNAL)
        self.assertNotIn("secret", error.message)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.all.checks, 0)

    def test_client_leaves(self) -> None:
        answer = self.ask()
        answer.cancel()
        self.failureResultOf(answer, CancelledError)
        self.assertEqual((self.remote.cancelled, self.all.checks), (1, 0))

    def test_too_late(self) -> None:
        answer = self.ask()
        self.clock.advance(CHECK_TIMEOUT - 0.1)
        self.assertNoResult(answer)
        self.clock.advance(0.1)
        error = self.failureResultOf(answer, CallError).value
        self.assertEqual(error.status, Status.UNAVAILABLE)
        self.assertIn("within 8 s", error.message)
        self.assertEqual((self.remote.cancelled, self.all.checks), (1, 0))

    def test_a_check_that_survives_its_cancellation(self) -> None:
        """It takes no room from others."""

        self.patch(
            self.remote,
            "authorize_user",
            lambda *_: Deferred.fromCoroutine(stubborn()),
        )
        answer = self.ask()
        self.clock.advance(CHECK_TIMEOUT)
        error = self.failureResultOf(answer, CallError).value
        self.assertEqual(error.status, Status.UNAVAILABLE)
        self.assertEqual(self.all.checks, 0)

    def test_too_many(self) -> None:
        """What would wait beside too many others does not; what is known needs not."""
        self.patch(module, "MAX_CHECKS", 3)
        waiting = [self.ask() for _ in range(3)]
        error = self.refused("remote")
        self.assertEqual(error.status, Status.UNAVAILABLE)
        self.assertEqual((self.remote.cancelled, self.all.checks), (1, 3))
        self.all.authorize_user("user", "prod", self.user_token)
        self.remote.accesses[0].callback(ALICE)
        self.successResultOf(waiting[0])
        waiting.append(self.ask())
        self.assertEqual(self.all.checks, 3)
        for one in waiting[1:]:
            one.cancel()
            self.failureResultOf(one, CancelledError)


class OrderTests(SynchronousTestCase):
    def test_answered_already(self) -> None:
        """A Deferred that has its result counts no longer."""

        class Quick(Remote):
            def authorize_user(self, agent: str, token: str) -> Deferred[Access]:
                answer = super().authorize_user(agent, token)
                answer.callback(ALICE)
                return answer

        clock = Clock()
        all_ = Authenticators(clock)
        all_.add(Quick())
        answer = all_.authorize_user("ci", "prod", "token")
        assert isinstance(answer, Deferred)
        self.assertIs(self.successResultOf(answer), ALICE)
        self.assertEqual((all_.checks, clock.getDelayedCalls()), (0, []))


@pytest.mark.parametrize("error", [None, CancelledError(), ZeroDivisionError()])
def test_answer_that_is_not_needed(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """The failure of an unread answer is logged, except for a cancellation."""
    monkeypatch.setattr(module, "MAX_CHECKS", 0)
    remote = Remote()
    several = Authenticators(Clock())
    several.add(remote)
    authorize_user = remote.authorize_user

    def fail_at_once(agent: str, token: str) -> Deferred[Access]:
        answer = authorize_user(agent, token)
        if error is not None:
            answer.errback(error)
        return answer

    monkeypatch.setattr(remote, "authorize_user", fail_at_once)
    with capturedLogs() as logged, pytest.raises(CallError):
        several.authorize_user("remote", "prod", "token")
    assert [event["log_format"] for event in logged] == (
        ["an authenticator failed"] if isinstance(error, ZeroDivisionError) else []
    )
    assert remote.cancelled == (error is None)
