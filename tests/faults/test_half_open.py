"""F03, bugs 17 and 18: a connection that is dead, and the next one is here."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

from kas.agents.acceptor import AGENT_TIMING
from kas.agents.registry import FRESH
from kas.directory.redis_layout import Layout
from tests.faults.record import Record
from tests.faults.stage import Stage
from tests.faults.stand import FleetKas
from tests.faults.test_silence import Probe, connections, wired
from tests.integration.processes import eventually
from tests.integration.rawhttp import Way
from tunnel.session.keepalive import LOOK, LOOKS_TO_END
from tunnel.session.protocol import CLOSE_TIMEOUT

#: Seconds after which a connection is closed whose successor is another process: what
#: the question takes, and what a busy machine takes for the rest.
CLOSED = LOOK * LOOKS_TO_END + 3

#: Seconds after which requests go on: without waiting for the five that the question
#: takes.  It is one on an idle machine.
PROMPT = 3

#: Seconds of silence after which agentk asks, and those after which it dials anew.
ASKS, DIALS = AGENT_TIMING.ping_interval + 2, AGENT_TIMING.dead_after + 4


def _connected(kas: FleetKas, name: str, since: float) -> float:
    """When an agent connected to *kas*, by the clock, after *since*."""

    def look() -> float:
        assert kas.process is not None
        for line in kas.process.said().splitlines():
            if f"agent {name} (" in line and " connected from " in line:
                when = datetime.fromisoformat(json.loads(line)["time"]).timestamp()
                if when > since:
                    return when
        return 0.0

    return eventually(look, DIALS + 10, f"{name} is connected anew")


class Hanging:
    """Requests that hang at a dead connection: when they are answered, and how."""

    def __init__(self, way: Way, *methods: str) -> None:
        self._pool = ThreadPoolExecutor(len(methods))
        self._way = way
        self._asked = [self._pool.submit(self._ask, method) for method in methods]

    def _ask(self, method: str) -> tuple[str, int, float]:
        # What the API server does not do, it refuses: that is an answer as well.
        status = self._way.ask(method, "/readyz").status
        return method, status, time.time()

    def outcome(self, since: float) -> tuple[list[str], float]:
        """What was answered, and how many seconds after *since* the last of it was."""
        done = [one.result() for one in self._asked]
        self._pool.shutdown()
        answers = [f"{method} {status}" for method, status, _ in done]
        return answers, max(when for _, _, when in done) - since


def _held(stage: Stage, name: str) -> int:
    """Connections of an agent that Redis has."""
    (agent_id,) = {
        one["agent_id"]
        for kas in stage.kas
        for one in kas.status()["agents"]
        if one["agent_name"] == name
    }
    return int(stage.fleet.redis("HLEN", Layout("gitlab-kas").agent(agent_id)))


def _established(kas: FleetKas) -> int:
    """TCP connections at the port for agents."""
    count = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        count += int(local.rpartition(":")[2], 16) == kas.agents and state == "01"
    return count


@pytest.mark.parametrize("elsewhere", [False, True])
def test_another_process(
    elsewhere: bool, stage: Stage, record: Record, long: bool
) -> None:
    """F03 and bug 18: the network forgot it, and agentk is started again."""
    name = "f03-elsewhere" if elsewhere else "f03"
    where = "at another kas" if elsewhere else "at the same kas"
    stage.add_user_for([name])
    token = stage.token_of(name)
    agentk, wire = wired(stage, token, name, 0)
    way = stage.way(stage.kas[1], f"of-{name}")
    eventually(lambda: stage.answers(way))
    # One that came just now is not asked for the next one.
    time.sleep(FRESH)
    wire.freeze()
    assert agentk.process is not None
    agentk.process.kill()
    there = stage.kas[2 if elsewhere else 0]
    wire.targets = [there.agents]
    hanging = Hanging(way, "GET", "GET", "GET")
    killed = time.time()
    agentk.start()
    since = _connected(there, name, killed)
    answers, took = hanging.outcome(since)
    slowest = max(Probe(way)()[0] for _ in range(10))
    record.note(
        "F03",
        f"{where}: what hung was answered {took:.2f} s after the new process came, "
        f"requests after that took {slowest:.2f} s at most",
        f"<= {PROMPT} s, <= {PROMPT} s",
        set(answers) == {"GET 200"},
        in_time=took <= PROMPT and slowest <= PROMPT,
    )
    eventually(
        lambda: sum(connections(stage, number, name) for number in range(3)) == 1,
        DIALS,
        "the dead one is gone",
    )
    took = time.time() - since
    eventually(lambda: _held(stage, name) == 1, what="one is in Redis")
    record.note(
        "F03",
        f"{where}: the dead one was closed {took:.1f} s after it, 1 is left in Redis",
        f"<= {CLOSED:.0f} s, 1",
        in_time=took <= CLOSED,
    )
    # Killed and started again at once.
    rounds = 30 if long else 4
    slowest = 0.0
    for _ in range(rounds):
        agentk.process.kill()
        agentk.start()
        took, status = Probe(way)()
        assert status == 200
        slowest = max(slowest, took)
    left = sum(connections(stage, number, name) for number in range(3))
    record.note(
        "bug 18",
        f"{rounds} kills: first request after each {slowest:.2f} s at most, {left} "
        "connection left",
        f"<= {PROMPT} s, 1",
        left == 1,
        in_time=slowest <= PROMPT,
    )


def test_same_process(stage: Stage, record: Record) -> None:
    """
    Bug 17: agentk noticed that its path is dead, kas did not, and it dials anew.

    To the same kas and, for another agent in the same time, to another one.
    """
    # One at each, so that none is asked to leave.
    places = {"f17": (0, 0), "f17-elsewhere": (1, 2)}
    stage.add_user_for(list(places))
    wires, ways = {}, {}
    for name, (first, _) in places.items():
        token = stage.token_of(name)
        _, wires[name] = wired(stage, token, name, first)
        ways[name] = stage.way(stage.kas[1], f"of-{name}")
        eventually(lambda way=ways[name]: stage.answers(way))  # type: ignore[misc]
    begin = since = time.time()
    # agentk hears nothing; kas hears it ask, and believes in it for longer.
    for wire in wires.values():
        wire.drop_back = True
    # kas has heard it ask, and there is time for the requests before it dials.
    time.sleep(ASKS + 1)
    for name, wire in wires.items():
        wire.freeze()
        wire.drop_back = False
        wire.targets = [stage.kas[places[name][1]].agents]
    assert [_established(kas) for kas in stage.kas] == [1, 1, 0]
    hanging = {name: Hanging(way, "GET", "GET", "POST") for name, way in ways.items()}
    for name, (first, second) in places.items():
        since = _connected(stage.kas[second], name, begin)
        eventually(
            lambda name=name: (  # type: ignore[misc]
                sum(connections(stage, number, name) for number in range(3)) == 1
            ),
            DIALS,
            "the older one is gone",
        )
        gone = time.time() - since
        answers, took = hanging[name].outcome(since)
        where = "at the same kas" if first == second else "at another kas"
        record.note(
            "bug 17",
            f"{where}: the older is out of service {gone:.2f} s after the newer came; "
            f"what hung there ended {took:.2f} s after it: {', '.join(answers)}",
            f"<= {PROMPT} s, <= {PROMPT} s, GET 200 and POST 502",
            answers == ["GET 200", "GET 200", "POST 502"],
            in_time=gone <= PROMPT and took <= PROMPT,
        )
        # What changes is written a little later, together.
        eventually(lambda name=name: _held(stage, name) == 1, what="one is in Redis")  # type: ignore[misc]
    eventually(
        lambda: [_established(kas) for kas in stage.kas] == [1, 0, 1],
        CLOSE_TIMEOUT + 1,
        "the older sockets are closed",
    )
    took = time.time() - since
    record.note(
        "bug 17",
        f"the older sockets are closed {took:.1f} s after the newer came",
        f"<= {CLOSE_TIMEOUT + 1:.0f} s",
        in_time=took <= CLOSE_TIMEOUT + 1,
    )
