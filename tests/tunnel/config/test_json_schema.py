"""A schema for editors, and values as their file would have them."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any, Literal

import attrs

from tunnel.config import (
    Duration,
    Section,
    Size,
    as_written,
    field,
    json_schema,
    read,
)


class _Colour(enum.Enum):
    RED = "red"


@attrs.frozen(kw_only=True)
class _Item:
    name: str = field(doc="what it is called")
    enabled: bool = True


@attrs.frozen(kw_only=True)
class _Whole:
    items: tuple[_Item, ...] = ()
    by_name: dict[str, _Item] = field(factory=dict, doc="more")
    pause: Duration = field(default=90.0, doc="how long")
    room: Size = field(default=65536, doc="how much")
    level: Literal["low", "high"] = "low"
    colour: _Colour = _Colour.RED
    ratio: float = 1.0
    count: int | None = None
    file: Path | None = None
    rest: Section | None = None


TEXT = """\
items:
  - name: a
    enabled: false
by_name: {b: {name: b}}
pause: 1h30m
count: 3
rest: {a: [1, 1.5, true, no, "2", ~, {b: x}]}
"""


def test_schema() -> None:
    """Types, defaults and what each key is for."""
    schema = json_schema(_Whole, "the file")
    assert schema["title"] == "the file"
    found: dict[str, Any] = schema["properties"]
    assert found["items"]["items"]["required"] == ["name"]
    name = found["items"]["items"]["properties"]["name"]
    assert name == {"type": "string", "description": "what it is called"}
    by_name = found["by_name"]["additionalProperties"]
    assert by_name["additionalProperties"] is False
    assert found["pause"]["default"] == "90s"
    assert found["room"]["type"] == ["string", "integer"]
    assert found["level"] == {"enum": ["low", "high"], "default": "low"}
    assert found["colour"]["enum"] == ["red"]
    assert found["ratio"] == {"type": "number", "default": 1.0}
    assert found["count"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert found["file"]["anyOf"][0] == {"type": "string"}
    assert found["rest"]["anyOf"][0]["type"] == ["object", "null"]


def test_as_written() -> None:
    """What is the default is left out, and reading it again gives the same."""
    value = read(TEXT, "x.yaml", _Whole)
    written = as_written(value)
    assert written == {
        "items": [{"name": "a", "enabled": False}],
        "by_name": {"b": {"name": "b"}},
        "pause": "5400s",
        "count": 3,
        "rest": {"a": [1, 1.5, True, "no", "2", None, {"b": "x"}]},
    }
    assert as_written(read("", "x.yaml", _Whole)) == {}
    assert as_written(read("pause: 500ms", "x.yaml", _Whole)) == {"pause": "0.5s"}
