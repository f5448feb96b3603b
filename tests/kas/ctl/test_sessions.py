"""What ``kasctl session`` prints of the sessions of kas' page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kas.ctl import calls
from kas.ctl.cli import cli

NOW = 2_000_000.0

SESSION = {
    "id": "0123456789abcdef",
    "owner": "user:alice",
    "name": "alice",
    "method": "token",
    "createdAt": NOW - 3 * 3600 - 60,
    "usedAt": NOW - 240,
    "endsAt": NOW + 8 * 3600,
    "address": "192.0.2.1",
    "program": "Mozilla/5.0 \x1b[31m" + "x" * 100,
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs a command; kas answers what it is given."""
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef" * 4)
    monkeypatch.setattr(time, "time", lambda: NOW)
    asked: list[Any] = []

    def run(answer: Any, *arguments: str, status: int = 0) -> tuple[str, Any]:
        def call(_: object, method: str, request: Any, timeout: float) -> Any:
            asked.append((method.rpartition("/")[2], request))
            return answer

        monkeypatch.setattr(calls.Server, "call", call)
        server = ("--server", "http://kas.example.org", "--secret-file", str(secret))
        result = CliRunner().invoke(cli, ["session", *arguments, *server])
        assert result.exit_code == status, result.output
        return result.output, asked[-1] if asked else None

    return run


def test_list(run: Any) -> None:
    text, asked = run({"sessions": [SESSION]}, "list", "--user", "alice")
    assert asked == ("ListSessions", {"user": "alice"})
    head, row = text.splitlines()
    assert head.split("  ")[0] == "ID"
    assert row.startswith("0123456789abcdef  user:alice  token")
    assert "3h01m" in row and "4m ago" in row and "\x1b" not in row
    assert len(row) < 140


def test_end(run: Any) -> None:
    text, asked = run({"sessions": [SESSION, SESSION]}, "end", "a", "b")
    assert asked == ("EndSessions", {"ids": ["a", "b"], "user": "", "all": False})
    assert text == "ended 2 sessions\n"
    assert run({}, "end", "--all") == (
        "ended 0 sessions\n",
        ("EndSessions", {"ids": [], "user": "", "all": True}),
    )


@pytest.mark.parametrize(
    "arguments", [[], ["a", "--all"], ["--user", "x", "--all"], ["a", "--user", "x"]]
)
def test_what_to_end(run: Any, arguments: list[str]) -> None:
    text, asked = run({}, "end", *arguments, status=2)
    assert "name either ids, or --user, or --all" in text
    assert asked is None
