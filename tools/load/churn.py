"""
Requests that their clients cancel after a moment, each on its own connection.

``python -m tools.load.churn SETTINGS``; see `tools.load.clients.Churn`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
import time
from typing import Any

#: Maximum number of connections that are being established at the same time.
MAX_CONNECTIONS = 400


def main(settings: dict[str, Any]) -> None:
    """Execute commands from standard input, until it ends."""
    request = (
        f"GET {settings['target']} HTTP/1.1\r\nHost: kas\r\n"
        f"Authorization: Bearer {settings['token']}\r\n\r\n"
    ).encode()
    seen = {"sent": 0, "answered": 0, "refused": 0}

    class Client(asyncio.Protocol):
        patience = 0.1

        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            sock = transport.get_extra_info("socket")
            # A reset leaves no entry in the system's table of connections.
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
    main(json.loads(sys.argv[1]))
