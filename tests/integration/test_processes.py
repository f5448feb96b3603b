"""kas and agentk as processes: how they start, stop, and what they let be seen."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from tests.integration import needs
from tests.integration.cluster import ControlPlane
from tests.integration.processes import (
    PATIENCE,
    Process,
    clean_environment,
    eventually,
    kasctl,
    script,
    twistd,
)
from tests.integration.rawhttp import Way
from tests.integration.stack import Agentk, Kas, fetch

MEBIBYTE = 1024 * 1024


# Start and stop.


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_stop(how: signal.Signals, lone_kas: Kas, lone_agentk: Agentk) -> None:
    """Both end in good order when they are told to."""
    lone_kas.start()
    lone_agentk.start()
    assert lone_agentk.stop(how)
    assert lone_kas.stop(how)


def test_kasctl_knows_the_ports(lone_kas: Kas) -> None:
    """Ports that the configuration names, or the system chose, need no option."""
    lone_kas.agents = lone_kas.proxy = lone_kas.observability = 0
    lone_kas.start()
    lone_kas.ctl("agent", "add", "main")
    content = lone_kas.ctl_json("kubeconfig", "--agent", "main", "--as-agent")
    cluster = content["clusters"][0]["cluster"]
    assert cluster["server"] == f"https://127.0.0.1:{lone_kas.proxy}/agents/main"
    assert "certificate-authority-data" in cluster
    assert lone_kas.ctl_json("status")["ready"] is True
    done = kasctl("doctor", "--output", "json", state=lone_kas.state, check=False)
    checks = {one["check"]: one["ok"] for one in json.loads(done.stdout)["checks"]}
    # All is well but for the agent, which did not come.
    assert [name for name, ok in checks.items() if not ok] == ["agents"]
    assert done.returncode == 1
    assert lone_kas.stop()
    assert not list(lone_kas.state.glob("running-*"))


def test_without_configuration(tmp_path: Path) -> None:
    """The default needs no file; it makes certificates and a private directory."""
    state = tmp_path / "state"
    process = Process(
        "kas", twistd("kas", "--state-directory", state), tmp_path / "kas.log"
    )
    try:
        process.wait_for("kas is ready|cannot listen|in use")
        if "kas is ready" not in process.said():
            needs.missing("the default ports", "stop what listens on 8150 to 8154")
        assert state.stat().st_mode & 0o777 == 0o700
        for key in state.glob("*.key"):
            assert key.stat().st_mode & 0o777 == 0o600
        assert process.stops_cleanly()
    finally:
        process.kill()


def daemonise(
    name: str, folder: Path, *arguments: str | Path
) -> tuple[Path, Path, subprocess.CompletedProcess[str]]:
    """Start a service as a daemon: its pid file, its log, how the command ended."""
    pidfile, log = folder / f"{name}.pid", folder / f"{name}.log"
    done = subprocess.run(
        [
            *(script("twistd"), "--pidfile", pidfile, "--logfile", log),
            *("--rundir", folder, name, *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
    )
    return pidfile, log, done


def test_daemons(lone_kas: Kas, lone_agentk: Agentk, tmp_path: Path) -> None:
    """In the background, with a pid file that goes when they do."""
    lone_kas.start()
    lone_kas.stop()
    arguments = ("--configuration-file", lone_kas.configuration)
    started = []
    try:
        for name, more in (
            ("kas", (*arguments, "--state-directory", lone_kas.state)),
            ("agentk", tuple(lone_agentk.arguments())),
        ):
            pidfile, log, done = daemonise(name, tmp_path, *more)
            assert done.returncode == 0, done.stderr
            eventually(pidfile.exists, what="a pid file")
            started.append((name, int(pidfile.read_text()), pidfile, log))
        ready = eventually(
            lambda: fetch(lone_kas.observability, "/readiness")[0] == 200, 30, "kas"
        )
        assert ready
        eventually(
            lambda: len(lone_kas.status()["agents"]) == 1, 30, "the agent is there"
        )
    finally:
        for _, pid, _, _ in reversed(started):
            os.kill(pid, signal.SIGTERM)
    for name, pid, pidfile, log in reversed(started):
        eventually(lambda p=pid: not Path(f"/proc/{p}").exists(), what=f"{name} ends")  # type: ignore[misc]
        assert not pidfile.exists()
        said = {"kas": "kas is ready", "agentk": "connected to kas"}[name]
        assert said in log.read_text()


def test_daemon_that_cannot_start(lone_kas: Kas, tmp_path: Path) -> None:
    """Whoever typed the command is told why."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        lone_kas.agents = taken.getsockname()[1]
        pidfile, _, done = daemonise(
            "kas",
            tmp_path,
            *("--configuration-file", lone_kas.configuration),
            *("--state-directory", lone_kas.state),
        )
    assert done.returncode == 1
    assert str(lone_kas.agents) in done.stderr + done.stdout
    # The command may end a moment before the process that it began.
    eventually(lambda: not pidfile.exists(), what="its pid file is gone")


def test_other_runner(lone_kas: Kas) -> None:
    """`python -m twisted`, which a checkout has without an installation."""
    process = lone_kas.process = Process(
        "kas",
        [
            *(sys.executable, "-m", "twisted", "--log-format=text", "kas"),
            *("--configuration-file", lone_kas.configuration),
            *("--state-directory", lone_kas.state),
        ],
        lone_kas.folder / "kas.log",
    )
    process.wait_for("kas is ready")
    process.stop()
    assert "Traceback" not in process.said()


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A service that is expected to end by itself."""
    return subprocess.run(
        [str(part) for part in twistd(*arguments)],
        capture_output=True,
        text=True,
        timeout=30,
        env=clean_environment(),
    )


def test_check(lone_kas: Kas, lone_agentk: Agentk, tmp_path: Path) -> None:
    """`--check` says whether it would start, and starts nothing."""
    done = run("kas", "--check", "--configuration-file", lone_kas.configuration)
    assert (done.returncode, done.stderr) == (0, "")
    assert "kubernetes_api" in done.stdout
    lone_kas.start()
    done = run("agentk", *lone_agentk.arguments(), "--check")
    assert (done.returncode, done.stderr) == (0, "")
    assert not lone_kas.status()["agents"]


def test_check_finds_everything(lone_kas: Kas) -> None:
    """All problems at once, and status 1."""
    lone_kas.settings = "nonsense: 1\nredis: {}\n"
    done = run("kas", "--check", "--configuration-file", lone_kas.configuration)
    assert done.returncode == 1
    assert "nonsense" in done.stderr + done.stdout
    done = run("agentk", "--check", "--kas-address", "grpcs://x", "--log-level", "loud")
    assert done.returncode == 1
    said = done.stderr + done.stdout
    assert "tls://" in said and "--log-level" in said
    assert "Traceback" not in said


def test_port_taken(lone_kas: Kas) -> None:
    """A service that cannot listen ends with status 1 and the reason."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        lone_kas.proxy = taken.getsockname()[1]
        done = run(
            *("kas", "--configuration-file", lone_kas.configuration),
            *("--state-directory", lone_kas.state),
        )
    assert done.returncode == 1
    assert str(lone_kas.proxy) in done.stderr + done.stdout


# What can be seen.


def test_memory(kas: Kas, agentk: Agentk) -> None:
    """agentk is small."""
    assert agentk.process is not None and kas.process is not None
    fresh = Agentk(kas, kas.folder / "agent-main.token", agentk.kubeconfig, "fresh")
    process = fresh.start()
    try:
        assert process.resident() < 80 * MEBIBYTE, process.resident() / MEBIBYTE
    finally:
        process.kill()
    eventually(agentk.ready, 60, "the first agentk serves again")


def test_no_secret_is_seen(
    kas: Kas, agentk: Agentk, control_plane: ControlPlane, ways: dict[str, Way]
) -> None:
    """Neither by other users of the machine, nor by readers of logs."""
    assert agentk.process is not None and kas.process is not None
    secrets = {
        "agent's token": agentk.token.read_text().strip(),
        "user's token": ways["proxied"].token.rpartition(":")[2],
        "service account's token": control_plane.token,
    }
    # Once used, and once nearly right.
    assert ways["proxied"].ask("GET", "/readyz").status == 200
    wrong = attrs.evolve(ways["proxied"], token=ways["proxied"].token[:-1])
    assert wrong.ask("GET", "/readyz").status == 401
    for process in kas.process, agentk.process:
        places = {
            "command line": Path(f"/proc/{process.pid}/cmdline").read_bytes(),
            "environment": Path(f"/proc/{process.pid}/environ").read_bytes(),
            "log": process.said().encode(),
        }
        for place, content in places.items():
            for secret, value in secrets.items():
                # A part is a secret, too, but for the number in front.
                assert value[-30:-2].encode() not in content, (place, secret)


def test_token_in_the_environment(
    lone_kas: Kas, lone_agentk: Agentk, tmp_path: Path
) -> None:
    """A token in ``$AGENTK_TOKEN`` is handed to no child."""
    token = lone_agentk.token.read_text().strip()
    seen = tmp_path / "seen"
    plugin = tmp_path / "plugin"
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "x"},
    }
    plugin.write_text(f"#!/bin/sh\nenv > {seen}\necho '{json.dumps(credential)}'\n")
    plugin.chmod(0o700)
    assert lone_agentk.kubeconfig is not None
    content = json.loads(lone_agentk.kubeconfig.read_text())
    content["users"][0]["user"] = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(plugin),
            "interactiveMode": "Never",
        }
    }
    lone_agentk.kubeconfig.write_text(json.dumps(content))
    lone_kas.start()
    arguments = lone_agentk.arguments()
    at = arguments.index("--token-file")
    del arguments[at : at + 2]
    process = Process(
        "agentk",
        twistd("agentk", *arguments),
        tmp_path / "agentk.log",
        environment={"AGENTK_TOKEN": token},
    )
    try:
        process.wait_for("connected to kas")
        assert seen.exists()
        assert "PATH=" in seen.read_text()
        assert token not in seen.read_text()
        assert token not in process.said()
        assert token.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    finally:
        process.kill()


# systemd.


def test_ready_is_told(lone_kas: Kas, lone_agentk: Agentk, tmp_path: Path) -> None:
    """systemd hears of the start and of the end, from both."""
    for service in lone_kas, lone_agentk:
        path = tmp_path / "notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.bind(str(path))
            told.settimeout(PATIENCE)
            service.start(environment={"NOTIFY_SOCKET": str(path)})
            assert told.recv(1000) == b"READY=1"
            if service is lone_agentk:
                assert service.stop()
                assert told.recv(1000) == b"STOPPING=1"
        path.unlink()


def test_watchdog(lone_kas: Kas, tmp_path: Path) -> None:
    """It hears that kas lives, twice as often as it asks."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(path))
        told.settimeout(PATIENCE)
        environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "400000"}
        lone_kas.start(environment=environment)
        assert told.recv(1000) == b"READY=1"
        assert [told.recv(1000) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        assert lone_kas.stop()


@pytest.mark.parametrize("workers", [1, 2])
def test_socket_activation(lone_kas: Kas, lone_agentk: Agentk, workers: int) -> None:
    """kas takes the sockets that systemd opened, by their names, for all workers."""
    names = ["agents", "proxy", "health"]
    lone_kas.folder.mkdir(exist_ok=True)
    configuration = lone_kas.folder / "systemd.yaml"
    listen = "{{endpoint: 'systemd:domain=INET:name={}', development_certificate: {}}}"
    configuration.write_text(
        f"agent:\n  listen: {listen.format('agents', 'true')}\n"
        f"  kubernetes_api: {{listen: {listen.format('proxy', 'true')}}}\n"
        f"observability: {{listen: {listen.format('health', 'false')}}}\n"
        f"workers: {workers}\n"
    )
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in names]
    lone_kas.agents, lone_kas.proxy, lone_kas.observability = (
        one.getsockname()[1] for one in sockets
    )
    # What systemd does between fork and exec: number the sockets from 3, name itself.
    launcher = (
        "import os, sys; os.environ['LISTEN_PID'] = str(os.getpid());"
        "fds = [int(fd) for fd in sys.argv[1].split(',')];"
        "high = [os.dup2(fd, 100 + n) for n, fd in enumerate(fds)];"
        "[os.dup2(fd, 3 + n) for n, fd in enumerate(high)];"
        "[os.close(fd) for fd in high]; os.execv(sys.argv[2], sys.argv[2:])"
    )
    numbers = [one.fileno() for one in sockets]
    process = lone_kas.process = Process(
        "kas",
        [
            *(sys.executable, "-c", launcher, ",".join(map(str, numbers))),
            *twistd("kas", "--configuration-file", configuration),
            *("--state-directory", lone_kas.state),
        ],
        lone_kas.folder / "kas.log",
        environment={"LISTEN_FDS": "3", "LISTEN_FDNAMES": ":".join(names)},
        pass_fds=numbers,
    )
    for one in sockets:
        one.close()
    process.wait_for("kas is ready")
    lone_agentk.start()
    assert [one["agent_name"] for one in lone_kas.status()["agents"]] == ["main"]
    assert lone_agentk.stop()
    assert lone_kas.stop()
