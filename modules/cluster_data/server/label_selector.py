"""Label selectors of Kubernetes, as conditions of SQLite."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
    Yield a condition and its parameters for each term of a selector.

    The conditions are about the column ``columns`` of a row.

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
            yield f"{_of(term['absent'].lstrip('! '))} IS NULL", []
        elif term["op"]:
            # A row without the label is not equal, as in Kubernetes.
            sign = "IS NOT" if term["op"] == "!=" else "="
            yield f"{_of(term['key'])} {sign} ?", [term["value"]]
        elif term["set"]:
            values = [one.strip() for one in term["values"].split(",")]
            if not all(_ONE.fullmatch(one) for one in values):
                raise ValueError(f"the values ({term['values'][:50]}) are invalid")
            label, marks = _of(term["key"]), ", ".join("?" * len(values))
            if term["set"] == "in":
                yield f"{label} IN ({marks})", values
            else:
                yield f"({label} IS NULL OR {label} NOT IN ({marks}))", values
        else:
            yield f"{_of(term['key'])} IS NOT NULL", []


def _of(key: str) -> str:
    """Return the expression for a label; the pattern of keys permits no quote."""
    return f"json_extract(columns, '$.labels.\"{key}\"')"
