"""Ports that no other program of tests or benchmarks takes meanwhile."""

from __future__ import annotations

import itertools
import socket
from functools import cache

#: Below those that the system gives to clients: what is restarted needs its port back.
_FIRST, _LAST = 10_000, 32_500

#: Each process that runs tests has so many for itself, until it ends.
_SLICE = 500


def free_port() -> int:
    """One that nobody listens on now, and that no other process of tests is given."""
    for port in itertools.islice(_ports(), _SLICE):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise RuntimeError("no port is free")


@cache
def _ports() -> itertools.cycle[int]:
    for first in range(_FIRST, _LAST, _SLICE):
        claim = socket.socket(socket.AF_UNIX)
        try:
            # An abstract name belongs to a network namespace, as ports do.
            claim.bind(f"\0txkas-tests-ports-{first}")
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return itertools.cycle(range(first, first + _SLICE))
    raise RuntimeError("other runs of tests have all ports")


_claims: list[socket.socket] = []
