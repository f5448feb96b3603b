"""F11 within one kas: the worker that holds the agent is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kas.ctl.control_client import ask
from tests.faults import clients, figures, followers
from tests.faults.record import Record
from tests.integration import pods
from tests.integration.cluster import ControlPlane
from tests.integration.kubectl import Kubectl
from tests.integration.processes import eventually
from tests.integration.stack import Agentk, Kas

#: Watches and execs beside the requests, as in the experiment's description.
WATCHES, EXECS, RATE = 50, 5, 200

#: Seconds that a worker is held up while others take what comes; fewer than it takes
#: for anyone to believe it dead.
HELD = 3.0


@pytest.fixture
def kas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kas]:
    """Of three workers, which need a short path."""
    kas = Kas(tmp_path_factory.mktemp("k"), "workers: 3\n")
    yield kas
    if kas.process is not None:
        kas.process.kill()


def _pids(kas: Kas) -> list[int]:
    return [one["pid"] for one in kas.status()["workers"]]


def _agents(kas: Kas, number: int) -> int:
    assert kas.process is not None
    (folder,) = kas.state.glob(f"workers-*-{kas.process.pid}")
    status = ask(folder / f"{number}.status", "GET", "/status")
    return len(status["agents"])


@contextmanager
def _held(*pids: int) -> Iterator[None]:
    """For `HELD` these accept nothing, and the others do; then for as long all do."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)

    def let_go() -> None:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    go_on = threading.Timer(HELD, let_go)
    go_on.start()
    try:
        yield
    finally:
        go_on.join()
        time.sleep(HELD)


def _connected(client: int, server: int) -> bool:
    """Whether a process has a TCP connection to another one."""
    sockets = {pid: _sockets(pid) for pid in (client, server)}
    ports: dict[int, set[tuple[str, str]]] = {client: set(), server: set()}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        for pid, held in sockets.items():
            if fields[9] in held:
                ports[pid].add((fields[1], fields[2]))
    return any((there, here) in ports[server] for here, there in ports[client])


def _sockets(pid: int) -> set[str]:
    found = (os.readlink(one) for one in Path(f"/proc/{pid}/fd").iterdir())
    return {one[8:-1] for one in found if one.startswith("socket:")}


def test_under_load(
    kas: Kas, control_plane: ControlPlane, namespace: str, record: Record, long: bool
) -> None:
    """Clients of other workers notice a pause, and nothing else."""
    assets = control_plane.assets / "kubectl"
    direct = Kubectl(assets, control_plane.agent, namespace, cache=kas.folder / "a")
    pods.start_pods(direct)
    token = kas.add_agent("main")
    kas.start()
    kubeconfig = kas.add_user("user")
    one, *others = _pids(kas)
    agentk = Agentk(kas, token, control_plane.agent)
    with _held(*others):
        # Nobody else is there to take it.
        agentk.start()
    assert [_agents(kas, number) for number in (1, 2, 3)] == [1, 0, 0]
    way = kas.way("user")
    kubectl = Kubectl(assets, kubeconfig, namespace, "websocket", kas.folder / "b")
    with ExitStack() as stack:
        events = stack.enter_context(clients.Events(control_plane, namespace, 5))
        # Connections that are made while the first is held up are with the others.
        with _held(one):
            watches = stack.enter_context(
                clients.watches(way, WATCHES, namespace, control_plane)
            )
        with _held(one):
            gets = stack.enter_context(clients.gets(way, RATE))
        execs: list[followers.Exec] = []
        while len(execs) < EXECS:
            # kubectl asks for the pod first, so its second connection cannot be led.
            with ExitStack() as trying:
                made = trying.enter_context(followers.Exec(kubectl, "main", "tick"))
                eventually(lambda made=made: made.numbers("got"), what="exec runs")  # type: ignore[misc]
                if not _connected(made.child.pid, one):
                    stack.enter_context(trying.pop_all())
                    execs.append(made)
        time.sleep(10 if long else 3)
        before = [len(each.numbers("got")) for each in execs]
        os.kill(one, signal.SIGKILL)
        back = clients.seconds_until(
            lambda: any(_agents(kas, number) for number in (2, 3)), 30
        )
        time.sleep(30 if long else 8)
        got = gets.stop()
        events.stop()
        time.sleep(1)
        for each in execs:
            each.stop()
        seen = watches.stop()
    experiment = "F11, a worker"
    record.note(
        experiment,
        f"agent at another worker after {back:.1f} s",
        "<= 2 s",
        in_time=back <= 2,
    )
    figures.requests_answered(record, experiment, got)
    figures.watches_complete(record, experiment, seen, events.made)
    figures.execs_went_on(record, experiment, execs, before)
    eventually(lambda: kas.metric("kas_workers_ready") == 3)
    assert kas.metric("kas_workers_replaced_total") == 1
