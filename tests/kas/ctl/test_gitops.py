"""What ``kasctl gitops`` prints of what agents say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kas.ctl import calls
from kas.ctl.cli import cli
from kas.ctl.gitops import _who

BAD = "\x1b]0;x\x07\r\n$(id); "


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs a command; kas answers what it is given."""
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef" * 4)

    def run(answer: dict[str, Any], *arguments: str) -> str:
        monkeypatch.setattr(calls.Server, "call", lambda *_: answer)
        server = ("--server", "http://kas.example.org", "--secret-file", str(secret))
        result = CliRunner().invoke(cli, ["gitops", *arguments, *server])
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result.output

    return run


class TestWhatAgentsSay:
    """Nothing of it does anything to a terminal or to a shell."""

    def test_status(self, shown: Any) -> None:
        project = {
            "id": BAD,
            "state": "STATE_HELD",
            "commit": BAD,
            "objectsByOutcome": {BAD: 1},
            "pinned": BAD,
            "nextCommit": BAD,
            "problems": [BAD],
            "release": BAD,
            "drifted": 2,
        }
        found = shown({"projects": [project]}, "status", "prod")
        assert [one for one in found if not (one.isprintable() or one == "\n")] == []
        (line,) = [one for one in found.splitlines() if "approve" in one]
        assert line.count("'") == 4
        assert line.endswith("$(id); '")
        (line,) = [one for one in found.splitlines() if "2 objects" in one]
        assert line.endswith("$(id); '")

    def test_a_state_of_a_newer_kas(self, shown: Any) -> None:
        assert "apps 99" in shown(
            {"projects": [{"id": "apps", "state": 99}]}, "status", "a"
        )

    def test_preview(self, shown: Any) -> None:
        one = {"effect": BAD, "place": BAD, "object": {"kind": BAD, "name": BAD}}
        found = shown({"commit": BAD, "objects": [one]}, "preview", "prod", "apps")
        assert [one for one in found if not (one.isprintable() or one == "\n")] == []


def test_drift(shown: Any) -> None:
    """Whoever looks learns that there is some, and how to read more."""
    project = {"id": "web", "drifted": 1, "workedAt": "2026-11-24T02:00:01.5Z"}
    found = shown({"projects": [project]}, "status", "prod")
    assert "last looked at 2026-11-24T02:00:01Z" in found
    assert "others have changed 1 object: kasctl gitops drift prod web" in found
    for kind, how in (("KIND_DELETED", "deleted"), ("KIND_CHANGED", "changed")):
        preview = {"effect": "left", "drift": {"kind": kind}}
        found = shown({"commit": "c", "objects": [preview]}, "preview", "prod", "web")
        assert f"was {how} since it was applied, by others" in found


def test_who_wrote_at_no_known_time() -> None:
    """The API server notes no time of a change through ``scale``."""
    writers = [
        {"manager": "kubectl"},
        {"manager": "other", "time": "2026-11-24T02:00:01.5Z"},
    ]
    assert _who({"writers": writers}) == "kubectl, other at 2026-11-24T02:00:01Z"


def test_a_receiver_that_is_not_there(shown: Any) -> None:
    """Why it is not told is said once."""
    one = {"object": {"kind": "K", "name": "a"}, "reason": "gone", "problem": "gone"}
    assert shown({"receivers": [one]}, "status", "prod").count("gone") == 1
