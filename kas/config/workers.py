"""The number of processes that share the work of one kas."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Annotated

from tunnel.config.texts import Text

__all__ = [
    "EXPECTED",
    "MAX_WORKERS",
    "Workers",
    "available_cores",
    "parse_workers",
]

#: Maximum number of workers of one kas.  Each worker watches all other workers; a
#: machine with more cores can run several kas that share a Redis.
MAX_WORKERS = 64

#: File with the CPU limit of systemd and Kubernetes (cgroup v2): microseconds of CPU
#: time in a period, or ``max``, and the period.
_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def available_cores(limit: Path = _LIMIT) -> int:
    """
    Return the number of cores that this process may use, by its affinity and its CPU
    limit.
    """
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = limit.read_text().split()
        if quota != "max":
            cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError, ZeroDivisionError):
        pass  # no cgroup v2, or no limit in it
    return max(1, min(cores, MAX_WORKERS))


def parse_workers(text: str) -> int:
    """
    Return the number of workers in a text such as ``auto``, ``1`` or ``4``.

    :raises ValueError: if the text is not a number of workers.
    """
    if text == "auto":
        return available_cores()
    if not (text.isascii() and text.isdecimal()) or not 0 < len(text) < 9:
        raise ValueError
    if not 0 < int(text) <= MAX_WORKERS:
        raise ValueError
    return int(text)


#: Description of valid input for `parse_workers`, for messages.
EXPECTED = f"auto, or a number from 1 to {MAX_WORKERS}"

#: Type of the setting for the number of processes that share the work of one kas.
Workers = Annotated[int, Text(parse_workers, EXPECTED)]
