"""Live data that changes while an agentk and a kas are killed: what pages see of it."""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from websockets.exceptions import WebSocketException

from tests.faults import clients
from tests.faults.record import Record
from tests.faults.stand import Fleet, FleetKas
from tests.integration.cable_client import CableSocket
from tests.integration.cluster import ControlPlane
from tests.integration.processes import eventually
from tests.integration.stack import Agentk
from tests.integration.test_gitops_drift import deployment
from tests.integration.test_live import SETTINGS
from tools.ports import free_port

NAME = "live data"

#: Number of pages at each kas, and of objects that change.
PAGES, OBJECTS = 4, 20

#: Seconds until another agentk leads and has read the cluster.
TAKES_OVER = 25

#: Seconds until the pages of a killed kas have all rows from another one.
RECONNECTS = 12


class Page(threading.Thread):
    """
    A page that shows the Deployments of a namespace, and connects again as pages do.

    :ivar rows: the label ``n`` of each row by its name.
    :ivar older: names of rows that became older.
    :ivar changed_at: when it last got a message.
    :ivar silent: the longest time between two messages, in seconds.
    """

    def __init__(self, ports: Sequence[int], authority: Path, token: str) -> None:
        super().__init__(daemon=True)
        self.ports = list(ports)
        self.rows: dict[str, int] = {}
        self.older: list[str] = []
        self.silent = 0.0
        self.changed_at = time.monotonic()
        self._authority = authority
        self._token = token
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.is_set():
            with suppress(OSError, WebSocketException, TimeoutError, AssertionError):
                self._show()
            self.ports.append(self.ports.pop(0))
            self._stopped.wait(0.5)

    def _show(self) -> None:
        socket = CableSocket(self.ports[0], self._authority, self._token)
        try:
            socket.subscribe("ClusterChannel", cluster="main", view="workloads")
            while not self._stopped.is_set():
                self._take(socket.rows(10))
        finally:
            socket.close()

    def _take(self, message: dict[str, Any]) -> None:
        now = time.monotonic()
        self.silent = max(self.silent, now - self.changed_at)
        self.changed_at = now
        snapshot = message.get("snapshot")
        found = message.get("put", {}) if snapshot is None else snapshot
        # Other keys have the states of clusters.
        found = {key: row for key, row in found.items() if "/Deployment/" in key}
        before = dict(self.rows)
        if snapshot is not None:
            self.rows.clear()
        for key in message.get("delete", ()):
            self.rows.pop(key.rpartition("/")[0].rpartition("/")[2], None)
        for key, row in found.items():
            name, number = key.split("/")[4], int(row.get("labels", {}).get("n", 0))
            if number < before.get(name, 0):
                self.older.append(name)
            self.rows[name] = number

    def stop(self) -> None:
        """End it."""
        self._stopped.set()


class Changes(threading.Thread):
    """Changes the label of one object after the other."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        super().__init__(daemon=True)
        self._plane = plane
        self._path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        self._stopped = threading.Event()
        self.count = 0
        for number in range(OBJECTS):
            found = deployment(namespace) | {
                "metadata": {"name": f"web-{number}", "labels": {"n": "0"}}
            }
            found["spec"]["replicas"] = 0
            plane.call("POST", self._path, found)

    def run(self) -> None:
        while not self._stopped.wait(0.005):
            self.count += 1
            path = f"{self._path}/web-{self.count % OBJECTS}"
            found = self._plane.call("GET", path)
            found["metadata"]["labels"]["n"] = str(self.count)
            # The controller may have changed it in the meantime.
            with suppress(OSError):
                self._plane.call("PUT", path, found)

    def stop(self) -> dict[str, int]:
        """End it, and return the labels in the cluster."""
        self._stopped.set()
        self.join(20)
        return {
            one["metadata"]["name"]: int(one["metadata"]["labels"]["n"])
            for one in self._plane.call("GET", self._path)["items"]
        }


@attrs.define(eq=False)
class LiveKas(FleetKas):
    """A kas with live data of its own, as on its own machine."""

    @property
    def state(self) -> Path:
        return self.folder / "state"


@attrs.frozen
class LiveFleet:
    """Three kas, whose pages have the ports *web*, and a reader's token."""

    fleet: Fleet
    web: Sequence[int]
    namespace: str
    token: str


@pytest.fixture
def live_fleet(tmp_path: Path, control_plane: ControlPlane) -> Iterator[LiveFleet]:
    fleet, web = Fleet(tmp_path, 3), [free_port() for _ in range(3)]
    fleet.kas = [
        LiveKas(
            one.folder,
            number=one.number,
            shared=one.shared,
            redis_address=one.redis_address,
            more=SETTINGS.format(port=port),
        )
        for one, port in zip(fleet.kas, web, strict=True)
    ]
    first, *others = fleet.kas
    try:
        first.start()
        namespace, name = f"live-{secrets.token_hex(4)}", f"r{secrets.token_hex(4)}"
        control_plane.add_namespace(namespace)
        rule = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]}
        control_plane.permit(name, namespace, rule)
        agent, file = first.add_agent("main"), tmp_path / "token"
        options = ("--agent", "main", "--as", name, "--token-file", file)
        first.ctl("user", "add", name, *options)
        for kas in others:
            # The same authority and identities; the lock and the sockets stay behind.
            kas.state.mkdir(parents=True, mode=0o700)
            for path in first.state.iterdir():
                if path.is_file() and path.suffix != ".lock":
                    shutil.copy2(path, kas.state)
            kas.start()
        fleet.know_each_other()
        for pod in ("one", "two"):
            agentk = Agentk(first, agent, control_plane.agent, pod)
            fleet.agentks.append(agentk)
        yield LiveFleet(fleet, web, namespace, file.read_text().strip())
        control_plane.remove_namespace(namespace)
    finally:
        fleet.stop()


def _start(fleet: Fleet, agentk: Agentk, namespace: str, folder: Path) -> None:
    options = folder / "agentk.yaml"
    options.write_text("modules:\n  cluster_data: {}\n")
    others = [f"tls://127.0.0.1:{kas.agents}" for kas in fleet.kas[1:]]
    agentk.start(
        *("--configuration-file", str(options)),
        *(word for one in others for word in ("--kas-address", one)),
        environment={"POD_NAME": agentk.name, "POD_NAMESPACE": namespace},
    )


def test_killed(
    live_fleet: LiveFleet, control_plane: ControlPlane, record: Record, tmp_path: Path
) -> None:
    """No row becomes older, and each page has all rows at the end."""
    fleet, namespace = live_fleet.fleet, live_fleet.namespace
    changes = Changes(control_plane, namespace)
    authority = fleet.kas[0].authority
    pages = [
        Page(
            [*live_fleet.web[number:], *live_fleet.web[:number]],
            authority,
            live_fleet.token,
        )
        for number in range(3)
        for _ in range(PAGES)
    ]
    leader, follower = fleet.agentks
    _start(fleet, leader, namespace, tmp_path)
    for page in pages:
        page.start()

    def have_all() -> bool:
        return all(len(page.rows) == OBJECTS for page in pages)

    eventually(have_all, 60, "all pages have the rows")
    _start(fleet, follower, namespace, tmp_path)
    changes.start()
    clients.seconds_until(lambda: changes.count >= 100, 60)
    for page in pages:
        page.silent, page.changed_at = 0.0, time.monotonic()

    assert leader.process is not None
    leader.process.kill()
    killed_at = time.monotonic()

    def see_changes() -> bool:
        return all(page.changed_at > killed_at + 3 for page in pages)

    clients.seconds_until(see_changes, 2 * TAKES_OVER)
    gap = max(page.silent for page in pages)
    with record.together():
        record.note(
            NAME,
            f"after SIGKILL of the leading agentk, pages see changes after {gap:.1f} s",
            f"<= {TAKES_OVER} s",
            see_changes(),
            in_time=gap <= TAKES_OVER,
        )
        holder = next(
            kas for kas in fleet.kas if kas.metric("kas_cluster_data_clusters") == 1
        )
        assert holder.process is not None
        killed_at = time.monotonic()
        holder.process.kill()
        took = clients.seconds_until(
            lambda: all(page.changed_at > killed_at + 1 for page in pages), 60
        )
        record.note(
            NAME,
            f"after SIGKILL of the kas with the agent, pages see changes after "
            f"{took:.1f} s",
            f"<= {RECONNECTS} s",
            all(page.changed_at > killed_at + 1 for page in pages),
            in_time=took <= RECONNECTS,
        )
        expected = changes.stop()
        same = clients.seconds_until(
            lambda: all(page.rows == expected for page in pages), 30
        )
        wrong = [page.rows for page in pages if page.rows != expected]
        older = [name for page in pages for name in page.older]
        record.note(
            NAME,
            f"{len(pages)} pages have the {len(expected)} rows of the cluster "
            f"{same:.1f} s after {changes.count} changes; {len(wrong)} differ, "
            f"{len(older)} rows became older",
            "none differs, none older",
            not wrong and not older,
        )
    for page in pages:
        page.stop()
