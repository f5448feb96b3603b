"""Field and label selectors, as far as anybody types them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from demo.sandbox.status import ApiError

__all__ = ["Selector", "make_selector"]

Selector = Callable[[dict[str, Any]], bool]

_TERM = re.compile(r"\s*(!?)\s*([\w./-]+)\s*(?:(!=|==|=)\s*([\w./:-]*)\s*)?")


def make_selector(fields: str, labels: str) -> Selector:
    """
    Whether an object is one of those that the two selectors mean.

    :raises ApiError: a selector of a kind that is not known here.
    """
    terms = [
        *(_term(text, _field) for text in fields.split(",") if text),
        *(_term(text, _label) for text in labels.split(",") if text),
    ]
    return lambda found: all(term(found) for term in terms)


def _field(found: dict[str, Any], path: str) -> str | None:
    value: Any = found
    for name in path.split("."):
        value = value.get(name, "") if isinstance(value, dict) else ""
    return str(value)


def _label(found: dict[str, Any], key: str) -> str | None:
    value = found["metadata"].get("labels", {}).get(key)
    return None if value is None else str(value)


def _term(text: str, get: Callable[[dict[str, Any], str], str | None]) -> Selector:
    match = _TERM.fullmatch(text)
    if match is None or (match[1] and match[3]):
        raise ApiError(400, f"the sandbox does not know the selector {text!r}")
    absent, key, operator, value = match.groups()
    if operator is None:
        return lambda found: (get(found, key) is None) == bool(absent)
    return lambda found: (get(found, key) == value) == (operator != "!=")
