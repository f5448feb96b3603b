"""A TCP path that can be made bad: it delays, stalls, cuts, loses and throttles."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from tools.load.clients import FIRST

T = TypeVar("T")

#: Bytes that are taken at a time: small enough that a rate is smooth.
CHUNK = 16 * 1024

#: Bytes that the kernel may hold for each socket: a path is to be full when it is.
#: With less the loopback, whose segments have 64 KiB, drops them and repeats them late.
KERNEL_BUFFER = 64 * 1024

#: Seconds' worth of bytes that wait where there is a rate, as in a router that keeps
#: its queue short.
ROUTER_BUFFER = 0.005

#: Seconds by which this process may be late, and makes good for it.
LATE = 0.02

#: Bytes of a packet, and seconds until one that was lost is sent again: what Linux
#: waits at least where nothing follows that would tell of it.
SEGMENT, SENT_AGAIN = 1448, 0.2

#: Bytes that are on the way where there is none.
MOST = 64 * 1024 * 1024

_RESET = struct.pack("ii", 1, 0)


class _Loop:
    """One thread for all paths."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        # Linux shares the cores among sessions first: all that the tests themselves do
        # has one share, where each kas has one; paths must not be what is slow.  Only
        # root may.
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), FIRST)
        self.loop.run_forever()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.start(work).result(30)


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
    :ivar holds: bytes on the way, each way and connection; less than `MOST` where the
        kernel is the path, which has buffers of its own.
    :ivar loss: part of the packets that come only when they are sent again, and with
        them all that was behind.
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
        self.holds = MOST
        self.loss = 0.0
        self._random = random.Random(7)
        #: Towards the targets, and back: nothing passes, and nobody is told.
        self.drop_forth = False
        self.drop_back = False
        self.refuse = False
        #: Since the beginning: connections, and bytes both ways.
        self.connections = 0
        self.passed = 0
        self._next = 0
        #: What passes now: the sockets of each.
        self._open: dict[asyncio.Task[None], tuple[socket.socket, socket.socket]] = {}
        #: Those that pass nothing any more, and were not told.
        self._frozen: set[asyncio.Task[None]] = set()
        self._loop = _loop()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._accepting = self._loop.start(self._accept())

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            near, _ = await loop.sock_accept(self._listener)
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            task = asyncio.create_task(self._serve(near))
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._open.pop(task, None)
        self._frozen.discard(task)

    async def _serve(self, near: socket.socket) -> None:
        far = None if self.refuse else await self._reach()
        if far is None:
            _reset_when_closed(near)
            near.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = near, far
        if self.holds < MOST:
            for each in (near, far):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.holds)
        frozen = self._frozen
        try:
            await asyncio.gather(
                self._pass(near, far, lambda: self.drop_forth or task in frozen),
                self._pass(far, near, lambda: self.drop_back or task in frozen),
            )
        finally:
            near.close()
            far.close()

    async def _reach(self) -> socket.socket | None:
        """A connection to the target whose turn it is, or to the next that takes it."""
        for port in await asyncio.to_thread(self._choose):
            far = socket.socket()
            far.setblocking(False)
            far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
            far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                await asyncio.get_running_loop().sock_connect(far, ("127.0.0.1", port))
            except OSError:
                far.close()
                continue
            return far
        return None

    def _choose(self) -> list[int]:
        """Targets in turn, those that are alive first."""
        self._next += 1
        turn = self._next % len(self.targets)
        order = self.targets[turn:] + self.targets[:turn]
        return sorted(order, key=lambda port: not self.alive(port))

    async def _pass(
        self, source: socket.socket, target: socket.socket, dropped: Callable[[], bool]
    ) -> None:
        loop = asyncio.get_running_loop()
        #: What is on its way, and when it arrives.
        queue: deque[tuple[float, bytes]] = deque()
        size = 0
        changed = asyncio.Event()

        async def read() -> None:
            nonlocal size
            free = 0.0  # the link is, from then on
            while True:
                try:
                    data = await loop.sock_recv(source, CHUNK)
                except OSError:
                    data = b""
                while data and size > self.holds:
                    changed.clear()
                    await changed.wait()
                now = loop.time()
                free = max(free, now - LATE if self.rate else now)
                if self.rate:
                    free += len(data) / self.rate
                packets = -(-len(data) // SEGMENT)
                if self.loss and self._random.random() < self.loss * packets:
                    free = max(free, now) + SENT_AGAIN
                queue.append((max(free, now) + self.delay, data))
                size += len(data)
                changed.set()
                if not data:
                    return
                if (wait := free - ROUTER_BUFFER - now) > 0:
                    await asyncio.sleep(wait)

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
                    target.shutdown(socket.SHUT_WR)
                    return
                await loop.sock_sendall(target, data)
                size -= len(data)
                self.passed += len(data)
                changed.set()
        except OSError:
            return
        finally:
            reading.cancel()

    def cut(self) -> int:
        """Reset every connection, as a load balancer does; returns how many."""

        async def now() -> int:
            tasks = list(self._open)
            for task in tasks:
                for each in self._open[task]:
                    _reset_when_closed(each)
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return len(tasks)

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
            self._accepting.cancel()
            await asyncio.sleep(0)
            self._listener.close()

        self._loop.run(now())
        self.cut()


def _reset_when_closed(each: socket.socket) -> None:
    try:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    except OSError:
        pass
