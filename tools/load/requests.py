"""
Requests in a separate process, which counts failures.

``python -m tools.load.requests SETTINGS``; see `tools.load.clients.Load`.  Failed
requests are counted and not repeated.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from tools.load.connection import Connection, Failed, Stale

#: Timeout of a request in seconds: longer than kas lets a request wait for its agent.
SECONDS = 40.0

#: Maximum number of failures that are reported in full; the other failures are only
#: counted.
MAX_TOLD = 50

#: Maximum number of connections of one load to one port: enough for an open loop while
#: responses take a second.
MAX_CONNECTIONS = 400

#: Number of connections that are opened at first.
LEAST_CONNECTIONS = 12


class Window:
    """
    Results of the requests that were due in one period.

    :param wanted: the outcome of a successful request.
    """

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self._took: list[float] = []
        self._outcomes: Counter[str] = Counter()
        self._failures: list[dict[str, Any]] = []

    def note(self, number: int, outcome: str, took: float, why: str) -> None:
        """Record one request."""
        self._took.append(took)
        self._outcomes[outcome] += 1
        if outcome != self._wanted and len(self._failures) < MAX_TOLD:
            self._failures.append(
                {
                    "number": number,
                    "at": time.time(),
                    "outcome": outcome,
                    "why": why,
                    "took": round(took, 3),
                }
            )

    def summary(self) -> dict[str, Any]:
        """Return the numbers of requests and failures, and the latencies."""
        took = sorted(self._took)

        def at(part: float) -> float:
            return round(took[min(len(took) - 1, int(len(took) * part))], 4)

        return {
            "requests": len(took),
            "outcomes": dict(self._outcomes),
            "failed": len(took) - self._outcomes[self._wanted],
            "failures": self._failures,
            "p50": at(0.5) if took else 0,
            "p99": at(0.99) if took else 0,
            "longest": round(took[-1], 4) if took else 0,
        }


class Load:
    """
    Sender of *rate* requests per second, however long the responses take.

    Latency is counted from the time when a request was due, so that a stall shows in
    each request that it delays.
    """

    #: Outcome of a successful request, unless the settings name another one.
    wanted = "200"

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.ports: list[int] = settings["ports"]
        self.targets: list[str] = settings["targets"]
        self.context: ssl.SSLContext | None = None
        if settings["ca"]:
            self.context = ssl.create_default_context(cafile=settings["ca"])
            self.context.set_alpn_protocols(["http/1.1"])
        self.idle: dict[int, deque[Connection]] = {port: deque() for port in self.ports}
        self.wanted = str(settings.get("wanted", self.wanted))
        self.count = self.resent = 0
        self.all = Window(self.wanted)
        self.windows: dict[str, Window] = {}
        self.window("begin")
        self.begun = asyncio.Event()

    def window(self, name: str) -> None:
        """From now on, count due requests under this name, too."""
        window = self.windows.setdefault(name, Window(self.wanted))
        #: Windows that count requests that are due now.
        self.now = [self.all, window]

    def request(self, method: str, target: str, *fields: str, body: str = "") -> bytes:
        """Return the bytes of a request."""
        lines = [
            f"{method} {target} HTTP/1.1",
            "Host: 127.0.0.1",
            f"Authorization: Bearer {self.settings['token']}",
            *fields,
        ]
        if body:
            lines += [
                "Content-Type: application/json",
                f"Content-Length: {len(body.encode())}",
            ]
        return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()

    async def run(self, ended: asyncio.Event) -> dict[str, Any]:
        """Send requests until *ended*, and return the results."""
        rate: float = self.settings["rate"]
        begin = time.monotonic()
        running: set[asyncio.Task[None]] = set()
        while not ended.is_set():
            due = begin + self.count / rate
            wait = due - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            if len(running) >= MAX_CONNECTIONS * len(self.ports):
                # At this limit, the open loop waits, and later requests count as late.
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(self._one(self.count, due, self.now))
            running.add(task)
            task.add_done_callback(running.discard)
            self.count += 1
        if running:
            await asyncio.wait(running)
        return self.summary(time.monotonic() - begin)

    def summary(self, seconds: float) -> dict[str, Any]:
        """Return the results."""
        return {
            **self.all.summary(),
            "seconds": seconds,
            "resent": self.resent,
            "windows": {name: one.summary() for name, one in self.windows.items()},
        }

    async def _one(self, number: int, due: float, windows: list[Window]) -> None:
        why = ""
        try:
            async with asyncio.timeout(SECONDS):
                outcome, body = await self.ask(number)
                why = body[:300].decode(errors="replace")
        except TimeoutError:
            outcome = "timeout"
        except (Failed, OSError) as error:
            outcome, why = "error", str(error) or repr(error)
        took = time.monotonic() - due
        for window in windows:
            window.note(number, outcome, took, why)
        self.noted(number, outcome)
        if outcome == self.wanted:
            self.begun.set()

    def noted(self, number: int, outcome: str) -> None:
        """Record the outcome of a request; only subclasses do so."""

    async def ask(self, number: int) -> tuple[str, bytes]:
        """Send a GET on a kept connection."""
        port = self.ports[number % len(self.ports)]
        target = self.targets[(number // len(self.ports)) % len(self.targets)]
        request = self.request("GET", target)
        while True:
            connection = await self._connection(port)
            try:
                status, fields = await connection.head(request)
                body = await connection.body(fields)
            except Stale:
                # Every client repeats a request if the kept connection was closed
                # before the response, so this is not counted as a failure.
                self.resent += 1
                connection.close()
                continue
            except BaseException:
                connection.close()
                raise
            if connection.usable:
                self.idle[port].append(connection)
            else:
                connection.close()
            return str(status), b"" if status == 200 else body

    async def _connection(self, port: int) -> Connection:
        idle = self.idle[port]
        # A load balancer distributes the first connections over all its targets.
        while idle and self.count > LEAST_CONNECTIONS:
            # Connections are used in turn, so that none stays idle for long.
            connection = idle.popleft()
            if connection.usable:
                return connection
            connection.close()
        return await Connection.make(port, self.context)


class Creations(Load):
    """
    A load whose requests each create an object with its own name, on a new connection.
    """

    wanted = "201"

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self.by_name: dict[str, str] = {}

    def _name(self, number: int) -> str:
        return f"{self.settings['prefix']}-{number:06}"

    async def ask(self, number: int) -> tuple[str, bytes]:
        """Send a POST."""
        body = json.dumps({"metadata": {"name": self._name(number)}})
        request = self.request("POST", self.targets[0], "Connection: close", body=body)
        connection = await Connection.make(self.ports[0], self.context)
        try:
            status, fields = await connection.head(request)
            answer = await connection.body(fields)
        finally:
            connection.close()
        return str(status), b"" if status == 201 else answer

    def noted(self, number: int, outcome: str) -> None:
        """Record the outcome of a request under the name of the object to create."""
        self.by_name[self._name(number)] = outcome

    def summary(self, seconds: float) -> dict[str, Any]:
        """Return the results, with the outcome of each name."""
        return {**super().summary(seconds), "by_name": self.by_name}


class Watchers(Load):
    """
    Clients that each watch a list, and record every event.

    If a response ends between two events, the client continues with another request, as
    every client does; any other end counts as a broken watch.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        watchers: int = settings["watchers"]
        self.seen: list[list[str]] = [[] for _ in range(watchers)]
        self.ends = 0
        self.broken: list[str] = []
        self._watching = 0

    async def run(self, ended: asyncio.Event) -> dict[str, Any]:
        """Watch until *ended*, and return the results."""
        tasks = [
            asyncio.create_task(self._watch(number)) for number in range(len(self.seen))
        ]
        await ended.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                self.broken.append(repr(error))
        return {
            "seen": self.seen,
            "ends": self.ends,
            "broken": self.broken[:MAX_TOLD],
            "broken_count": len(self.broken),
        }

    async def _watch(self, number: int) -> None:
        version: str = self.settings["version"]
        first = True
        while True:
            try:
                version = await self._once(number, version, first)
                self.ends += 1
            except (Failed, OSError) as error:
                self.broken.append(f"{time.time():.1f} watch {number}: {error}")
                await asyncio.sleep(0.5)
            first = False

    async def _once(self, number: int, version: str, first: bool) -> str:
        target = f"{self.targets[0]}?watch=1&resourceVersion={version}"
        connection = await Connection.make(self.ports[0], self.context)
        rest = b""
        try:
            async with asyncio.timeout(SECONDS):
                status, fields = await connection.head(self.request("GET", target))
            if status != 200:
                body = await connection.body(fields)
                raise Failed(f"{status} {body[:300]!r}")
            if first:
                self._watching += 1
                if self._watching == len(self.seen):
                    self.begun.set()
            while data := await connection.chunk():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise Failed(f"an event says {line[:300]!r}")
                    metadata = event["object"]["metadata"]
                    version = metadata["resourceVersion"]
                    self.seen[number].append(f"{event['type']} {metadata['name']}")
        except TimeoutError:
            raise Failed("no answer to the watch") from None
        finally:
            connection.close()
        if rest:
            raise Failed("the answer ended within an event")
        return version


KINDS: dict[str, Callable[[dict[str, Any]], Load]] = {
    "get": Load,
    "post": Creations,
    "watch": Watchers,
}


async def main(settings: dict[str, Any]) -> None:
    """Execute commands from standard input, until it ends."""
    load = KINDS[settings["kind"]](settings)
    commands: asyncio.Queue[list[Any]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(commands.put_nowait, json.loads(line))
        loop.call_soon_threadsafe(commands.put_nowait, ["end"])

    threading.Thread(target=read, daemon=True).start()
    ended = asyncio.Event()
    running = asyncio.create_task(load.run(ended))
    while True:
        command, *arguments = await commands.get()
        answer: Any = None
        if command == "begun":
            begun = asyncio.create_task(load.begun.wait())
            await asyncio.wait((begun, running), return_when=asyncio.FIRST_COMPLETED)
        elif command == "window":
            load.window(*arguments)
        elif command == "stop":
            ended.set()
            answer = await running
        else:
            running.cancel()
            return
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
