"""Label selectors of Kubernetes, as conditions of the row store."""

from __future__ import annotations

import re
from collections.abc import Iterator

from modules.cluster_data.server.store.terms import label_range, label_term

__all__ = ["MAX_SELECTOR", "label_conditions"]

#: Maximum number of characters of a selector.
MAX_SELECTOR = 1000

_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9./_-]{0,315}[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9._-]{0,63}"
_TERM = re.compile(
    rf"\s*(?:(?P<absent>!\s*{_KEY})"
    rf"|(?P<key>{_KEY})\s*(?:(?P<op>==|=|!=)\s*(?P<value>{_VALUE})"
    rf"|\s(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?)\s*(?:,|$)"
)
_ONE = re.compile(_VALUE)


def label_conditions(selector: str) -> Iterator[tuple[str, list[str]]]:
    """
    Yield a condition of SQLite and its parameters for each part of a selector.

    :param selector: such as ``app=web,tier!=cache,env in (prod, test),!old``.
    :raises ValueError: the selector is invalid; the message says where.
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
            yield _exists(term["absent"].lstrip("! "), "NOT IN")
        elif term["op"]:
            # A row without the label is not equal, as in Kubernetes.
            yield _one_of(term["key"], [term["value"]], term["op"] != "!=")
        elif term["set"]:
            values = [one.strip() for one in term["values"].split(",")]
            if not all(_ONE.fullmatch(one) for one in values):
                raise ValueError(f"the values ({term['values'][:50]}) are invalid")
            yield _one_of(term["key"], values, term["set"] == "in")
        else:
            yield _exists(term["key"], "IN")


def _one_of(key: str, values: list[str], is_in: bool) -> tuple[str, list[str]]:
    marks = ", ".join("?" * len(values))
    sign = "IN" if is_in else "NOT IN"
    terms = [label_term(key, one) for one in values]
    return f"id {sign} (SELECT id FROM terms WHERE term IN ({marks}))", terms


def _exists(key: str, sign: str) -> tuple[str, list[str]]:
    first, end = label_range(key)
    where = "term >= ? AND term < ?"
    return f"id {sign} (SELECT id FROM terms WHERE {where})", [first, end]
