"""
Terms: strings that let the store find rows without reading all of them.

A row has a term for its name, for each label, and for each image.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

_Scalar = str | int | float | bool | None
_COLUMNS = msgspec.json.Decoder(dict[str, _Scalar | list[_Scalar] | dict[str, _Scalar]])

__all__ = ["image_range", "label_range", "label_term", "name_term", "terms_of"]


def name_term(name: str) -> str:
    """Return the term of a name."""
    return f"name {name}"


def label_term(key: str, value: str) -> str:
    """Return the term of a label."""
    return f"label {key}={value}"


def label_range(key: str) -> tuple[str, str]:
    """Return the first term of a key with any value, and the end of these terms."""
    # The character after "=" is ">".
    return f"label {key}=", f"label {key}>"


def image_range() -> tuple[str, str]:
    """Return the beginning of all terms of images, and the end of these terms."""
    # The character after the space is "!".
    return "image ", "image!"


def terms_of(name: str, columns: str) -> Iterator[str]:
    """
    Yield the terms of a row.

    :param columns: a JSON object.
    :raises ValueError: if *columns* is something else, or has deeper values.
    """
    found = _COLUMNS.decode(columns)
    if name:
        yield name_term(name)
    labels, images = found.get("labels"), found.get("images")
    for key, value in labels.items() if isinstance(labels, dict) else ():
        yield label_term(key, str(value))
    for image in images if isinstance(images, list) else ():
        yield f"image {image}"
