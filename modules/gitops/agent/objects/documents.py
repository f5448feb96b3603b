"""
Reader of YAML and JSON text as the values that kubectl reads from it.

kubectl reads YAML 1.1 with the rules of a Go library (``sigs.k8s.io/yaml``), which
differ from PyYAML: ``y`` is true and ``1:30`` is text, ``1e3`` is a number and a date
is text. An object must not depend on the program that reads its file, so this module
implements those rules.

Values are built from PyYAML's events: no function recurses while untrusted text is
read, and the content of an alias counts each time it is used.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import attrs
import yaml
from yaml.reader import Reader

from tunnel.toolkit.expansion import Expansion, Spent
from tunnel.toolkit.quoted import quoted_end
from tunnel.toolkit.yaml_directives import MAX_TAGS, tag_beyond_limit
from tunnel.toolkit.yaml_fault import yaml_fault

__all__ = ["Budget", "TextDocument", "UnreadableText", "read_json", "read_yaml"]

# Every wheel of PyYAML includes the C parser; builds without libyaml work, too.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

#: Maximum nesting depth of lists and mappings.  Schemas of custom resources have up to
#: fifty levels; functions that walk an object may recurse that deeply.
MAX_DEPTH = 100

#: Maximum characters of a number; a longer text is not read as a number.
MAX_DIGITS = 400

_TRUE = dict.fromkeys("y Y yes Yes YES true True TRUE on On ON".split(), True)
_FALSE = dict.fromkeys("n N no No NO false False FALSE off Off OFF".split(), False)
_WORDS: dict[str, bool | float | None] = {
    **_TRUE,
    **_FALSE,
    **dict.fromkeys(["", "~", "null", "Null", "NULL"]),
    **dict.fromkeys([".nan", ".NaN", ".NAN"], math.nan),
    **dict.fromkeys([".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"], math.inf),
    **dict.fromkeys(["-.inf", "-.Inf", "-.INF"], -math.inf),
}

#: First characters of text that may be a number.
_MAYBE_NUMBER = frozenset("+-.0123456789")

_INTEGER = re.compile(
    r"[-+]?(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|0[oO]?(?P<oct>[0-7]+)"
    r"|(?P<dec>0|[1-9][0-9]*))"
)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_BASES = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}

#: Prefix of the tags for the types of scalars; other tags are not supported.
_TAGS = "tag:yaml.org,2002:"
_COLLECTION_TAGS = frozenset({None, "!", _TAGS + "map", _TAGS + "seq"})

_MERGE = "<<"

_TEMPLATE = "'{{' belongs to a template, which 'source: {kind: helm}' renders"


class UnreadableText(Exception):
    """
    Error for text that cannot be used from *line* on.

    :ivar line: counted from 1; 0 for the whole text.
    :ivar column: counted from 1; 0 for the whole line.
    """

    def __init__(self, line: int, message: str, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.message = message
        self.column = column


@attrs.define(eq=False)
class Budget(Expansion):
    """
    Remaining budget for all texts of a source together: the limits of `Expansion`, and
    a limit on the number of documents.

    :ivar documents: the remaining number of documents, including empty ones.
    """

    documents: int = attrs.field(kw_only=True)

    @property
    def is_spent(self) -> bool:
        """Whether a limit is exceeded."""
        return self.documents < 0 or super().is_spent

    def take_values(self, count: int, characters: int, line: int) -> None:
        """
        Count values and characters.

        :raises UnreadableText: if a limit is exceeded.
        """
        try:
            self.take(count, characters)
        except Spent as error:
            raise UnreadableText(line, f"the files hold {error}") from None

    def take_document(self, line: int) -> None:
        """
        Count a document.

        :raises UnreadableText: if a limit is exceeded.
        """
        self.documents -= 1
        if self.is_spent:
            raise UnreadableText(line, "the files hold too many documents")


@attrs.frozen
class TextDocument:
    """
    One document of a text.

    :ivar line: the line where the document begins, counted from 1.
    """

    value: Any
    line: int


@attrs.define(eq=False)
class _Open:
    """List or mapping whose end has not been read yet."""

    line: int
    anchor: str | None
    #: Keys of a mapping; None for a list.
    keys: set[str] | None
    values: Any
    #: Key of the mapping whose value comes next.
    key: str | None = None
    #: Whether the next value is merged into the mapping.
    merges: bool = False
    size: int = 1
    characters: int = 0
    height: int = 1


@attrs.frozen
class _Anchored:
    value: Any
    size: int
    characters: int
    height: int


def read_yaml(data: bytes, budget: Budget) -> Iterator[TextDocument]:
    """
    Yield the documents of a YAML text.

    :raises UnreadableText: at the first fault; nothing after it is yielded.
    """
    text = _decoded(data)
    if line := tag_beyond_limit(text):
        why = f"only {MAX_TAGS} %TAG directives are allowed; remove this one"
        raise UnreadableText(line, why)
    builder = _Builder(budget)
    try:
        yield from builder.read(yaml.parse(text, Loader=_LOADER))
    except UnreadableText as error:
        raise UnreadableText(error.line, error.message, builder.column) from None
    except yaml.MarkedYAMLError as error:
        fault = yaml_fault(error, text)
        why = fault.message
        if "{{" in _line(text, fault.line):
            why = f"{why}; {_TEMPLATE}"
        raise UnreadableText(
            fault.line, f"this is not YAML: {why}", fault.column
        ) from None
    except yaml.YAMLError as error:
        raise UnreadableText(0, f"this is not YAML: {error}") from None


def read_json(data: bytes, budget: Budget) -> Iterator[TextDocument]:
    """
    Yield the values of a JSON text, one after the other.

    :raises UnreadableText: at the first fault; nothing after it is yielded.
    """
    text = _decoded(data)
    line, place = 1, 0
    decoder = json.JSONDecoder(
        object_pairs_hook=_without_twins,
        parse_constant=_refuse_constant,
        parse_float=_finite,
    )
    while True:
        begin = place
        while place < len(text) and text[place] in " \t\r\n":
            place += 1
        line += text.count("\n", begin, place)
        if place == len(text):
            return
        budget.take_document(line)
        if text[place] in "[{":
            _check_depth(text, place, line)
        begin = place
        try:
            value, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            where = line + text.count("\n", begin, error.pos)
            column = error.pos - text.rfind("\n", 0, error.pos)
            raise UnreadableText(
                where, f"this is not JSON: {error.msg}", column
            ) from None
        except ValueError as error:
            raise UnreadableText(line, str(error)) from None
        budget.take_values(_count(value), place - begin, line)
        yield TextDocument(value, line)
        line += text.count("\n", begin, place)


def _decoded(data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        before = data[data.rfind(b"\n", 0, error.start) + 1 : error.start]
        column = len(before.decode("utf-8-sig", "replace")) + 1
        why = "this is not UTF-8; save the file in that encoding"
        raise UnreadableText(line, why, column) from None
    if (found := Reader.NON_PRINTABLE.search(text)) is not None:
        line = text.count("\n", 0, found.start()) + 1
        column = found.start() - text.rfind("\n", 0, found.start())
        code = f"U+{ord(found.group()):04X}"
        why = f"the character {code} is not allowed here; remove it"
        raise UnreadableText(line, why, column)
    return text


def _line(text: str, number: int) -> str:
    """Return a line, counted from 1; empty if the text has no such line."""
    lines = text.splitlines()
    return lines[number - 1] if 0 < number <= len(lines) else ""


class _Builder:
    """
    Builder that turns events into values, document by document.

    :ivar column: the column where the current event begins, counted from 1.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Anchored] = {}
        self.column = 0

    def read(self, events: Iterator[Any]) -> Iterator[TextDocument]:
        """Yield each document when it is complete."""
        stack, budget = self._stack, self._budget
        begin, is_first, root = 0, False, None
        for event in events:
            kind, line = type(event), event.start_mark.line + 1
            self.column = event.start_mark.column + 1
            if kind is yaml.DocumentStartEvent:
                begin, is_first, root = event.end_mark.line + 1, True, None
                budget.take_document(begin)
                self._anchors.clear()
                continue
            if kind is yaml.DocumentEndEvent:
                yield TextDocument(root, begin)
                continue
            if is_first:
                # Report the line of the document's content, not of a comment before it;
                # an empty document has no content.
                is_first = False
                if kind is not yaml.ScalarEvent or event.value:
                    begin = line
            if kind is yaml.ScalarEvent:
                budget.take_values(1, len(event.value), line)
                added = self._scalar(event, line)
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                added = self._close()
            elif kind is yaml.AliasEvent:
                added = self._aliased(event.anchor, line)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._open(event, kind is yaml.MappingStartEvent)
                continue
            else:
                continue
            if stack:
                self._add(stack[-1], added, event)
            else:
                root = added.value

    def _aliased(self, anchor: str, line: int) -> _Anchored:
        found = self._anchors.get(anchor)
        if found is None:
            why = f"no complete value above has the anchor &{anchor}"
            raise UnreadableText(line, why)
        if len(self._stack) + found.height > MAX_DEPTH:
            raise _too_deep(line)
        self._budget.take_values(found.size, found.characters, line)
        return found

    def _open(self, event: Any, is_mapping: bool) -> None:
        line = event.start_mark.line + 1
        if event.tag not in _COLLECTION_TAGS:
            raise UnreadableText(line, f"the tag {event.tag} is not supported")
        if len(self._stack) >= MAX_DEPTH:
            raise _too_deep(line)
        self._budget.take_values(1, 0, line)
        keys: set[str] | None = set() if is_mapping else None
        values: Any = {} if is_mapping else []
        self._stack.append(_Open(line, event.anchor, keys, values))

    def _close(self) -> _Anchored:
        done = self._stack.pop()
        closed = _Anchored(done.values, done.size, done.characters, done.height)
        if done.anchor is not None:
            self._anchors[done.anchor] = closed
        return closed

    def _scalar(self, event: Any, line: int) -> _Anchored:
        text, tag = event.value, event.tag
        if tag is None and not event.style:
            value = _plain(text)
        elif tag is None or tag in ("!", _TAGS + "str"):
            value = text
        else:
            value = _tagged(tag, text, line)
        if isinstance(value, float) and not math.isfinite(value):
            raise UnreadableText(line, f"{text} is not a number in JSON")
        found = _Anchored(value, 1, len(text), 0)
        if event.anchor is not None:
            self._anchors[event.anchor] = found
        return found

    def _add(self, parent: _Open, added: _Anchored, event: Any) -> None:
        parent.size += added.size
        parent.characters += added.characters
        parent.height = max(parent.height, added.height + 1)
        if parent.keys is None:
            parent.values.append(added.value)
            return
        line = event.start_mark.line + 1
        if parent.key is None:
            parent.key = _key(added.value, line)
            # An alias or a quoted key is an ordinary key.
            parent.merges = parent.key == _MERGE and getattr(event, "style", "'") == ""
            if parent.merges:
                return
            if parent.key in parent.keys:
                why = f"duplicate key {parent.key[:100]!r}"
                raise UnreadableText(line, why)
            parent.keys.add(parent.key)
            return
        key, parent.key = parent.key, None
        if parent.merges:
            several = added.value if isinstance(added.value, list) else [added.value]
            if not all(isinstance(one, dict) for one in several):
                raise UnreadableText(line, "'<<' merges mappings only")
            # If several mappings are merged, the first one wins; earlier keys are
            # replaced, as in kubectl.
            for one in reversed(several):
                parent.values.update(one)
        else:
            parent.values[key] = added.value


def _plain(text: str) -> Any:
    """Return the value of a scalar without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _MAYBE_NUMBER:
        return text
    return _number(text)


def _number(text: str) -> Any:
    """Convert text to a number if it is one."""
    digits = text if text[0] == "." else text.replace("_", "")
    if len(digits) > MAX_DIGITS:
        return text
    if (found := _INTEGER.fullmatch(digits)) is not None:
        name = found.lastgroup or "dec"
        whole = int(found.group(name), _BASES[name])
        whole = -whole if digits[0] == "-" else whole
        if -(2**63) <= whole < 2**64:
            return whole
    if _FLOAT.fullmatch(digits) is None:
        return text
    number = float(digits)
    if math.isinf(number):
        return text
    # Format it like Go: a whole number without a decimal point.
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


def _tagged(tag: str, text: str, line: int) -> Any:
    value = _plain(text)
    wanted = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}
    kind = wanted.get(tag.removeprefix(_TAGS)) if tag.startswith(_TAGS) else None
    if kind is None:
        raise UnreadableText(line, f"the tag {tag} is not supported")
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):  # type: ignore[arg-type]
        # The error omits the text, which may be secret.
        raise UnreadableText(line, f"a value does not match its tag {tag}")
    return value


def _key(value: Any, line: int) -> str:
    """Convert a value to a JSON key."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise UnreadableText(line, f"a key must be text; {_TEMPLATE}")


def _too_deep(line: int) -> UnreadableText:
    return UnreadableText(line, f"more than {MAX_DEPTH} nested levels")


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twin = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twin[:100]!r} is duplicated in an object")
    return made


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


_BRACKETS = re.compile(r'["\[\]{}]')


def _check_depth(text: str, begin: int, line: int) -> None:
    """Check the depth of the value at *begin*, before a parser recurses into it."""
    depth, place = 0, begin
    while (found := _BRACKETS.search(text, place)) is not None:
        character, place = found[0], found.end()
        if character in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep(line + text.count("\n", begin, found.start()))
        elif character == '"':
            place = quoted_end(text, place, character)
        else:
            depth -= 1
        if depth == 0:
            return


def _count(value: Any) -> int:
    """Count the values within a value, as `Budget` counts them."""
    count, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        count += 1
        if isinstance(one, dict):
            count += len(one)
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return count
