"""Clients of an external API in memory: honest, and hostile."""

from __future__ import annotations

import base64
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamReset,
    TrailersReceived,
)
from hyperframe.frame import GoAwayFrame
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from kas.api.auth import Authenticator
from kas.api.front import Front
from kas.api.limits import DEFAULT_LIMITS, ExternalLimits
from kas.api.listener import ExternalFactory
from kas.api.services import ExternalServices
from kas.identity.jwt import Secrets
from kas.identity.sign_ins import SignIns
from tests.proto.echo_pb2 import DESCRIPTOR, Text
from tests.tunnel.rpc.echo import Echo
from tunnel.api import AuditEvent
from tunnel.grpc.memory import RequestMemory
from tunnel.grpc.messages import Envelopes, envelope
from tunnel.testing import Pipe
from tunnel.toolkit.failure_log import FailureLog

ECHO = DESCRIPTOR.services_by_name["Echo"]
SECRET = bytes(32)
ADDRESS = IPv4Address("TCP", "192.0.2.1", 1234)


def token(secret: bytes = SECRET) -> str:
    """A good one, unless it is signed with another secret."""
    claims = {"iss": "gitlab", "aud": "gitlab-kas", "exp": time.time() + 600}
    return jwt.encode(claims, secret)


class Service(Echo):
    """`Echo`, whose endless answers can be counted."""

    async def spell(self, request: Text, call: Any) -> AsyncIterator[Text]:
        while request.text == "endless":
            self.produced += 1
            yield Text(text="x" * 1000)
        if request.text == "pause":
            yield Text(text="a")
            await Deferred()
        async for letter in super().spell(request, call):
            yield letter

    async def join(self, requests: AsyncIterator[Text], call: Any) -> Text:
        async for request in requests:
            if request.text == "stop reading":
                waiting: Deferred[None] = Deferred()
                self.waiting.append(waiting)
                await waiting
        return Text(text="done")


class Http2Client(Protocol):
    """The h2 library as a client, which may be told to misbehave."""

    def __init__(self) -> None:
        self.h2 = H2Connection(
            H2Configuration(
                client_side=True,
                header_encoding="utf-8",
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        # h2 takes nothing more after a GOAWAY, and a client has to.
        self.h2._frame_dispatch_table[GoAwayFrame] = self._go_away
        self.events: list[Event] = []
        #: Give credit back for what arrives.
        self.reads = True
        self.lost = False
        self.received = 0

    def _go_away(self, frame: GoAwayFrame) -> tuple[list[Any], list[Event]]:
        event = ConnectionTerminated()
        event.error_code = ErrorCodes(frame.error_code)
        event.last_stream_id = frame.last_stream_id
        event.additional_data = frame.additional_data
        return [], [event]

    def connectionMade(self) -> None:
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        assert self.transport is not None
        self.transport.write(self.h2.data_to_send())

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        assert self.transport is not None
        self.transport.write(data)

    def dataReceived(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            self.events.append(event)
            if isinstance(event, DataReceived):
                self.received += len(event.data or b"")
                if self.reads and event.flow_controlled_length:
                    self.h2.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id or 0
                    )
        self.flush()

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.lost = True

    def headers(
        self,
        path: str,
        *more: tuple[str, str],
        content_type: str = "application/grpc",
    ) -> list[tuple[str, str]]:
        return [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "kas"),
            (":path", path),
            ("te", "trailers"),
            ("content-type", content_type),
            *more,
        ]

    def open(
        self, name: str, *more: tuple[str, str], with_token: str = "", **fields: str
    ) -> int:
        """Begin a call; the number of its stream."""
        stream: int = self.h2.get_next_available_stream_id()
        bearer = ("authorization", f"Bearer {with_token or token()}")
        path = name if name.startswith("/") else f"/tests.proto.Echo/{name}"
        self.h2.send_headers(stream, self.headers(path, bearer, *more, **fields))
        self.flush()
        return stream

    def send(self, stream: int, text: str, end: bool = False) -> None:
        """One request, which fits into the window."""
        self.send_bytes(stream, envelope(Text(text=text).SerializeToString()), end)

    def send_bytes(self, stream: int, data: bytes, end: bool = False) -> None:
        """Bytes as they are, in frames."""
        for start in range(0, len(data), 16384):
            self.h2.send_data(stream, data[start : start + 16384])
        if end:
            self.h2.end_stream(stream)
        self.flush()

    def of(self, kind: type[Event], stream: int | None = None) -> list[Any]:
        """What arrived of one kind, for one stream."""
        return [
            one
            for one in self.events
            if isinstance(one, kind)
            and (stream is None or getattr(one, "stream_id", None) == stream)
        ]

    def texts(self, stream: int) -> list[str]:
        """The responses of a call."""
        data = b"".join(one.data for one in self.of(DataReceived, stream))
        found = Envelopes().feed(data)
        return [Text.FromString(message).text for _, message in found]

    def status(self, stream: int) -> int | None:
        """How a call ended."""
        for one in self.of(TrailersReceived, stream) + self.of(
            ResponseReceived, stream
        ):
            fields = dict(one.headers)
            if "grpc-status" in fields:
                return int(fields["grpc-status"])
        return None

    @property
    def goodbyes(self) -> list[Any]:
        """GOAWAY frames."""
        return self.of(ConnectionTerminated)

    def resets(self, stream: int) -> list[Any]:
        """RST_STREAM frames."""
        return self.of(StreamReset, stream)


class ExternalCase(SynchronousTestCase):
    """An external API in memory."""

    limits: ExternalLimits = DEFAULT_LIMITS
    memory_limits: tuple[int, ...] = ()
    age = 7200.0

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / "secret"
        path.write_bytes(base64.b64encode(SECRET))
        self.clock = Clock()
        self.services = ExternalServices(self.clock)
        self.echo = Service()
        self.services.handle("tests", ECHO, self.echo)
        self.memory = RequestMemory(*self.memory_limits)
        self.signed: list[AuditEvent] = []
        secrets = Secrets(path, clock=self.clock)
        self.factory = ExternalFactory(
            Front(
                self.services,
                Authenticator(secrets, "gitlab", time.time),
                FailureLog(self.clock),
                self.memory,
                SignIns(self.signed.append, self.clock),
            ),
            self.clock,
            age=self.age,
            jitter=lambda: 0.5,
            limits=self.limits,
        )
        self.pipes: list[Pipe] = []
        self.addCleanup(self.close)

    def connect(self, client: Protocol, **more: Any) -> Pipe:
        """Join a client with the API."""
        server: Any = self.factory.buildProtocol(ADDRESS)
        pipe = Pipe(self.clock, client, server, **more)
        self.pipes.append(pipe)
        pipe.flush()
        return pipe

    def http2(self, **more: Any) -> tuple[Http2Client, Pipe]:
        """A client whose connection is up."""
        client = Http2Client()
        return client, self.connect(client, **more)

    def close(self) -> None:
        """Everything is let go of at the end, whatever went on."""
        for pipe in self.pipes:
            pipe.cut = False
            for transport in pipe.transports:
                transport.reading = True
                transport.abortConnection()
            pipe.flush()
        self.assertEqual(self.factory.open, set())
        self.assertEqual(self.factory.http2, set())
        self.assertEqual(self.factory.calls, 0)
        self.assertEqual(self.memory.bytes, 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class SilentClient(Protocol):
    """Says nothing, or something by and by."""

    def __init__(self) -> None:
        self.lost = False
        self.received = b""

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.lost = True
