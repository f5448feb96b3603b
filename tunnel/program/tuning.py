"""Settings of the process that cost nothing and matter much."""

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

#: Open files that suffice for a small installation.  The usual soft limit of 1,024 is
#: for programs that call ``select``, which neither kas nor agentk does.
ENOUGH_FILES = 4096


def tune_allocator() -> bool:
    """
    Keep large blocks in the heap; False where the C library is another one.

    glibc gives each block of 128 KiB and more a mapping of its own and takes it away
    again, so a flush of a busy tunnel is paid for in page faults: measured 2.2 times
    the throughput of an agent that sends.
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
    Close this process to others of its user: its memory, environment and files.

    ``/proc/PID/fd``, ``environ`` and ``mem`` are root's from now on, and no core is
    dumped.  False where the kernel is another one.
    """
    try:
        prctl = ctypes.CDLL(None).prctl
    except (AttributeError, OSError):
        return False
    return bool(prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)


def allow_many_files(enough: int = ENOUGH_FILES) -> str | None:
    """
    Raise the soft limit of open files to the hard one.

    :return: a warning where that is fewer than *enough*.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            # The kernel allows no process so many (fs.nr_open was lowered since).
            pass
    if soft == resource.RLIM_INFINITY or soft >= enough:
        return None
    return (
        f"this process may open only {soft} files, and each connection takes one: "
        f"raise the hard limit to {enough} at least (LimitNOFILE= of systemd, "
        "`ulimit -Hn`)"
    )


def keep_time(reactor: Any, steady: Callable[[], float] = time.monotonic) -> None:
    """
    Let the timers of *reactor* run by a clock that is never set.

    Its own is the time of day: set back by an hour, it stops every timer for that long,
    leases and pings among them; set forward, it ends whatever waits.  From here on its
    ``seconds`` is *steady* itself and no time of day: a request asks it ten times.
    """
    ahead = reactor.seconds() - steady()
    reactor.seconds = steady
    for call in reactor.getDelayedCalls():
        call.seconds = steady
        call.delay(-ahead)


def settle() -> None:
    """
    After the start: what is there stays, and the collector need not look at it.

    A request makes some fifty objects that reference counting alone frees, so the usual
    threshold of 700 runs a collection every dozen requests, for nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
