"""
Conversion of a schema to JSON Schema, for editors, and of a value to the form of its
file.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import attrs

from tunnel.config.reader import Section
from tunnel.config.schema import DOC, field_types, others_of
from tunnel.config.texts import Duration, Size, Text

__all__ = ["as_written", "json_schema"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_SCALARS: Mapping[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    Path: "string",
}

#: The type of attrs' `Factory` is a function that returns the type of the field
_FACTORY: Any = attrs.Factory


def json_schema(schema: type[Any], title: str = "") -> dict[str, Any]:
    """
    Return a JSON Schema (2020-12) for files of *schema*.

    Editors use it to complete and check keys.  It does not contain the rules of
    validators.
    """
    return {"$schema": _DIALECT, "title": title or schema.__name__, **_object(schema)}


def _object(schema: type[Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required = []
    for name, (attribute, wanted) in field_types(schema).items():
        about = _type(wanted)
        doc = attribute.metadata.get(DOC, "")
        if doc:
            about = {**about, "description": doc}
        if attribute.default is attrs.NOTHING:
            required.append(name)
        elif not isinstance(attribute.default, _FACTORY):
            default = _value(attribute.default, wanted)
            if default not in (None, (), []):
                about = {**about, "default": default}
        properties[name] = about
    found: dict[str, Any] = {
        "type": ["object", "null"],
        "properties": properties,
        "additionalProperties": bool(others_of(schema)),
    }
    if required:
        found["required"] = required
        found["type"] = "object"
    return found


def _type(wanted: Any) -> dict[str, Any]:
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is Annotated:
        if wanted == Duration:
            return {"type": "string", "examples": ["90s", "5m", "1h30m"]}
        if wanted == Size:
            return {"type": ["string", "integer"], "examples": ["64KiB"]}
        if any(isinstance(one, Text) for one in arguments[1:]):
            return {"type": ["string", "number", "boolean"]}
        return _type(arguments[0])
    if origin in (Union, types.UnionType):
        (inner,) = (one for one in arguments if one is not type(None))
        return {"anyOf": [_type(inner), {"type": "null"}]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (list, tuple):
        return {"type": ["array", "null"], "items": _type(arguments[0])}
    if origin is dict or origin is not None:
        return {"type": ["object", "null"], "additionalProperties": _type(arguments[1])}
    if wanted is Section:
        return {"type": ["object", "null"]}
    if attrs.has(wanted):
        return _object(wanted)
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return {"enum": [member.value for member in wanted]}
    return {"type": _SCALARS[wanted]}


def as_written(value: Any) -> dict[str, Any]:
    """
    Return an instance of a schema in the form of its file, without defaults.

    Times are in seconds, as ``300s``.
    """
    found: dict[str, Any] = {}
    for name, (attribute, wanted) in field_types(type(value)).items():
        one = getattr(value, attribute.name)
        default: Any = attribute.default
        if isinstance(default, _FACTORY):
            default = default.factory()
        if attribute.default is attrs.NOTHING or one != default:
            found[name] = _value(one, wanted)
    return found


def _value(value: Any, wanted: Any) -> Any:
    origin, arguments = get_origin(wanted), get_args(wanted)
    if value is None:
        return None
    if wanted == Duration:
        return f"{value:.9f}".rstrip("0").rstrip(".") + "s"
    if origin in (Union, types.UnionType):
        inner = [one for one in arguments if one is not type(None)]
        return _value(value, inner[0])
    if origin in (list, tuple):
        return [_value(one, arguments[0]) for one in value]
    if isinstance(value, Mapping):
        return {key: _value(one, arguments[1]) for key, one in value.items()}
    if isinstance(value, Section):
        return value.as_written()
    if isinstance(value, Enum):
        return value.value
    if attrs.has(type(value)):
        return as_written(value)
    return str(value) if isinstance(value, Path) else value
