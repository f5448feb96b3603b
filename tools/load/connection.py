"""A connection to kas that is kept for several requests, and its errors."""

from __future__ import annotations

import asyncio
import ssl


class Failed(Exception):
    """Raised with the reason if a request got no complete response."""


class Stale(Failed):
    """Raised if a kept connection ended before the first byte of the response."""


class Connection:
    """A connection that is kept for several requests."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.used = 0
        self.keep = True

    @classmethod
    async def make(cls, port: int, context: ssl.SSLContext | None) -> Connection:
        """Open a connection, with TLS if *context* is given."""
        return cls(
            *await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, limit=1 << 20
            )
        )

    @property
    def usable(self) -> bool:
        """
        Return whether the connection can be used: the other side has not closed it, as
        far as this side knows.
        """
        return self.keep and not self.reader.at_eof() and not self.writer.is_closing()

    async def head(self, request: bytes) -> tuple[int, dict[str, str]]:
        """Send a request; return the status and the fields of the response."""
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
        """Return the next chunk; empty at the end."""
        try:
            size = int((await self.reader.readuntil(b"\r\n")).partition(b";")[0], 16)
            return (await self.reader.readexactly(size + 2))[:-2]
        except (OSError, EOFError) as error:
            raise Failed(f"in the answer: {error!r}") from None

    async def body(self, fields: dict[str, str]) -> bytes:
        """Return the whole body of the response."""
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
        """Close the connection."""
        self.writer.close()
