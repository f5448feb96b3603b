"""
What `kasctl` may tell a running kas: a socket in the state directory.

Whoever can open it may already read the state directory, so there is nothing to prove.
Each process has its own, by host and number, because several kas may share a directory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from twisted.internet.endpoints import UNIXServerEndpoint
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger

from kas.state import StateDirectory, process_name
from tunnel.site import QuietSite

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

    def progress(self) -> dict[str, Any]:
        """How far it is: what is still here."""


def path_of(state: StateDirectory, pid: int) -> Path:
    """The socket of one process."""
    return state.file(f"{PREFIX}{process_name(pid)}.sock")


class ControlSocket:
    """``POST /drain``, ``/undrain``, ``/rebalance``; ``GET /``, ``/agents``; JSON."""

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
        """Listen no more."""
        port, self._port = self._port, None
        if port is not None:
            stopping: Any = port.stopListening()
            if stopping is not None:
                await stopping

    def _site(self) -> Any:
        # Here, because klein installs the default reactor when it is imported.
        from klein import Klein

        app = Klein()

        def answer(request: Any, **more: Any) -> bytes:
            request.setHeader(b"content-type", b"application/json")
            return json.dumps({**self._kas.progress(), **more}).encode() + b"\n"

        def on(path: str, act: Callable[[], object]) -> None:
            def handle(request: Any) -> bytes:
                asked = act()
                return answer(request, **({"asked": asked} if asked else {}))

            app.route(path, methods=["POST"], endpoint=path)(handle)

        app.route("/", methods=["GET"])(lambda request: answer(request))

        @app.route("/agents", methods=["GET"])
        async def agents(request: Any) -> bytes:
            found = await self._kas.agents()
            request.setHeader(b"content-type", b"application/json")
            return json.dumps(found).encode() + b"\n"

        on("/drain", self._kas.drain)
        on("/undrain", self._kas.undrain)
        on("/rebalance", self._kas.rebalance)
        return QuietSite(app.resource(), self._reactor)
