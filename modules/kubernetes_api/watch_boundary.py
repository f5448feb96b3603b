"""
The boundary at which a watch may end: between two events.

An API server ends every watch after a while, between two events, and clients continue
with the next watch from the last event. kas and agentk do the same with watches when
they stop.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["Boundary"]

_PROTOBUF: Final = b"application/vnd.kubernetes.protobuf"
_CONTENT_TYPE: Final = re.compile(rb"\r\ncontent-type:[ \t]*([^\r;]*)", re.IGNORECASE)


class Boundary:
    """
    Parser that follows the bytes of a watch to detect the boundary between two events.

    In JSON, each line is an event; in protobuf, four bytes with the length precede each
    event.

    :param fields: header lines of the response, each preceded by CR LF.
    """

    __slots__ = ("_header", "_kind", "_left", "between")

    def __init__(self, fields: bytes) -> None:
        found = _CONTENT_TYPE.search(fields)
        kind = found[1].strip().lower() if found else b""
        self._kind = kind
        self._header = b""
        self._left = 0
        #: Whether the bytes so far end between two events.  Always false if the format
        #: is unknown.
        self.between = kind in (b"application/json", _PROTOBUF)

    def feed(self, data: bytes) -> None:
        """Process the next bytes of the watch."""
        if self._kind == b"application/json":
            self.between = data.endswith(b"\n")
        elif self._kind == _PROTOBUF:
            self._count(data)

    def _count(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                continue
            step = 4 - len(self._header)
            self._header += data[at : at + step]
            at += step
            if len(self._header) == 4:
                self._left = int.from_bytes(self._header, "big")
                self._header = b""
        self.between = not self._left and not self._header
