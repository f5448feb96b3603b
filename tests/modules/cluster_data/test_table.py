"""Rows with the order of their changes."""

from __future__ import annotations

import json

import pytest

from modules.cluster_data.agent import table as table_module
from modules.cluster_data.agent.table import Table, TableKey
from modules.cluster_data.server.store import view_rows


def key(name: str) -> TableKey:
    return TableKey("apps", "Deployment", "shop", name)


@pytest.fixture
def table() -> Table:
    return Table("workloads")


def test_a_change_replaces_an_older_one(table: Table) -> None:
    table.put(key("a"), "deployments", {"ready": 0})
    table.put(key("b"), "deployments", {"ready": 0})
    table.put(key("a"), "deployments", {"ready": 1})
    assert table.sequence == 3
    assert table.since(0) == ([key("a"), key("b")], [])
    assert table.since(2) == ([key("a")], [])
    assert table.since(3) == ([], [])


def test_an_equal_row_is_no_change(table: Table) -> None:
    assert table.put(key("a"), "deployments", {"ready": 0, "wanted": 1})
    assert not table.put(key("a"), "deployments", {"wanted": 1, "ready": 0})
    assert table.sequence == 1


def test_deleted_rows(table: Table) -> None:
    table.put(key("a"), "deployments", {})
    table.delete(key("a"))
    table.delete(key("never"))
    assert table.since(0) == ([], [key("a")])
    table.put(key("a"), "deployments", {})
    assert table.since(0) == ([key("a")], [])


def test_sum_and_size_return_to_zero(table: Table) -> None:
    for name in "abc":
        table.put(key(name), "deployments", {"name": name})
    table.put(key("b"), "deployments", {"name": "other"})
    assert table.sum and table.size
    for name in "abc":
        table.delete(key(name))
    assert (table.sum, table.size) == (0, 0)


def test_the_sum_does_not_depend_on_the_order() -> None:
    first, second = Table("x"), Table("x")
    for name in "abc":
        first.put(key(name), "deployments", {"name": name})
    for name in "cab":
        second.put(key(name), "deployments", {"name": name})
    assert first.sum == second.sum


def test_few_deleted_keys_are_remembered(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_module, "MAX_DELETED", 2)
    for name in "abc":
        table.put(key(name), "deployments", {})
    for name in "abc":
        table.delete(key(name))
    # The first deletion is the fourth change.
    assert not table.has_since(3)
    assert table.has_since(4)
    assert table.since(4) == ([], [key("c"), key("b")])


def test_a_row_that_is_too_long(table: Table) -> None:
    """It keeps its state, and kas accepts it."""
    columns = {"state": "current", "images": ["x" * table_module.MAX_COLUMNS]}
    table.put(key("a"), "deployments", columns)
    assert json.loads(table.rows[key("a")].columns) == {
        "shortened": True,
        "state": "current",
    }
    assert table_module.MAX_COLUMNS <= view_rows.MAX_COLUMNS


def test_unknown_numbers(table: Table) -> None:
    assert table.has_since(0)
    assert not table.has_since(1)
