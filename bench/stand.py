"""The programs under test, started for one run of cases."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import attrs

from bench.processes import Process, python, twistd
from kas.identity.store import IdentityStore
from kas.state import pki
from kas.state.directory import StateDirectory
from tools.load.clients import Agents
from tools.ports import free_port

#: Sizes in bytes of the responses that the upstream nginx has.
SIZES = (200, 6144)
GIGABYTE = 10**9

#: Whether to run for only about a minute in total: the figures are rough, and show only
#: large changes.
QUICK = bool(os.environ.get("QUICK"))

#: Niceness of the client that floods.  If this client shares cores with kas and has the
#: same priority, the measured client waits for the flooding client itself, and not only
#: for its turn at kas.
NICE = int(os.environ.get("NICE", "0"))

#: Number of measurements of each figure, whose median is the result, and seconds for
#: each.
ROUNDS, SECONDS = (1, 1.0) if QUICK else (3, 3.0)

#: nginx settings that serve files, with the headers of an API server.
FILES = (
    "location / {{ root {}; default_type application/json; "
    "open_file_cache max=10 inactive=1h; open_file_cache_valid 1h; "
    "add_header Audit-Id 7e0a4f3c-7f0c-4c3e-9a38-53f4d1f7a001; }}"
)


@attrs.define(eq=False)
class Node:
    """A kas that was started."""

    process: Process
    proxy: str
    agent_port: int


class Stand:
    """
    kas, one agentk, and an upstream with TLS, on free ports.

    At the end of the ``with`` block, all programs are stopped and the folder is
    removed.
    """

    def __init__(self, agents: int = 1) -> None:
        self._stack = ExitStack()
        self.folder = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        )
        now = datetime.now(UTC)
        self.state = StateDirectory.open(self.folder / "state")
        files = pki.ensure(self.state, now.timestamp, "localhost")
        self.certificate, self.key = str(files.certificate_file), str(files.key_file)
        self.ca = str(files.ca_file)
        store = IdentityStore(self.state, lambda: now)
        added = store.add_agents([f"agent-{n}" for n in range(agents)])
        self.tokens = [token for _, token in added]
        _, user = store.add_user("bench", ["*"], None)
        self.user_token = user
        #: Tokens of one user for the URLs of the first and of the second agent.
        self.token, self.second_token = f"user:1:{user}", f"user:2:{user}"
        _, other = store.add_user("other", ["*"], None)
        #: Token of another user for the first agent.
        self.other_token = f"user:1:{other}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def started(self, process: Process) -> Process:
        """Register *process* to be stopped at the end."""
        self._stack.callback(process.stop)
        return process

    def log(self, name: str) -> Path:
        """Return the path for the log of a program."""
        return self.folder / f"{name}-{len(list(self.folder.glob('*.log')))}.log"

    def server(self, name: str, *arguments: str) -> tuple[Process, int]:
        """Start one of the servers in `bench.servers`; return its process and port."""
        process = self.started(
            python(
                "bench.servers",
                name,
                f"--certificate={self.certificate}",
                f"--key={self.key}",
                *arguments,
                log=self.log(name),
            )
        )
        return process, int(process.wait_for("port ").split()[1])

    def kas(self) -> Process:
        """Start kas with a proxy that needs no TLS."""
        node = self.start_kas()
        self.proxy, self.agent_port = node.proxy, node.agent_port
        return node.process

    def start_kas(self, settings: str = "", host: str = "127.0.0.1") -> Node:
        """
        Start a kas; *settings* are added to its configuration, as YAML text.

        :param host: address of the listener for agents.
        """
        file = self.folder / f"kas-{len(list(self.folder.glob('kas-*.yaml')))}.yaml"
        file.write_text(
            "agent:\n"
            f"  listen: {{address: '{host}:0', development_certificate: true}}\n"
            "  kubernetes_api:\n"
            "    listen: {address: '127.0.0.1:0', development_certificate: false}\n"
            "    max_requests_per_agent: 10000\n"
            "    max_requests_per_credential: 10000\n"
            "observability:\n"
            "  listen: {address: '127.0.0.1:0'}\n" + settings
        )
        process = self.started(
            twistd(
                "kas",
                f"--configuration-file={file}",
                f"--state-directory={self.state.path}",
                "--log-format=text",
                log=self.log("kas"),
            )
        )
        proxy_port = _port(process.wait_for("listening for kubernetes_api"))
        agent_port = _port(process.wait_for("listening for agents"))
        process.wait_for("kas is ready")
        return Node(process, f"http://127.0.0.1:{proxy_port}", agent_port)

    def agentk(
        self, upstream_port: int, *, number: int = 0, tls: bool = True
    ) -> Process:
        """
        Start agentk in front of an upstream.

        :param number: the number of the agent.
        :param tls: whether the upstream uses TLS with our certificate.
        """
        kubeconfig = self.folder / f"kubeconfig-{number}"
        cluster = {"server": f"http://localhost:{upstream_port}"}
        if tls:
            cluster = {
                "server": f"https://localhost:{upstream_port}",
                "certificate-authority": self.ca,
            }
        kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "c",
                    "clusters": [{"name": "c", "cluster": cluster}],
                    "users": [{"name": "c", "user": {"token": "t" * 900}}],
                    "contexts": [
                        {"name": "c", "context": {"cluster": "c", "user": "c"}}
                    ],
                }
            )
        )
        token = self.folder / f"token-{number}"
        token.write_text(self.tokens[number])
        process = self.started(
            twistd(
                "agentk",
                f"--kas-address=tls://localhost:{self.agent_port}",
                f"--token-file={token}",
                f"--ca-cert-file={self.ca}",
                f"--kubeconfig={kubeconfig}",
                "--observability-listen-address=127.0.0.1:0",
                "--log-format=text",
                log=self.log("agentk"),
            )
        )
        process.wait_for("connected to kas")
        return process

    def agents(self, port: int = 0, *more: int, kind: str = "light") -> Agents:
        """
        Start a process for agents of one kind, which are not connected yet.

        :param more: ports of other kas, which agents use when the first kas stops.
        """
        ports = more or [port or self.agent_port]
        agents = Agents(self.ca, ports, at_once=0, kind=kind)
        self._stack.callback(agents.end)
        return agents

    def upstream(self) -> tuple[Any, int]:
        """Start nginx with TLS if it is installed, otherwise our own server."""
        if shutil.which("nginx") is None:
            return self.server("upstream")
        return self.nginx("")

    def nginx(self, locations: str, *, tls: bool = True) -> tuple[Process, int]:
        """Start nginx with *locations*, or with files of the known sizes."""
        folder = self.folder / f"nginx-{len(list(self.folder.glob('nginx-*')))}"
        folder.mkdir()
        port = free_port()
        for size in SIZES:
            (folder / str(size)).write_text("x" * size)
        (folder / "nginx.conf").write_text(
            f"daemon off; master_process off; worker_rlimit_nofile 20000;\n"
            f"pid {folder}/pid; error_log {folder}/error.log;\n"
            "events { worker_connections 10000; }\n"
            f"http {{ access_log off; keepalive_requests 100000000; "
            f"client_body_temp_path {folder}; proxy_temp_path {folder};\n"
            f"fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; "
            f"scgi_temp_path {folder};\n"
            f"upstream next {{ server 127.0.0.1:{self._next or 1}; keepalive 64; }}\n"
            f"server {{ listen 127.0.0.1:{port}{' ssl' * tls} backlog=4096; "
            f"ssl_certificate {self.certificate}; ssl_certificate_key {self.key};\n"
            f"ssl_protocols TLSv1.3; {locations or FILES.format(folder)} }} }}\n"
        )
        process = self.started(
            Process(
                ["nginx", "-c", str(folder / "nginx.conf"), "-e", "stderr"],
                log=folder / "stderr.log",
            )
        )
        wait_for_port(port)
        return process, port

    _next = 0

    def floor(self, upstream_port: int) -> tuple[Process, str]:
        """
        Start a hop with TLS on both sides, and return its process and URL.

        The hop is nginx if it is installed, otherwise the smallest Twisted relay.  It
        contains no code of ours, so our changes do not affect it.
        """
        if shutil.which("nginx") is None:
            tls = "--to-tls", "--from-tls"
            process, port = self.server("relay", f"--to={upstream_port}", *tls)
        else:
            process, port = self.hop(upstream_port)
        return process, f"https://127.0.0.1:{port}"

    def hop(self, upstream_port: int) -> tuple[Process, int]:
        """Start an nginx that forwards everything, with TLS to its upstream."""
        self._next = upstream_port
        return self.nginx(
            "location / { proxy_pass https://next; proxy_http_version 1.1; "
            'proxy_set_header Connection ""; proxy_buffering off; '
            "proxy_ssl_protocols TLSv1.3; }"
        )


def wait_for_port(port: int, seconds: float = 10.0) -> None:
    """Wait until a program listens on a port."""
    import socket
    import time

    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def _port(line: str) -> int:
    found = re.search(r"\d+\.\d+\.\d+\.\d+:(\d+)", line)
    assert found is not None, line
    return int(found[1])
