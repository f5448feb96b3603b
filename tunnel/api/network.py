"""Listeners of a module, and its requests to other servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from zope.interface import Attribute, Interface

from tunnel.config import Listen, RedisConnection

if TYPE_CHECKING:
    # agentk serves no pages, and need not import twisted.web.
    from twisted.web.iweb import IAgent

__all__ = ["IListeners", "INetwork", "IRedisPublisher"]


class IRedisPublisher(Interface):
    """A connection to a Redis, for messages to the subscribers of its channels."""

    is_up: bool = Attribute("whether messages are sent, instead of failing at once")

    def publish(channel: str, message: bytes) -> Deferred[None]:
        """
        Publish a message; messages arrive in order.

        The Deferred fires when Redis has the message.  It fails with a
        `tunnel.errors.CallError` if Redis may not have it: at once during an outage, or
        after ``write_timeout``.
        """


class IListeners(Interface):
    """Listeners of an agent half: `IAgentModuleApi.network`."""

    def listen(
        endpoint: Listen | str, factory: IProtocolFactory, path: str = ""
    ) -> Deferred[IListeningPort]:
        """
        Listen until the module stops.

        :param endpoint: a `Listen` section of the module's configuration, or a Twisted
            endpoint string.
        :param path: prefix of every path at this listener; `kasctl` shows it to
            operators.
        """


class INetwork(IListeners):
    """Listeners and HTTP clients of a server half: `IServerModuleApi.network`."""

    def http_agent(
        setting: str, ca_certificate_file: Path | None = None, *, connections: int = 2
    ) -> IAgent:
        """
        Return an HTTP client for another server; it does not follow redirects.

        The client keeps connections open, and uses the proxy in the environment of kas.

        :param setting: the key in the configuration, for the log.
        :param ca_certificate_file: PEM certificates of CAs to trust in addition to the
            system's.  It is read again after a change.
        :param connections: maximum number of open connections that are kept for reuse.
        :raises tunnel.errors.ConfigurationError: the file or the proxy cannot be used.
        """

    def redis_publisher(
        settings: RedisConnection,
        *,
        purpose: str,
        while_down: str,
        available: Callable[[], object],
    ) -> IRedisPublisher:
        """
        Connect to a Redis of another system in the background, until the module stops.

        kas logs the beginning and the end of each outage.

        :param purpose: text for the log, such as "broadcasts to GitLab".
        :param while_down: text for the log about the effect of an outage.
        :param available: called each time that Redis becomes available.
        """
