"""`twistd kas` and `twistd agentk`, each a process, with all that they need."""

from __future__ import annotations

import json
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import yaml

from tests.integration.processes import (
    PATIENCE,
    ROOT,
    Process,
    eventually,
    kasctl,
    kasctl_here,
    twistd,
)
from tests.integration.rawhttp import Way
from tools.ports import free_port

_LISTENING = r"listening for {} on 127\.0\.0\.1:(\d+)"

_CONFIGURATION = """\
agent:
{agent}  listen:
    address: 127.0.0.1:{agents}
    development_certificate: {tls}
    shutdown_grace_period: {grace}
  kubernetes_api:
    url_path_prefix: {prefix}
{proxying}    listen:
      address: 127.0.0.1:{proxy}
      development_certificate: {tls}
observability:
{observing}  listen:
    address: 127.0.0.1:{observability}
"""


def fetch(port: int, path: str) -> tuple[int, bytes]:
    """GET from an observability listener; status 0 when nobody is there."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""


@attrs.define(eq=False, kw_only=True)
class Program:
    """What both programs have: a process, and a port that tells how it is."""

    observability: int = 0
    process: Process | None = None

    def metric(self, name: str) -> float:
        """The sum over all labels, or what has those of *name*."""
        return metric(self.observability, name)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> bool:
        """End it; whether it ended in good order."""
        assert self.process is not None
        try:
            return self.process.stops_cleanly(how)
        finally:
            self.process.kill()


@attrs.define(eq=False)
class Kas(Program):
    """
    One kas with a state directory in *folder*; it keeps its ports.

    :ivar settings: added to the configuration file, as YAML text.
    :ivar agent_settings: lines of its section ``agent``.
    :ivar proxy_settings: lines of its section ``agent.kubernetes_api``.
    :ivar observability_settings: lines of its section ``observability``.
    :ivar tls: False for what stands behind a server that does TLS.
    :ivar grace: what runs when it stops has so long.
    """

    folder: Path
    settings: str = ""
    agent_settings: tuple[str, ...] = ()
    proxy_settings: tuple[str, ...] = ()
    observability_settings: tuple[str, ...] = ()
    tls: bool = True
    prefix: str = "/"
    grace: str = "2s"
    # Fixed from the beginning: peers and balancers know them.
    agents: int = attrs.Factory(free_port)
    proxy: int = attrs.Factory(free_port)
    observability: int = attrs.field(factory=free_port, kw_only=True)

    @property
    def state(self) -> Path:
        """The state directory."""
        return self.folder / "state"

    @property
    def authority(self) -> Path:
        """The CA of its development certificate."""
        return self.state / "ca.crt"

    @property
    def configuration(self) -> Path:
        """The configuration file, written for the ports of now."""
        path = self.folder / "kas.yaml"
        text = _CONFIGURATION.format(
            agents=self.agents,
            proxy=self.proxy,
            observability=self.observability,
            prefix=self.prefix,
            grace=self.grace,
            tls=str(self.tls).lower(),
            agent="".join(f"  {line}\n" for line in self.agent_settings),
            proxying="".join(f"    {line}\n" for line in self.proxy_settings),
            observing="".join(f"  {line}\n" for line in self.observability_settings),
        )
        path.write_text(text + self.settings)
        return path

    def start(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> Process:
        """Start it, and wait until it is ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process = process = Process(
            "kas",
            twistd(
                "kas",
                "--configuration-file",
                self.configuration,
                "--state-directory",
                self.state,
                *arguments,
            ),
            self.folder / "kas.log",
            environment=environment,
        )
        process.wait_for("kas is ready")
        # Where the configuration left it to the system.
        self.agents = self._port("agents")
        self.proxy = self._port("kubernetes_api")
        self.observability = self._port("health and metrics")
        return process

    def _port(self, what: str) -> int:
        assert self.process is not None
        return int(self.process.wait_for(_LISTENING.format(what))[1])

    def ctl(self, *arguments: str | Path) -> str:
        """Run kasctl on its state directory."""
        return kasctl(*arguments, state=self.state).stdout

    def ctl_json(self, *arguments: str | Path) -> Any:
        """The same, read from its JSON form."""
        return json.loads(self.ctl(*arguments, "--output", "json"))

    def add_agent(self, name: str) -> Path:
        """Allow an agent; the file with its token."""
        path = self.folder / f"agent-{name}.token"
        kasctl_here("agent", "add", name, "--token-file", path, state=self.state)
        return path

    def add_user(
        self, name: str, *access: str, agent: str = "main", wait: bool = True
    ) -> Path:
        """
        Allow a user, ``--as-agent`` unless told; the kubeconfig.

        :param wait: until kas knows it, where it runs.
        """
        token = self.folder / f"user-{name}.token"
        rights = access or ("--as-agent",)
        kasctl_here(
            *("user", "add", name, "--agent", agent, *rights),
            *("--token-file", token),
            state=self.state,
        )
        path = self.kubeconfig(name, token, agent)
        if wait and self.process is not None:
            self.knows(self.way(name))
        return path

    def knows(self, way: Way) -> None:
        """Wait until it lets the user of *way* in."""
        # Refused for what it asks, and no longer for who asks.
        eventually(
            lambda: way.ask("GET", "/", "Impersonate-Nobody: x").status == 400,
            30,
            "the user is known",
        )

    def kubeconfig(self, name: str, token: Path, agent: str = "main") -> Path:
        """What `kasctl kubeconfig` prints for a user that is there, as a file."""
        path = self.folder / f"{name}.kubeconfig"
        server = f"https://127.0.0.1:{self.proxy}"
        path.write_text(
            kasctl_here(
                *("kubeconfig", "--agent", agent, "--server", server),
                *("--token-file", token),
                state=self.state,
            )
        )
        path.chmod(0o600)
        return path

    def bearer(self, name: str) -> str:
        """The token in that file, which names the agent."""
        content = yaml.safe_load((self.folder / f"{name}.kubeconfig").read_text())
        return str(content["users"][0]["user"]["token"])

    def way(self, user: str) -> Way:
        """For requests of *user* that are written by hand."""
        return Way(user, self.proxy, self.authority, self.bearer(user))

    def status(self) -> dict[str, Any]:
        """What `kasctl status` shows."""
        code, body = fetch(self.observability, "/status")
        assert code == 200, body
        status: dict[str, Any] = json.loads(body)
        return status

    def streams(self) -> int:
        """Open streams of every tunnel."""
        said = self.status()
        tunnels = said["agents"] + said["extra_tunnels"]
        return sum(int(one["streams"]) for one in tunnels)


@attrs.define(eq=False)
class Agentk(Program):
    """One agentk that dials *kas*."""

    kas: Kas
    token: Path
    kubeconfig: Path | None
    name: str = "agentk"
    address: str = ""

    def arguments(self) -> list[str | Path]:
        """For `twistd agentk`."""
        more = () if self.kubeconfig is None else ("--kubeconfig", self.kubeconfig)
        return [
            "--kas-address",
            self.address or f"tls://127.0.0.1:{self.kas.agents}",
            "--ca-cert-file",
            self.kas.authority,
            "--token-file",
            self.token,
            "--observability-listen-address",
            f"127.0.0.1:{self.observability}",
            *more,
        ]

    def start(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> Process:
        """Start it, and wait until bytes flow through its tunnel."""
        self.process = process = Process(
            self.name,
            twistd("agentk", *self.arguments(), *arguments),
            self.kas.folder / f"{self.name}.log",
            environment=environment,
        )
        found = process.wait_for(_LISTENING.format("health and metrics"))
        self.observability = int(found[1])
        self.wait_until_ready()
        return process

    def ready(self) -> bool:
        """Whether bytes flow through its tunnel."""
        return fetch(self.observability, "/readiness")[0] == 200

    def wait_until_ready(self, seconds: float = PATIENCE) -> None:
        """Until `ready`."""
        eventually(self.ready, seconds, "agentk is ready")


@contextmanager
def sandbox(folder: Path) -> Iterator[Path]:
    """The API server of the demo; its kubeconfig."""
    process = Process(
        "sandbox",
        [sys.executable, "-m", "demo.sandbox", "--state-directory", folder / "state"],
        folder / "sandbox.log",
        environment={"PYTHONPATH": str(ROOT)},
    )
    try:
        yield Path(process.wait_for(r"ready: (\S+)")[1])
    finally:
        process.kill()


@contextmanager
def with_agent(kas: Kas, kubeconfig: Path) -> Iterator[Agentk]:
    """Start *kas*, and an agentk by the name of ``main`` that ends afterwards."""
    token = kas.add_agent("main")
    kas.start()
    agentk = Agentk(kas, token, kubeconfig)
    agentk.start()
    yield agentk
    agentk.stop()


def metric(port: int, name: str) -> float:
    """
    The sum of a metric over all labels; 0 when there is none.

    :param name: with labels it is theirs alone: ``kas_spans_total{result="failed"}``.
    """
    code, body = fetch(port, "/metrics")
    assert code == 200, body
    lines = (line.rpartition(" ") for line in body.decode().splitlines())
    return sum(float(v) for n, _, v in lines if name in (n, n.partition("{")[0]))
