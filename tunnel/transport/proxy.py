"""
HTTP proxies: selection from environment variables, and connections with CONNECT.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import NoReturn
from urllib.parse import SplitResult, unquote, urlsplit

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IAddress,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
    IStreamClientEndpoint,
)
from zope.interface import implementer

from tunnel.errors import ConfigurationError
from tunnel.toolkit.texts import excerpt
from tunnel.transport.negotiation import (
    Handover,
    LayerFactory,
    NegotiationError,
    connect_through,
)
from tunnel.transport.sockets import join_host_port

__all__ = [
    "CONNECT_TIMEOUT",
    "MAX_HEAD_BYTES",
    "HTTPConnectEndpoint",
    "ProxyError",
    "ProxyURL",
    "proxy_for",
]

#: Maximum number of seconds until the proxy's response.  The proxy looks up the name
#: and connects first, with its own timeouts, which are usually 30 s or more.
CONNECT_TIMEOUT = 30.0

#: Maximum number of bytes of the proxy's status line and headers.  Real responses stay
#: below 1 KiB; proxies that authenticate with Kerberos send tokens of a few KiB.
MAX_HEAD_BYTES = 16 * 1024

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: ([^\r\n]*))?")

_HINTS = {
    403: "the proxy does not permit this destination",
    407: "give the proxy's user name and password in the proxy URL",
}

_DEFAULT_PORTS = {"http": 80, "https": 443}


@attrs.frozen
class ProxyURL:
    scheme: str
    host: str
    port: int
    #: User name and password for Basic authentication.
    credentials: tuple[str, str] | None = attrs.field(default=None, repr=False)

    @property
    def location(self) -> str:
        """Return host and port for messages; never the credentials."""
        return join_host_port(self.host, self.port)


def proxy_for(
    url_scheme: str, host: str, port: int, environ: Mapping[str, str]
) -> ProxyURL | None:
    """
    Return the proxy that the environment names for a destination; None if the
    environment does not name one.

    ``https_proxy`` applies to ``https`` and ``wss``, ``http_proxy`` to other schemes;
    the variable in lower case takes precedence over the variable in upper case.
    ``no_proxy`` lists destinations without a proxy: ``*``, names (including everything
    below them, with or without a leading dot), addresses, networks (``10.0.0.0/8``),
    each with an optional port.  This machine is never reached through a proxy.

    :raises ConfigurationError: the variable does not contain a valid URL.
    """
    variable = "https_proxy" if url_scheme in ("https", "wss") else "http_proxy"
    for name in (variable, variable.upper()):
        value = environ.get(name, "").strip()
        if value:
            break
    else:
        return None
    exceptions = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if _is_loopback(host) or _is_excepted(host, port, exceptions):
        return None
    return _parse_proxy(value, name)


class ProxyError(NegotiationError):
    """
    Raised if the proxy did not establish a connection to the destination.

    Labels: ``status``, ``not-http``, ``too-large``, ``timeout``, ``closed``,
    ``internal``.
    """

    layer = "proxy"


@implementer(IStreamClientEndpoint)
@attrs.frozen(eq=False)
class HTTPConnectEndpoint:
    """
    An endpoint that connects to *host* and *port* through the proxy at
    *proxy_endpoint*.

    The protocol gets the transport of the connection to the proxy itself.  If the
    destination sends data early, the protocol gets this data, too.

    :param credentials: the user name and password for Basic authentication.
    :param headers: further headers for the proxy.
    :param proxy_name: the name of the proxy in messages; its address by default.
    """

    proxy_endpoint: IStreamClientEndpoint
    host: str
    port: int
    clock: IReactorTime
    credentials: tuple[str, str] | None = attrs.field(default=None, repr=False)
    headers: Sequence[tuple[str, str]] = attrs.field(default=(), repr=False)
    proxy_name: str = ""
    timeout: float = CONNECT_TIMEOUT

    def __attrs_post_init__(self) -> None:
        self._request()

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        request = self._request()
        secrets = [*self._basic, *(value for _, value in self.headers)]

        def build(factory: LayerFactory, address: IAddress) -> Handover:
            return _ConnectProtocol(factory, address, request, self.proxy_name, secrets)

        factory = LayerFactory(protocolFactory, self.clock, self.timeout, build)
        return connect_through(self.proxy_endpoint, factory)

    @property
    def _basic(self) -> list[str]:
        """The value of ``Proxy-Authorization``, if there are credentials."""
        if self.credentials is None:
            return []
        pair = ":".join(self.credentials).encode("utf-8")
        return [f"Basic {base64.b64encode(pair).decode('ascii')}"]

    def _request(self) -> bytes:
        target = join_host_port(self.host, self.port)
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        lines.extend(f"Proxy-Authorization: {value}" for value in self._basic)
        lines.extend(f"{name}: {value}" for name, value in self.headers)
        for line in lines:
            if "\r" in line or "\n" in line:
                name = line.partition(":")[0]
                raise ValueError(f"line break in the header {name!r} for the proxy")
        return "\r\n".join([*lines, "", ""]).encode("utf-8")


class _ConnectProtocol(Handover):
    """
    Protocol that requests the tunnel, and waits for the blank line after the response.
    """

    error_type = ProxyError

    def __init__(
        self,
        factory: LayerFactory,
        address: IAddress,
        request: bytes,
        proxy_name: str,
        secrets: Sequence[str],
    ) -> None:
        super().__init__(factory, address)
        self._request = request
        self._secrets = secrets
        self._name = proxy_name
        self._head = b""

    def begin(self) -> None:
        if not self._name:
            peer = self._lower.getPeer()
            host, port = getattr(peer, "host", ""), getattr(peer, "port", 0)
            self._name = join_host_port(host, port) if host else str(peer)
        self._lower.write(self._request)

    def describe_timeout(self) -> str:
        seconds = self._factory.timeout
        return f"proxy {self._name} did not respond within {seconds:g} s"

    def negotiate(self, data: bytes) -> None:
        # The search begins shortly before the new bytes, because the blank line may be
        # split anywhere.
        start = max(0, len(self._head) - 3)
        self._head += data
        end = re.compile(rb"\r?\n\r?\n").search(self._head, start)
        if (len(self._head) if end is None else end.end()) > MAX_HEAD_BYTES:
            text = (
                f"proxy {self._name} sent more than {MAX_HEAD_BYTES} bytes of headers"
            )
            self.refuse("too-large", text)
        elif end is not None:
            head, rest = self._head[: end.start()], self._head[end.end() :]
            self._head = b""
            self._judge(head, rest)
        elif not b"HTTP/1."[: len(self._head)] == self._head[:7]:
            self.refuse("not-http", f"proxy {self._name} does not use HTTP")

    def _judge(self, head: bytes, rest: bytes) -> None:
        status_line = _STATUS_LINE.match(head)
        if status_line is None:
            self.refuse("not-http", f"proxy {self._name} does not use HTTP/1")
            return
        status = int(status_line[1])
        if 100 <= status < 200:
            # RFC 9110, 15.2: interim responses may come first, and are ignored.
            self.negotiate(rest)
        elif 200 <= status < 300:
            # RFC 9110, 9.3.6: this response has no content, whatever its headers say;
            # further bytes come from the destination.
            self.hand_over(rest)
        else:
            phrase = excerpt(status_line[2] or b"", self._secrets)
            page = excerpt(rest, self._secrets)
            detail = _HINTS.get(status) or page or "no explanation"
            self.refuse(
                "status",
                f"proxy {self._name} responded with {status} {phrase}".rstrip()
                + f": {detail}",
            )


def _parse_proxy(value: str, variable: str) -> ProxyURL:
    def refuse(why: str) -> NoReturn:
        # The value is omitted, because it may contain a password.
        raise ConfigurationError([f"${variable}: {why}"])

    try:
        url: SplitResult = urlsplit(value if "://" in value else f"http://{value}")
        host, port = url.hostname, url.port
    except ValueError:
        refuse("this is not a URL; write http://host:port")
    if url.scheme not in _DEFAULT_PORTS:
        refuse(
            f"proxies of the kind {url.scheme}:// are not supported; "
            "use an HTTP proxy: http://host:port"
        )
    if not host:
        refuse("it has no host; write http://host:port")
    credentials = None
    if url.username is not None:
        credentials = unquote(url.username), unquote(url.password or "")
    return ProxyURL(url.scheme, host, port or _DEFAULT_PORTS[url.scheme], credentials)


def _is_loopback(host: str) -> bool:
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_excepted(host: str, port: int, exceptions: str) -> bool:
    name = host.rstrip(".").lower()
    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None = None
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        pass
    for entry in re.split(r"[,\s]+", exceptions.lower()):
        if entry == "*":
            return True
        pattern, only_port = _split_port(entry)
        if not pattern or (only_port is not None and only_port != port):
            continue
        if address is not None:
            try:
                if address in ipaddress.ip_network(pattern, strict=False):
                    return True
            except ValueError:
                pass
            continue
        suffix = pattern.removeprefix("*").lstrip(".").rstrip(".")
        if suffix and (name == suffix or name.endswith("." + suffix)):
            return True
    return False


def _split_port(entry: str) -> tuple[str, int | None]:
    """Split a port off *entry*, whose colons may also belong to an IPv6 address."""
    bracketed = re.fullmatch(r"\[([^\]]+)\](?::([0-9]+))?", entry)
    if bracketed is not None:
        return bracketed[1], int(bracketed[2]) if bracketed[2] else None
    named = re.fullmatch(r"([^:]+):([0-9]+)", entry)
    if named is not None:
        return named[1], int(named[2])
    return entry, None
