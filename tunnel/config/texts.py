"""Parsers for the text of one value: numbers, times, sizes, and other formats."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Annotated, Any

import attrs

__all__ = [
    "MAX_DURATION",
    "SCALARS",
    "UNQUOTED",
    "Duration",
    "Size",
    "Text",
    "parse_duration",
    "parse_size",
]

# Maximum number of digits, more than any number in a configuration needs; int() of a
# very long text would take seconds.
_MAX_DIGITS = 18

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")

# Maximum time in seconds; a longer time is a mistake, and too long for a timer.
MAX_DURATION = 100 * 365 * 86400.0

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,6})?)(d|h|ms|m|s)")
_SIZES = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE = re.compile(r"([0-9]+) ?(|B|KiB|MiB|GiB)")
# Maximum size in bytes; larger limits are mistakes.
_MAX_SIZE = 2**50


@attrs.frozen
class Text:
    """
    A format of a value's text, for `typing.Annotated`.

    :param parse: raises ValueError, with an optional message about the problem.
    :param expected: completes "expected ...".
    """

    parse: Callable[[str], Any]
    expected: str


_TOO_LARGE = "that is too large"


def _parse_int(text: str) -> int:
    if not _INT.fullmatch(text):
        raise ValueError
    if len(text) > _MAX_DIGITS:
        raise ValueError(_TOO_LARGE)
    return int(text)


def _parse_float(text: str) -> float:
    if not _FLOAT.fullmatch(text):
        raise ValueError
    if not math.isfinite(value := float(text)):
        raise ValueError(_TOO_LARGE)
    return value


_BOOLS = ("true", "false")


def _parse_bool(text: str) -> bool:
    if text.lower() not in _BOOLS:
        raise ValueError
    return text.lower() == "true"


#: Types that a schema may use without an explicit format.
SCALARS = {
    str: Text(str, "text"),
    int: Text(_parse_int, "a whole number"),
    float: Text(_parse_float, "a number"),
    bool: Text(_parse_bool, "true or false"),
}


def is_text(text: str) -> bool:
    """Tell whether a value without quotes is text, and not a number, true or false."""
    return not (
        _INT.fullmatch(text) or _FLOAT.fullmatch(text) or text.lower() in _BOOLS
    )


#: In quotes, values of these types are text.
UNQUOTED = (SCALARS[int], SCALARS[float], SCALARS[bool])


_TOO_LONG = "that is longer than 100 years"


def parse_duration(text: str) -> float:
    """
    Parse ``90s``, ``5m``, ``2h``, ``1h30m``, ``500ms``, ``30d`` or ``0`` as seconds.

    :raises ValueError: *text* has another format.
    """
    if text == "0":
        return 0.0
    total = 0.0
    position = 0
    largest = float("inf")
    while position < len(text):
        found = _DURATION.match(text, position)
        if found is None:
            if re.match(r"[0-9]{19}", text[position:]):
                raise ValueError(_TOO_LONG)
            number = text.replace(".", "", 1).isdigit()
            raise ValueError(f"write the unit: {text}s" if number else "")
        unit = _UNITS[found.group(2)]
        if unit >= largest:
            raise ValueError("write larger units first, each once")
        largest = unit
        total += float(found.group(1)) * unit
        position = found.end()
    if not text:
        raise ValueError
    if total > MAX_DURATION:
        raise ValueError(_TOO_LONG)
    return total


def parse_size(text: str) -> int:
    """
    Parse ``64KiB``, ``1MiB``, ``2GiB`` or ``4096`` as bytes.

    :raises ValueError: *text* has another format.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError("units are B, KiB, MiB and GiB")
    if len(found.group(1)) > _MAX_DIGITS:
        raise ValueError(_TOO_LARGE)
    size = int(found.group(1)) * _SIZES[found.group(2)]
    if size > _MAX_SIZE:
        raise ValueError(_TOO_LARGE)
    return size


#: Seconds, written with a unit.
Duration = Annotated[
    float, Text(parse_duration, "a time such as 90s, 5m, 1h30m or 500ms")
]
#: Bytes, written with a binary unit.
Size = Annotated[int, Text(parse_size, "a size such as 64KiB or 1MiB")]
