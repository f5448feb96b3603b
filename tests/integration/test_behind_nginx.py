"""nginx in front of kas: TLS ends there, and all it knows is HTTP."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from tests.integration import needs, pods
from tests.integration.cluster import ControlPlane
from tests.integration.kubectl import Kubectl, expect
from tests.integration.processes import Process, eventually
from tests.integration.rawhttp import Way
from tests.integration.stack import Agentk, Kas
from tools.ports import free_port

_CONFIGURATION = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_protocols TLSv1.3;
    ssl_certificate {state}/server.crt;
    ssl_certificate_key {state}/server.key;
    proxy_http_version 1.1;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection $connection_upgrade;
    proxy_buffering off;
    proxy_request_buffering off;
    client_max_body_size 0;
    location /-/kubernetes-agent/k8s-proxy/ {{ proxy_pass http://127.0.0.1:{proxy}; }}
    location /-/kubernetes-agent/ {{ proxy_pass http://127.0.0.1:{agents}; }}
  }}
}}
"""

_PATH = "/-/kubernetes-agent"


@pytest.fixture(scope="module")
def fronted(folder: Path, control_plane: ControlPlane) -> Iterator[tuple[Kas, Way]]:
    """kas and agentk with nginx between them, and the way through it."""
    nginx = needs.program("nginx", "apt-get install nginx")
    # For certificates that nginx may use: kas makes its own on its first start.
    kas = Kas(folder / "fronted", prefix=f"{_PATH}/k8s-proxy/")
    kas.start()
    kas.stop()
    kas.tls = False
    kas.start()
    port = free_port()
    configuration = kas.folder / "nginx.conf"
    configuration.write_text(
        _CONFIGURATION.format(
            folder=kas.folder,
            state=kas.state,
            port=port,
            proxy=kas.proxy,
            agents=kas.agents,
        )
    )
    front = Process(
        "nginx",
        [nginx, "-p", kas.folder, "-c", configuration],
        kas.folder / "nginx.log",
    )
    agentk = Agentk(kas, kas.add_agent("main"), control_plane.agent, "fronted agentk")
    agentk.address = f"wss://127.0.0.1:{port}{_PATH}/"
    try:
        eventually(lambda: _answers(port), what="nginx listens")
        agentk.start()
        direct = Way("fronted", port, kas.authority, "")
        yield kas, direct
        assert agentk.stop()
    finally:
        front.stop()
        front.kill()
        kas.stop()


def _answers(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("transport", ["websocket", "spdy"])
def test_kubectl(
    transport: str,
    fronted: tuple[Kas, Way],
    namespace: str,
    make_kubectl: Callable[..., Kubectl],
    tmp_path: Path,
) -> None:
    """Objects, watches, streams and much data, with nginx on both sides of kas."""
    kas, way = fronted
    pods.start_pods(make_kubectl("direct", namespace=namespace))
    name = f"user-{transport}"
    server = f"https://127.0.0.1:{way.port}{_PATH}/k8s-proxy"
    token = kas.folder / f"{name}.token"
    kas.ctl(
        *("user", "add", name, "--agent", "main", "--as-agent", "--token-file", token)
    )
    path = tmp_path / "kubeconfig"
    command = ("--agent", "main", "--server", server, "--token-file", token)
    path.write_text(kas.ctl("kubeconfig", *command))
    path.chmod(0o600)
    kubectl = attrs.evolve(
        make_kubectl("proxied", namespace=namespace, transport=transport),
        kubeconfig=path,
        cache=tmp_path / "cache",
    )
    eventually(lambda: kubectl("version").code == 0, what="kas knows the user")
    assert "main" in kubectl.ok("get", "pods")
    with kubectl.start("get", "configmaps", "-w", "-o=name") as watch:
        assert watch.line() == b"configmap/kube-root-ca.crt\n"
        kubectl.ok("create", "configmap", "new")
        assert watch.line() == b"configmap/new\n"

    def run() -> tuple[int, bytes]:
        shell = ("--", "sh", "-c", "echo out; exit 7")
        done = kubectl("exec", "main", "-c", "echo", *shell)
        return done.code, done.out

    expect(kubectl, run, (7, b"out\n"))
    data = pods.random_file(tmp_path / "data", 20)
    kubectl.ok("cp", str(data), "main:copied", "-c", "echo")
    back = tmp_path / "back"
    kubectl.ok("cp", pods.RETRIES, "main:copied", str(back), "-c", "echo")
    assert pods.digest(back) == pods.digest(data)
    assert [one["peer"].partition(":")[0] for one in kas.status()["agents"]] == [
        "127.0.0.1"
    ]
