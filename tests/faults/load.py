"""
Clients in a process of their own, which count what fails.

``python -m tests.faults.load SETTINGS`` where the settings are JSON.  It says ``begun``
once the first answer is there, goes on until its standard input ends, and then prints
what it saw as one line of JSON.  Nothing is repeated: a request that fails has failed.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any

from tests.faults.connection import Connection, Failed, Stale

#: For a whole request: longer than kas lets one wait for its agent.
SECONDS = 40.0

#: Failures that are told in full; of more, only the number.
MAX_TOLD = 50

#: Connections of one load: what an open loop needs while answers take a second.
MAX_CONNECTIONS = 400


#: Connections that are made to begin with.
LEAST_CONNECTIONS = 12


class Load:
    """
    *rate* requests a second, however long the answers take.

    Latency is counted from when a request was due, so that a stall is seen in each of
    the requests that it delays.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.port: int = settings["port"]
        self.context = ssl.create_default_context(cafile=settings["ca"])
        self.context.set_alpn_protocols(["http/1.1"])
        self.idle: deque[Connection] = deque()
        self.count = 0
        self.resent = 0
        self.took: list[float] = []
        self.outcomes: Counter[str] = Counter()
        self.failures: list[dict[str, Any]] = []
        self.begun = asyncio.Event()

    def request(self, method: str, target: str, *fields: str, body: str = "") -> bytes:
        """A request as it is sent."""
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
        """Until *ended*; what was seen."""
        rate: float = self.settings["rate"]
        begin = time.monotonic()
        running: set[asyncio.Task[None]] = set()
        while not ended.is_set():
            due = begin + self.count / rate
            wait = due - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            if len(running) >= MAX_CONNECTIONS:
                # It is an open loop only as far as this: the rest counts as late.
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(self._one(self.count, due))
            running.add(task)
            task.add_done_callback(running.discard)
            self.count += 1
        if running:
            await asyncio.wait(running)
        return self.summary(time.monotonic() - begin)

    def summary(self, seconds: float) -> dict[str, Any]:
        """What was seen."""
        took = sorted(self.took)

        def at(part: float) -> float:
            return round(took[min(len(took) - 1, int(len(took) * part))], 4)

        return {
            "requests": self.count,
            "seconds": seconds,
            "outcomes": dict(self.outcomes),
            "resent": self.resent,
            "failed": sum(self.outcomes.values()) - self.outcomes[self.wanted],
            "failures": self.failures,
            "p50": at(0.5) if took else 0,
            "p99": at(0.99) if took else 0,
            "longest": round(took[-1], 4) if took else 0,
        }

    @property
    def wanted(self) -> str:
        """The outcome that is none of interest."""
        return str(self.settings.get("wanted", 200))

    async def _one(self, number: int, due: float) -> None:
        why = ""
        try:
            async with asyncio.timeout(SECONDS):
                outcome, body = await self.ask(number)
                why = body[:300].decode(errors="replace")
        except TimeoutError:
            outcome = "timeout"
        except (Failed, OSError) as error:
            outcome, why = "error", str(error) or repr(error)
        self.took.append(time.monotonic() - due)
        self.outcomes[outcome] += 1
        self.noted(number, outcome)
        if outcome == self.wanted:
            self.begun.set()
        elif len(self.failures) < MAX_TOLD:
            self.failures.append(
                {
                    "number": number,
                    "at": time.time(),
                    "outcome": outcome,
                    "why": why,
                    "took": round(time.monotonic() - due, 3),
                }
            )

    def noted(self, number: int, outcome: str) -> None:
        """For those who keep it."""

    async def ask(self, number: int) -> tuple[str, bytes]:
        """GET; on a connection that is kept."""
        request = self.request("GET", self.settings["target"])
        while True:
            connection = await self._connection()
            try:
                status, fields = await connection.head(request)
                body = await connection.body(fields)
            except Stale:
                # What every client does with an idle connection that was closed under
                # its hands: this is no failure of the request.
                self.resent += 1
                connection.close()
                continue
            except BaseException:
                connection.close()
                raise
            if connection.usable:
                self.idle.append(connection)
            else:
                connection.close()
            return str(status), b"" if status == 200 else body

    async def _connection(self) -> Connection:
        if self.count <= LEAST_CONNECTIONS:
            # A balancer gives them to all of its targets.
            return await Connection.make(self.port, self.context)
        while self.idle:
            # In turn, so that each of them is used.
            connection = self.idle.popleft()
            if connection.usable:
                return connection
            connection.close()
        return await Connection.make(self.port, self.context)


class Creations(Load):
    """Each request makes an object with a name of its own, on a new connection."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self.by_name: dict[str, str] = {}

    @property
    def wanted(self) -> str:
        """Made."""
        return "201"

    def _name(self, number: int) -> str:
        return f"{self.settings['prefix']}-{number:06}"

    async def ask(self, number: int) -> tuple[str, bytes]:
        """POST."""
        body = json.dumps({"metadata": {"name": self._name(number)}})
        request = self.request(
            "POST", self.settings["target"], "Connection: close", body=body
        )
        connection = await Connection.make(self.port, self.context)
        try:
            status, fields = await connection.head(request)
            answer = await connection.body(fields)
        finally:
            connection.close()
        return str(status), b"" if status == 201 else answer

    def noted(self, number: int, outcome: str) -> None:
        """By the name that it would have made."""
        self.by_name[self._name(number)] = outcome

    def summary(self, seconds: float) -> dict[str, Any]:
        """What was seen, with the outcome of each name."""
        return {**super().summary(seconds), "by_name": self.by_name}


class Watchers(Load):
    """
    Watch a list, each its own, and note every event.

    An answer that ends between two events is followed by the next from where it ended,
    as every client does; every other end is a broken watch.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        watchers: int = settings["watchers"]
        self.seen: list[list[str]] = [[] for _ in range(watchers)]
        self.ends = 0
        self.broken: list[str] = []
        self._watching = 0

    async def run(self, ended: asyncio.Event) -> dict[str, Any]:
        """Until *ended*; what was seen."""
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
        target = f"{self.settings['target']}?watch=1&resourceVersion={version}"
        connection = await Connection.make(self.port, self.context)
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
    """Run until standard input ends."""
    load = KINDS[settings["kind"]](settings)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def tell() -> None:
        await load.begun.wait()
        print("begun", flush=True)

    def wait_for_the_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    told: Awaitable[None] = asyncio.create_task(tell())
    waiting = asyncio.create_task(asyncio.to_thread(wait_for_the_end))
    seen = await load.run(ended)
    await waiting
    if load.begun.is_set():
        await told
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
