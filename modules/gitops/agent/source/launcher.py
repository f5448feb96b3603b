"""
Launcher of a renderer with fewer privileges than agentk; a program that is never
imported.

    python -I -S launcher.py {"network": false, "cpu": 30, ...} PROGRAM ARGUMENT ...

The launcher sets the limits, because agentk runs threads and must not run code between
fork and exec.  Landlock, a part of the kernel, confines the program to its own files
(`confine`).
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import stat
import sys

#: Exit statuses of the launcher: no network namespace is available; Landlock exists but
#: fails.
NO_NAMESPACE, NOT_CONFINED = 77, 78

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2

#: Architecture in seccomp filters, and number of the system call socket(2), by machine.
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}

_AF_UNIX, _EACCES = 1, 13

#: Instructions of classic BPF: load a word, compare it, return.  Source:
#: linux/filter.h, seccomp.h.
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000

#: Offsets in a filter's input: system call, architecture, first argument.
_CALL, _MACHINE, _FIRST = 0, 4, 16


#: System calls, equal on all machines. Source: linux/landlock.h.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1

#: Access rights for files: each later version of Landlock adds some rights to the 13
#: rights of the first version.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_RIGHTS = ((1, (1 << 13) - 1), (2, 1 << 13), (3, _TRUNCATE), (5, _IOCTL))

#: Rights that apply to files as well as folders; all other rights apply only to
#: folders.
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL

#: First version that can block signals to other processes and connections to their
#: abstract sockets, and the bits of these scopes.
_SCOPES_SINCE, _SCOPES = 6, 3

#: Paths that every program may read and run, for scripts and libraries.
_PROGRAMS = ("/bin", "/lib", "/lib32", "/lib64", "/sbin", "/usr", "/etc/ld.so.cache")
_DEVICES = ("/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")


class _Ruleset(ctypes.Structure):
    """
    Argument of landlock_create_ruleset(2): the rights and scopes that a set of rules
    restricts.
    """

    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scopes", ctypes.c_uint64),
    )


class _Beneath(ctypes.Structure):
    """Argument of landlock_add_rule(2): the permitted rights at and below a path."""

    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("place", ctypes.c_int32))


class _Step(ctypes.Structure):
    """Instruction of a BPF program."""

    _fields_ = (
        ("code", ctypes.c_ushort),
        ("true", ctypes.c_ubyte),
        ("false", ctypes.c_ubyte),
        ("value", ctypes.c_uint),
    )


class _Filter(ctypes.Structure):
    """BPF program, as prctl(2) takes it."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.POINTER(_Step)))


def refuse_sockets(libc: ctypes.CDLL) -> bool:
    """
    Have the kernel refuse all sockets except Unix sockets.

    This is for systems without network namespaces, such as most containers, because the
    proxy settings do not affect requests to loopback addresses.

    :returns: whether the filter is active.
    """
    known = _MACHINES.get(os.uname().machine)
    if known is None:
        return False
    machine, socket = known
    # The last two values of a comparison are the number of steps to skip if it is true
    # or false.
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


def landlock_version() -> int:
    """Return the version of the kernel's Landlock; 0 if the kernel has no Landlock."""
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    return max(0, int(found))


def confine(libc: ctypes.CDLL, version: int, program: str, folder: str) -> bool:
    """
    Make the kernel deny this process access to all files that it does not need.

    The process may read and run *program* and the system's programs and libraries,
    read and write (but not run) files in *folder*, and use ``/dev/null``, ``/dev/zero``
    and the random devices.  Everything else is inaccessible, such as ``/proc``,
    ``/home``, ``/var`` and most of ``/etc``.

    :returns: whether the rules are active.
    """
    every = sum(bits for since, bits in _RIGHTS if since <= version)
    rules = _Ruleset(every, 0, _SCOPES if version >= _SCOPES_SINCE else 0)
    # Pass only the first field if possible, because older kernels know only this field.
    size = ctypes.sizeof(rules) if rules.scopes else ctypes.sizeof(ctypes.c_uint64)
    made = libc.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), 0)
    if made < 0:
        return False
    runs = _EXECUTE | _READ_FILE | _READ_DIR
    places = {
        folder: every & ~_EXECUTE,
        program: runs,
        **dict.fromkeys(_PROGRAMS, runs),
        **dict.fromkeys(_DEVICES, _READ_FILE | _WRITE_FILE),
    }
    for path, rights in places.items():
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_A_FILE
        rule = _Beneath(rights & every, place)
        added = libc.syscall(_ADD_RULE, made, _PATH_BENEATH, ctypes.byref(rule), 0)
        os.close(place)
        if added != 0:
            return False
    restricted = libc.syscall(_RESTRICT_SELF, made, 0)
    os.close(made)
    return bool(restricted == 0)


def main(arguments: list[str]) -> None:
    limits, program = json.loads(arguments[0]), arguments[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    os.setsid()
    # Have the kernel kill this process when agentk is killed.
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
    version = limits["landlock"]
    if version and not confine(libc, version, program[0], limits["folder"]):
        sys.exit(NOT_CONFINED)
    os.execv(program[0], program)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
