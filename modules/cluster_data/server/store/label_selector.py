"""Label selectors of Kubernetes, as conditions of the row store."""

from __future__ import annotations

from collections.abc import Iterator

from modules.cluster_data.server.store.terms import label_range, label_term
from tunnel.kubernetes import label_requirements

__all__ = ["MAX_PARTS", "label_conditions"]

#: Maximum number of different parts of a selector: each may read many rows.
MAX_PARTS = 20


def label_conditions(
    selector: str, by_term: bool = True
) -> Iterator[tuple[str, list[str]]]:
    """
    Yield a condition of SQLite and its parameters for each part of a selector.

    :param selector: such as ``app=web,tier!=cache,env in (prod, test),!old``.
    :param by_term: whether conditions find rows by their terms, or examine each row.
    :raises ValueError: the selector is invalid; the message says where.
    """
    parts = dict.fromkeys(label_requirements(selector))
    if len(parts) > MAX_PARTS:
        raise ValueError(f"the label selector has more than {MAX_PARTS} parts")
    for key, values, is_in in parts:
        yield _by_term(key, values, is_in) if by_term else _by_row(key, values, is_in)


def _by_term(
    key: str, values: tuple[str, ...] | None, is_in: bool
) -> tuple[str, list[str]]:
    sign = "IN" if is_in else "NOT IN"
    if values is None:
        first, end = label_range(key)
        where = "term >= ? AND term < ?"
        return f"id {sign} (SELECT id FROM terms WHERE {where})", [first, end]
    marks = ", ".join("?" * len(values))
    terms = [label_term(key, one) for one in values]
    return f"id {sign} (SELECT id FROM terms WHERE term IN ({marks}))", terms


def _by_row(
    key: str, values: tuple[str, ...] | None, is_in: bool
) -> tuple[str, list[str]]:
    # A key has no quotes.
    path = f'$.labels."{key}"'
    if values is None:
        sign = "IS NOT NULL" if is_in else "IS NULL"
        return f"json_type(columns, ?) {sign}", [path]
    marks = ", ".join("?" * len(values))
    sign = "IN" if is_in else "NOT IN"
    return f"COALESCE(json_extract(columns, ?), X'') {sign} ({marks})", [path, *values]
