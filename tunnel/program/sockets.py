"""
Listening sockets without a Twisted port.

A port accepts, shuts its socket down for all processes that share it, and removes the
path of a unix socket, even if another process listens there by then.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
from typing import Any

from twisted.internet.abstract import isIPv6Address
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import ServerFactory

__all__ = ["ListeningSocket", "is_listening", "is_unix", "open_socket"]


class ListeningSocket:
    """
    A socket that listens.

    :param path: of a unix socket that was made here, and is removed at the end.
    """

    def __init__(self, opened: socket.socket, path: str = "") -> None:
        self._socket = opened
        self._path = path
        self._file = _file_at(path)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Close it here; processes that share it go on to accept."""
        self._socket.close()

    def remove_path(self) -> None:
        """Remove the path of a unix socket, unless it leads to another one by now."""
        made, self._file = self._file, None
        if made is not None and _file_at(self._path) == made:
            with suppress(OSError):  # the next listener removes it
                os.unlink(self._path)


async def open_socket(endpoint: str) -> ListeningSocket:
    """
    Open what a Twisted endpoint string says: ``tcp``, ``unix`` or ``systemd``.

    :raises CannotListenError: as a port of Twisted does.
    """
    opened: Any = await serverFromString(_Opener(), endpoint).listen(ServerFactory())
    assert isinstance(opened, ListeningSocket)
    return opened


def is_unix(endpoint: str) -> bool:
    """Whether an endpoint string is of a unix socket."""
    kind, *rest = endpoint.split(":")
    return kind == "unix" or (kind == "systemd" and "domain=UNIX" in rest)


class _Opener:
    """A reactor as far as such endpoints need one: it opens, and does not accept."""

    def listenTCP(
        self, port: int, factory: object, backlog: int = 50, interface: str = ""
    ) -> ListeningSocket:
        is_ipv6 = isIPv6Address(interface)
        opened = socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind((interface, port))
            opened.listen(backlog)
        except OSError as error:
            opened.close()
            raise CannotListenError(interface, port, error) from error
        return ListeningSocket(opened)

    def listenUNIX(
        self,
        address: str,
        factory: object,
        backlog: int = 50,
        mode: int = 0o666,
        wantPID: int = 0,
    ) -> ListeningSocket:
        # No lock is beside it: whether another program listens there can be asked.
        is_file = not address.startswith("\0")
        opened = socket.socket(socket.AF_UNIX)
        try:
            if is_file:
                _remove_left(address)
            opened.bind(address)
            if is_file:
                os.chmod(address, mode)
            opened.listen(backlog)
        except OSError as error:
            opened.close()
            raise CannotListenError(None, address, error) from error
        return ListeningSocket(opened, address if is_file else "")

    def adoptStreamPort(
        self, descriptor: int, family: int, factory: object
    ) -> ListeningSocket:
        return ListeningSocket(socket.socket(fileno=os.dup(descriptor)))


def is_listening(path: str) -> bool:
    """Whether a program listens on the unix socket there."""
    return _asked(path) in (0, errno.EAGAIN)


def _remove_left(path: str) -> None:
    """Remove a socket without a listener: its kas was killed."""
    try:
        is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
    except FileNotFoundError:
        return
    if is_socket and _asked(path) == errno.ECONNREFUSED:
        os.unlink(path)


def _asked(path: str) -> int:
    """Return the kernel's answer to a client: a number of `errno`."""
    with socket.socket(socket.AF_UNIX) as client:
        # Otherwise a socket without room for more connections would block us.
        client.setblocking(False)
        return client.connect_ex(path)


def _file_at(path: str) -> tuple[int, int, int] | None:
    """
    Return a value that distinguishes a file from a later one with its path or number.
    """
    if not path:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
