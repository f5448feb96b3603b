"""A connection of a module to a Redis of another system."""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from kas.modules.redis_publisher import RedisPublisher
from tunnel.api import IRedisPublisher
from tunnel.config import RedisConnection, RedisServer
from tunnel.errors import CallError, Status

SETTINGS = RedisConnection(server=RedisServer(address="127.0.0.1:6379"))


class Stand:
    """A publisher whose connections the test makes."""

    def __init__(self) -> None:
        self.reactor: Any = MemoryReactorClock()
        self.calls = 0
        self.publisher = RedisPublisher(
            SETTINGS, self.reactor, lambda: 0.0, "a test", "nothing ends", self.note
        )

    def note(self) -> None:
        self.calls += 1
        raise RuntimeError("a fault of the module")

    def connect(self) -> tuple[Any, StringTransport]:
        """Let the next attempt succeed."""
        _, _, factory, _, _ = self.reactor.tcpClients.pop(0)
        protocol, transport = factory.buildProtocol(None), StringTransport()
        protocol.makeConnection(transport)
        return protocol, transport

    def fails(self) -> CallError:
        """Publish in vain."""
        failures: list[Failure] = []
        self.publisher.publish("c", b"m").addErrback(failures.append)
        (failure,) = failures
        assert isinstance(failure.value, CallError)
        return failure.value


def test_publish() -> None:
    """One connection, without subscriptions; errors are CallErrors, at once."""
    stand = Stand()
    publisher = stand.publisher
    assert verifyObject(IRedisPublisher, publisher)
    error = stand.fails()
    assert error.status is Status.UNAVAILABLE and "not connected yet" in error.message
    with capturedLogs() as logs:
        protocol, transport = stand.connect()
        assert (publisher.is_up, stand.calls) == (True, 1)
        assert not stand.reactor.tcpClients
        results: list[Any] = []
        publisher.publish("prefix:ü", b'{"a":1}').addBoth(results.append)
        assert transport.value() == (
            b"*3\r\n$7\r\nPUBLISH\r\n$9\r\nprefix:\xc3\xbc\r\n$7\r\n" + b'{"a":1}\r\n'
        )
        assert results == []
        protocol.dataReceived(b":0\r\n")
        assert results == [None]
        publisher.publish("c", b"m").addErrback(results.append)
        protocol.dataReceived(b"-NOPERM this user has no permissions\r\n")
        assert results[1].value.status is Status.UNAVAILABLE
        assert publisher.is_up
        publisher.publish("c", b"m").addErrback(results.append)
        protocol.connectionLost(Failure(ConnectionDone()))
        assert results[2].value.status is Status.UNAVAILABLE
        stand.fails()
    lines = [formatEvent(one) or "" for one in logs]
    assert [one for one in lines if " for a test" in one] == [
        "Redis at 127.0.0.1:6379 is available for a test",
        "Redis is unavailable for a test, nothing ends: 127.0.0.1:6379: "
        "Connection was closed cleanly.",
    ]
    stand.reactor.advance(1)
    stand.connect()
    assert (publisher.is_up, stand.calls) == (True, 2)
    publisher.stop()
    assert stand.reactor.getDelayedCalls() == []
    assert not publisher.is_up
