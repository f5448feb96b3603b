"""Live data of a real cluster, from its objects to ``kasctl``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import ControlPlane
from tests.integration.processes import eventually, kasctl
from tests.integration.stack import Agentk, Kas
from tests.integration.test_gitops_drift import deployment


class Live:
    """A kas and an agentk with ``cluster_data``."""

    def __init__(self, kas: Kas, agentk: Agentk, cluster: ControlPlane) -> None:
        self.kas = kas
        self.agentk = agentk
        self.cluster = cluster
        self.namespace = f"live-{os.getpid()}"

    def get(self, *arguments: str) -> dict[str, Any]:
        """Return the rows by name of their object."""
        rows = self.kas.ctl_json(*arguments)["rows"]
        return {one["name"]: one["columns"] for one in rows}


@pytest.fixture
def live(tmp_path: Path, lone_kas: Kas, control_plane: ControlPlane) -> Iterator[Live]:
    """Both programs, started."""
    lone_kas.settings = "modules:\n  cluster_data: {}\n"
    agentk = Agentk(lone_kas, lone_kas.add_agent("main"), control_plane.agent)
    lone_kas.start()
    options = tmp_path / "agentk.yaml"
    options.write_text("modules:\n  cluster_data: {}\n")
    agentk.start("--configuration-file", str(options))
    live = Live(lone_kas, agentk, control_plane)
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
