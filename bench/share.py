"""A fraction of a core for a process, with the kernel's control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Microseconds of one period: short, so that a process that has used up its share waits
#: no longer than a request takes.
PERIOD = 10_000

#: Folders of control groups of version 1, and of version 2.
_V1, _V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")


class NoGroupsError(Exception):
    """Raised if this machine or this user cannot create control groups."""


@contextmanager
def of_a_core(pid: int, part: float) -> Iterator[None]:
    """
    Limit process *pid*, with all its threads, to *part* of one core within the context.

    :raises NoGroupsError: the limit cannot be set.
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
