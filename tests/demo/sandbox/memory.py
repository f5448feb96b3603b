"""A sandbox in memory, a client of it, and a WebSocket client."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import attrs
from twisted.internet.task import Clock
from websockets.frames import Frame
from websockets.protocol import OPEN, Side
from websockets.protocol import Protocol as WebSocketCore

from demo.sandbox.api import Api, make_parser
from demo.sandbox.execution import Executions
from demo.sandbox.feeds import PodLog
from demo.sandbox.seed import PODS, fill
from demo.sandbox.store import Store
from tests.tunnel.http1.wire import Wire
from tunnel.http1 import HttpServerFactory

TOKEN = "secret"
POD = "/api/v1/namespaces/default/pods/shell"


@attrs.frozen
class Answer:
    """One answer, without its framing."""

    status: int
    head: str
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[tuple[str, str]]:
        """Type and name of what a watch told."""
        found = [json.loads(line) for line in self.body.splitlines()]
        return [
            (event["type"], event["object"]["metadata"].get("name", ""))
            for event in found
        ]


class FakeProcess:
    """What `spawnProcess` gives."""

    pid = 4_000_000  # there can be no such process

    def __init__(self) -> None:
        self.input = b""
        self.calls: list[str] = []
        self.producer: Any = None

    def write(self, data: bytes) -> None:
        self.input += data

    def __getattr__(self, name: str) -> Callable[[], None]:
        return lambda: self.calls.append(name)

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self.producer = producer


class FakeReactor(Clock):
    """Time that stands still, and processes that do nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.spawned: list[tuple[Any, FakeProcess, Any, Any]] = []

    def spawnProcess(
        self,
        protocol: Any,
        program: str,
        args: Any,
        env: Any,
        path: Any,
        usePTY: Any = None,
    ) -> FakeProcess:
        process = FakeProcess()
        self.spawned.append((protocol, process, args, usePTY))
        protocol.makeConnection(process)
        return process


class Memory:
    """The sandbox with everything real but time, sockets and processes."""

    def __init__(self, reactor: Any = None, folder: Path | None = None) -> None:
        self.reactor = FakeReactor() if reactor is None else reactor
        self.folder = folder or Path(tempfile.mkdtemp())
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        self.store = Store(self._stamp)
        self.logs = {(space, name): PodLog(self.now) for space, name, _ in PODS}
        fill(self.store)
        self.executions = Executions(self.reactor, self.folder)
        self.api = Api(TOKEN.encode(), self.store, self.logs, self.executions, self.now)
        #: Who wants to know that something was written to a wire.
        self.readers: dict[Wire, Callable[[], None]] = {}
        self.factory = HttpServerFactory(
            self.api, self.reactor, parser=make_parser(), write=self._write
        )

    def _write(self, wire: Wire, data: bytes) -> None:
        wire.write(data)
        if wire in self.readers:
            self.readers[wire]()

    def now(self) -> datetime:
        return self.time

    def _stamp(self) -> str:
        return self.time.strftime("%Y-%m-%dT%H:%M:%SZ")

    def later(self, seconds: float) -> None:
        """Time goes on for pods."""
        self.time += timedelta(seconds=seconds)

    def connect(self) -> Connection:
        return Connection(self)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        kind: str = "application/json",
        **headers: str,
    ) -> Answer:
        """One request on a connection of its own."""
        connection = self.connect()
        connection.send(method, path, body, kind, **headers)
        return connection.answer()


class Connection:
    """One connection to the sandbox."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.wire = Wire(memory.factory.buildProtocol(None))

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        kind: str = "application/json",
        **headers: str,
    ) -> None:
        data = body if isinstance(body, bytes) else b""
        if body is not None and not isinstance(body, bytes):
            data = json.dumps(body).encode()
        fields = {"Host": "sandbox", "Authorization": f"Bearer {TOKEN}"}
        if data:
            fields |= {"Content-Type": kind, "Content-Length": str(len(data))}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{name}: {value}" for name, value in fields.items() if value]
        head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""])
        self.wire.receive(head.encode() + data)
        self.flush()

    def flush(self) -> None:
        """Let the end of the reactor's turn come."""
        if isinstance(self._memory.reactor, Clock):
            self._memory.reactor.advance(0)

    def answer(self) -> Answer:
        """What has come so far."""
        self.flush()
        head, _, rest = self.wire.value().partition(b"\r\n\r\n")
        text = head.decode()
        body = _unchunked(rest) if "Transfer-Encoding: chunked" in text else rest
        return Answer(int(text.split(" ")[1]), text, body)


def _unchunked(data: bytes) -> bytes:
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        body += data[:length]
        data = data[length + 2 :]
    return body


class Terminal:
    """A client of ``exec``; *told* gets each message, and None at the close."""

    def __init__(
        self,
        memory: Memory,
        command: list[str],
        told: Callable[[bytes | None], None] = lambda message: None,
        flags: Mapping[str, str] | None = None,
    ) -> None:
        self.connection = memory.connect()
        self.messages: list[bytes] = []
        self.closed = False
        self._told = told
        self._core = WebSocketCore(Side.CLIENT, state=OPEN, max_size=None)
        self._seen = 0
        self._upgraded = False
        memory.readers[self.connection.wire] = self.take
        query = urlencode(
            [("command", word) for word in command] + [*(flags or {}).items()]
        )
        self.connection.send(
            "GET",
            f"{POD}/exec?{query}",
            Connection="Upgrade",
            Upgrade="websocket",
            Sec_WebSocket_Key=base64.b64encode(bytes(16)).decode(),
            Sec_WebSocket_Version="13",
            Sec_WebSocket_Protocol="v5.channel.k8s.io",
        )

    def take(self) -> None:
        """Read what came."""
        data = self.connection.wire.value()
        if not self._upgraded:
            end = data.find(b"\r\n\r\n")
            if end < 0 or not data.startswith(b"HTTP/1.1 101"):
                return
            self._upgraded = True
            self._seen = end + 4
        new, self._seen = data[self._seen :], len(data)
        if not new:
            return
        self._core.receive_data(new)
        for event in self._core.events_received():
            assert isinstance(event, Frame)
            if event.opcode == 8:
                self.closed = True
                self._told(None)
            else:
                self.messages.append(bytes(event.data))
                self._told(bytes(event.data))

    def send(self, channel: int, data: bytes) -> None:
        self._core.send_binary(bytes([channel]) + data)
        self.flush()

    def flush(self) -> None:
        """Send what the core has to say, the answer to a close for instance."""
        self.connection.wire.receive(*filter(None, self._core.data_to_send()))
        self.connection.flush()

    @property
    def output(self) -> bytes:
        return b"".join(m[1:] for m in self.messages if m[0] == 1)

    @property
    def errors(self) -> bytes:
        return b"".join(m[1:] for m in self.messages if m[0] == 2)

    @property
    def status(self) -> Any:
        return json.loads(next(m[1:] for m in self.messages if m[0] == 3))
