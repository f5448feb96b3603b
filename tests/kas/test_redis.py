"""One connection to Redis, without sockets; tests/integration has the rest."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import (
    EventLoggingObserver,
    MemoryReactorClock,
    StringTransport,
)
from twisted.logger import formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from kas.config.redis import Redis
from kas.redis import Command, RedisClient, RedisRefused, RedisUnavailable
from kas.redis.client import (
    EVENT_ATTEMPTS,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MAX_REASONS,
    PING_INTERVAL,
    STEADY,
)
from kas.redis.connection import (
    MAX_REPLY,
    MAX_WAITING,
    Connection,
    RedisTooLarge,
    ask,
)
from kas.redis.dialling import Dialler
from tunnel.config import RedisSentinel, RedisServer

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
        self.assertIn("did not respond within 3 s", self.failed(second))
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
        self.assertIn("does not use Redis' protocol", self.failed(waiting))

    def too_large(
        self, waiting: Deferred[Any], begin: bytes, piece: bytes = b"x" * 65536
    ) -> RedisTooLarge:
        """Deliver a response until kas has had enough of it."""
        self.connection.dataReceived(begin)
        for _ in range(MAX_REPLY // len(piece) + 1):
            self.assertEqual(self.connection.failed, "")
            self.connection.dataReceived(piece)
            if self.connection.failed:
                break
        # The rest is dropped.
        self.connection.dataReceived(piece)
        self.assertTrue(self.transport.disconnected)
        error = self.failureResultOf(waiting, RedisTooLarge).value
        assert isinstance(error, RedisTooLarge)
        return error

    def test_a_value_that_is_too_large(self) -> None:
        first = self.connection.send([("PING",)])
        waiting = self.connection.send([("GET", b"agent:\xff1")])
        later = self.connection.send([("PING",)])
        error = self.too_large(waiting, b"+PONG\r\n$400000000\r\n")
        self.assertEqual(self.successResultOf(first), [b"PONG"])
        self.assertEqual(error.keys, (b"agent:\xff1",))
        text = "redis:6379 sent more than 8 MiB at once, for agent:\\xff1: check"
        self.assertIn(text, str(error))
        self.assertIn(text, self.failed(later))

    def test_many_values_that_are_too_many(self) -> None:
        waiting = self.connection.send([("HKEYS", b"held"), ("GET", b"k")])
        piece = b"$1\r\nx\r\n" * 9000
        error = self.too_large(waiting, b"*100000000\r\n", piece)
        self.assertEqual(error.keys, (b"held",))

    def test_a_transaction_that_returns_too_much(self) -> None:
        commands: list[Command] = [
            ("MULTI",),
            ("SET", b"mine", b"x"),
            ("SMEMBERS", b"everyone"),
            ("MGET", b"a", b"b"),
            ("EVAL", "text", 1, b"of a module"),
            ("EXEC",),
        ]
        waiting = self.connection.send(commands)
        error = self.too_large(
            waiting, b"+OK\r\n" + b"+QUEUED\r\n" * 4 + b"*4\r\n+OK\r\n$400000000\r\n"
        )
        self.assertEqual(error.keys, (b"everyone", b"a", b"b"))
        self.assertIn("for everyone and 2 more keys", str(error))

    def test_a_message_that_is_too_large(self) -> None:
        self.connection.dataReceived(
            b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$400000000\r\n"
        )
        for _ in range(MAX_REPLY // 65536 + 1):
            self.connection.dataReceived(b"x" * 65536)
        self.assertIn("sent more than 8 MiB at once", self.connection.failed)
        self.assertEqual(self.messages, [])

    def test_many_responses_are_not_one(self) -> None:
        for _ in range(MAX_REPLY // 65536 + 2):
            waiting = self.connection.send([("GET", b"k")])
            self.connection.dataReceived(b"$65536\r\n" + b"x" * 65536 + b"\r\n")
            self.successResultOf(waiting)
        self.assertEqual(self.connection.failed, "")

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
        self.assertEqual(said, "redis:6379 responded with ERR: it refuses AUTH")


_MESSAGE = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n"


class _Owner:
    def __init__(self) -> None:
        self.said: list[object] = []
        self.wrong: list[bytes] = []

    def redis_up(self) -> None:
        self.said.append("up")

    def redis_down(self) -> None:
        self.said.append("down")

    def redis_listening(self, on: bool) -> None:
        self.said.append(on)

    def redis_wrong_type(self, key: bytes) -> None:
        self.wrong.append(key)

    def redis_message(self, data: bytes) -> None:
        raise ZeroDivisionError


class ClientTests(SynchronousTestCase):
    """When it tries again, and what it says."""

    def setUp(self) -> None:
        self.reactor: Any = MemoryReactorClock()
        settings = Redis(server=RedisServer(address="127.0.0.1:6379"))
        self.client = RedisClient(settings, self.reactor, lambda: 1.0, "channel")
        self.owner = _Owner()
        self.events = EventLoggingObserver()
        globalLogPublisher.addObserver(self.events)
        self.addCleanup(globalLogPublisher.removeObserver, self.events)
        self.client.start(self.owner)
        self.addCleanup(self.client.stop)

    def logged(self, begin: str) -> list[str]:
        """Lines that begin so."""
        lines = [formatEvent(one) or "" for one in self.events]
        return [one for one in lines if one.startswith(begin)]

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

    def test_a_key_with_too_large_a_value(self) -> None:
        """The owner is told once commands can be sent again."""
        (commands, _), _ = self.connect()
        asked = self.client.call("GET", b"k")
        commands.dataReceived(b"$400000000\r\n")
        for _ in range(MAX_REPLY // 65536 + 1):
            commands.dataReceived(b"x" * 65536)
        self.failureResultOf(asked, RedisUnavailable)
        self.assertIn("for k: check which other", self.client.reason)
        self.assertEqual(self.owner.wrong, [])
        self.reactor.advance(FIRST_PAUSE)
        self.connect()
        self.assertEqual(self.owner.wrong, [b"k"])
        self.assertTrue(self.client.up)

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

    def test_a_transaction_that_is_not_done(self) -> None:
        """None of its commands was, so it fails as one command does."""
        (commands, _), _ = self.connect()
        done = self.client.transaction([("SET", "a", 1)])
        commands.dataReceived(b"+OK\r\n+QUEUED\r\n-ERR no\r\n")
        error = self.failureResultOf(done, RedisRefused).value
        self.assertEqual(str(error), "Redis responded with ERR to EXEC")
        done = self.client.transaction([("SET", "a")])
        commands.dataReceived(b"+OK\r\n-ERR wrong number\r\n-EXECABORT no\r\n")
        error = self.failureResultOf(done, RedisRefused).value
        self.assertEqual(str(error), "Redis responded with ERR to SET")
        self.assertTrue(self.client.up)

    def test_answers_of_a_transaction(self) -> None:
        """Those of its own commands, one that Redis did not like among them."""
        (commands, _), _ = self.connect()
        done = self.client.transaction([("HGET", b"a", "f"), ("GET", "b")])
        commands.dataReceived(b"+OK\r\n+QUEUED\r\n+QUEUED\r\n")
        commands.dataReceived(b"*2\r\n-WRONGTYPE Operation\r\n$1\r\nx\r\n")
        refused, value = self.successResultOf(done)
        self.assertEqual((refused.code, value), ("WRONGTYPE", b"x"))
        self.assertEqual(self.owner.wrong, [b"a"])

    def test_what_it_counts(self) -> None:
        """Commands, those that failed, those that were not sent, and messages."""
        counters = self.client.counters
        self.failureResultOf(self.client.call("PING"), RedisUnavailable)
        (commands, _), _ = self.connect()
        self.client.call("PING")
        commands.dataReceived(b"+PONG\r\n")
        refused = self.client.transaction([("GET", "k")])
        commands.dataReceived(b"+OK\r\n+QUEUED\r\n*1\r\n-ERR no\r\n")
        self.successResultOf(refused)
        waiting = self.client.call("PING")
        commands.connectionLost(Failure(ConnectionDone()))
        self.failureResultOf(waiting, RedisUnavailable)
        self.news().dataReceived(_MESSAGE)
        self.flushLoggedErrors(ZeroDivisionError)
        self.assertEqual(
            (counters.commands, counters.failures, counters.refused, counters.messages),
            (5, 2, 1, 1),
        )
        self.reactor.advance(PING_INTERVAL)
        self.assertEqual((counters.commands, self.client.connections), (6, 2))

    def test_a_refusal_is_said_once(self) -> None:
        """And that Redis does the command again, too."""
        (commands, _), _ = self.connect()
        for _ in range(2):
            refused = self.client.call("HSCAN", b"k")
            commands.dataReceived(b"-NOPERM no\r\n")
            self.failureResultOf(refused, RedisRefused)
        said = (
            "Redis responds to HSCAN with NOPERM (its ACL forbids commands that kas "
            "needs);"
        )
        self.assertEqual(len(self.logged(said)), 1)
        for answer in (b"+OK\r\n+QUEUED\r\n*1\r\n-NOPERM no\r\n", b"+OK\r\n"):
            # That it may be called in a transaction does not say that it works.
            self.assertEqual(self.logged("Redis accepts HSCAN again"), [])
            if answer == b"+OK\r\n":
                self.client.call("HSCAN", b"k")
            else:
                self.client.transaction([("HSCAN", b"k")])
            commands.dataReceived(answer)
        self.assertEqual(len(self.logged("Redis accepts HSCAN again")), 1)
        self.assertEqual(len(self.logged(said)), 1)

    def test_a_connection_that_does_not_last(self) -> None:
        """The pauses go on growing until one has lived for a while."""
        pauses = []
        for _ in range(6):
            commands = self.connect()[0][0]
            self.assertTrue(self.client.up)
            self.reactor.advance(0.01)
            commands.connectionLost(Failure(ConnectionDone()))
            pause = 0.0
            while not self.reactor.tcpClients:
                self.reactor.advance(0.05)
                pause += 0.05
            pauses.append(pause)
        self.assertEqual(pauses, sorted(pauses))
        self.assertGreater(pauses[-1], 4 * pauses[0])

    def test_events_that_do_not_come(self) -> None:
        """Said once, after some attempts, while everything else works."""
        self.connect()
        self.news().fail("lost")
        for attempt in range(2, EVENT_ATTEMPTS + 3):
            self.assertFalse(self.client.listening)
            self.reactor.advance(LONGEST_PAUSE)
            self.assertEqual(len(self.reactor.tcpClients), 1)
            self.refuse()
            self.reactor.advance(HostnameEndpoint._DEFAULT_ATTEMPT_DELAY)
            said = self.logged("no events from Redis arrive")
            self.assertEqual(len(said), int(attempt >= EVENT_ATTEMPTS))
        self.reactor.advance(LONGEST_PAUSE)
        self.assertEqual(self.logged("events from Redis arrive again"), [])
        self.connect()
        self.assertEqual(len(self.logged("events from Redis arrive again")), 1)
        self.assertEqual(self.owner.said, ["up", True, False, True])

    def test_attempts_are_counted_anew(self) -> None:
        """After a connection for events that lasted."""
        self.connect()
        self.news().fail("lost")
        self.reactor.advance(LONGEST_PAUSE)
        self.connect()
        for _ in range(int(STEADY / PING_INTERVAL)):
            self.reactor.advance(PING_INTERVAL)
            self.news().dataReceived(b"+PONG\r\n")
        self.news().fail("lost")
        for _ in range(EVENT_ATTEMPTS - 1):
            self.assertEqual(self.logged("no events from Redis arrive"), [])
            self.reactor.advance(LONGEST_PAUSE)
            self.refuse()
            self.reactor.advance(HostnameEndpoint._DEFAULT_ATTEMPT_DELAY)
        self.assertEqual(len(self.logged("no events from Redis arrive")), 1)

    def test_events_that_do_not_come_while_it_is_down(self) -> None:
        """That it is down was said, and says it all."""
        for _ in range(EVENT_ATTEMPTS + 1):
            self.refuse()
            self.reactor.advance(LONGEST_PAUSE + 1)
        self.assertEqual(self.logged("no events from Redis arrive"), [])
        self.assertEqual(self.owner.said, [])

    def test_a_silent_subscription_is_asked(self) -> None:
        _, (_, transport) = self.connect()
        news = self.news()
        transport.clear()
        self.reactor.advance(PING_INTERVAL)
        self.assertIn(b"PING", transport.value())
        self.assertTrue(self.client.listening)
        self.reactor.advance(3)
        self.assertIn("did not respond", news.failed)
        self.assertFalse(self.client.listening)

    def test_an_owner_that_fails_does_not_end_the_connection(self) -> None:
        self.connect()
        news = self.news()
        news.dataReceived(_MESSAGE)
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


class ProbeTests(SynchronousTestCase):
    """Commands without which Redis is no use are tried on each connection."""

    def test_a_right_that_is_taken_away(self) -> None:
        """Of one of these it is the end of the connection, of another it is not."""
        reactor: Any = MemoryReactorClock()
        settings = Redis(server=RedisServer(address="127.0.0.1:6379"))
        probe: list[Command] = [("SET", "probe", "1")]
        client = RedisClient(settings, reactor, lambda: 1.0, "channel", probe)
        owner = _Owner()
        client.start(owner)
        self.addCleanup(client.stop)
        _, _, factory, _, _ = reactor.tcpClients[0]
        connection, transport = factory.buildProtocol(None), StringTransport()
        connection.makeConnection(transport)
        self.assertIn(b"$5\r\nMULTI\r\n", transport.value())
        self.assertEqual((owner.said, client.up), ([], False))
        connection.dataReceived(b"+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n")
        self.assertEqual((owner.said, client.up), (["up"], True))
        refused = client.call("HSCAN", "k")
        connection.dataReceived(b"-NOPERM no\r\n")
        self.failureResultOf(refused, RedisRefused)
        self.assertTrue(client.up)
        refused = client.call("SET", "k", "v")
        connection.dataReceived(b"-NOPERM no\r\n")
        self.failureResultOf(refused, RedisUnavailable)
        self.assertEqual((owner.said, client.up), (["up", "down"], False))


class DialTests(SynchronousTestCase):
    """How a connection comes about, as the server sees it."""

    def setUp(self) -> None:
        self.reactor: Any = MemoryReactorClock()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.password = Path(folder.name) / "password"
        self.password.touch(mode=0o600)
        self.password.write_text("secret\n")

    def dial(
        self, commands: Sequence[Command] = (), **settings: Any
    ) -> Deferred[Connection]:
        settings.setdefault("server", RedisServer(address="127.0.0.1:6379"))
        self.dialler = Dialler(Redis(**settings), self.reactor, lambda data: None)
        return self.again(commands)

    def again(self, commands: Sequence[Command] = ()) -> Deferred[Connection]:
        return Deferred.fromCoroutine(self.dialler.open(commands))

    def accept(self) -> tuple[Connection, StringTransport]:
        """Let the attempt succeed that runs."""
        _, self.port, factory, _, _ = self.reactor.tcpClients.pop()
        protocol = factory.buildProtocol(None)
        transport = StringTransport()
        protocol.makeConnection(transport)
        return protocol._wrappedProtocol, transport

    def refuse(self) -> None:
        _, self.port, factory, _, _ = self.reactor.tcpClients.pop()
        factory.clientConnectionFailed(None, Failure(ConnectionRefusedError("no")))
        self.reactor.advance(HostnameEndpoint._DEFAULT_ATTEMPT_DELAY)

    def said(self, dialling: Deferred[Connection]) -> str:
        return str(self.failureResultOf(dialling, RedisUnavailable).value)

    def exchange(
        self, where: tuple[Connection, StringTransport], question: str, answer: bytes
    ) -> None:
        """What is asked next, and nothing else, and the answer."""
        connection, transport = where
        words = [one.decode() for one in transport.value().split()]
        asked = [one for one in words if one[0] not in "*$"]
        self.assertEqual(" ".join(asked), question)
        transport.clear()
        connection.dataReceived(answer)

    def test_nothing_to_say(self) -> None:
        """Without a password and a number of a database nothing is sent."""
        dialling = self.dial()
        connection, transport = self.accept()
        self.assertIs(self.successResultOf(dialling), connection)
        self.assertEqual((transport.value(), self.dialler.made), (b"", 1))
        self.assertEqual((connection.address, self.port), ("127.0.0.1:6379", 6379))

    def test_logs_in(self) -> None:
        """With name and password, into its database, and then it is asked."""
        dialling = self.dial(
            [("PING",)],
            username="kas",
            password_file=self.password,
            database_index=2,
        )
        there = self.accept()
        self.exchange(there, "AUTH kas secret", b"+OK\r\n")
        self.exchange(there, "SELECT 2", b"+OK\r\n")
        self.assertNoResult(dialling)
        self.exchange(there, "PING", b"+PONG\r\n")
        self.assertIs(self.successResultOf(dialling), there[0])
        self.assertEqual(there[0].failed, "")

    def test_a_password_alone(self) -> None:
        """It is read anew for each connection: passwords change."""
        for password in ("secret", "another"):
            self.password.write_text(password)
            dialling = self.dial(password_file=self.password)
            self.exchange(self.accept(), f"AUTH {password}", b"+OK\r\n")
            self.successResultOf(dialling)

    def test_a_password_that_is_gone(self) -> None:
        """Nothing is sent, and the file is named."""
        dialling = self.dial(password_file=self.password)
        self.password.unlink()
        connection, transport = self.accept()
        self.assertIn(str(self.password), self.said(dialling))
        self.assertEqual(transport.value(), b"")
        self.assertTrue(transport.disconnected)
        self.assertEqual(connection.failed, "not used")

    def test_what_it_is_asked_is_refused(self) -> None:
        """No connection is left behind."""
        for answer, text in (
            (b"-READONLY no\r\n", "responded with READONLY: it is a replica"),
            (b"-WRONGTYPE no\r\n", "responded with WRONGTYPE: it refuses SET"),
        ):
            dialling = self.dial([("SET", "k")])
            there = self.accept()
            self.exchange(there, "SET k", answer)
            self.assertEqual(self.said(dialling), f"127.0.0.1:6379 {text}")
            self.assertTrue(there[1].disconnected)

    def test_what_a_transaction_is_refused(self) -> None:
        """The command is named that was not liked, first or within."""
        probe: list[Command] = [("MULTI",), ("GET", "k"), ("SADD", "k"), ("EXEC",)]
        for answers, name in (
            (b"+OK\r\n+QUEUED\r\n-ERR no\r\n-EXECABORT no\r\n", "SADD"),
            (b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n$-1\r\n-ERR no\r\n", "SADD"),
            (b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n-ERR no\r\n:1\r\n", "GET"),
        ):
            dialling = self.dial(probe)
            self.accept()[0].dataReceived(answers)
            self.assertIn(f"ERR: it refuses {name}", self.said(dialling))

    def test_nobody_there(self) -> None:
        dialling = self.dial()
        self.refuse()
        self.assertEqual(self.said(dialling), "127.0.0.1:6379: no")
        self.assertEqual(self.dialler.made, 0)

    def test_no_answer_to_the_dial(self) -> None:
        """The limit is said; what comes later is cut."""
        dialling = self.dial(dial_timeout=2.0)
        self.reactor.advance(1.9)
        self.assertNoResult(dialling)
        self.reactor.advance(0.1)
        said = "127.0.0.1:6379: no connection within 2 s"
        self.assertEqual(self.said(dialling), said)
        self.assertEqual(self.dialler.made, 0)

    def test_given_up(self) -> None:
        """Who does not want it any more leaves nothing, whatever it waits for."""
        dialling = self.dial([("PING",)])
        there = self.accept()
        dialling.cancel()
        self.failureResultOf(dialling)
        self.assertTrue(there[1].disconnected)
        dialling = self.dial()
        dialling.cancel()
        self.failureResultOf(dialling)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_socket_of_this_machine(self) -> None:
        self.dial(server=RedisServer(address="/run/redis.sock"), network="unix")
        ((path, factory, *_),) = self.reactor.unixClients
        connection = factory.buildProtocol(None)._wrappedProtocol
        self.assertEqual((path, connection.address), ("/run/redis.sock",) * 2)

    # Sentinels.

    _QUESTION = "SENTINEL GET-MASTER-ADDR-BY-NAME main"

    def sentinels(self, *ports: int, **settings: Any) -> Deferred[Connection]:
        sentinel = RedisSentinel(
            master_name="main",
            addresses=tuple(f"127.0.0.1:{port}" for port in ports),
            **settings,
        )
        return self.dial(server=None, sentinel=sentinel)

    def test_asks_a_sentinel(self) -> None:
        """Where the master is; its connection is over with the answer."""
        dialling = self.sentinels(1)
        there = self.accept()
        self.assertEqual(self.port, 1)
        self.exchange(there, self._QUESTION, b"*2\r\n$9\r\n127.0.0.2\r\n$4\r\n6380\r\n")
        self.assertTrue(there[1].disconnected)
        connection, _ = self.accept()
        self.assertIs(self.successResultOf(dialling), connection)
        self.assertEqual(connection.address, "127.0.0.2:6380")
        self.assertEqual(self.dialler.made, 2)

    def test_logs_in_at_a_sentinel(self) -> None:
        dialling = self.sentinels(1, sentinel_password_file=self.password)
        there = self.accept()
        self.exchange(there, "AUTH secret", b"+OK\r\n")
        self.exchange(there, self._QUESTION, b"*-1\r\n")
        self.said(dialling)

    def test_asks_the_next_sentinel(self) -> None:
        """From one that does not answer to one that does, which is asked first then."""
        dialling = self.sentinels(1, 2, 3)
        self.refuse()
        self.assertEqual(self.port, 1)
        answer = b"*2\r\n$9\r\n127.0.0.2\r\n$4\r\n6380\r\n"
        self.exchange(self.accept(), self._QUESTION, answer)
        self.assertEqual(self.port, 2)
        self.accept()
        self.successResultOf(dialling)
        dialling = self.again()
        for port in (2, 3, 1):
            self.refuse()
            self.assertEqual(self.port, port)
        said = "no sentinel responded; the last error: 127.0.0.1:1: no"
        self.assertEqual(self.said(dialling), said)
        self.assertEqual(self.reactor.tcpClients, [])

    def test_sentinels_without_a_master(self) -> None:
        """One that is not known, and names that none can have."""
        for answer, said in (
            (b"*-1\r\n", "does not know a master 'main'"),
            (b"$2\r\nab\r\n", "does not know a master 'main'"),
            (b"*1\r\n$1\r\na\r\n", "does not know a master 'main'"),
            (b"*2\r\n$1\r\n\xff\r\n$1\r\n1\r\n", "names an invalid master"),
            (b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", "names an invalid master"),
        ):
            dialling = self.sentinels(1)
            there = self.accept()
            self.exchange(there, self._QUESTION, answer)
            self.assertIn(f"the last error: 127.0.0.1:1 {said}", self.said(dialling))
            self.assertTrue(there[1].disconnected)
