"""The exit code of a session, from the bytes as they pass."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator

import pytest

from tunnel.kubernetes import SessionReader, session_reader
from tunnel.kubernetes.session_reader import (
    _DICTIONARY,
    MAX_ERROR_STREAMS,
    MAX_PIECES,
    MAX_STATUS,
)

SUCCESS = json.dumps({"metadata": {}, "status": "Success"}).encode()


def failure(code: object) -> bytes:
    """The Status of a program with an exit code."""
    cause = {"reason": "ExitCode", "message": str(code)}
    return json.dumps(
        {
            "metadata": {},
            "status": "Failure",
            "message": "command terminated with non-zero exit code",
            "reason": "NonZeroExitCode",
            "details": {"causes": [cause]},
        }
    ).encode()


def frame(payload: bytes, code: int = 2, last: bool = True) -> bytes:
    """A WebSocket frame of a server."""
    size = len(payload)
    if size < 126:
        length = bytes((size,))
    elif size < 2**16:
        length = b"\x7e" + size.to_bytes(2, "big")
    else:
        length = b"\x7f" + size.to_bytes(8, "big")
    return bytes((code | (0x80 if last else 0),)) + length + payload


def message(channel: int, data: bytes) -> bytes:
    return frame(bytes((channel,)) + data)


class Spdy:
    """Both directions of a SPDY connection."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=_DICTIONARY)

    def control(self, kind: int, payload: bytes) -> bytes:
        head = b"\x80\x03" + kind.to_bytes(2, "big") + b"\0"
        return head + len(payload).to_bytes(3, "big") + payload

    def header(self, **values: str) -> bytes:
        text = len(values).to_bytes(4, "big")
        for name, value in values.items():
            for one in (name.encode(), value.encode()):
                text += len(one).to_bytes(4, "big") + one
        found = self._deflate.compress(text)
        return found + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def open(self, stream: int, kind: str) -> bytes:
        start = stream.to_bytes(4, "big") + bytes(6)
        return self.control(1, start + self.header(streamtype=kind))

    @staticmethod
    def data(stream: int, data: bytes, last: bool = False) -> bytes:
        head = stream.to_bytes(4, "big") + bytes((last,))
        return head + len(data).to_bytes(3, "big") + data


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


WEB_SOCKETS: dict[str, tuple[bytes, int | None]] = {
    "success": (message(1, b"hello") + message(3, SUCCESS), 0),
    "code": (message(3, failure(7)), 7),
    "large output": (message(1, b"x" * 70_000) + message(3, failure(255)), 255),
    "empty message": (frame(b"") + message(3, failure(7)), 7),
    "fragments": (
        frame(b"\x03" + failure(7)[:9], last=False)
        + frame(b"", 9)
        + frame(failure(7)[9:20], 0, last=False)
        + frame(b"ping", 9)
        + frame(failure(7)[20:], 0),
        7,
    ),
    "fragments of output": (
        frame(b"\x01", last=False) + frame(b"\x03" + failure(7), 0),
        None,
    ),
    "base64": (
        frame(b"1" + base64.b64encode(b"hello"), 1)
        + frame(b"3" + base64.b64encode(failure(7)), 1),
        7,
    ),
    "forged in the output": (
        message(1, failure(0)) + message(2, b"\x03" + SUCCESS),
        None,
    ),
    "not started": (message(3, b'{"status": "Failure", "reason": "NotFound"}'), None),
    "old subprotocol": (message(3, b"exit status 7"), None),
    "odd code": (message(3, failure("x")), None),
    "negative code": (message(3, failure(-1)), None),
    "odd Status": (message(3, b"[]"), None),
    "long Status": (message(3, b" " * MAX_STATUS + SUCCESS), None),
    "compressed": (frame(b"\x03" + SUCCESS, 0x42), None),
}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000, 10**6])
@pytest.mark.parametrize("name", WEB_SOCKETS)
def test_web_socket(name: str, size: int) -> None:
    """However the bytes are cut."""
    data, code = WEB_SOCKETS[name]
    reader = SessionReader(b"WebSocket")
    for piece in pieces(data, size):
        reader.from_server(piece)
        reader.from_client(b"\x82\xff")
    assert reader.exit_code == code


def spdy_session(status: bytes, error: int = 1) -> tuple[bytes, bytes]:
    spdy = Spdy()
    kinds = ["error", "stdin", "stdout"]
    client = b"".join(
        spdy.open(2 * number + error, kind) for number, kind in enumerate(kinds)
    )
    client += spdy.control(6, b"\0\0\0\1") + spdy.data(error + 2, b"input")
    client += spdy.control(8, error.to_bytes(4, "big") + spdy.header(a="b"))
    server = spdy.control(2, bytes(9)) + spdy.data(error + 4, b"output" + SUCCESS)
    half = len(status) // 2
    server += spdy.data(error, status[:half]) + spdy.data(error + 4, b"more")
    server += spdy.data(error, status[half:]) + spdy.data(error, b"", last=True)
    return client, server


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("status", "code"), [(SUCCESS, 0), (failure(7), 7), (b"", None)]
)
def test_spdy(status: bytes, code: int | None, size: int) -> None:
    reader = SessionReader(b"SPDY/3.1")
    client, server = spdy_session(status)
    for piece in pieces(client, size):
        reader.from_client(piece)
    for piece in pieces(server, size):
        reader.from_server(piece)
    assert reader.exit_code == code


def _bomb() -> bytes:
    spdy = Spdy()
    return spdy.control(1, bytes(10) + spdy.header(a="x" * 10**6))


def _many_errors() -> bytes:
    spdy = Spdy()
    return b"".join(
        spdy.open(2 * number + 1, "error") for number in range(MAX_ERROR_STREAMS + 1)
    )


@pytest.mark.parametrize(
    "hostile",
    [
        lambda: b"\x80\x02" + bytes(6),
        lambda: Spdy().control(1, bytes(10) + b"nonsense"),
        lambda: Spdy().control(1, bytes(3)),
        lambda: Spdy().control(1, bytes(2**17)),
        _bomb,
        _many_errors,
    ],
    ids=["version", "header", "short", "long", "bomb", "errors"],
)
def test_a_hostile_client(hostile: Callable[[], bytes]) -> None:
    """Its session is not read, and nothing fails."""
    reader = SessionReader(b"spdy/3.1")
    reader.from_client(hostile())
    client, server = spdy_session(SUCCESS)
    reader.from_client(client)
    reader.from_server(server)
    assert reader.exit_code is None


def test_many_frames() -> None:
    reader = SessionReader(b"websocket")
    reader.from_server(message(1, b"") * (MAX_PIECES + 1))
    reader.from_server(message(3, SUCCESS))
    assert reader.exit_code is None


def test_another_protocol() -> None:
    reader = SessionReader(b"h2c")
    reader.from_server(message(3, SUCCESS))
    reader.from_client(b"anything")
    assert reader.exit_code is None


def test_dictionary() -> None:
    """The one of the specification; kubectl uses it, too."""
    assert len(_DICTIONARY) == 1423
    assert zlib.adler32(_DICTIONARY) == 0xE3C6A7C2
    assert session_reader.MAX_SPDY_HEADER > len(_DICTIONARY)
