"""Label selectors of Kubernetes: ``app=web,tier!=cache,env in (prod, test),!old``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

__all__ = ["MAX_SELECTOR", "LabelRequirement", "label_requirements"]

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


class LabelRequirement(NamedTuple):
    """
    One part of a selector.

    :ivar values: None for any value.
    :ivar is_in: whether the label must have one of the values, or none of them; an
        object without the label has none of them.
    """

    key: str
    values: tuple[str, ...] | None
    is_in: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with *labels* meets the requirement."""
        value = labels.get(self.key)
        if value is None:
            return not self.is_in
        return (self.values is None or value in self.values) == self.is_in


def label_requirements(selector: str) -> list[LabelRequirement]:
    """
    Parse a selector; an object must meet all of its requirements.

    :raises ValueError: the selector is invalid; the message says where.
    """
    return [LabelRequirement(*one) for one in _parts(selector)]


def _parts(selector: str) -> Iterator[tuple[str, tuple[str, ...] | None, bool]]:
    """Yield the fields of each requirement."""
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
            # An object without the label is not equal, as in Kubernetes.
            yield term["key"], (term["value"],), term["op"] != "!="
        elif term["set"]:
            values = tuple(one.strip() for one in term["values"].split(","))
            if not all(_ONE.fullmatch(one) for one in values):
                raise ValueError(f"the values ({term['values'][:50]}) are invalid")
            yield term["key"], values, term["set"] == "in"
        else:
            yield term["key"], None, True
