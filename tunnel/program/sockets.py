"""
Listening sockets without a Twisted port.

A Twisted port accepts connections.  When it stops, it shuts its socket down for all
processes that share the socket, and removes the path of a Unix socket, even if another
process listens on that path by then.
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
    A listening socket.

    :param path: the path of a Unix socket that was created here, and is removed at the
        end.
    """

    def __init__(self, opened: socket.socket, path: str = "") -> None:
        self._socket = opened
        self._path = path
        self._file = _file_at(path)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """
        Close the socket in this process; processes that share it continue to accept.
        """
        self._socket.close()

    def remove_path(self) -> None:
        """
        Remove the path of a Unix socket, unless it leads to another socket by now.
        """
        made, self._file = self._file, None
        if made is not None and _file_at(self._path) == made:
            with suppress(OSError):  # the next listener removes it
                os.unlink(self._path)


async def open_socket(endpoint: str) -> ListeningSocket:
    """
    Open the socket for a Twisted endpoint string: ``tcp``, ``unix`` or ``systemd``.

    :raises CannotListenError: under the same conditions as a Twisted port.
    """
    opened: Any = await serverFromString(_Opener(), endpoint).listen(ServerFactory())
    assert isinstance(opened, ListeningSocket)
    return opened


def is_unix(endpoint: str) -> bool:
    """Tell whether an endpoint string is for a Unix socket."""
    kind, *rest = endpoint.split(":")
    return kind == "unix" or (kind == "systemd" and "domain=UNIX" in rest)


class _Opener:
    """
    The part of a reactor that Twisted's endpoints need; it opens sockets, and does not
    accept connections.
    """

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
        # No lock file is needed, because `is_listening` can tell whether another
        # program listens on the path.
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
    """Tell whether a program listens on the Unix socket at a path."""
    return _asked(path) in (0, errno.EAGAIN)


def _remove_left(path: str) -> None:
    """
    Remove a socket without a listener, which was left behind by a kas that was killed.
    """
    try:
        is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
    except FileNotFoundError:
        return
    if is_socket and _asked(path) == errno.ECONNREFUSED:
        os.unlink(path)


def _asked(path: str) -> int:
    """Return the result of a connection attempt to the path: a number of `errno`."""
    with socket.socket(socket.AF_UNIX) as client:
        # A blocking connect would wait if the socket has no room for more connections.
        client.setblocking(False)
        return client.connect_ex(path)


def _file_at(path: str) -> tuple[int, int, int] | None:
    """
    Return a value that distinguishes a file from a later one with the same path or
    inode.
    """
    if not path:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
