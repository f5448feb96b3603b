"""
A port on an existing socket, on which other processes also accept connections.

Twisted can adopt such a socket (`IReactorSocket.adoptStreamPort`), but Twisted's port
does not suit a shared socket: it accepts a hundred connections at a time, so that one
process gets all of them, and it removes the path of a Unix socket when it stops.
"""

from __future__ import annotations

import errno
import math
import os
import socket
from typing import Any

from twisted.internet.abstract import FileDescriptor
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import succeed
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IListeningPort,
    IProtocolFactory,
)
from twisted.logger import Logger
from zope.interface import implementer

__all__ = ["InheritedPort"]

#: Errors that a process or machine without room for another connection causes; other
#: processes on the same socket may have room.
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

#: Errors that Linux reports from `accept` if a connection failed before it was
#: accepted.
_PENDING = (
    errno.ENETDOWN,
    errno.EPROTO,
    errno.ENOPROTOOPT,
    errno.EHOSTDOWN,
    errno.ENONET,
    errno.EHOSTUNREACH,
    errno.EOPNOTSUPP,
    errno.ENETUNREACH,
    errno.ETIMEDOUT,
)

#: Seconds until the next attempt after these errors.
PAUSE = 0.1

#: Seconds while a process leaves connections to the others, see `give_way`; it then
#: accepts connections for at least as long.
GIVE_WAY = 0.5


@implementer(IListeningPort)
class InheritedPort(FileDescriptor):
    """
    A port that accepts one connection at a time from a socket that already listens.

    :param descriptor: the descriptor of the socket; the caller keeps it, and the port
        uses a copy.
    """

    _log = Logger()

    def __init__(
        self, descriptor: int, factory: IProtocolFactory, reactor: Any
    ) -> None:
        super().__init__(reactor)
        self._reactor = reactor
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.setblocking(False)
        self._factory = factory
        self._pause: IDelayedCall | None = None
        self._gave_way = -math.inf

    def fileno(self) -> int:
        return self._socket.fileno()

    def getHost(self) -> IAddress:
        name = self._socket.getsockname()
        if self._socket.family == socket.AF_UNIX:
            return UNIXAddress(name)
        kind = IPv6Address if self._socket.family == socket.AF_INET6 else IPv4Address
        address: IAddress = kind("TCP", *name)
        return address

    def startListening(self) -> None:
        self._factory.doStart()
        self.connected = 1
        self.startReading()  # type: ignore[no-untyped-call]

    def doRead(self) -> None:
        try:
            accepted, _ = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError, PermissionError):
            # Another process was faster, the client left, or a firewall refused the
            # connection.
            return
        except OSError as error:
            if error.errno in _FULL:
                self._rest(error)
                return
            if error.errno not in _PENDING:
                raise
            self._log.debug(
                "a connection was not accepted ({reason})", reason=error.strerror
            )
            return
        with accepted:
            accepted.setblocking(False)
            try:
                self._reactor.adoptStreamConnection(
                    accepted.fileno(), accepted.family, self._factory
                )
            except OSError as error:
                # An exception in this method would end the port. Either the client
                # reset the connection, so that it has no address any more; or Twisted
                # had no descriptor for its copy: this connection is lost, and the next
                # ones go to other processes.
                if error.errno in _FULL:
                    self._rest(error)
                    return
                self._log.debug(
                    "a connection was not accepted ({reason})", reason=error.strerror
                )
            except Exception:
                # The error belongs to one server, such as a module; the next connection
                # may work.
                self._log.failure("accepting a connection failed")

    def give_way(self) -> None:
        """
        Leave the next connections to the other processes.

        While all processes wait, the system gives most connections to the same one: a
        client that looks for another process would reach it again and again.
        """
        now = self._reactor.seconds()
        waits = self._pause is not None or not self.connected
        if not waits and now - self._gave_way >= 2 * GIVE_WAY:
            self._gave_way = now
            self._wait(GIVE_WAY)

    def _rest(self, error: OSError) -> None:
        self._log.warn("cannot accept connections ({reason})", reason=error.strerror)
        self._wait(PAUSE)

    def _wait(self, seconds: float) -> None:
        self.stopReading()  # type: ignore[no-untyped-call]
        self._pause = self._reactor.callLater(seconds, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self.startReading()  # type: ignore[no-untyped-call]

    def stopListening(self) -> Any:
        self.disconnecting = True
        if self._pause is not None:
            self._pause.cancel()
        if self.connected:
            self.connected = 0
            self.stopReading()  # type: ignore[no-untyped-call]
            self._socket.close()
            self._factory.doStop()
        return succeed(None)

    def logPrefix(self) -> str:
        return "handed port"
