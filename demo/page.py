"""The demo of the page: two clusters that change all the time, in a browser."""

from __future__ import annotations

import itertools
import os
import threading
import webbrowser
from collections.abc import Iterator
from typing import Any

from demo.client import Client, KubernetesError
from demo.live import DEPLOYMENTS, NAMESPACE, LiveStory, deployment_of, node_of
from demo.processes import Program
from demo.screen import Step

__all__ = ["PageStory"]

#: Seconds between two changes.
_PAUSE = 2.0

#: Number of Deployments that come and go in each cluster.
_DEPLOYMENTS = 12

#: Number of changes before the demo ends by itself.
_CHANGES = 10


class PageStory(LiveStory):
    """The clusters of `LiveStory`, with changes until the demo ends."""

    def run(self, programs: list[Program]) -> None:
        """Run all steps, and begin the changes."""
        self.run_all(
            programs,
            (
                ("kas is up, with its page", self.start_kas),
                ("two clusters are connected", self.connect),
                ("kas knows both clusters", self.wait_until_known),
                ("both clusters change", self._change),
            ),
        )

    def advise(self) -> None:
        """Print the address of the page, open it, and go on with the changes."""
        self.screen.say()
        self.screen.say("Two clusters that change, in a browser:", "1")
        for line in self.stack.page_advice():
            self.screen.say(f"  {line}")
        self.screen.say()
        if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            webbrowser.open(f"http://127.0.0.1:{self.stack.ports.page}/")
        threading.Thread(target=self._go_on, daemon=True).start()

    def _change(self, step: Step, programs: list[Program]) -> None:
        for change in itertools.islice(self._changes(), _CHANGES):
            step.note(change)

    def _go_on(self) -> None:
        clients = [Client(one.kubeconfig) for one in self.stacks]
        waiting = threading.Event()
        for _ in self._changes(clients):
            waiting.wait(_PAUSE)

    def _changes(self, clients: list[Client] | None = None) -> Iterator[str]:
        """Make one change after the other, and say what each was."""
        clients = clients or self.clients
        for number in itertools.count():
            client = clients[number % len(clients)]
            cluster = self.stacks[number % len(clients)].agent
            name = f"demo-web-{number % _DEPLOYMENTS}"
            try:
                yield f"{cluster}: {self._one(client, name, number)}"
            except KubernetesError as error:
                yield f"{cluster}: {error}"

    def _one(self, client: Client, name: str, number: int) -> str:
        if number % 7 == 6:
            return _renew_node(client)
        path = f"{DEPLOYMENTS}/{name}"
        try:
            found: Any = client.request("GET", path)
        except KubernetesError as error:
            if error.status != 404:
                raise
            client.request("POST", DEPLOYMENTS, deployment_of(name, number % 3))
            return f"{name} is created in {NAMESPACE}"
        if number % 5 == 4:
            client.request("DELETE", path)
            return f"{name} is deleted"
        found["spec"]["replicas"] = 1 + number % 3
        container = found["spec"]["template"]["spec"]["containers"][0]
        container["image"] = f"registry.example.org/demo:{number % 4}"
        client.request("PUT", path, found)
        return f"{name} gets image demo:{number % 4} and {1 + number % 3} replicas"


def _renew_node(client: Client) -> str:
    """Delete a node, or create it again."""
    name = "demo-node-3"
    try:
        client.request("DELETE", f"/api/v1/nodes/{name}")
    except KubernetesError as error:
        if error.status != 404:
            raise
        client.request("POST", "/api/v1/nodes", node_of(name))
        return f"{name} is back"
    return f"{name} disappears"
