"""
A strict parser of the chunked coding.

llhttp is not used, because it reports the end of a message only after it has begun to
parse the next bytes, and because it accepts more than this proxy should.
"""

from __future__ import annotations

import re
from typing import Final

from tunnel.http1.head import HeadError, clean_trailers

__all__ = ["ChunkedDecoder", "encode_chunk", "encode_last_chunk"]

# Sixteen digits are 64 bits, more than any body needs, without risk of overflow.
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})\r\n")
# Atomic groups instead of possessive ones: see `tunnel.http1.head`. RFC 9112, 7.1.1:
# each extension has a name, and optionally a value.
_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_QUOTED: Final = rb'"(?>(?:[\t !#-\[\]-~]|\\[\t -~])*)"'
_EXTENDED: Final = re.compile(
    rb"([0-9A-Fa-f]{1,16})((?>(?:;%b(?:=(?:%b|%b))?)+))\r\n" % (_TOKEN, _TOKEN, _QUOTED)
)

_LARGE: Final = re.compile(rb"[0-9A-Fa-f]{17}")

_MAX_LINE: Final = 256  # bytes of a size line; extensions are ignored
_MAX_EXTENSIONS: Final = 4096  # bytes per body: extensions only cost CPU
_MAX_TRAILERS: Final = 16 * 1024  # bytes of trailers

_AT_SIZE: Final = 0
_IN_DATA: Final = 1
_IN_TRAILERS: Final = 2


class ChunkedDecoder:
    """
    A decoder of one chunked body on a connection.

    The decoder buffers only an incomplete line, so a body of any size needs the same
    amount of memory.
    """

    __slots__ = ("_extensions", "_held", "_left", "_state", "trailers")

    def __init__(self) -> None:
        self._state = _AT_SIZE
        self._left = 0
        self._held = b""
        self._extensions = 0
        #: Cleaned trailer fields, once the body has ended.
        self.trailers = b""

    def feed(self, data: bytes) -> tuple[bytes, bytes | None]:
        """
        Decode the next bytes.

        :returns: bytes of the body, and None while the body continues; at its end the
            rest of *data* (perhaps empty), which belongs to the next message.
        :raises HeadError: the coding is malformed.
        """
        if self._held:
            data = self._held + data
            self._held = b""
        position = 0
        size = len(data)
        body: list[bytes] = []
        while position < size:
            if self._state == _IN_DATA:
                # _left includes the CRLF after the chunk.
                wanted = self._left - 2
                if wanted > 0:
                    piece = data[position : position + wanted]
                    body.append(piece)
                    position += len(piece)
                    self._left -= len(piece)
                    if self._left > 2:
                        break
                if size - position < self._left:
                    if data[position:] not in (b"\r", b""):
                        raise HeadError(400, "a chunk is longer than its size")
                    break
                if data[position : position + 2] != b"\r\n":
                    raise HeadError(400, "a chunk is longer than its size")
                position += 2
                self._state = _AT_SIZE
            elif self._state == _AT_SIZE:
                match = _SIZE.match(data, position) or self._odd_size(data, position)
                if match is None:
                    break
                position = match.end()
                length = int(match[1], 16)
                if length:
                    self._left = length + 2
                    self._state = _IN_DATA
                else:
                    self._state = _IN_TRAILERS
            else:
                rest = self._end(data, position)
                if rest is not None:
                    return b"".join(body), rest
                break
        if position < size:
            self._held = data[position:]
        return body[0] if len(body) == 1 else b"".join(body), None

    def _odd_size(self, data: bytes, position: int) -> re.Match[bytes] | None:
        """
        Return the match of a size line with an extension; None if the line is not
        complete.
        """
        if _LARGE.match(data, position):
            raise HeadError(400, "the size of a chunk is too large")
        end = data.find(b"\n", position, position + _MAX_LINE)
        if end < 0:
            if len(data) - position >= _MAX_LINE:
                raise HeadError(400, "the size line of a chunk is too long")
            line = data[position:].rstrip(b"\r")
            if re.fullmatch(rb"[0-9A-Fa-f]{1,16}(?:;[\t -~]*)?", line) is None:
                raise HeadError(400, "malformed size of a chunk")
            return None
        match = _EXTENDED.match(data, position)
        if match is None:
            raise HeadError(400, "malformed size of a chunk")
        self._extensions += len(match[2]) - 1
        if self._extensions > _MAX_EXTENSIONS:
            raise HeadError(400, "too many chunk extensions")
        return match

    def _end(self, data: bytes, position: int) -> bytes | None:
        if data.startswith(b"\r\n", position):
            return data[position + 2 :]
        end = data.find(b"\r\n\r\n", position)
        if end < 0:
            if len(data) - position > _MAX_TRAILERS:
                raise HeadError(431, "the trailers are too long")
            return None
        if end - position > _MAX_TRAILERS:
            raise HeadError(431, "the trailers are too long")
        self.trailers = clean_trailers(data[position : end + 2])
        return data[end + 4 :]


def encode_chunk(data: bytes) -> bytes:
    """Return *data*, which must not be empty, as one chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def encode_last_chunk(trailers: bytes = b"") -> bytes:
    """Return the end of a chunked body, with *trailers* as fields."""
    if not trailers:
        return b"0\r\n\r\n"
    return b"0%b\r\n\r\n" % trailers
