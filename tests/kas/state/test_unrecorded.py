"""Changes by kasctl while no kas runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kas.state import unrecorded
from kas.state.control import parse_change
from kas.state.directory import StateDirectory
from kas.state.unrecorded import UNRECORDED, UnrecordedChanges
from tests.kas.ctl.kasctl import Kasctl
from tunnel.errors import ConfigurationError


@pytest.fixture
def changes(tmp_path: Path) -> UnrecordedChanges:
    return UnrecordedChanges(StateDirectory.open(tmp_path / "state"))


def test_taken_once(changes: UnrecordedChanges) -> None:
    assert changes.take() == []
    changes.add({"action": "one\n"})
    changes.add({"action": "two"})
    taken = [json.loads(one)["action"] for one in changes.take()]
    assert taken == ["one\n", "two"]
    assert changes.take() == []


def test_a_limit(changes: UnrecordedChanges, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unrecorded, "MAX_BYTES", 100)
    with pytest.raises(ConfigurationError, match="is full; start kas"):
        for _ in range(20):
            changes.add({"action": "agent.add"})
    assert 1 <= len(changes.take()) <= 5


def test_kasctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change is an event that kas accepts; without room, kasctl says so."""
    kasctl = Kasctl(tmp_path)
    kasctl.ok("agent", "add", "prod")
    changes = UnrecordedChanges(StateDirectory.open(kasctl.state))
    (line,) = changes.take()
    event = parse_change(line)
    assert (event.action, event.details["name"]) == ("agent.add", "prod")
    assert {"made_at", "operator"} <= event.details.keys()
    monkeypatch.setattr(unrecorded, "MAX_BYTES", 10)
    result = kasctl.run("agent", "add", "test")
    assert result.exit_code == 0
    assert "the audit log will have no entry for this change" in result.stderr
    assert not (kasctl.state / UNRECORDED).exists()


def test_a_change_that_fails(tmp_path: Path) -> None:
    kasctl = Kasctl(tmp_path)
    kasctl.ok("agent", "add", "prod")
    changes = UnrecordedChanges(StateDirectory.open(kasctl.state))
    changes.take()
    kasctl.fails("agent", "add", "prod")
    assert changes.take() == []
