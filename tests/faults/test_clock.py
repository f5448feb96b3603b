"""F23: a clock is wrong, by less or by more than what is forgiven."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults import clients
from tests.faults.record import Record
from tests.faults.stand import Fleet, FleetKas
from tests.integration import needs
from tests.integration.processes import Process, eventually, twistd
from tests.integration.rawhttp import Way
from tests.integration.stack import Agentk, sandbox

LONG = os.environ.get("TXKAS_FAULTS") == "long"

#: What both sides forgive, and what they do not.
FORGIVEN = ("+20s", "-20s")
WRONG = ("+1d", "-1d", "+5m", "-5m") if LONG else ("+1d", "-1d")

TARGET = "/api/v1/namespaces/default"


def clock(offset: str) -> dict[str, str]:
    """The environment of a program whose time of day is wrong by *offset*."""
    return {
        "LD_PRELOAD": str(needs.faketime()),
        "FAKETIME": offset,
        # What no administrator changes by setting the clock.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


class Pair:
    """Two kas; each has an agent."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self.fleet = Fleet(folder, count=2)
        self.fleet.start()
        self.right, self.other = self.fleet.kas
        self.fleet.know_each_other()
        tokens = [self.right.add_agent(name) for name in ("right", "other")]
        self.agents = [
            Agentk(kas, token, kubeconfig, f"agentk-{kas.number}")
            for kas, token in zip(self.fleet.kas, tokens, strict=True)
        ]
        self.fleet.agentks += self.agents
        for one in self.agents:
            one.start()
        for name, agent in (("one", "right"), ("two", "other")):
            self.right.add_user(name, agent=agent)

    def way(self, kas: FleetKas, user: str) -> Way:
        return Way(user, kas.proxy, kas.authority, self.right.bearer(user))

    def ask(self, kas: FleetKas, user: str) -> int:
        return self.way(kas, user).ask("GET", TARGET).status

    def works(self) -> bool:
        """Each kas serves the agent of the other."""
        ways = ((self.other, "one"), (self.right, "two"))
        return [self.ask(*one) for one in ways] == [200, 200]

    def restart_other(self, offset: str) -> Process:
        """The second kas, with a clock that is wrong by so much."""
        assert self.other.process is not None
        self.other.process.kill()
        return self.other.start(environment=clock(offset) if offset else None)

    def said(self) -> str:
        logs = [kas.process.said() for kas in self.fleet.kas if kas.process is not None]
        return "".join(logs)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("clock")
    with sandbox(folder) as kubeconfig:
        pair = Pair(folder, kubeconfig)
        try:
            eventually(pair.works, what="both are served")
            yield pair
        finally:
            pair.fleet.stop()


@pytest.mark.parametrize("offset", FORGIVEN)
def test_f23_forgiven(pair: Pair, offset: str) -> None:
    """Some seconds do nothing."""
    pair.restart_other(offset)
    eventually(pair.works, what="both are served")


@pytest.mark.parametrize("offset", WRONG)
def test_f23_clock_of_a_kas(pair: Pair, record: Record, offset: str) -> None:
    """The others go on, what does not work says why, and a clock that is set helps."""
    before = len(pair.said())
    load = clients.gets(pair.way(pair.right, "one"), 20, TARGET)
    with load:
        pair.restart_other(offset)
        # Its own agent it serves itself.
        eventually(lambda: pair.ask(pair.other, "two") == 200, what="its own agent")
        ways = ((pair.right, "two"), (pair.other, "one"))
        with ThreadPoolExecutor() as pool:
            statuses = set(pool.map(lambda way: pair.ask(*way), ways))
        assert statuses <= {502, 503}
        eventually(
            lambda: "check the clocks" in pair.said()[before:], what="it is said"
        )
        pair.restart_other("")
        eventually(pair.works, what="both are served")
    seen = load.seen
    record.note(
        "F23",
        f"one of two kas at {offset}: of {seen['requests']} requests to the other "
        f"{seen['failed']} failed",
        "0",
        seen["failed"] == 0 and seen["requests"] > 0,
    )


@pytest.mark.parametrize(
    ("offset", "said"),
    [("+1d", "connected to kas"), ("-1d", "is the clock right?")],
)
def test_f23_clock_of_an_agentk(pair: Pair, offset: str, said: str) -> None:
    """Its token knows nothing of the time; a certificate of tomorrow is refused."""
    agentk = pair.agents[0]
    assert agentk.stop()
    process = Process(
        agentk.name,
        twistd("agentk", *agentk.arguments()),
        pair.right.folder / "wrong-clock.log",
        environment=clock(offset),
    )
    try:
        process.wait_for(re.escape(said))
        if said == "connected to kas":
            assert pair.ask(pair.right, "one") == 200
    finally:
        process.kill()
    agentk.start()
    assert pair.ask(pair.right, "one") == 200
