"""
`kasctl drain` and `kasctl rebalance`: move agents to other kas without interruptions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

from kas.ctl.common import Ctl, command, counted, pid_option
from kas.ctl.control_client import ask
from tunnel.errors import ConfigurationError

__all__ = ["declare"]

#: Seconds between two checks of the progress.
_STEP = 0.5


def declare(group: click.Group) -> None:
    """Add the commands to *group*."""
    command(group, "drain")(_drain)
    command(group, "rebalance")(_rebalance)


@pid_option
@click.option("--undo", is_flag=True, help="Accept agents again.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds to wait until all agents have left; 0: do not wait.",
)
@click.option(
    "--wait-for-requests",
    is_flag=True,
    help="Also wait until no request is in progress.",
)
def _drain(
    ctl: Ctl, pid: int | None, undo: bool, timeout: float, wait_for_requests: bool
) -> None:
    """
    Move every agent of this kas to the others.

    kas reports that it is not ready, accepts no new agents, and asks its agents to
    connect elsewhere; it serves them until they do.  kas continues to run: stop it
    when it is empty, or return it to service with --undo.
    """
    path = ctl.control_socket(pid)
    if undo:
        with ctl.recording("kas.undrain", {}, path):
            ask(path, "POST", "/undrain")
        ctl.result({"draining": False}, "kas accepts agents again")
        return

    def left(found: dict[str, Any]) -> list[str]:
        kinds = ["agents", "requests"] if wait_for_requests else ["agents"]
        # The number of agents at a kas that does not respond is unknown.
        kinds.append("silent_workers")
        return [
            counted(found[kind], kind[:-1].replace("_", " "))
            for kind in kinds
            if found.get(kind)
        ]

    with ctl.recording("kas.drain", {}, path):
        progress = ask(path, "POST", "/drain")
    progress = _watch(ctl, progress, timeout, left, path)
    still = left(progress)
    requests = counted(progress["requests"], "request")
    if still and timeout:
        undoing = f"kasctl drain --undo{'' if pid is None else f' --pid {pid}'}"
        hint = "is there another kas that agents can reach?  " * bool(
            progress["agents"]
        )
        raise ConfigurationError(
            [
                f"{' and '.join(still)} still here after {timeout:g} s; {hint}This "
                "kas stays drained: wait longer, stop it, or return it to service "
                f"with '{undoing}'"
            ]
        )
    text = f"{' and '.join(still)} still here" if still else "all agents have left"
    ctl.result(progress, f"{text}; {requests} in progress")


def _watch(
    ctl: Ctl,
    progress: dict[str, Any],
    timeout: float,
    left: Callable[[dict[str, Any]], list[str]],
    path: Any,
) -> dict[str, Any]:
    end = time.monotonic() + timeout
    shown: list[str] = []
    while (still := left(progress)) and time.monotonic() < end:
        if still != shown:
            shown = still
            ctl.note(f"still here: {', '.join(still)}")
        time.sleep(_STEP)
        progress = ask(path, "GET", "/")
    return progress


@pid_option
def _rebalance(ctl: Ctl, pid: int | None) -> None:
    """
    Send agents above the mean of all kas to the others.

    kas does this by itself every few seconds if it has a tenth more than the mean.
    """
    path = ctl.control_socket(pid)
    with ctl.recording("kas.rebalance", {}, path):
        asked = ask(path, "POST", "/rebalance").get("asked", 0)
    text = f"{counted(asked, 'agent')} asked to move" if asked else "nothing to move"
    ctl.result({"asked": asked}, text)
