"""
HTTP requests of kas to other servers: connections that are kept, bounded answers.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent, HTTPConnectionPool, ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.iweb import IAgent, IAgentEndpointFactory, IResponse
from zope.interface import implementer

from tunnel.errors import ConfigurationError
from tunnel.transport.address import KasAddress, client_endpoint
from tunnel.transport.tls import ALPN_HTTP, client_context
from tunnel.util.files import WatchedFile, file_version

__all__ = ["TooLarge", "collect", "make_agent"]

#: Seconds for which a connection is kept between requests.
IDLE_SECONDS = 90

#: Seconds between two looks at whether the file of CAs has changed.
LOOK_INTERVAL = 10.0


class TooLarge(Exception):
    """The answer has more bytes than are read."""


def collect(response: IResponse, limit: int) -> Deferred[tuple[IResponse, bytes]]:
    """
    *response* with its body.

    The Deferred fails with `TooLarge` at more than *limit* bytes.
    """
    return Deferred.fromCoroutine(_read_body(response, limit))


def make_agent(
    ca_file: Path | None,
    setting: str,
    reactor: Any,
    environ: Mapping[str, str],
    connections: int,
) -> IAgent:
    """
    What sends requests to one server, through the proxy that *environ* names.

    :param ca_file: CAs besides the system's.
    :param setting: where the configuration names them.
    :param connections: that are kept: as many as are used at a time.  Of two, the usual
        number, a storm keeps nothing, and each request pays for a handshake.
    :raises ConfigurationError: the CAs or the proxy cannot be used.
    """
    pool = HTTPConnectionPool(reactor)
    pool.cachedConnectionTimeout = IDLE_SECONDS
    pool.maxPersistentPerHost = connections
    endpoints = _Endpoints(ca_file, setting, reactor, environ)
    agent: IAgent = Agent.usingEndpointFactory(reactor, endpoints, pool)
    return agent


@implementer(IAgentEndpointFactory)
@attrs.define(eq=False)
class _Endpoints:
    _ca_file: Path | None
    _setting: str
    _reactor: Any
    _environ: Mapping[str, str]
    _context: WatchedFile[ssl.SSLContext] = attrs.field(init=False)
    _log = Logger()

    def __attrs_post_init__(self) -> None:
        file = self._ca_file
        # Made once: the CAs of the system are read and parsed for each.
        self._context = WatchedFile(
            partial(file_version, file) if file is not None else lambda: None,
            self._make,
            self._refused,
            unusable=ConfigurationError,
            seconds=self._reactor.seconds,
            interval=LOOK_INTERVAL,
        )

    def _make(self) -> ssl.SSLContext:
        file = self._ca_file
        return client_context(
            ca_file=None if file is None else str(file),
            alpn=(ALPN_HTTP,),
            minimum_version=ssl.TLSVersion.TLSv1_2,
        )

    def _refused(self, error: Exception) -> None:
        self._log.error(
            "{setting}: {problem}; what it said before stays in use",
            setting=self._setting,
            problem=str(error),
        )

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """See `IAgentEndpointFactory`."""
        secure = uri.scheme == b"https"
        address = KasAddress(
            "tls" if secure else "tcp", uri.host.decode("ascii"), uri.port, "", secure
        )
        return client_endpoint(
            self._reactor,
            address,
            tls_context_source=self._context.get,
            environ=self._environ,
        )


class _Body(Protocol):
    """The body of an answer; its connection ends when it is not read to the end."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.whole: Deferred[bytes] = Deferred(lambda _: self._leave())
        self._parts: list[bytes] = []
        self._size = 0
        self._left = False

    def dataReceived(self, data: bytes) -> None:
        self._size += len(data)
        if self._left:
            return
        if self._size > self._limit:
            self._leave()
            self.whole.errback(TooLarge())
        else:
            self._parts.append(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._left:
            return
        self._left = True
        if reason.check(ResponseDone, PotentialDataLoss):
            self.whole.callback(b"".join(self._parts))
        else:
            self.whole.errback(reason)

    def _leave(self) -> None:
        self._left = True
        self._parts.clear()
        if self.transport is not None:
            self.transport.loseConnection()


async def _read_body(response: IResponse, limit: int) -> tuple[IResponse, bytes]:
    body = _Body(limit)
    response.deliverBody(body)
    return response, await body.whole
