"""
chisel, a bare tunnel, beside ours: requests by turns, within the same minutes.

``BENCH_PEERS`` names a folder with ``chisel`` in it (``make peers`` builds one).  It
passes bytes of a TCP connection on, in SSH within a WebSocket within TLS: it reads no
HTTP, asks for no credential and counts nothing, and its upstream needs no TLS, while
agentk's does.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from pathlib import Path

import attrs

from bench.fleet import Figure
from bench.processes import Process
from bench.stand import ROUNDS, SECONDS, Stand, wait_for_port
from tools.load import speed
from tools.ports import free_port

#: Bytes of an answer.
SIZE = 6144

#: Of ours, in parts of the peer's.
CPU, LATENCY = 1.1, 1.15


@attrs.frozen
class _Tunnel:
    """Both programs of one tunnel, and where it begins."""

    server: Process
    agent: Process
    url: str


@attrs.frozen
class _Cost:
    """Of a request: microseconds of CPU, and of time."""

    server: float
    agent: float
    p50: float


def chisel() -> Iterator[Figure]:
    """CPU for each request at the server's side and at the agent's, and its time."""
    folder = os.environ.get("BENCH_PEERS", "")
    program = Path(folder).resolve() / "chisel"
    if not folder or not program.exists():
        print("no chisel: BENCH_PEERS names no folder with it, see `make peers`")
        return
    with Stand() as stand:
        kas = stand.kas()
        _, upstream = stand.upstream()
        agentk = stand.agentk(upstream)
        ours = _Tunnel(kas, agentk, f"{stand.proxy}/{SIZE}")
        theirs = _chisel(stand, program)
        for connections in (64, 16, 1):
            costs: dict[_Tunnel, list[_Cost]] = {theirs: [], ours: []}
            for _ in range(ROUNDS):
                for tunnel, found in costs.items():
                    found.append(_requests(tunnel, connections, stand.token))
            yield from _figures(connections, costs[ours], costs[theirs])


def _chisel(stand: Stand, program: Path) -> _Tunnel:
    port, front = free_port(), free_port()
    _, plain = stand.nginx("", tls=False)
    server = stand.started(
        Process(
            [
                *(str(program), "server", "--reverse", "--host=127.0.0.1"),
                *(f"--port={port}", f"--tls-key={stand.key}"),
                f"--tls-cert={stand.certificate}",
            ],
            log=stand.log("chisel-server"),
        )
    )
    wait_for_port(port)
    agent = stand.started(
        Process(
            [
                *(str(program), "client", f"--tls-ca={stand.ca}"),
                f"https://localhost:{port}",
                f"R:127.0.0.1:{front}:127.0.0.1:{plain}",
            ],
            log=stand.log("chisel-client"),
        )
    )
    wait_for_port(front)
    return _Tunnel(server, agent, f"http://127.0.0.1:{front}/{SIZE}")


def _requests(tunnel: _Tunnel, connections: int, token: str) -> _Cost:
    before = tunnel.server.cpu(), tunnel.agent.cpu()
    done = speed.requests(tunnel.url, connections, SECONDS, token)
    return _Cost(
        (tunnel.server.cpu() - before[0]) / done.requests * 1e6,
        (tunnel.agent.cpu() - before[1]) / done.requests * 1e6,
        done.p50 * 1e6,
    )


def _figures(
    connections: int, ours: list[_Cost], theirs: list[_Cost]
) -> Iterator[Figure]:
    what = f"beside chisel, {connections} connections"
    for name, field, target in (
        ("kas CPU", "server", CPU),
        ("agentk CPU", "agent", CPU),
        ("p50", "p50", LATENCY),
    ):
        if field == "p50" and connections > 1:
            continue
        mine, other = (
            statistics.median(getattr(one, field) for one in costs)
            for costs in (ours, theirs)
        )
        yield Figure(f"{what}: {name}", mine, "us/request", other, target)
