"""
Starts a renderer with less than agentk has; a program of its own, and imported nowhere.

    python -I -S launcher.py {"network": false, "cpu": 30, ...} PROGRAM ARGUMENT ...

The limits are set here and not between fork and exec in agentk, where threads run.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys

#: Exit status: the kernel gives no network namespace.
NO_NAMESPACE = 77

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38


def main(arguments: list[str]) -> None:
    limits, program = json.loads(arguments[0]), arguments[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    os.setsid()
    # Where agentk is killed this ends, too.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if not limits["network"]:
        flags = _CLONE_NEWNET if os.geteuid() == 0 else _CLONE_NEWUSER | _CLONE_NEWNET
        if libc.unshare(flags) != 0:
            sys.exit(NO_NAMESPACE)
    for number, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, limits["cpu"]),
        (resource.RLIMIT_DATA, limits["memory"]),
        (resource.RLIMIT_FSIZE, limits["file"]),
        (resource.RLIMIT_NOFILE, limits["files"]),
    ):
        resource.setrlimit(number, (most, most))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.execv(program[0], program)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
