"""`make demo`, the whole of it, with the sandbox."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration import needs

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.integration

STEPS = (
    "kas is up",
    "an agent is added",
    "the Kubernetes API is up",
    "agentk is connected, bytes flow",
    "list namespaces and pods",
    "watch: an event arrives",
    "logs -f",
    "exec with a terminal",
)
#: Seconds for all of it; it takes five on an idle machine with two cores.
TIMEOUT = 120


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A state directory, and a look at whether anybody still uses it."""
    # The demo works where a path has a space or a character beyond ASCII.
    state = tmp_path / "a démo" / "state"
    state.parent.mkdir()
    yield state
    assert _users(state) == []


def _users(state: Path) -> list[str]:
    """Processes that were started with that directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(state) in line:
            found.append(f"{entry.name} {line}")
    return found


def _command(state: Path, *options: str) -> list[str]:
    command = [sys.executable, "-m", "demo", "--cluster", "sandbox", "--free-ports"]
    return [*command, "--state-directory", str(state), *options]


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k != "KUBECONFIG"}


def _once(
    state: Path, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(state, "--once", *options),
        cwd=ROOT,
        env=_environment() | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def _times(output: str) -> dict[str, float]:
    """Milliseconds of each step that has some."""
    found = re.findall(r"(?m)^ ?\d+  (\S.*?)  +([\d.]+) ms$", output)
    return {title: float(time) for title, time in found}


def test_every_step_and_nothing_left(state: Path, tmp_path: Path) -> None:
    done = _once(state)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert tuple(_times(done.stdout)) == STEPS, done.stdout
    assert "exit status 7, as it should be" in done.stdout
    assert "window of 40 x 132: 'stty size' agrees" in done.stdout
    assert "no Kubernetes" in done.stdout
    # all is stopped: there is nothing to try
    assert "kubectl" not in done.stdout.splitlines()[-1]
    assert "The same with" not in done.stdout
    assert _users(state) == []
    assert [path.name for path in tmp_path.iterdir()] == ["a démo"]
    assert [path.name for path in state.parent.iterdir()] == ["state"]


def test_again_with_the_same_agent(state: Path) -> None:
    assert _once(state).returncode == 0
    secret = (state / "kubeconfig").read_bytes()
    done = _once(state)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kasctl agent rotate demo" in done.stdout
    identities = json.loads((state / "kas" / "identity.json").read_text())
    assert [agent["name"] for agent in identities["agents"]] == ["demo"]
    names = [user["name"] for user in identities["users"]]
    assert sorted(names) == ["kubectl-demo", "page"]
    assert (state / "kubeconfig").read_bytes() != secret
    for name in (
        *("kubeconfig", "curl.conf", "agent-token", "page-token"),
        "sandbox/kubeconfig",
    ):
        assert stat.S_IMODE((state / name).stat().st_mode) == 0o600, name


def test_with_gitlab(state: Path) -> None:
    """Agents, configuration and credentials that come from GitLab and Git."""
    done = _once(state, "--gitlab")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert len(_times(done.stdout)) == 10, done.stdout
    for said in (
        "it has the agent prod (7)",
        "agentk has it",
        "the job is let in",
        "the person is let in",
        ":3:5: observability.logging: unknown key 'levle'",
        "the job that it knew goes on",
        "its next request gets 401",
    ):
        assert said in done.stdout, said
    logs = "".join(log.read_text() for log in (state / "logs").iterdir())
    for secret in ("glagent-", "glcbt-", "glpat-"):
        assert secret not in done.stdout + logs
    assert _users(state) == []
    # What it leaves is in nobody's way.
    done = _once(state)
    assert done.returncode == 0, done.stdout + done.stderr


def test_with_gitops(state: Path) -> None:
    """Each step with a real API server, and with the words of a real kasctl."""
    assets = str(needs.kubernetes())
    done = _once(state, "--cluster", "kube", "--gitops", KUBEBUILDER_ASSETS=assets)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert len(_times(done.stdout)) == 10, done.stdout
    for said in (
        "1 change, 1 create, 1 prune, 4 unchanged",
        "(user:kubectl-demo): /data/value",
        "5 of 6 objects would be deleted, more than 50 %",
        "1 object is left",
        "6 objects are there again",
    ):
        assert said in done.stdout, said
    assert _users(state) == []


@pytest.mark.parametrize("cluster", ["sandbox", "kube"])
def test_live(state: Path, cluster: str) -> None:
    """Two clusters, their changes, and the last rows of one that is away."""
    environment = {}
    if cluster == "kube":
        environment["KUBEBUILDER_ASSETS"] = str(needs.kubernetes())
    done = _once(state, "--cluster", cluster, "--live", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert len(_times(done.stdout)) == 7, done.stdout
    for said in (
        "demo-node-3 is deleted in berlin; kasctl shows that",
        "demo-web in paris has no pod; kasctl shows that",
        "paris    offline",
    ):
        assert said in done.stdout, said
    assert _users(state) == []


def test_page(state: Path) -> None:
    """Two clusters that change, for a browser."""
    done = _once(state, "--cluster", "sandbox", "--page")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert len(_times(done.stdout)) == 4, done.stdout
    assert "berlin: demo-web-0 is created in kas-demo" in done.stdout
    assert _users(state) == []


def test_governance(state: Path) -> None:
    """A denied shell with its rule, a search, and a changed line."""
    done = _once(state, "--cluster", "sandbox", "--governance")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert len(_times(done.stdout)) == 7, done.stdout
    for said in (
        "the rule 'no-shells' denies it",
        "create pods/exec kas-demo/web  403",
        "create configmaps kas-demo  201",
        "good: ",
        "tampered",
    ):
        assert said in done.stdout, said
    assert _users(state) == []


def test_gitops_without_kubernetes(state: Path) -> None:
    """It says what it needs, and leaves nothing running."""
    done = _once(state, "--gitops")
    assert done.returncode == 1
    assert "make kube" in done.stderr
    assert _users(state) == []


@pytest.fixture
def staying(state: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo that has shown everything and waits for Ctrl-C."""
    demo = subprocess.Popen(
        _command(state),
        cwd=ROOT,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert demo.stdout is not None
        for line in demo.stdout:
            if line.startswith("It all runs until Ctrl-C."):
                break
        else:
            pytest.fail("the demo ended by itself")
        yield demo
    finally:
        demo.kill()
        demo.wait()
        assert demo.stdout is not None
        demo.stdout.close()
        _wait(lambda: not _users(state))


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ctrl_c(staying: subprocess.Popen[str], state: Path) -> None:
    staying.send_signal(signal.SIGINT)
    assert staying.wait(60) == 0
    assert _users(state) == []


def test_killed(staying: subprocess.Popen[str], state: Path) -> None:
    assert len(_users(state)) == 4  # the demo, kas, agentk, the sandbox
    staying.kill()
    staying.wait()
    _wait(lambda: not _users(state))


def test_says_which_of_its_programs_died(
    staying: subprocess.Popen[str], state: Path
) -> None:
    agentk = next(user for user in _users(state) if " agentk " in user)
    os.kill(int(agentk.split()[0]), signal.SIGKILL)
    assert staying.wait(60) == 1
    assert staying.stdout is not None
    rest = staying.stdout.read()
    assert "agentk ended with status -9" in rest
    assert str(state / "logs" / "agentk.log") in rest


def test_one_at_a_time(staying: subprocess.Popen[str], state: Path) -> None:
    second = _once(state)
    assert second.returncode == 1
    assert f"another demo runs with {state}" in second.stderr
    assert staying.poll() is None


def test_only_loopback(staying: subprocess.Popen[str], state: Path) -> None:
    assert _listening(_users(state)) == {"127.0.0.1"}


def _listening(users: list[str]) -> set[str]:
    """The addresses that these processes listen on."""
    inodes = set()
    for user in users:
        for link in Path(f"/proc/{user.split()[0]}/fd").iterdir():
            try:
                inodes.add(os.readlink(link))
            except OSError:
                continue
    addresses = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            cells = line.split()
            if cells[3] == "0A" and f"socket:[{cells[9]}]" in inodes:
                data = bytes.fromhex(cells[1].partition(":")[0])
                words = [data[i : i + 4][::-1] for i in range(0, len(data), 4)]
                addresses.add(socket.inet_ntop(family, b"".join(words)))
    return addresses
