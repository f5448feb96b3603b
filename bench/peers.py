"""
Other tunnels, compared with ours: requests in turn, within the same minutes.

``BENCH_PEERS`` names a folder with their programs (``make peers`` builds them).  Each
forwards the bytes of a TCP connection, reads no HTTP, requires no credential, and needs
no TLS to its upstream, while agentk's upstream uses TLS.  So the latency is also
measured with an agentk that has the same upstream as the peers:

- ``chisel``: SSH within a WebSocket within TLS; the leanest tunnel that we know;
- ``konnectivity-server`` and ``konnectivity-agent``, with which Kubernetes reaches
  nodes: gRPC within TLS.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from bench.fleet import Figure
from bench.processes import Process
from bench.stand import ROUNDS, SECONDS, Stand, wait_for_port
from tools.load import speed
from tools.ports import free_port

#: Number of bytes of a response.
SIZE = 6144

#: Targets of our CPU and of our latency, as multiples of the values of the other
#: tunnel.
CPU, LATENCY = 1.1, 1.15


@attrs.frozen
class _Tunnel:
    """Both programs of one tunnel, and the URL and token for requests through it."""

    server: Process
    agent: Process
    url: str
    token: str
    #: Whether the measured latency is that of the tunnel alone, without a relay in
    #: front of it.
    timed: bool = True


@attrs.frozen
class _Cost:
    """
    Cost of a request: microseconds of CPU at the server and at the agent, and its
    latency.
    """

    server: float
    agent: float
    p50: float


def beside_peers() -> Iterator[Figure]:
    """Measure the CPU per request at the server and at the agent, and the latency."""
    named = os.environ.get("BENCH_PEERS", "")
    folder = Path(named).resolve()
    found = {
        name: start
        for name, (programs, start) in _PEERS.items()
        if named and all((folder / program).exists() for program in programs)
    }
    for name in _PEERS:
        if name not in found:
            print(f"no {name}: BENCH_PEERS names no folder with it, see `make peers`")
    if not found:
        return
    with Stand(agents=2) as stand:
        kas = stand.kas()
        _, upstream = stand.upstream()
        agentk = stand.agentk(upstream)
        _, plain = stand.nginx("", tls=False)
        tunnels = {name: start(stand, folder, plain) for name, start in found.items()}
        url = f"{stand.proxy}/{SIZE}"
        tunnels["ours"] = _Tunnel(kas, agentk, url, stand.token)
        alike = stand.agentk(plain, number=1, tls=False)
        tunnels["alike"] = _Tunnel(kas, alike, url, stand.second_token)
        for connections in (64, 16, 1):
            costs: dict[str, list[_Cost]] = {name: [] for name in tunnels}
            for _ in range(ROUNDS):
                for name, tunnel in tunnels.items():
                    costs[name].append(_requests(tunnel, connections))
            for name in found:
                timed = connections == 1 and tunnels[name].timed
                what = f"beside {name}, {connections} connections"
                figures = _figures(costs["ours"], costs[name])
                for figure in figures if timed else figures[:-1]:
                    yield attrs.evolve(figure, case=f"{what}: {figure.case}")
                if timed:
                    figure = _figures(costs["alike"], costs[name])[-1]
                    case = f"{what}, same upstream: {figure.case}"
                    yield attrs.evolve(figure, case=case)


def _chisel(stand: Stand, folder: Path, plain: int) -> _Tunnel:
    program = str(folder / "chisel")
    port, front = free_port(), free_port()
    server = stand.started(
        Process(
            [
                *(program, "server", "--reverse", "--host=127.0.0.1"),
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
                *(program, "client", f"--tls-ca={stand.ca}"),
                f"https://localhost:{port}",
                f"R:127.0.0.1:{front}:127.0.0.1:{plain}",
            ],
            log=stand.log("chisel-client"),
        )
    )
    wait_for_port(front)
    return _Tunnel(server, agent, f"http://127.0.0.1:{front}/{SIZE}", stand.token)


def _konnectivity(stand: Stand, folder: Path, plain: int) -> _Tunnel:
    port = free_port()
    asked = stand.folder / "konnectivity.sock"
    server = stand.started(
        Process(
            [
                *(str(folder / "konnectivity-server"), "--mode=http-connect"),
                *(f"--uds-name={asked}", "--server-port=0", f"--agent-port={port}"),
                *(f"--cluster-cert={stand.certificate}", f"--cluster-key={stand.key}"),
                *(f"--health-port={free_port()}", f"--admin-port={free_port()}"),
                "--agent-bind-address=127.0.0.1",
            ],
            log=stand.log("konnectivity-server"),
        )
    )
    wait_for_port(port)
    agent = stand.started(
        Process(
            [
                *(str(folder / "konnectivity-agent"), f"--ca-cert={stand.ca}"),
                *("--proxy-server-host=localhost", f"--proxy-server-port={port}"),
                *(f"--health-server-port={free_port()}", "--v=2"),
                f"--admin-server-port={free_port()}",
            ],
            log=stand.log("konnectivity-agent"),
        )
    )
    agent.wait_for("successfully connected to new proxy server")
    # The relay requests each connection with CONNECT, like the API server, because wrk
    # cannot.
    _, front = stand.server("connect", f"--to={plain}", f"--through={asked}")
    return _Tunnel(
        server, agent, f"http://127.0.0.1:{front}/{SIZE}", stand.token, timed=False
    )


#: Peers by name: programs, and a function that starts both sides in front of a port.
_PEERS: dict[str, tuple[tuple[str, ...], Callable[[Stand, Path, int], _Tunnel]]] = {
    "chisel": (("chisel",), _chisel),
    "konnectivity": (("konnectivity-server", "konnectivity-agent"), _konnectivity),
}


def _requests(tunnel: _Tunnel, connections: int) -> _Cost:
    before = tunnel.server.cpu(), tunnel.agent.cpu()
    done = speed.requests(tunnel.url, connections, SECONDS, tunnel.token)
    return _Cost(
        (tunnel.server.cpu() - before[0]) / done.requests * 1e6,
        (tunnel.agent.cpu() - before[1]) / done.requests * 1e6,
        done.p50 * 1e6,
    )


def _figures(ours: list[_Cost], theirs: list[_Cost]) -> list[Figure]:
    """Return the CPU of each side, and the latency of a request."""
    sides = (("kas CPU", "server"), ("agentk CPU", "agent"), ("p50", "p50"))
    found = []
    for name, field in sides:
        mine, other = (
            statistics.median(getattr(one, field) for one in costs)
            for costs in (ours, theirs)
        )
        target = LATENCY if field == "p50" else CPU
        found.append(Figure(name, mine, "us/request", other, target))
    return found
