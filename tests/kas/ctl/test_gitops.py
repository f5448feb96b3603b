"""What ``kasctl gitops`` prints of what agents say."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
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
    assert "last checked at 2026-11-24T02:00:01Z" in found
    assert "others have changed 1 object: kasctl gitops drift prod web" in found
    for kind, how in (("KIND_DELETED", "deleted"), ("KIND_CHANGED", "changed")):
        preview = {"effect": "left", "drift": {"kind": kind}}
        found = shown({"commit": "c", "objects": [preview]}, "preview", "prod", "web")
        assert f"was {how} since it was applied, by others" in found


def test_nothing_is_said_twice(shown: Any) -> None:
    """Why a commit waits, and the commands."""
    long = f"a.yaml:1: {'x' * 300}"
    for problem in (long, f"commit c23456789012: {long}"):
        project = {
            "id": "web",
            "nextCommit": "c23456789012345",
            "nextReason": long[:300],
            "problems": [problem, "another"],
        }
        found = shown({"projects": [project]}, "status", "prod").splitlines()
        assert found[1:] == [f"  newest commit c23456789012: {long}", "  another"]
    held = "8 objects wait for an approval; to delete: kasctl gitops approve x web 1"
    project = {"id": "web", "release": "1", "problems": [held]}
    found = shown({"projects": [project]}, "status", "prod").splitlines()
    assert found[1:] == [
        "  8 objects wait for an approval",
        "  to delete them: kasctl gitops approve prod web 1",
    ]
    suspended = ["suspended: nothing is changed"]
    project = {"id": "web", "state": "STATE_SUSPENDED", "problems": suspended}
    found = shown({"projects": [project]}, "status", "prod").splitlines()
    assert found[1:] == ["  nothing is changed until: kasctl gitops resume prod web"]


def test_a_preview_of_nothing(shown: Any) -> None:
    found = shown({"commit": "c1"}, "preview", "prod", "web", "--path", "nowhere")
    assert found == "commit c1: no object in nowhere\n"


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


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs a command against statuses that follow one another; the last one stays."""
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef" * 4)

    def run(*arguments: str, statuses: list[dict[str, Any]]) -> tuple[int, str, Any]:
        asked: list[tuple[str, Any]] = []

        def call(self: Any, method: str, request: Any, timeout: float) -> Any:
            name = method.rpartition("/")[2]
            asked.append((name, request))
            if name != "GetStatus":
                return {"commit": "c2"}
            left = statuses.pop(0) if len(statuses) > 1 else statuses[0]
            return {"projects": [{"id": "web", **left}]}

        monkeypatch.setattr(calls.Server, "call", call)
        monkeypatch.setattr("kas.ctl.gitops.PAUSE", 0)
        server = ("--server", "http://kas.example.org", "--secret-file", str(secret))
        result = CliRunner().invoke(cli, ["gitops", *arguments, *server])
        return result.exit_code, result.output, asked

    return run


def _status(state: str, commit: str, worked: str, **more: str) -> dict[str, Any]:
    return {"state": f"STATE_{state}", "commit": commit, "workedAt": worked, **more}


BEFORE = _status("CURRENT", "c1", "1")


@pytest.mark.parametrize(
    ("after", "code"),
    [
        ([_status("CURRENT", "c2", "3")], 0),
        ([_status("FAILED", "c2", "3")], 1),
        ([_status("HELD", "c2", "3")], 1),
        ([_status("SUSPENDED", "c1", "1", nextCommit="c2")], 1),
        ([_status("CURRENT", "c1", "1", nextCommit="c2", pinned="c1")], 1),
        # It cannot be used, and the commit before stays.
        ([_status("FAILED", "c1", "1", nextCommit="c2", nextReason="a.yaml:1")], 1),
    ],
)
def test_sync_waits(played: Any, after: list[dict[str, Any]], code: int) -> None:
    """Until a pass over the newest commit has ended, however it ended."""
    still = [
        BEFORE,
        _status("CURRENT", "c1", "2", nextCommit="c2"),
        _status("WORKING", "c1", "2", nextCommit="c2"),
    ]
    arguments = ("sync", "prod", "web", "--wait")
    found, _, asked = played(*arguments, statuses=[BEFORE, *still, *after])
    assert found == code
    assert [name for name, _ in asked] == ["GetStatus", "Sync", *["GetStatus"] * 4]


def test_sync_waits_for_a_handover(played: Any) -> None:
    """An object that stays until another project takes it ends no wait."""
    handing = {**_status("FAILED", "c2", "3"), "handsOver": True}
    arguments = ("sync", "prod", "web", "--wait")
    after = [BEFORE, handing, handing, _status("CURRENT", "c2", "4")]
    code, _, asked = played(*arguments, statuses=after)
    assert (code, len(asked)) == (0, 5)
    # Without the other project it is not done.
    late = (*arguments, "--timeout", "1")
    code, said, _ = played(*late, statuses=[BEFORE, handing])
    assert (code, "web is not done after 1 s" in said) == (1, True)


def test_drift_that_is_seen_late(shown: Any) -> None:
    """Status says so."""
    project = {"id": "web", "driftDelay": f"changes of ConfigMap{BAD}"}
    found = shown({"projects": [project]}, "status", "prod")
    assert "  changes of ConfigMap\\x1b]0" in found


def test_objects_of_a_former_project(shown: Any) -> None:
    """Status shows the notices of a project, whatever is in them."""
    project = {"id": "web", "state": "STATE_CURRENT", "notices": [f"1 object{BAD}"]}
    found = shown({"projects": [project]}, "status", "prod")
    assert "web current\n  1 object\\x1b]0" in found


def test_sync_gives_up(played: Any) -> None:
    arguments = ("sync", "prod", "web", "--wait", "--timeout", "1")
    code, said, _ = played(*arguments, statuses=[BEFORE])
    assert (code, "web is not done after 1 s" in said) == (1, True)


def test_repair_names_objects(played: Any) -> None:
    objects = ("Deployment.apps/web/shop", "Namespace/web")
    code, _, asked = played("repair", "prod", "web", *objects, statuses=[BEFORE])
    assert code == 0
    (request,) = [request for name, request in asked if name == "Repair"]
    assert request["objects"] == [
        {"kind": "Deployment", "group": "apps", "namespace": "web", "name": "shop"},
        {"kind": "Namespace", "group": "", "namespace": "", "name": "web"},
    ]
    for bad in ("shop", "Deployment/", "/a", "a/b/c/d"):
        code, said, _ = played("repair", "prod", "web", bad, statuses=[BEFORE])
        assert (code, "does not name an object" in said) == (2, True)
        assert "such as Deployment.apps/web/shop or Namespace/web" in said


def test_repair_takes_what_status_lists(played: Any) -> None:
    listed = "Deployment.apps web/shop"
    code, _, asked = played("repair", "prod", "web", listed, statuses=[BEFORE])
    (request,) = [request for name, request in asked if name == "Repair"]
    (found,) = request["objects"]
    assert (code, found["namespace"], found["name"]) == (0, "web", "shop")


class TestKeptStates:
    """Their reader is `kubectl apply -f -`."""

    STATE = MappingProxyType(
        {
            "id": "4f0c",
            "object": {"kind": "ConfigMap", "namespace": "web", "name": "limits"},
        }
    )
    MANIFEST = MappingProxyType(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "limits", "namespace": "web"},
        }
    )

    def test_the_requested_one(self, shown: Any) -> None:
        state = {**self.STATE, "manifest": json.dumps(dict(self.MANIFEST))}
        found = shown({"states": [state]}, "kept", "prod", "apps", "4f0c")
        assert yaml.safe_load(found) == self.MANIFEST

    @pytest.mark.parametrize(
        "change",
        [
            {"id": "another"},
            {"manifest": json.dumps({**MANIFEST, "kind": "Secret"})},
            {"manifest": json.dumps({**MANIFEST, "items": [{}]})},
            {"manifest": json.dumps({"apiVersion": "v1", "kind": "List"})},
            {"manifest": "{"},
            {"object": {"kind": "ConfigMap", "name": "limits"}},
        ],
    )
    def test_another_one(self, shown: Any, change: dict[str, Any]) -> None:
        manifest = json.dumps(dict(self.MANIFEST))
        state = {**self.STATE, "manifest": manifest, **change}
        found = shown({"states": [state]}, "kept", "prod", "apps", "4f0c")
        assert found.startswith("Error: the agent's response is invalid: ")

    def test_none_and_several(self, shown: Any) -> None:
        state = {**self.STATE, "manifest": json.dumps(dict(self.MANIFEST))}
        for states in ([], [state, state]):
            found = shown({"states": states}, "kept", "prod", "apps", "4f0c")
            assert found.startswith("Error: ")


def test_how_many_are_repaired(shown: Any) -> None:
    answer = {"projects": [{"id": "web"}]}
    for objects, said in (
        (("ConfigMap/a",), "agentk repairs 1 object of web"),
        (("ConfigMap/a", "ConfigMap/b"), "agentk repairs 2 objects of web"),
        ((), "agentk repairs all objects of web"),
    ):
        assert shown(answer, "repair", "prod", "web", *objects).strip() == said
