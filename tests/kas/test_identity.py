"""The identity file: made by kasctl's store, followed by kas."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from kas.identity import POLL_INTERVAL, FileIdentity
from kas.identity_file import FILE_NAME, Identities, Token, User, dump, parse
from kas.identity_store import MAX_TOKEN, IdentityError, IdentityStore, digest
from kas.state import StateDirectory
from tunnel.errors import CallError, ConfigurationError, Status
from tunnel.interfaces import Access, Impersonation

START = datetime(2026, 1, 1, tzinfo=UTC)
ALICE = Impersonation("alice", ("dev", "ops"))


def temporary(case: SynchronousTestCase) -> Path:
    """A folder for as long as the test runs."""
    folder = tempfile.TemporaryDirectory()
    case.addCleanup(folder.cleanup)
    return Path(folder.name)


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.state = StateDirectory.open(temporary(self))
        self.time = START
        self.store = IdentityStore(self.state, lambda: self.time)

    def content(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.state.file(FILE_NAME).read_bytes())
        return data

    def assertRefused(
        self, says: str, change: Callable[..., object], *arguments: object
    ) -> None:
        error = self.assertRaises(IdentityError, change, *arguments)
        self.assertIn(says, str(error))


class StoreTests(_Case):
    """What kasctl can change."""

    def test_tokens_are_not_kept(self) -> None:
        _, agent_token = self.store.add_agent("prod")
        _, user_token = self.store.add_user("alice", ["prod"], ALICE)
        text = self.state.file(FILE_NAME).read_text()
        for token in (agent_token, user_token):
            self.assertNotIn(token, text)
            self.assertNotIn(token.split("-", 2)[2], text)
            self.assertIn(digest(token.encode()).hex(), text)
        self.assertRegex(agent_token, r"\Akasagent-[0-9a-f]{16}-[-_\w]{43}\Z")
        self.assertRegex(user_token, r"\Akasuser-[0-9a-f]{16}-[-_\w]{43}\Z")
        self.assertLess(len(agent_token), MAX_TOKEN)

    def test_ids_rise_and_are_not_given_twice(self) -> None:
        self.assertEqual(self.store.add_agent("a")[0].id, "1")
        self.assertEqual(self.store.add_agent("b")[0].id, "2")
        self.store.remove_agent("b")
        self.assertEqual(self.store.add_agent("b")[0].id, "3")

    def test_projects(self) -> None:
        """The project is kept; who has none is written as an older kas knows it."""
        self.assertEqual(self.store.add_agent("a", 42)[0].project_id, 42)
        self.store.add_agent("b")
        self.store.rotate_agent("a", timedelta(0))
        first, second = self.content()["agents"]
        self.assertEqual(first["project_id"], 42)
        self.assertNotIn("project_id", second)
        self.assertEqual([a.project_id for a in self.store.load().agents], [42, 0])
        for wrong in (-1, 2**63):
            self.assertRefused("project", self.store.add_agent, "c", wrong)
        for odd in (0, -1, 2**63, True, "42"):
            content = self.content()
            content["agents"][0]["project_id"] = odd
            self.state.write(FILE_NAME, json.dumps(content).encode())
            self.assertRaises(ConfigurationError, self.store.load)

    def test_names_of_agents(self) -> None:
        for name in ("a", "a" * 63, "a-b", "0a"):
            self.store.add_agent(name)
        for name in ("", "A", "-a", "a-", "a_b", "a" * 64, "a.b", "a\n", "é"):
            self.assertRefused(
                "cannot be the name of an agent", self.store.add_agent, name
            )
        # it would be taken for an id
        self.assertRefused("add a letter", lambda: self.store.add_agent("7"))

    def test_twice(self) -> None:
        self.store.add_agent("prod")
        self.assertRefused("agent rotate prod", lambda: self.store.add_agent("prod"))

    def test_unknown_names_get_the_nearest(self) -> None:
        self.store.add_agent("production")
        self.assertRefused(
            "there is no agent 'prodution'; did you mean 'production'?",
            lambda: self.store.revoke_agent("prodution"),
        )
        self.assertRefused("there are none", lambda: self.store.revoke_user("bob"))

    def test_removing_takes_the_agent_from_users(self) -> None:
        self.store.add_agent("prod")
        self.store.add_agent("test")
        self.store.add_user("alice", ["prod", "2"], None)
        self.store.remove_agent("prod")
        self.store.add_agent("prod")
        (user,) = self.store.load().users
        self.assertEqual(user.agents, ("test",))

    def test_users_are_checked(self) -> None:
        self.store.add_agent("prod")
        for name in ("", "a b", "-a", "a" * 129):
            self.assertRefused(
                "cannot be the name of a user",
                self.store.add_user,
                name,
                ["prod"],
                None,
            )
        for who in (
            Impersonation(""),
            Impersonation("a\r\nX: y"),
            Impersonation("a", ("é",)),
            Impersonation("a" * 257),
        ):
            self.assertRefused(
                "cannot be a Kubernetes user or group",
                self.store.add_user,
                "alice",
                ["prod"],
                who,
            )
        self.assertRefused(
            "at least one agent", lambda: self.store.add_user("alice", [], None)
        )
        self.store.add_user("alice", ["*"], None)
        self.assertRefused(
            "already", lambda: self.store.add_user("alice", ["prod"], None)
        )
        self.store.revoke_user("alice")
        self.store.add_user("alice", ["prod"], None)

    def test_rotating_keeps_the_last_one_for_the_grace(self) -> None:
        self.store.add_agent("prod")
        self.store.rotate_agent("prod", timedelta(hours=1))
        self.store.rotate_agent("prod", timedelta(hours=1))
        agent, _ = self.store.rotate_agent("prod", timedelta(hours=1))
        self.assertEqual(
            [token.expires_at for token in agent.tokens],
            [START + timedelta(hours=1), None],
        )
        agent, _ = self.store.rotate_agent("prod", timedelta(0))
        self.assertEqual([token.expires_at for token in agent.tokens], [None])

    def test_a_grace_never_grows(self) -> None:
        agent, _ = self.store.add_agent("prod")
        agent, _ = self.store.rotate_agent("prod", timedelta(hours=1))
        self.time += timedelta(hours=2)
        agent, _ = self.store.rotate_agent("prod", timedelta(hours=1))
        self.assertEqual(len(agent.tokens), 2)
        self.assertNotEqual(agent.tokens[0].expires_at, START + timedelta(hours=1))

    def test_a_revoked_agent_is_not_rotated(self) -> None:
        self.store.add_agent("prod")
        self.store.revoke_agent("prod")
        self.assertRefused(
            "is revoked", lambda: self.store.rotate_agent("prod", timedelta(0))
        )

    def test_only_whole_changes(self) -> None:
        self.store.add_agent("prod")
        before = self.state.file(FILE_NAME).read_bytes()
        self.assertRaises(IdentityError, self.store.add_user, "alice", ["nope"], None)
        self.assertEqual(self.state.file(FILE_NAME).read_bytes(), before)


class FormatTests(_Case):
    """The file itself."""

    def test_round_trip(self) -> None:
        self.store.add_agent("prod")
        self.store.rotate_agent("prod", timedelta(hours=1))
        self.store.add_user("alice", ["prod"], ALICE, timedelta(hours=8))
        self.store.add_user("bob", ["*"], None)
        self.store.add_agent("old")
        self.store.revoke_agent("old")
        identities = self.store.load()
        self.assertEqual(parse(dump(identities), "f"), identities)
        self.assertEqual(self.content()["version"], 1)

    def assertBroken(self, says: str, data: bytes) -> None:
        error = self.assertRaises(ConfigurationError, parse, data, "id.json")
        self.assertIn("id.json: not a usable identity file", str(error))
        self.assertIn(says, str(error))

    def test_broken(self) -> None:
        self.store.add_agent("prod")
        self.store.add_user("alice", ["prod"], ALICE)
        whole = self.state.file(FILE_NAME).read_bytes()
        self.assertBroken("line 1", b"")
        self.assertBroken("line", whole[: len(whole) // 2])
        self.assertBroken("is not an object", b"[]")
        self.assertBroken("", b"[" * 100_000)
        self.assertBroken("", b"\xff\xfe")

        def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
            content = self.content()
            change(content)
            return json.dumps(content).encode()

        self.assertBroken("version 2", changed(lambda c: c.update(version=2)))
        self.assertBroken("version is not", changed(lambda c: c.update(version=True)))
        self.assertBroken("extra is not known", changed(lambda c: c.update(extra=1)))
        self.assertBroken(
            "the agent id '1' is there twice",
            changed(lambda c: c["agents"].append(c["agents"][0])),
        )
        self.assertBroken(
            "agents[0].tokens[0].sha256 is malformed",
            changed(lambda c: c["agents"][0]["tokens"][0].update(sha256="x")),
        )
        self.assertBroken(
            "users[0].created_at is not a time",
            changed(lambda c: c["users"][0].update(created_at="soon")),
        )
        # without a name the request would run as agentk's own account
        self.assertBroken(
            "users[0].access.user is malformed",
            changed(lambda c: c["users"][0]["access"].update(user="")),
        )
        self.assertBroken(
            "users[0].access.user is not of type str",
            changed(lambda c: c["users"][0].update(access={})),
        )

    @given(st.binary(max_size=200))
    def test_nothing_else_is_raised(self, data: bytes) -> None:
        self.assertRaises(ConfigurationError, parse, data, "f")


class FileIdentityTests(_Case):
    """What a running kas makes of it."""

    def setUp(self) -> None:
        super().setUp()
        self.clock = Clock()
        self.identity = FileIdentity(
            self.state.file(FILE_NAME), self.clock, lambda: self.time.timestamp()
        )
        self.ended: list[str] = []
        self.identity.on_revoked(self.ended.append)

    def started(self) -> FileIdentity:
        self.identity.start()
        self.addCleanup(self.identity.stop)
        return self.identity

    def pass_time(self, seconds: float = POLL_INTERVAL) -> None:
        self.time += timedelta(seconds=seconds)
        self.clock.advance(seconds)

    def assertStatus(
        self, status: Status, call: Callable[..., object], *arguments: object
    ) -> str:
        error = self.assertRaises(CallError, call, *arguments)
        self.assertEqual(error.status, status)
        return str(error)

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
        self.assertIn("token of a user", self.assertAgentRefused(user))
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
        self.assertAgentRefused(old)
        self.identity.authenticate_agent(new.encode())

    def test_an_expired_user(self) -> None:
        self.store.add_agent("prod")
        _, token = self.store.add_user("alice", ["prod"], None, timedelta(seconds=5))
        self.started().authorize_user("prod", token)
        self.time += timedelta(seconds=5)  # no poll was due yet
        self.assertStatus(
            Status.UNAUTHENTICATED, lambda: self.identity.authorize_user("prod", token)
        )
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
        self.assertEqual(len(errors), 1)
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

        self.identity.path = Unopened()  # type: ignore[assignment]
        self.pass_time()
        self.assertEqual(self.ended, [])
        self.identity.path = opened
        self.pass_time()
        self.assertEqual(len(self.ended), 1)

    def test_a_broken_file_stops_the_start(self) -> None:
        self.state.write(FILE_NAME, b"{")
        self.assertRaises(ConfigurationError, self.identity.start)

    def test_stopped(self) -> None:
        self.identity.start()
        self.identity.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class IndexTests(SynchronousTestCase):
    """Lookups do not search."""

    def test_a_thousand_users(self) -> None:
        users = []
        for n in range(1000):
            token = Token(f"{n:016x}", digest(b"x").hex(), START)
            users.append(User(f"u{n}", ("*",), token, START))
        path = temporary(self) / FILE_NAME
        path.write_bytes(dump(Identities(users=tuple(users))))
        identity = FileIdentity(path, Clock(), lambda: 0.0)
        identity.start()
        self.addCleanup(identity.stop)
        self.assertEqual(len(identity._index.user_tokens), 1000)
