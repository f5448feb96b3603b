"""HTTP/1.1 byte by byte, over TLS: what no HTTP library would send or show."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import attrs

#: Long enough for any answer, short enough that a hang is found.
SECONDS = 60


@attrs.frozen
class Answer:
    """
    One answer as it came.

    :ivar framing: ``length``, ``chunked``, ``close`` or ``none``.
    """

    version: str
    status: int
    reason: str
    fields: tuple[tuple[str, str], ...]
    framing: str
    body: bytes = attrs.field(repr=lambda body: f"{len(body)} bytes {body[:200]!r}")
    trailers: tuple[tuple[str, str], ...] = ()
    chunks: tuple[int, ...] = ()

    def field(self, name: str) -> str:
        """Its fields of that name, joined; empty when there is none."""
        return ", ".join(v for n, v in self.fields if n.lower() == name.lower())


@attrs.frozen
class Way:
    """
    One way to the API server, for requests that are written by hand.

    :ivar ca_file: of the server's certificate.
    :ivar token: for ``Authorization: Bearer``.
    """

    name: str
    port: int
    ca_file: Path
    token: str

    def connect(self) -> Connection:
        """A new connection."""
        return Connection(self)

    def head(
        self, method: str, target: str, *fields: str, version: str = "1.1"
    ) -> bytes:
        """The head of a request, credential included."""
        lines = [
            f"{method} {target} HTTP/{version}",
            f"Host: 127.0.0.1:{self.port}",
            f"Authorization: Bearer {self.token}",
            *fields,
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    def ask(
        self,
        method: str,
        target: str,
        *fields: str,
        body: bytes = b"",
        version: str = "1.1",
    ) -> Answer:
        """One request on a connection of its own; with a length if it has a body."""
        if body:
            fields = (*fields, f"Content-Length: {len(body)}")
        with self.connect() as connection:
            connection.send(self.head(method, target, *fields, version=version) + body)
            return connection.answer(method)


class Connection:
    """One TLS connection; a context manager that closes it."""

    def __init__(self, way: Way) -> None:
        context = ssl.create_default_context(cafile=str(way.ca_file))
        context.set_alpn_protocols(["http/1.1"])
        raw = socket.create_connection(("127.0.0.1", way.port), SECONDS)
        self.sock = context.wrap_socket(raw, server_hostname="127.0.0.1")
        self.buffer = bytearray()
        self.ended = False

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        """As it is."""
        self.sock.sendall(data)

    def answer(self, method: str = "GET") -> Answer:
        """The next answer, whole; *method* is what was asked."""
        version, status, reason, fields = self.head()
        named = {name.lower(): value for name, value in fields}
        trailers: tuple[tuple[str, str], ...] = ()
        chunks: list[int] = []
        body = b""
        if method == "HEAD" or status in (204, 304) or status < 200:
            framing = "none"
        elif named.get("transfer-encoding") == "chunked":
            framing = "chunked"
            body, trailers = self._chunks(chunks)
        elif "content-length" in named:
            framing = "length"
            body = self.take(int(named["content-length"]))
        else:
            framing = "close"
            body = self.rest()
        return Answer(
            version, status, reason, fields, framing, body, trailers, tuple(chunks)
        )

    def head(self) -> tuple[str, int, str, tuple[tuple[str, str], ...]]:
        """The next status line and its fields; for answers that do not end."""
        line = self.line()
        version, status, reason = [*line.split(" ", 2), ""][:3]
        return version, int(status), reason, self._fields()

    def chunk(self) -> bytes:
        """The next chunk of an answer that comes in chunks; empty at its end."""
        size = int(self.line().partition(";")[0], 16)
        data = self.take(size)
        if size:
            assert self.take(2) == b"\r\n"
        return data

    def _chunks(self, sizes: list[int]) -> tuple[bytes, tuple[tuple[str, str], ...]]:
        parts = []
        while data := self.chunk():
            parts.append(data)
            sizes.append(len(data))
        return b"".join(parts), self._fields()

    def _fields(self) -> tuple[tuple[str, str], ...]:
        found = []
        while line := self.line():
            name, _, value = line.partition(":")
            found.append((name, value.strip()))
        return tuple(found)

    def line(self) -> str:
        """Up to the next CRLF."""
        while (end := self.buffer.find(b"\r\n")) < 0:
            self._more()
        line = self.buffer[:end].decode("latin-1")
        del self.buffer[: end + 2]
        return line

    def take(self, count: int) -> bytes:
        """Just so many bytes."""
        while len(self.buffer) < count:
            self._more()
        data = bytes(self.buffer[:count])
        del self.buffer[:count]
        return data

    def rest(self) -> bytes:
        """Everything until the other side closes."""
        while not self.ended:
            try:
                self._more()
            except ConnectionError:
                break
        data = bytes(self.buffer)
        self.buffer.clear()
        return data

    def _more(self) -> None:
        try:
            chunk = self.sock.recv(1 << 18)
        except ssl.SSLEOFError:
            chunk = b""
        if not chunk:
            self.ended = True
            raise ConnectionError(
                f"closed; what was left: {bytes(self.buffer[:200])!r}"
            )
        self.buffer += chunk

    def is_closed(self) -> bool:
        """Whether the other side closes without another byte."""
        return self.rest() == b"" and self.ended
