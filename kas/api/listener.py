"""Listener of the external API: both versions of HTTP on one port, and draining."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IAddress, INegotiated
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from kas.api.auth import Authenticator, EveryCaller
from kas.api.front import Front
from kas.api.http1 import make_site
from kas.api.limits import DEFAULT_LIMITS, ExternalLimits
from kas.api.services import ExternalServices
from kas.config.schema import ApiListen
from kas.identity.jwt import Secrets
from kas.identity.sign_ins import SignIns
from kas.web.draining import DrainingFactory, DrainingListener
from kas.web.requests import BoundedChannel
from tunnel.errors import ConfigurationError
from tunnel.http2.server import Http2ServerConnection
from tunnel.http2.stream import Http2Stream, RawHeaders
from tunnel.program.listening import Listening
from tunnel.program.runtime import Runtime
from tunnel.toolkit.failure_log import FailureLog
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.log_budget import LogBudget
from tunnel.transport.negotiation import Handover, LayerFactory, NegotiationError

__all__ = ["ExternalApi", "ExternalFactory", "operators_factory"]

# Bytes at the beginning of every HTTP/2 connection; no HTTP/1.1 request begins with
# them.
_PREFACE = b"PRI * HTTP/2.0\r\n"


class GreetingError(NegotiationError):
    """
    Error for a connection whose first bytes did not arrive; its label in metrics is one
    of ``timeout``, ``closed``, ``internal``.
    """

    layer = "HTTP"


class _Greeting(Handover):
    """
    Protocol that waits for the first bytes, which distinguish the versions of HTTP.
    """

    error_type = GreetingError
    stays = True

    def __init__(
        self, layers: LayerFactory, address: IAddress, factory: ExternalFactory
    ) -> None:
        super().__init__(layers, address)
        self._factory_above = factory
        self._seen = b""

    def describe_timeout(self) -> str:
        return f"the client sent nothing within {self._factory.timeout:g} s"

    def negotiate(self, data: bytes) -> None:
        self._seen += data
        lower = self._lower
        if INegotiated.providedBy(lower) and lower.negotiatedProtocol == b"h2":
            self.hand_over(self._seen)
        elif self._seen.startswith(_PREFACE):
            self.hand_over(self._seen)
        elif not _PREFACE.startswith(self._seen):
            self.hand_over(self._seen, self._factory_above.http1)

    def connectionLost(self, reason: Failure) -> None:
        self._factory_above.lost(self)
        super().connectionLost(reason)

    @property
    def transport(self) -> object:
        """The underlying transport."""
        return self._lower

    def close(self) -> None:
        """Close the connection after the written data has been sent."""
        above: Any = self._above
        if above is None:
            self._lower.loseConnection()
        else:
            above.close()


class ExternalFactory(DrainingFactory):
    """
    Factory of the protocols for connections to the external API.

    :param age: seconds after which a client is asked to reconnect.
    :param jitter: returns a number between 0 and 1.
    """

    def __init__(
        self,
        front: Front,
        clock: Any,
        *,
        age: float,
        jitter: Callable[[], float],
        limits: ExternalLimits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__("the external API", limits.connections)
        self._front = front
        self._clock = clock
        self._limits = limits
        self._age = age
        self._jitter = jitter
        #: HTTP/2 connections.
        self._strangers = LogBudget()
        self.http2: set[Http2ServerConnection] = set()
        self.http1 = make_site(front, clock, limits, self)
        above = Factory.forProtocol(self._make_http2)
        above.noisy = False
        self._layers = LayerFactory(
            above, clock, limits.greeting, lambda layers, a: _Greeting(layers, a, self)
        )

    def connect(self, address: IAddress) -> Any:
        return self._layers.buildProtocol(address)

    def _make_http2(self) -> Http2ServerConnection:
        connection = Http2ServerConnection(
            self._begin,
            self._clock,
            self._limits,
            age=self._age,
            jitter=self._jitter,
            lost=self.http2.discard,
        )
        connection.log_budget = self._strangers
        self.http2.add(connection)
        return connection

    def _begin(
        self,
        connection: Http2ServerConnection,
        stream: Http2Stream,
        headers: RawHeaders,
    ) -> Any:
        special = {name: value for name, value in headers if name.startswith(b":")}
        begun = self._front.begin(
            stream,
            special.get(b":method", b"").decode("latin-1"),
            special.get(b":path", b"").decode("latin-1"),
            headers,
            True,
            getattr(connection.transport.getPeer(), "host", ""),
        )
        if begun.authenticated:
            connection.proven()
        return begun.call

    @property
    def calls(self) -> int:
        return super().calls + sum(one.calls for one in self.http2)

    def leaves(self, channel: BoundedChannel) -> bool:
        age = self._clock.seconds() - channel.born
        return super().leaves(channel) or age > self._age

    def idle(self, connection: _Greeting) -> bool:
        # HTTP/2 connections close themselves after GOAWAY.
        above = connection.above
        return above not in self.busy and above not in self.http2

    def drain(self, grace: float) -> None:
        for_each(
            tuple(self.http2),
            lambda connection: connection.drain(grace),
            "ending a connection",
        )
        super().drain(grace)


class ExternalApi(DrainingListener):
    """
    External API of one kas, from its section of the configuration.

    :raises ConfigurationError: if the secret for the tokens is invalid.
    """

    factory: ExternalFactory

    def __init__(
        self,
        settings: ApiListen,
        services: ExternalServices,
        listening: Listening,
        runtime: Runtime,
        sign_ins: SignIns | None,
    ) -> None:
        reactor = runtime.reactor
        try:
            secrets = Secrets(
                settings.authentication_secret_file,
                settings.accepted_secret_files,
                clock=reactor,
            )
        except ValueError as error:
            raise ConfigurationError([f"api.listen: {error}"]) from None
        factory = ExternalFactory(
            Front(
                services,
                Authenticator(secrets, settings.issuer, runtime.now),
                FailureLog(reactor),
                sign_ins=sign_ins,
            ),
            reactor,
            age=settings.max_connection_age,
            jitter=runtime.random,
        )
        super().__init__(
            settings,
            factory,
            listening,
            reactor,
            what="the external API",
            setting="api.listen.address",
            alpn=("h2", "http/1.1"),
        )


def operators_factory(services: ExternalServices, reactor: Any) -> ExternalFactory:
    """
    Return a factory for the same services without a token, for the socket in the state
    directory.

    A process that can open that socket can already read every secret of this kas.
    """
    front = Front(services, EveryCaller(), FailureLog(reactor))
    # kasctl makes one call, and closes the connection.
    return ExternalFactory(front, reactor, age=3600.0, jitter=lambda: 0.0)
