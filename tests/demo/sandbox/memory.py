"""A sandbox in memory, a client of it, and a WebSocket client."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
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
from tests.tunnel.http1.wire import Wire
from tunnel.http1 import HttpServerFactory
from tunnel.testing.objects import FakeObjects

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
        found = map(json.loads, self.body.splitlines())
        return [(one["type"], one["object"]["metadata"]["name"]) for one in found]


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

    def __init__(self, folder: Path, reactor: Any = None) -> None:
        self.reactor = FakeReactor() if reactor is None else reactor
        self.executions = Executions(self.reactor, folder)
        self.objects = FakeObjects(self.reactor.seconds)
        self.api = Api(TOKEN.encode(), self.objects, self.executions)
        self.logs = self.api.logs
        parser = make_parser()
        self.factory = HttpServerFactory(self.api, self.reactor, parser=parser)

    def connect(self) -> Connection:
        return Connection(self)

    def ask(self, method: str, path: str, body: Any = b"", **headers: str) -> Answer:
        """One request on a connection of its own."""
        connection = self.connect()
        connection.send(method, path, body, **headers)
        return connection.answer()


class Connection:
    """One connection to the sandbox."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.wire = Wire(memory.factory.buildProtocol(None))

    def send(self, method: str, path: str, body: Any = b"", **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"Host": "sandbox", "Authorization": f"Bearer {TOKEN}"}
        if data:
            fields["Content-Type"] = "application/json"
            fields["Content-Length"] = str(len(data))
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
    """A client of ``exec``."""

    def __init__(
        self,
        memory: Memory,
        command: Sequence[str],
        flags: Mapping[str, str] | None = None,
    ) -> None:
        self.memory = memory
        self.connection = memory.connect()
        self._messages: list[bytes] = []
        self._closed = False
        self._core = WebSocketCore(Side.CLIENT, state=OPEN, max_size=None)
        self._seen = 0
        words = [("command", word) for word in command]
        query = urlencode([*words, *(flags or {}).items()])
        self.connection.send(
            "GET",
            f"{POD}/exec?{query}",
            Connection="Upgrade",
            Upgrade="websocket",
            Sec_WebSocket_Key=base64.b64encode(bytes(16)).decode(),
            Sec_WebSocket_Version="13",
            Sec_WebSocket_Protocol="v5.channel.k8s.io",
        )

    def _read(self) -> None:
        self.connection.flush()
        head, end, data = self.connection.wire.value().partition(b"\r\n\r\n")
        if end and head.startswith(b"HTTP/1.1 101"):
            new, self._seen = data[self._seen :], len(data)
            self._core.receive_data(new)
        for event in self._core.events_received():
            assert isinstance(event, Frame)
            if event.opcode == 8:
                self._closed = True
            else:
                self._messages.append(bytes(event.data))

    @property
    def messages(self) -> list[bytes]:
        """What came so far."""
        self._read()
        return self._messages

    @property
    def closed(self) -> bool:
        self._read()
        return self._closed

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
