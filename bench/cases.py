"""The cases: the measured value, its floor and its target."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs

from bench import fleet, peers, workers
from bench.processes import ROOT, Process, python
from bench.stand import GIGABYTE, NICE, ROUNDS, SECONDS, Stand
from tools.load import speed
from tools.load.clients import Agents


@attrs.frozen
class Result:
    """One line of the table."""

    case: str
    value: float
    unit: str
    floor: float
    target: float
    #: The value divided by the floor; if the case has no floor, the value itself.
    ratio: float

    @property
    def ok(self) -> bool:
        """Return whether the target is met."""
        return self.ratio <= self.target


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _cpu_per_request(process: Process, run: Callable[[], speed.Load]) -> float:
    """Return the microseconds of CPU of *process* for each request of *run*."""
    before = process.cpu()
    done = run()
    return (process.cpu() - before) / done.requests * 1e6


def small_requests(
    stand: Stand, size: int, connections: int, targets: tuple[float, float]
) -> Iterator[Result]:
    """
    Measure the CPU per request of kas and of agentk, compared with one hop of another
    program.
    """
    kas = stand.kas()
    _, upstream_port = stand.upstream()
    agentk = stand.agentk(upstream_port)
    hop, hop_url = stand.floor(upstream_port)
    url = f"{stand.proxy}/{size}"
    speed.requests(url, connections, 1, stand.token)
    floors, kas_costs, agent_costs = [], [], []
    for _ in range(ROUNDS):
        floors.append(
            _cpu_per_request(
                hop,
                lambda: speed.requests(
                    f"{hop_url}/{size}", connections, SECONDS, stand.token
                ),
            )
        )
        before = kas.cpu(), agentk.cpu()
        done = speed.requests(url, connections, SECONDS, stand.token)
        kas_costs.append((kas.cpu() - before[0]) / done.requests * 1e6)
        agent_costs.append((agentk.cpu() - before[1]) / done.requests * 1e6)
    floor = _median(floors)
    what = f"{size} B, {connections} connections"
    for name, costs, target in (
        ("kas", kas_costs, targets[0]),
        ("agentk", agent_costs, targets[1]),
    ):
        value = _median(costs)
        yield Result(
            f"{what}: {name} CPU", value, "us/request", floor, target, value / floor
        )


def one_agent() -> Iterator[Result]:
    """Measure responses of 200 B: 10 request headers, one agent, 64 connections."""
    with Stand() as stand:
        yield from small_requests(stand, 200, 64, (3.0, 5.0))


def larger_answers() -> Iterator[Result]:
    """Measure responses of 6 KB on 16 connections."""
    with Stand() as stand:
        yield from small_requests(stand, 6144, 16, (4.0, 5.0))


def fresh_heads() -> Iterator[Result]:
    """
    Measure responses of 6 KB on 64 connections, with heads that differ each time,
    compared with heads that repeat.
    """
    with Stand() as stand:
        kas = stand.kas()
        _, upstream_port = stand.upstream()
        agentk = stand.agentk(upstream_port)
        url = f"{stand.proxy}/6144"
        costs: dict[str, dict[bool, list[float]]] = {
            name: {False: [], True: []} for name in ("kas", "agentk")
        }
        speed.requests(url, 64, 1, stand.token)
        for _ in range(ROUNDS):
            for fresh in (False, True):
                before = kas.cpu(), agentk.cpu()
                done = speed.requests(url, 64, SECONDS, stand.token, fresh=fresh)
                for name, process, was in zip(
                    costs, (kas, agentk), before, strict=True
                ):
                    cost = (process.cpu() - was) / done.requests * 1e6
                    costs[name][fresh].append(cost)
        for name, by_kind in costs.items():
            value, floor = _median(by_kind[True]), _median(by_kind[False])
            yield Result(
                f"heads that never repeat: {name} CPU",
                value,
                "us/request",
                floor,
                2.0,
                value / floor,
            )


def many_agents() -> Iterator[Result]:
    """Measure the requests of `one_agent`, spread over 64 agents."""
    count = 64
    with Stand(agents=count) as stand:
        _, upstream_port = stand.upstream()
        hop, hop_url = stand.floor(upstream_port)
        kas = stand.kas()
        stand.agents().connect(stand.tokens, stand.agent_port)
        paths = [f"/agents/agent-{n}/200" for n in range(count)]
        token = stand.user_token
        speed.requests(stand.proxy, 64, 1, token, paths)
        floors, costs = [], []
        for _ in range(ROUNDS):
            floors.append(
                _cpu_per_request(
                    hop,
                    lambda: speed.requests(f"{hop_url}/200", 64, SECONDS, token),
                )
            )
            costs.append(
                _cpu_per_request(
                    kas, lambda: speed.requests(stand.proxy, 64, SECONDS, token, paths)
                )
            )
        value, floor = _median(costs), _median(floors)
        yield Result(
            "200 B over 64 agents: kas CPU",
            value,
            "us/request",
            floor,
            5.0,
            value / floor,
        )


def bulk() -> Iterator[Result]:
    """
    Measure a download of 1 GB on one stream: CPU per GB, compared with a relay without
    frames.
    """
    with Stand() as stand:
        kas = stand.kas()
        _, upstream_port = stand.server("upstream")
        agentk = stand.agentk(upstream_port)
        # kas relays TLS to TCP, agentk TLS to TLS, and so do their floors.
        outer, outer_port = stand.server("relay", f"--to={upstream_port}", "--to-tls")
        inner, inner_port = stand.server(
            "relay", f"--to={upstream_port}", "--to-tls", "--from-tls"
        )
        path = f"/stream/{GIGABYTE}"
        costs: dict[str, list[float]] = {"kas": [], "agentk": [], "out": [], "in": []}
        for _ in range(ROUNDS):
            before = kas.cpu(), agentk.cpu()
            speed.download(stand.proxy + path, stand.token, GIGABYTE)
            costs["kas"].append(kas.cpu() - before[0])
            costs["agentk"].append(agentk.cpu() - before[1])
            for name, relay, url in (
                ("out", outer, f"http://127.0.0.1:{outer_port}"),
                ("in", inner, f"https://127.0.0.1:{inner_port}"),
            ):
                start = relay.cpu()
                speed.download(url + path, stand.token, GIGABYTE)
                costs[name].append(relay.cpu() - start)
        for name, floor_name in (("kas", "out"), ("agentk", "in")):
            value, floor = _median(costs[name]), _median(costs[floor_name])
            yield Result(
                f"download of 1 GB: {name} CPU",
                value,
                "s/GB",
                floor,
                1.4,
                value / floor,
            )


def latency() -> Iterator[Result]:
    """
    Measure the latency that kas and agentk add on one connection, compared with one
    nginx hop.
    """
    with Stand() as stand:
        _, upstream_port = stand.upstream()
        _, hop_port = stand.hop(upstream_port)
        stand.kas()
        stand.agentk(upstream_port)
        urls = {
            "direct": f"https://127.0.0.1:{upstream_port}/200",
            "hop": f"https://127.0.0.1:{hop_port}/upstream/200".replace(
                "/upstream", ""
            ),
            "kas": f"{stand.proxy}/200",
        }
        # The hop itself has a file /200, so the request names a path that only its
        # upstream has.
        urls["hop"] = urls["hop"].replace("/200", "//200")
        found: dict[str, list[float]] = {name: [] for name in urls}
        for _ in range(ROUNDS):
            for name, url in urls.items():
                times = speed.latencies(url, stand.token, 2000)
                found[name].append(times[len(times) // 2])
        direct = _median(found["direct"])
        added, floor = _median(found["kas"]) - direct, _median(found["hop"]) - direct
        yield Result(
            "added latency, p50, one connection",
            added * 1e6,
            "us",
            floor * 1e6,
            3.0,
            added / floor,
        )


def beside_downloads() -> Iterator[Result]:
    """
    Measure the p99 of small requests during two unlimited downloads in the same tunnel.
    """
    with Stand() as stand:
        stand.kas()
        _, upstream_port = stand.server("upstream")
        stand.agentk(upstream_port)
        url = f"{stand.proxy}/200"
        quiet, busy = [], []
        for _ in range(ROUNDS):
            quiet.append(speed.requests(url, 4, SECONDS, stand.token).p99)
            downloads = [
                python(
                    "tools.load.speed",
                    "downloads",
                    f"{stand.proxy}/stream/{GIGABYTE}",
                    stand.token,
                    str(GIGABYTE),
                    log=stand.log(f"download-{n}"),
                )
                for n in range(2)
            ]
            try:
                for one in downloads:
                    one.wait_for("downloading")
                busy.append(speed.requests(url, 4, SECONDS, stand.token).p99)
            finally:
                for one in downloads:
                    one.stop()
        value, floor = _median(busy) * 1e3, _median(quiet) * 1e3
        yield Result(
            "p99 of small requests beside two downloads",
            value,
            "ms",
            floor,
            4.0,
            value / floor,
        )


def beside_flood() -> Iterator[Result]:
    """
    Measure the p99 of one user's requests while another user floods 64 connections.
    """
    with Stand() as stand, ThreadPoolExecutor(1) as pool:
        stand.kas()
        _, upstream_port = stand.upstream()
        stand.agentk(upstream_port)
        url = f"{stand.proxy}/200"
        quiet, busy = [], []
        for _ in range(ROUNDS):
            quiet.append(speed.requests(url, 1, SECONDS, stand.token).p99)
            flood = pool.submit(
                speed.requests, url, 64, SECONDS + 2, stand.other_token, nice=NICE
            )
            time.sleep(1)
            busy.append(speed.requests(url, 1, SECONDS, stand.token).p99)
            flood.result()
        value, floor = _median(busy) * 1e3, _median(quiet) * 1e3
        yield Result(
            "p99 of one user's requests beside a flood of another",
            value,
            "ms",
            floor,
            2.0,
            value / floor,
        )


def idle_agents() -> Iterator[Result]:
    """Measure the private memory of kas for each idle agent."""
    with Stand(agents=50) as stand:
        kas = stand.kas()
        agents = stand.agents()
        agents.connect(stand.tokens * 4, stand.agent_port)
        before = kas.private_memory()
        count, batch = 2000, 50
        # Agents connect in batches, because the memory that many concurrent handshakes
        # need for a moment is not a cost of idle agents.
        for _ in range(count // batch):
            agents.connect(stand.tokens, stand.agent_port)
        value = (kas.private_memory() - before) / count / 1024
        yield Result("idle agent: memory at kas", value, "KiB", 30.0, 1.0, value / 30)


def connecting() -> Iterator[Result]:
    """
    Measure the CPU of kas while 5,000 agents connect at once, compared with a bare TLS
    listener.
    """
    count = 5000
    values, floors = [], []
    for _ in range(ROUNDS):
        with Stand(agents=50) as stand:
            accept, port = stand.server("accept")
            bare = Agents("", [port], kind="bare")
            # The listener responds, so it has started.
            assert bare.made == 0
            before = accept.cpu()
            bare.connect([""] * count, port)
            while True:
                accept.tell("accepted")
                if int(accept.wait_for("accepted").split()[1]) >= count:
                    break
                time.sleep(0.1)
            floors.append((accept.cpu() - before) / count * 1e6)
            bare.end()
            kas = stand.kas()
            agents = stand.agents()
            assert agents.made == 0
            before = kas.cpu()
            agents.connect(stand.tokens * (count // 50), stand.agent_port)
            values.append((kas.cpu() - before) / count * 1e6)
    value, floor = _median(values), _median(floors)
    yield Result(
        "5,000 agents connect: kas CPU", value, "us/agent", floor, 2.0, value / floor
    )


def watches() -> Iterator[Result]:
    """
    Measure 2,000 watches through one agent: all of them must deliver events, and the
    memory for each is measured.
    """
    count = 2000
    with Stand() as stand:
        kas = stand.kas()
        upstream, upstream_port = stand.server("upstream")
        agentk = stand.agentk(upstream_port)
        speed.latencies(f"{stand.proxy}/200", stand.token, 10)
        before = kas.private_memory(), agentk.private_memory()
        client = stand.started(
            python(
                "tools.load.speed",
                "watch",
                f"{stand.proxy}/watch",
                stand.token,
                str(count),
                log=stand.log("watch"),
            )
        )
        client.wait_for("open", 120)
        upstream.tell("event")
        client.wait_for(f"delivered {count}", 60)
        for name, process, was in (
            ("kas", kas, before[0]),
            ("agentk", agentk, before[1]),
        ):
            value = (process.private_memory() - was) / count / 1024
            yield Result(
                f"2,000 watches: memory at {name}", value, "KiB", 40.0, 1.0, value / 40
            )


def _fleet(case: Callable[[], Iterator[fleet.Figure]]) -> Callable[..., Any]:
    def run() -> Iterator[Result]:
        for one in case():
            ratio = one.value / one.floor
            yield Result(one.case, one.value, one.unit, one.floor, one.target, ratio)

    return run


CASES: dict[str, Callable[[], Iterator[Result]]] = {
    "one-agent": one_agent,
    "fresh-heads": fresh_heads,
    "many-agents": many_agents,
    "larger-answers": larger_answers,
    "bulk": bulk,
    "latency": latency,
    "beside-downloads": beside_downloads,
    "beside-flood": beside_flood,
    "idle-agents": idle_agents,
    "connecting": connecting,
    "watches": watches,
    "workers-cpu": _fleet(workers.cpu),
    "workers-requests": _fleet(workers.requests),
    "second-kas": _fleet(fleet.second_kas),
    "second-kas-bulk": _fleet(fleet.second_kas_bulk),
    "resumable-bulk": _fleet(fleet.resumable_bulk),
    "known-agents": _fleet(fleet.known_agents),
    "dead-redis": _fleet(fleet.dead_redis),
    "failover": _fleet(fleet.failover),
    "peers": _fleet(peers.beside_peers),
}

#: Names of the cases of a quick run, which take a few seconds each.
QUICK_CASES = ("one-agent", "larger-answers", "bulk", "latency", "second-kas")

RESULTS = ROOT / "build" / "bench.json"
