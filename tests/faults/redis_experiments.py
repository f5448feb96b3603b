"""Requests while something happens to Redis, and what must hold meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kas.directory.redis_store import LEASE_INTERVAL
from kas.redis.client import LONGEST_PAUSE
from tests.faults.record import Record
from tests.faults.redis_stand import Stand
from tests.integration.processes import eventually
from tools.load.clients import Load

LONG = os.environ.get("TXKAS_FAULTS") == "long"

#: Agents that are connected, evenly over the three kas, and some that are not yet.
CONNECTED = 60
SPARE = 40

#: Requests a second, while something happens to Redis.
RATE = 150.0

#: Seconds of the same load without any fault, to compare with.
QUIET = 3.0

#: Seconds in which Redis is in use again once it works: the longest pause between two
#: attempts, and the answer.
HEAL = LONGEST_PAUSE + 5

#: Lines that one kas may log for one outage.
LOG_LINES = 30


@contextmanager
def loaded(stand: Stand, rate: float = RATE) -> Iterator[Load]:
    """Requests to all agents through all kas, which know where they are by then."""
    with stand.load(stand.paths(1, CONNECTED), rate) as load:
        time.sleep(len(stand.kas) * CONNECTED / rate + 1)
        load.window("quiet")
        time.sleep(QUIET)
        yield load


def check(
    record: Record, experiment: str, seen: dict[str, Any], factor: float = 2.0
) -> None:
    """No request failed, and none of those in the fault noticed it."""
    for name, window in seen.items():
        record.note(
            experiment,
            f"{name}: {window['requests']} requests, {window['failed']} failed "
            f"{window['failures'][:2] or ''}",
            "0 failed",
            not window["failed"],
        )
    for part, spare in (("p50", 0.005), ("p99", 0.05)):
        quiet, fault = seen["quiet"][part], seen["fault"][part]
        record.note(
            experiment,
            f"{part} {fault * 1000:.1f} ms, {quiet * 1000:.1f} ms before, "
            f"longest {seen['fault']['longest'] * 1000:.0f} ms",
            f"<= {factor:g} times, or {spare * 1000:.0f} ms more",
            in_time=fault <= max(quiet * factor, quiet + spare),
        )


def check_log(record: Record, experiment: str, lines: list[int]) -> None:
    """The rate of the log is bounded."""
    record.note(
        experiment,
        f"lines logged by each kas: {lines}",
        f"<= {LOG_LINES} in an outage",
        max(lines) <= LOG_LINES,
    )


def until_known(stand: Stand, record: Record, name: str) -> None:
    """All agents that are connected are in Redis, before long."""
    began = time.monotonic()
    connected = sum(kas.value("kas_connected_agents") for kas in stand.kas)
    limit = LEASE_INTERVAL * 1.1 + 2
    eventually(lambda: stand.known() >= connected, what="all agents are in Redis again")
    took = time.monotonic() - began
    record.note(
        name,
        f"all {connected:.0f} agents in Redis after {took:.1f} s",
        f"<= {limit:g} s",
        in_time=took <= limit,
    )
