"""What the store in Redis tells its directory; tests/integration has the rest."""

from __future__ import annotations

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from kas.config.redis import Redis, RedisServer
from kas.directory.redis_store import RedisStore
from tests.kas.directory.memory import kas


class Listener:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[bool] = []

    def listening(self, on: bool) -> None:
        self.told.append(on)


class ListeningTests(SynchronousTestCase):
    """Silence means something only while everybody can speak."""

    def setUp(self) -> None:
        settings = Redis(server=RedisServer(address="127.0.0.1:1"))
        reactor = MemoryReactorClock()
        self.store = RedisStore(kas(1), settings, reactor, lambda: 0.5)
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
        self.news(False)
        self.news(True)
        self.assertEqual(self.listener.told, [True, False])
        self.commands(True)
        self.assertEqual(self.listener.told, [True, False, True])
