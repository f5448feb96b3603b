"""Rows as CSV."""

from __future__ import annotations

import csv
import io

import pytest

from tunnel.toolkit.csv_text import csv_text


def test_cells() -> None:
    text = csv_text(["a", "b"], [['x, "y"', ["1", 2]], ["ö\nz", {"k": None}]])
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["a", "b"],
        ['x, "y"', '["1", 2]'],
        ["ö\nz", '{"k": null}'],
    ]


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_is_a_formula(first: str) -> None:
    """Neither in the heading nor in a row."""
    text = csv_text([f"{first}1"], [[f"{first}cmd()"]])
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    shown = first.replace("\r", " ")
    assert cells == [f"'{shown}1", f"'{shown}cmd()"]
