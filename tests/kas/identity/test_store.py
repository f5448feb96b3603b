"""The identity file as kasctl's store makes it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from kas.identity import store as identity_store
from kas.identity.environments import MAX_ENVIRONMENTS, MAX_LABELS
from kas.identity.file import (
    BACKUP_NAME,
    FILE_NAME,
    NEXT_ID_NAME,
    Agent,
    User,
    dump,
    parse,
)
from kas.identity.store import (
    MAX_TOKEN,
    IdentityError,
    bare_token,
    digest,
    split_token,
)
from tests.kas.identities import ALICE, START, IdentityCase
from tunnel.api import Impersonation
from tunnel.errors import ConfigurationError


class StoreTests(IdentityCase):
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

    def test_ids_after_a_restored_backup(self) -> None:
        """An agent never gets the id, and thus the data, of another agent."""
        self.store.add_agent("first")
        backup = self.state.file(FILE_NAME).read_bytes()
        for restored in (backup, backup, None):
            self.store.add_agent("bank")
            if restored is None:
                self.state.file(FILE_NAME).unlink()
                self.state.file(BACKUP_NAME).unlink()
            else:
                self.state.write(FILE_NAME, restored)
        self.assertEqual(self.store.add_agent("shop")[0].id, "5")
        self.assertEqual(self.state.read(NEXT_ID_NAME), b"6\n")

    def test_ids_after_a_change_without_an_agent(self) -> None:
        """An identity file of a kas that had no such file."""
        self.store.add_agents(["a", "b"])
        self.state.file(NEXT_ID_NAME).unlink()
        backup = self.state.file(FILE_NAME).read_bytes()
        self.store.add_user("alice", ["a"], ALICE)
        self.assertEqual(self.state.read(NEXT_ID_NAME), b"3\n")
        self.state.write(FILE_NAME, backup.replace(b": 3,", b": 2,"))
        self.assertEqual(self.store.add_agent("c")[0].id, "3")

    def test_an_id_that_was_not_shown(self) -> None:
        """Nothing is written before the token was handed over."""

        def fail(*_: object) -> None:
            raise ZeroDivisionError

        self.assertRaises(ZeroDivisionError, self.store.add_agent, "a", 0, fail)
        self.assertIsNone(self.state.read(NEXT_ID_NAME))

    def test_malformed_next_id(self) -> None:
        self.store.add_agent("a")
        for data in (b"", b"0", b"x", b"-1", b"1" * 19):
            self.state.write(NEXT_ID_NAME, data)
            error = self.assertRaises(ConfigurationError, self.store.add_agent, "b")
            self.assertIn("write a number that is larger", str(error))

    def test_what_could_not_be_read_is_not_written(self) -> None:
        """A number that is given already, as after an edit by hand; nothing changes."""
        self.store.add_agents(["a", "b"])
        self.state.file(NEXT_ID_NAME).unlink()
        content = {**self.content(), "next_agent_id": 2}
        self.state.write(FILE_NAME, json.dumps(content).encode())
        error = self.assertRaises(ConfigurationError, self.store.add_agent, "c")
        self.assertIn("nothing was changed", str(error))
        self.assertEqual(self.content(), content)

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
            "no agent has the name 'prodution'; did you mean 'production'?",
            lambda: self.store.revoke_agent("prodution"),
        )
        self.assertRefused("none are known", lambda: self.store.revoke_user("bob"))

    def test_removing_takes_the_agent_from_users(self) -> None:
        self.store.add_agent("prod")
        self.store.add_agent("test")
        self.store.add_user("alice", ["prod", "2"], None)
        self.store.remove_agent("prod")
        self.store.add_agent("prod")
        (user,) = self.store.load().users
        self.assertEqual(user.agents, ("test",))

    def test_labels(self) -> None:
        self.store.add_agent("prod")
        self.store.label_agent("prod", {"env": "prod", "example.org/tier": ""})
        found = self.store.label_agent("prod", {"a": "1"}, ["env", "none"])
        self.assertEqual(dict(found.labels), {"a": "1", "example.org/tier": ""})
        self.assertEqual(self.store.load().agents[0].labels, found.labels)
        for key, value, says in (
            ("", "x", "cannot be the name of a label"),
            ("a b", "x", "cannot be the name of a label"),
            ("-a", "x", "cannot be the name of a label"),
            ("a" * 64, "x", "cannot be the name of a label"),
            ("a/b/c", "x", "cannot be the name of a label"),
            ("a", "x y", "cannot be the value of a label"),
            ("a", "x" * 64, "cannot be the value of a label"),
            ("a", "ä", "cannot be the value of a label"),
        ):
            self.assertRefused(says, self.store.label_agent, "prod", {key: value})
        many = {f"k{number}": "" for number in range(MAX_LABELS + 1)}
        self.assertRefused("at most 32 labels", self.store.label_agent, "prod", many)

    def test_environments(self) -> None:
        """In the file, and none of it in a file without environments."""
        self.store.add_agent("prod")
        self.assertNotIn("environments", self.content())
        self.store.set_environment("b", "env=prod")
        self.store.set_environment("a", "env in (test, dev),!old")
        self.store.set_environment("b", "env==prod")
        identities = self.store.load()
        self.assertEqual(
            [(one.name, one.selector) for one in identities.environments],
            [("a", "env in (test, dev),!old"), ("b", "env==prod")],
        )
        self.assertEqual(parse(dump(identities), "f"), identities)
        plain = json.dumps(json.loads(dump(identities))).encode()
        self.assertEqual(parse(plain, "f"), identities)
        for selector, says in (
            ("", "also matches agents without labels"),
            ("env!=prod", "also matches agents without labels"),
            ("!env,a notin (b)", "also matches agents without labels"),
            ("env=(", "is invalid"),
            ("a=b," * 300, "more than 1000 characters"),
        ):
            self.assertRefused(says, self.store.set_environment, "c", selector)
        self.assertRefused(
            "cannot be the name of an environment",
            *(self.store.set_environment, "C", "a=b"),
        )
        self.assertRefused("'a'", self.store.remove_environment, "aa")
        for number in range(MAX_ENVIRONMENTS - 2):
            self.store.set_environment(f"n{number}", "a=b")
        self.assertRefused(
            "at most 200 environments", self.store.set_environment, "more", "a=b"
        )

    def test_environments_of_users(self) -> None:
        self.store.add_agent("prod")
        self.store.set_environment("a", "env=a")
        self.store.set_environment("b", "env=b")
        self.store.add_user("alice", ["prod"], ALICE)
        user = self.store.grant_user("alice", [], ["a", "b", "a"])
        self.assertEqual((user.agents, user.environments), (("prod",), ("a", "b")))
        self.assertEqual(self.store.load().users[0], user)
        user = self.store.ungrant_user("alice", ["prod"], ["a"])
        self.assertEqual((user.agents, user.environments), ((), ("b",)))
        self.assertRefused(
            "has no access to the environment 'a'",
            *(self.store.ungrant_user, "alice", [], ["a"]),
        )
        self.assertRefused("'c'", self.store.grant_user, "alice", [], ["c"])
        self.assertRefused(
            "at least one agent or environment", self.store.add_user, "bob", [], ALICE
        )

    def test_removing_a_user(self) -> None:
        self.store.add_agent("prod")
        for name in ("alice", "bob"):
            self.store.add_user(name, ["prod"], None)
        self.assertEqual(self.store.remove_user("alice").name, "alice")
        self.assertEqual([user.name for user in self.store.load().users], ["bob"])

    def test_names_of_any_language(self) -> None:
        """As `kubectl --as` sends them."""
        self.store.add_agent("prod")
        groups = ("team:ж/é", "DOMAIN\\ops, all (1)", "100% sure")
        who = Impersonation("jürgen ødegård", groups)
        self.store.add_user("alice", ["prod"], who)
        (user,) = self.store.load().users
        self.assertEqual(user.impersonation, who)

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
            Impersonation("a", ("\u202ee",)),
            Impersonation("a "),
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
        self.assertEqual(self.store.load().agents, (agent,))
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
            "was revoked", lambda: self.store.rotate_agent("prod", timedelta(0))
        )

    def test_only_whole_changes(self) -> None:
        self.store.add_agent("prod")
        before = self.state.file(FILE_NAME).read_bytes()
        self.assertRaises(IdentityError, self.store.add_user, "alice", ["nope"], None)
        self.assertEqual(self.state.file(FILE_NAME).read_bytes(), before)

    def test_the_content_before_is_kept(self) -> None:
        self.store.add_agent("a")
        before = self.state.read(FILE_NAME)
        self.assertIsNone(self.state.read(BACKUP_NAME))
        self.store.add_agent("b")
        self.assertEqual(self.state.read(BACKUP_NAME), before)

    def test_a_missing_file_is_not_begun_anew(self) -> None:
        """From nothing, ids that were given once would be given again."""
        self.store.add_agent("a")
        self.store.add_agent("b")
        self.state.file(FILE_NAME).unlink()
        with self.assertRaises(ConfigurationError) as caught:
            self.store.add_agent("c")
        self.assertIn("copy the backup to it", str(caught.exception))
        self.assertIsNone(self.state.read(FILE_NAME))

    def test_what_kas_could_not_read_is_not_written(self) -> None:
        self.store.add_agent("a")
        before = self.state.read(FILE_NAME)
        self.patch(identity_store, "MAX_FILE", len(before or b""))
        with self.assertRaises(ConfigurationError) as caught:
            self.store.add_agent("b")
        self.assertIn("would be larger than", str(caught.exception))
        self.assertEqual(self.state.read(FILE_NAME), before)

    def test_a_link_stays(self) -> None:
        """As a volume has it: the file that it leads to is replaced."""
        volume = self.state.path.parent / "volume.json"
        self.store.add_agent("a")
        self.state.file(FILE_NAME).rename(volume)
        self.state.file(FILE_NAME).symlink_to(volume)
        self.store.add_agent("b")
        self.assertTrue(self.state.file(FILE_NAME).is_symlink())
        self.assertIn(b'"b"', volume.read_bytes())
        volume.unlink()
        with self.assertRaises(ConfigurationError) as caught:
            self.store.add_agent("c")
        self.assertIn("is a symbolic link to", str(caught.exception))

    def test_shown_before_it_is_valid(self) -> None:
        """What cannot be handed over was never made."""
        shown: list[str] = []

        def show(agent: Agent, token: str) -> None:
            self.assertEqual(self.store.load().agents, ())
            shown.append(token)
            raise OSError(28, "No space left on device")

        self.assertRaises(OSError, self.store.add_agent, "a", 0, show)
        self.assertEqual(len(shown), 1)
        self.assertEqual(self.store.load().agents, ())

    def test_not_shown_changes_nothing(self) -> None:
        """Neither the file nor the one before."""

        def show(agent: Agent, token: str) -> None:
            raise OSError(28, "No space left on device")

        for name in ("a", "b"):
            self.store.add_agent(name)
        before = self.files()
        self.assertRaises(OSError, self.store.add_agent, "c", 0, show)
        self.assertEqual(self.files(), before)

    def files(self) -> dict[str, bytes]:
        """What is in the state directory."""
        return {file.name: file.read_bytes() for file in self.state.path.iterdir()}

    def test_every_new_token_is_shown(self) -> None:
        """Which is the one time that it can be."""
        shown: list[tuple[str, str]] = []

        def show(made: Agent | User, token: str) -> None:
            shown.append((made.name, token))

        made: list[tuple[Any, str]] = [
            self.store.add_agent("prod", show=show),
            self.store.rotate_agent("prod", timedelta(0), show),
            self.store.add_user("alice", ["prod"], ALICE, show=show),
            self.store.renew_user("alice", show=show),
        ]
        self.assertEqual(shown, [(one.name, token) for one, token in made])
        self.assertEqual(len({token for _, token in shown}), 4)

    def test_what_a_change_returns(self) -> None:
        """The entry as it is from now on, or as it was, where it is gone."""
        for name in ("a", "b", "c"):
            self.store.add_agent(name)
        self.store.add_user("alice", ["a"], ALICE)
        granted = self.store.grant_user("alice", ["b", "c"])
        self.assertEqual(granted.agents, ("a", "b", "c"))
        taken = self.store.ungrant_user("alice", ["b"])
        self.assertEqual(taken.agents, ("a", "c"))
        self.assertRefused("anyway", self.store.ungrant_user, "alice", ["b"])
        self.assertEqual(self.store.grant_user("alice", ["*"]).agents, ("*",))
        self.assertRefused("every agent", self.store.ungrant_user, "alice", ["a"])
        self.assertEqual(self.store.ungrant_user("alice", ["*"]).agents, ())
        self.assertEqual(self.store.load().users[0].agents, ())
        revoked = self.store.revoke_user("alice")
        self.assertEqual(revoked.revoked_at, START)
        self.assertEqual(self.store.remove_user("alice"), revoked)
        ended = self.store.revoke_agent("a")
        self.assertEqual((ended.tokens, ended.revoked_at), ((), START))
        self.assertEqual(self.store.remove_agent("a"), ended)
        self.assertEqual([one.name for one in self.store.load().agents], ["b", "c"])

    def test_as_large_as_allowed(self) -> None:
        """What kas could not read is not written."""
        self.store.add_agent("a")
        self.store.add_agent("b")
        size = len(self.state.file(FILE_NAME).read_bytes())
        self.store.remove_agent("b")
        # The ids of both have one digit.
        self.patch(identity_store, "MAX_FILE", size)
        self.store.add_agent("b")
        error = self.assertRaises(ConfigurationError, self.store.add_agent, "c")
        self.assertIn("would be larger than", str(error))

    def test_tokens_out_of_a_kubeconfig(self) -> None:
        for token in (b"kasuser-1-x", b"user:1:kasuser-1-x"):
            self.assertEqual(bare_token(token), b"kasuser-1-x")
        for other in (b"pat:1:x", b"user:1:", b"user:1", b"user:" + b"1" * 200 + b":x"):
            self.assertEqual(bare_token(other), other)

    def test_prefix_and_id_of_a_token(self) -> None:
        """What follows them is random, and may have hyphens."""
        for secret in (b"x", b"a-b-c", b""):
            found = split_token(b"kasuser-12-" + secret)
            self.assertEqual(found, ("kasuser", "12"))
        long = b"kasuser-12-".ljust(MAX_TOKEN, b"x")
        self.assertEqual(split_token(long), ("kasuser", "12"))
        for other in (b"", b"kasuser-12", b"x" * 200, long + b"x"):
            self.assertIsNone(split_token(other))
