"""What the shell offers at the Tab key."""

from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete

from kas.ctl.cli import cli
from tests.kas.ctl.kasctl import Kasctl


def offered(kasctl: Kasctl, *words: str, incomplete: str = "") -> list[str]:
    shell = ShellComplete(cli, {}, "kasctl", "_KASCTL_COMPLETE")
    given = [*words[:2], "--state-directory", str(kasctl.state), *words[2:]]
    return [one.value for one in shell.get_completions(given, incomplete)]


@pytest.fixture(autouse=True)
def names(kasctl: Kasctl) -> None:
    for agent in ("prod-1", "prod-2", "test"):
        kasctl.ok("agent", "add", agent)
    for user in ("alice", "bob"):
        kasctl.ok("user", "add", user, "--agent", "*", "--as-agent")
    kasctl.ok("user", "revoke", "bob")


@pytest.mark.parametrize("command", ["rotate", "revoke", "remove", "manifest"])
def test_agents(kasctl: Kasctl, command: str) -> None:
    found = offered(kasctl, "agent", command, incomplete="prod")
    assert found == ["prod-1", "prod-2"]


def test_agents_of_options(kasctl: Kasctl) -> None:
    found = offered(kasctl, "user", "grant", "alice", "--agent")
    assert found == ["prod-1", "prod-2", "test"]


def test_users(kasctl: Kasctl) -> None:
    assert offered(kasctl, "user", "revoke") == ["alice"]


def test_what_cannot_be_read_offers_nothing(kasctl: Kasctl) -> None:
    """A shell that waits for a name gets no traceback."""
    (kasctl.state / "identity.json").write_text("{")
    assert offered(kasctl, "agent", "revoke") == []
