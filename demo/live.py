"""The demo of live data: two clusters, their problems, and one that goes offline."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from demo.client import Client, KubernetesError
from demo.cluster import Cluster, sandbox
from demo.processes import DemoError, Program
from demo.screen import Screen, Step, milliseconds
from demo.stack import Stack
from demo.story import run_steps

__all__ = ["DEPLOYMENTS", "NAMESPACE", "LiveStory", "deployment_of", "node_of"]

#: Names of the two agents; the second cluster is always the sandbox.
_HERE, _AWAY = "berlin", "paris"

#: Names of the nodes and of the Deployment that the demo creates.
_NODES = ("demo-node-1", "demo-node-2", "demo-node-3")
_WEB = "demo-web"
NAMESPACE = "kas-demo"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"

#: Maximum number of seconds until a change is visible.
_TIMEOUT = 30.0

_CONFIGURATION = """\
# Written by `make demo LIVE=1`.
agent:
  listen: {{address: "127.0.0.1:{agents}", development_certificate: true}}
  kubernetes_api:
    listen: {{address: "127.0.0.1:{kubectl}", development_certificate: true}}
observability:
  listen: {{address: "127.0.0.1:{health}"}}
web:
  listen: {{address: "127.0.0.1:{page}"}}
"""


class LiveStory:
    """The steps of the demo with two clusters; all rows come from kas."""

    def __init__(self, screen: Screen, stack: Stack, cluster: Cluster) -> None:
        self.screen = screen
        self.stack = stack
        stack.agent = _HERE
        folder = stack.state / _AWAY
        (folder / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
        self._second = Stack(folder, stack.ports, stack.environment, _AWAY)
        self._second.kas_state = stack.kas_state
        self._clusters = [
            cluster,
            sandbox(stack.environment, folder, folder / "logs"),
        ]
        self.clients: list[Client] = []

    def run(self, programs: list[Program]) -> None:
        """Run all steps, and add started programs to *programs*."""
        self.run_all(
            programs,
            (
                ("kas is up, with live data", self.start_kas),
                ("two clusters are connected", self.connect),
                ("kas knows both clusters", self.wait_until_known),
                ("a node disappears", self._node),
                ("a Deployment cannot run", self._deployment),
                ("which cluster runs this image?", self._image),
                ("a cluster goes offline, and stays readable", self._offline),
            ),
        )

    @property
    def stacks(self) -> tuple[Stack, Stack]:
        """The agents of both clusters."""
        return self.stack, self._second

    def run_all(
        self,
        programs: list[Program],
        steps: Sequence[tuple[str, Callable[[Step, list[Program]], None]]],
    ) -> None:
        """Run steps, beside the second cluster."""
        second = self._clusters[1].program
        assert second is not None
        programs.append(second)
        try:
            run_steps(self.screen, self.stack, programs, steps)
        finally:
            for client in self.clients:
                client.close()

    def advise(self) -> None:
        """Print commands to try while the demo runs."""
        state = shlex.quote(str(self.stack.kas_state))
        self.screen.say()
        self.screen.say("Look at both clusters in a browser:", "1")
        for line in self.stack.page_advice():
            self.screen.say(f"  {line}")
        self.screen.say("with kasctl:", "1")
        for command in (
            "clusters",
            "problems",
            "get deployments -o wide",
            "get nodes --clusters berlin",
            "events",
        ):
            self.screen.say(f"  kasctl {command} --state-directory {state}")
        kubeconfig = shlex.quote(str(self.stack.kubeconfig))
        self.screen.say(f"  export KUBECONFIG={kubeconfig}   # {_HERE}, for kubectl")
        self.screen.say()

    # Steps that start programs.

    def start_kas(self, step: Step, programs: list[Program]) -> None:
        stack, ports = self.stack, self.stack.ports
        text = _CONFIGURATION.format(
            agents=ports.agents,
            kubectl=ports.kubectl,
            health=ports.health,
            page=ports.page,
        )
        step.note(stack.start_kas(text))
        programs.append(stack.kas)
        stack.wait_for_kas()

    def connect(self, step: Step, programs: list[Program]) -> None:
        for cluster, stack in zip(self._clusters, self.stacks, strict=True):
            cluster.wait()
            step.note(stack.add_agent())
            client = stack.write_kubeconfig()
            self.clients.append(client)
            stack.kas = self.stack.kas
            stack.wait_until_known(client)
            options = stack.state / "agentk.yaml"
            options.write_text("modules: {cluster_data: {}}\n")
            lease = ("--namespace", cluster.namespace)
            more: tuple[str | Path, ...] = ("--configuration-file", options, *lease)
            step.note(f"{stack.agent}: {cluster.title}")
            stack.start_agentk(cluster, programs, *more)
            self._prepare(client)
        self.stack.add_page_user([_HERE, _AWAY])

    def _prepare(self, client: Client) -> None:
        """Create the objects of the demo; earlier demos may have left some."""
        try:
            body = {"metadata": {"name": NAMESPACE}}
            client.request("POST", "/api/v1/namespaces", body)
        except KubernetesError as error:
            if error.status != 409:
                raise
        self._remove(client, f"{DEPLOYMENTS}/{_WEB}")
        for name in _NODES:
            self._remove(client, f"/api/v1/nodes/{name}")
            client.request("POST", "/api/v1/nodes", node_of(name))

    # Steps that use these programs.

    def wait_until_known(self, step: Step, programs: list[Program]) -> None:
        self._until(
            lambda: (
                all(
                    one["state"] == "live" and self._nodes(one) >= len(_NODES)
                    for one in self._known_clusters().values()
                )
                and len(self._known_clusters()) >= len(self._clusters)
            ),
            "the rows of both clusters",
        )
        self._show(step, "clusters")

    def _node(self, step: Step, programs: list[Program]) -> None:
        before = self._nodes(self._known_clusters()[_HERE])
        began = time.monotonic()
        self.clients[0].request("DELETE", f"/api/v1/nodes/{_NODES[-1]}")
        self._until(
            lambda: self._nodes(self._known_clusters()[_HERE]) < before,
            "the node to disappear",
        )
        took = milliseconds(time.monotonic() - began)
        step.note(f"{_NODES[-1]} is deleted in {_HERE}; kasctl shows that {took} later")
        self._show(step, "get", "nodes", "--clusters", _HERE)

    def _deployment(self, step: Step, programs: list[Program]) -> None:
        began = time.monotonic()
        self.clients[1].request("POST", DEPLOYMENTS, deployment_of(_WEB, 2))
        self._until(
            lambda: any(
                row["name"] == _WEB
                for row in self._rows("problems", "--clusters", _AWAY)
            ),
            "the problem",
        )
        took = milliseconds(time.monotonic() - began)
        step.note(f"{_WEB} in {_AWAY} has no pod; kasctl shows that {took} later")
        self._show(step, "problems", "--clusters", _AWAY)

    def _image(self, step: Step, programs: list[Program]) -> None:
        self._until(
            lambda: bool(self._rows("get", "deployments", "--image", "demo:2")),
            "the image",
        )
        self._show(step, "get", "deployments", "--image", "demo:2")

    def _offline(self, step: Step, programs: list[Program]) -> None:
        agentk = self._second.agentk
        programs.remove(agentk)
        agentk.terminate()
        agentk.join(time.monotonic() + _TIMEOUT)
        step.note(f"agentk of {_AWAY} ends")
        self._until(
            lambda: self._known_clusters()[_AWAY]["state"] == "offline",
            "the cluster to be offline",
        )
        self._show(step, "clusters")
        if not self._rows("get", "nodes", "--clusters", _AWAY):
            raise DemoError("the rows are gone", self.stack.kas.log)
        self._show(step, "get", "nodes", "--clusters", _AWAY)

    # Helpers.

    def _remove(self, client: Client, path: str) -> None:
        try:
            client.request("DELETE", path)
        except KubernetesError as error:
            if error.status != 404:
                raise

    def _known_clusters(self) -> dict[str, Any]:
        found = json.loads(self.stack.kasctl("clusters", "--output", "json"))
        # kas still knows the clusters of earlier demos.
        return {
            one["agentName"]: one
            for one in found.get("clusters", [])
            if one["agentName"] in (_HERE, _AWAY)
        }

    def _nodes(self, cluster: dict[str, Any]) -> int:
        """Return the number of nodes of a cluster."""
        total: int = cluster["summary"].get("nodes", {}).get("total", 0)
        return total

    def _rows(self, *arguments: str) -> list[dict[str, Any]]:
        answer = json.loads(self.stack.kasctl(*arguments, "-o", "json"))
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    def _show(self, step: Step, *arguments: str) -> None:
        """Run kasctl, and show its output as notes of the step."""
        step.note(f"$ kasctl {' '.join(arguments)}")
        for line in self.stack.kasctl(*arguments).splitlines():
            step.note(f"  {line}")

    def _until(self, done: Callable[[], bool], what: str) -> None:
        self.stack.kas.wait_until(done, what, _TIMEOUT)


def node_of(name: str) -> dict[str, Any]:
    """Return a Node that is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "Demo"}],
            "nodeInfo": {"kubeletVersion": "v1.36.3"},
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        },
    }


def deployment_of(name: str, version: int) -> dict[str, Any]:
    """Return a Deployment whose pods find no node."""
    labels = {"app": name}
    image = f"registry.example.org/demo:{version}"
    containers = [{"name": "web", "image": image}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": containers, "nodeSelector": {"no": "node"}},
            },
        },
    }
