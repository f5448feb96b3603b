"""Rows as CSV, for spreadsheets."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["csv_rows", "csv_text"]

#: First characters of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """
    Return a table as CSV; lists and dictionaries become JSON.

    No cell is a formula, because the rows may contain texts of strangers.
    """
    return csv_rows([head]) + csv_rows(rows)


def csv_rows(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows of a table as `csv_text` does."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(map(_cell, row) for row in rows)
    return text.getvalue()


def _cell(value: Any) -> str:
    text = json.dumps(value) if isinstance(value, dict | list) else str(value)
    safe = f"'{text}" if text.startswith(_FORMULA) else text
    # Some versions of Python write a carriage return without quotes.
    return safe.replace("\r", " ")
