"""`kasctl drain` and `kasctl rebalance`: agents go to other kas, and nobody notices."""

from __future__ import annotations

import http.client
import json
import socket
import time
from pathlib import Path
from typing import Any

import click

from kas.control import PREFIX
from kas.ctl.common import Ctl, command
from kas.state import StateDirectory
from tunnel.errors import ConfigurationError

__all__ = ["declare"]

#: Seconds for one answer: kas does nothing long for it.
_TIMEOUT = 10.0

#: Seconds between two looks at how far it is.
_STEP = 0.5


class _Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("kas", timeout=_TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_TIMEOUT)
        self.sock.connect(str(self._path))


def _ask(path: Path, method: str, what: str) -> dict[str, Any]:
    connection = _Connection(path)
    try:
        connection.request(method, what)
        answer = connection.getresponse()
        found = json.loads(answer.read())
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise ConfigurationError(
            [f"{path}: kas does not answer ({error}); does it still run?"]
        ) from None
    finally:
        connection.close()
    if answer.status != 200 or not isinstance(found, dict):
        raise ConfigurationError([f"{path}: kas answered {answer.status}"])
    return found


def _socket(state: StateDirectory, pid: int | None) -> Path:
    """The socket of the one kas that runs here, or of the one that is named."""
    alive = {}
    for path in sorted(state.path.glob(f"{PREFIX}*.sock")):
        try:
            _ask(path, "GET", "/")
        except ConfigurationError:
            continue  # left by one that died
        alive[path.stem.removeprefix(PREFIX)] = path
    if pid is not None:
        if str(pid) not in alive:
            raise ConfigurationError([f"{state.path}: no kas with the number {pid}"])
        return alive[str(pid)]
    if not alive:
        raise ConfigurationError(
            [
                f"{state.path}: no kas runs with this state directory; name its own "
                "with --state-directory"
            ]
        )
    if len(alive) > 1:
        raise ConfigurationError(
            [
                f"{state.path}: several kas share it: {', '.join(alive)}; name one "
                "with --pid"
            ]
        )
    return next(iter(alive.values()))


def declare(group: click.Group) -> None:
    """Add the commands to *group*."""
    pid_option = click.option(
        "--pid", type=int, help="Which kas, where several share the state directory."
    )

    @command(group, "drain")
    @pid_option
    @click.option("--undo", is_flag=True, help="Take agents again.")
    @click.option(
        "--timeout",
        type=click.FloatRange(min=0),
        default=60.0,
        show_default=True,
        help="Seconds to wait until all agents have left; 0: do not wait.",
    )
    def drain(ctl: Ctl, pid: int | None, undo: bool, timeout: float) -> None:
        """
        Send every agent of this kas to the others.

        kas says that it is not ready, takes no new agents, and asks those that are here
        to connect elsewhere; it serves them until they have.  It goes on running:
        stop it when it is empty, or take it into service again with --undo.
        """
        path = _socket(ctl.state(), pid)
        if undo:
            _ask(path, "POST", "/undrain")
            ctl.result({"draining": False}, "kas takes agents again")
            return
        progress = _ask(path, "POST", "/drain")
        end = time.monotonic() + timeout
        shown = -1
        while progress["agents"] and time.monotonic() < end:
            if progress["agents"] != shown:
                shown = progress["agents"]
                ctl.note(f"{shown} agents are still here")
            time.sleep(_STEP)
            progress = _ask(path, "GET", "/")
        if progress["agents"] and timeout:
            raise ConfigurationError(
                [
                    f"{progress['agents']} agents are still here after {timeout:g} s; "
                    "is there another kas that they can reach?"
                ]
            )
        left = f"{progress['requests']} requests are under way"
        ctl.result(progress, f"all agents have left; {left}")

    @command(group, "rebalance")
    @pid_option
    def rebalance(ctl: Ctl, pid: int | None) -> None:
        """
        Send the agents that are above the mean of all kas to the others, now.

        kas does it by itself every few seconds where it has a tenth too many.
        """
        asked = _ask(_socket(ctl.state(), pid), "POST", "/rebalance").get("asked", 0)
        text = f"{asked} agents were asked to move" if asked else "nothing to move"
        ctl.result({"asked": asked}, text)
