"""
HTTP client for requests to other servers: persistent connections, CAs, and proxies.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.web._newclient import HTTP11ClientProtocol
from twisted.web.client import URI, Agent, HTTPConnectionPool
from twisted.web.iweb import IAgent, IAgentEndpointFactory, IResponse
from zope.interface import implementer

from tunnel.errors import ConfigurationError
from tunnel.toolkit.files import WatchedFile, file_version
from tunnel.transport.address import KasAddress, client_endpoint
from tunnel.transport.tls import ALPN_HTTP, client_context

__all__ = ["make_agent"]

#: Seconds after which an idle connection is closed.
IDLE_SECONDS = 90

#: Seconds between two checks whether the file of CAs has changed.
LOOK_INTERVAL = 10.0

#: Maximum bytes of a response before its body, including body data that was read
#: together with these bytes.  Twisted limits a line, but not the number of lines, so
#: that an endless response would fill memory.
MAX_HEAD = 256 * 1024


def make_agent(
    ca_file: Path | None,
    setting: str,
    reactor: Any,
    environ: Mapping[str, str],
    connections: int,
) -> IAgent:
    """
    Return a client for requests to one server, through the proxy that *environ* names.

    :param ca_file: file of CAs that are accepted in addition to the system's CAs.
    :param setting: the name of the setting with this file, for error messages.
    :param connections: the number of idle connections that are kept, which should be
        the number of simultaneous requests.  With Twisted's default of two, most
        requests of a burst would need a handshake.
    :raises ConfigurationError: if the CAs or the proxy are invalid.
    """
    pool: Any = HTTPConnectionPool(reactor)
    pool.cachedConnectionTimeout = IDLE_SECONDS
    pool.maxPersistentPerHost = connections
    pool._factory = _Connections
    endpoints = _Endpoints(ca_file, setting, reactor, environ)
    agent: IAgent = Agent.usingEndpointFactory(reactor, endpoints, pool)
    return agent


class _Connection(HTTP11ClientProtocol):
    """
    Connection that is closed if a response has more than `MAX_HEAD` bytes before its
    body.
    """

    #: Remaining bytes of the head; None if no head is expected.
    _left: int | None = None

    def request(self, request: Any) -> Deferred[IResponse]:
        self._left = MAX_HEAD
        return super().request(request).addBoth(self._came)

    def _came(self, found: Any) -> Any:
        self._left = None
        return found

    def dataReceived(self, data: bytes) -> None:
        super().dataReceived(data)  # type: ignore[no-untyped-call]
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                transport: Any = self.transport
                transport.abortConnection()


class _Connections(Factory):
    """
    Factory of the protocols for connections.

    :param quiescent: called with a connection that can take another request.
    :param metadata: metadata of the endpoint, which contains its name for logs.
    """

    noisy = False

    def __init__(self, quiescent: Callable[[Any], object], metadata: str) -> None:
        self._quiescent = quiescent
        self._metadata = metadata

    def __repr__(self) -> str:
        return f"connections to {self._metadata}"

    def buildProtocol(self, addr: object) -> _Connection:
        return _Connection(self._quiescent)  # type: ignore[no-untyped-call]


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
        # Create the context only once, because reading and parsing the system's CAs is
        # expensive.
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
            "{setting}: {problem}; the previous content stays in effect",
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
