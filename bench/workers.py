"""Several workers of one kas, beside one process that is the whole kas."""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import attrs

from bench.fleet import Figure
from bench.processes import Process
from bench.stand import ROUNDS, SECONDS, Node, Stand
from tools.load import speed

#: Connections of clients: enough that each worker has some.
CONNECTIONS = 64


@attrs.define(eq=False)
class _Kas:
    """One kas, with all its processes."""

    node: Node
    agentk: Process
    pids: list[int]

    def cpu(self) -> float:
        """CPU seconds that all of them used so far."""
        total = 0
        for pid in self.pids:
            for task in Path(f"/proc/{pid}/task").iterdir():
                total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9


def _start(stand: Stand, workers: int, upstream_port: int) -> _Kas:
    node = stand.start_kas(f"workers: {workers}\n")
    stand.agent_port = node.agent_port
    agentk = stand.agentk(upstream_port)
    pids = [node.process.pid]
    if workers > 1:
        said = re.findall(r"worker \d+ is ready \(pid (\d+)\)", _log(node))
        pids += map(int, said)
    assert len(pids) == 1 or len(pids) == workers + 1
    speed.requests(f"{node.proxy}/200", CONNECTIONS, 1, stand.token)
    return _Kas(node, agentk, pids)


def _log(node: Node) -> str:
    return node.process.log.read_text()


def cpu() -> Iterator[Figure]:
    """A request to any of four workers: CPU of all, beside that of one kas."""
    with Stand() as stand:
        _, upstream_port = stand.upstream()
        alone, four = (_start(stand, count, upstream_port) for count in (1, 4))
        costs: dict[int, list[float]] = {1: [], 4: []}
        for _ in range(ROUNDS):
            for count, kas in ((1, alone), (4, four)):
                before = kas.cpu()
                done = speed.requests(
                    f"{kas.node.proxy}/6144", CONNECTIONS, SECONDS, stand.token
                )
                costs[count].append((kas.cpu() - before) / done.requests * 1e6)
        yield Figure(
            "four workers: CPU of all",
            statistics.median(costs[4]),
            "us/request",
            statistics.median(costs[1]),
            1.5,
        )


def requests() -> Iterator[Figure]:
    """
    What two workers carry on two cores, beside one.

    Clients, agentk and upstream run with the least claim to the cores, but they need
    their part of them: the figure is that of a machine of which kas has not all.
    """
    os.nice(19)
    with Stand() as stand:
        _, upstream_port = stand.upstream()
        one, two = (_start(stand, count, upstream_port) for count in (1, 2))
        for kas in one, two:
            for pid in kas.pids:
                os.setpriority(os.PRIO_PROCESS, pid, 0)
        rates: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(ROUNDS):
            for count, kas in ((1, one), (2, two)):
                done = speed.requests(
                    f"{kas.node.proxy}/200", CONNECTIONS, SECONDS, stand.token
                )
                rates[count].append(done.requests / done.seconds)
        yield Figure(
            "two workers on all cores: time of a request",
            1e6 / statistics.median(rates[2]),
            "us",
            1e6 / statistics.median(rates[1]),
            1 / 1.6,
        )
