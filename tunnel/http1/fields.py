"""
Header lines as one block of bytes: which may come, and how some are cut out.

*Fields* are header lines each **preceded** by CRLF (``b"\\r\\nA: b\\r\\nC: d"``), so
that they can be put behind a start line, and behind each other, as they are.  They are
never taken apart into one object per header: one expression checks all of them, and a
second cuts out the few lines that somebody must look at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from tunnel.errors import TunnelError

__all__ = [
    "FIELDS",
    "HOP_BY_HOP",
    "NAME",
    "PROTECTED",
    "REQUEST_ONLY",
    "STANDARD_OPTIONS",
    "TEXT",
    "TOKEN",
    "HeadError",
    "clean_trailers",
    "cut",
    "is_value",
    "lines_of",
    "named_lines",
    "one_of",
    "options_of",
]

# Expressions, for others to be made of.  Possessive, so that no input makes them try
# twice.
TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
TEXT = rb"[\t -~\x80-\xff]"
FIELDS = rb"((?:\r\n" + TOKEN + rb"++:" + TEXT + rb"*+)*+)"

#: The name of a header line.
NAME = re.compile(TOKEN + rb"++")
_VALUE = re.compile(TEXT + rb"*+")
_TRAILERS = re.compile(FIELDS)

#: What belongs to one connection, or says where a message ends: it never travels on.
HOP_BY_HOP = (
    b"connection",
    b"proxy-connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"http2-settings",
    b"content-length",
)
REQUEST_ONLY = (b"host", b"expect")

#: Named in Connection these would be taken away from the next hop, which would then
#: decide without them.
PROTECTED = (
    b"accept*",
    b"authorization",
    b"cache-control",
    b"content-*",
    b"cookie",
    b"date",
    b"expect",
    b"forwarded",
    b"host",
    b"transfer-encoding",
    b"via",
    b"x-forwarded-*",
    b"x-remote-*",
)

#: What Connection may name without meaning a header line.
STANDARD_OPTIONS = frozenset([b"close", b"keep-alive", b"upgrade", b"te", b""])


class HeadError(TunnelError):
    """A head that is not passed on; *status* is what its sender is answered."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def one_of(names: Iterable[bytes], *, underscores: bool) -> bytes:
    """
    An expression for *names*; a star at the end of one stands for anything.

    What several of them begin with stands in it once: nearly all lines are none of
    them, and should be given up after a byte or two.
    """
    rests: dict[bytes, list[bytes]] = {}
    for name in names:
        rests.setdefault(name[:1], []).append(name[1:])
    ways = []
    for first, after in rests.items():
        if first in (b"", b"*"):
            ways.append(TOKEN + b"*" if first else b"")
        else:
            byte = b"[-_]" if underscores and first == b"-" else re.escape(first)
            ways.append(byte + one_of(after, underscores=underscores))
    return ways[0] if len(ways) == 1 else b"(?:" + b"|".join(ways) + b")"


def lines_of(names: Iterable[bytes], *, underscores: bool = False) -> re.Pattern[bytes]:
    """What `re.split` needs to cut the lines of *names* out of fields."""
    return _lines(one_of(names, underscores=underscores))


def _lines(names: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"\r\n(" + names + rb"):([^\r]*+)", re.IGNORECASE)


def cut(
    lines: re.Pattern[bytes], fields: bytes
) -> tuple[bytes, dict[bytes, list[bytes]]]:
    """What remains of *fields*, and the values of the lines taken out."""
    parts = lines.split(fields)
    taken: dict[bytes, list[bytes]] = {}
    if len(parts) == 1:
        return fields, taken
    for index in range(1, len(parts), 3):
        name = parts[index].lower()
        value = parts[index + 1].strip(b" \t")
        if name in taken:
            taken[name].append(value)
        else:
            taken[name] = [value]
    return b"".join(parts[::3]), taken


@lru_cache(maxsize=256)
def named_lines(options: frozenset[bytes]) -> re.Pattern[bytes]:
    """What cuts the lines out that a Connection names; a star is a character there."""
    return _lines(b"|".join(map(re.escape, sorted(options))))


def options_of(values: list[bytes]) -> frozenset[bytes]:
    """The lower-case members of a list-valued header."""
    joined = b",".join(values).lower()
    return frozenset(option.strip(b" \t") for option in joined.split(b","))


_FORBIDDEN_TRAILERS = lines_of(
    [
        *HOP_BY_HOP,
        *REQUEST_ONLY,
        *PROTECTED,
        b"impersonate-*",
        b"set-cookie",
        b"www-authenticate",
    ],
    underscores=True,
)


def clean_trailers(lines: bytes) -> bytes:
    """
    Trailers as fields, without those that would change what the head said.

    :param lines: each ended by CRLF.
    :raises HeadError: when they are malformed.
    """
    if not lines:
        return b""
    fields = b"\r\n" + lines[:-2]
    if not lines.endswith(b"\r\n") or _TRAILERS.fullmatch(fields) is None:
        raise HeadError(400, "malformed trailers")
    return cut(_FORBIDDEN_TRAILERS, fields)[0]


def is_value(value: bytes) -> bool:
    """Whether *value* may stand behind a header's colon."""
    return _VALUE.fullmatch(value) is not None
