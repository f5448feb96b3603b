"""Opening of connections to Redis: sockets, TLS, sentinels and passwords."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, TimeoutError
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.error import TimeoutError as UserTimeout
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory

from kas.redis.connection import Command, Connection, RedisUnavailable, ask
from tunnel.config import (
    SENTINEL_PORT,
    RedisConnection,
    read_password,
    redis_address,
)
from tunnel.toolkit.files import warn_if_public
from tunnel.transport.tls import client_context, identity_files
from tunnel.transport.tlsio import TLSClientEndpoint

__all__ = ["Dialler"]

#: Exceptions of an attempt that took too long: from its own timer, or after the attempt
#: was cancelled, because endpoints report a cancellation with an error of their own.
_TOO_LATE = (TimeoutError, UserTimeout, ConnectingCancelledError)


def _secret(path: Path | None) -> str:
    """
    Return the password in a file, which is read each time because passwords change.
    """
    if path is None:
        return ""
    warn_if_public(path)
    try:
        return read_password(path)
    except ValueError as error:
        raise RedisUnavailable(str(error)) from None


class _Once(Factory):
    """Factory that builds a single given protocol."""

    noisy = False

    def __init__(self, protocol: Connection) -> None:
        self._protocol = protocol

    def buildProtocol(self, address: Any) -> Connection:
        return self._protocol


@attrs.define(eq=False)
class Dialler:
    """
    Maker of authenticated connections, to the server or to the master that sentinels
    name.
    """

    _settings: RedisConnection
    _reactor: Any
    #: Callback for the messages on a connection that has subscribed.
    _on_message: Callable[[bytes], None]
    #: Number of connections so far, including sentinels; for metrics.
    made: int = attrs.field(default=0, init=False)
    #: Index of the sentinel to query first: the sentinel that responded last.
    _sentinel: int = attrs.field(default=0, init=False)

    async def open(self, commands: Sequence[Command]) -> Connection:
        """
        Open a connection, send *commands*, and return the connection if Redis accepted
        them.

        :raises RedisUnavailable: if no connection could be made; the text contains the
            reason.
        """
        connection = await self._connect(await self.where())
        try:
            await self._log_in(connection)
            if commands:
                await ask(connection, commands)
        except BaseException:
            connection.fail("not used")
            raise
        return connection

    async def _log_in(self, connection: Connection) -> None:
        settings = self._settings
        password = _secret(settings.password_file)
        if settings.username:
            await ask(connection, [("AUTH", settings.username, password)])
        elif password:
            await ask(connection, [("AUTH", password)])
        if settings.database_index:
            await ask(connection, [("SELECT", settings.database_index)])

    async def where(self) -> tuple[str, int]:
        """
        Return the host and port of the server or of the master; for a Unix socket,
        return its path and 0.
        """
        settings = self._settings
        if settings.sentinel is not None:
            return await self._ask_sentinels()
        assert settings.server is not None
        if settings.network == "unix":
            return settings.server.address, 0
        return redis_address(settings.server.address)

    async def _connect(self, where: tuple[str, int]) -> Connection:
        settings = self._settings
        connection = Connection(self._reactor, settings.write_timeout, self._on_message)
        connection.address = where[0] if not where[1] else f"{where[0]}:{where[1]}"
        connecting = self._endpoint(where).connect(_Once(connection))
        connecting.addTimeout(settings.dial_timeout, self._reactor)
        try:
            await connecting
        except CancelledError:
            connection.fail("not used")
            raise
        except Exception as error:
            connection.fail("not used")
            said = str(error) or type(error).__name__
            if isinstance(error, _TOO_LATE):
                said = f"no connection within {settings.dial_timeout:g} s"
            raise RedisUnavailable(f"{connection.address}: {said}") from None
        self.made += 1
        return connection

    def _endpoint(self, where: tuple[str, int]) -> IStreamClientEndpoint:
        settings = self._settings
        host, port = where
        if not port:
            return UNIXClientEndpoint(self._reactor, host, settings.dial_timeout)
        plain = HostnameEndpoint(self._reactor, host, port, settings.dial_timeout)
        if not settings.tls.enabled:
            return plain
        # Send no byte before the handshake is complete, with certificate and name
        # verified.
        return TLSClientEndpoint(
            plain, self._tls_context, host, self._reactor, settings.dial_timeout
        )

    def _tls_context(self) -> Any:
        tls = self._settings.tls
        # Read the files for each connection, because certificates are renewed.
        return client_context(
            _path(tls.ca_certificate_file),
            identity=identity_files(tls.certificate_file, tls.key_file),
            alpn=(),
            # Permit TLS 1.2, because Redis may not support 1.3.
            minimum_version=ssl.TLSVersion.TLSv1_2,
            system_pool=tls.ca_certificate_file is None,
        )

    # Methods that query the sentinels.

    async def _ask_sentinels(self) -> tuple[str, int]:
        """Return host and port of the master from the first sentinel that knows it."""
        settings = self._settings.sentinel
        assert settings is not None
        count = len(settings.addresses)
        reason = ""
        for number in range(self._sentinel, self._sentinel + count):
            address = settings.addresses[number % count]
            try:
                found = await self._ask_sentinel(redis_address(address, SENTINEL_PORT))
            except RedisUnavailable as error:
                reason = str(error)
            else:
                self._sentinel = number % count
                return found
        raise RedisUnavailable(f"no sentinel responded; the last error: {reason}")

    async def _ask_sentinel(self, where: tuple[str, int]) -> tuple[str, int]:
        settings = self._settings.sentinel
        assert settings is not None
        connection = await self._connect(where)
        try:
            password = _secret(settings.sentinel_password_file)
            if password:
                await ask(connection, [("AUTH", password)])
            question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", settings.master_name)
            (answer,) = await ask(connection, [question])
        finally:
            connection.fail("done")
        if not isinstance(answer, list) or len(answer) != 2:
            raise RedisUnavailable(
                f"{connection.address} does not know a master {settings.master_name!r}"
            )
        with contextlib.suppress(ValueError, UnicodeError):
            return answer[0].decode("ascii"), int(answer[1])
        raise RedisUnavailable(f"{connection.address} names an invalid master")


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)
