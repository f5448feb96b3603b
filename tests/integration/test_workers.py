"""Several processes that are one kas to everyone else."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kas.ctl.control_client import ask
from tests.faults.stand import Fleet
from tests.integration import needs
from tests.integration.processes import Process, eventually, kasctl_here, twistd
from tests.integration.rawhttp import Way
from tests.integration.stack import Agentk, Kas, fetch, sandbox, with_agent
from tools.ports import free_port

#: Of one kas here.
WORKERS = 3


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of the API server of the demo."""
    with sandbox(tmp_path_factory.mktemp("sandbox")) as kubeconfig:
        yield kubeconfig


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a short name: sockets are in it."""
    return tmp_path_factory.mktemp("k")


@pytest.fixture
def kas(folder: Path) -> Iterator[Kas]:
    """Not started; ended if the test did not."""
    kas = Kas(folder, f"workers: {WORKERS}\n")
    yield kas
    if kas.process is not None:
        kas.process.kill()


@pytest.fixture
def agentk(kas: Kas, kubeconfig: Path) -> Iterator[Agentk]:
    """Connected to it."""
    with with_agent(kas, kubeconfig) as agentk:
        yield agentk


@pytest.fixture
def way(kas: Kas, agentk: Agentk) -> Way:
    """To the API server, through kas."""
    kas.add_user("one")
    return kas.way("one")


def _sockets(kas: Kas) -> Path:
    assert kas.process is not None
    (folder,) = kas.state.glob(f"workers-*-{kas.process.pid}")
    return folder


def _of_worker(kas: Kas, number: int) -> dict[str, Any]:
    return ask(_sockets(kas) / f"{number}.status", "GET", "/status")


def _holder(kas: Kas) -> tuple[int, int]:
    """Number and process of the worker that has the agent."""
    for one in kas.status()["workers"]:
        if one["ready"] and _of_worker(kas, one["worker"])["agents"]:
            return one["worker"], one["pid"]
    return 0, 0


def _is_refused(where: int | Path) -> bool:
    """Whether nobody listens there."""
    is_path = isinstance(where, Path)
    with socket.socket(socket.AF_UNIX if is_path else socket.AF_INET) as client:
        try:
            client.connect(str(where) if is_path else ("127.0.0.1", where))
        except (ConnectionRefusedError, FileNotFoundError):
            return True
        return False


def test_one_kas_to_everyone(kas: Kas, agentk: Agentk, way: Way) -> None:
    """Whichever worker a connection reaches, it finds the agent; all look as one."""
    for _ in range(40):
        assert way.ask("GET", "/version").status == 200
    status = kas.status()
    assert [one["worker"] for one in status["workers"]] == [1, 2, 3]
    assert status["ready"] and status["peers"] == 0
    assert [one["agent_name"] for one in status["agents"]] == ["main"]
    assert kas.metric("kas_connected_agents") == 1
    assert kas.metric("kas_workers_ready") == WORKERS
    assert kas.metric("kas_kubernetes_api_requests_total") >= 40
    # Nobody knows which worker has the agent, so some of them asked another one.
    assert kas.metric("kas_gateway_requests_total") > 0
    (listed,) = kas.ctl_json("agent", "list")
    assert listed["connected"] is True
    assert kas.process is not None
    shown = kas.ctl("status")
    assert "workers: 3" in shown
    assert f"worker {_holder(kas)[0]} of {kas.process.pid}" in shown
    lines = [json.loads(line) for line in kas.process.said().splitlines()]
    assert {one.get("worker") for one in lines} == {None, 1, 2, 3}


def test_a_worker_is_killed(kas: Kas, agentk: Agentk, way: Way) -> None:
    """Another one takes its place; the agent is back at once, and no request fails."""
    number, pid = _holder(kas)
    os.kill(pid, signal.SIGKILL)
    for _ in range(60):
        assert way.ask("GET", "/version").status == 200
    eventually(lambda: kas.metric("kas_workers_ready") == WORKERS)
    assert kas.metric("kas_workers_replaced_total") == 1
    assert kas.status()["workers"][number - 1]["replaced"] == 1
    eventually(lambda: kas.metric("kas_connected_agents") == 1)
    # The new one knows where the agent is, and is known to the others.
    os.kill(_holder(kas)[1], signal.SIGKILL)
    for _ in range(60):
        assert way.ask("GET", "/version").status == 200


def test_extra_tunnels(kas: Kas, agentk: Agentk, way: Way) -> None:
    """A busy agent is reached by each worker itself, also while it connects again."""

    with ExitStack() as stack:
        # Enough that each worker has some of them.
        clients = [stack.enter_context(way.connect()) for _ in range(30)]

        def settled() -> bool:
            for client in clients:
                client.send(way.head("GET", "/version"))
                assert client.answer().status == 200
            return kas.metric("kas_extra_tunnels") == WORKERS - 1

        eventually(settled, 120)
    assert agentk.metric("agentk_extra_tunnels") == WORKERS - 1
    # To everyone else it is one agent with one connection, as before.
    assert kas.metric("kas_connected_agents") == 1
    assert kas.metric("kas_agent_connections") == 1
    assert len(kas.status()["extra_tunnels"]) == WORKERS - 1
    assert len(kas.ctl_json("agent", "list")) == 1
    relayed = kas.metric("kas_gateway_requests_total")
    for _ in range(60):
        assert way.ask("GET", "/version").status == 200
    assert kas.metric("kas_gateway_requests_total") == relayed
    os.kill(_holder(kas)[1], signal.SIGKILL)
    slowest = 0.0
    for _ in range(60):
        began = time.monotonic()
        assert way.ask("GET", "/version").status == 200
        slowest = max(slowest, time.monotonic() - began)
    print(f"slowest request while the agent connects again: {slowest:.3f} s")
    eventually(lambda: kas.metric("kas_connected_agents") == 1)
    # Those that are sent away leave with the connection.
    kas.ctl("drain", "--timeout", "0")
    eventually(lambda: agentk.metric("agentk_extra_tunnels") == 0)
    assert way.ask("GET", "/version").status == 200


def test_drained_as_one(kas: Kas, agentk: Agentk, way: Way) -> None:
    """Every worker sends its agents away and takes none, one that is new as well."""
    before = fetch(kas.observability, "/readiness")[0]
    moved = kas.ctl_json("drain", "--timeout", "0")
    assert (before, moved["ready"], moved["draining"]) == (200, False, True)
    assert fetch(kas.observability, "/readiness")[0] == 503
    for number in range(1, WORKERS + 1):
        assert _of_worker(kas, number)["draining"] is True
    pid = kas.status()["workers"][0]["pid"]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: kas.status()["workers"][0]["pid"] not in (None, pid))
    eventually(lambda: kas.metric("kas_workers_ready") == WORKERS)
    eventually(lambda: _of_worker(kas, 1)["draining"] is True)
    kas.ctl("drain", "--undo")
    eventually(lambda: fetch(kas.observability, "/readiness")[0] == 200)
    eventually(lambda: way.ask("GET", "/version").status == 200)


def test_an_order_that_one_missed(kas: Kas, agentk: Agentk) -> None:
    """It is repeated until every worker says that it is so."""
    control = _sockets(kas) / "2.control"
    kas.ctl("drain", "--timeout", "0")
    ask(control, "POST", "/undrain")
    eventually(lambda: _of_worker(kas, 2)["draining"] is True)
    kas.ctl("drain", "--undo")
    ask(control, "POST", "/drain")
    eventually(lambda: _of_worker(kas, 2)["draining"] is False)
    assert fetch(kas.observability, "/readiness")[0] == 200


def test_drained_while_one_does_not_answer(kas: Kas, agentk: Agentk) -> None:
    """Nobody says that its agents have left."""
    pid = _holder(kas)[1]
    with (
        _stopped(pid),
        pytest.raises(AssertionError, match="1 silent worker still here"),
    ):
        kasctl_here("drain", "--timeout", "1", state=kas.state)
    # It was told; the others have drained as well, so the agent has to stay.
    eventually(lambda: _of_worker(kas, _holder(kas)[0])["draining"] is True)
    kas.ctl("drain", "--undo")


def test_drained_while_none_is_ready(kas: Kas, agentk: Agentk) -> None:
    """Those that take their place are drained, and until then it is not known."""
    pids = [one["pid"] for one in kas.status()["workers"]]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(AssertionError, match="3 silent workers still here"):
            kasctl_here("drain", "--timeout", "1", state=kas.state)
        with pytest.raises(AssertionError, match="no worker responds"):
            kasctl_here("rebalance", state=kas.state)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    # Three programs start at once.
    eventually(lambda: kas.metric("kas_workers_ready") == WORKERS)
    eventually(
        lambda: all(
            _of_worker(kas, one)["draining"] is True for one in range(1, WORKERS + 1)
        )
    )
    kas.ctl("drain", "--undo")
    eventually(lambda: fetch(kas.observability, "/readiness")[0] == 200)
    assert kas.process is not None
    assert "worker 1 does not respond: no response within 2.3 s" in kas.process.said()


def test_agents_while_one_does_not_answer(kas: Kas, agentk: Agentk) -> None:
    """What the others have is known; what it has is neither connected nor away."""
    number, holder = _holder(kas)
    (other, *_) = (
        one["pid"] for one in kas.status()["workers"] if one["worker"] != number
    )
    kas.add_agent("elsewhere")
    eventually(lambda: len(kas.ctl_json("agent", "list")) == 2)

    def states() -> list[object]:
        found = {one["name"]: one for one in kas.ctl_json("agent", "list")}
        return [found[name]["connected"] for name in ("main", "elsewhere")]

    eventually(lambda: states() == [True, False])
    for pid, expected in ((other, [True, None]), (holder, [None, None])):
        # Each time for one command alone: a worker that is silent for long is killed.
        with _stopped(pid):
            assert states() == expected
        eventually(lambda: states() == [True, False])
        with _stopped(pid):
            shown = kas.ctl("agent", "list")
        assert (" unknown " in shown, " away " in shown) == (True, False)
    eventually(lambda: states() == [True, False])


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    """As long as this lasts the process answers nothing."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_changed_file_waits_for_a_restart(kas: Kas, agentk: Agentk, way: Way) -> None:
    """One that takes the place of another is what the others are."""
    kas.configuration.write_text("workers: [")
    os.kill(kas.status()["workers"][0]["pid"], signal.SIGKILL)
    eventually(lambda: kas.metric("kas_workers_replaced_total") == 1)
    eventually(lambda: kas.metric("kas_workers_ready") == WORKERS)
    assert kas.status()["workers"][0]["replaced"] == 1
    for _ in range(20):
        assert way.ask("GET", "/version").status == 200


def test_limits_are_those_of_all(kas: Kas, kubeconfig: Path) -> None:
    """Whichever workers the connections of a user reach, they are counted together."""
    kas.proxy_settings = ("max_requests_per_credential: 9",)
    with with_agent(kas, kubeconfig), ExitStack() as stack:
        kas.add_user("one")
        way = kas.way("one")
        eventually(lambda: way.ask("GET", "/version").status == 200)
        statuses = []
        for number in range(12):
            watch = stack.enter_context(way.connect())
            watch.send(way.head("GET", "/api/v1/namespaces?watch=1"))
            statuses.append(watch.head()[1])
            eventually(
                lambda number=number: (
                    kas.metric(  # type: ignore[misc]
                        "kas_kubernetes_api_requests_in_flight"
                    )
                    == min(number + 1, 9)
                )
            )
            # What one has, the others hear within a batch.
            _all_heard(kas)
        assert statuses == [200] * 9 + [429] * 3


def _all_heard(kas: Kas) -> None:
    """Wait for a batch of each worker, which comes in the order of what is told."""
    for _ in range(2):
        for number in range(1, WORKERS + 1):
            _of_worker(kas, number)
        time.sleep(0.05)


def test_with_redis(folder: Path, kubeconfig: Path) -> None:
    """Workers of two kas find each other's agents, and are two kas to operators."""
    fleet = Fleet(folder, 2, "workers: 2\n")
    for kas in fleet.kas:
        # Its second worker has the port after that.
        kas.private, after = free_port(), free_port()
        assert after == kas.private + 1
    try:
        fleet.start()
        one, two = fleet.kas
        agentk = fleet.agentk(one.add_agent("main"), kubeconfig, at=two)
        one.add_user("one")
        token = one.bearer("one")
        for kas in fleet.kas:
            way = Way("one", kas.proxy, kas.authority, token)
            eventually(lambda way=way: way.ask("GET", "/version").status == 200)  # type: ignore[misc]
            for _ in range(20):
                assert way.ask("GET", "/version").status == 200
        # The two workers of the other one.
        eventually(lambda: [kas.status()["peers"] for kas in fleet.kas] == [2, 2])
        assert one.metric("kas_gateway_requests_total") == 0
        assert two.metric("kas_connected_agents") == 1
        assert one.process is not None
        one.process.child.send_signal(signal.SIGTERM)
        eventually(lambda: fetch(one.observability, "/readiness")[0] == 503)
        # Who sends requests has yet to notice.
        way = Way("one", one.proxy, one.authority, token)
        assert way.ask("GET", "/version").status == 200
        assert one.stop()
        began = time.monotonic()
        assert agentk.stop()
        assert two.stop()
        # Nobody waits for agents to leave to workers that stop as well.
        assert time.monotonic() - began < 20
    finally:
        fleet.stop()


def test_the_end(kas: Kas, agentk: Agentk) -> None:
    """All workers end with it, in good order, and leave nothing behind."""
    assert kas.process is not None
    pids = [one["pid"] for one in kas.status()["workers"]]
    assert kas.stop()
    assert not any(Path("/proc", str(pid)).exists() for pid in pids)
    left = {path.name for path in kas.state.iterdir()}
    files = ("workers-", "running-", "stopping-")
    assert not {one for one in left if one.startswith(files)}
    assert not {one for one in left if one.endswith(".sock")}


def test_seen_until_the_end(kas: Kas, kubeconfig: Path) -> None:
    """What runs while kas stops is told of as before, by the worker that has it."""
    # More than a busy machine needs to look at it.
    kas.grace = "40s"
    with with_agent(kas, kubeconfig), ExitStack() as stack:
        kas.add_user("one")
        way = kas.way("one")
        assert kas.process is not None
        log = stack.enter_context(way.connect())
        path = "/api/v1/namespaces/default/pods/ticker/log?follow=true&tailLines=1"
        log.send(way.head("GET", path))
        assert log.head()[1] == 200
        kas.process.child.terminate()
        eventually(lambda: fetch(kas.observability, "/readiness")[0] == 503)
        eventually(lambda: kas.metric("kas_workers_ready") < WORKERS)
        assert kas.metric("kas_kubernetes_api_requests_in_flight") == 1
        assert kas.ctl_json("status")["ready"] is False
        # Of one that has ended already.
        assert " pid=none ready=no" in kas.ctl("status")
    assert kas.stop()
    said = [json.loads(line) for line in kas.process.said().splitlines()]
    about = (
        "kas.workers.calls.WorkerCalls",
        "kas.workers.operations.WorkersOperations",
        "kas.workers.part.WorkersPart",
        "kas.fleet.peers.Peer",
    )
    assert not [
        one for one in said if one["level"] != "info" and one["logger"] in about
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_unix_socket_while_it_stops(
    folder: Path, kubeconfig: Path, workers: int
) -> None:
    """Its path is there as long as clients are taken, and then its successor's."""
    path = folder / "web.sock"
    settings = "workers: {}\nweb:\n  listen: {{network: unix, address: {}, {}}}\n"
    # Longer than another kas takes to start, and to find that it cannot.
    longer = settings.format(workers, path, "listen_grace_period: 20s")
    shorter = settings.format(workers, path, "listen_grace_period: 1s")
    one, two = Kas(folder, longer), Kas(folder / "two", shorter)
    one.grace = "60s"
    try:
        with with_agent(one, kubeconfig):
            one.add_user("one")
            way = one.way("one")
            eventually(lambda: way.ask("GET", "/version").status == 200)
            assert one.process is not None
            with way.connect() as connection:
                connection.send(way.head("GET", "/version", "Content-Length: 2") + b"{")
                running = "kas_kubernetes_api_requests_in_flight"
                eventually(lambda: one.metric(running) == 1)
                one.process.child.terminate()
                eventually(lambda: _is_refused(one.agents))
                assert not _is_refused(path)
                with pytest.raises(AssertionError, match=r"web\.sock is in use"):
                    two.start()
                eventually(lambda: _is_refused(path))
                two.start()
                assert not _is_refused(path)
                connection.send(b"}")
                assert connection.answer("GET").status == 200
            assert one.stop()
        assert not _is_refused(path)
        assert two.stop()
        assert not path.exists()
    finally:
        for kas in (one, two):
            if kas.process is not None:
                kas.process.kill()


def test_watched_while_it_stops(kas: Kas, kubeconfig: Path) -> None:
    """As long as something is under way, its workers say what."""
    kas.grace = "60s"
    with with_agent(kas, kubeconfig):
        kas.add_user("one")
        way = kas.way("one")
        eventually(lambda: way.ask("GET", "/version").status == 200)
        with way.connect() as connection:
            head = way.head("GET", "/version", "Content-Length: 2")
            connection.send(head + b"{")
            running = "kas_kubernetes_api_requests_in_flight"
            eventually(lambda: kas.metric(running) == 1)
            assert kas.process is not None
            kas.process.child.send_signal(signal.SIGTERM)
            eventually(lambda: fetch(kas.observability, "/readiness")[0] == 503)
            eventually(lambda: kas.status()["modules"])
            connection.send(b"}")
            assert connection.answer("GET").status == 200
        assert kas.stop()


def test_killed_itself(kas: Kas, agentk: Agentk) -> None:
    """No worker outlives it, and the next one removes what it left."""
    assert kas.process is not None
    pids = [one["pid"] for one in kas.status()["workers"]]
    old = _sockets(kas)
    kas.process.child.kill()
    kas.process.child.wait()
    eventually(lambda: not any(Path("/proc", str(pid)).exists() for pid in pids))
    assert old.exists()
    kas.start()
    assert not old.exists()
    agentk.wait_until_ready()


def test_killed_itself_while_it_serves(kas: Kas, kubeconfig: Path) -> None:
    """What workers have under way may end, and the next one has their ports."""
    kas.grace = "60s"
    with with_agent(kas, kubeconfig) as agentk:
        kas.add_user("one")
        way = kas.way("one")
        eventually(lambda: way.ask("GET", "/version").status == 200)
        with way.connect() as connection:
            connection.send(way.head("GET", "/version", "Content-Length: 2") + b"{")
            running = "kas_kubernetes_api_requests_in_flight"
            eventually(lambda: kas.metric(running) == 1)
            pids = [one["pid"] for one in kas.status()["workers"]]
            assert kas.process is not None
            kas.process.child.kill()
            kas.process.child.wait()
            eventually(lambda: _is_refused(kas.agents) and _is_refused(kas.proxy))
            kas.start()
            assert any(Path("/proc", str(pid)).exists() for pid in pids)
            connection.send(b"}")
            assert connection.answer("GET").status == 200
        agentk.wait_until_ready()
        eventually(lambda: not any(Path("/proc", str(pid)).exists() for pid in pids))


@pytest.mark.parametrize("drains", [False, True])
def test_killed_itself_beside_another_kas(
    folder: Path, kubeconfig: Path, drains: bool
) -> None:
    """The next one has all ports at once, also where agents are still being moved."""
    fleet = Fleet(folder, 2, "workers: 2\n")
    one, two = fleet.kas
    one.private, after = free_port(), free_port()
    assert after == one.private + 1
    two.more = ""
    for kas in fleet.kas:
        kas.grace = "60s"
    try:
        fleet.start()
        agentk = fleet.agentk(one.add_agent("main"), kubeconfig, at=one)
        one.add_user("one")
        way = one.way("one")
        eventually(lambda: way.ask("GET", "/version").status == 200)
        eventually(lambda: one.status()["peers"] == 1)
        with way.connect() as connection:
            connection.send(way.head("GET", "/version", "Content-Length: 2") + b"{")
            running = "kas_kubernetes_api_requests_in_flight"
            eventually(lambda: one.metric(running) == 1)
            pids = [worker["pid"] for worker in one.status()["workers"]]
            assert one.process is not None
            if drains:
                one.process.child.terminate()
                eventually(lambda: _is_refused(one.agents))
            one.process.child.kill()
            one.process.child.wait()
            eventually(
                lambda: all(
                    _is_refused(port)
                    for port in (one.agents, one.proxy, one.private, one.private + 1)
                ),
                2,
            )
            one.start()
            assert any(Path("/proc", str(pid)).exists() for pid in pids)
            eventually(lambda: way.ask("GET", "/version").status == 200)
            connection.send(b"}")
            assert connection.answer("GET").status == 200
        agentk.wait_until_ready()
        eventually(lambda: not any(Path("/proc", str(pid)).exists() for pid in pids))
    finally:
        fleet.stop()


@pytest.mark.parametrize("workers", [1, 2])
def test_twins(folder: Path, workers: int) -> None:
    """Of two in containers with one host name the second does not start."""
    container = [str(needs.program("unshare", "apt-get install util-linux"))]
    container += ["--pid", "--fork", "--kill-child"]
    if subprocess.run([*container, "true"], capture_output=True).returncode != 0:
        needs.missing("namespaces of processes", "run as root")

    def start(name: str) -> Process:
        kas = Kas(folder / name, f"workers: {workers}\n")
        kas.folder.mkdir()
        command = twistd("kas", "--configuration-file", kas.configuration)
        return Process(
            "kas",
            [*container, *command, "--state-directory", folder / "state"],
            kas.folder / "kas.log",
        )

    one = start("one")
    try:
        one.wait_for("kas is ready")
        (socket_of_one,) = (folder / "state").glob("control-*.1.sock")
        with pytest.raises(
            AssertionError, match="give each container its own host name"
        ):
            start("two").wait_for("kas is ready")
        assert ask(socket_of_one, "GET", "/")["pid"] == 1
        one.kill()
        again = start("three")
        again.wait_for("kas is ready")
        assert ask(socket_of_one, "GET", "/")["pid"] == 1
        again.kill()
    finally:
        one.kill()


def test_a_worker_that_cannot_start(folder: Path) -> None:
    """kas does not start, and what is wrong is said once it is seen."""
    kas = Kas(folder, "workers: 2\n")
    first = Kas(folder / "first")
    first.start()
    kas.agents = first.agents
    with pytest.raises(AssertionError, match="is in use"):
        kas.start()
    assert first.process is not None
    first.process.kill()
    assert not list(kas.state.glob("workers-*"))
    assert json.loads(kas.ctl("agent", "list", "--output", "json")) is not None


def test_no_descriptors_for_a_worker(folder: Path) -> None:
    """kas does not start, says so in one line, and leaves nothing behind."""
    kas = Kas(folder, "workers: 8\n")
    command = twistd("kas", "--configuration-file", kas.configuration)
    few = 50  # for its sockets, and pipes to some of the workers
    process = Process(
        "kas",
        [*command, "--state-directory", kas.state],
        folder / "kas.log",
        prepare=partial(resource.setrlimit, resource.RLIMIT_NOFILE, (few, few)),
    )
    try:
        assert process.ended() == 1
    finally:
        process.kill()
    assert "(not started: Too many open files)" in process.said().splitlines()[-1]
    assert "Traceback" not in process.said()
    assert not list(kas.state.glob("workers-*"))


def test_a_state_directory_with_a_long_path(folder: Path) -> None:
    """kas does not start, says why, and what is in the directory stays."""
    state = folder / ("d" * 60)
    kas = Kas(state, "workers: 2\n")
    kas.state.mkdir(mode=0o700, parents=True)
    (kas.state / "identity.json").write_text('{"version": 1}')
    with pytest.raises(AssertionError, match="too long for the sockets"):
        kas.start()
    assert (kas.state / "identity.json").exists()
