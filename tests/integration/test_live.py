"""Live data of a real cluster, from its objects to ``kasctl``."""

from __future__ import annotations

import json
import secrets
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from modules.action_cable.hub import COMMANDS_AT_ONCE, COMMANDS_PER_SECOND
from tests.faults.stand import Fleet, FleetKas
from tests.integration.cable_client import CableSocket
from tests.integration.cluster import ControlPlane
from tests.integration.processes import PATIENCE, eventually, kasctl
from tests.integration.stack import Agentk, Kas
from tests.integration.test_gitops_drift import deployment
from tools.ports import free_port

SETTINGS = """\
modules:
  action_cable: {{}}
  cluster_data: {{}}
web:
  listen:
    address: "127.0.0.1:{port}"
    development_certificate: true
"""


class Live:
    """A kas and an agentk with ``cluster_data``."""

    def __init__(self, kas: Kas, agentk: Agentk, cluster: ControlPlane) -> None:
        self.kas = kas
        self.agentk = agentk
        self.cluster = cluster
        self.namespace = f"live-{secrets.token_hex(4)}"
        #: The port for pages and WebSockets.
        self.port = 0

    def get(self, *arguments: str) -> dict[str, Any]:
        """Return the rows by name of their object."""
        rows = self.kas.ctl_json(*arguments)["rows"]
        return {one["name"]: one["columns"] for one in rows}


@pytest.fixture
def live(tmp_path: Path, lone_kas: Kas, control_plane: ControlPlane) -> Iterator[Live]:
    """Both programs, started."""
    port = free_port()
    lone_kas.settings = SETTINGS.format(port=port)
    agentk = Agentk(lone_kas, lone_kas.add_agent("main"), control_plane.agent)
    lone_kas.start()
    options = tmp_path / "agentk.yaml"
    options.write_text("modules:\n  cluster_data: {}\n")
    agentk.start("--configuration-file", str(options))
    live = Live(lone_kas, agentk, control_plane)
    live.port = port
    control_plane.add_namespace(live.namespace)
    yield live
    control_plane.remove_namespace(live.namespace)
    if agentk.process is not None:
        agentk.process.kill()


def test_a_cluster_and_its_last_state(live: Live) -> None:
    """What exists, what changes, what is broken, and all of it while agentk is off."""
    space = live.namespace
    path = f"/apis/apps/v1/namespaces/{space}/deployments"
    live.cluster.call("POST", path, deployment(space))
    scope = ("-n", space)
    row = eventually(lambda: live.get("get", "deploy", *scope).get("web"))
    assert row["images"] == ["example.org/web:1"]
    # Its pods find no node.
    problems = eventually(
        lambda: {
            name: one
            for name, one in live.get("problems", *scope).items()
            if name.startswith("web-") and one["state"] == "Pending"
        }
    )
    assert "web" in live.get("problems", *scope), problems
    shown = live.kas.ctl("problems", *scope)
    assert "CLUSTER" in shown and "Deployment" in shown
    # The label app names the application of a Deployment.
    assert live.kas.ctl("applications", *scope).count("main") == 1
    assert live.kas.ctl("components", *scope).strip() == "none"

    changed = live.cluster.call("GET", f"{path}/web")
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "example.org/web:2"
    changed["metadata"].pop("resourceVersion")
    live.cluster.call("PUT", f"{path}/web", changed)
    eventually(
        lambda: "web" in live.get("get", "deployments.apps", *scope, "--image", "web:2")
    )
    assert not live.get("get", "deployments", *scope, "--image", "web:1")

    assert live.agentk.stop()
    seen = json.loads(
        kasctl("clusters", "--output", "json", state=live.kas.state).stdout
    )
    (cluster,) = seen["clusters"]
    assert (cluster["agentName"], cluster["state"]) == ("main", "offline")
    assert cluster["summary"]["deployments"]["total"] >= 1
    done = kasctl("get", "deployments", *scope, state=live.kas.state)
    assert "example.org" not in done.stderr
    assert "cluster main: offline: its rows are" in done.stderr
    assert "web" in done.stdout

    # kas is restarted, and still has them.
    assert live.kas.stop()
    live.kas.start()
    assert "web" in live.get("get", "deployments", *scope)


def test_rows_of_another_kas(tmp_path: Path, control_plane: ControlPlane) -> None:
    """Any kas answers for the agents of all kas, and names a kas that is absent."""
    fleet = Fleet(tmp_path, 2, "modules:\n  cluster_data: {}\n")
    # The certificates and identities are the same, the live data is not.
    modules = [kas.folder / "modules" for kas in fleet.kas]
    try:
        for kas, folder in zip(fleet.kas, modules, strict=True):
            folder.mkdir(parents=True)
            link = kas.state / "modules"
            link.parent.mkdir(exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(folder)
            kas.start()
        fleet.know_each_other()
        near, far = fleet.kas
        assert near.process is not None and far.process is not None
        agentk = Agentk(far, near.add_agent("main"), control_plane.agent)
        options = tmp_path / "agentk.yaml"
        options.write_text("modules:\n  cluster_data: {}\n")
        fleet.agentks.append(agentk)
        agentk.start("--configuration-file", str(options))

        def clusters(kas: FleetKas) -> Any:
            assert kas.process is not None
            return kas.ctl_json("clusters", "--pid", str(kas.process.pid))

        def state(kas: FleetKas) -> list[str]:
            return [one["state"] for one in clusters(kas).get("clusters", [])]

        for kas in fleet.kas:
            eventually(lambda kas=kas: state(kas) == ["live"])  # type: ignore[misc]
        assert far.metric("kas_cluster_data_clusters") == 1
        assert near.metric("kas_cluster_data_clusters") == 0
        far.process.kill()
        missing = eventually(lambda: clusters(near).get("missingKas"))
        assert len(missing) == 1
    finally:
        fleet.stop()


def config_reader(live: Live, name: str, *namespaces: str) -> str:
    """Return the token of a user who may list Deployments in some namespaces."""
    rule = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]}
    for namespace in namespaces:
        live.cluster.permit(name, namespace, rule)
    file = live.kas.folder / f"{name}.token"
    live.kas.ctl(
        *("user", "add", name, "--agent", "main", "--as", name),
        *("--token-file", file),
    )
    return file.read_text().strip()


def ask(live: Live, path: str, token: str) -> Any:
    """Return the answer of the query API."""
    return json.loads(fetched(live, path, token))


def opener(kas: Kas) -> urllib.request.OpenerDirector:
    """Return a client that trusts the authority of kas."""
    context = ssl.create_default_context(cafile=kas.authority)
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )


def fetched(live: Live, path: str, token: str) -> bytes:
    """Return the body of the answer of the query API."""
    request = urllib.request.Request(
        f"https://localhost:{live.port}/api/v1/{path}",
        headers={"Authorization": f"Bearer {token}"},
    )
    with opener(live.kas).open(request, timeout=30) as answer:
        body: bytes = answer.read()
        return body


def test_rows_of_a_user(live: Live) -> None:
    """What the cluster lets a user list, by the query API and by ActionCable."""
    space = live.namespace
    path = f"/apis/apps/v1/namespaces/{space}/deployments"
    live.cluster.call("POST", path, deployment(space))
    eventually(lambda: live.get("get", "deploy", "-n", space).get("web"))
    reader = config_reader(live, "reader", space)
    nobody = config_reader(live, "nobody")
    query = f"objects?kind=deploy&clusters=main&namespace={space}"
    found = eventually(lambda: ask(live, query, reader)["items"])
    assert [one["name"] for one in found] == ["web"]
    # The right is for one namespace, and for one kind.
    everywhere = ask(live, "objects?kind=deploy&clusters=main", reader)["items"]
    assert {one["namespace"] for one in everywhere} == {space}
    assert ask(live, "objects?kind=nodes&clusters=main", reader)["items"] == []
    assert ask(live, "problems?clusters=main", nobody)["items"] == []
    (cluster,) = ask(live, "clusters?clusters=main", reader)["clusters"]
    assert "summary" not in cluster

    socket = CableSocket(live.port, live.kas.authority, reader)
    other = CableSocket(live.port, live.kas.authority, nobody)
    for one in (socket, other):
        one.subscribe("ClusterChannel", cluster="main", view="workloads")
    key = f"1/apps/Deployment/{space}/web/"
    assert set(socket.rows()["snapshot"]) == {key}
    assert other.rows()["snapshot"] == {}
    changed = live.cluster.call("GET", f"{path}/web")
    changed["metadata"]["labels"] = {"release": "two"}
    began = time.monotonic()
    live.cluster.call("PUT", f"{path}/web", changed)
    while socket.rows().get("put", {}).get(key, {}).get("labels") is None:
        pass
    # Without the pauses of a busy machine it takes a tenth of that.
    assert time.monotonic() - began < 10
    with pytest.raises(TimeoutError):
        other.rows(0.5)
    live.cluster.call("DELETE", f"{path}/web")
    while key not in socket.rows().get("delete", []):
        pass
    for one in (socket, other):
        one.close()


class Flood(threading.Thread):
    """
    A user who subscribes to rows and unsubscribes a hundred times a second.

    :ivar sent: number of commands.
    """

    def __init__(self, live: Live, token: str) -> None:
        super().__init__(daemon=True)
        # A client that blocks while it sends would not read either.
        self._socket = CableSocket(live.port, live.kas.authority, token)
        self._reading = threading.Thread(target=self._socket.skip, daemon=True)
        self.sent = 0

    def run(self) -> None:
        self._reading.start()
        with suppress(ConnectionClosed):
            while True:
                name = self._socket.subscribe("ClusterChannel", cluster="main")
                self._socket.command("unsubscribe", name)
                self.sent += 2
                time.sleep(0.01)

    def stop(self) -> None:
        """End the connection, and with it the threads."""
        self._socket.abort()
        for one in (self, self._reading):
            one.join(PATIENCE)


def test_a_user_who_floods(live: Live) -> None:
    """kas reads a flood of subscriptions slowly, and serves others meanwhile."""
    space = live.namespace
    path = f"/apis/apps/v1/namespaces/{space}/deployments"
    for number in range(100):
        one = deployment(space)
        one["metadata"]["name"] = f"web-{number}"
        live.cluster.call("POST", path, one)
    eventually(lambda: len(live.get("get", "deploy", "-n", space)) == 100)
    mallory = config_reader(live, "mallory", space)
    reader = config_reader(live, "reader", space)
    flood, flooded = Flood(live, mallory), time.monotonic()
    flood.start()
    # The burst ends.
    commands = partial(live.kas.metric, "kas_action_cable_commands_total")
    eventually(lambda: commands() >= COMMANDS_AT_ONCE)
    began, worked = time.monotonic(), live.kas.metric("process_cpu_seconds_total")
    socket = CableSocket(live.port, live.kas.authority, reader)
    socket.subscribe("ClusterChannel", cluster="main", view="workloads")
    assert len(socket.rows()["snapshot"]) >= 100
    socket.close()
    for _ in range(10):
        query = f"objects?kind=deploy&clusters=main&namespace={space}"
        assert len(ask(live, query, reader)["items"]) == 100
        time.sleep(0.5)
    handled, now = commands(), time.monotonic()
    # The reader has sent one.
    assert handled <= COMMANDS_AT_ONCE + COMMANDS_PER_SECOND * (now - flooded) + 2
    assert flood.is_alive() and flood.sent > 1.5 * handled
    worked = live.kas.metric("process_cpu_seconds_total") - worked
    # Without a limit, it is at least half of the time.
    assert worked < 0.25 * (now - began)
    flood.stop()


def _metrics_crd() -> dict[str, Any]:
    """Return a kind with the name of the metrics API's, as metrics-server has it."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    # Groups of Kubernetes need this annotation.
    approval = {"api-approved.kubernetes.io": "unapproved, for a test"}
    return {
        "metadata": {"name": "nodes.metrics.k8s.io", "annotations": approval},
        "spec": {
            "group": "metrics.k8s.io",
            "names": {"plural": "nodes", "kind": "NodeMetrics"},
            "scope": "Cluster",
            "versions": [version],
        },
    }


def test_top(live: Live) -> None:
    """The metrics API of a cluster, or the name of the cluster without one."""

    def no_rows() -> Any:
        done = kasctl("top", "nodes", state=live.kas.state)
        # kas may not know the cluster yet.
        return done.stderr if done.stdout == "no rows\n" else None

    assert "cluster main: the cluster has no metrics API" in eventually(no_rows)
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    live.cluster.call("POST", definitions, _metrics_crd())
    metrics = "/apis/metrics.k8s.io/v1beta1/nodes"
    try:
        for name, cpu in (("a", "1250m"), ("b", "2")):
            usage = {"cpu": cpu, "memory": "512Mi"}
            found = {
                "apiVersion": "metrics.k8s.io/v1beta1",
                "kind": "NodeMetrics",
                "metadata": {"name": name},
                "usage": usage,
            }
            eventually(partial(_is_created, live, metrics, found), 30)
        lines = live.kas.ctl("top", "nodes").splitlines()
        assert [line.split() for line in lines] == [
            ["CLUSTER", "NAME", "CPU", "MEMORY"],
            ["main", "b", "2000m", "512Mi"],
            ["main", "a", "1250m", "512Mi"],
        ]
        rows = live.kas.ctl("top", "nodes", "-o", "csv").splitlines()
        assert rows[0] == "cluster,name,millicores,memory"
        assert rows[1] == "main,b,2000,536870912"
        shown = live.kas.ctl_json("top", "nodes", "--clusters", "main", "--limit", "1")
        assert len(shown["rows"]) == 1 and shown["cut"]
    finally:
        live.cluster.call("DELETE", f"{definitions}/nodes.metrics.k8s.io")


def _is_created(live: Live, path: str, found: Any) -> bool:
    """Create an object once the API server serves its kind."""
    try:
        live.cluster.call("POST", path, found)
    except urllib.error.HTTPError as error:
        return error.code == 409
    return True
