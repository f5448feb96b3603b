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
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2

#: Of each machine the number that system calls of its own carry, and that of socket(2).
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}

_AF_UNIX, _EACCES = 1, 13

#: Classic BPF: load a word, compare it, return.  Source: linux/filter.h, seccomp.h.
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000

#: Where in what a filter is given these are.
_CALL, _MACHINE, _FIRST = 0, 4, 16


class _Step(ctypes.Structure):
    """One instruction."""

    _fields_ = (
        ("code", ctypes.c_ushort),
        ("true", ctypes.c_ubyte),
        ("false", ctypes.c_ubyte),
        ("value", ctypes.c_uint),
    )


class _Filter(ctypes.Structure):
    """A program of them."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.POINTER(_Step)))


def refuse_sockets(libc: ctypes.CDLL) -> bool:
    """
    Have the kernel refuse all sockets but those that are files.

    For a kernel that gives no network namespace, as to most containers: what a program
    fetches from a loopback address goes through no proxy.

    :return: whether it does from now on.
    """
    known = _MACHINES.get(os.uname().machine)
    if known is None:
        return False
    machine, socket = known
    # After a comparison so many steps are left out: where it is true, and where not.
    made = (
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, machine),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _CALL),
        (_EQUAL, 0, 2, socket),
        (_LOAD, 0, 0, _FIRST),
        (_EQUAL, 0, 1, _AF_UNIX),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERROR | _EACCES),
    )
    steps = (_Step * len(made))(*(_Step(*one) for one in made))
    whole = _Filter(len(steps), steps)
    done = libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(whole), 0, 0)
    return bool(done == 0)


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
    else:
        refuse_sockets(libc)
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
