"""
Several workers of one kas, compared with a kas of one process.

Agents and clients are spread at random over the workers, as by the kernel: with four
workers, the worker that has the agent receives three quarters of the requests from
other workers, until the agent has extra tunnels to them.
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

#: Numbers of client connections and of agents: enough that each worker has some.
CONNECTIONS, AGENTS = 64, 64

#: Fraction of a core for each worker.
PART = 0.3

#: Maximum number of seconds until all agents have the extra tunnels that they need.
SETTLED = 120


@attrs.define(eq=False)
class _Kas:
    """One kas with all its processes and its own agents."""

    node: Node
    #: Process ids of the workers that handle requests.
    workers: list[int]

    def requests(self, stand: Stand, seconds: float = SECONDS) -> speed.Load:
        """Send small requests to each agent in turn."""
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
    """
    Measure the CPU of a request to any of four workers, compared with a single process.
    """
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
    Measure the throughput of two workers, compared with one worker; each worker gets
    `PART` of a core.

    The limit leaves room on the cores for clients and agents, which need more CPU than
    kas: otherwise they would be the bottleneck on a machine with two cores.
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
