"""
kas, one of its agents, and agentk, started in the same way as an operator starts them.
"""

from __future__ import annotations

import http.client
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from demo.client import Client
from demo.cluster import ROOT, Cluster
from demo.ports import free_ports, holder, is_free
from demo.processes import DemoError, Program, run

__all__ = ["AGENT", "Ports", "Stack", "find_ports", "write_secret"]

AGENT = "demo"

#: Namespace of agentk's Lease: every cluster has it.
_LEASES = "kube-node-lease"

#: Timeout of the start of each program, in seconds; on an idle machine, a start takes
#: less than one second.
TIMEOUT = 30.0

# Environment variables that could configure another kas or agentk.
_NOT_FOR_CHILDREN = (
    "AGENTK_TOKEN",
    "NOTIFY_SOCKET",
    "STATE_DIRECTORY",
    "WATCHDOG_USEC",
)


@attrs.frozen
class Ports:
    """Ports of all listeners on 127.0.0.1."""

    agents: int = 8150
    health: int = 8151
    kubectl: int = 8154
    page: int = 8156
    #: Configuration of kas with other ports; empty if kas uses its defaults.
    configuration: str = ""
    #: Reason for other ports; empty if kas uses its defaults.
    reason: str = ""


def find_ports(*, any_free: bool) -> Ports:
    """
    Return the default ports of kas if they are free, otherwise other ports and the
    reason.
    """
    usual = Ports()
    reason = "--free-ports"
    if not any_free:
        for port in (usual.agents, usual.health, usual.kubectl, usual.page):
            if not is_free(port):
                reason = f"port {port} is taken by {holder(port)}"
                break
        else:
            return usual
    agents, health, kubectl, page = free_ports(4)
    tls = "development_certificate: true"
    configuration = (
        "# Written by the demo, because the ports of kas are taken.\n"
        "agent:\n"
        f"  listen: {{address: 127.0.0.1:{agents}, {tls}}}\n"
        "  kubernetes_api:\n"
        f"    listen: {{address: 127.0.0.1:{kubectl}, {tls}}}\n"
        "observability:\n"
        f"  listen: {{address: 127.0.0.1:{health}}}\n"
        "web:\n"
        f"  listen: {{address: 127.0.0.1:{page}}}\n"
    )
    return Ports(agents, health, kubectl, page, configuration, reason)


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of programs that the demo starts."""
    kept = {k: v for k, v in environ.items() if k not in _NOT_FOR_CHILDREN}
    for name in ("no_proxy", "NO_PROXY"):
        # Connections within this machine use no proxy.
        others = [kept[name]] if kept.get(name) else []
        kept[name] = ",".join([*others, "127.0.0.1", "localhost"])
    return kept


class Stack:
    """
    The programs of one demo.

    :param state: the demo's own state directory.
    :param agent: the name of the agent.
    """

    def __init__(
        self,
        state: Path,
        ports: Ports,
        environment: Mapping[str, str],
        agent: str = AGENT,
    ) -> None:
        self.agent = agent
        self.state = state
        self.ports = ports
        self.kas_state = state / "kas"
        self.kubeconfig = state / "kubeconfig"
        self.curl = state / "curl.conf"
        self.token_file = state / "agent-token"
        self.page_token = state / "page-token"
        self.environment = environment
        self.kas: Program
        self.agentk: Program

    def _script(self, name: str) -> Path:
        script = Path(sys.executable).parent / name
        if not script.exists():
            message = f"{script} is missing; 'make demo' installs all that is needed"
            raise DemoError(message)
        return script

    def start_kas(self, configuration: str = "") -> str:
        """Start kas; return the command that a user would type."""
        options: list[str | Path] = ["--state-directory", self.kas_state]
        file = self.state / "kas.yaml"
        configuration = configuration or self.ports.configuration
        if configuration:
            file.write_text(configuration)
            options += ["--configuration-file", file]
        else:
            file.unlink(missing_ok=True)
        self.kas = self._twistd("kas", options)
        return f"twistd kas {shlex.join(map(str, options))}"

    def _twistd(self, name: str, options: list[str | Path]) -> Program:
        # -n runs kas in the foreground; --pidfile= disables the pid file, because the
        # demo knows its child processes.
        command: list[str | Path] = [
            sys.executable,
            self._script("twistd"),
            "-n",
            "--pidfile=",
            name,
        ]
        text = ["--log-format", "text"]
        log = self.state / "logs" / f"{name}.log"
        return self.program(name, [*command, *options, *text], log)

    def program(self, name: str, command: list[str | Path], log: Path) -> Program:
        """Start a program that is not part of the stack."""
        return Program(name, command, log, self.environment, ROOT)

    def wait_for_kas(self) -> None:
        """
        Wait until kas responds.

        :raises DemoError: if kas does not start.
        """
        self.kas.wait_until(lambda: _is_ready(self.ports.health), "kas", TIMEOUT)

    def kasctl(self, *arguments: str | Path) -> str:
        """
        Run kasctl and return its output.

        :raises DemoError: if kasctl failed.
        """
        command = [sys.executable, self._script("kasctl"), *arguments]
        command += ["--state-directory", self.kas_state]
        name = " ".join(["kasctl", *map(str, arguments[:2])])
        return run(name, command, self.environment, ROOT)

    def add_agent(self) -> str:
        """Create a new token for the agent; return the command that created it."""
        options: list[str | Path] = [self.agent, "--token-file", self.token_file]
        agents = {}
        if (self.kas_state / "identity.json").exists():
            listed = json.loads(self.kasctl("agent", "list", "--output", "json"))
            agents = {found["name"]: found for found in listed}
        if self.agent in agents and agents[self.agent]["revoked_at"]:
            self.kasctl("agent", "remove", self.agent)
            del agents[self.agent]
        if self.agent in agents:
            self.kasctl("agent", "rotate", *options, "--grace", "0")
            return (
                f"kasctl agent rotate {self.agent}   (it was there from the last time)"
            )
        # The file may contain the token of a GitLab agent, from an earlier demo.
        self.token_file.unlink(missing_ok=True)
        self.kasctl("agent", "add", *options)
        return f"kasctl agent add {self.agent}"

    def write_kubeconfig(self) -> Client:
        """
        Write a kubeconfig and a configuration for curl; return a client that uses it.
        """
        server = f"https://127.0.0.1:{self.ports.kubectl}"
        options = ["--agent", self.agent, "--as-agent", "--rotate", "--server", server]
        text = self.kasctl("kubeconfig", *options)
        write_secret(self.kubeconfig, text)
        client = Client(self.kubeconfig)
        write_secret(
            self.curl,
            f'header = "Authorization: Bearer {client.token}"\n'
            f'cacert = "{self.kas_state / "ca.crt"}"\nsilent\nshow-error\nno-buffer\n',
        )
        return client

    def add_page_user(self, agents: Sequence[str]) -> None:
        """Create a user of the page with a new token for these agents."""
        name = "page"
        listed = json.loads(self.kasctl("user", "list", "--output", "json"))
        if any(one["name"] == name for one in listed):
            self.kasctl("user", "revoke", name)
            self.kasctl("user", "remove", name)
        self.page_token.unlink(missing_ok=True)
        options = [part for one in agents for part in ("--agent", one)]
        options += ["--as-agent", "--read-only", "--token-file"]
        self.kasctl("user", "add", name, *options, self.page_token)

    def page_advice(self) -> list[str]:
        """Return lines that say how to open the page."""
        return [
            f"http://127.0.0.1:{self.ports.page}/   in Chrome, Edge or Firefox here",
            f"cat {shlex.quote(str(self.page_token))}   prints the token for it",
        ]

    def wait_until_known(self, client: Client) -> None:
        """
        Wait until kas has read the files that kasctl wrote: kas checks them once a
        second.
        """
        self.kas.wait_until(
            lambda: client.status("/version", 0.05) != 401, "the new token", TIMEOUT
        )

    def start_agentk(
        self, cluster: Cluster, programs: list[Program], *more: str | Path
    ) -> str:
        """
        Start agentk, add it to *programs*, and wait until the tunnel carries data.
        """
        (health,) = free_ports(1)
        options: list[str | Path] = [
            "--kas-address",
            f"tls://127.0.0.1:{self.ports.agents}",
            "--token-file",
            self.token_file,
            "--ca-cert-file",
            self.kas_state / "ca.crt",
        ]
        if cluster.kubeconfig is not None:
            options += ["--kubeconfig", cluster.kubeconfig]
        options += more
        if not more and not cluster.is_yours:
            # Live data is the work of the leader, which needs a Lease.  The namespace
            # must not be that of the demo's pods, because kas changes nothing in it
            # with agentk's own permissions.
            file = self.state / "agentk.yaml"
            file.write_text("modules: {cluster_data: {}}\n")
            options += ["--configuration-file", file, "--namespace", _LEASES]
        health_options = ["--observability-listen-address", f"127.0.0.1:{health}"]
        self.agentk = self._twistd("agentk", [*options, *health_options])
        programs.append(self.agentk)
        self.agentk.wait_until(lambda: _is_ready(health), "the tunnel", TIMEOUT)
        return f"twistd agentk --kas-address {options[1]} ..."


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/readiness")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def write_secret(path: Path, text: str) -> None:
    """Replace a file; other users cannot read it at any time."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(
        os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
    ) as out:
        out.write(text)
    new.replace(path)
