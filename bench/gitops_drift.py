"""
`python -m bench.gitops_drift [OBJECTS]`: time until agentk reports and repairs drift.

Another client changes one field, a hundred times.  For each change, two times are
measured from the API server's response: until agentk reports the drift (in its metrics
for Prometheus), and until the field is restored.  The other objects do not change.  The
benchmark needs the binaries that `make kube` builds.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from tests.integration import cluster, needs
from tests.integration.cluster import ControlPlane
from tests.integration.processes import eventually
from tests.integration.stack import Agentk, Kas
from tools.git_repository import GitRepository

#: Number of objects of the source, and of changes.
OBJECTS, CHANGES = 1000, 100

_CONFIG = ".gitlab/agents/main/config.yaml"
_SPACE = "bench-drift"


def _objects(count: int) -> list[dict[str, Any]]:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    return [
        {
            **kind,
            "metadata": {"name": f"one-{number}", "namespace": _SPACE},
            "data": {"key": f"value {number}"},
        }
        for number in range(count)
    ]


def main(count: int) -> None:
    """Print the figures, and write them to build/bench-gitops-drift.json."""
    folder = Path(tempfile.mkdtemp(prefix="bench-gitops-drift-"))
    with cluster.shared(needs.kubernetes(), folder / "control-plane") as plane:
        plane.add_namespace(_SPACE)
        figures = {"objects": float(count), **_timed(plane, folder, count)}
    for name, value in figures.items():
        print(f"{name:30} {value:10.3f}")
    Path("build").mkdir(exist_ok=True)
    path = Path("build/bench-gitops-drift.json")
    path.write_text(json.dumps(figures, indent=1) + "\n")


def _timed(plane: ControlPlane, folder: Path, count: int) -> dict[str, float]:
    origin = GitRepository.make(folder / "apps.git")
    section = {"gitops": {"manifest_projects": [{"paths": [{"glob": "/apps/*.yaml"}]}]}}
    files = {"apps/all.yaml": yaml.safe_dump_all(_objects(count))}
    commit = origin.commit({_CONFIG: yaml.safe_dump(section), **files})
    (folder / "kas").mkdir()
    kas = Kas(folder / "kas")
    kas.agent_settings = tuple(
        f"{name}: {{poll_period: 1s, repositories: {{apps: {{path: {origin.path}}}}}}}"
        for name in ("configuration", "gitops")
    )
    agentk = Agentk(kas, kas.add_agent("main"), plane.agent)
    options = folder / "agentk.yaml"
    options.write_text("modules: {gitops: {}}\n")
    kas.start()
    process = agentk.start(
        *("--configuration-file", str(options), "--namespace", _SPACE)
    )
    done = f"commit {commit} is in the cluster"
    eventually(lambda: done in process.said(), 600, "applied")
    time.sleep(2)
    delays: list[float] = []
    repaired: list[float] = []
    for number in range(CHANGES):
        # The pause keeps the changes below the limit of a hundred a minute.
        time.sleep(0.3)
        path = f"/api/v1/namespaces/{_SPACE}/configmaps/one-{number * count // CHANGES}"
        live = plane.call("GET", path)
        before = live["data"]["key"]
        live["data"]["key"] = "other"
        plane.call("PUT", path, live)
        begun = time.monotonic()

        def counted(wanted: int = number + 1) -> bool:
            return agentk.metric("agentk_gitops_drifts_total") >= wanted

        eventually(counted, 60, "reported", pause=0.005)
        delays.append(time.monotonic() - begun)

        def as_before(path: str = path, before: str = before) -> bool:
            return bool(plane.call("GET", path)["data"]["key"] == before)

        eventually(as_before, 60, "repaired", pause=0.005)
        repaired.append(time.monotonic() - begun)
    agentk.stop()
    kas.stop()
    return {
        "reported p50": sorted(delays)[CHANGES // 2],
        "reported p95": sorted(delays)[CHANGES * 95 // 100],
        "reported max": max(delays),
        "repaired p50": sorted(repaired)[CHANGES // 2],
        "repaired p95": sorted(repaired)[CHANGES * 95 // 100],
    }


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else OBJECTS)
