"""Cases with several kas and one Redis."""

from __future__ import annotations

import base64
import os
import re
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack

import attrs

from bench.processes import Process
from bench.stand import (
    GIGABYTE,
    ROUNDS,
    SECONDS,
    Node,
    Stand,
    wait_for_port,
)
from tools.load import speed
from tools.load.clients import Agents
from tools.ports import free_port


class FleetStand(Stand):
    """A `Stand` with any number of kas."""

    def __init__(self, agents: int = 1) -> None:
        super().__init__(agents)
        self.secret = self.folder / "private-api-secret"
        self.secret.write_text(base64.b64encode(os.urandom(32)).decode())
        self.redis_port = free_port()
        self.redis = self.started(
            Process(
                ["redis-server", "--port", str(self.redis_port), "--save", ""],
                log=self.log("redis"),
            )
        )
        wait_for_port(self.redis_port)

    def node(self) -> Node:
        """Start another kas."""
        return self.start_kas(
            "private_api:\n"
            f"  listen: {{address: '127.0.0.1:{free_port()}', "
            "development_certificate: true, "
            f"authentication_secret_file: {self.secret}}}\n"
            f"redis: {{server: {{address: '127.0.0.1:{self.redis_port}'}}}}\n"
        )

    def redis_commands(self) -> int:
        """Return the number of commands that Redis has executed."""
        info = subprocess.run(
            ["redis-cli", "-p", str(self.redis_port), "INFO", "stats"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        found = re.search(r"total_commands_processed:(\d+)", info)
        assert found is not None, info
        return int(found[1])

    def agentk_at(self, node: Node, upstream_port: int) -> Process:
        """Start agentk at one kas."""
        self.agent_port = node.agent_port
        return self.agentk(upstream_port)


@attrs.frozen
class Figure:
    """Value and floor of one case, which `bench.cases` converts to a `Result`."""

    case: str
    value: float
    unit: str
    floor: float
    target: float


def _wait_until_routed(stand: FleetStand, url: str) -> None:
    """Send a first request, which looks up the agent and connects to its kas."""
    speed.requests(url, 1, 1, stand.token)


def second_kas() -> Iterator[Figure]:
    """
    Measure a request through a second kas: the CPU of both kas, compared with the CPU
    of a single kas.
    """
    with FleetStand() as stand:
        gateway, front = stand.node(), stand.node()
        _, upstream_port = stand.upstream()
        stand.agentk_at(gateway, upstream_port)
        for node in (gateway, front):
            _wait_until_routed(stand, f"{node.proxy}/200")
        alone, both = [], []
        for _ in range(ROUNDS):
            before = gateway.process.cpu()
            done = speed.requests(f"{gateway.proxy}/200", 64, SECONDS, stand.token)
            alone.append((gateway.process.cpu() - before) / done.requests * 1e6)
            before = gateway.process.cpu() + front.process.cpu()
            done = speed.requests(f"{front.proxy}/200", 64, SECONDS, stand.token)
            after = gateway.process.cpu() + front.process.cpu()
            both.append((after - before) / done.requests * 1e6)
        yield Figure(
            "through a second kas: CPU of both",
            statistics.median(both),
            "us/request",
            statistics.median(alone),
            1.8,
        )


def second_kas_bulk() -> Iterator[Figure]:
    """
    Measure a download through a second kas: the CPU of this kas, compared with a relay
    without frames.
    """
    with FleetStand() as stand:
        gateway, front = stand.node(), stand.node()
        _, upstream_port = stand.server("upstream")
        stand.agentk_at(gateway, upstream_port)
        _wait_until_routed(stand, f"{front.proxy}/200")
        relay, relay_port = stand.server(
            "relay", f"--to={upstream_port}", "--to-tls", "--from-tls"
        )
        path = f"/stream/{GIGABYTE}"
        values, floors = [], []
        for _ in range(ROUNDS):
            before = gateway.process.cpu()
            speed.download(front.proxy + path, stand.token, GIGABYTE)
            values.append(gateway.process.cpu() - before)
            before = relay.cpu()
            speed.download(
                f"https://127.0.0.1:{relay_port}{path}", stand.token, GIGABYTE
            )
            floors.append(relay.cpu() - before)
        yield Figure(
            "download of 1 GB through a second kas: gateway",
            statistics.median(values),
            "s/GB",
            statistics.median(floors),
            1.3,
        )


def _connect(stand: FleetStand, count: int) -> list[Node]:
    """Start three kas, and spread *count* agents over them."""
    nodes = [stand.node() for _ in range(3)]
    for number, node in enumerate(nodes):
        agents = stand.agents(node.agent_port)
        _spread_out(agents, stand.tokens[number::3], node)
    return nodes


def _spread_out(agents: Agents, tokens: list[str], node: Node) -> None:
    """Connect agents in batches, because connecting all at once is another case."""
    for begin in range(0, len(tokens), 500):
        agents.connect(tokens[begin : begin + 500], node.agent_port)


def known_agents() -> Iterator[Figure]:
    """Measure requests to 10,000 agents at 3 kas, compared with 100 agents."""
    counts = (100, 10_000)
    costs: dict[int, list[float]] = {count: [] for count in counts}
    with ExitStack() as stack:
        # Both stands run at the same time and are measured in turn, so that the state
        # of the machine is the same for both.
        stands = {c: stack.enter_context(FleetStand(agents=c)) for c in counts}
        nodes = {count: _connect(stand, count) for count, stand in stands.items()}
        for measured in (False, *[True] * ROUNDS):
            for number in range(3):
                for count, stand in stands.items():
                    paths = [f"/agents/agent-{n}/200" for n in range(count)]
                    before = sum(one.process.cpu() for one in nodes[count])
                    proxy = nodes[count][number].proxy
                    done = speed.requests(proxy, 64, SECONDS, stand.user_token, paths)
                    after = sum(one.process.cpu() for one in nodes[count])
                    if measured:
                        costs[count].append((after - before) / done.requests * 1e6)
    few, many = (statistics.median(costs[count]) for count in counts)
    yield Figure("10,000 agents at 3 kas: CPU of all", many, "us/request", few, 1.15)


def dead_redis() -> Iterator[Figure]:
    """Measure the p99 of requests through a second kas while Redis is unavailable."""
    with FleetStand() as stand:
        gateway, front = stand.node(), stand.node()
        _, upstream_port = stand.upstream()
        stand.agentk_at(gateway, upstream_port)
        url = f"{front.proxy}/200"
        _wait_until_routed(stand, url)
        quiet = [speed.requests(url, 16, SECONDS, stand.token).p99 for _ in range(5)]
        os.kill(stand.redis.pid, signal.SIGKILL)
        dead = [speed.requests(url, 16, SECONDS, stand.token).p99 for _ in range(5)]
        yield Figure(
            "p99 of requests while Redis is dead",
            statistics.median(dead) * 1e3,
            "ms",
            statistics.median(quiet) * 1e3,
            1.2,
        )


def resumable_bulk() -> Iterator[Figure]:
    """
    Measure a resumable download, compared with one that is not resumable: CPU of kas
    and agentk.
    """
    with Stand() as stand:
        kas = stand.kas()
        _, upstream_port = stand.server("upstream")
        agentk = stand.agentk(upstream_port)
        costs: dict[str, list[float]] = {"": [], "?follow=true": []}
        for _ in range(ROUNDS):
            for query, found in costs.items():
                before = kas.cpu() + agentk.cpu()
                speed.download(
                    f"{stand.proxy}/stream/{GIGABYTE}{query}", stand.token, GIGABYTE
                )
                found.append(kas.cpu() + agentk.cpu() - before)
        yield Figure(
            "resumable download of 1 GB: kas and agentk",
            statistics.median(costs["?follow=true"]),
            "s/GB",
            statistics.median(costs[""]),
            1.05,
        )


@attrs.frozen
class Failover:
    """Cost of the failure of a kas with many agents."""

    agents: int
    #: Seconds until another kas has welcomed the last agent.
    seconds: float
    #: CPU of the two other kas for each returned agent, in microseconds.
    cpu_us: float
    #: Memory of the two other kas after all agents have returned, divided by the number
    #: of agents.
    memory_kib: float
    redis_commands: int


def fail_over(count: int) -> Failover:
    """
    Connect *count* agents to one of three kas, kill it, and wait until the agents have
    connected to the others.
    """
    with FleetStand(agents=count) as stand:
        nodes = [stand.node() for _ in range(3)]
        others = [node.agent_port for node in nodes[1:]]
        crowds = []
        for number in range(4):
            mine = stand.tokens[number::4]
            agents = stand.agents(nodes[0].agent_port, *others)
            _spread_out(agents, mine, nodes[0])
            crowds.append((agents, 2 * len(mine)))
        before = [node.process.cpu() for node in nodes[1:]]
        commands = stand.redis_commands()
        began = time.monotonic()
        os.kill(nodes[0].process.pid, signal.SIGKILL)
        for agents, made in crowds:
            agents.wait_until_made(made)
        seconds = time.monotonic() - began
        commands = stand.redis_commands() - commands
        used = sum(node.process.cpu() for node in nodes[1:]) - sum(before)
        memory = sum(node.process.private_memory() for node in nodes[1:])
        return Failover(
            count, seconds, used / count * 1e6, memory / count / 1024, commands
        )


def failover() -> Iterator[Figure]:
    """
    Measure the failure of a kas with 10,000 agents, until all agents are at the other
    kas.
    """
    found = fail_over(10_000)
    print(
        f"  for each agent: {found.cpu_us:.0f} us of CPU, "
        f"{found.redis_commands / found.agents:.2f} Redis commands, and "
        f"{found.memory_kib:.1f} KiB of memory of both kas together"
    )
    yield Figure(
        "10,000 agents are back after a kas died", found.seconds, "s", 60.0, 1.0
    )
