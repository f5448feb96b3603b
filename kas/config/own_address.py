"""
The address of this kas for other kas.

The environment variables have the names of GitLab's kas, so that a Helm chart works for
both. `OWN_PRIVATE_API_URL` is the whole address. Alternatively, `OWN_PRIVATE_API_CIDR`
contains networks: the address is the address of this machine or pod in one of these
networks, and `OWN_PRIVATE_API_SCHEME` and `OWN_PRIVATE_API_PORT` contain the rest of
the URL. `OWN_PRIVATE_API_HOST` is the name in the certificates of all kas.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlsplit

import attrs

from kas.config.schema import PrivateApiListen
from tunnel.config import Listen
from tunnel.errors import ConfigurationError
from tunnel.toolkit.urls import quoted_address

__all__ = [
    "OwnAddress",
    "interface_addresses",
    "own_address",
    "own_names",
    "parse_peer_url",
]

#: Names of schemes that GitLab's kas and txkas use, each with the name that txkas uses.
_SCHEMES = {"grpc": "tcp", "grpcs": "tls", "tcp": "tcp", "tls": "tls", "unix": "unix"}


@attrs.frozen
class OwnAddress:
    """URL of this kas, and the name that peers must have in their certificates."""

    url: str
    #: Name that the certificates of all peers must contain; empty to use the host of
    #: each peer's URL.
    tls_server_name: str = ""

    @property
    def scheme(self) -> str:
        """Return the scheme: ``tls``, ``tcp`` or ``unix``; empty without a URL."""
        return _SCHEMES.get(urlsplit(self.url).scheme.lower(), "")


@attrs.frozen
class PeerURL:
    """Address of a peer, parsed from its URL."""

    #: Scheme: ``tls``, ``tcp`` or ``unix``.
    scheme: str
    host: str
    port: int
    #: Path of the socket, for ``unix``.
    path: str = ""


def parse_peer_url(text: str) -> PeerURL:
    """
    Parse ``tls://host:port``, ``tcp://host:port`` or ``unix:///path``.

    ``grpcs`` and ``grpc`` are other names of the first two; the default port is 8155.

    :raises ValueError: if *text* is invalid; the error shows valid forms.
    """
    url = urlsplit(text.strip())
    scheme = _SCHEMES.get(url.scheme.lower(), "")
    if not scheme:
        raise ValueError(
            f"{quoted_address(text)} is not an address of a kas; write "
            "tls://HOST:8155 (or grpcs://), tcp://HOST:8155 (or grpc://) or unix:///path"
        )
    if scheme == "unix":
        # Take the path unchanged: a URL parser would treat a part of the path as a
        # query or a fragment.
        path = text.strip().partition(":")[2].removeprefix("//")
        if not path.startswith("/"):
            raise ValueError(
                f"{quoted_address(text)}: write the complete path: unix:///run/kas.sock"
            )
        return PeerURL("unix", "", 0, path)
    if url.path not in ("", "/") or url.query or url.fragment or "@" in url.netloc:
        raise ValueError(
            f"{quoted_address(text)}: only scheme, host and port are allowed"
        )
    if not url.hostname:
        raise ValueError(f"{quoted_address(text)}: it has no host")
    return PeerURL(scheme, url.hostname, url.port or 8155)


def own_address(
    listen: PrivateApiListen,
    environ: Mapping[str, str],
    addresses: Callable[[], Iterable[str]],
    port: int = 0,
) -> OwnAddress:
    """
    Return the address of this kas for other kas.

    :param addresses: returns the addresses of this machine's interfaces.
    :param port: the port on which kas listens, if the configured port is 0.
    :raises ConfigurationError: if the address cannot be found, or the settings
        contradict each other.
    """
    url = environ.get("OWN_PRIVATE_API_URL", "")
    cidr = environ.get("OWN_PRIVATE_API_CIDR", "")
    name = environ.get("OWN_PRIVATE_API_HOST", "")
    try:
        if url and cidr:
            raise ValueError(
                "OWN_PRIVATE_API_URL and OWN_PRIVATE_API_CIDR are mutually exclusive"
            )
        if url:
            _agrees(listen, "OWN_PRIVATE_API_URL", url, parse_peer_url(url).scheme)
        elif cidr:
            host = _within(cidr, addresses())
            url = _url(listen, environ, host, port)
        else:
            url = _listened(listen, environ, port)
    except ValueError as error:
        raise ConfigurationError([f"private_api: {error}"]) from None
    return OwnAddress(url, name)


def own_names(listeners: Iterable[Listen], own: OwnAddress | None) -> tuple[str, ...]:
    """
    Return the names for the certificate that kas creates, in addition to this machine's
    names.

    The names are the configured names of each listener that uses the certificate, the
    address of each such listener unless it listens on all addresses, and the address of
    this kas for other kas.

    :param own: None without a private API.
    """
    names = []
    for listen in listeners:
        if listen.own_certificate:
            names += [*listen.development_certificate_names, listen.host]
    if own is not None:
        names += [urlsplit(own.url).hostname or "", own.tls_server_name]
    return tuple(dict.fromkeys(filter(None, names)))


def _listened(listen: PrivateApiListen, environ: Mapping[str, str], port: int) -> str:
    if listen.network == "unix":
        return f"unix://{listen.address}"
    host = listen.host
    if not host:
        raise ValueError(
            "the address of this kas for other kas is unknown: set "
            "OWN_PRIVATE_API_URL, or OWN_PRIVATE_API_CIDR to the network of its address"
        )
    return _url(listen, environ, host, port)


def _url(
    listen: PrivateApiListen, environ: Mapping[str, str], host: str, port: int
) -> str:
    scheme = environ.get("OWN_PRIVATE_API_SCHEME", "tls" if listen.tls else "tcp")
    if scheme not in ("grpc", "grpcs", "tcp", "tls"):
        raise ValueError(
            f"OWN_PRIVATE_API_SCHEME {scheme!r}: write tls (grpcs) or tcp (grpc)"
        )
    _agrees(listen, "OWN_PRIVATE_API_SCHEME", scheme, _SCHEMES[scheme])
    text = environ.get("OWN_PRIVATE_API_PORT", "")
    if text and not (text.isdecimal() and 0 < int(text) < 65536):
        raise ValueError(f"OWN_PRIVATE_API_PORT {text!r} is not a port")
    number = int(text) if text else port or int(listen.address.rpartition(":")[2])
    shown = f"[{host}]" if ":" in host else host
    return f"{_SCHEMES[scheme]}://{shown}:{number}"


def _agrees(listen: PrivateApiListen, name: str, value: str, scheme: str) -> None:
    """Check that the scheme *value* matches the listener's TLS settings."""
    if listen.endpoint:
        return  # only Twisted knows whether it uses TLS
    if scheme == "tcp" and listen.tls:
        raise ValueError(f"{name} {value}: the listener uses TLS; write tls://")
    if scheme == "tls" and not listen.tls:
        raise ValueError(
            f"{name} {value}: the listener does not use TLS; write tcp://, or set "
            "certificate_file and key_file in private_api.listen"
        )


def _within(text: str, addresses: Iterable[str]) -> str:
    """Return the only one of *addresses* that is in one of the networks in *text*."""
    try:
        networks = [ipaddress.ip_network(one.strip()) for one in text.split(",")]
    except ValueError as error:
        raise ValueError(f"OWN_PRIVATE_API_CIDR: {error}") from None
    found = sorted(
        {
            address
            for address in addresses
            if any(ipaddress.ip_address(address) in network for network in networks)
        }
    )
    if len(found) != 1:
        raise ValueError(
            f"OWN_PRIVATE_API_CIDR {text}: must contain exactly one address of this "
            f"machine, but contains {', '.join(found) or 'none'}; change it, or set "
            "OWN_PRIVATE_API_URL"
        )
    return found[0]


def interface_addresses() -> list[str]:
    """Return the addresses of this machine's network interfaces (Linux)."""
    return [*_ipv4(), *_ipv6()]


def _ipv4() -> list[str]:
    from fcntl import ioctl

    siocgifaddr = 0x8915
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, interface in socket.if_nameindex():
            request = struct.pack("256s", interface.encode()[:15])
            try:
                answer = ioctl(probe.fileno(), siocgifaddr, request)
            except OSError:
                continue  # no address
            found.append(socket.inet_ntoa(answer[20:24]))
    return found


def _ipv6() -> list[str]:
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as table:
            return [
                str(ipaddress.ip_address(bytes.fromhex(line.split()[0])))
                for line in table
            ]
    except OSError:
        return []
