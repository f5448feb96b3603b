"""Two agentk of one agent, of which one leads, whatever happens to it."""

from __future__ import annotations

import signal
import threading
import time
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.faults import clients
from tests.faults.leading_module import DROPIN
from tests.faults.record import Record
from tests.faults.stage import Stage
from tests.integration.cluster import ControlPlane
from tests.integration.module_kas import python_path
from tests.integration.processes import eventually
from tests.integration.stack import Agentk

KAS = 1

#: Seconds until another one leads.
TAKES_OVER = 20

NAME = "leader"


class Leases(threading.Thread):
    """
    Reads the Lease again and again.

    :ivar seen: time of renewal and holder, each once.
    """

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[float, str]] = []
        self.name = ""
        self._plane = plane
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(0.1):
            for lease in self._plane.call("GET", self._path)["items"]:
                spec: Any = lease["spec"]
                when = datetime.fromisoformat(spec["renewTime"]).timestamp()
                found = (when, spec["holderIdentity"])
                self.name = lease["metadata"]["name"]
                if found not in self.seen:
                    self.seen.append(found)

    def stop(self) -> None:
        self._stopped.set()
        self.join(20)

    def holder(self, when: float) -> str:
        """Who held it then, by its own record."""
        return max((one for one in self.seen if one[0] <= when), default=(0, ""))[1]


def _lines(file: Path) -> list[tuple[str, float]]:
    if not file.exists():
        return []
    # The last one may be half written.
    words = [line.split() for line in file.read_text().split("\n")[:-1]]
    return [(pod, float(when)) for pod, when in words]


def test_leader(
    stage: Stage,
    control_plane: ControlPlane,
    namespace: str,
    record: Record,
    tmp_path: Path,
) -> None:
    """It is killed, frozen and stopped; never do two lead."""
    plugins = tmp_path / "twisted" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "tests_leading_module.py").write_text(DROPIN)
    file = tmp_path / "lines"
    agentks: dict[str, Agentk] = {}

    def start(pod: str) -> None:
        agentks[pod].start(
            environment={
                **python_path(tmp_path),
                "POD_NAME": pod,
                "POD_NAMESPACE": namespace,
                "LEADING_FILE": str(file),
            }
        )

    def last() -> tuple[str, float]:
        return _lines(file)[-1]

    def another(than: str) -> float:
        def leads() -> bool:
            return last()[0] != than

        return clients.seconds_until(leads, 2 * TAKES_OVER)

    leases = Leases(control_plane, namespace)
    leases.start()
    for pod in ("one", "two"):
        agentks[pod] = Agentk(stage.kas[0], stage.token, control_plane.agent, name=pod)
        stage.fleet.agentks.append(agentks[pod])
        start(pod)
    try:
        eventually(lambda: _lines(file), what="one of them leads")
        first = last()[0]
        process = agentks[first].process
        assert process is not None
        process.kill()
        took = another(first)
        record.note(
            NAME,
            f"after SIGKILL the other leads within {took:.1f} s",
            f"<= {TAKES_OVER} s",
            last()[0] != first,
            in_time=took <= TAKES_OVER,
        )
        start(first)
        second = last()[0]
        process = agentks[second].process
        assert process is not None
        process.child.send_signal(signal.SIGSTOP)
        took = another(second)
        process.child.send_signal(signal.SIGCONT)
        record.note(
            NAME,
            f"after SIGSTOP the other leads within {took:.1f} s",
            f"<= {TAKES_OVER} s",
            last()[0] != second,
            in_time=took <= TAKES_OVER,
        )
        # What the thawed one does, which thought that it leads.
        time.sleep(5)
        agentks[first].stop()
        took = another(first)
        record.note(
            NAME,
            f"after SIGTERM the other leads within {took:.1f} s",
            "<= 5 s: the Lease is released",
            last()[0] != first,
            in_time=took <= 5,
        )
        time.sleep(1)
    finally:
        leases.stop()
    lines = _lines(file)
    led = [pod for pod, _ in groupby(pod for pod, _ in lines)]
    record.note(
        NAME,
        f"{leases.name}: led by {led}, in this order",
        "each once",
        led == [first, second, first, second],
    )
    wrong = [
        (pod, datetime.fromtimestamp(when, UTC).isoformat())
        for pod, when in lines
        if leases.holder(when) != pod
    ]
    record.note(
        NAME,
        f"{len(lines)} times one led; without being the Lease's holder: {wrong[:3]}",
        "never",
        not wrong,
    )
