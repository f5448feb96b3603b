"""Label selectors of Kubernetes, as conditions of the row store."""

from __future__ import annotations

import re
from collections.abc import Iterator

from modules.cluster_data.server.store.terms import label_range, label_term

__all__ = ["MAX_PARTS", "MAX_SELECTOR", "label_conditions"]

#: Maximum number of characters of a selector.
MAX_SELECTOR = 1000

#: Maximum number of different parts of a selector: each may read many rows.
MAX_PARTS = 20

_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9./_-]{0,315}[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9._-]{0,63}"
_TERM = re.compile(
    rf"\s*(?:(?P<absent>!\s*{_KEY})"
    rf"|(?P<key>{_KEY})\s*(?:(?P<op>==|=|!=)\s*(?P<value>{_VALUE})"
    rf"|\s(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?)\s*(?:,|$)"
)
_ONE = re.compile(_VALUE)


def label_conditions(
    selector: str, by_term: bool = True
) -> Iterator[tuple[str, list[str]]]:
    """
    Yield a condition of SQLite and its parameters for each part of a selector.

    :param selector: such as ``app=web,tier!=cache,env in (prod, test),!old``.
    :param by_term: whether conditions find rows by their terms, or examine each row.
    :raises ValueError: the selector is invalid; the message says where.
    """
    parts = dict.fromkeys(_parts(selector))
    if len(parts) > MAX_PARTS:
        raise ValueError(f"the label selector has more than {MAX_PARTS} parts")
    for key, values, is_in in parts:
        yield _by_term(key, values, is_in) if by_term else _by_row(key, values, is_in)


def _parts(selector: str) -> Iterator[tuple[str, tuple[str, ...] | None, bool]]:
    """
    Yield the key of each part of a selector, its values, and whether the label must
    have one of them; None for any value.
    """
    if len(selector) > MAX_SELECTOR:
        raise ValueError(f"the label selector has more than {MAX_SELECTOR} characters")
    place = 0
    while place < len(selector):
        term = _TERM.match(selector, place)
        if term is None or term.end() == place:
            rest = selector[place : place + 50]
            raise ValueError(f"the label selector is invalid at {rest!r}")
        place = term.end()
        if term["absent"]:
            yield term["absent"].lstrip("! "), None, False
        elif term["op"]:
            # A row without the label is not equal, as in Kubernetes.
            yield term["key"], (term["value"],), term["op"] != "!="
        elif term["set"]:
            values = tuple(one.strip() for one in term["values"].split(","))
            if not all(_ONE.fullmatch(one) for one in values):
                raise ValueError(f"the values ({term['values'][:50]}) are invalid")
            yield term["key"], values, term["set"] == "in"
        else:
            yield term["key"], None, True


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
