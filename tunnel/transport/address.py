"""
Addresses of kas in agentk's configuration, and their endpoints.

The usual addresses are ``tls://kas.example:8150`` and ``wss://kas.example/path``.
``tcp://`` and ``ws://`` work without TLS, for tests and for service meshes that encrypt
connections; ``unix:/path`` is for a kas on the same machine.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn
from urllib.parse import urlsplit

import attrs
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint

from tunnel.errors import ConfigurationError
from tunnel.toolkit.urls import quoted_address
from tunnel.transport.proxy import HTTPConnectEndpoint, ProxyURL, proxy_for
from tunnel.transport.sockets import join_host_port
from tunnel.transport.tls import ALPN_HTTP, ALPN_TUNNEL, client_context
from tunnel.transport.tlsio import TLSClientEndpoint
from tunnel.transport.websocket import WebSocketClientEndpoint

__all__ = ["CONNECT_TIMEOUT", "KasAddress", "client_endpoint", "parse_kas_address"]

#: Maximum number of seconds for the name lookup and TCP, including all addresses of a
#: name.
CONNECT_TIMEOUT = 30.0

_DEFAULT_PORTS = {"tls": 8150, "tcp": 8150, "wss": 443, "ws": 80}

#: Schemes that other programs use, with their meaning and replacement.
_FOREIGN = {
    "grpc": ("GitLab's agent protocol", "tcp://{host}:8150 or ws://{host}"),
    "grpcs": ("GitLab's agent protocol", "tls://{host}:8150 or wss://{host}"),
    "http": ("for web pages", "ws://{host}"),
    "https": ("for web pages", "wss://{host}"),
    "ssl": ("not supported", "tls://{host}:8150"),
}


@attrs.frozen
class KasAddress:
    """The address of a kas, and the way to connect to it."""

    #: ``tls``, ``wss``, ``tcp``, ``ws`` or ``unix``.
    scheme: str
    #: Name or address, without brackets; empty for ``unix``.
    host: str
    port: int
    #: The request target of the WebSocket, or the path of the socket.
    path: str
    #: Whether data is encrypted; if not, anyone on the path can read and change it.
    secure: bool

    @property
    def is_websocket(self) -> bool:
        return self.scheme in ("ws", "wss")

    @property
    def alpn(self) -> tuple[str, ...]:
        """Return the protocols that a TLS context for this address must offer."""
        return (ALPN_HTTP,) if self.is_websocket else (ALPN_TUNNEL,)

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix:{self.path}"
        path = self.path if self.is_websocket and self.path != "/" else ""
        port = ""
        if self.port != _DEFAULT_PORTS[self.scheme] or not self.is_websocket:
            port = f":{self.port}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}{port}{path}"


def parse_kas_address(text: str) -> KasAddress:
    """
    Parse the address that an operator wrote.

    :raises ConfigurationError: if the address is invalid; the text shows a valid one.
    """

    def refuse(why: str) -> NoReturn:
        raise ConfigurationError([f"address of kas {quoted_address(text)}: {why}"])

    stripped = text.strip()
    if stripped.lower().startswith("unix:"):
        path = stripped[5:].removeprefix("//")
        if not path.startswith("/"):
            refuse("write the complete path: unix:/run/kas/agent.sock")
        return KasAddress("unix", "", 0, path, True)
    if "@" in stripped.rpartition("://")[2].partition("/")[0]:
        # The text is left out, because it may contain a password.
        problem = "address of kas: it must not contain a user name or password"
        raise ConfigurationError([problem])
    try:
        url = urlsplit(stripped)
    except ValueError as error:
        refuse(f"{error}")
    try:
        host, port = url.hostname or "", url.port
    except ValueError:
        refuse("its port is not a number up to 65535")
    scheme = url.scheme.lower()
    if "://" not in stripped:
        refuse(f"the scheme is missing; write tls://{stripped or 'kas.example'}")
    if scheme in _FOREIGN:
        meaning, better = _FOREIGN[scheme]
        shown = f"[{host}]" if ":" in host else host or "kas.example"
        if port == _DEFAULT_PORTS["tls"]:
            better = "tcp" if scheme in ("http", "grpc") else "tls"
            better += "://{host}:8150"
        refuse(f"{scheme}:// is {meaning}; use {better.format(host=shown)}")
    if scheme not in _DEFAULT_PORTS:
        refuse("unknown scheme; use tls://kas.example:8150 or wss://kas.example/path")
    if not host:
        refuse(f"it has no host; write {scheme}://kas.example")
    if port == 0:
        refuse("port 0 is not a port")
    if url.fragment:
        refuse("a part after # has no effect")
    path = url.path
    if scheme in ("ws", "wss"):
        path = (path or "/") + (f"?{url.query}" if url.query else "")
        if not path.isascii() or any(c.isspace() for c in path):
            refuse("the path must be percent-encoded")
    elif path not in ("", "/") or url.query:
        refuse(f"{scheme}:// does not permit a path; only ws:// and wss:// do")
    else:
        path = ""
    return KasAddress(
        scheme, host, port or _DEFAULT_PORTS[scheme], path, scheme in ("tls", "wss")
    )


def client_endpoint(
    reactor: Any,
    address: KasAddress,
    *,
    tls_context_source: Callable[[], ssl.SSLContext],
    server_name: str = "",
    environ: Mapping[str, str],
    headers: Sequence[tuple[str, str]] = (),
    clock: IReactorTime | None = None,
    any_name_source: Callable[[], ssl.SSLContext] | None = None,
) -> IStreamClientEndpoint:
    """
    Return the endpoint that connects to *address*, with all layers.

    From the bottom: TCP, the proxy that *environ* names, TLS, WebSocket.

    :param reactor: for connecting, and as the clock unless *clock* is given.
    :param tls_context_source: its contexts must offer `KasAddress.alpn`.
    :param server_name: the name to verify instead of the host in the address.
    :param headers: further headers for a WebSocket's request.
    :param any_name_source: see `TLSClientEndpoint`.
    :raises ConfigurationError: the environment names an unusable proxy.
    """
    if clock is None:
        clock = reactor
    if address.scheme == "unix":
        return UNIXClientEndpoint(reactor, address.path, timeout=CONNECT_TIMEOUT)
    kind = "http" if address.scheme == "ws" else "https"
    proxy = proxy_for(kind, address.host, address.port, environ)
    endpoint: IStreamClientEndpoint
    if proxy is None:
        endpoint = _tcp(reactor, address.host, address.port)
    else:
        endpoint = HTTPConnectEndpoint(
            _proxy_endpoint(reactor, proxy, clock),
            address.host,
            address.port,
            clock,
            credentials=proxy.credentials,
            proxy_name=proxy.location,
        )
    if address.secure:
        name = server_name or address.host
        endpoint = TLSClientEndpoint(
            endpoint,
            tls_context_source,
            name,
            clock,
            any_name_source=any_name_source,
        )
    if address.is_websocket:
        where = join_host_port(address.host, address.port)
        url = f"{address.scheme}://{where}{address.path}"
        endpoint = WebSocketClientEndpoint(endpoint, url, headers, clock)
    return endpoint


def _proxy_endpoint(
    reactor: Any, proxy: ProxyURL, clock: IReactorTime
) -> IStreamClientEndpoint:
    endpoint = _tcp(reactor, proxy.host, proxy.port)
    if proxy.scheme == "http":
        return endpoint

    def context() -> ssl.SSLContext:
        return client_context(alpn=(ALPN_HTTP,), minimum_version=ssl.TLSVersion.TLSv1_2)

    return TLSClientEndpoint(endpoint, context, proxy.host, clock)


def _tcp(reactor: Any, host: str, port: int) -> IStreamClientEndpoint:
    return HostnameEndpoint(reactor, host, port, timeout=CONNECT_TIMEOUT)
