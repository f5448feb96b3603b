"""A ``listen`` section as a port: the endpoint, and TLS where it asks for TLS."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.logger import Logger

from tunnel.config import Listen
from tunnel.errors import ConfigurationError
from tunnel.net.sockets import address_text
from tunnel.net.tls import ReloadingServerContext
from tunnel.net.tlsio import wrap_server


@attrs.frozen
class Opened:
    """A port that is open."""

    #: What is listened for.
    what: str
    #: ``host:port``, or the path of a unix socket.
    address: str
    #: None: no TLS.
    certificate_file: Path | None = None


@attrs.define(eq=False)
class Listening:
    """
    Opens ports, and closes all of them at the end.

    :ivar development: the certificate and key for ``development_certificate: true``.
    """

    reactor: Any
    development: Callable[[], tuple[Path, Path]] | None = None
    _ports: dict[IListeningPort, Opened] = attrs.Factory(dict)
    _log = Logger()

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
    ) -> IListeningPort:
        """
        Listen for *what*.

        :param listen: a section, or a Twisted endpoint string.
        :param setting: where the address was said, for who has to say another one.
        :param room: how many connections may be in a TLS handshake now.
        :raises ConfigurationError: the address cannot be had, or a certificate is bad.
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
            factory = wrap_server(factory, context, self.reactor, room=room)
        text = listen.endpoint_string()
        try:
            opening: Deferred[IListeningPort] = serverFromString(
                self.reactor, text
            ).listen(factory)
            port = await opening
        except Exception as error:
            raise ConfigurationError(
                [
                    f"cannot listen for {what} on {text}: {str(error).rstrip('.')}; "
                    f"choose another address{f' ({setting})' if setting else ''}"
                ]
            ) from error
        address = address_text(port.getHost())
        self._ports[port] = Opened(what, address, files[0] if files else None)
        self._log.info(
            "listening for {what} on {address}{security}",
            what=what,
            address=address,
            security=" (TLS)" if files is not None else " (not encrypted)",
        )
        return port

    def _certificate(self, listen: Listen) -> tuple[Path, Path] | None:
        if listen.own_certificate and self.development is not None:
            return self.development()
        if listen.certificate_file is None or listen.key_file is None:
            return None
        return listen.certificate_file, listen.key_file

    @property
    def opened(self) -> list[Opened]:
        """What is open now."""
        return list(self._ports.values())

    async def close(self, port: IListeningPort) -> None:
        """Accept nothing more on one port."""
        self._ports.pop(port, None)
        stopping: Any = port.stopListening()
        if stopping is not None:
            await stopping

    async def close_all(self) -> None:
        """Accept nothing more anywhere."""
        for port in tuple(self._ports):
            await self.close(port)
