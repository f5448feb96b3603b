"""Problems in a file, each as one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from tunnel.config.nodes import Mapping, Mark, Node, Sequence
from tunnel.toolkit.urls import quoted_address

__all__ = ["Problem", "leaves", "likely", "message_of", "nearest", "shown"]

# Maximum number of characters of a value in a message, which is one line of a terminal.
_SHOWN = 60


@attrs.frozen
class Problem:
    """One problem that the operator has to correct."""

    mark: Mark
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.mark}: {self.path}" if self.path else str(self.mark)
        return f"{where}: {self.message}"


def likely(word: str, known: Iterable[str]) -> list[str]:
    """Return the *known* names that resemble an unknown *word*."""
    names = sorted(known)
    plain = word.lower().replace("-", "_")
    return difflib.get_close_matches(plain, names, 1) or difflib.get_close_matches(
        word, names, 1
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """
    Return the end of a message about an unknown *word*: similar names, or all names.
    """
    names = sorted(known)
    close = likely(word, names)
    if close:
        return f"did you mean {close[0]!r}?"
    if not names:
        return "none are known"
    return f"known are: {', '.join(names)}"


def shown(node: Node, secret: bool) -> str:
    """Return the text of a value for a message."""
    if isinstance(node, Mapping):
        return "a section"
    if isinstance(node, Sequence):
        return "a list"
    if secret:
        return "something else"
    text = quoted_address(node.text)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 4] + "...'"


def message_of(error: BaseException) -> str:
    """Return the text of *error* for a message."""
    # Validators of attrs pass more arguments than the message
    return str(error.args[0]) if error.args else ""


def leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    """Yield the errors of a group and of the groups in it."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error
