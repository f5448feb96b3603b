"""Ends of long runs in texts, found in little memory."""

from __future__ import annotations

import re
from typing import AnyStr, Final

__all__ = ["AT_ONCE", "quoted_end", "run_end"]

#: Number of repetitions of a group that one match contains at most.  CPython keeps 100
#: bytes for each repetition until the match ends, also in an atomic group, so that a
#: text of 3 MiB could take 300 MiB.
AT_ONCE: Final = 500

#: Parts of the text between an opening and a closing quote; and the same for texts that
#: a line break ends, too.
_TEXT: Final = r"(?>(?:[^%s\\]+|\\.){0,%d})"
_LINE: Final = r"(?>(?:[^%s\\\n]+|\\[^\n]){0,%d})"

_PARTS: Final = {
    (quote, one_line): re.compile(
        (_LINE if one_line else _TEXT) % (quote, AT_ONCE), re.DOTALL
    )
    for quote in ('"', "'")
    for one_line in (False, True)
}
_PARTS_OF_BYTES: Final = {
    (quote.encode(), one_line): re.compile(part.pattern.encode(), re.DOTALL)
    for (quote, one_line), part in _PARTS.items()
}


def run_end(part: re.Pattern[AnyStr], text: AnyStr, place: int) -> int:
    """
    Return the end of all matches of *part* that follow each other from *place* on.

    :param part: an expression that matches a limited number of repetitions, and also
        the empty text.
    """
    while True:
        found = part.match(text, place)
        end = place if found is None else found.end()
        if end == place:
            return end
        place = end


def quoted_end(
    text: AnyStr, place: int, quote: AnyStr, *, one_line: bool = False
) -> int:
    """
    Return the end of a text in quotes, with its closing quote if it has one.

    A backslash takes the next character into the text.

    :param place: offset after the opening quote.
    :param quote: the quote: ``"`` or ``'``.
    :param one_line: whether a line break ends the text, too.
    """
    parts = _PARTS if isinstance(quote, str) else _PARTS_OF_BYTES
    end = run_end(parts[quote, one_line], text, place)
    return end + 1 if text[end : end + 1] == quote else end
