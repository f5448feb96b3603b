"""The schema of listeners: address and certificate."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import attrs

from tunnel.config.certificates import authorities, identity
from tunnel.config.names import certificate_names
from tunnel.config.schema import ExistingFile, Invalid, field
from tunnel.config.texts import Duration
from tunnel.toolkit.urls import quoted_address

__all__ = ["ANYWHERE", "BACKLOG", "DrainingListen", "Listen"]

#: Maximum number of connections that wait to be accepted: after an outage, thousands of
#: agents reconnect within seconds, and with Twisted's limit of 50 most of their
#: connections would need a retransmission.
BACKLOG = 4096

#: Hosts to listen on that are not addresses for clients.
ANYWHERE = ("", "0.0.0.0", "::", "*")  # noqa: S104

_ADDRESS = re.compile(r"(?:\[([^\]]*)\]|([^:\[\]]*)):([0-9]{1,5})")
# Endpoints that Twisted can check without a reactor. Others come from plugins or from
# systemd, whose sockets do not exist when a file is only checked.
_CHECKABLE = frozenset({"tcp", "tcp4", "tcp6", "unix"})


def _address(network: str, text: str) -> tuple[str, int]:
    """Return host and port of ``host:port``; raise ValueError for other texts."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{quoted_address(text)} is not 'host:port'; write 127.0.0.1:PORT, "
            "[::1]:PORT or :PORT"
        )
    bracketed, plain, port = found.groups()
    host = bracketed if bracketed is not None else plain
    if int(port) > 65535:
        raise ValueError(f"{port} is not a port; the largest is 65535")
    try:
        version = ipaddress.ip_address(host).version if host else 0
    except ValueError:
        version = 0
        if bracketed is not None:
            raise ValueError(f"{host!r} is not an IPv6 address") from None
    if (network, version) in (("tcp4", 6), ("tcp6", 4)):
        raise ValueError(
            f"{quoted_address(text)} is not an address of the network {network}"
        )
    if network == "tcp6" and host and version == 0:
        raise ValueError(f"with network tcp6, write an address, not {host!r}")
    return host, int(port)


@attrs.frozen(kw_only=True)
class Listen:
    """
    The address of a listener: ``network`` and ``address``, or a Twisted ``endpoint``
    string.

    Subclass it to give ``address`` a default.
    """

    #: Whether TLS is on unless it is disabled explicitly; True for listeners that
    #: receive credentials.
    TLS_BY_DEFAULT: ClassVar[bool] = False

    network: Literal["tcp", "tcp4", "tcp6", "unix"] = field(
        default="tcp", doc="tcp, tcp4, tcp6 or unix"
    )
    address: str = field(
        default="", doc="host:port, or the path of the socket if network is unix"
    )
    endpoint: str = field(
        default="", doc="a Twisted endpoint string, instead of network and address"
    )
    certificate_file: ExistingFile | None = field(
        default=None, doc="PEM chain, leaf first; enables TLS together with key_file"
    )
    key_file: ExistingFile | None = field(
        default=None, doc="PEM private key of certificate_file"
    )
    development_certificate: bool | None = field(
        default=None,
        doc="TLS with a certificate that kas creates; false disables it",
    )
    development_certificate_names: tuple[str, ...] = field(
        default=(),
        doc=(
            "additional names and addresses of this certificate, which always has "
            "localhost and the name of the machine; all listeners share it"
        ),
        validator=certificate_names,
    )
    client_ca_certificate_file: ExistingFile | None = field(
        default=None,
        doc=(
            "PEM certificates of the CAs that must sign every client's certificate "
            "(mTLS)"
        ),
        validator=authorities,
    )

    def __attrs_post_init__(self) -> None:
        problems: list[Invalid] = []
        for check in (self._about_address, self._about_tls):
            # A key that depends on an invalid key cannot be checked.
            with contextlib.suppress(AttributeError):
                problems += check()
        if problems:
            raise ExceptionGroup("listen", problems)

    def _about_address(self) -> Iterator[Invalid]:
        default = attrs.fields_dict(type(self))["address"].default
        if self.endpoint:
            if self.address != default:
                yield Invalid(
                    "'address' and 'endpoint' are mutually exclusive", "endpoint"
                )
            if self.network != "tcp":
                yield Invalid(
                    "'network' and 'endpoint' are mutually exclusive", "endpoint"
                )
        try:
            if self.endpoint:
                _check_endpoint(self.endpoint)
            else:
                self.endpoint_string()
        except ValueError as error:
            yield Invalid(str(error), "endpoint" if self.endpoint else "address")

    def _about_tls(self) -> Iterator[Invalid]:
        if self.certificate_file is not None and self.key_file is None:
            yield Invalid("'key_file' is missing; TLS needs both", "certificate_file")
        if self.key_file is not None and self.certificate_file is None:
            yield Invalid("'certificate_file' is missing; TLS needs both", "key_file")
        if self.development_certificate and (self.certificate_file or self.key_file):
            yield Invalid(
                "'certificate_file' is configured, too; keep one of the two",
                "development_certificate",
            )
        if self.development_certificate_names and not self.own_certificate:
            yield Invalid(
                "no effect, because kas' own certificate is not used here; remove "
                "it, or certificate_file and key_file, or set "
                "development_certificate: true",
                "development_certificate_names",
            )
        if self.client_ca_certificate_file is not None and not self.tls:
            yield Invalid(
                "client certificates need TLS: add 'certificate_file' and 'key_file'",
                "client_ca_certificate_file",
            )
        if self.certificate_file is not None and self.key_file is not None:
            # The files are loaded only to report problems: the listener loads and
            # follows the files by itself.
            try:
                identity(self.certificate_file, self.key_file)
            except Invalid as error:
                yield error

    @property
    def tls(self) -> bool:
        """Whether the listener uses TLS; `endpoint_string` never includes TLS."""
        return self.own_certificate or (
            self.certificate_file is not None and self.key_file is not None
        )

    @property
    def own_certificate(self) -> bool:
        """Whether TLS uses the certificate that kas creates."""
        if self.development_certificate is None:
            return self.TLS_BY_DEFAULT and self.certificate_file is None
        return self.development_certificate

    @property
    def host(self) -> str:
        """
        The name or address to listen on; empty if the listener does not have exactly
        one.
        """
        if self.endpoint or self.network == "unix":
            return ""
        host = self.address.rpartition(":")[0].strip("[]")
        return "" if host in ANYWHERE else host

    def endpoint_string(self) -> str:
        """
        Return the string for `twisted.internet.endpoints.serverFromString`, without
        TLS.

        :raises ValueError: if the address is invalid, which the constructor reports.
        """
        from twisted.internet.endpoints import quoteStringArgument

        if self.endpoint:
            return self.endpoint
        if self.network == "unix":
            if not self.address or "\0" in self.address:
                raise ValueError("with network unix, write the path of the socket")
            # Only our own group may connect, because access to the socket is comparable
            # to access to loopback.
            return f"unix:{quoteStringArgument(self.address)}:mode=660"
        host, port = _address(self.network, self.address)
        if not host:
            # As in Go, ":8080" means every address, of both families if both are
            # available.
            both = self.network == "tcp" and socket.has_dualstack_ipv6()
            if both or self.network == "tcp6":
                return rf"tcp6:{port}:interface=\:\::backlog={BACKLOG}"
            return f"tcp:{port}:backlog={BACKLOG}"
        kind = "tcp6" if ":" in host else "tcp"
        where = quoteStringArgument(host)
        return f"{kind}:{port}:interface={where}:backlog={BACKLOG}"


# Without slots, so that a class can inherit from it and from another listener.
@attrs.frozen(kw_only=True, slots=False)
class DrainingListen(Listen):
    """A listener with its own periods for draining when kas stops."""

    listen_grace_period: Duration = field(
        default=5.0, doc="how long to accept connections after the signal to stop"
    )
    shutdown_grace_period: Duration = field(
        default=10.0, doc="how long running requests may continue after that"
    )


def _check_endpoint(text: str) -> None:
    kind, colon, _ = text.partition(":")
    if not colon:
        raise ValueError(
            f"{quoted_address(text)} is not an endpoint; write, for instance, tcp:8150"
        )
    if kind not in _CHECKABLE:
        return
    # Imported here, because kasctl has no listeners, and starts faster without
    # Twisted's transports.
    from twisted.internet.endpoints import serverFromString

    nowhere: Any = None  # created, but not listened on
    try:
        serverFromString(nowhere, text)
    except Exception as error:
        raise ValueError(
            f"{quoted_address(text)} is not an endpoint that Twisted can use ({error})"
        ) from None
