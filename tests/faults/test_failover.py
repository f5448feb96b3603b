"""A kas with many agents dies: they come back to the others, and not all at once."""

from __future__ import annotations

import os

from bench.fleet import fail_over
from tests.faults.record import Record
from tests.integration import needs

#: Agents; the long form has as many as one kas is made for.
COUNT = 10_000 if os.environ.get("TXKAS_FAULTS") == "long" else 1_000


def test_many_agents_come_back(record: Record) -> None:
    needs.program("redis-server", "apt-get install redis-server")
    found = fail_over(COUNT)
    what = f"F19, {COUNT} agents of a killed kas"
    record.note(
        what,
        f"back after {found.seconds:.1f} s",
        "<= 60 s",
        in_time=found.seconds <= 60,
    )
    each = found.redis_commands / COUNT
    record.note(what, f"{each:.1f} Redis commands for each", "<= 8", each <= 8)
    record.note(
        what,
        f"for each {found.cpu_us:.0f} us of CPU, {found.memory_kib:.1f} KiB of both",
        "for information",
        True,
    )
