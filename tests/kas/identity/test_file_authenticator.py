"""The identity file as kas follows it."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import attrs
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from kas.identity import file_authenticator as module
from kas.identity.file import FILE_NAME, Identities, Token, User, dump
from kas.identity.file_authenticator import POLL_INTERVAL, FileAuthenticator
from kas.identity.store import digest
from tests.kas.identities import ALICE, START, IdentityCase, temporary
from tunnel.api import Access, ReachableAgent
from tunnel.errors import CallError, ConfigurationError, Status
from tunnel.program.runtime import Runtime


class AuthenticatorCase(IdentityCase):
    """An authenticator that follows the file."""

    def setUp(self) -> None:
        super().setUp()
        self.clock = Clock()
        # All its answers are there at once, but of large files.
        self.identity: Any = FileAuthenticator(
            self.state.file(FILE_NAME),
            Runtime(reactor=self.clock, now=lambda: self.time.timestamp()),
        )
        self.ended: list[str] = []
        self.identity.on_revoked(self.ended.append)

    def started(self) -> Any:
        self.identity.start()
        self.addCleanup(self.identity.stop)
        return self.identity

    def started_elsewhere(self) -> Any:
        """One that leaves the agents to another authenticator."""
        self.identity = FileAuthenticator(
            self.state.file(FILE_NAME),
            Runtime(reactor=self.clock, now=lambda: self.time.timestamp()),
            elsewhere=True,
        )
        return self.started()

    def pass_time(self, seconds: float = POLL_INTERVAL) -> None:
        self.time += timedelta(seconds=seconds)
        self.clock.advance(seconds)

    def assertStatus(
        self, status: Status, call: Callable[..., object], *arguments: object
    ) -> str:
        error = self.assertRaises(CallError, call, *arguments)
        self.assertEqual(error.status, status)
        return str(error)


class FileAuthenticatorTests(AuthenticatorCase):
    """What a running kas makes of it."""

    def assertAgentRefused(self, token: str) -> str:
        return self.assertStatus(
            Status.UNAUTHENTICATED,
            lambda: self.identity.authenticate_agent(token.encode()),
        )

    def test_agent(self) -> None:
        _, token = self.store.add_agent("prod", 42)
        got = self.started().authenticate_agent(token.encode())
        self.assertEqual(got.project_id, 42)
        self.assertEqual((got.agent_id, got.agent_name), ("1", "prod"))
        self.assertEqual(got.credential_id, f"agent:1:{token.split('-')[1]}")

    def test_agents_elsewhere(self) -> None:
        """Where GitLab has the agents, users with access to all name them by ids."""
        self.store.add_agent("prod")
        _, token = self.store.add_user("glass", ["*"], ALICE)
        _, some = self.store.add_user("some", ["prod"], ALICE)
        identity = self.started_elsewhere()
        self.assertEqual(
            identity.authorize_user("4711", token),
            Access("user:glass", "4711", "4711", ALICE),
        )
        self.assertTrue(identity.may_connect("4711"))
        self.assertEqual(identity.agent_prefixes, ())
        for agent, text in (
            ("prod", token),
            ("0", token),
            ("-1", token),
            ("1" * 20, token),
            # The file's agent 1 is another one than GitLab's.
            ("1", some),
            ("prod", some),
        ):
            self.assertStatus(
                Status.PERMISSION_DENIED, identity.authorize_user, agent, text
            )

    def test_reach(self) -> None:
        """All agents of a user, also by environment, with their labels."""
        for name in ("west", "east", "away"):
            self.store.add_agent(name)
            self.store.label_agent(name, {"env": name})
        self.store.revoke_agent("away")
        _, some = self.store.add_user("some", ["west", "away"], ALICE)
        _, every = self.store.add_user("every", ["*"], ALICE)
        identity = self.started()
        found = identity.reach_of(every)
        self.assertEqual([one.agent_name for one in found.agents], ["east", "west"])
        self.assertEqual(found.agents[0].labels, {"env": "east"})
        self.assertEqual((found.owner, found.is_complete), ("user:every", True))
        self.assertEqual(
            identity.reach_of(some).agents,
            (ReachableAgent("1", "west", {"env": "west"}),),
        )
        self.assertStatus(Status.UNAUTHENTICATED, identity.reach_of, "kasu-1-x")

    def test_reach_of_agents_elsewhere(self) -> None:
        """GitLab's agents are not in the file, so a list is not complete."""
        self.store.add_agent("prod")
        _, every = self.store.add_user("glass", ["*"], ALICE)
        _, some = self.store.add_user("some", ["prod"], ALICE)
        identity = self.started_elsewhere()
        found = identity.reach_of(every)
        self.assertEqual((found.agents, found.is_complete), ((), False))
        found = identity.reach_of(some)
        self.assertEqual((found.agents, found.is_complete), ((), True))

    def test_answers_are_bounded(self) -> None:
        """A client names numbers without end."""
        self.patch(module, "MAX_KNOWN_ANSWERS", 3)
        _, token = self.store.add_user("glass", ["*"], ALICE)
        identity = self.started_elsewhere()
        before = identity.authorize_user("1", token)
        self.assertIs(identity.authorize_user("1", token), before)
        for number in range(2, 4):
            identity.authorize_user(str(number), token)
        self.assertIs(identity.authorize_user("1", token), before)
        identity.authorize_user("4", token)
        self.assertIsNot(identity.authorize_user("1", token), before)

    def test_user(self) -> None:
        self.store.add_agent("prod")
        _, token = self.store.add_user("alice", ["prod"], ALICE)
        expected = Access("user:alice", "1", "prod", ALICE)
        self.assertEqual(self.started().authorize_user("prod", token), expected)
        self.assertEqual(self.identity.authorize_user("1", token), expected)

    def test_wrong_tokens(self) -> None:
        _, token = self.store.add_agent("prod")
        _, user = self.store.add_user("alice", ["prod"], None)
        self.started()
        for wrong in (
            "",
            "x",
            "--",
            "kasagent-",
            token[:-1],
            token + "x",
            token.upper(),
            "kasagent-" + "0" * 16 + "-" + "x" * 43,
            "kasagent-" * 10_000,
            "\0",
        ):
            said = self.assertAgentRefused(wrong)
            self.assertNotIn(token.split("-", 2)[2], said)
        for form in (user, f"user:1:{user}"):
            said = self.assertAgentRefused(form)
            self.assertIn("token of a user", said)
            self.assertIn("kasctl agent add NAME", said)
            self.assertNotIn(user, said)
        said = self.assertStatus(
            Status.UNAUTHENTICATED, lambda: self.identity.authorize_user("prod", token)
        )
        self.assertIn("token of an agent", said)
        self.assertNotIn(token, said)
        for wrong in ("", user[:-1], "é", "\udcff", "kasuser-a-b"):
            self.assertStatus(
                Status.UNAUTHENTICATED, self.identity.authorize_user, "prod", wrong
            )

    def test_unknown_and_forbidden_agents_look_the_same(self) -> None:
        self.store.add_agent("prod")
        self.store.add_agent("test")
        _, token = self.store.add_user("alice", ["prod"], None)
        self.started()
        texts = [
            self.assertStatus(
                Status.PERMISSION_DENIED, self.identity.authorize_user, name, token
            ).replace(name, "X")
            for name in ("test", "nope", "2", "99")
        ]
        self.assertEqual(len(set(texts)), 1)

    def test_every_agent(self) -> None:
        _, token = self.store.add_user("alice", ["*"], None)
        self.started()
        self.store.add_agent("later")
        self.pass_time()
        access = self.identity.authorize_user("later", token)
        self.assertEqual(access.agent_id, "1")
        self.assertIsNone(access.impersonation)

    def test_no_file_yet(self) -> None:
        self.started()
        self.assertAgentRefused("kasagent-0-0")
        _, token = self.store.add_agent("prod")
        self.identity.authenticate_agent(token.encode())
        self.assertEqual(self.ended, [])

    def test_revoking_is_noticed(self) -> None:
        _, token = self.store.add_agent("prod")
        _, other = self.store.add_agent("test")
        credential = self.started().authenticate_agent(token.encode()).credential_id
        self.store.revoke_agent("prod")
        self.pass_time()
        self.assertEqual(self.ended, [credential])
        self.assertAgentRefused(token)
        self.identity.authenticate_agent(other.encode())

    def test_reaching_more_ends_nothing(self) -> None:
        """What is open goes on; reaching less, or something else, ends it."""
        for name in ("prod", "test"):
            self.store.add_agent(name)
        _, token = self.store.add_user("alice", ["prod"], ALICE)
        self.started()
        for agent in ("test", "*"):
            self.store.grant_user("alice", [agent])
            self.pass_time()
            self.assertEqual(self.ended, [])
        self.assertEqual(self.identity.authorize_user("2", token).agent_name, "test")
        self.store.ungrant_user("alice", ["*"])
        self.pass_time()
        self.assertEqual(self.ended, ["user:alice"])
        self.store.grant_user("alice", ["prod", "test"])
        self.pass_time()
        self.store.ungrant_user("alice", ["test"])
        self.pass_time()
        self.assertEqual(self.ended, ["user:alice"] * 2)
        self.store.remove_user("alice")
        self.pass_time()
        self.assertEqual(self.ended, ["user:alice"] * 3)

    def test_other_rights_end_what_is_open(self) -> None:
        """A token stays the same, and whom it stands for, or what it may, does not."""
        self.store.add_agent("prod")
        _, token = self.store.add_user("alice", ["prod"], ALICE)
        self.started()
        (alice,) = self.store.load().users
        ended = 0
        for changed in (
            attrs.evolve(alice, read_only=True),
            attrs.evolve(alice, read_only=True, secrets=True),
            attrs.evolve(alice, read_only=True, impersonation=None),
            alice,
        ):
            identities = attrs.evolve(self.store.load(), users=(changed,))
            self.state.write(FILE_NAME, dump(identities))
            self.pass_time()
            ended += 1
            self.assertEqual(self.ended, ["user:alice"] * ended)
            access = self.identity.authorize_user("prod", token)
            self.assertEqual(access.read_only, changed.read_only)
            self.assertEqual(access.secrets, changed.secrets)
            self.assertEqual(access.impersonation, changed.impersonation)

    def test_rotating_ends_the_old_one_after_the_grace(self) -> None:
        _, old = self.store.add_agent("prod")
        credential = self.started().authenticate_agent(old.encode()).credential_id
        _, new = self.store.rotate_agent("prod", timedelta(seconds=10))
        self.pass_time()
        self.identity.authenticate_agent(old.encode())
        self.identity.authenticate_agent(new.encode())
        self.assertEqual(self.ended, [])
        self.pass_time(10)
        self.assertEqual(self.ended, [credential])
        said = self.assertAgentRefused(old)
        self.assertIn("this token of the agent prod expired at 2", said)
        self.identity.authenticate_agent(new.encode())

    def test_ends_in_the_second_of_its_expiry(self) -> None:
        """What a credential opened ends with it, and not one look later."""
        self.store.add_agent("prod")
        self.store.add_user("alice", ["prod"], None, timedelta(seconds=5))
        self.started()
        self.pass_time(5 - POLL_INTERVAL)
        self.assertEqual(self.ended, [])
        self.pass_time()
        self.assertEqual(self.ended, ["user:alice"])

    def test_an_expired_user(self) -> None:
        self.store.add_agent("prod")
        _, token = self.store.add_user("alice", ["prod"], None, timedelta(seconds=5))
        self.started().authorize_user("prod", token)
        self.time += timedelta(seconds=5)  # no poll was due yet
        said = self.assertStatus(
            Status.UNAUTHENTICATED, lambda: self.identity.authorize_user("prod", token)
        )
        self.assertIn("the token of alice expired at 2", said)
        self.assertIn("'kasctl kubeconfig --user alice --rotate ...'", said)
        # Not to who only knows its beginning.
        said = self.assertStatus(
            Status.UNAUTHENTICATED,
            lambda: self.identity.authorize_user("prod", token[:-1] + "_"),
        )
        self.assertNotIn("alice", said)
        self.pass_time()
        self.assertEqual(self.ended, ["user:alice"])

    def test_a_changed_user(self) -> None:
        self.store.add_agent("prod")
        self.store.add_user("alice", ["prod"], ALICE)
        self.store.add_user("bob", ["prod"], ALICE)
        self.started()
        self.store.renew_user("alice")
        self.pass_time()
        self.assertEqual(self.ended, ["user:alice"])

    def test_told_no_more(self) -> None:
        self.store.add_agent("prod")
        also: list[str] = []
        end = self.identity.on_revoked(also.append)
        self.started()
        end()
        self.store.remove_agent("prod")
        self.pass_time()
        self.assertEqual((len(self.ended), also), (1, []))

    def test_one_failing_callback_does_not_stop_the_others(self) -> None:
        self.store.add_agent("prod")
        self.identity._callbacks.insert(0, lambda _: 1 // 0)
        self.started()
        self.store.remove_agent("prod")
        self.pass_time()
        self.assertEqual(len(self.ended), 1)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_a_broken_file_keeps_the_old_one(self) -> None:
        _, token = self.store.add_agent("prod")
        good = self.state.file(FILE_NAME).read_bytes()
        self.started()
        logged = EventLoggingObserver()
        globalLogPublisher.addObserver(logged)
        self.addCleanup(globalLogPublisher.removeObserver, logged)
        for data in (b"{", b"{}", None):
            if data is None:
                os.unlink(self.state.file(FILE_NAME))
            else:
                self.state.write(FILE_NAME, data)
            for _ in range(3):
                self.pass_time()
            self.identity.authenticate_agent(token.encode())
        errors = [e for e in logged if e["log_level"] is LogLevel.error]
        # Once for each of them.
        self.assertEqual(len({e["problem"] for e in errors}), len(errors))
        self.assertEqual(len(errors), 3)
        self.assertEqual(self.ended, [])
        self.state.write(FILE_NAME, good)
        self.store.revoke_agent("prod")
        self.pass_time()
        self.assertEqual(len(self.ended), 1)

    def test_a_file_that_cannot_be_opened_for_a_moment_is_read_later(self) -> None:
        """No descriptor was free: what was revoked then must not stay valid."""
        self.store.add_agent("prod")
        self.started()
        self.store.revoke_agent("prod")
        path = self.state.file(FILE_NAME)
        away = path.with_name("away")
        path.rename(away)
        path.mkdir()  # opening it fails with an error of its own
        self.pass_time()
        self.assertEqual(self.ended, [])
        path.rmdir()
        away.rename(path)
        self.pass_time()
        self.assertEqual(len(self.ended), 1)

    def test_which_agents_there_are(self) -> None:
        """By their ids, and only those that are not revoked."""
        for name in ("prod", "test"):
            self.store.add_agent(name)
        self.store.revoke_agent("test")
        identity = self.started()
        found = identity.agent("1")
        assert found is not None
        self.assertEqual(found.name, "prod")
        for other in ("prod", "2", "3"):
            self.assertIsNone(identity.agent(other))
        self.assertEqual(identity.agents(), [found])
        self.assertTrue(identity.may_connect("1"))
        self.assertFalse(identity.may_connect("2"))

    def test_one_who_may_only_look(self) -> None:
        """As the file says, also after it was written and read again."""
        self.store.add_agent("prod")
        _, token = self.store.add_user("eve", ["prod"], None, read_only=True)
        self.store.add_agent("other")
        self.assertTrue(self.started().authorize_user("prod", token).read_only)
        _, token = self.store.add_user("ann", ["prod"], None)
        self.assertFalse(self.identity.authorize_user("prod", token).read_only)

    def test_a_token_that_was_just_made_is_known_at_once(self) -> None:
        """Nobody has to wait for the next look at the file."""
        self.started()
        _, token = self.store.add_agent("prod")
        self.assertEqual(
            self.identity.authenticate_agent(token.encode()).agent_name, "prod"
        )

    def test_an_error_of_open_is_tried_again(self) -> None:
        """Though nothing about the file has changed since."""
        self.store.add_agent("prod")
        self.started()
        self.store.revoke_agent("prod")
        opened = self.identity.path

        class Unopened:
            """The file, while no descriptor is free."""

            def __fspath__(self) -> str:
                return str(opened)

            def open(self, mode: str) -> Any:
                raise OSError(errno.EMFILE, "Too many open files")

        self.identity.path = Unopened()
        self.pass_time()
        self.assertEqual(self.ended, [])
        self.identity.path = opened
        self.pass_time()
        self.assertEqual(len(self.ended), 1)

    def test_a_broken_file_stops_the_start(self) -> None:
        self.state.write(FILE_NAME, b"{")
        self.assertRaises(ConfigurationError, self.identity.start)

    def test_a_file_that_is_too_large(self) -> None:
        """The largest that is read has so many bytes, and not one more."""
        self.store.add_agent("prod")
        size = len(self.state.file(FILE_NAME).read_bytes())
        self.patch(module, "MAX_FILE", size - 1)
        error = self.assertRaises(ConfigurationError, self.identity.start)
        self.assertIn(f"larger than {size - 1} bytes", str(error))
        self.patch(module, "MAX_FILE", size)
        self.assertEqual(len(self.started().agents()), 1)

    def test_stopped(self) -> None:
        self.identity.start()
        self.identity.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class LargeFileTests(FileAuthenticatorTests):
    """All of it again, where a thread reads; and what is different then."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(module, "LARGE", 0)
        self.patch(module, "deferToThread", maybeDeferred)

    def held(self) -> list[Callable[[], None]]:
        """What ends each reading that is begun from now on."""
        ends: list[Callable[[], None]] = []

        def begin(read: Callable[[], object]) -> Deferred[object]:
            reading: Deferred[object] = Deferred()
            ends.append(lambda: reading.callback(read()))
            return reading

        self.patch(module, "deferToThread", begin)
        return ends

    def test_a_token_that_may_be_there(self) -> None:
        """Whoever brings it waits for the reading, and others do not."""
        _, known = self.store.add_agent("prod")
        identity = self.started()
        ends = self.held()
        _, new = self.store.add_agent("test")
        _, user = self.store.add_user("alice", ["*"], None)
        asked = identity.authenticate_agent(new.encode())
        users = identity.authorize_user("test", user)
        wrong = identity.authenticate_agent(new[:-1].encode() + b"_")
        left = identity.authenticate_agent(new.encode())
        left.addErrback(lambda _: None)
        left.cancel()
        self.assertNoResult(asked)
        self.assertEqual(identity.authenticate_agent(known.encode()).agent_name, "prod")
        self.pass_time()
        self.assertEqual(len(ends), 1)
        ends.pop()()
        self.assertEqual(self.successResultOf(asked).agent_name, "test")
        self.assertEqual(self.successResultOf(users).agent_name, "test")
        self.failureResultOf(wrong, CallError)
        self.assertEqual(ends, [])
        # At once, as long as nothing changes.
        self.assertAgentRefused(new[:-1] + "_")

    def test_it_changes_while_it_is_read(self) -> None:
        """It is read again, and nobody is refused before that."""
        self.store.add_agent("prod")
        identity = self.started()
        ends = self.held()
        tokens: list[str] = []
        read = self.identity._prepare

        def prepare() -> Any:
            found = read()
            if not tokens:
                tokens.append(self.store.add_agent("two")[1])
            return found

        self.patch(self.identity, "_prepare", prepare)
        _, one = self.store.add_agent("one")
        asked = identity.authenticate_agent(one.encode())
        ends.pop()()
        self.assertNoResult(asked)
        later = identity.authenticate_agent(tokens[0].encode())
        ends.pop()()
        self.assertEqual(self.successResultOf(asked).agent_name, "one")
        self.assertEqual(self.successResultOf(later).agent_name, "two")
        self.assertEqual(ends, [])

    def test_a_revocation(self) -> None:
        """It ends what is open as soon as it has been read."""
        _, token = self.store.add_agent("prod")
        identity = self.started()
        credential = identity.authenticate_agent(token.encode()).credential_id
        ends = self.held()
        self.store.revoke_agent("prod")
        self.pass_time()
        self.assertEqual(self.ended, [])
        ends.pop()()
        self.assertEqual(self.ended, [credential])

    def test_stopped_while_it_is_read(self) -> None:
        self.store.add_agent("prod")
        self.identity.start()
        ends = self.held()
        self.store.add_agent("one")
        self.pass_time()
        self.identity.stop()
        ends.pop()()
        self.assertIsNone(self.identity.find_agent("one"))

    def test_a_fault_of_ours(self) -> None:
        """It is told, nobody waits for ever, and it is tried again."""
        self.store.add_agent("prod")
        identity = self.started()
        self.held()
        _, token = self.store.add_agent("one")
        asked = identity.authenticate_agent(token.encode())
        self.patch(module, "deferToThread", maybeDeferred)
        reading, self.identity._reading = self.identity._reading, None
        reading.errback(ZeroDivisionError())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.failureResultOf(asked, CallError)
        self.pass_time()
        self.assertEqual(identity.authenticate_agent(token.encode()).agent_name, "one")


class IndexTests(SynchronousTestCase):
    """Lookups do not search."""

    def test_a_thousand_users(self) -> None:
        users = []
        for n in range(1000):
            token = Token(f"{n:016x}", digest(b"%d" % n).hex(), START)
            users.append(User(f"u{n}", ("*",), token, START))
        path = temporary(self) / FILE_NAME
        path.write_bytes(dump(Identities(users=tuple(users))))
        identity = FileAuthenticator(path, Runtime(reactor=Clock(), now=lambda: 0.0))
        identity.start()
        self.addCleanup(identity.stop)
        self.assertEqual(len(identity._index.user_tokens), 1000)


class CheckTests(AuthenticatorCase):
    """The checks of the file go on, whatever happens."""

    def test_a_subscriber_that_fails(self) -> None:
        """Credentials that are revoked later end, too."""
        tokens = {
            name: self.store.add_user(name, ["*"], ALICE)[1] for name in ("one", "two")
        }
        self.store.add_agent("prod")
        self.started()

        def fail(credential_id: str) -> None:
            raise asyncio.CancelledError

        remove = self.identity.on_revoked(fail)
        for name, token in tokens.items():
            self.identity.authorize_user("prod", token)
            self.store.revoke_user(name)
            self.pass_time()
            self.assertEqual(self.ended.pop(), f"user:{name}")
            self.assertStatus(
                Status.UNAUTHENTICATED, self.identity.authorize_user, "prod", token
            )
        remove()
        self.assertEqual(len(self.flushLoggedErrors(asyncio.CancelledError)), 2)

    def test_a_time_that_does_not_exist(self) -> None:
        """The content before stays in effect, until the file is mended."""
        _, token = self.store.add_user("alice", ["*"], ALICE, timedelta(days=1))
        self.store.add_agent("prod")
        self.started()
        path = self.state.file(FILE_NAME)
        before = path.read_bytes()
        expires = before.index(b"2026-01-02T00:00:00+00:00")
        path.write_bytes(
            before[:expires] + b"9999-12-31T23:59:59-12:00" + before[expires + 25 :]
        )
        self.pass_time()
        self.identity.authorize_user("prod", token)
        path.write_bytes(before)
        self.store.revoke_user("alice")
        self.pass_time()
        self.assertEqual(self.ended, ["user:alice"])

    def test_what_nobody_expected(self) -> None:
        """A fault of the parser ends no check either."""
        self.store.add_user("alice", ["*"], ALICE)
        self.store.add_agent("prod")
        self.started()
        parse = self.identity._reader.parse

        def fail(*_: object) -> Any:
            raise OverflowError("a fault")

        self.identity._reader.parse = fail
        self.store.add_agent("test")
        self.pass_time()
        self.identity._reader.parse = parse
        self.store.revoke_user("alice")
        self.pass_time()
        self.assertEqual(self.ended, ["user:alice"])


class EnvironmentTests(AuthenticatorCase):
    """Access by the labels of agents."""

    def reaches(self, token: str, agent: str) -> bool:
        try:
            return bool(self.identity.authorize_user(agent, token))
        except CallError as error:
            assert error.status is Status.PERMISSION_DENIED
            return False

    def test_labels_decide(self) -> None:
        """Also those of agents that are added later; and their end ends access."""
        (_, (two, _), _) = self.store.add_agents(["one", "two", "three"])
        self.store.label_agent("one", {"env": "prod"})
        self.store.set_environment("production", "env=prod")
        _, token = self.store.add_user("alice", [], ALICE, environments=["production"])
        self.started()
        self.assertTrue(self.reaches(token, "one"))
        self.assertFalse(self.reaches(token, "two"))
        self.store.label_agent("two", {"env": "prod", "region": "eu"})
        self.pass_time()
        self.assertTrue(self.reaches(token, "two"))
        self.assertEqual(self.ended, [])
        # What alice does with the others goes on.
        self.store.revoke_agent("two")
        self.pass_time()
        self.assertEqual(self.ended, [f"agent:2:{two.tokens[0].id}"])
        self.assertFalse(self.reaches(token, "two"))
        self.ended.clear()
        self.store.label_agent("one", {}, ["env"])
        self.pass_time()
        self.assertEqual(self.ended, ["user:alice"])
        self.assertFalse(self.reaches(token, "one"))

    def test_a_selector_that_changes(self) -> None:
        self.store.add_agent("one")
        self.store.label_agent("one", {"env": "test"})
        self.store.set_environment("some", "env in (prod, test)")
        _, token = self.store.add_user("alice", [], ALICE, environments=["some"])
        self.started()
        self.assertTrue(self.reaches(token, "one"))
        self.store.set_environment("some", "env=prod")
        self.pass_time()
        self.assertEqual(self.ended, ["user:alice"])
        self.assertFalse(self.reaches(token, "one"))
        self.store.set_environment("some", "env")
        self.pass_time()
        self.assertTrue(self.reaches(token, "one"))
        self.store.remove_environment("some")
        self.pass_time()
        self.assertFalse(self.reaches(token, "one"))
        self.assertEqual(self.store.load().users[0].environments, ())
