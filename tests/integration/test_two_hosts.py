"""The first operator: kas on one machine, the cluster and kubectl on another one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration import needs
from tests.integration.namespaces import Host, two_hosts
from tests.integration.processes import (
    ROOT,
    Process,
    clean_environment,
    eventually,
    script,
)

#: As docs/getting-started.rst has it.
CONFIGURATION = """\
agent:
  listen:
    address: :8150
    development_certificate_names: [{names}]
  kubernetes_api:
    listen:
      address: :8154
"""


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    with two_hosts() as both:
        yield both


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start a program on a host; it ends with the test."""
    started: list[Process] = []

    def run(host: Host, name: str, *command: str | Path) -> Process:
        log = tmp_path / f"{name}.log"
        environment = {"PYTHONPATH": str(ROOT)}
        process = Process(name, host.command(*command), log, environment=environment)
        started.append(process)
        return process

    yield run
    for process in reversed(started):
        process.kill()


def test_first_remote_agent(
    hosts: tuple[Host, Host],
    start: Callable[..., Process],
    tmp_path: Path,
) -> None:
    """Steps of docs/getting-started.rst, and what agentk says before they are done."""
    server, cluster = hosts
    kubectl = needs.kubernetes() / "kubectl"
    state = tmp_path / "state"
    file = tmp_path / "kas.yaml"

    def start_kas(names: str) -> Process:
        file.write_text(CONFIGURATION.format(names=names))
        options = ("--configuration-file", file, "--state-directory", state)
        kas = start(server, "kas", script("kas"), *options)
        kas.wait_for("kas is ready")
        return kas

    def on(host: Host, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            host.command(*words),
            capture_output=True,
            text=True,
            timeout=60,
            env=clean_environment({"HOME": str(tmp_path)}),
        )

    def ctl(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return on(server, script("kasctl"), *words, "--state-directory", state)

    api = tmp_path / "api"
    python = Path(script("python"))
    sandbox = ("-m", "demo.sandbox", "--state-directory", api)
    ready = start(cluster, "api", python, *sandbox)
    kas = start_kas("")
    ready.wait_for("ready: ")
    token = tmp_path / "edge.token"
    added = ctl("agent", "add", "edge", "--token-file", token)
    assert added.returncode == 0, added.stderr
    options = (
        *("--token-file", token, "--ca-cert-file", state / "ca.crt"),
        *("--kubeconfig", api / "kubeconfig"),
    )

    def agentk(name: str, address: str, *more: str) -> Process:
        command = (script("agentk"), "--kas-address", address, *options, *more)
        return start(cluster, name, *command)

    says = (
        r"the certificate there is for localhost.*and not for '192\.0\.2\.2'; add "
        r"'192\.0\.2\.2' to development_certificate_names of kas, or pass "
        r"--kas-tls-server-name"
    )
    probes = "--observability-listen-address=127.0.0.1:8081"
    websocket = agentk("websocket", "wss://192.0.2.2:8150", probes)
    edge = agentk("agentk", "tls://192.0.2.2:8150")
    # Without a word to kas: one of the names that there are.
    name = "--kas-tls-server-name=localhost"
    probes = "--observability-listen-address=127.0.0.1:8082"
    other = agentk("named", "tls://192.0.2.2:8150", probes, name)
    websocket.wait_for(says)
    edge.wait_for(says)
    other.wait_for("connected to kas")
    for one in (websocket, other):
        one.kill()

    server_url = ("--server", "https://192.0.2.2:8154")
    user = ("kubeconfig", "--agent", "edge", "--user")
    early = ctl(*user, "a", "--as-agent", *server_url, "--system-cas")
    assert "certificate-authority-data" not in early.stdout
    assert "add '192.0.2.2' to development_certificate_names" in early.stderr
    kas.kill()
    start_kas("192.0.2.2")
    # The one that was refused comes by itself: key and CA are the same.
    edge.wait_for("connected to kas")

    config = tmp_path / "me.kubeconfig"
    made = ctl(*user, "me", "--read-only", *server_url, "--output-file", config)
    assert made.returncode == 0, made.stderr
    assert "No CA" not in made.stderr

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        return on(cluster, kubectl, "--kubeconfig", config, *words)

    eventually(lambda: ask("get", "--raw", "/version").returncode == 0)
    pods = ask("get", "pods", "--all-namespaces")
    assert "ticker" in pods.stdout, pods.stderr
    refused = ask("delete", "pod", "ticker")
    assert "user me is read-only" in refused.stderr
    # The same on the machine of kubectl's user, among what is there already.
    merged = ctl(
        *("kubeconfig", "--all", "--user", "me", "--rotate", "--merge"), *server_url
    )
    assert merged.returncode == 0, merged.stderr
    eventually(
        lambda: on(cluster, kubectl, "--context", "edge", "version").returncode == 0
    )
    listed = json.loads(ctl("agent", "list", "--output", "json").stdout)
    assert [one["connected"] for one in listed] == [True]
    healthy = ctl("doctor")
    assert healthy.returncode == 0, healthy.stdout
