"""
Sockets in the state directory, through which `kasctl` reaches the kas that use this
directory.

A program that can open such a socket can read the state directory, so it needs no
further authentication.  Each process has its own socket, named by host and process id,
because several kas may share a directory.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IProtocolFactory
from twisted.logger import Logger

from kas.state.directory import StateDirectory, process_name
from tunnel.program.parts import Part

if TYPE_CHECKING:
    from tunnel.program.inherited_port import InheritedPort
    from tunnel.program.sockets import ListeningSocket

__all__ = [
    "CALLS",
    "CONTROL",
    "MAX_PATH",
    "SUFFIX",
    "ProcessSocket",
    "path_of",
    "worker_at",
]

#: Prefixes of the names of the control socket of kas, and of the socket for calls of
#: its modules' services.
CONTROL, CALLS = "control-", "calls-"

SUFFIX = ".sock"

#: Maximum bytes of the path of a Unix socket (Linux).
MAX_PATH = 107

#: Pattern for the address that a worker has for other workers if kas has no Redis: a
#: socket in the folder of its kas (`kas.workers.folder`).
_PEER = re.compile(
    r"unix://.*/workers-[0-9a-f]{4}-([0-9]+)(?:\.[0-9]+)?/([0-9]+)\.peer"
)


def worker_at(url: str) -> str:
    """
    Return a text for users that names the worker and the kas at *url*; if *url* is not
    the address of a worker, return *url* itself.
    """
    found = _PEER.fullmatch(url)
    return url if found is None else f"worker {found[2]} of {found[1]}"


def path_of(state: StateDirectory, pid: int, prefix: str = CONTROL) -> Path:
    """Return the path of the socket of a process."""
    return state.file(f"{prefix}{process_name(pid)}{SUFFIX}")


class ProcessSocket(Part):
    """
    Socket in the state directory on which this process listens.

    :param lost: text for the log: the commands of `kasctl` that do not work without the
        socket.
    :param handed: an inherited socket that already listens; None if this process has to
        open the socket.
    """

    _log = Logger()

    def __init__(
        self,
        state: StateDirectory,
        prefix: str,
        factory: IProtocolFactory,
        reactor: Any,
        lost: str,
        handed: int | None = None,
    ) -> None:
        self._state = state
        self._prefix = prefix
        self._factory = factory
        self._reactor = reactor
        self._lost = lost
        self.name = f"kasctl {lost}"
        self._handed = handed
        self._opened: ListeningSocket | None = None
        self._port: InheritedPort | None = None

    async def start(self) -> None:
        """Listen on the socket; if this is impossible, log the reason and continue."""
        # Import it here, because kasctl uses this file without Twisted's transports.
        from tunnel.program.inherited_port import InheritedPort

        descriptor = self._handed
        if descriptor is None:
            self._opened = await self._open()
            if self._opened is None:
                return
            descriptor = self._opened.fileno()
        self._port = InheritedPort(descriptor, self._factory, self._reactor)
        self._port.startListening()

    async def _open(self) -> ListeningSocket | None:
        from twisted.internet.endpoints import quoteStringArgument

        from tunnel.program.sockets import open_socket

        # Compute the path when the service starts, because a daemon starts in another
        # process than the one that called the constructor.
        path = path_of(self._state, os.getpid(), self._prefix)
        if len(os.fsencode(path)) > MAX_PATH:
            self._log.warn(
                "{path} is too long for a socket: kasctl {lost} will not work; use a "
                "state directory with a shorter path",
                path=str(path),
                lost=self._lost,
            )
            return None
        try:
            return await open_socket(f"unix:{quoteStringArgument(str(path))}:mode=600")
        except Exception as error:
            self._log.warn(
                "cannot create {path} ({reason}): kasctl {lost} will not work",
                path=str(path),
                lost=self._lost,
                reason=error,
            )
            return None

    async def stop(self) -> None:
        """Stop listening."""
        port, self._port = self._port, None
        if port is not None:
            port.stopListening()
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()
            opened.remove_path()
