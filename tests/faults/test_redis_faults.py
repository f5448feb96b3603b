"""F15, F16 and F18: Redis dies, forgets, stalls, refuses."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable

import attrs
import hiredis
import pytest

from kas.directory.redis_store import LEASE_INTERVAL
from tests.faults.record import Record
from tests.faults.redis_experiments import (
    CONNECTED,
    HEAL,
    LONG,
    check,
    check_log,
    loaded,
    until_known,
)
from tests.faults.redis_stand import Stand
from tests.integration.processes import PATIENCE, eventually
from tools.load.clients import Agents

#: Each compares latencies during a fault with those before.
pytestmark = pytest.mark.alone

# F15: Redis is away.


def test_killed(stand: Stand, record: Record, agents: Agents) -> None:
    """What is known goes on; who comes meanwhile is found by asking each other."""
    name = "F15"
    new = stand.unused()
    made, seconds = agents.made, 600 if LONG else 30
    with stand.alive():
        with loaded(stand) as load:
            lines = [kas.lines() for kas in stand.kas]
            load.window("fault")
            stand.redis.stop()
            began = time.monotonic()
            eventually(
                lambda: not any(kas.value("kas_redis_up") for kas in stand.kas),
                what="the breakers are open",
            )
            agents.connect([stand.tokens[new - 1]], stand.kas[1].agents)
            found = [stand.timed_get(kas, new) for kas in stand.kas]
            record.note(
                name,
                "an agent that connects meanwhile, through each kas: "
                + ", ".join(f"{code} in {took:.2f} s" for code, took in found),
                "200 within 3 s",
                all(code == 200 for code, _ in found),
                in_time=all(took < 3 for _, took in found),
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
            seen = load.windows()
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
            in_time=healed <= HEAL,
        )
        until_known(stand, record, name)
        (where,) = stand.redis("HVALS", f"gitlab-kas:txkas1:agent:{new}")
        assert str(stand.kas[1].private).encode() in where
    assert agents.made == made + 1


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
            until_known(stand, record, "F16")
        seen = load.windows()
    check(record, "F16", seen)
    record.note(
        "F16",
        f"{agents.made - made} agents connected again",
        "0",
        agents.made == made,
    )


# F18: Redis is slow, full, a replica, or has another password.


#: Seconds for which Redis stops.
PULSE = 5.0


@attrs.frozen
class Fault:
    """Something that is wrong with Redis for a while; it is over soon, or lasts."""

    begin: Callable[[Stand], None]
    end: Callable[[Stand], None]
    short: bool = False


def _commands(stand: Stand, *commands: tuple[str, ...]) -> None:
    """On one connection, because the first of them may be a password."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE)
        sock.connect(str(stand.redis.socket))
        reader = hiredis.Reader()
        for command in commands:
            sock.sendall(hiredis.pack_command(command))  # type: ignore[arg-type]
            while (answer := reader.gets()) is False:
                reader.feed(sock.recv(65536))
            assert not isinstance(answer, Exception), answer


def _stop(stand: Stand) -> None:
    assert stand.redis.process is not None
    stand.redis.process.child.send_signal(signal.SIGSTOP)


def _go_on(stand: Stand) -> None:
    """... and again, and again."""
    assert stand.redis.process is not None
    for _ in range(9 if LONG else 1):
        stand.redis.process.child.send_signal(signal.SIGCONT)
        time.sleep(3)
        _stop(stand)
        time.sleep(PULSE)
    stand.redis.process.child.send_signal(signal.SIGCONT)


def _password(stand: Stand) -> None:
    _commands(
        stand,
        ("CONFIG", "SET", "requirepass", "another"),
        ("CLIENT", "KILL", "TYPE", "pubsub"),
        ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
    )


FAULTS = {
    "stops for 5 s now and then": Fault(_stop, _go_on, short=True),
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
    new = stand.unused()
    stand.until_up(HEAL)
    with stand.alive(), loaded(stand) as load:
        lines = [kas.lines() for kas in stand.kas]
        load.window("fault")
        began = time.monotonic()
        fault.begin(stand)
        waiting = []
        if fault.short:
            # Too short for a lease to notice; but somebody wants to know something.
            waiting = [stand.later_get(kas, new) for kas in stand.kas]
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
            "while it stands" if fault.short else "with the next lease",
            in_time=opened <= (PULSE if fault.short else LEASE_INTERVAL * 1.1 + 4),
        )
        if not waiting:
            began = time.monotonic()
            waiting = [stand.later_get(stand.kas[2], new)]
            time.sleep(1)
        came = time.monotonic() - began
        agents.connect([stand.tokens[new - 1]], stand.kas[0].agents)
        for answer in waiting:
            code, took = answer.result(40)
            record.note(
                name,
                f"a request that waited for an agent: {code} {took - came:.1f} s after "
                "it came",
                "200 within 4 s",
                code == 200,
                in_time=took - came <= 4,
            )
        if not fault.short:
            time.sleep(30 if LONG else 2)
        new_lines = [
            kas.lines() - one for kas, one in zip(stand.kas, lines, strict=True)
        ]
        fault.end(stand)
        healed = stand.until_up(HEAL + 5)
        seen = load.windows()
    check(record, name, seen)
    check_log(record, name, new_lines)
    record.note(
        name, f"in use {healed:.1f} s later", f"<= {HEAL:g} s", in_time=healed <= HEAL
    )
    until_known(stand, record, name)
