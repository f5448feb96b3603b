"""F21: one kas alone loses its way to Redis, for longer than its lease."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from kas.directory.redis_layout import LEASE_MS
from kas.redis.client import LONGEST_PAUSE
from tests.faults.path import Path
from tests.faults.record import Record
from tests.faults.redis_stand import Stand
from tests.integration.processes import eventually
from tools.load.clients import Agents

LONG = os.environ.get("TXKAS_FAULTS") == "long"

#: Seconds without a way: beyond the lease, and the time in which others notice.
CUT_OFF = 600 if LONG else 40

#: Agents of the kas that is cut off that are always asked for, and at another kas.
BUSY, ELSEWHERE = 6, 3

#: At the same kas, and nobody asks for them before; one comes only then.
UNKNOWN, NEW = 10, 11

#: Requests a second.
RATE = 60.0

_FAULTS = ("refused", "frozen")


@pytest.fixture(scope="module")
def path() -> Iterator[Path]:
    """Between the second kas and Redis; its target is set later."""
    path = Path([])
    yield path
    path.close()


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory, path: Path) -> Iterator[Stand]:
    """Three kas, one of them with a path of its own."""
    stand = Stand(tmp_path_factory.mktemp("cut-off"), NEW + 1)
    path.targets.append(stand.redis.port)
    stand.kas[1].redis_address = f"127.0.0.1:{path.port}"
    with stand:
        yield stand


@pytest.fixture(scope="module")
def agents(stand: Stand) -> Iterator[Agents]:
    """Most of them at the kas that will be cut off."""
    with stand.agents() as agents:
        agents.connect(stand.tokens[:BUSY], stand.kas[1].agents)
        agents.connect(stand.tokens[BUSY : BUSY + ELSEWHERE], stand.kas[0].agents)
        agents.connect([stand.tokens[UNKNOWN - 1]], stand.kas[1].agents)
        yield agents


@pytest.mark.parametrize("how", _FAULTS)
def test_cut_off(
    how: str, stand: Stand, path: Path, agents: Agents, record: Record
) -> None:
    """Its agents are found from everywhere, and those of others from there."""
    name = f"F21, {how}"
    # The second time, somebody asked for the others already.
    unknown, new = (UNKNOWN, NEW) if how == _FAULTS[0] else (NEW, NEW + 1)
    made = agents.made
    lost, *others = stand.kas[1], stand.kas[0], stand.kas[2]
    with (
        stand.alive(),
        stand.load(stand.paths(1, BUSY + ELSEWHERE), RATE) as load,
    ):
        load.window("before")
        time.sleep(3)
        load.window("fault")
        path.refuse = True
        if how == "frozen":
            path.freeze()
        else:
            path.cut()
        began = time.monotonic()
        eventually(lambda: not lost.value("kas_redis_up"), what="it notices")
        agents.connect([stand.tokens[new - 1]], lost.agents)
        time.sleep(max(0.0, CUT_OFF - (time.monotonic() - began)))
        alive = stand.redis("KEYS", "gitlab-kas:txkas1:kas:*")
        seen = {
            "never asked for": [stand.timed_get(kas, unknown) for kas in others],
            "that came meanwhile": [stand.timed_get(kas, new) for kas in others],
        }
        load.window("after")
        path.refuse = False
        healed = stand.until_up(LONGEST_PAUSE + 5)
        # Nothing is left of the time without a way.
        eventually(lambda: stand.known() >= new, what="its agents are in Redis again")
        time.sleep(2)
        windows = load.windows()
    record.note(
        name,
        f"{len(alive)} leases in Redis after {CUT_OFF} s",
        f"2: that of the third was over after {LEASE_MS / 1000:.0f} s",
        len(alive) == 2,
    )
    for window, one in windows.items():
        record.note(
            name,
            f"{window}: {one['requests']} requests through all kas, {one['failed']} "
            f"failed {one['failures'][:2] or ''}, longest {one['longest']:.1f} s",
            "0 failed",
            not one["failed"],
        )
    for what, answers in seen.items():
        record.note(
            name,
            f"an agent {what}: "
            + ", ".join(f"{code} in {took:.2f} s" for code, took in answers),
            "200 within 3 s",
            all(code == 200 for code, _ in answers),
            in_time=all(took < 3 for _, took in answers),
        )
    record.note(
        name,
        f"in use {healed:.1f} s after there is a way; {agents.made - made - 1} agents "
        "connected again",
        "none",
        agents.made == made + 1,
    )
