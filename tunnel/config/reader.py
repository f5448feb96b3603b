"""
Reads a tree of nodes as frozen attrs classes, and collects all problems.

A schema is an attrs class: its annotations define how each value is read, and its
defaults are used for missing keys.
"""

from __future__ import annotations

import collections.abc
import contextlib
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import attrs

from tunnel.config.nodes import Mapping, Mark, Node, Scalar, Sequence
from tunnel.config.problems import Problem, leaves, likely, message_of, nearest, shown
from tunnel.config.schema import (
    DOC,
    NO_EFFECT,
    SECRET,
    MustExist,
    field_types,
    others_of,
)
from tunnel.config.texts import SCALARS, UNQUOTED, Text, is_text
from tunnel.errors import ConfigurationError

__all__ = ["PartlyRead", "Reader", "Remark", "Section", "camel_case"]

T = TypeVar("T")


#: Function that receives each remark that is not a problem, as one line.
Remark = collections.abc.Callable[[str], object]


class _Failed:
    """Placeholder for a value that was reported as a problem."""


_FAILED: Any = _Failed()


class PartlyRead(ConfigurationError):
    """
    Raised if a file has problems; contains the readable sections, so that the caller
    can look for further problems.

    :ivar sections: every `Section` that was found, by its path: ``modules.echo``.
    """

    def __init__(
        self, problems: collections.abc.Sequence[str], sections: dict[str, Section]
    ) -> None:
        super().__init__(problems)
        self.sections = sections

    def below(self, path: str) -> dict[str, Section]:
        """Return the sections directly below *path*, by their keys."""
        return {
            where.removeprefix(f"{path}."): section
            for where, section in self.sections.items()
            if where.startswith(f"{path}.")
        }


@attrs.frozen(eq=False)
class Section:
    """
    A part of the file whose schema is only known later, such as the section of a
    module.

    It keeps its position in the file, so that problems found by `read` have a line.
    """

    _node: Mapping
    #: The path of the section: ``modules.echo``.
    path: str
    _base: Path = attrs.field(repr=False)
    #: The position of the section's key; the section itself begins on the next line.
    _key: Mark | None = attrs.field(default=None, repr=False)
    _remark: Remark | None = attrs.field(default=None, repr=False)
    _camel_case: bool = attrs.field(default=False, repr=False)

    @classmethod
    def empty(cls, path: str, file: str = "(defaults)") -> Section:
        """
        Return a section that is missing in the file: `read` returns the schema's
        defaults.
        """
        return cls(Mapping(Mark(file)), path, Path.cwd())

    @property
    def location(self) -> str:
        """Return ``file:line:column``, for the beginning of a message."""
        return str(self._key or self._node.mark)

    def keys(self) -> tuple[str, ...]:
        """Return the keys that the file contains."""
        return tuple(key.text for key, _ in self._node.entries)

    def read(self, schema: type[T]) -> T:
        """
        Return the section as an instance of *schema*.

        :raises ConfigurationError: with every problem in the section.
        """
        reader = Reader(self._base, True, self._remark, self._camel_case)
        value = reader.convert(self._node, schema, self.path)
        reader.raise_problems()
        return typing.cast(T, value)

    def as_written(self) -> dict[str, Any]:
        """Return the value with the types that YAML and JSON have in common."""
        found: dict[str, Any] = _written(self._node)
        return found

    def problems(self, schema: type[Any]) -> tuple[str, ...]:
        """Return the problems that `read` would report, one line each."""
        try:
            self.read(schema)
        except ConfigurationError as error:
            return error.problems
        return ()


def _written(node: Node) -> Any:
    if isinstance(node, Mapping):
        return {key.text: _written(value) for key, value in node.entries}
    if isinstance(node, Sequence):
        return [_written(item) for item in node.items]
    if node.is_null:
        return None
    if not node.quoted:
        for text in UNQUOTED:
            with contextlib.suppress(ValueError):
                return text.parse(node.text)
    return node.text


@attrs.define(eq=False)
class Reader:
    """A reader of one tree, which collects problems and continues."""

    _base: Path
    _refuse_unknown: bool = True
    _remark: Remark | None = None
    #: Whether keys may also be in camelCase.
    _camel_case: bool = False
    #: Whether keys need a value with at least one item.
    _refuse_empty: bool = False
    _problems: list[Problem] = attrs.field(factory=list)
    _sections: dict[str, Section] = attrs.field(factory=dict)
    #: The position of the key whose value is being read.
    _key: Mark | None = None

    def raise_problems(self) -> None:
        """Raise all problems that were found, in the order of the file."""
        if self._problems:
            problems = [str(problem) for problem in self.problems]
            raise PartlyRead(problems, self._sections)

    @property
    def problems(self) -> list[Problem]:
        """Return the problems that were found, in the order of the file."""
        return sorted(self._problems, key=lambda p: (p.mark.line, p.mark.column))

    def _problem(self, node: Node, path: str, message: str) -> Any:
        self._problems.append(Problem(node.mark, path, message))
        return _FAILED

    def convert(self, node: Node, wanted: Any, path: str, secret: bool = False) -> Any:
        """
        Return the value of *node* as *wanted* (an annotation), or a placeholder for a
        failure.
        """
        origin = get_origin(wanted)
        if origin is Annotated:
            base, *extras = get_args(wanted)
            for extra in extras:
                if isinstance(extra, Text):
                    return self._text(node, extra, path, secret)
                if isinstance(extra, MustExist):
                    return self._existing(node, path)
            return self.convert(node, base, path, secret)
        if origin in (Union, types.UnionType):
            return self._optional(node, wanted, path, secret)
        if origin is Literal:
            return self._choice(node, {str(c): c for c in get_args(wanted)}, path)
        if origin in (list, tuple):
            return self._list(node, wanted, path, secret)
        if origin is dict or origin is collections.abc.Mapping:
            return self._dict(node, get_args(wanted)[1], path, secret)
        if wanted is Section:
            mapping = self._mapping(node, path)
            if mapping is _FAILED:
                return _FAILED
            section = Section(
                mapping, path, self._base, self._key, self._remark, self._camel_case
            )
            self._sections[path] = section
            return section
        if attrs.has(wanted):
            return self._instance(node, wanted, path)
        if isinstance(wanted, type) and issubclass(wanted, Enum):
            return self._choice(node, {str(m.value): m for m in wanted}, path)
        if wanted is Path:
            return self._text(node, Text(self._path, "a path"), path, secret)
        if wanted in SCALARS:
            return self._text(node, SCALARS[wanted], path, secret)
        raise TypeError(f"{path}: a schema cannot have values of type {wanted!r}")

    # -- scalars

    def _text(self, node: Node, how: Text, path: str, secret: bool) -> Any:
        if not isinstance(node, Scalar):
            found = shown(node, secret)
            return self._problem(node, path, f"expected {how.expected}, got {found}")
        if node.is_null:
            hint = "has no value; write one, or remove the key"
            return self._problem(node, path, hint)
        found = f"expected {how.expected}, got {shown(node, secret)}"
        if node.quoted and how in UNQUOTED:
            return self._problem(node, path, found + " in quotes; remove the quotes")
        if how is SCALARS[str] and node.quoted is False and not is_text(node.text):
            return self._problem(node, path, found + "; put it in quotes")
        try:
            return how.parse(node.text)
        except ValueError as error:
            said = message_of(error) if not secret else ""
            return self._problem(node, path, f"{found}; {said}" if said else found)

    def _path(self, text: str) -> Path:
        if not text or "\0" in text:
            raise ValueError("a path cannot be empty")
        # Paths are relative to the file, because twistd and systemd start kas in any
        # folder.
        return self._base / text

    def _existing(self, node: Node, path: str) -> Any:
        value = self._text(node, Text(self._path, "a path"), path, False)
        if value is _FAILED:
            return _FAILED
        try:
            if value.is_file():
                with value.open("rb"):
                    return value
            reason = "is not a file" if value.exists() else "does not exist"
        except OSError as error:
            reason = f"cannot be read ({error.strerror})"
        hint = "correct the path, or create the file"
        return self._problem(node, path, f"{value} {reason}; {hint}")

    def _choice(self, node: Node, choices: dict[str, Any], path: str) -> Any:
        if isinstance(node, Scalar) and node.text in choices:
            return choices[node.text]
        expected = "expected one of: " + ", ".join(choices)
        return self._problem(node, path, f"{expected}; got {shown(node, False)}")

    # -- containers

    def _optional(self, node: Node, wanted: Any, path: str, secret: bool) -> Any:
        options = [option for option in get_args(wanted) if option is not type(None)]
        if len(options) != 1:
            raise TypeError(f"{path}: a schema cannot choose between {wanted!r}")
        if isinstance(node, Scalar) and node.is_null:
            # "kubernetes_api:" with only comments below it means an empty section, not
            # null
            holds = options[0] is Section or attrs.has(options[0])
            if not holds or node.text:
                return None
        return self.convert(node, options[0], path, secret)

    def _list(self, node: Node, wanted: Any, path: str, secret: bool) -> Any:
        arguments = get_args(wanted)
        if get_origin(wanted) is tuple and arguments[1:] != (Ellipsis,):
            raise TypeError(f"{path}: only tuple[X, ...] can be in a schema")
        if isinstance(node, Scalar) and node.is_null:
            items: list[Any] = []
        elif isinstance(node, Sequence):
            items = [
                self.convert(item, arguments[0], f"{path}[{index}]", secret)
                for index, item in enumerate(node.items)
            ]
        else:
            found = shown(node, secret)
            hint = "put '- ' before each item"
            return self._problem(node, path, f"expected a list, got {found}; {hint}")
        if any(item is _FAILED for item in items):
            return _FAILED
        return get_origin(wanted)(items)

    def _mapping(self, node: Node, path: str) -> Any:
        if isinstance(node, Scalar) and node.is_null:
            return Mapping(node.mark)
        if not isinstance(node, Mapping):
            found = "a list" if isinstance(node, Sequence) else "a single value"
            return self._problem(
                node, path, f"expected a section with 'key: value' lines, got {found}"
            )
        return node

    def _unique(self, node: Mapping, path: str) -> dict[str, tuple[Scalar, Node]]:
        entries: dict[str, tuple[Scalar, Node]] = {}
        for key, value in node.entries:
            if key.text in entries:
                first = entries[key.text][0].mark.line
                message = f"is duplicated, first in line {first}; remove one"
                self._problem(key, _join(path, key.text), message)
            else:
                entries[key.text] = (key, value)
        return entries

    def _dict(self, node: Node, wanted: Any, path: str, secret: bool) -> Any:
        mapping = self._mapping(node, path)
        if mapping is _FAILED:
            return _FAILED
        values = {}
        for name, (key, value) in self._unique(mapping, path).items():
            self._key = key.mark
            values[name] = self.convert(value, wanted, _join(path, name), secret)
        if any(value is _FAILED for value in values.values()):
            return _FAILED
        return values

    def _instance(self, node: Node, schema: type[Any], path: str) -> Any:
        mapping = self._mapping(node, path)
        if mapping is _FAILED:
            return _FAILED
        begin = len(self._problems)
        known = field_types(schema)
        if self._camel_case:
            mapping = _in_snake_case(mapping, known)
        entries = self._unique(mapping, path)
        values: dict[str, Any] = {}
        doubtful: set[str] = set()
        others = others_of(schema)
        sections: dict[str, Section] = {}
        foreign: collections.abc.Mapping[str, str]
        foreign = getattr(schema, "FOREIGN_KEYS", {})
        ignored: collections.abc.Mapping[str, str]
        ignored = getattr(schema, "IGNORED_KEYS", {})
        for name, (key, value) in entries.items():
            before = len(self._problems)
            if name in known:
                attribute, wanted = known[name]
                secret = bool(attribute.metadata.get(SECRET))
                self._key = key.mark
                if self._refuse_empty and _is_empty(value):
                    self._problem(key, _join(path, name), _hint_for(wanted))
                    doubtful.add(name)
                    continue
                got = self.convert(value, wanted, _join(path, name), secret)
                values[attribute.alias or attribute.name] = got
                if got is not _FAILED:
                    self._validate(value, attribute, got, _join(path, name))
                if len(self._problems) > before:
                    doubtful.add(name)
                elif (why := attribute.metadata.get(NO_EFFECT)) and (
                    got != attribute.default and self._remark is not None
                ):
                    what = f"{name!r} has no effect: {why}"
                    self._remark(str(Problem(key.mark, path, what)))
            elif name in ignored and (name not in foreign or _has_no_keys(value)):
                if self._remark is not None:
                    what = f"{name!r} is {ignored[name]}"
                    self._remark(str(Problem(key.mark, path, what)))
            elif others and name not in foreign and _may_be_section(name, value, known):
                self._key = key.mark
                sections[name] = self.convert(value, Section, _join(path, name))
            elif self._refuse_unknown:
                doubtful.update(likely(name, known))
                hint = f"unknown key {name!r}; {nearest(name, known)}"
                if name in foreign:
                    hint = f"{name!r} is {foreign[name]}"
                self._problem(key, path, hint)
        for name, (attribute, _) in known.items():
            if attribute.default is attrs.NOTHING and name not in entries:
                self._missing(mapping, path, name, attribute)
                doubtful.add(name)
        if others:
            values[others] = sections
        try:
            if len(self._problems) == begin:
                return schema(**values)
            sure = {
                name: one for name, (one, _) in known.items() if name not in doubtful
            }
            _check_together(schema, sure.values(), values)
        except* ValueError as group:
            for error in leaves(group):
                self._invalid(error, mapping, entries, path)
        return _FAILED

    def _missing(
        self, mapping: Mapping, path: str, name: str, attribute: attrs.Attribute[Any]
    ) -> None:
        doc = attribute.metadata.get(DOC, "")
        hint = f" ({doc})" if doc else ""
        self._problem(mapping, path, f"the key {name!r} is missing{hint}")

    def _validate(
        self, node: Node, attribute: attrs.Attribute[Any], value: Any, path: str
    ) -> None:
        # The value is validated before an instance exists, so that each problem has its
        # own line. A validator that needs the instance fails in this call with another
        # error; the constructor calls it again.
        if attribute.validator is None or attribute.converter:
            return
        try:
            attribute.validator(None, attribute, value)
        except (ValueError, TypeError) as error:
            said = "" if attribute.metadata.get(SECRET) else message_of(error)
            self._problem(node, path, said or "is not allowed")
        except AttributeError:
            pass

    def _invalid(
        self,
        error: BaseException,
        mapping: Mapping,
        entries: dict[str, tuple[Scalar, Node]],
        path: str,
    ) -> None:
        key = getattr(error, "key", "")
        if key in entries:
            self._problem(entries[key][0], _join(path, key), message_of(error))
        else:
            self._problem(mapping, path, message_of(error))


def _has_no_keys(node: Node) -> bool:
    return not isinstance(node, Sequence) and _is_empty(node)


def _is_empty(node: Node) -> bool:
    if isinstance(node, Scalar):
        return node.is_null
    return not (node.entries if isinstance(node, Mapping) else node.items)


def _hint_for(wanted: Any) -> str:
    """Return what to write in place of an empty value."""
    if get_origin(wanted) in (list, tuple):
        return "name at least one, or remove the key"
    return "has no value; write one, or remove the key"


def _in_snake_case(mapping: Mapping, known: collections.abc.Iterable[str]) -> Mapping:
    """Return *mapping*, with *known* names in snake_case in place of camelCase."""
    names = {camel_case(name): name for name in known}
    entries = tuple(
        (attrs.evolve(key, text=names.get(key.text, key.text)), value)
        for key, value in mapping.entries
    )
    return attrs.evolve(mapping, entries=entries)


def camel_case(name: str) -> str:
    """Convert a key from snake_case to the form of protojson."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _check_together(
    schema: type[Any],
    sure: collections.abc.Iterable[attrs.Attribute[Any]],
    values: dict[str, Any],
) -> None:
    """
    Check whether values contradict each other, if these values are valid.

    :param sure: the attributes without problems.
    :raises ValueError: as ``__attrs_post_init__`` of the *schema*.
    """
    check = getattr(schema, "__attrs_post_init__", None)
    if check is None:
        return
    draft = object.__new__(schema)
    for attribute in sure:
        default: Any = attribute.default
        made = getattr(default, "factory", lambda default=default: default)
        name = attribute.alias or attribute.name
        value = values[name] if name in values else made()
        object.__setattr__(draft, attribute.name, value)
    # The missing attribute was already reported.
    with contextlib.suppress(AttributeError):
        check(draft)


def _may_be_section(
    name: str, node: Node, known: collections.abc.Iterable[str]
) -> bool:
    """Tell whether *node* is a section, and its name is not a mistyped key."""
    return isinstance(node, Mapping) or not likely(name, known)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
