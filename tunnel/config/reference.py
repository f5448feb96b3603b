"""The reference of a schema, key by key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import attrs

from tunnel.config.reader import Section
from tunnel.config.schema import DOC, field_types

__all__ = ["Key", "keys"]

# The type of attrs' `Factory` is a function that returns the type of the field
_FACTORY: Any = attrs.Factory


@attrs.frozen
class Key:
    """One key of a schema, for reference pages and checks of examples."""

    path: str
    doc: str
    default: object = attrs.NOTHING

    @property
    def required(self) -> bool:
        """Whether a file without the key is invalid."""
        return self.default is attrs.NOTHING


def keys(schema: type[Any], path: str = "") -> Iterator[Key]:
    """Yield the keys of *schema*, each section followed by its own keys."""
    for name, (attribute, wanted) in field_types(schema).items():
        where = f"{path}.{name}" if path else name
        default = attribute.default
        if isinstance(default, _FACTORY):
            default = None if default.takes_self else default.factory()
        yield Key(where, attribute.metadata.get(DOC, ""), default)
        for inner in (wanted, *get_args(wanted)):
            if isinstance(inner, type) and attrs.has(inner) and inner is not Section:
                yield from keys(inner, where)
