"""F15-F18 and F20: Redis dies, forgets, fails over, stalls, refuses; what it costs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kas.directory.redis_store import LEASE_INTERVAL
from kas.redis.client import LONGEST_PAUSE
from tests.faults.record import Record
from tests.faults.redis_clients import Agents, Churn, Load
from tests.faults.redis_stand import Stand, commands, since
from tests.integration.processes import eventually

pytestmark = pytest.mark.integration

LONG = os.environ.get("TXKAS_FAULTS") == "long"

#: Agents that are connected, evenly over the three kas, and some that are not yet.
CONNECTED = 60
SPARE = 20

#: Requests a second, while something happens to Redis.
RATE = 150.0

#: Seconds of the same load without any fault, to compare with.
QUIET = 5.0

#: Seconds in which Redis is in use again once it works: the longest pause between two
#: attempts, and the answer.
HEAL = LONGEST_PAUSE + 5

#: Lines that one kas may log for one outage.
LOG_LINES = 30


@pytest.fixture(scope="module")
def record() -> Iterator[Record]:
    """For every figure; kept in ``build/faults.json`` at the end."""
    record = Record()
    yield record
    if record.figures:
        print(record.table())
        record.write()


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """Three kas around one Redis."""
    with Stand(tmp_path_factory.mktemp("redis-faults"), CONNECTED + SPARE) as stand:
        yield stand


@pytest.fixture(scope="module")
def agents(stand: Stand) -> Iterator[Agents]:
    """A third of `CONNECTED` at each of the kas."""
    with stand.agents() as agents:
        for number, kas in enumerate(stand.kas):
            agents.connect(stand.tokens[number:CONNECTED:3], kas.agents)
        yield agents


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
            fault <= max(quiet * factor, quiet + spare),
        )


def check_log(record: Record, experiment: str, lines: list[int]) -> None:
    """The rate of the log is bounded."""
    record.note(
        experiment,
        f"lines logged by each kas: {lines}",
        f"<= {LOG_LINES} in an outage",
        max(lines) <= LOG_LINES,
    )


# F20: crowds for an agent that is not there.


def test_absent_agent(stand: Stand, record: Record) -> None:
    """However many ask for it, Redis is asked once per interval, and not for each."""
    number = CONNECTED + 1
    (path,) = stand.paths(number, number)
    seconds = 60 if LONG else 8
    ports = [kas.proxy for kas in stand.kas]
    before = commands(stand.redis)
    lookups = [kas.value("kas_directory_lookups_total") for kas in stand.kas]
    with stand.alive(), Churn(ports, path, stand.user, 2000) as churn:
        began = time.monotonic()
        seen = churn.run(seconds, 0.1)
        took = time.monotonic() - began
        spent = since(stand.redis, before)
        looked = [
            kas.value("kas_directory_lookups_total") - one
            for kas, one in zip(stand.kas, lookups, strict=True)
        ]
    rate = seen["sent"] / took
    record.note(
        "F20",
        f"{seen['sent']} requests, {rate:.0f} a second, for an absent agent in "
        f"{took:.0f} s; answered {seen['answered']}, refused {seen['refused']}",
        "all wait until their client leaves",
        not seen["answered"] and not seen["refused"] and rate > 200,
    )
    most = 2 + took / 30
    record.note(
        "F20",
        f"look-ups of each kas: {[int(one) for one in looked]}",
        f"<= {most:.0f}: one, and one more every 30 s",
        max(looked) <= most and min(looked) >= 1,
    )
    record.note(
        "F20",
        f"HGETALL {spent.get('hgetall', 0)}, all commands "
        f"{sum(spent.values()) / took:.1f} a second: {spent}",
        "HGETALL as the look-ups, all <= 20 a second",
        spent.get("hgetall", 0) == sum(looked) and sum(spent.values()) <= 20 * took,
    )
    eventually(
        lambda: all(not kas.value("kas_waiting_streams") for kas in stand.kas),
        10,
        "nobody waits any more",
    )


def test_a_thousand_wait(stand: Stand, record: Record, agents: Agents) -> None:
    """They share one look-up, and the news of the connection wake them all."""
    number = CONNECTED + 2
    (path,) = stand.paths(number, number)
    before = commands(stand.redis)
    with stand.alive(), stand.load([path], 300) as load:
        load.window("fault")
        time.sleep(3.5)
        spent = since(stand.redis, before).get("hgetall", 0)
        began = time.monotonic()
        agents.connect([stand.tokens[number - 1]], stand.kas[2].agents)
        load.window("after")
        seen = load.stop()
        took = time.monotonic() - began
    waited = seen["fault"]
    record.note(
        "bug 23",
        f"{waited['requests']} requests waited, {waited['failed']} failed "
        f"{waited['failures'][:2] or ''}, {spent} look-ups at 3 kas, all answered "
        f"{took:.1f} s after the agent came",
        "0 failed, <= 2 look-ups of each, <= 5 s",
        not waited["failed"] and waited["requests"] > 900 and spent <= 6 and took <= 5,
    )


# F15: Redis is away.


def test_killed(stand: Stand, record: Record, agents: Agents) -> None:
    """What is known goes on; who comes meanwhile is found by asking each other."""
    name = "F15"
    new = CONNECTED + 3
    made, seconds = agents.made, 600 if LONG else 30
    with stand.alive():
        with loaded(stand) as load:
            lines = [kas.lines() for kas in stand.kas]
            load.window("fault")
            stand.redis.stop()
            began = time.monotonic()
            eventually(
                lambda: not any(kas.value("kas_redis_up") for kas in stand.kas),
                10,
                "the breakers are open",
            )
            agents.connect([stand.tokens[new - 1]], stand.kas[1].agents)
            found = [stand.timed_get(kas, new) for kas in stand.kas]
            record.note(
                name,
                "an agent that connects meanwhile, through each kas: "
                + ", ".join(f"{code} in {took:.2f} s" for code, took in found),
                "200 within 3 s",
                all(code == 200 and took < 3 for code, took in found),
            )
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))
            asked = sum(kas.value("kas_directory_asked_total") for kas in stand.kas)
            new_lines = [
                kas.lines() - one for kas, one in zip(stand.kas, lines, strict=True)
            ]
            load.window("after")
            stand.redis.start()
            healed = stand.until_up(HEAL)
            time.sleep(1)
            seen = load.stop()
        check(record, name, seen)
        record.note(
            name,
            f"kas asked each other {asked:.0f} times in {seconds} s",
            "at least once; for each agent that is reached once in 10 s at most",
            1 <= asked <= 3 * (CONNECTED * (seconds / 10) + 10),
        )
        check_log(record, name, new_lines)
        record.note(
            name,
            f"in use {healed:.1f} s after it was back",
            f"<= {HEAL:g} s",
            healed <= HEAL,
        )
        _until_known(stand, record, name)
        (where,) = stand.redis("HVALS", f"gitlab-kas:txkas1:agent:{new}")
        assert str(stand.kas[1].private).encode() in where
    assert agents.made == made + 1


def _until_known(stand: Stand, record: Record, name: str) -> None:
    began = time.monotonic()
    connected = sum(kas.value("kas_connected_agents") for kas in stand.kas)
    limit = LEASE_INTERVAL * 1.1 + 2
    eventually(lambda: stand.known() >= connected, 60, "all agents are in Redis again")
    took = time.monotonic() - began
    record.note(
        name,
        f"all {connected:.0f} agents in Redis after {took:.1f} s",
        f"<= {limit:g} s",
        took <= limit,
    )


# F16: Redis forgets.


def test_flushed(stand: Stand, record: Record, agents: Agents) -> None:
    """What was flushed is written again, and nobody has to connect again for it."""
    made = agents.made
    with stand.alive(), loaded(stand) as load:
        load.window("fault")
        for how in ("FLUSHALL", "FLUSHDB") if LONG else ("FLUSHALL",):
            before = stand.known()
            stand.redis(how)
            assert before >= CONNECTED and stand.known() < before
            _until_known(stand, record, "F16")
        seen = load.stop()
    check(record, "F16", seen)
    record.note(
        "F16",
        f"{agents.made - made} agents connected again",
        "0",
        agents.made == made,
    )
