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
    """Marks the path of a file that must exist and be readable."""


class Invalid(ValueError):
    """
    Raised by a schema's ``__attrs_post_init__`` to report a problem of one of its keys.

    For a problem of the whole section, raise a plain ValueError; for problems of
    several keys, an `ExceptionGroup`.
    """

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


#: A file that must be readable when the configuration is read.
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
    Return an `attrs.field` with documentation.

    :param doc: the purpose of the key, for messages and reference pages.
    :param key: the name of the key in the file, if Python does not permit it as an
        attribute (``current-context``).
    :param secret: whether to keep the value out of messages and of ``repr``.
    :param others: whether a ``dict[str, Section]`` receives the sections under keys
        that the schema does not have; the caller checks that each belongs to a module.
    :param no_effect: why the value has no effect; a remark repeats this reason if the
        value differs from the default.
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
    """
    Return the attribute and the resolved annotation of each key in the file, in the
    order of the class.
    """
    hints = typing.get_type_hints(schema, include_extras=True)
    return {
        a.metadata.get(_KEY, a.name): (a, hints[a.name])
        for a in attrs.fields(schema)
        if a.init and _OTHERS not in a.metadata
    }


def others_of(schema: type[Any]) -> str:
    """
    Return the attribute that receives sections under other keys; empty if the schema
    does not have such an attribute.
    """
    names = (a.name for a in attrs.fields(schema) if _OTHERS in a.metadata)
    return next(names, "")
