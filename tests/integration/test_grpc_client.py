"""`GrpcChannel` and a real server: grpcio."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.endpoints import TCP4ClientEndpoint, UNIXClientEndpoint
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import deferLater

from tests.integration.processes import Process
from tests.integration.redisserver import until
from tests.proto.echo_pb2 import DESCRIPTOR, Text
from tests.tunnel.transport import certificates
from tools.ports import free_port
from tunnel.details import readable
from tunnel.errors import CallError, Status
from tunnel.grpc.client import ChannelLimits, GrpcChannel
from tunnel.rpc.client import ServiceClient
from tunnel.transport.tls import client_context
from tunnel.transport.tlsio import TLSClientEndpoint

_reactor: Any = reactor
ECHO = DESCRIPTOR.services_by_name["Echo"]

#: Those of a test do not have the time of the others.
QUICK = ChannelLimits(backoff_first=0.05, backoff_most=0.1)

#: Where a server dies.  One that lives takes so many pings for a flood.
ALERT = attrs.evolve(
    QUICK, http2=attrs.evolve(QUICK.http2, ping_after=0.3, ping_timeout=5.0)
)


class Server:
    """grpcio in a process of its own."""

    def __init__(self, folder: Path, address: str, *more: str) -> None:
        command = (sys.executable, "-m", "tests.integration.grpc_server")
        self.process = Process(
            "grpcio", [*command, address, *more], folder / "grpcio.log"
        )
        found = self.process.wait_for(r"listening on port (\d+)")
        self.port = int(found[1])


class Calls:
    """A channel to a server, and what tests do with it."""

    def __init__(
        self, endpoint: IStreamClientEndpoint, limits: ChannelLimits | None = None
    ) -> None:
        self.channel = GrpcChannel(
            endpoint, _reactor, authority="localhost", limits=limits
        )
        self.echo: ServiceClient = self.channel.client(ECHO)

    async def say(self, text: str, **more: Any) -> str:
        more = {"timeout": 20, **more}
        return str((await self.echo.call("Say", Text(text=text), **more)).text)

    async def fails(self, text: str, **more: Any) -> CallError:
        with pytest.raises(CallError) as caught:
            await self.say(text, **more)
        return caught.value

    def begin(self, text: str) -> Deferred[Any]:
        return Deferred.fromCoroutine(self.say(text))


@contextmanager
def serving(folder: Path, address: str, *more: str) -> Iterator[Server]:
    server = Server(folder, address, *more)
    try:
        yield server
    finally:
        server.process.kill()


def tcp(server: Server) -> IStreamClientEndpoint:
    endpoint: IStreamClientEndpoint = TCP4ClientEndpoint(
        _reactor, "127.0.0.1", server.port
    )
    return endpoint


@contextmanager
def reached(kind: str, folder: Path) -> Iterator[IStreamClientEndpoint]:
    """A server, and how to connect to it."""
    if kind == "unix":
        with serving(folder, f"unix:{folder}/grpc.sock"):
            yield UNIXClientEndpoint(_reactor, f"{folder}/grpc.sock")
    elif kind == "tls":
        ca = certificates.authority().write(folder)
        files = certificates.server_identity().write(folder, "server")
        with serving(folder, "127.0.0.1:0", "100", *files) as server:
            yield TLSClientEndpoint(
                tcp(server),
                lambda: client_context(ca_file=ca, alpn=("h2",)),
                "localhost",
                _reactor,
            )
    else:
        with serving(folder, "127.0.0.1:0") as server:
            yield tcp(server)


@pytest.mark.parametrize("kind", ["tcp", "unix", "tls"])
@pytest_twisted.ensureDeferred
async def test_calls(kind: str, tmp_path: Path) -> None:
    """All four kinds of calls, errors with details, metadata, and limits."""
    with reached(kind, tmp_path) as endpoint:
        calls = Calls(endpoint)
        assert await calls.say("hello") == "HELLO"
        stream = calls.echo.stream("Spell", Text(text="3 2"), timeout=60)
        assert [one.text async for one in stream] == ["xx"] * 3
        joining = calls.echo.open("Join", timeout=60)
        for _ in range(160):
            await joining.send(Text(text="x" * 65536))
        joining.finish()
        assert (await joining.response()).text == str(160 * 65536)
        chat = calls.echo.open("Chat", timeout=60)
        for word in ("one", "two", "bye"):
            await chat.send(Text(text=word))
            assert (await anext(chat)).text == word.upper()
        assert [one async for one in chat] == []

        refused = await calls.fails("refuse")
        assert refused.status is Status.PERMISSION_DENIED
        assert "not you: ünïcode" in str(refused)
        assert (await calls.fails("crash")).status is Status.UNKNOWN
        explained = await calls.fails("explain")
        found: Any = readable(explained.details[0])
        assert (explained.status, found["reason"]) == (
            Status.FAILED_PRECONDITION,
            "WHY",
        )
        asked = calls.echo.open("Say", metadata={"from": "here"}, timeout=60)
        await asked.send(Text(text="metadata"))
        asked.finish()
        await asked.response()
        assert asked.metadata["note"] == "here"
        assert asked.trailers == {"after": "2"}

        late = await calls.fails("wait", timeout=0.3)
        assert late.status is Status.DEADLINE_EXCEEDED
        while await calls.say("waiting") != "0":
            pass
        waiting = calls.begin("wait")
        waiting.addErrback(lambda _: None)
        while await calls.say("waiting") != "1":
            pass
        waiting.cancel()
        while await calls.say("waiting") != "0":
            pass
        await calls.channel.close()


@pytest_twisted.ensureDeferred
async def test_large_stream(tmp_path: Path) -> None:
    """A server waits for a reader that pauses, and others do not."""
    with reached("tcp", tmp_path) as endpoint:
        calls = Calls(endpoint)
        stream = calls.echo.stream("Spell", Text(text="20000 1000"), timeout=60)
        received = len((await anext(stream)).text)
        produced = ""
        while produced != (now := await calls.say("produced")):
            produced = now
        # The windows, the messages that wait for their reader, and grpcio's buffers.
        assert int(produced) < 2000
        async for one in stream:
            received += len(one.text)
        assert received == 20_000_000
        await calls.channel.close()


@pytest_twisted.ensureDeferred
async def test_many_calls(tmp_path: Path) -> None:
    """A thousand calls at once to a server that takes five at once."""
    with serving(tmp_path, "127.0.0.1:0", "5") as server:
        calls = Calls(tcp(server))
        found = await gatherResults([calls.begin(f"n{i}") for i in range(1000)])
        assert found == [f"N{i}" for i in range(1000)]
        await calls.channel.close()


@pytest_twisted.ensureDeferred
async def test_server_stops_and_comes_back(tmp_path: Path) -> None:
    """What runs is finished behind a GOAWAY; the next server is found by itself."""
    # What the system gave may be a client's as soon as it is free.
    address = f"127.0.0.1:{free_port()}"
    with serving(tmp_path, address) as server:
        calls = Calls(tcp(server), QUICK)
        slow = calls.begin("slow")
        assert await calls.say("a") == "A"
        server.process.child.send_signal(signal.SIGTERM)
        assert await slow == "SLOW"
        server.process.ended()
    assert (await calls.fails("a")).status is Status.UNAVAILABLE
    with serving(tmp_path, address):
        answer = ""
        while not answer:
            try:
                answer = await calls.say("a")
            except CallError as error:
                assert error.status is Status.UNAVAILABLE
                await deferLater(_reactor, 0.02, lambda: None)
        await calls.channel.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest_twisted.ensureDeferred
async def test_server_dies(how: signal.Signals, tmp_path: Path) -> None:
    """Killed or frozen: calls end, and say so."""
    with serving(tmp_path, "127.0.0.1:0") as server:
        calls = Calls(tcp(server), ALERT)
        assert await calls.say("a") == "A"
        ended: list[CallError] = []

        async def wait() -> None:
            ended.append(await calls.fails("wait"))

        waiting = Deferred.fromCoroutine(wait())
        assert await calls.say("a") == "A"
        server.process.child.send_signal(how)
        await until(lambda: bool(ended), "the end of the call")
        await waiting
        assert ended[0].status is Status.UNAVAILABLE
        await calls.channel.close()


@pytest_twisted.ensureDeferred
async def test_without_http2(tmp_path: Path) -> None:
    """A server whose certificate is good for another protocol only."""
    ca = certificates.authority().write(tmp_path)
    files = certificates.server_identity().write(tmp_path, "server")
    with serving(tmp_path, "127.0.0.1:0", "100", *files) as server:
        endpoint = TLSClientEndpoint(
            tcp(server),
            lambda: client_context(ca_file=ca, alpn=("http/1.1",)),
            "localhost",
            _reactor,
        )
        calls = Calls(endpoint)
        assert (await calls.fails("a")).status is Status.UNAVAILABLE
        await calls.channel.close()
