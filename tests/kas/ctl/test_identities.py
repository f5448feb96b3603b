"""kasctl agent and kasctl user, as an operator meets them."""

from __future__ import annotations

import json
import os
import re
import stat
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from kas.ctl.common import Ctl
from kas.ctl.secret_files import secret_file
from kas.identity.store import digest
from tests.kas.ctl.kasctl import Kasctl
from tunnel.errors import ConfigurationError


class TestAgents:
    """agent ..."""

    def test_add_and_list(self, kasctl: Kasctl) -> None:
        token = kasctl.ok("agent", "add", "prod").strip()
        (kept,) = kasctl.store().load().agents[0].tokens
        assert digest(token.encode()).hex() == kept.sha256
        listed = kasctl.ok("agent", "list")
        head, line = map(str.split, listed.splitlines())
        titles = "ID NAME STATE SINCE INSTANCES VERSION KUBERNETES KAS"
        assert head == [*titles.split(), "TOKENS", "PROJECT", "CREATED"]
        assert line[:-2] == "1 prod unknown - - - - - 1 none".split()
        created = kasctl.store().load().agents[0].created_at
        assert " ".join(line[-2:]) == f"{created:%Y-%m-%d %H:%M:%SZ}"
        assert token.split("-", 2)[2] not in listed

    def test_json(self, kasctl: Kasctl) -> None:
        added = kasctl.data("agent", "add", "prod")
        assert (added["agent"]["id"], added["agent"]["name"]) == ("1", "prod")
        assert added["token"].startswith("kasagent-")
        (listed,) = kasctl.data("agent", "list")
        unknown = {"connected": None, "last_seen": None, "connections": None}
        assert listed == {**added["agent"], **unknown}
        assert "sha256" not in json.dumps(listed)

    def test_project(self, kasctl: Kasctl) -> None:
        added = kasctl.data("agent", "add", "prod", "--project-id", "42")
        assert added["agent"]["project_id"] == 42
        kasctl.ok("agent", "add", "test")
        listed = kasctl.data("agent", "list")
        assert [one["project_id"] for one in listed] == [42, None]
        lines = kasctl.ok("agent", "list").splitlines()
        columns = [re.split(" {2,}", line) for line in lines]
        assert [line[-2] for line in columns] == ["PROJECT", "42", "none"]
        for wrong in ("0", "-1", "x", str(2**63)):
            arguments = ("agent", "add", "other", "--project-id", wrong)
            assert "--project-id" in kasctl.fails(*arguments, code=2)

    def test_labels_and_environments(self, kasctl: Kasctl) -> None:
        for name in ("one", "two", "three"):
            kasctl.ok("agent", "add", name)
        assert "LABELS" not in kasctl.ok("agent", "list")
        said = kasctl.ok("agent", "label", "one", "env=prod", "region=eu")
        assert said == "labels of agent one: env=prod,region=eu\n"
        kasctl.ok("agent", "label", "two", "env=prod", "old=1")
        data = kasctl.data("agent", "label", "two", "old-")
        assert data["agent"]["labels"] == {"env": "prod"}
        said = kasctl.fails("agent", "label", "two", "old")
        assert "'old' is neither KEY=VALUE" in said

        said = kasctl.ok("environment", "set", "production", "env=prod")
        assert said == "agents of environment production: one, two\n"
        assert kasctl.ok("environment", "set", "none", "env=no").endswith(": none\n")
        kasctl.ok(
            *("user", "add", "alice", "--environment", "production", "--read-only")
        )
        said = kasctl.ok("user", "grant", "alice", "--agent", "three")
        assert said == "user alice may reach: three, environment production\n"
        assert "three, environment production" in kasctl.ok("user", "list")
        (_, listed) = kasctl.data("environment", "list")
        assert listed == {
            "name": "production",
            "selector": "env=prod",
            "agents": ["one", "two"],
            "users": ["alice"],
        }
        assert "production  env=prod  one, two  alice" in kasctl.ok(
            "environment", "list"
        )

        def names(*options: str) -> list[str]:
            return [one["name"] for one in kasctl.data("agent", "list", *options)]

        assert names("-l", "env=prod,region!=eu") == ["two"]
        assert names("--environment", "production") == ["one", "two"]
        assert names("--environment", "production", "-l", "region") == ["one"]
        assert "LABELS" in kasctl.ok("agent", "list", "-l", "env")
        assert "is invalid at" in kasctl.fails("agent", "list", "-l", "a=(")
        said = kasctl.fails("agent", "list", "--environment", "prod")
        assert said == (
            "no environment has the name 'prod'; known are: none, production\n"
        )

        kasctl.ok("environment", "remove", "production")
        assert kasctl.store().load().users[0].environments == ()

    def test_token_file(self, kasctl: Kasctl) -> None:
        file = kasctl.path / "token"
        out = kasctl.data("agent", "add", "prod", "--token-file", str(file))
        assert "token" not in out
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        first = file.read_text()
        assert first.startswith("kasagent-")
        kasctl.ok("agent", "rotate", "prod", "--token-file", str(file))
        assert file.read_text() != first
        assert sorted(os.listdir(kasctl.path)) == ["state", "token"]

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs files of another user")
    @pytest.mark.parametrize("is_link", [False, True], ids=["file", "link"])
    def test_a_token_file_of_another_user(self, kasctl: Kasctl, is_link: bool) -> None:
        kasctl.ok("agent", "add", "prod")
        file, other = kasctl.path / "planted", kasctl.path / "other"
        if is_link:
            file.symlink_to(other)
        else:
            file.touch()
        os.chown(file, 1234, 1234, follow_symlinks=False)
        user = ("user", "add", "alice", "--agent", "prod", "--as-agent")
        said = kasctl.fails(*user, "--token-file", str(file))
        assert "belongs to the user 1234, who could read the token" in said
        assert not kasctl.store().load().users
        assert not other.exists()
        agent = kasctl.fails("agent", "add", "new", "--token-file", str(file))
        assert "already exists" in agent
        kubeconfig = ("kubeconfig", "--agent", "prod", "--user", "bob", "--as-agent")
        server = ("--server", "https://127.0.0.1:8154", "--system-cas")
        for option in ((), ("--merge",)):
            said = kasctl.fails(
                *kubeconfig, *server, "--output-file", str(file), *option
            )
            if option or is_link:
                assert "belongs to the user 1234" in said
            else:
                assert "already exists" in said
        assert not kasctl.store().load().users

    def test_what_is_said(self, kasctl: Kasctl) -> None:
        said = kasctl.run("agent", "add", "prod").stderr
        assert "agent prod has the id 1; its token:\n" in said
        file = kasctl.path / "token"
        result = kasctl.run("agent", "add", "test", "--token-file", str(file))
        assert result.stdout == f"agent test has the id 2; its token is in {file}\n"
        assert "its token:" not in result.stderr
        help_ = " ".join(kasctl.ok("agent", "rotate", "--help").split())
        assert "[default: 24h]" in help_

    def test_a_token_file_that_cannot_be_written(self, kasctl: Kasctl) -> None:
        said = kasctl.fails("agent", "add", "prod", "--token-file", "/none/token")
        assert "no token was made" in said
        assert not kasctl.state.exists()

    def test_a_token_file_after_a_failure(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError):
            with secret_file(tmp_path / "token"):
                raise ConfigurationError(["no"])
        assert os.listdir(tmp_path) == []

    def test_agentk_may_start_first(self, kasctl: Kasctl) -> None:
        said = kasctl.run("agent", "add", "prod").stderr
        authority = kasctl.state / "ca.crt"
        assert f"--ca-cert-file {authority}" in said
        before = authority.read_bytes()
        assert b"BEGIN CERTIFICATE" in before
        kasctl.ok("agent", "add", "test")
        assert authority.read_bytes() == before

    def test_an_own_certificate(self, kasctl: Kasctl) -> None:
        kasctl.ok("agent", "add", "prod")
        (kasctl.state / "ca.crt").unlink()
        assert "--ca-cert-file" not in kasctl.run("agent", "add", "test").stderr
        (kasctl.state / "server.key").unlink()
        result = kasctl.run("agent", "add", "dev")
        assert result.exit_code == 0
        assert result.stdout.startswith("kasagent-")
        assert "server.key" in result.stderr

    def test_rotate_revoke_remove(self, kasctl: Kasctl) -> None:
        kasctl.ok("agent", "add", "prod")
        rotated = kasctl.data("agent", "rotate", "prod", "--grace", "1h")
        assert len(rotated["agent"]["tokens"]) == 2
        rotated = kasctl.data("agent", "rotate", "prod", "--grace", "0")
        assert len(rotated["agent"]["tokens"]) == 1
        assert kasctl.data("agent", "revoke", "prod")["agent"]["revoked_at"]
        assert kasctl.data("agent", "list")[0]["tokens"] == []
        kasctl.ok("agent", "remove", "1")
        assert kasctl.data("agent", "list") == []

    def test_mistakes(self, kasctl: Kasctl) -> None:
        kasctl.ok("agent", "add", "prod")
        assert "did you mean 'prod'?" in kasctl.fails("agent", "revoke", "prd")
        said = kasctl.fails("agent", "rotate", "prod", "--grace", "5", code=2)
        assert "write the unit: 5s" in said


class TestUsers:
    """user ..."""

    @pytest.mark.parametrize(
        ("expires", "says"),
        [
            ("soon", "'soon' is not a time such as 90s, 8h or 30d\n"),
            ("5", "30d (write the unit: 5s)\n"),
            ("0s", "a token that is valid for 0s would be useless; write 1s or more"),
            ("0", "would be useless"),
            ("999ms", "would be useless"),
        ],
    )
    def test_lifetimes_that_are_none(
        self, kasctl: Kasctl, expires: str, says: str
    ) -> None:
        kasctl.ok("agent", "add", "prod")
        new = ("user", "add", "bob", "--agent", "prod", "--as-agent")
        assert says in kasctl.fails(*new, "--expires", expires, code=2)
        assert kasctl.store().load().users == ()

    def test_add_and_list(self, kasctl: Kasctl) -> None:
        kasctl.ok("agent", "add", "prod")
        kasctl.ok("user", "add", "bob", "--agent", "*", "--as-agent")
        added = kasctl.data(
            *("user", "add", "alice", "--agent", "prod", "--expires", "8h"),
            *("--as", "alice@example.org", "--group", "dev", "--group", "ops"),
        )
        assert added["user"]["as"] == "alice@example.org"
        assert added["user"]["groups"] == ["dev", "ops"]
        created = datetime.fromisoformat(added["user"]["created_at"])
        expires = datetime.fromisoformat(added["user"]["expires_at"])
        assert (expires - created).total_seconds() == 8 * 3600
        listed = kasctl.ok("user", "list")
        assert "alice@example.org, group dev, group ops" in listed
        assert "agentk itself" in listed
        assert "read-only" not in listed
        bob = kasctl.store().load().users[0]
        assert bob.token.expires_at == bob.created_at + timedelta(days=90)
        assert f"{bob.token.expires_at:%Y-%m-%d %H:%M:%SZ}" in listed
        kasctl.ok(*"user add ro --agent prod --read-only --expires never".split())
        shown = kasctl.ok("user", "list").splitlines()[-1].split()
        assert shown == [
            "ro",
            "active",
            "prod",
            "agentk",
            "itself,",
            "read-only",
            "never",
        ]
        reader = "user add rs --agent prod --as system:x --force --read-only --secrets"
        kasctl.ok(*reader.split())
        assert "system:x, read-only with Secrets" in kasctl.ok("user", "list")
        assert kasctl.store().load().users[-1].secrets
        kasctl.ok("user", "revoke", "alice")
        states = {u["name"]: u["revoked_at"] for u in kasctl.data("user", "list")}
        assert states["alice"]
        assert states["bob"] is None

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (("--agent", "prod"), "specify the permissions of the new user"),
            (("--agent", "prod", "--expires", "soon"), "is not a time such as"),
            (("--agent", "prod", "--as-agent", "--as", "x"), "excludes --as"),
            (("--agent", "prod", "--as-agent", "--secrets"), "needs --read-only"),
            (("--agent", "prod", "--as", "system:admin"), "--force allows it"),
            (
                ("--agent", "prod", "--as", "x", "--group", "system:masters"),
                "--force allows it",
            ),
            (("--agent", "prod", "--group", "x"), "--group needs --as"),
            ((), "Missing option '--agent'"),
        ],
    )
    def test_usage(self, kasctl: Kasctl, arguments: tuple[str, ...], says: str) -> None:
        kasctl.ok("agent", "add", "prod")
        assert says in kasctl.fails("user", "add", "alice", *arguments, code=2)

    def test_grant_and_ungrant(self, kasctl: Kasctl) -> None:
        for name in ("prod", "test", "dev"):
            kasctl.ok("agent", "add", name)
        kasctl.ok("user", "add", "alice", "--agent", "prod", "--as-agent")
        said = kasctl.ok(*"user grant alice --agent 2 --agent dev --agent prod".split())
        assert said == "user alice may reach: prod, test, dev\n"
        left = kasctl.data(*"user ungrant alice --agent prod --agent dev".split())
        assert left["user"]["agents"] == ["test"]
        said = kasctl.fails(*"user ungrant alice --agent prod".split())
        assert "cannot reach the agent 'prod' anyway" in said
        said = kasctl.ok("user", "grant", "alice", "--agent", "*")
        assert said == "user alice may reach: every agent\n"
        said = kasctl.fails(*"user ungrant alice --agent prod".split())
        assert "single agents cannot be excluded" in said
        said = kasctl.ok("user", "ungrant", "alice", "--agent", "*")
        assert said == "user alice may reach: none\n"
        for command in ("grant", "ungrant"):
            for who, agent in (("alic", "prod"), ("alice", "prd")):
                said = kasctl.fails("user", command, who, "--agent", agent)
                assert "did you mean" in said
        kasctl.ok("user", "revoke", "alice")
        assert "was revoked" in kasctl.fails(*"user grant alice --agent prod".split())

    def test_remove(self, kasctl: Kasctl) -> None:
        kasctl.ok("user", "add", "alice", "--agent", "*", "--as-agent")
        kasctl.ok("user", "add", "bob", "--agent", "*", "--as-agent")
        assert kasctl.ok("user", "remove", "alice") == "user alice was removed\n"
        assert [one["name"] for one in kasctl.data("user", "list")] == ["bob"]
        assert "no user has the name 'alice'" in kasctl.fails("user", "remove", "alice")

    def test_unknown_agent(self, kasctl: Kasctl) -> None:
        kasctl.ok("agent", "add", "prod")
        said = kasctl.fails("user", "add", "alice", "--agent", "pord", "--as-agent")
        assert "did you mean 'prod'?" in said


def test_a_change_that_kas_does_not_record(
    kasctl: Kasctl, capsys: pytest.CaptureFixture[str]
) -> None:
    """The change is made: the command succeeds and says what is missing."""
    with Ctl(str(kasctl.state), False).recording(
        "user.add", {}, kasctl.path / "none.sock"
    ):
        pass
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("the audit log has no entry for this change: ")
