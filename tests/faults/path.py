"""A TCP path that can be made bad: it delays, stalls, cuts, throttles, and balances."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

#: Bytes that are taken at a time: small enough that a rate is smooth.
CHUNK = 64 * 1024

#: Bytes that the kernel may hold for each socket: a path is to be full when it is.
KERNEL_BUFFER = 64 * 1024

#: Seconds' worth of bytes that wait where there is a rate, as in a router.
ROUTER_BUFFER = 0.02

#: Bytes that are on the way where there is none.
MOST = 64 * 1024 * 1024

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
        #: Since the beginning: connections, and bytes both ways.
        self.connections = 0
        self.passed = 0
        self._next = 0
        self._open: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}
        #: Those that pass nothing any more, and were not told.
        self._frozen: set[asyncio.StreamWriter] = set()
        self._loop = _loop()
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
        self._server = self._loop.run(
            asyncio.start_server(self._accept, sock=listener, limit=CHUNK // 4)
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
                far = await asyncio.open_connection("127.0.0.1", port, limit=CHUNK // 4)
            except OSError:
                continue
            break
        else:
            _reset(writer)
            return
        far_reader, far_writer = far
        far_writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER
        )
        self._open[writer] = far_writer
        frozen = self._frozen
        await asyncio.gather(
            self._pass(reader, far_writer, lambda: self.drop_forth or writer in frozen),
            self._pass(far_reader, writer, lambda: self.drop_back or writer in frozen),
        )
        self._open.pop(writer, None)
        frozen.discard(writer)
        for one in (writer, far_writer):
            one.close()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        dropped: Callable[[], bool],
    ) -> None:
        loop = asyncio.get_running_loop()
        queue: deque[tuple[float, bytes]] = deque()
        size = 0
        changed = asyncio.Event()
        clear = 0.0

        def room() -> bool:
            rate = self.rate
            return size < (rate * (self.delay + ROUTER_BUFFER) if rate else MOST)

        async def read() -> None:
            nonlocal size
            while True:
                try:
                    data = await reader.read(CHUNK)
                except OSError:
                    data = b""
                while data and not room():
                    changed.clear()
                    await changed.wait()
                size += len(data)
                queue.append((loop.time() + self.delay, data))
                changed.set()
                if not data:
                    return

        reading = asyncio.create_task(read())
        try:
            while True:
                while not queue:
                    changed.clear()
                    await changed.wait()
                due, data = queue.popleft()
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
                    # By the clock, so that a sleep that is too long costs nothing.
                    clear = max(clear, loop.time() - ROUTER_BUFFER)
                    clear += len(data) / self.rate
                    if (wait := clear - loop.time()) > 0:
                        await asyncio.sleep(wait)
                size -= len(data)
                self.passed += len(data)
                changed.set()
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

    def freeze(self) -> None:
        """Nothing passes on the connections of now, and nobody is told."""
        self._frozen.update(self._open)

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
