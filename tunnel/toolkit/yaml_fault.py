"""Position, reason and remedy of a YAML error."""

from __future__ import annotations

import attrs
import yaml

__all__ = ["YamlFault", "yaml_fault"]

#: Characters that cannot begin a text without quotes, because they have a meaning in
#: YAML.
_NEED_QUOTES = "@`%*&!"


@attrs.frozen
class YamlFault:
    """
    The first error of a text.

    :ivar line: counted from 1, as is *column*; 0 for the text as a whole.
    :ivar message: the parser's message, and the remedy if one is likely.
    """

    line: int
    column: int
    message: str


def yaml_fault(error: yaml.MarkedYAMLError, text: str) -> YamlFault:
    """
    Describe *error* in *text*.

    libyaml and PyYAML (one of them is in use) have different messages for
    most errors.
    """
    said = error.problem or error.context or "cannot be parsed"
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return YamlFault(0, 0, said)
    begin = error.context_mark or mark
    lines = text.splitlines()
    rest = lines[mark.line][mark.column :] if mark.line < len(lines) else ""
    remedy = _remedy(said, error.context or "", begin.line + 1, rest)
    message = f"{said}; {remedy}" if remedy else said
    return YamlFault(mark.line + 1, mark.column + 1, message)


def _remedy(said: str, context: str, begin: int, rest: str) -> str:
    if rest[:1] == "\t":
        return "indent with spaces instead of tabs"
    if "cannot start any token" in said or "alphabetic or numeric" in said:
        return f"put quotes around text that begins with one of {_NEED_QUOTES}"
    if "mapping values are not allowed" in said:
        return "put quotes around text that contains ': ', or correct the indentation"
    if context.startswith(("while scanning a quoted", "while parsing a flow")):
        return f"is the quote or bracket closed that begins in line {begin}?"
    if context.startswith("while parsing a block"):
        return "the indentation does not fit the lines above, or quotes end too early"
    return ""
