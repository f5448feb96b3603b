"""The format of the identity file."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kas.identity.file import (
    BACKUP_NAME,
    FILE_NAME,
    Agent,
    Identities,
    IdentityReader,
    Token,
    User,
    _of_json,
    dump,
    parse,
)
from tests.kas.identities import ALICE, START, IdentityCase
from tunnel.errors import ConfigurationError

#: What the format consists of.
_PARTS = [
    b"\n",
    b",\n",
    b" ",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b"0",
    b"\xff",
    b"\n ]\n}\n",
]


class FormatTests(IdentityCase):
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
        self.assertIn("id.json is not a valid identity file", str(error))
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
        self.assertBroken("extra is unknown", changed(lambda c: c.update(extra=1)))
        self.assertBroken(
            "the agent id '1' is duplicated",
            changed(lambda c: c["agents"].append(c["agents"][0])),
        )
        self.assertBroken(
            "the agent name 'prod' is duplicated",
            changed(lambda c: c["agents"].append({**c["agents"][0], "id": "2"})),
        )
        self.assertBroken(
            "the user name 'alice' is duplicated",
            changed(lambda c: c["users"].append(c["users"][0])),
        )
        token = self.content()["agents"][0]["tokens"][0]
        self.assertBroken(
            f"the token id '{token['id']}' is duplicated",
            changed(lambda c: c["users"][0].update(token=token)),
        )
        self.assertBroken(
            "agents[0].extra is unknown",
            changed(lambda c: c["agents"][0].update(extra=1)),
        )
        self.assertBroken(
            "users[0].token.extra is unknown",
            changed(lambda c: c["users"][0]["token"].update(extra=1)),
        )
        self.assertBroken("the file is not an object", b"[]")
        self.assertBroken("restore a backup", b"[]")
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

    def test_advice(self) -> None:
        """The copy from before the last change is named where there is one."""
        self.store.add_agent("prod")
        self.store.add_agent("other")
        path = self.state.file(FILE_NAME)
        error = self.assertRaises(ConfigurationError, parse, b"x", str(path))
        backup = path.with_name(BACKUP_NAME)
        self.assertIn(f"{backup} has the content before the last change", str(error))
        self.assertIn(f"copy it to {path}", str(error))

    def test_expiry(self) -> None:
        """A token is good until its last moment, and not in it."""
        self.store.add_agent("prod")
        self.store.add_user("alice", ["prod"], ALICE, timedelta(hours=8))
        token = self.store.load().users[0].token
        end = START + timedelta(hours=8)
        self.assertEqual(token.expires_at, end)
        self.assertTrue(token.valid_at(end - timedelta(microseconds=1)))
        self.assertFalse(token.valid_at(end))

    def test_written(self) -> None:
        """Text that people can read and compare: lines, and letters as they are."""
        self.store.add_agent("prod")
        data = dump(self.store.load())
        self.assertTrue(data.endswith(b"}\n"))
        self.assertIn(b'\n "agents": [\n  {"id": "1", "name": "prod", ', data)

    def test_what_stays(self) -> None:
        """Is the same object when it is read again, and the same text."""
        self.store.add_agents(["a", "b", "c"])
        self.store.add_user("alice", ["a"], ALICE)
        path, reader = self.state.file(FILE_NAME), IdentityReader()
        before = reader.parse(path.read_bytes(), "f")
        self.store.revoke_agent("b")
        self.store.add_agent("d")
        after = reader.parse(path.read_bytes(), "f")
        self.assertEqual(after, self.store.load())
        for number, same in ((0, True), (1, False), (2, True)):
            self.assertIs(after.agents[number] is before.agents[number], same)
        self.assertIs(after.users[0], before.users[0])
        self.assertEqual(reader.dump(after), path.read_bytes())
        # What is there no more is not kept.
        self.assertEqual(len(reader._agents), len(after.agents))

    def test_only_what_can_be_read_is_written(self) -> None:
        """As it is, or not at all."""
        good, odd = Token("0" * 16, "0" * 64, START), Token("0", "0" * 64, START)
        for one in (
            Agent("1", "a", START, (odd,)),
            Agent("one", "a", START),
            Agent("1", "\ud800", START),
            Agent("1", "a", START, (good, good)),
        ):
            self.assertRaises(ValueError, dump, Identities((one,), (), 2))

    def test_another_layout(self) -> None:
        """As an older kas wrote it, and as a person has laid it out."""
        self.store.add_agents(["a", "b"])
        self.store.add_user("alice", ["a"], ALICE)
        content, identities = self.content(), self.store.load()
        for indent in (None, 1, 4):
            text = json.dumps(content, indent=indent, ensure_ascii=False)
            self.assertEqual(parse(text.encode(), "f"), identities)
        shuffled = {key: content[key] for key in sorted(content)}
        self.assertEqual(parse(json.dumps(shuffled).encode(), "f"), identities)

    @given(st.data())
    def test_one_meaning(self, data: st.DataObject) -> None:
        """Line by line nothing is taken that is not the JSON of the whole file."""
        tokens = [Token(str(n) * 16, "0" * 64, START) for n in range(3)]
        agents = tuple(Agent(str(n), f"a{n}", START, (tokens[n],)) for n in (1, 2))
        text = dump(Identities(agents, (User("u", ("*",), tokens[0], START),), 3))
        for _ in range(data.draw(st.integers(1, 3))):
            begin = data.draw(st.integers(0, len(text)))
            end = begin + data.draw(st.integers(0, 3))
            part = data.draw(st.sampled_from([b"", *_PARTS]) | st.binary(max_size=2))
            text = text[:begin] + part + text[end:]
        by_lines = IdentityReader()._of_lines(text)
        if by_lines is not None:
            self.assertEqual(by_lines, _of_json(text))

    @given(st.binary(max_size=200))
    def test_nothing_else_is_raised(self, data: bytes) -> None:
        self.assertRaises(ConfigurationError, parse, data, "f")
