"""
The words of a query, without its grammar.

Prometheus itself reports errors of the grammar.  kas only needs to know which
aggregations, functions and labels a query contains.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Final

import attrs

__all__ = ["PromqlToken", "TokenKind", "UnreadableQuery", "tokens_of"]

_TOKEN: Final = re.compile(
    r"""
      (?P<space>[ \t\r\n]+ | \#[^\r\n]*)
    | (?P<string>"(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' | `[^`]*`)
    | (?P<number>[0-9.][0-9A-Za-z_.]*)
    | (?P<name>[A-Za-z_:][A-Za-z0-9_:]*)
    | (?P<sign>=~|!~|==|!=|<=|>=|[-+*/%^=<>@(){}\[\],:])
    """,
    re.VERBOSE,
)

#: Escapes in a string whose meaning differs from the escaped character.
_ESCAPE: Final = re.compile(
    r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[0-7]{3}|.)"
)


class TokenKind(Enum):
    """Kind of a `PromqlToken`."""

    STRING = "string"
    NUMBER = "number"
    NAME = "name"
    SIGN = "sign"


@attrs.frozen
class PromqlToken:
    """
    One word of a query.

    :ivar text: of a string, its content.
    :ivar start: position of its first character in the query.
    :ivar end: position after its last character.
    """

    kind: TokenKind
    text: str
    start: int
    end: int


class UnreadableQuery(Exception):
    """Error for a query that has other characters, with their position."""


def tokens_of(query: str) -> Sequence[PromqlToken]:
    """
    Return the words of a query.

    :raises UnreadableQuery: a character does not belong to any word.
    """
    found: list[PromqlToken] = []
    position = 0
    while position < len(query):
        match = _TOKEN.match(query, position)
        if match is None:
            raise UnreadableQuery(
                f"character {position + 1} of the query, {query[position]!r}, does not "
                "belong to PromQL"
            )
        position = match.end()
        name = match.lastgroup
        assert name is not None
        if name == "string":
            text = _content(match[0])
            found.append(PromqlToken(TokenKind.STRING, text, *match.span()))
        elif name != "space":
            found.append(PromqlToken(TokenKind(name), match[0], *match.span()))
    return found


def _content(literal: str) -> str:
    inner = literal[1:-1]
    if literal[0] == "`" or "\\" not in inner:
        return inner
    return _ESCAPE.sub(_unescaped, inner)


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) == 1:
        return escape
    try:
        return chr(int(escape, 8) if escape.isdecimal() else int(escape[1:], 16))
    except (ValueError, OverflowError):
        return "?"
