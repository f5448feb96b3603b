"""
What a running kas says of itself in the state directory, for `kasctl`: its addresses.

The file is there from when the listeners are open until kas stops.  One that a crash
left behind is recognised by its process, which is gone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import attrs
from twisted.logger import Logger

from kas.state import StateDirectory
from tunnel.listening import Opened

__all__ = [
    "AGENTS",
    "FILE_NAME",
    "KUBERNETES_API",
    "OBSERVABILITY",
    "Running",
    "forget",
    "look",
    "tell",
]

FILE_NAME = "running.json"

_log = Logger()

#: What kas listens for.
AGENTS = "agents"
OBSERVABILITY = "health and metrics"
KUBERNETES_API = "kubernetes_api"

# "every address", for whom the own machine has its own
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104


@attrs.frozen
class Running:
    """A kas that runs."""

    pid: int
    listeners: tuple[Opened, ...]

    def find(self, what: str) -> Opened | None:
        """The first listener for *what*, with an address to connect to from here."""
        for one in self.listeners:
            if one.what == what:
                return attrs.evolve(one, address=_reachable(one.address))
        return None

    def url(self, what: str) -> str | None:
        """That as a URL; None when there is none, or a unix socket."""
        found = self.find(what)
        if found is None or found.address.startswith("/"):
            return None
        scheme = "http" if found.certificate_file is None else "https"
        return f"{scheme}://{found.address}"


def _reachable(address: str) -> str:
    host, colon, port = address.rpartition(":")
    return f"{_EVERYWHERE.get(host, host)}{colon}{port}"


def tell(state: StateDirectory, listeners: Sequence[Opened]) -> None:
    """Write down what this process listens on; a state that is read-only may be so."""
    content = {
        "pid": os.getpid(),
        "listeners": [
            {
                "for": one.what,
                "address": one.address,
                "certificate_file": one.certificate_file and str(one.certificate_file),
            }
            for one in listeners
        ],
    }
    try:
        state.write(FILE_NAME, json.dumps(content, indent=1).encode() + b"\n")
    except OSError as error:
        _log.warn(
            "{file} cannot be written ({reason}): kasctl will not know our addresses",
            file=str(state.file(FILE_NAME)),
            reason=error.strerror,
        )


def forget(state: StateDirectory) -> None:
    """Remove what this process wrote down, and not what another one did."""
    found = _read(state)
    if found is not None and found.pid == os.getpid():
        try:
            state.file(FILE_NAME).unlink(missing_ok=True)
        except OSError:
            _log.failure("while removing {file}", file=str(state.file(FILE_NAME)))


def look(state: StateDirectory) -> Running | None:
    """What the kas that runs says, or None when none does."""
    found = _read(state)
    if found is None:
        return None
    try:
        os.kill(found.pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # somebody else's, and alive
    return found


def _read(state: StateDirectory) -> Running | None:
    # Nobody but programs writes it, and nothing depends on it: no reason to complain.
    try:
        content = json.loads(state.read(FILE_NAME) or b"")
        pid = int(content["pid"])
        listeners = tuple(
            Opened(
                str(one["for"]),
                str(one["address"]),
                Path(one["certificate_file"]) if one["certificate_file"] else None,
            )
            for one in content["listeners"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Running(pid, listeners) if pid > 0 else None
