"""Tables of ``kasctl get``."""

from __future__ import annotations

from typing import Any

import pytest

from kas.ctl.live import MAX_SHOWN, _table


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
