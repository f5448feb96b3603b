"""Several kas: any of them reaches every agent."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from modules.gitops.agent.project.metrics import GitopsMetrics
from tests.faults.stand import Fleet, FleetKas
from tests.integration import needs
from tests.integration.processes import PATIENCE, eventually, kasctl
from tests.integration.rawhttp import Way
from tests.integration.stack import Agentk, fetch, sandbox
from tests.prometheus.rules import exposed_metrics, named_metrics


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of the API server of the demo."""
    with sandbox(tmp_path_factory.mktemp("sandbox")) as kubeconfig:
        yield kubeconfig


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three kas."""
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    try:
        fleet.start()
        fleet.know_each_other()
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture(scope="module")
def agentk(fleet: Fleet, kubeconfig: Path) -> Agentk:
    """Connected to the second of them."""
    return fleet.agentk(fleet.kas[0].add_agent("main"), kubeconfig, at=fleet.kas[1])


@pytest.fixture(scope="module")
def ways(fleet: Fleet, agentk: Agentk) -> list[Way]:
    """To the API server, through each of them."""
    first = fleet.kas[0]
    first.add_user("everywhere")
    token = first.bearer("everywhere")
    return [Way("everywhere", kas.proxy, kas.authority, token) for kas in fleet.kas]


def test_any_of_them(fleet: Fleet, ways: list[Way]) -> None:
    for way in ways:
        answer = eventually(
            lambda way=way: (
                (found := way.ask("GET", "/version")).status == 200  # type: ignore[misc]
                and found
            )
        )
        assert b"gitVersion" in answer.body
    one, two, three = fleet.kas
    assert two.metric("kas_gateway_requests_total") >= 2
    for kas in one, three:
        eventually(lambda kas=kas: kas.metric("kas_peer_sessions") == 1)  # type: ignore[misc]
    # Once it is known where the agent is, Redis has nothing to do with a request.
    before = one.metric("kas_directory_lookups_total")
    for _ in range(20):
        assert ways[0].ask("GET", "/version").status == 200
    assert one.metric("kas_directory_lookups_total") == before


def test_drain_and_undo(fleet: Fleet, agentk: Agentk, ways: list[Way]) -> None:
    """The agent goes where it is told, and is never out of reach."""
    two, three = fleet.kas[1], fleet.kas[2]
    assert two.process is not None and three.process is not None
    agentk.address = ""
    moved = json.loads(
        kasctl(
            *("drain", "--timeout", "0", "--pid", str(two.process.pid)),
            *("--output", "json"),
            state=two.state,
        ).stdout
    )
    assert moved["ready"] is False
    assert two.status()["ready"] is False
    assert ways[0].ask("GET", "/version").status == 200
    kasctl("drain", "--undo", "--pid", str(two.process.pid), state=two.state)
    assert two.status()["ready"] is True
    agentk.wait_until_ready()
    eventually(lambda: ways[2].ask("GET", "/version").status == 200)


def test_which_kas(fleet: Fleet) -> None:
    """Several share the state directory, so one has to be named."""
    state = fleet.kas[0].state
    done = kasctl("drain", state=state, check=False)
    assert done.returncode == 1
    for kas in fleet.kas:
        assert kas.process is not None
        assert str(kas.process.pid) in done.stderr
    done = kasctl("rebalance", "--pid", "1", state=state, check=False)
    assert "no kas runs here as process 1; running: " in done.stderr
    for kas in fleet.kas:
        assert kas.process is not None
        named = ("--pid", str(kas.process.pid), "--output", "json")
        status = json.loads(kasctl("status", *named, state=state).stdout)
        assert status["pid"] == kas.process.pid
        assert status["redis"] == {"up": True, "news": True, "reason": ""}
        assert (status["draining"], status["peers"]) == (False, 2)
        # Which agents there are is another test's matter.
        done = kasctl("doctor", *named, state=state, check=False)
        checks = json.loads(done.stdout)["checks"]
        assert {"Redis", "peers", "private API", "API proxy"} <= {
            one["check"] for one in checks if one["ok"]
        }


def test_certificates_for_each_other(
    tmp_path_factory: pytest.TempPathFactory, kubeconfig: Path
) -> None:
    """Kas that want to see certificates show theirs; nobody else gets in."""
    folder = tmp_path_factory.mktemp("mutual")
    fleet = Fleet(folder, count=2)
    state = folder / "state"
    kasctl("agent", "add", "other", state=state)
    for kas in fleet.kas:
        kas.mutual = state / "ca.crt"
    try:
        fleet.start()
        fleet.know_each_other()
        one, two = fleet.kas
        fleet.agentk(one.add_agent("main"), kubeconfig, at=two)
        one.add_user("me")
        way = Way("me", one.proxy, one.authority, one.bearer("me"))
        eventually(lambda: way.ask("GET", "/version").status == 200)
        assert one.metric("kas_peer_sessions") == 1
        context = ssl.create_default_context(cafile=str(state / "ca.crt"))
        with (
            socket.create_connection(("127.0.0.1", two.private)) as tcp,
            context.wrap_socket(tcp, server_hostname="localhost") as tls,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            # With TLS 1.3 the refusal comes after the client's part of the handshake.
            tls.settimeout(PATIENCE)
            assert tls.recv(1), "it was closed"
            raise AssertionError("nobody asked for a certificate")
    finally:
        fleet.stop()


def test_revoked(tmp_path_factory: pytest.TempPathFactory, kubeconfig: Path) -> None:
    """
    Open sessions end with the secret, and with the CA of the certificates, that
    verified them.
    """
    folder = tmp_path_factory.mktemp("revoked")
    fleet = Fleet(folder, count=2)
    for name in ("state", "other"):
        kasctl("agent", "add", "other", state=folder / name)
    authorities = folder / "clients.crt"
    shutil.copy(folder / "state" / "ca.crt", authorities)
    for kas in fleet.kas:
        kas.mutual = authorities
    try:
        fleet.start()
        fleet.know_each_other()
        one, two = fleet.kas
        fleet.agentk(one.add_agent("main"), kubeconfig, at=two)
        one.add_user("me")
        way = Way("me", one.proxy, one.authority, one.bearer("me"))

        def reached() -> bool:
            return way.ask("GET", "/version").status == 200

        eventually(reached)
        assert one.process is not None and two.process is not None
        processes = (one.process, two.process)
        secret = folder / "private-api-secret"
        secret.write_text(base64.b64encode(os.urandom(32)).decode())
        text = "ends: the secret of private_api was replaced"
        # The other end of the session may notice it first.
        eventually(lambda: any(text in process.said() for process in processes))
        eventually(reached)
        # Another CA is no reason to end a session; the removal of the first one is.
        both = authorities.read_text() + (folder / "other" / "ca.crt").read_text()
        authorities.write_text(both)
        assert reached()
        assert "a CA of the kas was removed" not in two.process.said()
        shutil.copy(folder / "other" / "ca.crt", authorities)
        two.process.wait_for("ends: a CA of the kas was removed")
        eventually(lambda: not reached())
    finally:
        fleet.stop()


def test_wrong_secret(fleet: Fleet, tmp_path: Path) -> None:
    """A kas with another secret is nobody's peer, and both say so."""
    folder = tmp_path / "stranger"
    stranger = FleetKas(
        folder,
        shared=folder,
        redis_address=f"127.0.0.1:{fleet.redis.port}",
    )
    # Its certificate is good: only the secret is another one.
    stranger.state.mkdir(mode=0o700, parents=True)
    for name in ("ca.crt", "ca.key"):
        shutil.copy(fleet.kas[0].state / name, stranger.state / name)
    try:
        process = stranger.start()
        eventually(lambda: stranger.status()["peers"] >= 3)
        # It dials the others for this, where nothing else did.
        found = kasctl(
            "doctor", "--output", "json", state=stranger.state, check=False
        ).stdout
        (peers,) = [
            one for one in json.loads(found)["checks"] if one["check"] == "peers"
        ]
        assert not peers["ok"], peers
        assert "refused this kas" in peers["message"], peers
        assert stranger.metric("kas_peer_sessions") == 0
        for kas in fleet.kas:
            assert kas.status()["refused_peer"]
        assert "Traceback" not in process.said()
    finally:
        stranger.stop()


def test_metrics_are_well_formed(fleet: Fleet, agentk: Agentk) -> None:
    """promtool finds nothing to say about them."""
    promtool = needs.program("promtool", "apt-get install prometheus")
    for port in (fleet.kas[1].observability, agentk.observability):
        code, body = fetch(port, "/metrics")
        assert code == 200
        done = subprocess.run(
            [promtool, "check", "metrics"], input=body, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, b""), done.stderr + done.stdout


def test_alerts_and_dashboard_know_the_metrics(fleet: Fleet, agentk: Agentk) -> None:
    """Each metric that they ask for is offered."""
    offered = set()
    for port in (fleet.kas[1].observability, agentk.observability):
        code, body = fetch(port, "/metrics")
        assert code == 200
        offered |= exposed_metrics(body.decode())
    # Of a module that agentk does not have here.
    gitops = CollectorRegistry()
    gitops.register(GitopsMetrics({}, time.time))
    offered |= exposed_metrics(generate_latest(gitops).decode())
    assert not named_metrics() - offered
