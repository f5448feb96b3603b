"""All that an experiment plays with: kas, agentk, the paths between them, users."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path as File
from typing import Any, Self
from urllib.parse import urlsplit

import attrs
import yaml

from tests.faults.clients import Health
from tests.faults.path import Path
from tests.faults.stand import Fleet, FleetKas
from tests.integration.cluster import ControlPlane
from tests.integration.kubectl import Kubectl
from tests.integration.processes import eventually
from tests.integration.rawhttp import Way
from tests.integration.stack import Agentk, fetch


class Stage:
    """
    Several kas behind two balancers: `front` for users, `back` for agents.

    A context manager that ends everything.
    """

    def __init__(
        self, folder: File, plane: ControlPlane, count: int = 3, more: str = ""
    ) -> None:
        self.plane = plane
        self.folder = folder
        self.fleet = Fleet(folder, count, more)
        self._paths: list[Path] = []
        for kas in self.fleet.kas:
            kas.prepare()
        ports = {kas.proxy: kas.observability for kas in self.fleet.kas}
        ports.update({kas.agents: kas.observability for kas in self.fleet.kas})
        self.health = Health(ports)
        self.front = self.path([kas.proxy for kas in self.fleet.kas])
        self.back = self.path([kas.agents for kas in self.fleet.kas])

    @property
    def kas(self) -> Sequence[FleetKas]:
        """All of them."""
        return self.fleet.kas

    def path(self, ports: Sequence[int], balanced: bool = True) -> Path:
        """A path to these ports; *balanced* asks them for their health."""
        alive = self.health.alive if balanced else lambda port: True
        path = Path(ports, alive=alive)
        self._paths.append(path)
        return path

    def start(self) -> Self:
        """All kas; the agent ``main`` and the user ``user`` exist."""
        self.fleet.start()
        self.fleet.know_each_other()
        self.token = self.add_agent("main")
        self.kas[0].add_user("user")
        for kas in self.kas:
            # Those that did not write the file look at it every two seconds.
            kas.knows(self.way(kas))
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.health.stop()
        for path in self._paths:
            path.close()
        self.fleet.stop()

    def add_agent(self, name: str) -> File:
        """
        Allow an agent; the file with its token.

        An experiment that runs again finds the agents of its first attempt.
        """
        path = self.token_of(name)
        return path if path.exists() else self.kas[0].add_agent(name)

    def token_of(self, agent: str) -> File:
        """Where its token is."""
        return self.kas[0].folder / f"agent-{agent}.token"

    def add_user_for(self, agents: Sequence[str]) -> None:
        """These agents, and the user ``of-AGENT`` for each."""
        first = self.kas[0]
        for agent in agents:
            if not self.token_of(agent).exists():
                self.add_agent(agent)
                first.add_user(f"of-{agent}", agent=agent, wait=False)
        if first.process is not None:
            first.knows(self.way(first, f"of-{agents[-1]}"))

    def agentk(self, name: str = "agentk", at: Sequence[FleetKas] = ()) -> Agentk:
        """
        One agentk of ``main``, which dials through `back`.

        :param at: where it comes to begin with, of those.
        """
        targets, self.back.targets = (
            self.back.targets,
            [kas.agents for kas in at or self.kas],
        )
        try:
            return self.fleet.agentk(
                self.token,
                self.plane.agent,
                name=name,
                address=f"tls://127.0.0.1:{self.back.port}",
            )
        finally:
            self.back.targets = targets

    def way(self, path: Path | FleetKas, user: str = "user") -> Way:
        """For requests of *user* through *path*."""
        port = path.port if isinstance(path, Path) else path.proxy
        return attrs.evolve(self.kas[0].way(user), port=port)

    def kubectl(
        self, path: Path | FleetKas, namespace: str, transport: str = "websocket"
    ) -> Kubectl:
        """The same with kubectl."""
        return Kubectl(
            self.plane.assets / "kubectl",
            self.kubeconfig(path),
            namespace,
            transport,
            self.folder / "kubectl-cache",
        )

    def kubeconfig(self, path: Path | FleetKas, user: str = "user") -> File:
        """For *user* through *path*."""
        port = path.port if isinstance(path, Path) else path.proxy
        own = self.kas[0].folder / f"{user}.kubeconfig"
        content: Any = yaml.safe_load(own.read_text())
        cluster = content["clusters"][0]["cluster"]
        agent = urlsplit(cluster["server"]).path
        cluster["server"] = f"https://127.0.0.1:{port}{agent}"
        kubeconfig = self.folder / f"kubeconfig-{user}-{port}"
        kubeconfig.write_text(yaml.safe_dump(content))
        kubeconfig.chmod(0o600)
        return kubeconfig

    def direct(self, namespace: str) -> Kubectl:
        """kubectl past kas."""
        return Kubectl(
            self.plane.assets / "kubectl",
            self.plane.agent,
            namespace,
            cache=self.folder / "kubectl-cache-direct",
        )

    def clear(self) -> None:
        """Every kas runs, no agent does, the path is good: for the next experiment."""
        self.back.delay = self.back.rate = self.back.loss = 0
        self.back.targets = [kas.agents for kas in self.kas]
        for agentk in self.fleet.agentks:
            if agentk.process is not None:
                agentk.process.kill()
        self.fleet.agentks.clear()
        for kas in self.kas:
            if kas.process is not None and kas.process.child.poll() is not None:
                kas.process.kill()
                kas.start()
        eventually(lambda: not any(self.spread()), what="no agents are left")

    def agents(self, kas: FleetKas) -> int:
        """Connections of agents at a kas; none where it does not answer."""
        code, body = fetch(kas.observability, "/status")
        return len(json.loads(body)["agents"]) if code == 200 else 0

    def spread(self) -> list[int]:
        """The same for all."""
        return [self.agents(kas) for kas in self.kas]

    def holders(self) -> list[FleetKas]:
        """Those that have agents."""
        return [kas for kas in self.kas if self.agents(kas)]

    def others(self, *without: FleetKas) -> list[FleetKas]:
        """All but these."""
        return [kas for kas in self.kas if kas not in without]

    def answers(self, way: Way) -> bool:
        """Whether a request gets through."""
        try:
            return way.ask("GET", "/readyz").status == 200
        except OSError:
            return False
