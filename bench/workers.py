"""
Several workers of one kas, beside one process that is the whole kas.

Agents and clients are spread at random, as the kernel does when they connect: of four
workers three quarters of the requests are relayed by the one that has the agent, until
the agent has extra tunnels to the others.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack

import attrs

from bench import share
from bench.fleet import Figure
from bench.stand import ROUNDS, SECONDS, Node, Stand
from tools.load import speed

#: Connections of clients, and agents: enough that each worker has some.
CONNECTIONS, AGENTS = 64, 64

#: Of a core, for each worker.
PART = 0.3

#: Seconds at most until all agents have the extra tunnels that they need.
SETTLED = 120


@attrs.define(eq=False)
class _Kas:
    """One kas, with all its processes, and agents of its own."""

    node: Node
    #: Those that pass requests.
    workers: list[int]

    def requests(self, stand: Stand, seconds: float = SECONDS) -> speed.Load:
        """Small ones, to each agent in turn."""
        paths = [f"/agents/agent-{n}/200" for n in range(AGENTS)]
        return speed.requests(
            self.node.proxy, CONNECTIONS, seconds, stand.user_token, paths
        )


def _start(stand: Stand, workers: int) -> _Kas:
    node = stand.start_kas(f"workers: {workers}\n")
    pids = [node.process.pid]
    if workers > 1:
        said = re.findall(r"worker \d+ is ready \(pid (\d+)\)", _log(node))
        pids = [int(pid) for pid in said]
    assert len(pids) == workers
    kas = _Kas(node, pids)
    agents = stand.agents(node.agent_port, kind="following")
    agents.connect(stand.tokens, node.agent_port)
    kas.requests(stand, 1)
    until = time.monotonic() + SETTLED
    wanted = AGENTS * (workers - 1)
    while (there := _log(node).count("opened an extra tunnel")) < wanted:
        if time.monotonic() > until:
            print(f"{there} extra tunnels only, of {wanted}")
            break
        kas.requests(stand, 1)
    return kas


def _log(node: Node) -> str:
    return node.process.log.read_text()


def cpu() -> Iterator[Figure]:
    """A request to any of four workers: CPU of all, beside that of one kas."""
    with Stand(agents=AGENTS) as stand:
        alone, four = (_start(stand, count) for count in (1, 4))
        costs: dict[int, list[float]] = {1: [], 4: []}
        for _ in range(ROUNDS):
            for count, kas in ((1, alone), (4, four)):
                before = kas.node.process.cpu()
                done = kas.requests(stand)
                costs[count].append(
                    (kas.node.process.cpu() - before) / done.requests * 1e6
                )
        yield Figure(
            "four workers: CPU of all",
            statistics.median(costs[4]),
            "us/request",
            statistics.median(costs[1]),
            1.5,
        )


def requests() -> Iterator[Figure]:
    """
    What two workers carry, each with `PART` of a core, beside one with as much.

    So the cores have room for clients and agents, which need more than kas itself: with
    all of a machine of two cores they would be what is measured.
    """
    with Stand(agents=AGENTS) as stand, ExitStack() as stack:
        one, two = (_start(stand, count) for count in (1, 2))
        try:
            for pid in one.workers + two.workers:
                stack.enter_context(share.of_a_core(pid, PART))
        except share.NoGroupsError as error:
            print(f"no control group for a worker, not measured: {error}")
            return
        rates: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(ROUNDS):
            for count, kas in ((1, one), (2, two)):
                done = kas.requests(stand)
                rates[count].append(done.requests / done.seconds)
        yield Figure(
            f"two workers, {PART:.0%} of a core each: time",
            1e6 / statistics.median(rates[2]),
            "us/request",
            1e6 / statistics.median(rates[1]),
            1 / 1.6,
        )
