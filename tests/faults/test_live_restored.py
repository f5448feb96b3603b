"""An etcd that is restored from a backup: what live data show of the cluster then."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.faults.record import Record
from tests.faults.test_live_data import Page
from tests.integration import cluster, needs
from tests.integration.cluster import ControlPlane
from tests.integration.processes import eventually
from tests.integration.stack import Agentk, Kas
from tests.integration.test_gitops_drift import deployment
from tests.integration.test_live import SETTINGS
from tools.ports import free_port

NAME = "live data of a restored etcd"

#: Number of objects, and of changes after the backup.
OBJECTS, CHANGES = 20, 100

#: Seconds from the restored API server until live data have its objects.
CORRECT = 60


class BackedUpPlane:
    """A control plane of its own, whose etcd a test saves and restores."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.namespace = "backed-up"
        self._path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        plane.add_namespace(self.namespace)

    def _signal(self, number: signal.Signals) -> None:
        restarts = self.plane.folder / "restarts"
        before = restarts.read_text() if restarts.exists() else ""
        pid = json.loads((self.plane.folder / "ready.json").read_text())["pid"]
        os.kill(pid, number)
        eventually(
            lambda: restarts.exists() and restarts.read_text() != before, 120, "ready"
        )

    def save(self) -> None:
        """Back up etcd."""
        self._signal(signal.SIGUSR1)

    def restore(self) -> None:
        """Restore the backup."""
        self._signal(signal.SIGUSR2)

    def create(self, name: str) -> None:
        """Create a Deployment without pods."""
        found = deployment(self.namespace)
        found["metadata"] = {"name": name, "labels": {"n": "0"}}
        found["spec"]["replicas"] = 0
        self.plane.call("POST", self._path, found)

    def change(self, name: str, number: int) -> None:
        """Change the label of a Deployment."""
        path = f"{self._path}/{name}"
        found = self.plane.call("GET", path)
        found["metadata"]["labels"]["n"] = str(number)
        # The controller may change the status meanwhile.
        del found["metadata"]["resourceVersion"]
        self.plane.call("PUT", path, found)

    def delete(self, name: str) -> None:
        """Delete a Deployment."""
        self.plane.call("DELETE", f"{self._path}/{name}")

    def rows(self) -> dict[str, int]:
        """The labels in the cluster, by name."""
        return {
            one["metadata"]["name"]: int(one["metadata"]["labels"]["n"])
            for one in self.plane.call("GET", self._path)["items"]
        }


@pytest.fixture
def backed_up(tmp_path: Path) -> Iterator[BackedUpPlane]:
    with cluster.shared(needs.kubernetes(), tmp_path / "plane") as plane:
        yield BackedUpPlane(plane)


def test_restored(backed_up: BackedUpPlane, tmp_path: Path, record: Record) -> None:
    """Rows, pages and kasctl show the restored state, and then each change."""
    port = free_port()
    kas = Kas(tmp_path / "kas", settings=SETTINGS.format(port=port))
    kas.folder.mkdir()
    agentk = Agentk(kas, kas.add_agent("main"), backed_up.plane.agent)
    kas.start()
    options = tmp_path / "agentk.yaml"
    options.write_text("modules:\n  cluster_data: {}\n")
    agentk.start("--configuration-file", str(options))
    names = [f"web-{number}" for number in range(OBJECTS)]
    for name in names:
        backed_up.create(name)
    rule = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]}
    backed_up.plane.permit("reader", backed_up.namespace, rule)
    file = tmp_path / "token"
    kas.ctl(
        *("user", "add", "reader", "--agent", "main", "--as", "reader"),
        *("--token-file", file),
    )
    page = Page([port], kas.authority, file.read_text().strip())
    page.start()

    def shown() -> dict[str, int]:
        rows = kas.ctl_json("get", "deploy", "-n", backed_up.namespace)["rows"]
        return {one["name"]: int(one["columns"]["labels"]["n"]) for one in rows}

    def is_right(expected: dict[str, int]) -> bool:
        return page.rows == expected and shown() == expected

    try:
        eventually(partial(is_right, dict.fromkeys(names, 0)), 60, "the first rows")
        backed_up.save()
        before = backed_up.rows()
        for number in range(CHANGES):
            backed_up.change(names[number % 10], number + 1)
        for name in names[10:15]:
            backed_up.delete(name)
        for number in range(5):
            backed_up.create(f"new-{number}")
        after = backed_up.rows()
        assert after != before
        eventually(partial(is_right, after), 60, "the rows after the changes")
        backed_up.restore()
        began = time.monotonic()
        assert backed_up.rows() == before
        eventually(partial(is_right, before), 3 * CORRECT, "the restored rows")
        took = time.monotonic() - began
        # The next change has a version that an object had before, too.
        backed_up.change(names[0], 7)
        eventually(partial(is_right, {**before, names[0]: 7}), 60, "a later change")
        record.note(
            NAME,
            f"{CHANGES} changes, 5 deletes and 5 creates after the backup: a page and "
            f"kasctl show the restored {len(before)} objects after {took:.1f} s, and "
            "then each change",
            f"<= {CORRECT} s",
            in_time=took <= CORRECT,
        )
    finally:
        page.stop()
        for one in (agentk.process, kas.process):
            if one is not None:
                one.kill()
