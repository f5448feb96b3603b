"""
The ports of ``listen`` sections: opened with an endpoint, and with TLS if configured.
"""

from __future__ import annotations

import errno
import os
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.logger import Logger

from tunnel.config import Listen, expiry_problem
from tunnel.errors import ConfigurationError
from tunnel.program.handshakes import FailedHandshakes
from tunnel.program.inherited_port import InheritedPort
from tunnel.program.opened import Opened
from tunnel.program.parts import Part, Phase
from tunnel.program.sockets import ListeningSocket, is_unix, open_socket
from tunnel.toolkit.files import warn_if_public
from tunnel.toolkit.repeated import Repeated
from tunnel.transport.sockets import address_text
from tunnel.transport.tls import ReloadingServerContext
from tunnel.transport.tlsio import wrap_server

#: Seconds between two checks of the dates of configured certificates.
EXPIRY_INTERVAL = 86_400.0


@attrs.define(eq=False)
class Listening(Part):
    """
    Part that opens ports, and closes all of them at the end.

    :ivar development: the certificate and key for ``development_certificate: true``.
    :ivar program: the name of the program, for messages.
    :ivar now: returns the time of day.
    :ivar handed: open sockets that are shared with other processes, by the section that
        configures the listener.
    :ivar ending: whether the program is stopping, so that ports that close are not
        opened again.  When all processes that share a socket have closed it, clients
        are refused.
    """

    reactor: Any
    development: Callable[[], tuple[Path, Path]] | None = None
    program: str = "program"
    now: Callable[[], float] = time.time
    handed: Mapping[str, int] = attrs.Factory(dict)
    ending: bool = False
    #: TLS contexts by the purpose of their listener.
    contexts: dict[str, ReloadingServerContext] = attrs.Factory(dict)
    handshakes: dict[str, FailedHandshakes] = attrs.Factory(dict)
    #: Certificates that this program presents as a client, by their purpose; see
    #: `follow`.
    shown: dict[str, Path] = attrs.Factory(dict)
    #: Configured certificates, which operators replace.
    _named: set[Path] = attrs.Factory(set)
    _ports: dict[IListeningPort, Opened] = attrs.Factory(dict)
    #: Inherited descriptors, by the ports that accept from them.
    _descriptors: dict[IListeningPort, int] = attrs.Factory(dict)
    #: Unix sockets that were opened here, by their ports.
    _sockets: dict[IListeningPort, ListeningSocket] = attrs.Factory(dict)
    #: Sockets that are reserved for other processes.
    _reserved: list[ListeningSocket] = attrs.Factory(list)
    _dates: Repeated | None = None
    _log = Logger()
    name = "ports"

    async def listen(
        self,
        listen: Listen | str,
        factory: IProtocolFactory,
        *,
        what: str,
        setting: str = "",
        alpn: Sequence[str] = (),
        minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        room: Callable[[], int] | None = None,
        path: str = "",
    ) -> IListeningPort:
        """
        Open a port for *what*, and listen on it.

        :param listen: a `Listen` section, or a Twisted endpoint string.
        :param setting: the setting of the address, for errors.
        :param room: returns the number of connections that may be in a TLS handshake
            now.
        :param path: the prefix of every path at this listener.
        :raises ConfigurationError: the address is not available, or a certificate is
            invalid.
        """
        if isinstance(listen, str):
            listen = Listen(endpoint=listen)
        files = self._certificate(listen)
        if files is not None:
            certificate, key = files
            authorities = listen.client_ca_certificate_file
            context = ReloadingServerContext(
                str(certificate),
                str(key),
                str(authorities) if authorities is not None else None,
                clock=self.reactor,
                require_client_cert=authorities is not None,
                alpn=tuple(alpn),
                minimum_version=minimum,
            )
            failures = self.handshakes.get(what)
            if failures is None:
                failures = FailedHandshakes(what, self.reactor)
                self.handshakes[what] = failures
            self.contexts[what] = context
            factory = wrap_server(
                factory, context, self.reactor, failed=failures.failed, room=room
            )
        port = await self._open(listen, factory, what, setting)
        address = address_text(port.getHost())
        opened = Opened(what, address, files[0] if files else None, path)
        self._ports[port] = opened
        if not self.handed:
            self.announce(opened)
        if listen.certificate_file is not None:
            self._follow_dates(listen.certificate_file)
            if listen.key_file is not None:
                warn_if_public(listen.key_file)
        return port

    def announce(self, opened: Opened) -> None:
        """
        Log an open port; inherited ports are logged by the process that opened them.
        """
        self._log.info(
            "listening for {what} on {address}{security}",
            what=opened.what,
            address=opened.address,
            security=" (TLS)" if opened.certificate_file else " (not encrypted)",
        )

    async def reserve(self, listen: Listen, what: str, setting: str) -> int:
        """
        Open a port on which only other processes accept connections (see `handed`).

        :returns: the file descriptor.
        :raises ConfigurationError: the address is not available.
        """
        try:
            opened = await open_socket(listen.endpoint_string())
        except Exception as error:
            raise self._refusal(listen, what, setting, error) from error
        self._reserved.append(opened)
        return opened.fileno()

    def let_go(self) -> None:
        """Close the reserved sockets; other processes continue to accept on them."""
        for one in self._reserved:
            one.close()

    async def _open(
        self, listen: Listen, factory: IProtocolFactory, what: str, setting: str
    ) -> IListeningPort:
        descriptor = self.handed.get(setting.removesuffix(".address"))
        if descriptor is not None:
            port = self._accept(descriptor, factory)
            self._descriptors[port] = descriptor
            return port
        endpoint = listen.endpoint_string()
        try:
            if is_unix(endpoint):
                opened = await open_socket(endpoint)
                port = self._accept(opened.fileno(), factory)
                self._sockets[port] = opened
                return port
            opening: Deferred[IListeningPort] = serverFromString(
                self.reactor, endpoint
            ).listen(factory)
            return await opening
        except Exception as error:
            raise self._refusal(listen, what, setting, error) from error

    def _accept(self, descriptor: int, factory: IProtocolFactory) -> IListeningPort:
        port = InheritedPort(descriptor, factory, self.reactor)
        port.startListening()
        return port

    def _refusal(
        self, listen: Listen, what: str, setting: str, error: Exception
    ) -> ConfigurationError:
        return ConfigurationError(
            [
                f"cannot listen for {what}: {self._reason(listen, error)}; choose "
                f"another{f' with {setting}' if setting else ' address'}"
            ]
        )

    def _reason(self, listen: Listen, error: Exception) -> str:
        """Return why a port is not available, in words for operators."""
        where = listen.endpoint or listen.address
        if where.startswith(":"):
            where = f"port {where[1:]}"
        if isinstance(error, CannotListenError):
            code = getattr(error.socketError, "errno", None)
            if code == errno.EADDRINUSE and self.handed:
                return (
                    f"{where} is in use (by another {self.program}, or by another "
                    "worker of this one? Workers only share addresses that are "
                    "configured under 'listen': set 'workers: 1')"
                )
            if code == errno.EADDRINUSE:
                return f"{where} is in use (by another {self.program}?)"
            if code == errno.EADDRNOTAVAIL:
                return f"{where} is not an address of this machine"
            if code == errno.EACCES:
                return f"{where} may not be used by this user"
            if code is not None:
                return f"{where}: {os.strerror(code)}"
        return f"{where}: {str(error).rstrip('.')}"

    def follow(self, what: str, certificate: Path) -> None:
        """Include a certificate that we present as a client in the checks of dates."""
        self.shown[what] = certificate
        self._follow_dates(certificate)

    def _follow_dates(self, certificate: Path) -> None:
        self._named.add(certificate)
        self._look_at_dates(certificate)
        if self._dates is None:
            self._dates = Repeated(
                self.reactor,
                "checking the dates of certificates",
                self._look_at_all_dates,
            )
            self._dates.start(EXPIRY_INTERVAL)

    def _look_at_all_dates(self) -> None:
        for certificate in sorted(self._named):
            self._look_at_dates(certificate)

    def _look_at_dates(self, certificate: Path) -> None:
        try:
            problem = expiry_problem(certificate, self.now())
        except ConfigurationError as error:
            problem = str(error)
        if problem:
            self._log.warn("{problem}", problem=problem)

    def _certificate(self, listen: Listen) -> tuple[Path, Path] | None:
        if listen.own_certificate and self.development is not None:
            return self.development()
        if listen.certificate_file is None or listen.key_file is None:
            return None
        return listen.certificate_file, listen.key_file

    @property
    def opened(self) -> list[Opened]:
        """Return the open ports."""
        return list(self._ports.values())

    async def close(self, port: IListeningPort) -> None:
        """Stop accepting connections on one port."""
        self._ports.pop(port, None)
        stopping: Any = port.stopListening()
        if stopping is not None:
            await stopping
        opened = self._sockets.pop(port, None)
        if opened is not None:
            opened.close()
            opened.remove_path()
        if self.ending and port in self._descriptors:
            os.close(self._descriptors.pop(port))

    def drain(self, phase: Phase) -> None:
        """Record that draining has begun; see `ending`."""
        if phase is Phase.READINESS:
            self.ending = True

    async def stop(self) -> None:
        """Stop accepting connections on all ports."""
        for port in tuple(self._ports):
            await self.close(port)
        self.let_go()
        for one in self._reserved:
            one.remove_path()
        self._reserved.clear()
        for failures in self.handshakes.values():
            failures.stop()
        dates, self._dates = self._dates, None
        if dates is not None and dates.running:
            dates.stop()
