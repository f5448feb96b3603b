"""Settings of the process that cost nothing and have a large effect."""

from __future__ import annotations

import ctypes
import gc
import resource
import time
from collections.abc import Callable
from typing import Any

# From malloc.h.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3

# From linux/prctl.h.
_PR_SET_DUMPABLE = 4

_MIB = 1024 * 1024

#: Number of open files that suffices for a small installation.  The usual soft limit of
#: 1,024 is for programs that call ``select``, which neither kas nor agentk does.
ENOUGH_FILES = 4096


def tune_allocator() -> bool:
    """
    Keep large blocks in the heap; return False if the C library is not glibc.

    glibc allocates each block of 128 KiB and more with a mapping of its own and unmaps
    it again, so that a flush of a busy tunnel causes page faults. This setting gave 2.2
    times the throughput of an agent that sends.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, 8 * _MIB)
        and mallopt(_M_TRIM_THRESHOLD, 32 * _MIB)
        and mallopt(_M_TOP_PAD, 1 * _MIB)
    )


def hide_memory() -> bool:
    """
    Prevent other processes of the same user from reading this one: its memory,
    environment and files.

    ``/proc/PID/fd``, ``environ`` and ``mem`` then belong to root, and no core is
    dumped. Return False if the kernel does not support it.
    """
    try:
        prctl = ctypes.CDLL(None).prctl
    except (AttributeError, OSError):
        return False
    return bool(prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)


def allow_many_files(enough: int = ENOUGH_FILES) -> str | None:
    """
    Raise the soft limit of open files to the hard limit.

    :returns: a warning if the hard limit is lower than *enough*.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            # The kernel does not permit this number (fs.nr_open was lowered in the
            # meantime).
            pass
    if soft == resource.RLIM_INFINITY or soft >= enough:
        return None
    return (
        f"this process may open only {soft} files, and each connection needs one: "
        f"raise the hard limit to at least {enough} (LimitNOFILE= of systemd, "
        "`ulimit -Hn`)"
    )


def keep_time(reactor: Any, steady: Callable[[], float] = time.monotonic) -> None:
    """
    Make the timers of *reactor* use a clock that is never set.

    Twisted's clock is the time of day: when it is set back by an hour, every timer
    stops for that long, including leases and pings; when it is set forward, all
    timeouts fire. After this call, ``reactor.seconds`` is *steady*, and not the time of
    day.
    """
    ahead = reactor.seconds() - steady()
    reactor.seconds = steady
    for call in reactor.getDelayedCalls():
        call.seconds = steady
        call.delay(-ahead)


def settle() -> None:
    """
    Exempt the objects that exist after the start from garbage collection.

    A request creates about fifty objects that reference counting alone frees, so the
    usual threshold of 700 would run a useless collection every dozen requests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
