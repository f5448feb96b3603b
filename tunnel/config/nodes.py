"""
Parses YAML text into a tree whose nodes have positions.

`parse` can read a text as GitLab reads the configuration of agents, in agreement with
other YAML libraries: with merge keys, the booleans of YAML 1.1, and null for a missing
key.

Scalars stay text: the schema (`tunnel.config.schema`), not YAML's own rules, determines
the meaning of ``8150``, ``on`` or ``1:30``. The tree is built from PyYAML's events, so
no tag is ever resolved, and nothing recurses while untrusted text is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import attrs
import yaml
from yaml.reader import Reader

from tunnel.toolkit.expansion import Expansion, Spent
from tunnel.toolkit.yaml_directives import MAX_TAGS, tag_beyond_limit
from tunnel.toolkit.yaml_fault import yaml_fault

# Every wheel of PyYAML includes the C parser; a build without libyaml works, too.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Maximum number of characters of a text.  The configuration of a thousand modules is
# far smaller; a larger file is a mistake.
MAX_TEXT = 1024 * 1024
# Maximum number of nesting levels, more than any schema has; limits the recursion of
# functions that walk the tree.
MAX_DEPTH = 32
# Maximum number of nodes, counted with every alias expanded, as a protection against a
# "billion laughs" file.
MAX_NODES = 20_000
# Maximum number of characters of all keys and values, counted with every alias
# expanded. Without aliases, a text cannot contain that many characters; with aliases, a
# few long values in a small file could become a message of hundreds of MiB.
MAX_CHARACTERS = MAX_TEXT

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})

#: The booleans of YAML 1.1 as sigs.k8s.io/yaml reads them, and their form in JSON.
_BOOLEANS = {
    form: word
    for word, spelled in (("true", ("yes", "on")), ("false", ("no", "off")))
    for text in spelled
    for form in (text, text.capitalize(), text.upper())
}


@attrs.frozen
class Mark:
    """
    A position in a file; line and column count from 1, and 0 is the file as a whole.
    """

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@attrs.frozen(eq=False)
class Scalar:
    """
    One value, as written in the text.

    :ivar quoted: whether the value has quotes; None if the format has no quotes, as on
        a command line.
    """

    mark: Mark
    text: str
    quoted: bool | None = False
    size: int = 1
    height: int = 1

    @property
    def characters(self) -> int:
        """Return the length of the text."""
        return len(self.text)

    @property
    def is_null(self) -> bool:
        """Whether the text is empty, or one of YAML's words for null."""
        return self.quoted is False and self.text in _NULLS


@attrs.frozen(eq=False)
class Sequence:
    """A list."""

    mark: Mark
    items: tuple[Node, ...]
    size: int
    height: int
    characters: int = 0


@attrs.frozen(eq=False)
class Mapping:
    """Keys and values in their order; the reader reports duplicate keys."""

    mark: Mark
    entries: tuple[tuple[Scalar, Node], ...] = ()
    size: int = 1
    height: int = 1
    characters: int = 0


Node: TypeAlias = Scalar | Sequence | Mapping


class Unreadable(Exception):
    """Raised if the text as a whole is invalid; *mark* is the position of the error."""

    def __init__(self, mark: Mark, message: str) -> None:
        super().__init__(message)
        self.mark = mark
        self.message = message


@attrs.define(eq=False)
class _Open:
    """A list or mapping whose end has not been read yet."""

    mark: Mark
    is_mapping: bool
    anchor: str | None
    children: list[Node] = attrs.field(factory=list)

    def closed(self, as_json: bool) -> Node:
        size = 1 + sum(child.size for child in self.children)
        height = 1 + max((child.height for child in self.children), default=0)
        characters = sum(child.characters for child in self.children)
        if not self.is_mapping:
            return Sequence(self.mark, tuple(self.children), size, height, characters)
        pairs = zip(self.children[::2], self.children[1::2], strict=True)
        entries, merged = [], []
        for key, value in pairs:
            if not isinstance(key, Scalar):
                raise Unreadable(key.mark, "a key must be plain text")
            if key.text != "<<" or key.quoted:
                entries.append((key, value))
            elif as_json:
                merged += _merged(value)
            else:
                raise Unreadable(
                    key.mark,
                    "merge keys ('<<') are not supported; repeat the keys instead",
                )
        # The mapping's own keys take precedence over merged keys, and keys of earlier
        # merged mappings over keys of later ones.
        names = {key.text for key, _ in entries}
        for key, value in merged:
            if key.text not in names:
                names.add(key.text)
                entries.append((key, value))
        if as_json:
            entries = [(key, value) for key, value in entries if not _is_null(value)]
        return Mapping(self.mark, tuple(entries), size, height, characters)


def _merged(node: Node) -> list[tuple[Scalar, Node]]:
    """Return the entries that a merge key with the value *node* adds."""
    items = node.items if isinstance(node, Sequence) else (node,)
    found: list[tuple[Scalar, Node]] = []
    for item in items:
        if not isinstance(item, Mapping):
            raise Unreadable(node.mark, "'<<' needs a mapping, or a list of mappings")
        found += item.entries
    return found


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.is_null


def parse(text: str, file: str, *, as_json: bool = False) -> Node:
    """
    Parse one document; an empty document is an empty mapping.

    :param file: the name of the file in messages.
    :param as_json: whether to read the text as sigs.k8s.io/yaml and protojson do:
        follow merge keys, read ``yes`` and ``off`` as booleans, and omit keys whose
        value is null.
    :raises Unreadable: with the first error; the text after this error is not checked.
    """
    if len(text) > MAX_TEXT:
        raise Unreadable(
            Mark(file), f"the file is larger than {MAX_TEXT // 1024} KiB; split it"
        )
    if (found := Reader.NON_PRINTABLE.search(text)) is not None:
        before = text[: found.start()]
        mark = Mark(file, before.count("\n") + 1, found.start() - before.rfind("\n"))
        code = f"U+{ord(found.group()):04X}"
        raise Unreadable(mark, f"YAML does not allow the character {code}; remove it")
    if line := tag_beyond_limit(text):
        raise Unreadable(
            Mark(file, line, 1),
            f"only {MAX_TAGS} %TAG directives are allowed; remove this one",
        )
    try:
        return _build(yaml.parse(text, Loader=_LOADER), file, as_json)
    except yaml.MarkedYAMLError as error:
        fault = yaml_fault(error, text)
        mark = Mark(file, fault.line, fault.column)
        raise Unreadable(mark, f"not YAML: {fault.message}") from None
    except yaml.YAMLError as error:
        raise Unreadable(Mark(file), f"not YAML: {error}") from None


def _mark(file: str, mark: Any) -> Mark:
    return Mark(file) if mark is None else Mark(file, mark.line + 1, mark.column + 1)


def _build(events: Iterator[Any], file: str, as_json: bool) -> Node:
    stack: list[_Open] = []
    anchors: dict[str, Node] = {}
    root: Node | None = None
    documents = 0
    left = Expansion(MAX_NODES, MAX_CHARACTERS)
    for event in events:
        mark = _mark(file, event.start_mark)
        node: Node
        anchor: str | None = None
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise Unreadable(mark, "only one YAML document per file; remove '---'")
            continue
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            _refuse_tag(event, mark)
            if len(stack) >= MAX_DEPTH:
                raise Unreadable(mark, f"nested deeper than {MAX_DEPTH} levels")
            _take(left, 1, 0, mark)
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            stack.append(_Open(mark, is_mapping, event.anchor))
            continue
        if isinstance(event, yaml.ScalarEvent):
            _refuse_tag(event, mark)
            value = event.value
            is_key = stack and stack[-1].is_mapping and len(stack[-1].children) % 2 == 0
            if as_json and not event.style and not is_key:
                value = _BOOLEANS.get(value, value)
            node = Scalar(mark, value, quoted=bool(event.style))
            anchor = event.anchor
            _take(left, 1, node.characters, mark)
        elif isinstance(event, yaml.AliasEvent):
            node = _aliased(event.anchor, anchors, len(stack), mark)
            _take(left, node.size, node.characters, mark)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            opened = stack.pop()
            node, anchor = opened.closed(as_json), opened.anchor
        else:
            continue
        if anchor is not None:
            anchors[anchor] = node
        if stack:
            stack[-1].children.append(node)
        else:
            root = node
    if root is None or (isinstance(root, Scalar) and root.is_null):
        return Mapping(Mark(file, 1, 1))
    return root


def _take(left: Expansion, values: int, characters: int, mark: Mark) -> None:
    """
    Count *values* and *characters* against the limits.

    :raises Unreadable: a limit is exceeded.
    """
    try:
        left.take(values, characters)
    except Spent as error:
        most = {"values": MAX_NODES, "characters": MAX_CHARACTERS}[error.what]
        text = f"more than {most} {error.what}, aliases expanded"
        raise Unreadable(mark, text) from None


def _refuse_tag(event: Any, mark: Mark) -> None:
    if event.tag is not None and event.tag != "!":
        raise Unreadable(mark, f"tags such as {event.tag!r} are not supported")


def _aliased(
    name: str | None, anchors: dict[str, Node], depth: int, mark: Mark
) -> Node:
    target = anchors.get(name or "")
    if target is None:
        raise Unreadable(mark, f"nothing above is named '&{name}' and complete")
    if depth + target.height > MAX_DEPTH:
        raise Unreadable(mark, f"nested deeper than {MAX_DEPTH} levels")
    return target
