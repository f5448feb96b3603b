"""A real push reaches a receiver behind a Service: real kas, agentk and cluster."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml

from tests.integration import needs
from tests.integration.cluster import ControlPlane
from tests.integration.processes import eventually
from tests.integration.stack import Agentk, Kas
from tests.tunnel.transport.certificates import authority
from tools.git_repository import GitRepository, git

FILE = ".gitlab/agents/main/config.yaml"
SECRET = b"the-secret-of-the-receiver"
URL = "https://git.example.org/group/apps"
PORT = 8123


@attrs.define(eq=False)
class Receiver:
    """
    A server at the ClusterIP of a Service, because no kube-proxy runs here.

    :ivar status: of its responses.
    :ivar tls: None for a server without TLS.
    """

    namespace: str
    name: str
    address: str
    tls: ssl.SSLContext | None = None
    status: int = 200
    requests: list[tuple[str, dict[str, str], bytes]] = attrs.Factory(list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve inside the block."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                fields = {name.lower(): text for name, text in self.headers.items()}
                receiver.requests.append((self.path, fields, body))
                self.send_response(receiver.status)
                self.send_header("Content-Length", "6")
                self.end_headers()
                self.wfile.write(b"noted\n")

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer((self.address, PORT), Handler)
        if self.tls is not None:
            server.socket = self.tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def commits(self) -> list[str]:
        return [json.loads(body)["after"] for _, _, body in self.requests]


@contextmanager
def address_of_this_machine(address: str) -> Iterator[None]:
    """Give this machine one more address."""
    needs.program("ip", "apt-get install iproute2")
    words = (f"{address}/32", "dev", "lo")
    done = subprocess.run(["ip", "address", "add", *words], capture_output=True)
    if done.returncode != 0:
        needs.missing("another address of this machine", "run as root")
    try:
        yield
    finally:
        subprocess.run(["ip", "address", "delete", *words], check=True)


@pytest.fixture(params=["http", "https"])
def receiver(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    control_plane: ControlPlane,
    shared_namespace: str,
) -> Iterator[Receiver]:
    """A Service, its server, and a Secret, in another namespace than agentk's."""
    path, name = f"/api/v1/namespaces/{shared_namespace}", f"hooks-{request.param}"
    service = {
        "metadata": {"name": name},
        "spec": {"selector": {"app": "hooks"}, "ports": [{"port": PORT}]},
    }
    made = control_plane.call("POST", f"{path}/services", service)
    data = {"token": SECRET, "ca.crt": authority().pem.encode()}
    secret = {
        "metadata": {
            "name": name,
            "annotations": {"txkas/webhook-keys": "token,ca.crt"},
        },
        "data": {key: base64.b64encode(one).decode() for key, one in data.items()},
    }
    control_plane.call("POST", f"{path}/secrets", secret)
    receiver = Receiver(shared_namespace, name, made["spec"]["clusterIP"])
    if request.param == "https":
        identity = authority().issue(f"{name}.{shared_namespace}.svc")
        receiver.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        receiver.tls.load_cert_chain(*identity.write(tmp_path, "receiver"))
    with address_of_this_machine(receiver.address):
        yield receiver


def test_a_push(
    tmp_path: Path,
    lone_kas: Kas,
    control_plane: ControlPlane,
    namespace: str,
    receiver: Receiver,
) -> None:
    """Delivered, retried, listed and repeated; both programs restart in between."""
    origin = GitRepository.make(tmp_path / "apps.git")
    lone_kas.agent_settings = (
        f"configuration: {{poll_period: 1s, repositories: "
        f"{{apps: {{path: {origin.path}}}}}}}",
    )
    lone_kas.settings = (
        "modules: {webhooks: {poll_period: 1s, repositories: "
        f"{{apps: {{path: {origin.path}}}}}}}}}\n"
    )
    target = {
        "name": "hooks",
        "service": f"{receiver.namespace}/{receiver.name}:{PORT}",
        "path": "/api/webhook",
        "format": "github",
        "secret": f"{receiver.namespace}/{receiver.name}/token",
        "repository_url": URL,
    }
    if receiver.tls is not None:
        target["ca_certificate"] = f"{receiver.namespace}/{receiver.name}/ca.crt"
    first = origin.commit({FILE: yaml.safe_dump({"webhooks": {"targets": [target]}})})
    options = tmp_path / "agentk.yaml"
    options.write_text("modules: {webhooks: {}}\n")
    agentk = Agentk(lone_kas, lone_kas.add_agent("main"), control_plane.agent)

    def start() -> None:
        lone_kas.start()
        agentk.start("--configuration-file", str(options), "--namespace", namespace)

    def state() -> Any:
        (found,) = lone_kas.ctl_json("webhooks", "list", "main")["deliveries"]
        return found

    def knows(commit: str) -> bool:
        shown = lone_kas.ctl_json("webhooks", "list", "main").get("deliveries", [])
        return [one.get("after") for one in shown] == [commit]

    clone = tmp_path / "clone"
    git("clone", "--quiet", str(origin.path), str(clone))

    def push(text: str) -> str:
        (clone / "a.yaml").write_text(text)
        git("-C", str(clone), "add", "a.yaml")
        git("-C", str(clone), "commit", "--quiet", "--message", text)
        git("-C", str(clone), "push", "--quiet", "origin", "HEAD:main")
        return git("-C", str(clone), "rev-parse", "HEAD").strip()

    def is_known() -> bool:
        try:
            return knows(first)
        except AssertionError:
            # kas does not know webhooks of the agent yet.
            return False

    try:
        with receiver.running():
            start()
            eventually(is_known, what="the first commit")
            second = push("2")
            eventually(lambda: receiver.commits() == [second])
            ((path, fields, body),) = receiver.requests
            assert path == "/api/webhook"
            assert fields["host"] == f"{receiver.name}.{receiver.namespace}.svc:{PORT}"
            assert fields["x-github-event"] == "push"
            mac = hmac.new(SECRET, body, hashlib.sha256).hexdigest()
            assert fields["x-hub-signature-256"] == f"sha256={mac}"
            assert "authorization" not in fields
            pushed = json.loads(body)
            assert pushed["ref"] == "refs/heads/main"
            assert (pushed["before"], pushed["after"]) == (first, second)
            assert pushed["repository"]["html_url"] == URL
            assert pushed["head_commit"]["modified"] == ["a.yaml"]
            eventually(lambda: state()["state"] == "DELIVERED")

            # A receiver that fails is tried again after five seconds.
            receiver.status = 500
            third = push("3")
            eventually(lambda: receiver.commits().count(third) == 1)
            shown = lone_kas.ctl("webhooks", "list", "main", "--body")
            eventually(lambda: state().get("attempts") == 1)
            shown = lone_kas.ctl("webhooks", "list", "main", "--body")
            assert "hooks  refs/heads/main  pending" in shown
            assert "last response: 500" in shown
            assert "    noted" in shown
            receiver.status = 200
            eventually(lambda: receiver.commits().count(third) == 2)
            eventually(lambda: state()["state"] == "DELIVERED")
            lone_kas.ctl("webhooks", "resend", "main", "hooks")
            eventually(lambda: receiver.commits().count(third) == 3)

        # No server is at the address; then both programs are away during two pushes.
        push("4")
        eventually(lambda: state().get("lastError"))
        agentk.stop()
        lone_kas.stop()
        push("5")
        last = push("6")
        receiver.requests.clear()
        with receiver.running():
            start()
            eventually(lambda: receiver.commits() == [last])
            _, _, body = receiver.requests[0]
            assert json.loads(body)["before"] == third
            eventually(lambda: state()["state"] == "DELIVERED")
            assert agentk.metric("agentk_webhooks_requests_total") == 1
            assert lone_kas.metric("kas_webhooks_attempts_total") == 1
        for process in (lone_kas.process, agentk.process):
            assert process is not None
            assert SECRET.decode() not in process.said()
    finally:
        if agentk.process is not None:
            agentk.process.kill()
