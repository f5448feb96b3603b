"""F17: Redis says what is not true any more: an older state, or what the dead left."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kas.directory.redis_layout import LEASE_MS
from kas.directory.redis_store import LEASE_INTERVAL
from tests.faults.record import Record
from tests.faults.redis_experiments import (
    CONNECTED,
    LONG,
    RATE,
    check,
    loaded,
    until_known,
)
from tests.faults.redis_stand import Stand
from tests.integration.processes import eventually
from tools.load.clients import Agents

# F17: a failover to an older state.


def _dump(stand: Stand) -> dict[bytes, tuple[int, bytes]]:
    """Everything in Redis, with the time that it has left."""
    return {
        key: (stand.redis("PTTL", key), stand.redis("DUMP", key))
        for key in stand.redis("KEYS", "*")
    }


def _restore(stand: Stand, content: dict[bytes, tuple[int, bytes]]) -> None:
    stand.redis("FLUSHALL")
    for key, (left, data) in content.items():
        stand.redis("RESTORE", key, max(left, 1), data)


def _is_at(stand: Stand, key: str, address: bytes) -> bool:
    """Redis knows this agent at one kas, and at no other."""
    values = stand.redis("HVALS", key)
    return bool(values) and all(address in one for one in values)


def _restart_from_disk(stand: Stand, content: object) -> None:
    stand.redis.stop()
    stand.redis.start()
    (stand.redis.folder / "dump.rdb").unlink()


def _save(stand: Stand) -> object:
    assert stand.redis("SAVE") == b"OK"
    return None


FAILOVERS: dict[str, tuple[Callable[[Stand], Any], Callable[[Stand, Any], None]]] = {
    "under the connections": (_dump, _restore),
    "that cuts them": (_save, _restart_from_disk),
}


@pytest.mark.parametrize("how", FAILOVERS)
def test_older_state(how: str, stand: Stand, record: Record, agents: Agents) -> None:
    """Agents that moved since then are found, though nobody asked for them before."""
    name = f"F17, {how}"
    begin = stand.unused(5)
    moving = range(begin, begin + 5)
    tokens = [stand.tokens[number - 1] for number in moving]
    agents.connect(tokens, stand.kas[0].agents)
    keys = [f"gitlab-kas:txkas1:agent:{number}" for number in moving]
    eventually(lambda: stand.redis("EXISTS", *keys) == len(keys), what="they are known")
    save, go_back = FAILOVERS[how]
    with stand.alive(), loaded(stand) as load:
        before = save(stand)
        agents.move(tokens, stand.kas[1].agents)
        address = str(stand.kas[1].private).encode()
        eventually(
            lambda: all(_is_at(stand, key, address) for key in keys),
            what="they are known to have moved",
        )
        refused = 'kas_gateway_requests_total{outcome="refused"}'
        wrong = stand.kas[0].metrics()[refused]
        load.window("fault")
        go_back(stand, before)
        seen = [stand.timed_get(stand.kas[2], number) for number in moving]
        wrong = stand.kas[0].metrics()[refused] - wrong
        until_known(stand, record, name)
        eventually(
            lambda: all(_is_at(stand, key, address) for key in keys),
            LEASE_INTERVAL * 1.1 + 2,
            "what is older is gone",
        )
        time.sleep(2)
        result = load.windows()
    limit = LEASE_INTERVAL * 1.1 + 2
    record.note(
        name,
        f"5 agents that moved: {[code for code, _ in seen]}, the first after "
        f"{seen[0][1]:.1f} s, asked in vain at the old kas: {wrong:.0f}",
        f"200 within {limit:g} s",
        all(code == 200 for code, _ in seen),
        in_time=all(took <= limit for _, took in seen),
    )
    if how == "under the connections":
        assert wrong, "the old state was not seen by anybody"
    check(record, name, result)


# Bugs 13 and 18: kas that are killed and come back at once.


def _fields(stand: Stand) -> int:
    """Connections that Redis knows, those of dead kas included."""
    keys = stand.redis("KEYS", "gitlab-kas:txkas1:agent:*")
    return sum(stand.redis("HLEN", key) for key in keys)


def test_killed_and_started_again(stand: Stand, record: Record, agents: Agents) -> None:
    """Who speaks with other kas notices nothing, and every view becomes right."""
    name, times = "bug 13, 18", 50 if LONG else 5
    first, *others = stand.kas
    with stand.load(stand.paths(1, CONNECTED), RATE, *others) as load:
        time.sleep(2)
        load.window("fault")
        for _ in range(times):
            assert first.process is not None
            first.process.kill()
            first.start()
            # Those that come back to it, or were not quick enough to leave.
            eventually(
                lambda: (
                    sum(kas.value("kas_agent_connections") for kas in stand.kas)
                    >= CONNECTED
                ),
                what="all agents are back",
                pause=0.1,
            )
        load.window("after")
        began = time.monotonic()
        time.sleep(2)
        seen = load.windows()
    for window, one in seen.items():
        record.note(
            name,
            f"{times} times, {window}: {one['requests']} requests, {one['failed']} "
            f"failed {one['failures'][:2] or ''}, longest {one['longest']:.1f} s",
            "0 failed",
            not one["failed"],
        )
    wrong = [
        (kas.number, number)
        for kas in stand.kas
        for number in range(1, CONNECTED + 1)
        if stand.get(kas, number) != 200
    ]
    record.note(name, f"not found afterwards: {wrong[:5]}", "none", not wrong)
    connected = sum(kas.value("kas_agent_connections") for kas in stand.kas)
    limit = LEASE_MS / 1000 + LEASE_INTERVAL * 1.1 * (2 + times / len(stand.kas))
    eventually(
        lambda: _fields(stand) == connected, limit + 30, "what dead kas left is gone"
    )
    took = time.monotonic() - began
    record.note(
        name,
        f"Redis has the {connected:.0f} connections that there are, and no other, "
        f"after {took:.0f} s",
        f"<= {limit:.0f} s",
        in_time=took <= limit,
    )
