"""``kasctl session``: the sessions of users of the web page."""

from __future__ import annotations

import time
from typing import Any

import click

from kas.ctl.calls import Callee, callee_options
from kas.ctl.common import Ctl, command, counted, printable

__all__ = ["declare"]

_SERVICE = "txkas.web_page.v1.PageSessions"

#: Timeout in seconds: kas changes its store once for each session.
TIMEOUT = 60.0

_HEADINGS = ["ID", "USER", "SIGNED IN BY", "AGE", "LAST USED", "FROM", "BROWSER"]

#: Maximum characters of the name of a browser in a table.
_BROWSER = 40


def declare(group: click.Group) -> None:
    """Add the commands to *group*."""
    group.add_command(session)


@click.group()
def session() -> None:
    """Sessions of users of the web page."""


@command(session, "list")
@click.option("--user", default="", help="Only sessions of this user.")
@callee_options
def _list(ctl: Ctl, callee: Callee, user: str) -> None:
    """
    List the sessions at all kas, the most recently used first.

    A session ends 8 hours after its last use, and 24 hours after sign-in.
    """
    answer = callee.call(f"{_SERVICE}/ListSessions", {"user": user}, TIMEOUT)
    now = time.time()
    rows = [_row(one, now) for one in answer.get("sessions", [])]
    ctl.table(answer.get("sessions", []), _HEADINGS, rows)


@command(session, "end")
@click.argument("ids", nargs=-1)
@click.option("--user", default="", help="End all sessions of this user.")
@click.option("--all", "every", is_flag=True, help="End the sessions of all users.")
@callee_options
def _end(
    ctl: Ctl, callee: Callee, ids: tuple[str, ...], user: str, every: bool
) -> None:
    """
    End sessions at all kas, with their open connections.

    The user's credential stays valid: 'kasctl user revoke' ends that, and its sessions
    as well.
    """
    if bool(ids) + bool(user) + every != 1:
        raise click.UsageError("name either ids, or --user, or --all")
    request = {"ids": list(ids), "user": user, "all": every}
    answer = callee.call(f"{_SERVICE}/EndSessions", request, TIMEOUT)
    ended = answer.get("sessions", [])
    ctl.result(answer, f"ended {counted(len(ended), 'session')}")


def _row(one: dict[str, Any], now: float) -> list[str]:
    used = _lasting(now - one.get("usedAt", now))
    return [
        one.get("id", ""),
        printable(one.get("owner", "")),
        printable(one.get("method", "")),
        _lasting(now - one.get("createdAt", now)),
        f"{used} ago",
        one.get("address", ""),
        printable(one.get("program", ""))[:_BROWSER],
    ]


def _lasting(seconds: float) -> str:
    minutes = max(0, round(seconds / 60))
    return f"{minutes // 60}h{minutes % 60:02}m" if minutes >= 60 else f"{minutes}m"
