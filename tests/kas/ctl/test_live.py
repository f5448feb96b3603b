"""Tables of ``kasctl get``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kas.ctl.common import Ctl
from kas.ctl.live import MAX_SHOWN, _application_matrix, _Rows, _table, _watch


def row(name: str, kind: str = "Deployment", **columns: Any) -> dict[str, Any]:
    return {
        "agentName": "main",
        "kind": kind,
        "namespace": "shop",
        "name": name,
        "columns": columns,
    }


def table(rows: Any, view: str = "", is_wide: bool = False) -> tuple[Any, list[Any]]:
    head, lines = _table(rows, {"asOf": 100.0}, view, is_wide)
    return head, list(lines)


def test_workloads() -> None:
    head, lines = table([row("web", ready=1, wanted=2, health="failed", reason="x")])
    assert head == ["CLUSTER", "NAMESPACE", "NAME", "READY", "HEALTH", "REASON"]
    assert lines == [["main", "shop", "web", "1/2", "failed", "x"]]


def test_services() -> None:
    found = row("web", type="ClusterIP", ports=[80, 443], addresses=["10.0.0.1"])
    head, lines = table([found | {"kind": "Service"}])
    assert head[3:] == ["TYPE", "PORTS", "ADDRESSES"]
    assert lines[0][3:] == ["ClusterIP", "80, 443", "10.0.0.1"]


@pytest.mark.parametrize("kind", ["Application", "HelmRelease", "Kustomization"])
def test_declaring_objects(kind: str) -> None:
    """They show what they say of themselves."""
    found = row("web", tool="Argo CD", stated={"health": "Degraded"}, version="1")
    head, lines = table([found | {"kind": kind}])
    assert head[3:] == ["TOOL", "STATED", "VERSION"]
    assert lines[0][3:] == ["Argo CD", "health=Degraded", "1"]


def test_problems() -> None:
    found = [row("web", state="failed", since=10.0, reason="x")]
    head, lines = table(found, "problems")
    assert head[-3:] == ["STATE", "SINCE", "REASON"]
    assert lines[0] == ["main", "shop", "Deployment", "web", "failed", "1m30s", "x"]


@pytest.mark.parametrize("is_wide", [False, True])
def test_a_view_of_another_module(is_wide: bool) -> None:
    """The rows themselves name the columns."""
    found = [row("a", host="a.example", labels={"x": "y"}), row("b", tls=True)]
    head, lines = table(found, "hosts", is_wide)
    assert head[3:5] == ["HOST", "TLS"]
    assert [line[3:5] for line in lines] == [["a.example", ""], ["", "True"]]
    assert ("LABELS" in head) is is_wide


def test_number_of_columns() -> None:
    columns: dict[str, Any] = {f"c{one}": one for one in range(MAX_SHOWN + 2)}
    found = [row("a") | {"columns": columns}]
    head, _ = table(found, "hosts")
    assert len(head) == 3 + MAX_SHOWN


def test_applications_by_cluster() -> None:
    """A version that most clusters do not have is marked."""
    found = [
        {"name": name, "agentName": cluster, "version": version, "health": health}
        for name, cluster, version, health in (
            ("shop", "berlin", "1.2", "current"),
            ("shop", "paris", "1.3", "in progress"),
            ("shop", "rome", "1.2", ""),
            ("shop", "rome", "1.1", "current"),
            ("shop", "wien", "1.2", "failed"),
            ("db", "paris", "", "current"),
        )
    ]
    head, rows = _application_matrix(found)
    assert head == ("NAME", "berlin", "paris", "rome", "wien")
    assert rows == [
        ["shop", "1.2", "1.3 (in progress) !", "1.2, 1.1 !", "1.2 (failed)"],
        ["db", "-", "?", "-", "-"],
    ]
    assert _application_matrix([]) == (("NAME",), [])
    # Without a version that most clusters have, each differs.
    _, rows = _application_matrix([found[0], found[1]])
    assert rows == [["shop", "1.2 !", "1.3 (in progress) !"]]


class Answers:
    """A kas with the answers of a test."""

    def __init__(self, *answers: Any) -> None:
        self.requests: list[Any] = []
        self._answers = list(answers)

    def call(self, method: str, request: Any, timeout: float) -> Any:
        self.requests.append(request)
        if not self._answers:
            raise KeyboardInterrupt
        rows, page = self._answers.pop(0)
        texts = [one | {"columns": json.dumps(one["columns"])} for one in rows]
        return {"rows": texts, "nextPage": page, "queried": 1}


def rows_of(answers: Answers, sort_by: str = "", limit: int = 10) -> _Rows:
    callee: Any = answers
    return _Rows(callee, {"view": "problems", "clusters": []}, sort_by, limit)


def test_pages() -> None:
    answers = Answers(([row("a")], "p"), ([row("b")], "q"))
    content = rows_of(answers, limit=2).read()
    assert [one["name"] for one in content["rows"]] == ["a", "b"]
    assert content["more"]
    assert [(one["limit"], one["page"]) for one in answers.requests] == [
        (2, ""),
        (1, "p"),
    ]


def test_order() -> None:
    values = {"a": 3, "b": "x", "c": None, "d": 1.5, "e": ["l"]}
    found = [row(name, since=value) for name, value in values.items()]
    content = rows_of(Answers((found, "")), "since").read()
    assert [one["name"] for one in content["rows"]] == ["d", "a", "b", "c", "e"]


@pytest.mark.parametrize("shape", ["table", "json"])
def test_watch(
    shape: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only changes are printed."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    same = row("same", state="failed")
    answers = Answers(
        ([same, row("web", state="failed"), row("gone", state="failed")], ""),
        ([same, row("web", state="in progress"), row("gone", state="failed")], ""),
        ([same, row("web", state="in progress")], ""),
    )
    with pytest.raises(KeyboardInterrupt):
        _watch(Ctl(None, as_json=False), rows_of(answers), shape)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    if shape == "json":
        first, second = map(json.loads, lines)
        assert (first["type"], first["row"]["name"]) == ("put", "web")
        assert (second["type"], second["row"]["name"]) == ("deleted", "gone")
    else:
        assert lines[0] == "main  shop  Deployment  web  in progress"
        assert lines[1] == "deleted: main  shop  Deployment  gone  failed"
