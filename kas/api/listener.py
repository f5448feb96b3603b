"""The listener of the external API: both kinds of HTTP on one port, and its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IAddress, INegotiated, IProtocol
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from kas.api.auth import Authenticator
from kas.api.front import Front
from kas.api.http1 import make_site
from kas.api.limits import DEFAULT_LIMITS, ExternalLimits
from kas.api.services import ExternalServices
from kas.config.schema import ApiListen
from kas.identity.jwt import Secrets
from kas.web.draining import DrainingFactory, DrainingListener
from tunnel.errors import ConfigurationError
from tunnel.http2.server import Http2ServerConnection
from tunnel.http2.stream import Http2Stream, RawHeaders
from tunnel.program.listening import Listening
from tunnel.transport.negotiation import Handover, LayerFactory, NegotiationError

__all__ = ["ExternalApi", "ExternalFactory"]

# What no request of HTTP/1.1 begins with, and every connection of HTTP/2.
_PREFACE = b"PRI * HTTP/2.0\r\n"


class GreetingError(NegotiationError):
    """The first bytes did not come; labels: ``timeout``, ``closed``, ``internal``."""

    layer = "HTTP"


class _Greeting(Handover):
    """Waits for the first bytes, which tell the two versions of HTTP apart."""

    error_type = GreetingError

    def __init__(
        self, layers: LayerFactory, address: IAddress, factory: ExternalFactory
    ) -> None:
        super().__init__(layers, address)
        self._factory_above = factory
        self._seen = b""
        self.born = layers.clock.seconds()

    def describe_timeout(self) -> str:
        return f"the client said nothing within {self._factory.timeout:g} s"

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
        self._factory_above.open.discard(self)
        super().connectionLost(reason)

    @property
    def transport(self) -> object:
        """What names the connection for `make_site`."""
        return self._lower

    def close(self) -> None:
        """End it after what was written."""
        self._lower.loseConnection()


class ExternalFactory(DrainingFactory):
    """
    Takes connections for the external API.

    :param age: seconds after which a client is asked to connect again.
    :param jitter: a number between 0 and 1.
    """

    _log = Logger()

    def __init__(
        self,
        front: Front,
        clock: Any,
        *,
        age: float,
        jitter: Callable[[], float],
        limits: ExternalLimits = DEFAULT_LIMITS,
    ) -> None:
        self._front = front
        self._clock = clock
        self._limits = limits
        self._age = age
        self._jitter = jitter
        self._draining = False
        self._complained = False
        #: All connections.
        self.open: set[_Greeting] = set()
        #: Those that speak HTTP/2.
        self.http2: set[Http2ServerConnection] = set()
        self._busy: set[object] = set()
        self.http1 = make_site(
            front, clock, limits, closing=self._closing, busy=self._busy
        )
        above = Factory.forProtocol(self._make_http2)
        above.noisy = False
        self._layers = LayerFactory(
            above, clock, limits.greeting, lambda layers, a: _Greeting(layers, a, self)
        )

    def buildProtocol(self, address: IAddress) -> IProtocol | None:  # type: ignore[override]
        """One connection, or None when there are too many."""
        if self.room() <= 0:
            if not self._complained:
                self._log.warn(
                    "more than {count} connections to the external API: new ones are "
                    "closed",
                    count=self._limits.connections,
                )
            self._complained = True
            return None
        self._complained = False
        greeting: Any = self._layers.buildProtocol(address)
        if greeting is not None:
            self.open.add(greeting)
        return greeting  # type: ignore[no-any-return]

    def room(self) -> int:
        """How many more there may be; who is in a TLS handshake counts already."""
        return self._limits.connections - len(self.open)

    def _make_http2(self) -> Http2ServerConnection:
        connection = Http2ServerConnection(
            self._begin,
            self._clock,
            self._limits,
            age=self._age,
            jitter=self._jitter,
            lost=self.http2.discard,
        )
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
        )
        if begun.authenticated:
            connection.proven()
        return begun.call

    def _closing(self, transport: object) -> bool:
        for one in self.open:
            if one.transport is transport:
                return self._draining or self._clock.seconds() - one.born > self._age
        return True

    @property
    def calls(self) -> int:
        """How many are under way."""
        return len(self._busy) + sum(one.calls for one in self.http2)

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self.open)

    def drain(self, grace: float) -> None:
        """Close connections without calls, and the others after their calls."""
        self._draining = True
        for connection in tuple(self.http2):
            connection.drain(grace)
        for one in tuple(self.open):
            if one.above not in self.http2 and one.transport not in self._busy:
                one.close()

    def close(self) -> None:
        """Close every connection once what was written is sent."""
        for one in tuple(self.open):
            one.close()

    def abort(self) -> None:
        """Cut every connection."""
        for one in tuple(self.open):
            one.give_up()


class ExternalApi(DrainingListener):
    """
    The external API of one kas, from its section of the configuration.

    :param now: the time of day.
    :raises ConfigurationError: the secret cannot be used.
    """

    factory: ExternalFactory

    def __init__(
        self,
        settings: ApiListen,
        services: ExternalServices,
        listening: Listening,
        reactor: Any,
        *,
        now: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        try:
            secrets = Secrets(
                settings.authentication_secret_file,
                settings.accepted_secret_files,
                clock=reactor,
            )
        except ValueError as error:
            raise ConfigurationError([f"api.listen: {error}"]) from None
        factory = ExternalFactory(
            Front(services, Authenticator(secrets, settings.issuer, now)),
            reactor,
            age=settings.max_connection_age,
            jitter=jitter,
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
