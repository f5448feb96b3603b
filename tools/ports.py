"""Ports that other tests and benchmarks do not use at the same time."""

from __future__ import annotations

import itertools
import socket
from functools import cache

#: Range of ports, below the ports that the system gives to clients, because a restarted
#: program needs its old port.
_FIRST, _LAST = 10_000, 32_500

#: Number of ports that each test process reserves until it ends.
_SLICE = 500


def free_port() -> int:
    """Return a port without a listener, which no other test process gets."""
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
            # An abstract socket name belongs to a network namespace, as ports do.
            claim.bind(f"\0txkas-tests-ports-{first}")
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return itertools.cycle(range(first, first + _SLICE))
    raise RuntimeError("other runs of tests have all ports")


_claims: list[socket.socket] = []
