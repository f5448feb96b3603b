"""What the store in Redis tells its directory; tests/integration has the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.testing import EventLoggingObserver, MemoryReactorClock
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from kas.config.redis import Redis
from kas.directory.records import AgentRecord
from kas.directory.redis_layout import Layout
from kas.directory.redis_store import RedisStore
from tests.kas.directory.memory import kas, record
from tunnel.config import RedisServer
from tunnel.program.runtime import Runtime


class Listener:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def listening(self, on: bool) -> None:
        self.told.append(on)

    def events(
        self, connected: Sequence[AgentRecord], disconnected: Sequence[AgentRecord]
    ) -> None:
        self.told.append((list(connected), list(disconnected)))

    def left(self, kas_id: bytes) -> None:
        self.told.append(("left", kas_id))

    def rewrote(self, kas_id: bytes) -> None:
        self.told.append(("rewrote", kas_id))


class ListeningTests(SynchronousTestCase):
    """Silence means something only while everybody can speak."""

    def setUp(self) -> None:
        settings = Redis(server=RedisServer(address="127.0.0.1:1"))
        reactor = MemoryReactorClock()
        self.store = RedisStore(
            kas(1), settings, Runtime(reactor=reactor, random=lambda: 0.5)
        )
        self.listener = Listener()
        self.store._listener = self.listener  # type: ignore[assignment]
        self.addCleanup(self.store.client.stop)

    def news(self, on: bool) -> None:
        self.store.client.listening = on
        self.store.redis_listening(on)

    def commands(self, on: bool) -> None:
        self.store.client.reason = "" if on else "its memory is full"
        if on:
            self.store.redis_up()
        else:
            self.store.redis_down()

    def test_needs_both_connections(self) -> None:
        self.news(True)
        self.assertEqual(self.listener.told, [])
        self.commands(True)
        self.assertEqual(self.listener.told, [True])
        self.news(False)
        self.news(True)
        self.assertEqual(self.listener.told, [True, False, True])

    def test_a_redis_that_takes_no_writes(self) -> None:
        """Its news come in, but nobody has any: they could be waited for in vain."""
        self.commands(True)
        self.news(True)
        self.commands(False)
        self.assertEqual(self.listener.told, [True, False])
        self.news(False)
        self.news(True)
        self.assertEqual(self.listener.told, [True, False])
        self.commands(True)
        self.assertEqual(self.listener.told, [True, False, True])


class MessageTests(SynchronousTestCase):
    """What comes in on the channel, of which a part is this kas' own."""

    def setUp(self) -> None:
        settings = Redis(server=RedisServer(address="127.0.0.1:1"))
        reactor = MemoryReactorClock()
        self.store = RedisStore(
            kas(1), settings, Runtime(reactor=reactor, random=lambda: 0.5)
        )
        self.listener = Listener()
        self.store.start(self.listener)  # type: ignore[arg-type]
        self.addCleanup(self.store.client.stop)

    def publish(self, **what: Any) -> None:
        """As a kas does, to all."""
        for _, _, data in Layout("p").publish(**what):
            assert isinstance(data, bytes)
            self.store.redis_message(data)

    def test_what_others_have(self) -> None:
        """All that a message says of others at once, and nothing of our own."""
        came, went = record("a", at=2), record("b", at=3)
        self.publish(here=[record("c", at=1), came], ended=[went, record("d", at=1)])
        ((connected, disconnected),) = self.listener.told
        self.assertEqual(connected, [came])
        self.assertEqual([one.agent.agent_id for one in disconnected], ["b"])
        self.publish(ended=[went])
        self.publish(here=[came])
        self.assertEqual(len(self.listener.told), 3)
        self.publish(here=[record("c", at=1)], ended=[record("d", at=1)])
        self.publish(here=[record("", at=2)])
        self.assertEqual(len(self.listener.told), 3)

    def test_what_others_do(self) -> None:
        """That they stop, or wrote everything again; it is no news of ourselves."""
        for number in (1, 2):
            self.publish(left=kas(number).kas_id)
            self.publish(rewrote=kas(number).kas_id)
        two = kas(2).kas_id
        self.assertEqual(self.listener.told, [("left", two), ("rewrote", two)])

    def test_other_programs(self) -> None:
        """What is no message of ours is counted, and said once; a probe is empty."""
        logged = EventLoggingObserver()
        globalLogPublisher.addObserver(logged)
        self.addCleanup(globalLogPublisher.removeObserver, logged)
        self.store.redis_message(b"")
        self.assertEqual(self.store.malformed, 0)
        for _ in range(3):
            self.store.redis_message(b"\xff\xff")
        self.assertEqual(self.store.malformed, 3)
        said = [formatEvent(one) or "" for one in logged]
        said = [one for one in said if "another program publishes" in one]
        self.assertEqual((len(said), self.listener.told), (1, []))

    def test_stopped(self) -> None:
        """Nothing is told any more, whatever is still on its way."""
        stopping = Deferred.fromCoroutine(self.store.stop())
        self.successResultOf(stopping)
        self.publish(here=[record("a", at=2)], left=kas(2).kas_id)
        self.store.redis_message(b"\xff\xff")
        self.store.redis_listening(True)
        self.assertEqual((self.listener.told, self.store.malformed), ([], 0))
