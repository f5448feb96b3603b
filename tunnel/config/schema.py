"""The parts of schemas, in addition to Python's annotations."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Annotated, Any

import attrs

__all__ = [
    "DOC",
    "NO_EFFECT",
    "SECRET",
    "ExistingFile",
    "Invalid",
    "MustExist",
    "field",
    "field_types",
    "is_positive",
    "others_of",
]

# Keys of a field's metadata.
DOC = "tunnel.config.doc"
_KEY = "tunnel.config.key"
SECRET = "tunnel.config.secret"  # noqa: S105 - names a metadata entry
_OTHERS = "tunnel.config.others"
NO_EFFECT = "tunnel.config.no_effect"


@attrs.frozen
class MustExist:
    """Marks a path whose file has to be there and readable."""


class Invalid(ValueError):
    """
    Error with which a schema's ``__attrs_post_init__`` points at one of its keys.

    A plain ValueError points at the section; an `ExceptionGroup` of them at several.
    """

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


#: A file that can be read when the configuration is.
ExistingFile = Annotated[Path, MustExist()]


def field(
    *,
    doc: str,
    key: str | None = None,
    secret: bool = False,
    others: bool = False,
    no_effect: str = "",
    **rest: Any,
) -> Any:
    """
    `attrs.field` that documents itself.

    :param doc: what the key is for; messages and reference pages show it.
    :param key: its name in the file where Python cannot have it (``current-context``).
    :param secret: keep the value out of messages and of ``repr``.
    :param others: a ``dict[str, Section]`` that takes the sections under keys that the
        schema does not have; the caller checks that each belongs to a module.
    :param no_effect: why a value changes nothing; a remark repeats it where the key has
        a value other than the default.
    """
    metadata: dict[str, Any] = {DOC: doc, **rest.pop("metadata", {})}
    if key is not None:
        metadata[_KEY] = key
    if others:
        metadata[_OTHERS] = True
    if no_effect:
        metadata[NO_EFFECT] = no_effect
    if secret:
        metadata[SECRET] = True
        rest.setdefault("repr", False)
    return attrs.field(metadata=metadata, **rest)


def is_positive(instance: object, attribute: object, value: float) -> None:
    """Validate that a number is more than 0."""
    if value <= 0:
        raise ValueError("must be more than 0")


def field_types(schema: type[Any]) -> dict[str, tuple[attrs.Attribute[Any], Any]]:
    """Key in the file -> attribute and resolved annotation, in the class's order."""
    hints = typing.get_type_hints(schema, include_extras=True)
    return {
        a.metadata.get(_KEY, a.name): (a, hints[a.name])
        for a in attrs.fields(schema)
        if a.init and _OTHERS not in a.metadata
    }


def others_of(schema: type[Any]) -> str:
    """Return the attribute that takes sections under other keys; empty: none does."""
    names = (a.name for a in attrs.fields(schema) if _OTHERS in a.metadata)
    return next(names, "")
