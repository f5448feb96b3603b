"""A TCP path that can be made bad: it delays, stalls, cuts, throttles, and balances."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

#: Bytes that are taken at a time: small enough that a rate is smooth.
CHUNK = 64 * 1024

_RESET = struct.pack("ii", 1, 0)


class _Loop:
    """One thread for all paths."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)


_shared: list[_Loop] = []


def _loop() -> _Loop:
    if not _shared:
        _shared.append(_Loop())
    return _shared[0]


class Path:
    """
    Listens on a port of its own and connects to one of several targets in turn.

    :param alive: asked for each connection: whether a target takes new ones; what a
        load balancer finds out by its health checks.
    :ivar delay: seconds that every byte is late, each way.
    :ivar rate: bytes a second, each way and connection; 0: no limit.
    """

    def __init__(
        self,
        targets: Sequence[int],
        *,
        alive: Callable[[int], bool] = lambda port: True,
    ) -> None:
        self.targets = list(targets)
        self.alive = alive
        self.delay = 0.0
        self.rate = 0.0
        #: Towards the targets, and back: nothing passes, and nobody is told.
        self.drop_forth = False
        self.drop_back = False
        self.refuse = False
        #: Since the beginning.
        self.connections = 0
        self._next = 0
        self._open: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}
        self._loop = _loop()
        self._resume = asyncio.Event()
        self._server = self._loop.run(
            asyncio.start_server(self._accept, "127.0.0.1", 0, limit=CHUNK)
        )
        self.port: int = self._server.sockets[0].getsockname()[1]

    def _choose(self) -> list[int]:
        """Targets in turn, those that are alive first."""
        self._next += 1
        turn = self._next % len(self.targets)
        order = self.targets[turn:] + self.targets[:turn]
        return sorted(order, key=lambda port: not self.alive(port))

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        if self.refuse:
            _reset(writer)
            return
        for port in await asyncio.to_thread(self._choose):
            try:
                far = await asyncio.open_connection("127.0.0.1", port, limit=CHUNK)
            except OSError:
                continue
            break
        else:
            _reset(writer)
            return
        far_reader, far_writer = far
        self._open[writer] = far_writer
        await asyncio.gather(
            self._pass(reader, far_writer, lambda: self.drop_forth),
            self._pass(far_reader, writer, lambda: self.drop_back),
        )
        self._open.pop(writer, None)
        for one in (writer, far_writer):
            one.close()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        dropped: Callable[[], bool],
    ) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(4096)
        loop = asyncio.get_running_loop()

        async def read() -> None:
            while True:
                try:
                    data = await reader.read(CHUNK)
                except OSError:
                    data = b""
                await queue.put((loop.time() + self.delay, data))
                if not data:
                    return

        reading = asyncio.create_task(read())
        try:
            while True:
                due, data = await queue.get()
                if (wait := due - loop.time()) > 0:
                    await asyncio.sleep(wait)
                while dropped():
                    # As DROP: it is there, and does not arrive; nor does the end.
                    await asyncio.sleep(0.02)
                if not data:
                    writer.write_eof()
                    return
                writer.write(data)
                await writer.drain()
                if self.rate:
                    await asyncio.sleep(len(data) / self.rate)
        except (OSError, RuntimeError):
            return
        finally:
            reading.cancel()

    def cut(self) -> int:
        """Reset every connection, as a load balancer does; returns how many."""

        async def now() -> int:
            pairs = list(self._open.items())
            for near, far in pairs:
                _reset(near)
                _reset(far)
            return len(pairs)

        return self._loop.run(now())

    @property
    def open(self) -> int:
        """Connections that pass now."""
        return len(self._open)

    def close(self) -> None:
        """Listen no more, and cut what passes."""

        async def now() -> None:
            self._server.close()

        self.cut()
        self._loop.run(now())


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    except OSError:
        pass
    writer.transport.abort()
