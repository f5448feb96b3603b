"""Schemas of every kind, and what is said about what does not fit them."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
import pytest

from tunnel.config import Duration, Invalid, Section, Size, Text, field, read
from tunnel.errors import ConfigurationError


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen(kw_only=True)
class Inner:
    port: int = field(
        default=1,
        doc="a port",
        validator=[attrs.validators.ge(1), attrs.validators.le(65535)],
    )
    address: str = field(default="", doc="an address")


@attrs.frozen(kw_only=True)
class Outer:
    inner: Inner = field(factory=Inner, doc="inner section")
    names: tuple[str, ...] = field(default=(), doc="names")
    numbers: list[int] = field(factory=list, doc="numbers")
    by_name: dict[str, Inner] = field(factory=dict, doc="sections")
    wait: Duration = field(default=1.0, doc="a time")
    size: Size = field(default=1, doc="a size")
    mode: Literal["fast", "slow"] = field(default="fast", doc="a choice")
    colour: Colour = field(default=Colour.RED, doc="an enum")
    maybe: int | None = field(default=3, doc="optional")
    ratio: float = field(default=0.5, doc="a number")
    on: bool = field(default=False, doc="a switch")
    where: Path | None = field(default=None, doc="a path")
    hidden: int = field(default=0, doc="secret", secret=True)
    later: Section | None = field(default=None, doc="deferred")
    modules: dict[str, Section] = field(factory=dict, doc="deferred by name")
    upper: Annotated[str, Text(str.upper, "letters")] = field(default="", doc="own")
    current_context: str = field(default="", doc="renamed", key="current-context")


@attrs.frozen(kw_only=True)
class Pair:
    low: int = field(doc="the lower end")
    high: int = field(default=9, doc="the upper end")

    def __attrs_post_init__(self) -> None:
        if self.low > self.high:
            raise Invalid("'low' is above 'high'", "low")
        if self.low == self.high:
            raise ValueError("nothing lies between")


@attrs.frozen(kw_only=True)
class Wider(Pair):
    spare: int = field(default=0, doc="beside it")


def problems(text: str, schema: type[Any] = Outer) -> list[str]:
    """Everything that reading *text* complains about."""
    with pytest.raises(ConfigurationError) as caught:
        read(text, "f.yaml", schema)
    return list(caught.value.problems)
