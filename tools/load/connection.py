"""One connection to kas, kept from request to request, and what can fail on it."""

from __future__ import annotations

import asyncio
import ssl


class Failed(Exception):
    """A request without a whole answer, and why."""


class Stale(Failed):
    """A connection that was used before ended before the first byte of an answer."""


class Connection:
    """One connection that is kept from request to request."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.used = 0
        self.keep = True

    @classmethod
    async def make(cls, port: int, context: ssl.SSLContext | None) -> Connection:
        """A new one, with TLS where there is a context."""
        return cls(
            *await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, limit=1 << 20
            )
        )

    @property
    def usable(self) -> bool:
        """The other side did not close it, as far as we know."""
        return self.keep and not self.reader.at_eof() and not self.writer.is_closing()

    async def head(self, request: bytes) -> tuple[int, dict[str, str]]:
        """Send a request; the status and the fields of the answer."""
        self.used += 1
        began = False
        try:
            self.writer.write(request)
            block = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            began = bool(error.partial)
            kind = Failed if began or self.used == 1 else Stale
            raise kind("closed before the answer") from None
        except OSError as error:
            kind = Failed if self.used == 1 else Stale
            raise kind(f"before the answer: {error!r}") from None
        lines = block.decode("latin-1").split("\r\n")
        fields = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            fields[name.lower()] = value.strip().lower()
        if fields.get("connection") == "close":
            self.keep = False
        return int(lines[0].split()[1]), fields

    async def chunk(self) -> bytes:
        """The next chunk; empty at the end."""
        try:
            size = int((await self.reader.readuntil(b"\r\n")).partition(b";")[0], 16)
            return (await self.reader.readexactly(size + 2))[:-2]
        except (OSError, EOFError) as error:
            raise Failed(f"in the answer: {error!r}") from None

    async def body(self, fields: dict[str, str]) -> bytes:
        """All of the answer."""
        if fields.get("transfer-encoding") == "chunked":
            parts = []
            while data := await self.chunk():
                parts.append(data)
            return b"".join(parts)
        try:
            return await self.reader.readexactly(int(fields.get("content-length", "0")))
        except (OSError, EOFError) as error:
            raise Failed(f"in the answer: {error!r}") from None

    def close(self) -> None:
        """It is not needed any more."""
        self.writer.close()
