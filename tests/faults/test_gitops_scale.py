"""E40: many objects, behind a path of 100 ms that loses packets and breaks."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path as File

import yaml

from tests.faults.path import Path
from tests.faults.record import Record
from tests.integration import cluster, needs
from tests.integration.processes import Process, eventually
from tests.integration.stack import Agentk, Kas, fetch
from tools.git_repository import GitRepository
from tools.load.manifests import EACH, manifest_files, manifests

NAME = "E40, many objects behind a bad path"

#: Objects in CI, and where there is time.
OBJECTS, MANY = 1000, 5000

#: Seconds that a byte is late each way, and the part of packets that are lost.
DELAY, LOSS = 0.05, 0.01

CUTS = 5

#: Objects in a second, seconds of a look at all of them, MiB, and seconds for which
#: agentk does nothing else.
RATE, IDLE_PASS, MEMORY, STALL = 17, 30.0, 256, 0.1

_CONFIG = ".gitlab/agents/main/config.yaml"

_LABEL = "cli-utils.sigs.k8s.io%2Finventory-id"


class _Stalls(threading.Thread):
    """Asks agentk twenty times a second whether it lives, and how soon it says so."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.seconds: list[float] = []
        self._port = port
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(0.05):
            begun = time.monotonic()
            fetch(self._port, "/liveness")
            self.seconds.append(time.monotonic() - begun)

    def stop(self) -> float:
        """What 99 of 100 stay below."""
        self._stopped.set()
        self.join(20)
        return sorted(self.seconds)[int(len(self.seconds) * 0.99)]


def _memory(process: Process) -> float:
    """MiB at most."""
    status = File(f"/proc/{process.pid}/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak is not None
    return int(peak[1]) / 1024


@contextmanager
def _behind(path: Path) -> Iterator[Path]:
    path.delay, path.loss = DELAY, LOSS
    try:
        yield path
    finally:
        path.close()


def test_many(tmp_path: File, record: Record, long: bool) -> None:
    """They come in time, in little memory; what was read once is not read again."""
    count = MANY if long else OBJECTS
    # One of its own: what this leaves behind is no burden for other experiments.
    with cluster.shared(needs.kubernetes(), tmp_path / "control-plane") as plane:
        origin = GitRepository.make(tmp_path / "apps.git")
        project = {"paths": [{"glob": "/apps/*.yaml"}], "reconcile_timeout": "60s"}
        files = manifest_files(manifests(count, "many"))
        (tmp_path / "kas").mkdir()
        kas = Kas(tmp_path / "kas")
        kas.agent_settings = tuple(
            f"{name}: {{poll_period: 1s, "
            f"repositories: {{apps: {{path: {origin.path}}}}}}}"
            for name in ("configuration", "gitops")
        )
        token = kas.add_agent("main")
        kas.start()
        options = tmp_path / "agentk.yaml"
        options.write_text("modules: {gitops: {}}\n")
        arguments = ("--configuration-file", str(options), "--namespace", "default")
        with _behind(Path([kas.agents])) as path:
            address = f"tls://127.0.0.1:{path.port}"
            agentk = Agentk(kas, token, plane.agent, address=address)
            process = agentk.start(*arguments)
            stalls = _Stalls(agentk.observability)
            stalls.start()
            section = {"gitops": {"manifest_projects": [project]}}
            begun = time.monotonic()
            commit = origin.commit({_CONFIG: yaml.safe_dump(section), **files})
            come, done = f"received commit {commit}", f"commit {commit} is in the"
            # The first one breaks the files off.
            time.sleep(1)
            path.cut()
            eventually(lambda: come in process.said(), 120, "the files")
            passed = path.passed
            for _ in range(CUTS - 1):
                path.cut()
                agentk.wait_until_ready(60)
            eventually(lambda: done in process.said(), 600, "all is applied")
            took = time.monotonic() - begun
            again = path.passed - passed
            late, memory = stalls.stop(), _memory(process)
            agentk.stop()
            process = agentk.start(*arguments)
            begun = time.monotonic()
            eventually(lambda: done in process.said(), 600, "a look at all of it")
            looked = time.monotonic() - begun
            agentk.stop()
        kas.stop()
        found = plane.call("GET", "/api/v1/configmaps?labelSelector=" + _LABEL)
        parts = [one for one in found["items"] if one.get("data")]
    size = sum(map(len, files.values()))
    named = sum(len(one["data"]) for one in parts)
    with record.together():
        record.note(
            NAME,
            f"{count} objects in {count // EACH} Namespaces in {took:.1f} s, "
            f"{count / took:.0f} a second, with {CUTS} disconnects",
            f">= {RATE} a second; all of them in the inventory",
            named == count,
            in_time=count / took >= RATE,
        )
        record.note(
            NAME,
            f"a look at all of them by the next agentk: {looked:.1f} s",
            f"<= {IDLE_PASS:.0f} s",
            in_time=looked <= IDLE_PASS,
        )
        record.note(
            NAME,
            f"{memory:.0f} MiB at most; the files are not sent again: "
            f"{again / 1024:.0f} KiB pass after them, of {size / 1024:.0f}",
            f"<= {MEMORY} MiB, less than a quarter",
            memory <= MEMORY and again < size / 4,
        )
        record.note(
            NAME,
            f"agentk answers in {late * 1000:.0f} ms (p99) meanwhile",
            f"<= {STALL * 1000:.0f} ms",
            in_time=late <= STALL,
        )
