"""F15-F18 and F20: Redis dies, forgets, fails over, stalls, refuses; what it costs."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import hiredis
import pytest

from kas.directory.redis_layout import LEASE_MS
from kas.directory.redis_store import LEASE_INTERVAL
from kas.redis.client import LONGEST_PAUSE
from tests.faults.record import Record
from tests.faults.redis_clients import Agents, Churn, Load
from tests.faults.redis_stand import Stand, commands, since
from tests.integration.processes import eventually

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
    begin = CONNECTED + 4 + 5 * list(FAILOVERS).index(how)
    moving = range(begin, begin + 5)
    tokens = [stand.tokens[number - 1] for number in moving]
    agents.connect(tokens, stand.kas[0].agents)
    keys = [f"gitlab-kas:txkas1:agent:{number}" for number in moving]
    eventually(lambda: stand.redis("EXISTS", *keys) == len(keys), 10, "they are known")
    save, go_back = FAILOVERS[how]
    with stand.alive(), loaded(stand) as load:
        before = save(stand)
        agents.move(tokens, stand.kas[1].agents)
        address = str(stand.kas[1].private).encode()
        eventually(
            lambda: all(_is_at(stand, key, address) for key in keys),
            10,
            "they are known to have moved",
        )
        refused = 'kas_gateway_requests_total{outcome="refused"}'
        wrong = stand.kas[0].metrics()[refused]
        load.window("fault")
        go_back(stand, before)
        seen = [stand.timed_get(stand.kas[2], number) for number in moving]
        wrong = stand.kas[0].metrics()[refused] - wrong
        _until_known(stand, record, name)
        eventually(
            lambda: all(_is_at(stand, key, address) for key in keys),
            LEASE_INTERVAL * 1.1 + 2,
            "what is older is gone",
        )
        time.sleep(2)
        result = load.stop()
    limit = LEASE_INTERVAL * 1.1 + 2
    record.note(
        name,
        f"5 agents that moved: {[code for code, _ in seen]}, the first after "
        f"{seen[0][1]:.1f} s, asked in vain at the old kas: {wrong:.0f}",
        f"200 within {limit:g} s",
        all(code == 200 and took <= limit for code, took in seen),
    )
    if how == "under the connections":
        assert wrong, "the old state was not seen by anybody"
    check(record, name, result)


# F18: Redis is slow, full, a replica, or has another password.


@attrs.frozen
class Fault:
    """Something that is wrong with Redis for a while."""

    begin: Callable[[Stand], None]
    end: Callable[[Stand], None]


def _commands(stand: Stand, *commands: tuple[str, ...]) -> None:
    """On one connection, because the first of them may be a password."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(str(stand.redis.socket))
        reader = hiredis.Reader()
        for command in commands:
            sock.sendall(hiredis.pack_command(command))  # type: ignore[arg-type]
            while (answer := reader.gets()) is False:
                reader.feed(sock.recv(65536))
            assert not isinstance(answer, Exception), answer


def _pulses(stand: Stand) -> None:
    process = stand.redis.process
    assert process is not None
    for _ in range(10 if LONG else 2):
        process.child.send_signal(signal.SIGSTOP)
        time.sleep(5)
        process.child.send_signal(signal.SIGCONT)
        time.sleep(3)


def _password(stand: Stand) -> None:
    _commands(
        stand,
        ("CONFIG", "SET", "requirepass", "another"),
        ("CLIENT", "KILL", "TYPE", "pubsub"),
        ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
    )


FAULTS = {
    "stops for 5 s now and then": Fault(_pulses, lambda stand: None),
    "maxmemory": Fault(
        lambda stand: _commands(stand, ("CONFIG", "SET", "maxmemory", "1")),
        lambda stand: _commands(stand, ("CONFIG", "SET", "maxmemory", "0")),
    ),
    "became a replica": Fault(
        lambda stand: _commands(stand, ("REPLICAOF", "127.0.0.1", "1")),
        lambda stand: _commands(stand, ("REPLICAOF", "NO", "ONE")),
    ),
    "another password": Fault(
        _password,
        lambda stand: _commands(
            stand, ("AUTH", "another"), ("CONFIG", "SET", "requirepass", "")
        ),
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_of_no_use(what: str, stand: Stand, record: Record, agents: Agents) -> None:
    """Breakers open, requests notice nothing, and everything heals by itself."""
    name, fault = f"F18, {what}", FAULTS[what]
    new = CONNECTED + 15 + list(FAULTS).index(what)
    lasts = what == "stops for 5 s now and then"
    stand.until_up(HEAL)
    with stand.alive(), loaded(stand) as load:
        lines = [kas.lines() for kas in stand.kas]
        load.window("fault")
        began = time.monotonic()
        fault.begin(stand)
        if not lasts:
            eventually(
                lambda: not any(kas.value("kas_redis_up") for kas in stand.kas),
                LEASE_INTERVAL * 1.1 + 5,
                "the breakers are open",
                pause=0.1,
            )
            opened = time.monotonic() - began
            record.note(
                name,
                f"all breakers open after {opened:.1f} s",
                "with the next lease",
                opened <= LEASE_INTERVAL * 1.1 + 4,
            )
            waiting = stand.later_get(stand.kas[2], new)
            time.sleep(1)
            agents.connect([stand.tokens[new - 1]], stand.kas[0].agents)
            code, took = waiting.result(40)
            record.note(
                name,
                f"a request that waited for an agent: {code} after {took:.1f} s",
                "200 within 5 s",
                code == 200 and took <= 5,
            )
            time.sleep(30 if LONG else 2)
        new_lines = [
            kas.lines() - one for kas, one in zip(stand.kas, lines, strict=True)
        ]
        fault.end(stand)
        healed = stand.until_up(HEAL + 5)
        seen = load.stop()
    check(record, name, seen)
    check_log(record, name, new_lines)
    record.note(name, f"in use {healed:.1f} s later", f"<= {HEAL:g} s", healed <= HEAL)
    _until_known(stand, record, name)


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
                30,
                "all agents are back",
                pause=0.1,
            )
        load.window("after")
        began = time.monotonic()
        time.sleep(2)
        seen = load.stop()
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
        took <= limit,
    )


# Bugs 14 and 15, and what idle agents cost.


def test_idle(tmp_path_factory: pytest.TempPathFactory, record: Record) -> None:
    """Agents that are known cost nothing; those that are connected, next to nothing."""
    count, seconds = (10_000, 120) if LONG else (2_000, 12)
    few = 50
    with Stand(tmp_path_factory.mktemp("idle"), max(5_000, count)) as stand:
        # Past what every start does.
        time.sleep(5)
        cpu = [kas.cpu() for kas in stand.kas]
        before = commands(stand.redis)
        time.sleep(seconds)
        spent = sum(since(stand.redis, before).values()) / seconds
        used = [
            (kas.cpu() - one) / seconds for kas, one in zip(stand.kas, cpu, strict=True)
        ]
        record.note(
            "bug 15",
            f"{max(5_000, count)} agents that are known and not connected: "
            f"{spent:.1f} commands a second, CPU of each kas "
            + ", ".join(f"{100 * one:.2f} %" for one in used),
            "leases alone (<= 5 commands a second), < 1 %",
            spent <= 5 and max(used) < 0.01,
        )
        memory = stand.kas[2].resident()
        with stand.agents() as agents:
            half = (count - few) // 2
            agents.connect(stand.tokens[:half], stand.kas[0].agents)
            agents.connect(stand.tokens[half : count - few], stand.kas[1].agents)
            agents.connect(stand.tokens[count - few : count], stand.kas[2].agents)
            eventually(lambda: stand.known() == count, 30, "all are in Redis")
            grown = stand.kas[2].resident() - memory
            answers = stand.kas[2].value("kas_directory_answers")
            record.note(
                "bug 14",
                f"the kas with {few} of {count} agents grew by {grown / 2**20:.1f} MiB "
                f"and remembers {answers:.0f} answers",
                "<= 10 MiB, 0 answers",
                grown <= 10 * 2**20 and answers == 0,
            )
            time.sleep(5)
            before = commands(stand.redis)
            time.sleep(seconds)
            spent = sum(since(stand.redis, before).values()) / seconds
        limit = 10 + 40 * count / 10_000
        record.note(
            "idle",
            f"{count} agents at 3 kas: {spent:.1f} Redis commands a second",
            f"<= {limit:g}",
            spent <= limit,
        )
