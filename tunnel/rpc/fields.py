"""Metadata and trailers: names and values as one block of bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

#: Characters that need no percent-encoding; other characters could end a line.
_SAFE = "".join(chr(c) for c in range(0x20, 0x7F) if chr(c) != "%")


#: Maximum number of fields of a block: each takes 150 bytes in addition to its text,
#: and few are needed.
MAX_FIELDS = 256
#: Maximum number of lines of a block that are read.
MAX_LINES = 2 * MAX_FIELDS

_NAME = re.compile(r"[!-9;-~]+")


def encode_fields(fields: Mapping[str, str]) -> bytes:
    """
    Encode fields as ``name: value`` lines, with names in lower case.

    :raises ValueError: a name is empty, or contains a byte that would end it.
    """
    for name in fields:
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name[:100]!r} cannot be the name of metadata")
    return b"".join(
        f"{name.lower()}: {quote(value, safe=_SAFE)}\r\n".encode("ascii")
        for name, value in fields.items()
    )


def decode_fields(block: bytes) -> dict[str, str]:
    """
    Return the first `MAX_FIELDS` fields of a block; lines without a colon are skipped.
    """
    fields: dict[str, str] = {}
    for line in block.split(b"\r\n", MAX_LINES)[:MAX_LINES]:
        if len(fields) >= MAX_FIELDS:
            break
        name, colon, value = line.partition(b":")
        if colon:
            fields[name.decode("latin-1").lower()] = unquote(
                value.strip().decode("latin-1")
            )
    return fields
