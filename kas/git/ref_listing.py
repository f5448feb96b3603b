"""
Lists of refs that git prints.

git compares the names of refs generously: it also prints refs whose names only end
with a requested name, and takes ``refs/heads/refs/tags/v1`` for a missing
``refs/tags/v1``.  Authors of any branch could choose what such a name leads to, so only
exact names count here.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from tunnel.errors import CallError, Status

__all__ = ["RefListing"]

#: Maximum bytes of the rest of a line: names of refs have at most 4096 bytes.
MAX_LINE: Final = 8192

#: First field of the line that names the branch of ``HEAD`` in a list of
#: ``git ls-remote --symref``.
_BRANCH: Final = re.compile(rb"ref: (refs/heads/.+)", re.DOTALL)

_ID: Final = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class RefListing:
    """
    The lines of a list about some refs, as they arrive.

    Names of refs may contain any character but LF and other control characters of
    ASCII, so lines and fields are bytes.

    :param names: the full names, or ``HEAD``.
    :param separator: the byte between the id of an object, further fields, and the name
        of the ref, which comes last.
    :param fields: number of fields before the name.
    :ivar found: the fields before the name, by name.
    :ivar branch: full name of the branch of ``HEAD``, if ``HEAD`` is one of the names
        and the list has its branch; else empty.
    """

    def __init__(
        self, names: Collection[str], separator: bytes, fields: int = 1
    ) -> None:
        self._names = {one.encode(): one for one in names}
        self._separator = separator
        self._fields = fields
        self._rest = b""
        self.found: dict[str, tuple[str, ...]] = {}
        self.branch = ""

    def read(self, _: object, data: bytes) -> CallError | None:
        """Read a part of the output: see `kas.git.program.Enough`."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if error := self._line(line):
                return error
        if len(self._rest) > MAX_LINE:
            return CallError(Status.UNAVAILABLE, "git printed a line without an end")
        return None

    def _line(self, line: bytes) -> CallError | None:
        *fields, last = line.split(self._separator, self._fields)
        name = self._names.get(last)
        if name is None or len(fields) != self._fields:
            return None
        if name == "HEAD" and (branch := _BRANCH.fullmatch(fields[0])) is not None:
            self.branch = branch[1].decode("utf-8", "replace")
            return None
        if _ID.fullmatch(fields[0]) is None:
            return None
        if name in self.found:
            return CallError(Status.UNAVAILABLE, f"git printed {name} twice")
        self.found[name] = tuple(one.decode("ascii", "replace") for one in fields)
        return None
