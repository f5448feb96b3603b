"""
Light clients, which cost less than what they measure.

``python -m tests.faults.light_load load|churn SETTINGS``; see
`tests.faults.redis_clients`.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import sys
import threading
import time
from collections import deque
from typing import Any

#: Connections of one load to one kas.
MAX_CONNECTIONS = 400

#: For one request: longer than kas lets it wait for its agent.
REQUEST_SECONDS = 30.0

#: Failures that are told in full.
MAX_TOLD = 10


def _quantile(took: list[float], part: float) -> float:
    return round(took[min(len(took) - 1, int(len(took) * part))], 4) if took else 0.0


class Window:
    """What was seen of the requests that were due in one span of time."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self.failed = 0
        self.failures: list[str] = []

    def summary(self) -> dict[str, Any]:
        """How many there were, how many failed, and how long they took."""
        took = sorted(self.took)
        return {
            "requests": len(took),
            "failed": self.failed,
            "failures": self.failures,
            "p50": _quantile(took, 0.5),
            "p99": _quantile(took, 0.99),
            "longest": took[-1] if took else 0.0,
        }


def load(settings: dict[str, Any]) -> None:
    """Requests at a rate, on connections that are kept."""
    length_of = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
    ports, paths = settings["ports"], settings["paths"]
    idle: dict[int, deque[Any]] = {port: deque() for port in ports}
    windows: dict[str, Window] = {"begin": Window()}
    now = ["begin"]
    running: set[Any] = set()

    async def ask(port: int, path: str) -> str:
        if idle[port]:
            reader, writer = idle[port].popleft()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(
                f"GET {path} HTTP/1.1\r\nHost: kas\r\n"
                f"Authorization: Bearer {settings['token']}\r\n\r\n".encode()
            )
            head = await reader.readuntil(b"\r\n\r\n")
            found = length_of.search(head)
            body = await reader.readexactly(int(found[1]) if found else 0)
        except BaseException:
            writer.close()
            raise
        if b"connection: close" in head.lower():
            writer.close()
        else:
            idle[port].append((reader, writer))
        status = head.split(None, 2)[1]
        return "" if status == b"200" else f"{port}{path}: {status!r} {body[:200]!r}"

    async def one(number: int, due: float, window: Window) -> None:
        port = ports[number % len(ports)]
        path = paths[(number // len(ports)) % len(paths)]
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                wrong = await ask(port, path)
        except TimeoutError:
            wrong = f"{port}{path}: no answer"
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            wrong = f"{port}{path}: {error!r}"
        window.took.append(time.monotonic() - due)
        if wrong:
            window.failed += 1
            if len(window.failures) < MAX_TOLD:
                window.failures.append(wrong)

    async def main() -> None:
        commands: asyncio.Queue[list[Any]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def read() -> None:
            for line in sys.stdin:
                loop.call_soon_threadsafe(commands.put_nowait, json.loads(line))
            loop.call_soon_threadsafe(commands.put_nowait, ["end"])

        threading.Thread(target=read, daemon=True).start()
        begin, count = time.monotonic(), 0
        while True:
            while not commands.empty():
                command, *arguments = commands.get_nowait()
                if command == "window":
                    now[0] = arguments[0]
                    windows.setdefault(now[0], Window())
                    print("null", flush=True)
                    continue
                if running:
                    await asyncio.wait(running)
                seen = {name: one.summary() for name, one in windows.items()}
                print(json.dumps(seen), flush=True)
                return
            due = begin + count / settings["rate"]
            wait = due - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            if len(running) >= MAX_CONNECTIONS * len(ports):
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(one(count, due, windows[now[0]]))
            running.add(task)
            task.add_done_callback(running.discard)
            count += 1

    asyncio.run(main())


def churn(settings: dict[str, Any]) -> None:
    """Requests that are given up, each on its own connection."""
    request = (
        f"GET {settings['path']} HTTP/1.1\r\nHost: kas\r\n"
        f"Authorization: Bearer {settings['token']}\r\n\r\n"
    ).encode()
    seen = {"sent": 0, "answered": 0, "refused": 0}

    class Client(asyncio.Protocol):
        patience = 0.1

        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            sock = transport.get_extra_info("socket")
            # A reset leaves nothing behind that would fill the table of connections.
            sock.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            transport.write(request)
            seen["sent"] += 1
            asyncio.get_running_loop().call_later(self.patience, transport.abort)

        def data_received(self, data: bytes) -> None:
            seen["answered"] += 1

    async def run(seconds: float, patience: float) -> None:
        Client.patience = patience
        loop = asyncio.get_running_loop()
        ports = settings["ports"]
        begin, count = time.monotonic(), 0
        connecting: set[Any] = set()

        async def one(port: int) -> None:
            try:
                await loop.create_connection(Client, "127.0.0.1", port)
            except OSError:
                seen["refused"] += 1

        while time.monotonic() - begin < seconds:
            wait = begin + count / settings["rate"] - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            if len(connecting) >= MAX_CONNECTIONS:
                await asyncio.wait(connecting, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(one(ports[count % len(ports)]))
            connecting.add(task)
            task.add_done_callback(connecting.discard)
            count += 1
        if connecting:
            await asyncio.wait(connecting)
        await asyncio.sleep(patience + 0.1)

    for line in sys.stdin:
        _, seconds, patience = json.loads(line)
        asyncio.run(run(seconds, patience))
        print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    {"load": load, "churn": churn}[sys.argv[1]](json.loads(sys.argv[2]))
