"""Which HTTP proxy the environment names for a destination."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import NoReturn
from urllib.parse import SplitResult, unquote, urlsplit

import attrs

from tunnel.errors import ConfigurationError
from tunnel.transport.httpconnect import join_host_port

__all__ = ["ProxyURL", "proxy_for"]

_DEFAULT_PORTS = {"http": 80, "https": 443}


@attrs.frozen
class ProxyURL:
    """Where a proxy is."""

    scheme: str
    host: str
    port: int
    #: User name and password, as they go into Basic authentication.
    credentials: tuple[str, str] | None = attrs.field(default=None, repr=False)

    @property
    def location(self) -> str:
        """Host and port, for messages; never the credentials."""
        return join_host_port(self.host, self.port)


def proxy_for(
    url_scheme: str, host: str, port: int, environ: Mapping[str, str]
) -> ProxyURL | None:
    """
    The proxy that the environment names for a destination, or None for none.

    ``https_proxy`` counts for ``https`` and ``wss``, ``http_proxy`` for the others;
    lower case comes before upper case.  ``no_proxy`` is a list of what is reached
    without: ``*``, names (with everything below them, leading dot or not), addresses,
    networks (``10.0.0.0/8``), each with a port if wanted.  This machine is never
    reached through a proxy.

    :raises ConfigurationError: the variable holds no usable URL.
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


def _parse_proxy(value: str, variable: str) -> ProxyURL:
    def refuse(why: str) -> NoReturn:
        # Not the value itself: there may be a password in it.
        raise ConfigurationError([f"${variable}: {why}"])

    try:
        url: SplitResult = urlsplit(value if "://" in value else f"http://{value}")
        host, port = url.hostname, url.port
    except ValueError:
        refuse("this is no URL; write http://host:port")
    if url.scheme not in _DEFAULT_PORTS:
        refuse(
            f"proxies of the kind {url.scheme}:// are not supported; "
            "use one that speaks HTTP: http://host:port"
        )
    if not host:
        refuse("there is no host in it; write http://host:port")
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
    """Cut a port off *entry*, whose colons may also be those of an IPv6 address."""
    bracketed = re.fullmatch(r"\[([^\]]+)\](?::([0-9]+))?", entry)
    if bracketed is not None:
        return bracketed[1], int(bracketed[2]) if bracketed[2] else None
    named = re.fullmatch(r"([^:]+):([0-9]+)", entry)
    if named is not None:
        return named[1], int(named[2])
    return entry, None
