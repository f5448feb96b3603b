"""A part of a core for a process, by the kernel's control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Microseconds in which a process gets its part once: short, so that one that has used
#: it up waits no longer than a request takes.
PERIOD = 10_000

#: Control groups of version 1, and of version 2.
_V1, _V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")


class NoGroupsError(Exception):
    """This machine, or this user, can make none."""


@contextmanager
def of_a_core(pid: int, part: float) -> Iterator[None]:
    """
    Process *pid* gets *part* of one core until the end, with all its threads.

    :raises NoGroupsError: it cannot.
    """
    name = f"txkas-bench-{os.getpid()}-{pid}"
    quota = str(round(part * PERIOD))
    if (_V1 / "cpu.cfs_quota_us").exists():
        group, home = _V1 / name, _V1
        limits = {"cpu.cfs_period_us": str(PERIOD), "cpu.cfs_quota_us": quota}
    else:
        group, home = _V2 / name, _V2
        limits = {"cpu.max": f"{quota} {PERIOD}"}
    try:
        group.mkdir()
    except OSError as error:
        raise NoGroupsError(str(error)) from None
    try:
        try:
            for file, limit in limits.items():
                (group / file).write_text(limit)
            (group / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise NoGroupsError(str(error)) from None
        yield
        (home / "cgroup.procs").write_text(str(pid))
    finally:
        group.rmdir()
