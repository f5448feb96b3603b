"""
Light agents and light clients, for experiments in which kas and Redis are the subject.

``python -m tests.faults.redis_clients agents|load|churn SETTINGS``, where the settings
are JSON: each is a process of its own.  Every line on its standard input is a command
and gets one line of JSON; when the input ends, so does it.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

from tests.integration.processes import ROOT, clean_environment, die_with_parent

#: For the answer to a command: thousands of handshakes take their time.
ANSWER_SECONDS = 120

#: Agents that greet at the same time.
GREETING = 64

#: Connections of one load to one kas.
MAX_CONNECTIONS = 400

#: For one request: longer than kas lets it wait for its agent.
REQUEST_SECONDS = 30.0

#: Failures that are told in full.
MAX_TOLD = 10


class Child:
    """One of them, as its parent sees it; a context manager that ends it."""

    def __init__(self, kind: str, **settings: Any) -> None:
        self.child = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.faults.redis_clients"),
                *(kind, json.dumps(settings)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=clean_environment(),
            cwd=ROOT,
            preexec_fn=die_with_parent,
            text=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self._lines.put(line)
        self._lines.put("")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.wait()
        assert self.child.stdin is not None
        self.child.stdin.close()

    def ask(self, command: str, *arguments: Any) -> Any:
        """Its answer to a command."""
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps([command, *arguments]) + "\n")
        self.child.stdin.flush()
        line = self._lines.get(timeout=ANSWER_SECONDS)
        assert line, f"it ended with {self.child.wait()}"
        return json.loads(line)


class Agents(Child):
    """
    Agents with real tunnels, which answer every request at once.

    An agent that loses its connection comes back as agentk does: as the same instance,
    with a newer generation, at any of *ports*.
    """

    def __init__(self, ca: Path, ports: list[int]) -> None:
        super().__init__("agents", ca=str(ca), ports=ports)

    def connect(self, tokens: list[str], port: int) -> None:
        """One agent for each token, at one kas."""
        self.ask("connect", tokens, port)

    def move(self, tokens: list[str], port: int) -> None:
        """Cut their connections, which stand, and come back at another kas."""
        self.ask("move", tokens, port)

    @property
    def made(self) -> int:
        """Connections that were made so far, by all of them."""
        return int(self.ask("made"))


class Load(Child):
    """
    *rate* requests a second in all, evenly over *ports* and *paths*.

    Latency counts from when a request was due.
    """

    def __init__(
        self, ports: list[int], paths: list[str], token: str, rate: float
    ) -> None:
        super().__init__("load", ports=ports, paths=paths, token=token, rate=rate)

    def window(self, name: str) -> None:
        """Requests that are due from now on are counted under this name."""
        self.ask("window", name)

    def stop(self) -> dict[str, Any]:
        """By window: requests, failed, failures, p50, p99 and longest in seconds."""
        seen: dict[str, Any] = self.ask("stop")
        return seen


class Churn(Child):
    """Requests that are given up after a moment, each on its own connection."""

    def __init__(self, ports: list[int], path: str, token: str, rate: float) -> None:
        super().__init__("churn", ports=ports, path=path, token=token, rate=rate)

    def run(self, seconds: float, patience: float) -> dict[str, Any]:
        """For so long; how many were sent, and what was answered nevertheless."""
        seen: dict[str, Any] = self.ask("run", seconds, patience)
        return seen


# What runs in the child.


def _agents(settings: dict[str, Any]) -> None:
    import os
    import random

    from twisted.internet import reactor as _reactor
    from twisted.internet import stdio
    from twisted.internet.endpoints import TCP4ClientEndpoint
    from twisted.internet.protocol import Factory
    from twisted.protocols.basic import LineReceiver

    from modules.kubernetes_api.heads import METHOD
    from tunnel.flusher import Flusher
    from tunnel.net.keepalive import Keepalive, Timing
    from tunnel.net.owner import TunnelOwner
    from tunnel.net.protocol import TunnelProtocol
    from tunnel.net.tls import client_context
    from tunnel.net.tlsio import TLSClientEndpoint
    from tunnel.pb import tunnel_pb2 as pb
    from tunnel.rpc.dispatch import Dispatcher
    from tunnel.testing import RecordingReceiver
    from tunnel.wire.session import Session

    reactor: Any = _reactor
    flusher, keepalive = Flusher(reactor), Keepalive(reactor)
    context = client_context(settings["ca"], system_pool=False)
    dispatcher = Dispatcher(reactor)
    counts = {"made": 0}
    waiting: list[LightAgent] = []
    greeting: set[LightAgent] = set()

    def accept(stream: Any, open_: Any) -> Any:
        stream.send_headers(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b"Content-Length: 200\r\n"
        )
        stream.write(b"x" * 200)
        stream.finish()
        return RecordingReceiver()

    dispatcher.handle_stream("light", METHOD, accept)

    def next_ones() -> None:
        while waiting and len(greeting) < GREETING:
            agent = waiting.pop(0)
            greeting.add(agent)
            agent.dial()

    class LightAgent(TunnelOwner):
        def __init__(self, token: str, port: int) -> None:
            self.token, self.port = token, port
            self.instance, self.generation = os.urandom(16), 0
            self.tunnel: Any = None
            self.told: Any = None
            self.failures = 0

        def connect(self, told: Any = None) -> None:
            self.told = told
            waiting.append(self)
            next_ones()

        def dial(self) -> None:
            tcp = TCP4ClientEndpoint(reactor, "127.0.0.1", self.port, timeout=5)
            endpoint = TLSClientEndpoint(tcp, lambda: context, "localhost", reactor)
            factory = Factory.forProtocol(self.make)
            factory.noisy = False
            endpoint.connect(factory).addCallbacks(self.greet, self.failed)

        def make(self) -> Any:
            return TunnelProtocol(
                Session(dialler=True),
                self,
                clock=reactor,
                flusher=flusher,
                keepalive=keepalive,
                timing=Timing(),
            )

        def greet(self, tunnel: Any) -> None:
            self.generation += 1
            self.tunnel = tunnel
            tunnel.hello(
                pb.Hello(
                    role="agent",
                    credential=self.token.encode(),
                    instance_id=self.instance,
                    generation=self.generation,
                )
            )

        def failed(self, _: object) -> None:
            greeting.discard(self)
            self.failures += 1
            self.again()
            next_ones()

        def again(self) -> None:
            self.port = random.choice(settings["ports"])
            pause = random.random() * min(10.0, 0.5 * 2 ** min(self.failures, 10))
            reactor.callLater(pause, self.connect, self.told)

        def welcome_received(self, tunnel: Any, welcome: Any) -> None:
            counts["made"] += 1
            self.failures = 0
            greeting.discard(self)
            told, self.told = self.told, None
            if told is not None:
                told(self)
            next_ones()

        def stream_opened(self, stream: Any, open_: Any) -> Any:
            return dispatcher.accept(stream, open_)

        def tunnel_closed(self, tunnel: Any, reason: Any) -> None:
            if tunnel is not self.tunnel:
                return
            self.tunnel = None
            if self in greeting:
                self.failed(reason)
            else:
                self.again()

    agents: dict[str, LightAgent] = {}

    class Commands(LineReceiver):
        delimiter = b"\n"
        MAX_LENGTH = 1 << 22

        def lineReceived(self, line: bytes) -> None:
            command, *arguments = json.loads(line)
            if command == "made":
                self.answer(counts["made"])
                return
            tokens, port = arguments
            missing = set(tokens)

            def told(agent: LightAgent) -> None:
                missing.discard(agent.token)
                if not missing:
                    self.answer(len(tokens))

            for token in tokens:
                if command == "connect":
                    agents[token] = LightAgent(token, port)
                    agents[token].connect(told)
                else:
                    agent = agents[token]
                    tunnel, agent.tunnel, agent.port = agent.tunnel, None, port
                    tunnel.abort(0, "it moves")
                    agent.connect(told)

        def answer(self, content: Any) -> None:
            print(json.dumps(content), flush=True)

        def connectionLost(self, reason: Any = None) -> None:
            if reactor.running:
                reactor.stop()

    commands: Any = Commands()
    stdio.StandardIO(commands)
    reactor.run()


def _quantile(took: list[float], part: float) -> float:
    return round(took[min(len(took) - 1, int(len(took) * part))], 4) if took else 0.0


class _Window:
    def __init__(self) -> None:
        self.took: list[float] = []
        self.failed = 0
        self.failures: list[str] = []

    def summary(self) -> dict[str, Any]:
        took = sorted(self.took)
        return {
            "requests": len(took),
            "failed": self.failed,
            "failures": self.failures,
            "p50": _quantile(took, 0.5),
            "p99": _quantile(took, 0.99),
            "longest": took[-1] if took else 0.0,
        }


def _load(settings: dict[str, Any]) -> None:
    import asyncio
    import re
    import time
    from collections import deque

    length_of = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
    ports, paths = settings["ports"], settings["paths"]
    idle: dict[int, deque[Any]] = {port: deque() for port in ports}
    windows: dict[str, _Window] = {"begin": _Window()}
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

    async def one(number: int, due: float, window: _Window) -> None:
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
                    windows.setdefault(now[0], _Window())
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


def _churn(settings: dict[str, Any]) -> None:
    import asyncio
    import socket
    import struct
    import time

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
    {"agents": _agents, "load": _load, "churn": _churn}[sys.argv[1]](
        json.loads(sys.argv[2])
    )
