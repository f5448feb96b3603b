"""One connection to Redis, without sockets; tests/integration has the rest."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from kas.config.redis import Redis, RedisServer
from kas.redis import RedisClient, RedisRefused, RedisUnavailable
from kas.redis.client import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MAX_REASONS,
    PING_INTERVAL,
    STEADY,
)
from kas.redis.connection import MAX_WAITING, Connection, ask

_TIMEOUT = 3.0


class ConnectionTests(SynchronousTestCase):
    """Answers in order, a time limit for each, one end for all."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.messages: list[bytes] = []
        self.connection = Connection(self.clock, _TIMEOUT, self.messages.append)
        self.connection.address = "redis:6379"
        self.transport = StringTransport()
        self.connection.makeConnection(self.transport)

    def failed(self, waiting: Deferred[Any]) -> str:
        return str(self.failureResultOf(waiting, RedisUnavailable).value)

    def test_says_nothing_by_itself(self) -> None:
        self.assertEqual(self.transport.value(), b"")

    def test_one_write_and_answers_in_order(self) -> None:
        first = self.connection.send([("SET", b"k", 1), ("GET", "k")])
        second = self.connection.send([("PING",)])
        self.assertEqual(
            self.transport.value(),
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n1\r\n"
            b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n",
        )
        self.connection.dataReceived(b"+OK\r\n$2\r\n0")
        self.assertNoResult(first)
        self.connection.dataReceived(b"1\r\n+PONG\r\n")
        self.assertEqual(self.successResultOf(first), [b"OK", b"01"])
        self.assertEqual(self.successResultOf(second), [b"PONG"])

    def test_the_oldest_decides(self) -> None:
        first = self.connection.send([("PING",)])
        self.clock.advance(_TIMEOUT - 1)
        second = self.connection.send([("PING",)])
        self.connection.dataReceived(b"+PONG\r\n")
        self.successResultOf(first)
        self.clock.advance(_TIMEOUT - 1)
        self.assertNoResult(second)
        self.clock.advance(1)
        self.assertIn("did not answer within 3 s", self.failed(second))
        self.assertTrue(self.transport.disconnected)
        self.assertIn("within 3 s", self.failed(self.connection.send([("PING",)])))

    def test_no_timer_without_a_question(self) -> None:
        waiting = self.connection.send([("PING",)])
        self.connection.dataReceived(b"+PONG\r\n")
        self.successResultOf(waiting)
        self.clock.advance(_TIMEOUT)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.connection.failed, "")

    def test_who_waits_is_bounded(self) -> None:
        waiting = [self.connection.send([("PING",)]) for _ in range(MAX_WAITING)]
        self.assertIn("too many", self.failed(self.connection.send([("PING",)])))
        self.connection.dataReceived(b"+PONG\r\n")
        self.successResultOf(waiting[0])
        self.assertNoResult(self.connection.send([("PING",)]))

    def test_the_end_comes_before_the_errors(self) -> None:
        order: list[str] = []
        self.connection.ended.addCallback(lambda reason: order.append("ended"))
        self.connection.send([("PING",)]).addErrback(lambda _: order.append("error"))
        self.connection.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(order, ["ended", "error"])
        self.connection.fail("again")
        self.assertIn("redis:6379", self.connection.failed)

    def test_not_redis(self) -> None:
        waiting = self.connection.send([("PING",)])
        self.connection.dataReceived(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        self.assertIn("does not speak Redis' protocol", self.failed(waiting))

    def test_unasked_answers(self) -> None:
        self.connection.dataReceived(b"+OK\r\n")
        self.assertIn("without a command", self.connection.failed)

    def test_no_room_for_us(self) -> None:
        self.connection.dataReceived(b"-ERR max number of clients reached\r\n")
        self.assertIn("refuses the connection", self.connection.failed)

    def test_messages_are_no_answers(self) -> None:
        waiting = self.connection.send([("SUBSCRIBE", "c")])
        message = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$3\r\n\x00\xff1\r\n"
        self.connection.dataReceived(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n")
        self.connection.dataReceived(message)
        self.assertEqual(self.successResultOf(waiting), [[b"subscribe", b"c", 1]])
        self.assertEqual(self.messages, [b"\x00\xff1"])

    def test_what_a_server_repeats_is_not_passed_on(self) -> None:
        asking = Deferred.fromCoroutine(
            ask(self.connection, [("AUTH", "kas", "our-secret")])
        )
        self.connection.dataReceived(
            b"-ERR unknown command `AUTH`, with args: `kas`, `our-secret`\r\n"
        )
        said = self.failed(asking)
        self.assertEqual(said, "redis:6379 answered ERR: it refuses AUTH")


class _Owner:
    def __init__(self) -> None:
        self.said: list[object] = []

    def redis_up(self) -> None:
        self.said.append("up")

    def redis_down(self) -> None:
        self.said.append("down")

    def redis_listening(self, on: bool) -> None:
        self.said.append(on)

    def redis_wrong_type(self, key: bytes) -> None:
        pass

    def redis_message(self, data: bytes) -> None:
        raise ZeroDivisionError


class ClientTests(SynchronousTestCase):
    """When it tries again, and what it says."""

    def setUp(self) -> None:
        self.reactor: Any = MemoryReactorClock()
        settings = Redis(server=RedisServer(address="127.0.0.1:6379"))
        self.client = RedisClient(settings, self.reactor, lambda: 1.0, "channel")
        self.owner = _Owner()
        self.logged: list[str] = []
        self.client.start(self.owner)
        self.addCleanup(self.client.stop)

    def connect(self) -> list[Any]:
        """Let every attempt succeed; returns the connections."""
        made = []
        while self.reactor.tcpClients:
            _, _, factory, _, _ = self.reactor.tcpClients.pop(0)
            protocol = factory.buildProtocol(None)
            transport = StringTransport()
            protocol.makeConnection(transport)
            if b"SUBSCRIBE" in transport.value():
                protocol.dataReceived(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n")
            made.append((protocol, transport))
        return made

    def news(self) -> Connection:
        """The one that has subscribed."""
        connection = self.client._events.connection
        assert connection is not None
        return connection

    def refuse(self) -> None:
        """Let every attempt fail."""
        while self.reactor.tcpClients:
            _, _, factory, _, _ = self.reactor.tcpClients.pop(0)
            factory.clientConnectionFailed(None, Failure(ConnectionRefusedError()))

    def test_pauses_grow_to_a_limit_and_begin_small_again(self) -> None:
        pauses = []
        for _ in range(12):
            self.refuse()
            pause = 0.0
            while not self.reactor.tcpClients:
                self.reactor.advance(0.05)
                pause += 0.05
            # Twisted's endpoint waits a moment for addresses that there are not.
            pauses.append(round(pause - HostnameEndpoint._DEFAULT_ATTEMPT_DELAY, 2))
        self.assertApproximates(pauses[0], FIRST_PAUSE, 0.11)
        self.assertEqual(pauses, sorted(pauses))
        self.assertApproximates(pauses[-1], LONGEST_PAUSE, 0.11)
        (commands, _), _ = self.connect()
        self.assertTrue(self.client.up)
        self.reactor.advance(STEADY)
        commands.connectionLost(Failure(ConnectionDone()))
        self.assertFalse(self.client.up)
        self.reactor.advance(FIRST_PAUSE)
        self.assertEqual(len(self.reactor.tcpClients), 1)

    def test_calls_fail_at_once_while_it_is_down(self) -> None:
        self.failureResultOf(self.client.call("PING"), RedisUnavailable)
        self.refuse()
        self.failureResultOf(self.client.transaction([("PING",)]), RedisUnavailable)
        self.assertEqual(self.client.counters.refused, 2)

    def test_an_answer_that_opens_the_breaker(self) -> None:
        (commands, transport), _ = self.connect()
        first, second = self.client.call("SET", "k", "v"), self.client.call("PING")
        commands.dataReceived(b"-READONLY You can't write against a replica.\r\n")
        error = self.failureResultOf(first, RedisUnavailable)
        self.assertIn("READONLY: it is a replica", str(error.value))
        self.failureResultOf(second, RedisUnavailable)
        self.assertTrue(transport.disconnected)
        self.assertEqual(self.owner.said, ["up", True, "down"])

    def test_an_answer_that_does_not(self) -> None:
        (commands, _), _ = self.connect()
        first = self.client.call("HGETALL", "k")
        commands.dataReceived(b"-WRONGTYPE Operation against a key\r\n")
        self.failureResultOf(first, RedisRefused)
        self.assertTrue(self.client.up)

    def test_an_error_within_a_transaction(self) -> None:
        (commands, _), _ = self.connect()
        done = self.client.transaction([("SET", "a", 1), ("SET", "b", 1)])
        commands.dataReceived(b"+OK\r\n+QUEUED\r\n+QUEUED\r\n")
        commands.dataReceived(b"*2\r\n+OK\r\n-OOM command not allowed\r\n")
        self.failureResultOf(done, RedisUnavailable)
        self.assertFalse(self.client.up)

    def test_a_silent_subscription_is_asked(self) -> None:
        _, (_, transport) = self.connect()
        news = self.news()
        transport.clear()
        self.reactor.advance(PING_INTERVAL)
        self.assertIn(b"PING", transport.value())
        self.assertTrue(self.client.listening)
        self.reactor.advance(3)
        self.assertIn("did not answer", news.failed)
        self.assertFalse(self.client.listening)

    def test_an_owner_that_fails_does_not_end_the_connection(self) -> None:
        self.connect()
        news = self.news()
        news.dataReceived(b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(news.failed, "")

    def test_stopping_leaves_nothing(self) -> None:
        made = self.connect()
        self.client.stop()
        self.assertTrue(all(transport.disconnected for _, transport in made))
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_stopping_while_it_connects(self) -> None:
        self.client.stop()
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.reactor.advance(60)
        self.assertEqual(len(self.reactor.tcpClients), 2)

    def test_reasons_are_logged_once_each_and_bounded(self) -> None:
        for number in range(MAX_REASONS + 3):
            self.client._down(f"reason {number}")
            self.client._down(f"reason {number}")
        self.assertEqual(len(self.client._said), MAX_REASONS)
