"""
Reader of ``exec`` and ``attach`` sessions: how the program ended.

A session is a WebSocket or a SPDY connection with several channels.  The API server
sends a Status on the error channel at the end; it has the exit code of the program.
The reader receives the bytes of both directions as they pass, changes nothing, and
keeps no data of a user.

Source: k8s.io/apimachinery/pkg/util/remotecommand and
k8s.io/client-go/tools/remotecommand.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from tunnel.kubernetes.session_frames import (
    SPDY_HEADER,
    spdy_frame,
    web_socket_frame,
)

__all__ = ["MAX_PIECES", "MAX_STATUS", "SessionReader"]

#: Maximum number of bytes of a Status.
MAX_STATUS: Final = 16 * 1024

#: Maximum number of frames in one piece of bytes: reading a frame takes a microsecond,
#: during which all other connections wait.  A session with more is not read any more.
MAX_PIECES: Final = 1_000

#: Maximum bytes of the header of a SPDY stream, compressed and not.
MAX_SPDY_HEADER: Final = 16 * 1024

#: Maximum number of error streams of a session; each session has one.
MAX_ERROR_STREAMS: Final = 8

#: Number of the channel of a WebSocket with the Status.
_ERROR_CHANNEL: Final = 3

#: The dictionary of SPDY 3, section 2.6.10.1: words with their lengths, and a text.
#: An underscore stands for a space.
_WORDS: Final = (
    "options head post put delete trace accept accept-charset accept-encoding "
    "accept-language accept-ranges age allow authorization cache-control connection "
    "content-base content-encoding content-language content-length content-location "
    "content-md5 content-range content-type date etag expect expires from host "
    "if-match if-modified-since if-none-match if-range if-unmodified-since "
    "last-modified location max-forwards pragma proxy-authenticate "
    "proxy-authorization range referer retry-after server te trailer "
    "transfer-encoding upgrade user-agent vary via warning www-authenticate method "
    "get status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin"
)
_TEXT: Final = (
    "10010120120220520630030230330430530630740240540640740840941041141241341441541641"
    "7502504505203 Non-Authoritative Information204 No Content301 Moved Permanently40"
    "0 Bad Request401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error"
    "501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept O"
    "ct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,imag"
    "e/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/"
    "javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1"
    ",utf-,*,enq=0."
)
_DICTIONARY: Final = b"".join(
    len(word).to_bytes(4, "big") + word.replace("_", " ").encode()
    for word in _WORDS.split()
) + (_TEXT.encode())


class SessionReader:
    """
    Reader of one session.

    :param upgrade: the protocol: ``websocket`` or ``spdy/3.1``; the reader ignores the
        bytes of others.
    """

    __slots__ = ("_client", "_server", "exit_code")

    def __init__(self, upgrade: bytes) -> None:
        #: The exit code of the program; None while it runs, if it did not run, or if
        #: the session cannot be read.
        self.exit_code: int | None = None
        self._client: _Frames | None = None
        self._server: _Frames | None = None
        protocol = upgrade.lower()
        if protocol == b"websocket":
            self._server = _Frames(_WebSocketServer(self._ended))
        elif protocol == b"spdy/3.1":
            streams = _SpdyStreams(self._ended)
            self._client = _Frames(_SpdyClient(streams))
            self._server = _Frames(_SpdyServer(streams))

    def from_server(self, data: bytes) -> None:
        """Read bytes of the API server."""
        if self._server is not None and not self._server.read(data):
            self._server = None

    def from_client(self, data: bytes) -> None:
        """Read bytes of the client."""
        if self._client is not None and not self._client.read(data):
            # Without the headers of the client's streams, the server's have no names.
            self._client = self._server = None

    def _ended(self, status: bytes) -> None:
        code = _exit_code(status)
        if code is not None:
            self.exit_code = code


def _exit_code(text: bytes) -> int | None:
    """Return the exit code in a Status; None if the text is another one."""
    try:
        status = json.loads(text)
        if status["status"] == "Success":
            return 0
        if status["reason"] != "NonZeroExitCode":
            return None
        for cause in status["details"]["causes"]:
            if cause["reason"] == "ExitCode":
                code = int(cause["message"])
                return code if 0 <= code < 2**31 else None
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return None


class _Framing(Protocol):
    """
    Interface of a protocol in one direction.

    :ivar longest: length of the longest header of a frame.
    """

    longest: int

    def begin(self, header: bytes) -> tuple[int, int, bool] | None:
        """
        Return the length of the header, that of the payload, and whether the payload
        matters; None if more of the header is needed.

        :raises ValueError: this is another protocol.
        """

    def payload(self, data: bytes) -> None:
        """Take a part of a payload that matters."""

    def end(self) -> None:
        """Take the end of a payload that matters."""


class _Frames:
    """Position in the bytes of one direction."""

    __slots__ = ("_framing", "_header", "_left", "_matters")

    def __init__(self, framing: _Framing) -> None:
        self._framing = framing
        self._header = b""
        self._left = 0
        self._matters = False

    def read(self, data: bytes) -> bool:
        """Follow *data*; return False if the bytes cannot be read any more."""
        try:
            for count, _ in enumerate(self._steps(data)):
                if count >= MAX_PIECES:
                    return False
        except (ValueError, zlib.error):
            return False
        return True

    def _steps(self, data: bytes) -> Iterator[None]:
        framing, at, size = self._framing, 0, len(data)
        while at < size:
            yield
            if not self._left:
                known = len(self._header)
                header = self._header + data[at : at + framing.longest - known]
                found = framing.begin(header)
                if found is None:
                    self._header = header
                    return
                start, self._left, self._matters = found
                self._header = b""
                at += start - known
                if not self._left and self._matters:
                    framing.end()
                continue
            step = min(self._left, size - at)
            if self._matters:
                framing.payload(data[at : at + step])
            at += step
            self._left -= step
            if not self._left and self._matters:
                framing.end()


class _WebSocketServer:
    """
    Frames of the API server in a WebSocket: RFC 6455, section 5.

    The first byte of a message is the channel: a byte, or a digit if the subprotocol
    encodes messages with base64.  Only v4 and later send a Status as JSON.
    """

    longest = 15

    def __init__(self, ended: Callable[[bytes], None]) -> None:
        self._ended = ended
        self._status = b""
        #: Whether the message that has begun is on the error channel, and is complete
        #: after the frame.
        self._is_error = False
        self._is_last = False
        self._is_text = False

    def begin(self, header: bytes) -> tuple[int, int, bool] | None:
        """See `_Framing`."""
        found = web_socket_frame(header)
        if found is None:
            return None
        (start, size), first = found, header[0]
        if first & 0x70 or header[1] & 0x80:
            raise ValueError("compressed, or of a client")
        code = first & 0x0F
        if code >= 8:
            # A control frame, which may be between the frames of a message.
            return start, size, False
        if code:
            if not size:
                self._is_error = False
                return start, size, False
            if len(header) <= start:
                # The channel decides whether the message matters.
                return None
            channel = header[start]
            self._is_text = code == 1
            expected = _ERROR_CHANNEL + (ord("0") if self._is_text else 0)
            self._is_error = channel == expected
            self._status = b""
        self._is_last = bool(first & 0x80)
        return start, size, self._is_error

    def payload(self, data: bytes) -> None:
        """See `_Framing`."""
        self._status += data
        if len(self._status) > MAX_STATUS:
            raise ValueError("a long Status")

    def end(self) -> None:
        """See `_Framing`."""
        if not self._is_last:
            return
        text, self._status = self._status[1:], b""
        if self._is_text:
            text = base64.b64decode(text)
        self._ended(text)


class _SpdyStreams:
    """The error streams of a connection."""

    def __init__(self, ended: Callable[[bytes], None]) -> None:
        self.ended = ended
        self.errors: dict[int, bytes] = {}

    def opened(self, stream: int, header: bytes) -> None:
        """Take the header of a client's stream."""
        if _spdy_value(header, b"streamtype") == b"error":
            if len(self.errors) >= MAX_ERROR_STREAMS:
                raise ValueError("many error streams")
            self.errors[stream] = b""


class _SpdyClient:
    """
    Frames of a client in SPDY/3.1, sections 2.2 and 2.6.

    All headers of a direction are one compressed text, so each must be read.
    """

    longest = SPDY_HEADER

    def __init__(self, streams: _SpdyStreams) -> None:
        self._streams = streams
        self._inflate = zlib.decompressobj(zdict=_DICTIONARY)
        self._kind = 0
        self._frame = b""

    def begin(self, header: bytes) -> tuple[int, int, bool] | None:
        """See `_Framing`."""
        size = spdy_frame(header)
        if size is None:
            return None
        if not header[0] & 0x80:
            return SPDY_HEADER, size, False
        if header[:2] != b"\x80\x03":
            raise ValueError("another version of SPDY")
        self._kind = int.from_bytes(header[2:4], "big")
        self._frame = b""
        return SPDY_HEADER, size, self._kind in _HEADER_STARTS

    def payload(self, data: bytes) -> None:
        """See `_Framing`."""
        self._frame += data
        if len(self._frame) > MAX_SPDY_HEADER:
            raise ValueError("a long header")

    def end(self) -> None:
        """See `_Framing`."""
        frame, start = self._frame, _HEADER_STARTS[self._kind]
        if len(frame) < start:
            raise ValueError("a short frame")
        header = self._inflate.decompress(frame[start:], MAX_SPDY_HEADER)
        if self._inflate.unconsumed_tail:
            raise ValueError("a long header")
        if self._kind == _SYN_STREAM:
            stream = int.from_bytes(frame[:4], "big") & 0x7FFFFFFF
            self._streams.opened(stream, header)


class _SpdyServer:
    """Frames of the API server in SPDY/3.1: the data of error streams."""

    longest = SPDY_HEADER

    def __init__(self, streams: _SpdyStreams) -> None:
        self._streams = streams
        self._stream = 0
        self._is_last = False

    def begin(self, header: bytes) -> tuple[int, int, bool] | None:
        """See `_Framing`."""
        size = spdy_frame(header)
        if size is None:
            return None
        if header[0] & 0x80:
            if header[:2] != b"\x80\x03":
                raise ValueError("another version of SPDY")
            return SPDY_HEADER, size, False
        self._stream = int.from_bytes(header[:4], "big")
        self._is_last = bool(header[4] & 1)
        return SPDY_HEADER, size, self._stream in self._streams.errors

    def payload(self, data: bytes) -> None:
        """See `_Framing`."""
        text = self._streams.errors[self._stream] + data
        if len(text) > MAX_STATUS:
            raise ValueError("a long Status")
        self._streams.errors[self._stream] = text

    def end(self) -> None:
        """See `_Framing`; the text may be complete before the stream ends."""
        self._streams.ended(self._streams.errors[self._stream])


_SYN_STREAM: Final = 1

#: The place of the compressed header in the frames SYN_STREAM, SYN_REPLY and HEADERS.
_HEADER_STARTS: Final = {_SYN_STREAM: 10, 2: 4, 8: 4}


def _spdy_value(header: bytes, name: bytes) -> bytes:
    """
    Return a value of a header; empty if the header does not have it.

    :raises ValueError: the header is invalid.
    """
    at = 4
    for _ in range(int.from_bytes(header[:4], "big")):
        pair = []
        for _ in range(2):
            size = int.from_bytes(header[at : at + 4], "big")
            at += 4
            if at + size > len(header):
                raise ValueError("a short header")
            pair.append(header[at : at + size])
            at += size
        if pair[0].lower() == name:
            return pair[1]
    return b""
