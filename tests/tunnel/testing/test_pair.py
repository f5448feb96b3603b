"""Both halves of a module find in memory what the programs lend them."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from zope.interface import implementer
from zope.interface.verify import verifyObject

from tests.proto.echo_pb2 import DESCRIPTOR, Text
from tests.tunnel.producers import Producer
from tunnel.api import (
    Access,
    IAgentModule,
    IAgentModuleApi,
    IServerModule,
    IServerModuleApi,
    IStream,
)
from tunnel.config import Listen, field
from tunnel.errors import AgentUnavailable, CallError, Status, StreamReset
from tunnel.testing import ModulePair, RecordingReceiver

ECHO = DESCRIPTOR.services_by_name["Echo"]


@attrs.frozen(kw_only=True)
class Settings:
    word: str = field(default="hello", doc="a word")


@attrs.frozen
class FullMoon:
    """An event of these modules."""

    number: int


class _Half:
    name = "echo"
    configuration = Settings
    answers = True

    def __init__(self, api: Any) -> None:
        self.api = api
        self.life: list[str] = []
        self.heard: list[Any] = []
        api.events.subscribe(FullMoon, self.heard.append)
        if self.answers:
            api.calls.handle(ECHO, self)

    async def start(self) -> None:
        self.life.append("start")

    async def stop(self) -> None:
        self.life.append("stop")

    async def say(self, request: Text, call: Any) -> Text:
        return Text(text=f"{self.api.configuration.word} {request.text}")

    async def spell(self, request: Text, call: Any) -> None: ...
    async def join(self, requests: Any, call: Any) -> None: ...
    async def chat(self, requests: Any, call: Any) -> None: ...


@implementer(IServerModule)
class ServerHalf(_Half):
    """Asks agents; agents ask it."""


class Listener(ServerHalf):
    """Another module of kas."""

    name = "listener"
    answers = False


@implementer(IAgentModule)
class AgentHalf(_Half):
    """The other one."""


class ModulePairTests(SynchronousTestCase):
    """Both halves of a module, and the APIs that they get."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.pair = ModulePair(self.clock)
        self.agent = self.pair.agent_half(AgentHalf, word="from the agent:")
        self.server = self.pair.server_half(ServerHalf)
        self.pair.start()

    def test_interfaces(self) -> None:
        """The fakes have what the real ones have."""
        verifyObject(IServerModuleApi, self.server.api)
        verifyObject(IAgentModuleApi, self.agent.api)
        self.assertEqual((self.server.api.name, self.agent.api.name), ("echo", "echo"))

    def test_pages(self) -> None:
        """What a module serves is asked without a socket."""

        class Page(Resource):
            isLeaf = True

            def render(self, request: Any) -> bytes:
                request.setHeader(b"x-said", request.getHeader("x-told") or b"")
                text = b"%s %r %s" % (
                    request.method,
                    request.postpath,
                    request.content.read(),
                )
                return text

        page = Page()
        self.server.api.web.mount("/echo/it", page)
        answer = self.pair.visit("/echo/it/a?b", "POST", b"body", x_told="it")
        self.assertEqual((answer.status, answer.fields["x-said"]), (200, "it"))
        self.assertEqual(answer.body, b"POST [b'a'] body")
        told = {"X-Told": "it"}
        again = self.pair.visit("/echo/it/a?b", "POST", b"body", headers=told)
        self.assertEqual(again, answer)
        with self.assertRaises(TypeError):
            self.pair.visit("/echo/it/a?b", x_told={"X-Told": "it"})  # type: ignore[arg-type]
        self.assertEqual(self.pair.visit("/echo").status, 404)
        with self.assertRaisesRegex(ValueError, "module echo uses /echo/it"):
            self.pair.server_half(Listener).api.web.mount("/echo", page)
        self.pair.stop()
        self.assertEqual(self.pair.visit("/echo/it").status, 404)

    def test_store(self) -> None:
        """Each module has its own; the test has all of them in its hands."""
        other = self.pair.server_half(Listener)
        store = self.server.api.stores.open("things")
        self.pair.run(store.set("k", b"1", version=0))
        self.assertIsNone(self.pair.run(other.api.stores.open("things").get("k")))
        self.pair.store.down = True
        with self.assertRaises(CallError):
            self.pair.run(store.get("k"))
        self.pair.store.down = False
        self.assertEqual(self.pair.run(store.get("k")).value, b"1")

    def test_calls(self) -> None:
        """Both ways."""
        for agent in ("1", "agent-1"):
            client = self.server.api.calls.client(ECHO, agent)
            answer = self.pair.run(client.call("Say", Text(text="x")))
            self.assertEqual(answer.text, "from the agent: x")
        client = self.agent.api.calls.client(ECHO)
        self.assertEqual(
            self.pair.run(client.call("Say", Text(text="y"))).text, "hello y"
        )

    def test_raw_streams(self) -> None:
        """A stream that is no call."""
        receiver = RecordingReceiver()
        self.agent.api.calls.handle_stream("/raw", lambda stream, open_: receiver)
        stream = self.server.api.calls.open_stream("1", "/raw", RecordingReceiver())
        stream.write(b"bytes")
        stream.finish()
        self.pair.pipe.flush()
        self.assertEqual((bytes(receiver.data), receiver.finished), (b"bytes", True))

    def test_other_agents(self) -> None:
        """Only one is connected; of others the receiver is told, as in kas."""
        client = self.server.api.calls.client(ECHO, "2")
        error = self.assertRaises(
            CallError, self.pair.run, client.call("Say", Text(text="x"))
        )
        self.assertEqual(error.status, Status.UNAVAILABLE)
        self.assertEqual(
            [one.agent_name for one in self.server.api.agents.connected()], ["agent-1"]
        )

    def test_stream_to_another_agent(self) -> None:
        """It takes what is written, and ends in the next turn, once."""
        receiver, producer = RecordingReceiver(), Producer()
        stream = self.server.api.calls.open_stream("2", "/raw", receiver)
        verifyObject(IStream, stream)
        stream.registerProducer(producer, True)
        stream.send_headers(b"x")
        stream.write(b"x")
        stream.finish()
        stream.pauseProducing()
        stream.resumeProducing()
        self.assertEqual(receiver.closed, [])
        self.clock.advance(0)
        (reason,) = receiver.closed
        self.assertIsInstance(reason, AgentUnavailable)
        self.assertEqual(producer.told, ["stop"])
        late = Producer()
        stream.registerProducer(late, True)
        self.assertEqual(late.told, ["stop"])
        stream.reset()
        self.assertEqual(len(receiver.closed), 1)

    def test_leaving_another_agent(self) -> None:
        """Whoever does not wait for the end gets its own."""
        receiver, producer = RecordingReceiver(), Producer()
        stream: Any = self.server.api.calls.open_stream("2", "/raw", receiver)
        stream.registerProducer(producer, True)
        stream.unregisterProducer()
        stream.stopProducing()
        self.clock.advance(0)
        self.assertEqual([type(reason) for reason in receiver.closed], [StreamReset])
        self.assertEqual(producer.told, [])

    def test_authorize(self) -> None:
        """Tokens are what the test says; a refusal is raised, as in kas."""
        access = Access("user:alice", "1", "agent-1")
        self.server.api.users.tokens["good"] = access
        answer = self.server.api.users.authorize("user", "agent-1", "good")
        self.assertIs(answer, access)
        with self.assertRaises(CallError) as refused:
            self.server.api.users.authorize("user", "agent-1", "bad")
        self.assertEqual(refused.exception.status, Status.UNAUTHENTICATED)

    def test_listen(self) -> None:
        """Nothing is opened; the factory is found by its endpoint."""
        section = Listen(address="127.0.0.1:8160")
        for endpoint in (section, "tcp:8161"):
            port = self.successResultOf(
                self.server.api.network.listen(endpoint, endpoint)
            )
            verifyObject(IListeningPort, port)
            port.startListening()
            port.getHost()
            port.stopListening()
        self.assertEqual(
            self.server.api.network.listening,
            {section.endpoint_string(): section, "tcp:8161": "tcp:8161"},
        )

    def test_events(self) -> None:
        """Each side has its own, and several modules of one side share them."""
        other = self.pair.server_half(Listener)
        end = other.api.events.subscribe(FullMoon, other.heard.append)
        other.api.events.publish(FullMoon(1))
        end()
        end()
        other.api.events.publish(FullMoon(2))
        self.assertEqual(self.server.heard, [FullMoon(1), FullMoon(2)])
        self.assertEqual(other.heard, [FullMoon(1), FullMoon(1), FullMoon(2)])
        self.assertEqual(self.agent.heard, [])

    def test_failures(self) -> None:
        """`fail` is on record."""
        reason = ValueError("gone")
        self.server.api.fail(reason)
        self.assertEqual(self.pair.failures, [reason])

    def test_stop(self) -> None:
        """What the modules registered is taken back, the last one first."""
        self.assertEqual((self.agent.life, self.server.life), (["start"], ["start"]))
        self.pair.stop()
        self.assertEqual(self.server.life, ["start", "stop"])
        self.assertEqual(self.pair.server.dispatcher.services, [])
        self.server.api.events.publish(FullMoon(1))
        self.assertEqual(self.server.heard, [])

    def test_run(self) -> None:
        """Errors come out as they are, and endless waiting is one."""

        async def fail() -> None:
            raise ZeroDivisionError

        async def wait() -> None:
            await Deferred()

        self.assertRaises(ZeroDivisionError, self.pair.run, fail())
        self.assertRaises(AssertionError, self.pair.run, wait())
