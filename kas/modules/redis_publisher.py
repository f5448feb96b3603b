"""
Connections of modules to a Redis of another system.

Importing this module installs a reactor, as importing `kas.redis` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from kas.redis import RedisClient, RedisRefused, RedisUnavailable
from tunnel.api import IRedisPublisher
from tunnel.config import RedisConnection
from tunnel.errors import CallError, Status
from tunnel.toolkit.for_each import for_each

__all__ = ["RedisPublisher"]


@implementer(IRedisPublisher)
class RedisPublisher:
    """
    Implementation of `IRedisPublisher`.

    :param random: returns a number between 0 and 1, for the jitter of pauses.
    :param purpose: see `INetwork.redis_publisher`, as for the other parameters.
    """

    def __init__(
        self,
        settings: RedisConnection,
        reactor: Any,
        random: Callable[[], float],
        purpose: str,
        while_down: str,
        available: Callable[[], object],
    ) -> None:
        self._available = available
        self._client = RedisClient(
            settings,
            reactor,
            random,
            purpose=f" for {purpose}",
            while_down=while_down,
        )
        self._client.start(self)

    @property
    def is_up(self) -> bool:
        """See `IRedisPublisher`."""
        return self._client.up

    def publish(self, channel: str, message: bytes) -> Deferred[None]:
        """See `IRedisPublisher`."""
        publishing = self._client.call("PUBLISH", channel, message)
        return publishing.addCallbacks(lambda _: None, _call_error)

    def stop(self) -> None:
        """Disconnect."""
        self._client.stop()

    # RedisListener

    def redis_up(self) -> None:
        """Notify the module."""
        for_each((self._available,), lambda call: call(), "a Redis became available")

    def redis_down(self) -> None:
        """Do nothing: the next message fails."""

    def redis_listening(self, on: bool) -> None:
        """Do nothing: nothing is subscribed."""

    def redis_wrong_type(self, key: bytes) -> None:
        """Do nothing: channels have no type."""

    def redis_message(self, data: bytes) -> None:
        """Do nothing: nothing is subscribed."""


def _call_error(failure: Failure) -> None:
    failure.trap(RedisRefused, RedisUnavailable)
    raise CallError(Status.UNAVAILABLE, str(failure.value))
