"""
What `kasctl` may tell a running kas: a socket in the state directory.

A program that can open it may read the state directory, so it proves nothing more.
Each process has its own, by host and number, because several kas may share a directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from twisted.internet.endpoints import UNIXServerEndpoint
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger

from kas.state.directory import StateDirectory, process_name
from tunnel.program.site import Page, Site, as_json

__all__ = ["PREFIX", "ControlSocket", "Controlled", "path_of"]

PREFIX = "control-"

#: Bytes of the path of a unix socket, with the zero behind it (Linux).
_MAX_PATH = 107


class Controlled(Protocol):
    """What can be asked of kas."""

    def drain(self) -> None:
        """Send every agent elsewhere, take no new ones, and be not ready."""

    def undrain(self) -> None:
        """Take agents again."""

    def rebalance(self) -> int:
        """Send away what is above the mean; how many were asked."""

    async def agents(self) -> dict[str, Any]:
        """Every agent: whether, where and since when it is connected, or last was."""

    async def peers(self) -> dict[str, Any]:
        """What it knows of other kas, after it dialled those without a session."""

    def progress(self) -> dict[str, Any]:
        """How far it is: what is still here."""


def path_of(state: StateDirectory, pid: int) -> Path:
    """The socket of one process."""
    return state.file(f"{PREFIX}{process_name(pid)}.sock")


class ControlSocket:
    """JSON: ``POST /drain``, ``/undrain``, ``/rebalance``; ``GET`` of what is known."""

    _log = Logger()

    def __init__(self, state: StateDirectory, kas: Controlled, reactor: Any) -> None:
        self._path = path_of(state, os.getpid())
        self._kas = kas
        self._reactor = reactor
        self._port: IListeningPort | None = None

    async def open(self) -> None:
        """Listen; where that cannot be, say so and go on without."""
        if len(os.fsencode(self._path)) > _MAX_PATH:
            self._log.warn(
                "{path} is too long for a socket: kasctl drain and rebalance will not "
                "work; use a state directory with a shorter path",
                path=str(self._path),
            )
            return
        endpoint = UNIXServerEndpoint(self._reactor, str(self._path), mode=0o600)
        try:
            self._path.unlink(missing_ok=True)
            self._port = await endpoint.listen(self._site())
        except Exception as error:
            self._log.warn(
                "no {path} ({reason}): kasctl drain and rebalance will not work",
                path=str(self._path),
                reason=error,
            )

    async def close(self) -> None:
        port, self._port = self._port, None
        if port is not None:
            stopping: Any = port.stopListening()
            if stopping is not None:
                await stopping

    def _site(self) -> Site:
        kas = self._kas

        def rebalance() -> Page:
            asked = kas.rebalance()
            return as_json(kas.progress() | ({"asked": asked} if asked else {}))

        def then_progress(act: Callable[[], None]) -> Callable[[], Page]:
            def handle() -> Page:
                act()
                return as_json(kas.progress())

            return handle

        async def agents() -> Page:
            return as_json(await kas.agents())

        async def peers() -> Page:
            return as_json(await kas.peers())

        return Site(
            {
                "/": lambda: as_json(kas.progress()),
                "/agents": agents,
                "/peers": peers,
            },
            self._reactor,
            {
                "/drain": then_progress(kas.drain),
                "/undrain": then_progress(kas.undrain),
                "/rebalance": rebalance,
            },
        )
