"""kasctl where several kas share a state directory, and what it asks of each."""

from __future__ import annotations

import http.server
import json
import os
import re
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kas.ctl import checks, control_client, doctor
from kas.state import running
from kas.state.directory import StateDirectory
from kas.state.process_socket import path_of
from tests.kas.ctl.kasctl import Kasctl
from tunnel.program.opened import Opened

ABOUT = {"pid": 1, "draining": False, "agents": 0, "requests": 0, "ready": True}

EVERYONE = {
    "problem": "",
    "agents": [
        {
            "agent_id": "1",
            "agent_name": "prod",
            "connected": False,
            "last_seen": 1767323045.5,
            "connections": [],
        }
    ],
}


class _Server(socketserver.ThreadingUnixStreamServer):
    """The control socket of a kas."""

    daemon_threads = True
    answers: Callable[[str, str], dict[str, Any]]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        body = json.dumps(self.server.answers(self.command, self.path)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def address_string(self) -> str:
        return ""


@contextmanager
def control(state: Path, pid: int, **about: Any) -> Iterator[list[str]]:
    """A kas that answers with *about*; gives what it was asked."""
    asked: list[str] = []

    def answers(method: str, path: str) -> dict[str, Any]:
        asked.append(f"{method} {path}")
        if path == "/agents":
            return EVERYONE
        return {**ABOUT, "pid": pid, **about}

    with _Server(str(path_of(StateDirectory(state), pid)), _Handler) as server:
        server.answers = answers
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield asked
        finally:
            server.shutdown()
            thread.join(10)
            path_of(StateDirectory(state), pid).unlink()


@pytest.fixture
def kasctl(tmp_path: Path) -> Kasctl:
    found = Kasctl(tmp_path)
    found.ok("agent", "add", "prod")
    return found


@pytest.fixture
def other(kasctl: Kasctl) -> Iterator[int]:
    """Two kas run: this process, and one whose number this gives."""
    state = StateDirectory.open(kasctl.state)
    with subprocess.Popen(["sleep", "60"]) as process:
        running.tell(state, [Opened("agents", "127.0.0.1:9150")])
        text = state.file(running.file_name(os.getpid())).read_text()
        state.file(running.file_name(process.pid)).write_text(text.replace("9", "7"))
        running.tell(state, [Opened("agents", "127.0.0.1:9150")])
        yield process.pid
        process.kill()


@pytest.mark.parametrize(
    "command", [("status",), ("doctor",), ("kubeconfig", "--agent", "prod")]
)
def test_which_one(kasctl: Kasctl, other: int, command: tuple[str, ...]) -> None:
    said = kasctl.fails(*command)
    assert f"{os.getpid()} (agents 127.0.0.1:9150)" in said
    assert f"{other} (agents 127.0.0.1:7150)" in said
    assert "select one with --pid" in said
    said = kasctl.fails(*command, "--pid", "1")
    assert "no kas runs here as process 1; running: " in said


def test_the_one_that_is_named(kasctl: Kasctl, other: int) -> None:
    said = kasctl.run("doctor", "--pid", str(other)).stdout
    assert f"process {other}" in said
    assert "127.0.0.1:7150 does not accept" in said


def test_drain_which_one(kasctl: Kasctl, other: int) -> None:
    with control(kasctl.state, os.getpid()), control(kasctl.state, other) as asked:
        said = kasctl.fails("drain")
        assert f"{other} (agents 127.0.0.1:7150)" in said
        kasctl.ok("drain", "--pid", str(other))
        assert "POST /drain" in asked


def test_drain_that_takes_too_long(kasctl: Kasctl) -> None:
    with control(kasctl.state, os.getpid(), agents=1):
        said = kasctl.fails("drain", "--timeout", "0.1")
        assert "1 agent still here after 0.1 s" in said
        assert "stays drained" in said
        assert "'kasctl drain --undo'" in said
        assert "1 agent still here" in kasctl.ok("drain", "--timeout", "0")


def test_drain_waits_for_requests(kasctl: Kasctl) -> None:
    with control(kasctl.state, os.getpid(), requests=2):
        assert "all agents have left; 2 requests in progress" in kasctl.ok("drain")
        said = kasctl.fails("drain", "--wait-for-requests", "--timeout", "0.1")
        assert "2 requests still here" in said


@pytest.mark.parametrize(
    "command",
    [
        ("agent", "list"),
        ("user", "list"),
        ("agent", "revoke", "x"),
        ("user", "remove", "x"),
        ("kubeconfig", "--agent", "x"),
        # Nobody listens there, whatever else runs on this machine.
        ("status", "--url", "http://127.0.0.1:1"),
        ("drain",),
        ("doctor",),
    ],
)
def test_a_slip_makes_no_directory(tmp_path: Path, command: tuple[str, ...]) -> None:
    kasctl = Kasctl(tmp_path)
    assert kasctl.run(*command).exit_code == 1
    assert not kasctl.state.exists()


def findings(kasctl: Kasctl, **about: Any) -> dict[str, tuple[bool, str]]:
    """What doctor says of a kas that says *about*."""
    with control(kasctl.state, os.getpid(), **about):
        content = json.loads(kasctl.run("doctor", "--output", "json").stdout)
    return {c["check"]: (c["ok"], c["message"]) for c in content["checks"]}


OTHERS = {
    "own_url": "tls://kas-1:8155",
    "redis": {"up": True, "news": True, "reason": ""},
    "peers": 2,
    "peer_sessions": 1,
    "unreachable_peers": [],
}


def test_doctor_of_workers(kasctl: Kasctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not answer is named, and so is what is not known without it."""
    running.tell(StateDirectory.open(kasctl.state), [])
    assert "workers" not in findings(kasctl)
    assert findings(kasctl, silent_workers=0)["workers"][0]
    passed, text = findings(kasctl, silent_workers=2)["workers"]
    assert not passed
    assert text.startswith("2 workers did not answer; kas replaces a dead worker")
    monkeypatch.setattr(control_client, "_TIMEOUT", 0.1)
    path = path_of(StateDirectory.open(kasctl.state), os.getpid())
    with socket.socket(socket.AF_UNIX) as hangs:
        hangs.bind(str(path))
        hangs.listen()
        content = json.loads(kasctl.run("doctor", "--output", "json").stdout)
    (text,) = (c["message"] for c in content["checks"] if c["check"] == "agents")
    assert "which agents are connected: " in text
    assert "see above" not in text


def test_doctor_of_clusters(kasctl: Kasctl) -> None:
    """An agentk that is connected, and has no cluster."""
    state = StateDirectory.open(kasctl.state)
    running.tell(state, [Opened("kubernetes_api", "127.0.0.1:1")])
    assert findings(kasctl)["clusters"][0]
    problems = {"demo": "cannot reach the Kubernetes API\x1b[2J", "b": "also"}
    assert findings(kasctl, cluster_problems=problems)["clusters"] == (
        False,
        "agentk b also; agentk demo cannot reach the Kubernetes API\\x1b[2J",
    )


def test_doctor_of_modules(kasctl: Kasctl) -> None:
    """Problems that agents report, such as GitOps projects that fail."""
    state = StateDirectory.open(kasctl.state)
    running.tell(state, [Opened("kubernetes_api", "127.0.0.1:1")])
    assert findings(kasctl)["modules of agents"][0]
    problems = {"prod: gitops": "project apps fails: a\x1b[2J", "b: x": "restarting"}
    assert findings(kasctl, agent_problems=problems)["modules of agents"] == (
        False,
        "agent b: x: restarting; agent prod: gitops: project apps fails: a\\x1b[2J",
    )
    problems = {f"a{number:02}: gitops": "bad" for number in range(25)}
    passed, text = findings(kasctl, agent_problems=problems)["modules of agents"]
    assert not passed
    assert text.endswith("agent a19: gitops: bad; and 5 more")


def test_doctor_of_several(kasctl: Kasctl) -> None:
    state = StateDirectory.open(kasctl.state)
    running.tell(state, [Opened("kubernetes_api", "127.0.0.1:1")])
    found = findings(kasctl, **OTHERS)
    assert found["private API"] == (
        True,
        "other kas reach this one at tls://kas-1:8155",
    )
    assert found["Redis"] == (True, "up")
    assert found["peers"][0]
    assert "2 other kas known, 1 session connected" in found["peers"][1]
    assert not found["API proxy"][0]
    assert "--url" not in str(found)
    down = {"up": False, "news": False, "reason": "refused"}
    assert findings(kasctl, **{**OTHERS, "redis": down})["Redis"] == (
        False,
        "down: refused",
    )
    deaf = {"up": True, "news": False, "reason": ""}
    assert not findings(kasctl, **{**OTHERS, "redis": deaf})["Redis"][0]
    lost = {**OTHERS, "unreachable_peers": ["tls://kas-2:8155"]}
    assert "tls://kas-2:8155 cannot be reached" in findings(kasctl, **lost)["peers"][1]
    why = {"peer_problems": {"tls://kas-2:8155": "refused this kas: wrong secret"}}
    found = findings(kasctl, **lost, **why)
    assert "tls://kas-2:8155 refused this kas: wrong secret" in found["peers"][1]
    passed, text = findings(kasctl, **OTHERS, **why)["peers"]
    assert passed
    assert "when last dialled, tls://kas-2:8155 refused this kas: wrong secret" in text
    alone = {key: value for key, value in OTHERS.items() if key != "redis"}
    assert not findings(kasctl, **alone)["private API"][0]
    assert "Redis" not in findings(kasctl)


def test_doctor_without_a_control_socket(kasctl: Kasctl) -> None:
    running.tell(StateDirectory.open(kasctl.state), [])
    said = kasctl.run("doctor").stdout
    assert "ok    agents and other kas: not checked" in said


CONNECTION = {
    "instance_id": "aa",
    "connected_at": 1767323045.5,
    "version": "1.2",
    "pod_namespace": "ns",
    "pod_name": "pod",
    "kubernetes_version": "v1.36.1",
    "kas_id": "01",
    "kas_url": "tls://kas-1:8155",
}


@contextmanager
def everyone(
    monkeypatch: pytest.MonkeyPatch, *agents: dict[str, Any]
) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setitem(EVERYONE, "agents", list(agents))
        yield


def agent(number: str, name: str, *connections: dict[str, Any]) -> dict[str, Any]:
    return {
        "agent_id": number,
        "agent_name": name,
        "connected": bool(connections),
        "last_seen": None if connections else 1767323045.5,
        "connections": list(connections),
    }


def test_every_agent(kasctl: Kasctl, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("test", "new"):
        kasctl.ok("agent", "add", name)
    kasctl.ok("agent", "add", "old")
    kasctl.ok("agent", "revoke", "old")
    running.tell(StateDirectory.open(kasctl.state), [])
    second = {**CONNECTION, "instance_id": "bb", "kas_url": "tls://kas-2:8155"}
    second["cluster_problem"] = "cannot reach the Kubernetes API"
    new = {**agent("3", "new"), "last_seen": None}
    found = [agent("1", "prod", CONNECTION, second), agent("2", "test"), new]
    with everyone(monkeypatch, *found), control(kasctl.state, os.getpid()):
        result = kasctl.run("agent", "list")
        lines = result.stdout.splitlines()
        listed = {one["name"]: one for one in kasctl.data("agent", "list")}
    cells = [re.split(" {2,}", line) for line in lines]
    assert cells[1][:8] == [
        *("1", "prod", "connected", "2026-01-02 03:04:05Z", "2", "1.2", "v1.36.1"),
        "tls://kas-1:8155, tls://kas-2:8155",
    ]
    assert cells[2][2:5] == ["away", "last seen 2026-01-02 03:04:05Z", "0"]
    assert cells[3][2:5] == ["away", "never seen", "0"]
    assert cells[4][2] == "revoked"
    assert result.stderr == "agent prod: cannot reach the Kubernetes API\n"
    assert listed["prod"]["connected"] is True
    assert listed["test"]["last_seen"] == 1767323045.5


def test_every_agent_of_workers(
    kasctl: Kasctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is named; the path of its socket tells people nothing."""
    url = f"unix://{kasctl.state}/workers-5bce-4711/2.peer"
    running.tell(StateDirectory.open(kasctl.state), [])
    connected = agent("1", "prod", {**CONNECTION, "kas_url": url})
    with everyone(monkeypatch, connected), control(kasctl.state, os.getpid()):
        lines = kasctl.run("agent", "list").stdout.splitlines()
        (listed,) = kasctl.data("agent", "list")
    assert re.split(" {2,}", lines[1])[7] == "worker 2 of 4711"
    assert listed["connections"][0]["kas_url"] == url


def test_every_agent_of_kas_without_redis(
    kasctl: Kasctl, other: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each knows its own: all are asked."""
    with (
        everyone(monkeypatch, agent("1", "prod", CONNECTION)),
        control(kasctl.state, other),
    ):
        result = kasctl.run("agent", "list")
    assert re.split(" {2,}", result.stdout.splitlines()[1])[2] == "connected"
    # The other one of them has no socket.
    assert "does not respond" in result.stderr


def test_what_is_connected_is_tried_first(
    kasctl: Kasctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that is away answers nobody who tries a new kubeconfig."""
    for name in ("test", "new"):
        kasctl.ok("agent", "add", name)
    running.tell(StateDirectory.open(kasctl.state), [])
    found = [agent("1", "prod"), agent("2", "test", CONNECTION), agent("3", "new")]
    with everyone(monkeypatch, *found), control(kasctl.state, os.getpid()):
        content = kasctl.kubeconfig(
            *("--all", "--user", "me", "--as-agent", "--server", "https://kas"),
            "--system-cas",
        )
    names = [one["name"] for one in content["contexts"]]
    assert names == ["test", "prod", "new"]
    assert content["current-context"] == "test"


def test_doctor_wants_an_agent(kasctl: Kasctl, monkeypatch: pytest.MonkeyPatch) -> None:
    running.tell(StateDirectory.open(kasctl.state), [])
    passed, text = findings(kasctl)["agents"]
    assert not passed
    assert text.startswith(
        "none of 1 agent is connected (last seen 2026-01-02 03:04:05Z); see"
    )
    with everyone(monkeypatch, agent("1", "prod", CONNECTION)):
        assert findings(kasctl)["agents"] == (True, "1 of 1 agent connected")


def test_doctor_of_a_kas_with_a_wrong_clock(kasctl: Kasctl) -> None:
    """It dials the others nobody asked for, and tells whom it refused itself."""
    running.tell(StateDirectory.open(kasctl.state), [])
    with control(kasctl.state, os.getpid(), **OTHERS) as asked:
        kasctl.run("doctor")
    assert "GET /peers" in asked
    refused = {**OTHERS, "refused_peer": "10.0.0.1:5: JWT: from the future; check the"}
    passed, text = findings(kasctl, **refused)["peers"]
    assert not passed
    assert "this kas refused another one, 10.0.0.1:5: JWT: from the future" in text
    assert "clocks" in text


def test_doctor_of_a_kas_that_hangs(
    kasctl: Kasctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that waits for an answer does so at the same time."""
    monkeypatch.setattr(doctor, "PATIENCE", 0.3)
    state = StateDirectory.open(kasctl.state)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        socket.socket(socket.AF_UNIX) as deaf,
    ):
        deaf.bind(str(path_of(state, os.getpid())))
        deaf.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        kasctl.ok("agent", "add", "second")
        certificate = state.file("server.crt")
        listeners = [
            Opened("agents", address, certificate),
            Opened("health and metrics", address),
        ]
        running.tell(state, listeners)
        started = time.monotonic()
        result = kasctl.run("doctor")
        took = time.monotonic() - started
    assert result.exit_code == 1
    assert took < 3
    for check in ("agent listener", "liveness", "readiness", "agents", "other kas"):
        assert f"FAIL  {check}: no response within 0.3 s" in result.stdout


@pytest.fixture
def hung(kasctl: Kasctl, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A kas that accepts connections, and does not answer; how that is said."""
    monkeypatch.setattr(control_client, "_TIMEOUT", 0.2)
    monkeypatch.setattr(checks, "TIMEOUT", 0.2)
    monkeypatch.setattr(doctor, "TIMEOUT", 0.2)
    state = StateDirectory.open(kasctl.state)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        socket.socket(socket.AF_UNIX) as deaf,
    ):
        deaf.bind(str(path_of(state, os.getpid())))
        deaf.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        opened = [
            Opened("agents", address, state.file("server.crt")),
            Opened("health and metrics", address),
        ]
        running.tell(state, opened)
        yield f"kas (pid {os.getpid()}) does not respond within 0.2 s"


def test_a_kas_that_hangs_is_named(kasctl: Kasctl, hung: str) -> None:
    """It runs, so it is not said that none does."""
    for command in (("status",), ("drain",), ("rebalance",)):
        assert hung in kasctl.fails(*command)
    result = kasctl.run("agent", "list")
    assert hung in result.stderr
    assert "No kas runs here" not in result.stderr
    assert "prod" in result.stdout


def test_doctor_says_in_words_that_kas_hangs(kasctl: Kasctl, hung: str) -> None:
    said = kasctl.run("doctor").stdout
    for check in ("agent listener", "liveness", "readiness"):
        (line,) = (one for one in said.splitlines() if f" {check}: " in one)
        assert "kas accepts the connection but does not respond within 0.2 s" in line
    assert "_ssl.c" not in said
    assert f"FAIL  other kas: {hung}" in said
