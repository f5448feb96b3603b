"""Client libraries that people write programs with: Python's and JavaScript's."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config, watch
from kubernetes.stream import portforward, stream

from tests.integration import node, pods
from tests.integration.kubectl import Kubectl
from tests.integration.processes import clean_environment

_JAVASCRIPT = Path(__file__).parent / "javascript"
_OF_GITLAB = Path(__file__).parent / "cluster_client"


@pytest.fixture(scope="module")
def with_pods(shared_namespace: str, make_kubectl: Callable[..., Kubectl]) -> str:
    """A namespace with pods."""
    pods.start_pods(make_kubectl("direct", namespace=shared_namespace))
    return shared_namespace


@pytest.fixture(params=["direct", "proxied"])
def kubeconfig(request: pytest.FixtureRequest, kubeconfigs: dict[str, Path]) -> Path:
    """One way after the other."""
    return kubeconfigs[request.param]


@pytest.fixture
def python(kubeconfig: Path) -> Iterator[Callable[[], Any]]:
    """Makes a ``CoreV1Api``: streams spoil the one that they are opened with."""
    made = []

    def make() -> Any:
        made.append(config.new_client_from_config(str(kubeconfig)))
        return client.CoreV1Api(made[-1])

    yield make
    for one in made:
        one.close()


def test_python_objects(python: Callable[[], Any], namespace: str) -> None:
    """List, and watch what changes."""
    api = python()
    changing = python()
    watching = watch.Watch()
    changing.create_namespaced_config_map(
        namespace, {"metadata": {"name": "first"}, "data": {"k": "v"}}
    )
    seen = []
    events = watching.stream(
        api.list_namespaced_config_map, namespace, _request_timeout=30
    )
    for event in events:
        name = event["object"].metadata.name
        if name == "kube-root-ca.crt":
            continue
        seen.append((event["type"], name))
        if seen[-1] == ("ADDED", "first"):
            changing.create_namespaced_config_map(
                namespace, {"metadata": {"name": "x"}}
            )
        elif seen[-1] == ("ADDED", "x"):
            changing.delete_namespaced_config_map("x", namespace)
        else:
            watching.stop()
    assert seen == [("ADDED", "first"), ("ADDED", "x"), ("DELETED", "x")]


def test_python_exec(python: Callable[[], Any], with_pods: str) -> None:
    """Standard streams and the exit status."""
    shell = 'read line; echo "got $line"; echo bad >&2; exit 7'
    run = stream(
        python().connect_get_namespaced_pod_exec,
        "main",
        with_pods,
        container="echo",
        command=["sh", "-c", shell],
        stdin=True,
        stdout=True,
        stderr=True,
        _preload_content=False,
    )
    run.write_stdin("hello\n")
    run.run_forever(timeout=30)
    assert run.read_stdout() == "got hello\n"
    assert run.read_stderr() == "bad\n"
    assert run.returncode == 7


def test_python_port_forward(python: Callable[[], Any], with_pods: str) -> None:
    """A socket into a pod."""
    with pods.echo_server() as inside:
        forward = portforward(
            python().connect_get_namespaced_pod_portforward,
            "main",
            with_pods,
            ports=str(inside),
        )
        sock = forward.socket(inside)
        sock.settimeout(30)
        sock.sendall(b"hello")
        assert sock.recv(100) == b"hello"
        sock.close()


def test_python_logs(python: Callable[[], Any], with_pods: str) -> None:
    """Lines as they are written."""
    following = python().read_namespaced_pod_log(
        *("main", with_pods),
        container="tick",
        follow=True,
        tail_lines=1,
        _preload_content=False,
        _request_timeout=30,
    )
    text = b""
    for chunk in following.stream(16):
        text += chunk
        if text.count(b"\n") > 3:
            break
    following.close()
    assert all(line.startswith(b"tick") for line in text.split(b"\n")[:3])


@pytest.fixture(scope="session")
def javascript() -> Path:
    """The folder with the library."""
    return node.installed(_JAVASCRIPT, "@kubernetes/client-node", "client.js")


def test_javascript(javascript: Path, kubeconfig: Path, with_pods: str) -> None:
    """List, watch, exec, port-forward and logs."""
    with pods.echo_server() as inside:
        ended = subprocess.run(
            ["node", "client.js", with_pods, str(inside)],
            cwd=javascript,
            env=clean_environment({"KUBECONFIG": str(kubeconfig)}),
            capture_output=True,
            text=True,
            timeout=90,
        )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert json.loads(ended.stdout) == {
        "list": ["kube-root-ca.crt"],
        "watch": ["ADDED", "DELETED"],
        "exec": ["got hello\n", "bad\n", "7"],
        "forward": 100_000,
        "logs": True,
    }


def check_gitlabs_watch_manager(kubeconfig: Path, namespace: str) -> None:
    """Several watches of GitLab's own library in one WebSocket, and one that fails."""
    folder = node.installed(_OF_GITLAB, "@gitlab/cluster-client", "watch.js")
    bundle = folder / "bundle.cjs"
    subprocess.run(
        [
            *("node_modules/.bin/esbuild", "watch.js", "--bundle"),
            *("--platform=node", "--format=cjs", f"--outfile={bundle}"),
            "--log-level=error",
        ],
        cwd=folder,
        check=True,
        timeout=60,
    )
    file = yaml.safe_load(kubeconfig.read_text())
    cluster, user = file["clusters"][0]["cluster"], file["users"][0]["user"]
    authority = cluster.get("certificate-authority")
    if authority is None:
        authority = folder / "ca.crt"
        authority.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    ended = subprocess.run(
        ["node", bundle, namespace, cluster["server"], user["token"]],
        cwd=folder,
        env=clean_environment({"NODE_EXTRA_CA_CERTS": str(authority)}),
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout)
    assert found["names"] == ["kube-root-ca.crt", "of-gitlab"]
    assert found["left"] == ["kube-root-ca.crt"]
    assert "could not find the requested resource" in found["errors"][0]


def test_gitlabs_watch_manager(kubeconfigs: dict[str, Path], namespace: str) -> None:
    """Watches of the API server; test_cache_path.py has watches of a cache."""
    check_gitlabs_watch_manager(kubeconfigs["proxied"], namespace)
