"""A filter for the JSON text of audit events, which removes what clients make large."""

from __future__ import annotations

import re
from typing import Final

from tunnel.toolkit.quoted import AT_ONCE, run_end

__all__ = ["EventFilter"]

#: Members of an event that clients write, each of up to 3 MiB.
_BODIES: Final = frozenset((b"requestObject", b"responseObject"))

#: Maximum bytes of a string, as JSON writes it: six for each of the 300 characters that
#: kas gets.  Clients also choose the path, of up to 1 MiB, and the names in it.
MAX_STRING = 2048

_TOKEN: Final = re.compile(rb'["\[\]{}]')

#: A part of a string, up to its end or to a backslash at the end of the text.
_IN_STRING: Final = re.compile(rb'(?>(?:[^"\\]+|\\.){0,%d})' % AT_ONCE, re.DOTALL)

#: A part of what changes no depth: also whole strings, and objects and arrays without
#: others.
_FLAT: Final = re.compile(
    rb'(?>(?:[^"\[\]{}]+|"(?>[^"\\]*(?:\\.[^"\\]*){0,20})"|[\[{][^"\[\]{}]*+[\]}])'
    rb"{0,%d})" % AT_ONCE,
    re.DOTALL,
)

#: As much of a string as can be kept without half an escape.
_WHOLE: Final = re.compile(rb"(?>(?:[^\\]|\\u[0-9a-fA-F]{4}|\\[^u])*)", re.DOTALL)


class EventFilter:
    """
    Filter for a text that arrives in parts, of events or of a list of events.

    It leaves out bodies, all objects and arrays in the members of an event, the end of
    long strings, and all but the first string of an array.  Thus, an event has a few
    KiB, whatever the client has sent, and the parts that `EventReader` reads are whole.
    The text can be invalid JSON, and is then invalid after the filter, too.

    :param depth: number of objects and arrays that an event is in, itself included: 1
        for a line of a file, 3 for an item of a list.
    """

    def __init__(self, depth: int) -> None:
        self._event_depth = depth
        self._depth = 0
        self._in_string = False
        #: A backslash at the end of the last part.
        self._rest = b""
        self._string = b""
        #: The last string in an event itself: the name of a member that begins.
        self._name = b""
        self._in_array = False
        #: Depth of the object or array that is left out, or None; and what ends it.
        self._hidden: int | None = None
        self._end = b""

    def feed(self, part: bytes) -> bytes:
        """Return what is kept of the next part of the text."""
        text, self._rest = self._rest + part, b""
        kept: list[bytes] = []
        place = 0
        while place < len(text):
            if self._in_string:
                place = self._string_received(text, place, kept)
                continue
            if self._hidden is not None:
                place = run_end(_FLAT, text, place)
            found = _TOKEN.search(text, place)
            if self._hidden is None:
                kept.append(text[place : found.start() if found else len(text)])
            if found is None:
                break
            place = found.end()
            if found[0] == b'"':
                self._in_string, self._string = True, b""
            elif found[0] in (b"[", b"{"):
                self._begun(found[0], kept)
            else:
                self._ended(found[0], kept)
        return b"".join(kept)

    def _string_received(self, text: bytes, place: int, kept: list[bytes]) -> int:
        """Return the offset after the part of a string."""
        end = run_end(_IN_STRING, text, place)
        if self._hidden is None:
            room = MAX_STRING - len(self._string)
            self._string += text[place : min(end, place + room)]
        if text[end : end + 1] != b'"':
            self._rest = text[end:]
            return len(text)
        self._in_string = False
        if self._hidden is None:
            self._keep_string(kept)
        return end + 1

    def _keep_string(self, kept: list[bytes]) -> None:
        if len(self._string) == MAX_STRING:
            self._string = _WHOLE.match(self._string)[0]  # type: ignore[index]
        kept += b'"', self._string, b'"'
        if self._depth == self._event_depth:
            self._name = self._string
        elif self._in_array and self._depth == self._event_depth + 1:
            self._hidden, self._end = self._depth, b"]"

    def _begun(self, mark: bytes, kept: list[bytes]) -> None:
        self._depth += 1
        if self._hidden is not None:
            return
        inner = self._depth - self._event_depth
        if inner > 1 or (inner == 1 and self._name in _BODIES):
            self._hidden, self._end = self._depth, b"null"
        else:
            self._in_array = mark == b"["
            kept.append(mark)

    def _ended(self, mark: bytes, kept: list[bytes]) -> None:
        if self._hidden is None:
            kept.append(mark)
        elif self._hidden == self._depth:
            kept.append(self._end)
            self._hidden = None
        self._depth -= 1
