"""Paths that the kernel itself makes bad, where it lets us: loopback, by port."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

#: Bytes that wait where there is a rate; packets of the loopback have up to 64 KiB.
QUEUE = 128 * 1024

_numbers = itertools.count(16)


def _run(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True).returncode == 0


def _drop(action: str, direction: str, port: int, probability: float) -> bool:
    match = ["-m", "statistic", "--mode", "random", "--probability", str(probability)]
    rule = ["INPUT", "-i", "lo", "-p", "tcp", direction, str(port), *match]
    return _run("iptables", "-w", action, *rule, "-j", "DROP")


@contextmanager
def losing(port: int, probability: float) -> Iterator[None]:
    """
    Lose that part of the packets to and from *port*.

    :raises RuntimeError: the kernel does not; see `can_lose`.
    """
    with ExitStack() as stack:
        for direction in ("--dport", "--sport"):
            if not _drop("-I", direction, port, probability):
                raise RuntimeError("iptables takes no rule")
            stack.callback(_drop, "-D", direction, port, probability)
        yield


@cache
def can_lose() -> bool:
    """Whether iptables is here and may be used."""
    return _drop("-I", "--dport", 1, 0.0) and _drop("-D", "--dport", 1, 0.0)


@contextmanager
def _shaping() -> Iterator[None]:
    """A queue on the loopback that has a class for what is to be slow."""
    root = ("tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb")
    if not _run(*root, "default", "0"):
        raise RuntimeError("tc takes no queue")
    try:
        yield
    finally:
        _run("tc", "qdisc", "del", "dev", "lo", "root")


def _slow(direction: str, port: int, rate: float) -> bool:
    number = f"{next(_numbers):x}"
    speed = f"{round(rate * 8)}bit"
    lo = ("dev", "lo")
    return (
        _run(
            *("tc", "class", "add", *lo, "parent", "1:", "classid", f"1:{number}"),
            *("htb", "rate", speed, "burst", "64k", "cburst", "64k"),
        )
        and _run(
            *("tc", "qdisc", "add", *lo, "parent", f"1:{number}"),
            *("bfifo", "limit", str(QUEUE)),
        )
        and _run(
            *("tc", "filter", "add", *lo, "parent", "1:", "protocol", "ip"),
            *("u32", "match", "ip", direction, str(port), "0xffff"),
            *("flowid", f"1:{number}"),
        )
    )


@contextmanager
def slow(rates: dict[int, float]) -> Iterator[None]:
    """
    Let ports have so many bytes a second, each way: a queue that is full of what goes
    one way loses nothing of what goes the other.

    :raises RuntimeError: the kernel does not; see `can_slow`.
    """
    with _shaping():
        for port, rate in rates.items():
            for direction in ("sport", "dport"):
                if not _slow(direction, port, rate):
                    raise RuntimeError("tc takes no class")
        yield


@cache
def can_slow() -> bool:
    """Whether tc is here, may be used, and the kernel has what it takes."""
    try:
        with slow({1: 1e6}):
            return True
    except RuntimeError:
        return False
