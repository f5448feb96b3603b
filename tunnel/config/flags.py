"""Reads a command line as an instance of a schema."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping as Given
from pathlib import Path
from typing import Any, TypeVar

import attrs

from tunnel.config.nodes import Mapping, Mark, Node, Scalar, Sequence
from tunnel.config.reader import Reader
from tunnel.config.schema import DOC, field_types
from tunnel.errors import ConfigurationError

__all__ = ["read_flags"]

T = TypeVar("T")

_NO_NAMES: Given[str, str] = types.MappingProxyType({})


def read_flags(
    given: Given[str, Any], schema: type[T], names: Given[str, str] = _NO_NAMES
) -> T:
    """
    Read flags as an instance of *schema*.

    The flag of a key is the key's name with dashes: ``kas_address`` is
    ``--kas-address``. Relative paths start in the working directory.

    :param given: the value of each flag, by its name without dashes: a text, a list of
        texts, or true or false. None, and text without a visible character, mean the
        default.
    :param names: the flag of a key, by the key's path with dots, for flags with another
        name, and for each key of a section.
    :raises ConfigurationError: with every problem: ``--flag: the problem, and the
        remedy``.
    """
    reader = _FlagReader(Path.cwd())
    value = reader.convert(_section(given, schema, "", names), schema, "")
    if problems := reader.problems:
        raise ConfigurationError([f"{one.mark}: {one.message}" for one in problems])
    return typing.cast(T, value)


class _FlagReader(Reader):
    def _missing(
        self, mapping: Mapping, path: str, name: str, attribute: attrs.Attribute[Any]
    ) -> None:
        mark = Mark(_flag(name))
        doc = attribute.metadata[DOC]
        self._problem(Mapping(mark), path, f"is missing; pass {doc}")


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _section(
    given: Given[str, Any], schema: type[Any], path: str, names: Given[str, str]
) -> Mapping:
    entries: list[tuple[Scalar, Node]] = []
    for key, (_, wanted) in field_types(schema).items():
        where = f"{path}.{key}" if path else key
        flag = "--" + names[where] if where in names else _flag(where)
        mark = Mark(flag)
        if attrs.has(wanted):
            entries.append((Scalar(mark, key), _section(given, wanted, where, names)))
        elif (node := _value(mark, given.get(flag[2:]))) is not None:
            entries.append((Scalar(mark, key), node))
    return Mapping(Mark("the command line"), tuple(entries))


def _value(mark: Mark, said: Any) -> Node | None:
    if said is None or said == []:
        return None
    if isinstance(said, list):
        items = tuple(Scalar(mark, one.strip(), quoted=None) for one in said)
        return Sequence(mark, items, len(items), 2)
    text = str(bool(said)).lower() if isinstance(said, int) else str(said).strip()
    return Scalar(mark, text, quoted=None) if text else None
