"""
`python -m bench.gitops [OBJECTS]`: a commit into a real cluster, compared with kubectl.

The same objects are applied twice, in separate namespaces: by ``kubectl apply
--server-side``, one process as in a pipeline, and from Git through kas and agentk. Then
agentk is restarted, and checks all of the objects without a change.  The benchmark
needs the binaries that `make kube` builds.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from tests.integration import cluster, needs
from tests.integration.cluster import ControlPlane
from tests.integration.processes import eventually
from tests.integration.stack import Agentk, Kas
from tools.git_repository import GitRepository
from tools.load.manifests import manifest_files, manifests

#: Number of objects of the source.
OBJECTS = 1000

_CONFIG = ".gitlab/agents/main/config.yaml"


def _asked(plane: ControlPlane) -> dict[str, float]:
    """
    Return the number of requests that the API server has handled, by verb and kind.
    """
    text = subprocess.run(
        ["kubectl", "--kubeconfig", plane.admin, "get", "--raw", "/metrics"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": f"{plane.assets}:/usr/bin:/bin"},
    ).stdout
    counts: dict[str, float] = {}
    pattern = r"^apiserver_request_total\{(.*)\} (\S+)$"
    for labels, value in re.findall(pattern, text, re.M):
        said = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if said.get("resource") in ("configmaps", "secrets", "deployments"):
            verb = f"{said.get('verb')} {said['resource']}/{said.get('subresource')}"
            counts[verb] = counts.get(verb, 0.0) + float(value)
    return counts


def _cpu(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _seconds(run: Callable[[], object]) -> float:
    begun = time.monotonic()
    run()
    return time.monotonic() - begun


def main(count: int) -> None:
    """Print the figures, and write them to build/bench-gitops.json."""
    folder = Path(tempfile.mkdtemp(prefix="bench-gitops-"))
    figures: dict[str, float] = {"objects": count}
    with cluster.shared(needs.kubernetes(), folder / "control-plane") as plane:
        place = folder / "manifests"
        for path, text in manifest_files(manifests(count, "kubectl")).items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(text)
        kubectl = ["kubectl", "--kubeconfig", str(plane.admin), "apply", "-R"]
        kubectl += ["--server-side", "-f", str(place)]
        environment = {"PATH": f"{plane.assets}:/usr/bin:/bin", "HOME": str(folder)}

        def applied() -> None:
            subprocess.run(kubectl, check=True, capture_output=True, env=environment)

        figures["kubectl first"] = _seconds(applied)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        figures["kubectl cpu"] = children.ru_utime + children.ru_stime
        figures["kubectl again"] = _seconds(applied)
        _through_agentk(plane, folder, count, figures)
    for name, value in figures.items():
        print(f"{name:40} {value:10.2f}")
    ratio = figures["agentk first"] / figures["kubectl first"]
    print(f"{'agentk first / kubectl first':40} {ratio:10.2f}")
    Path("build").mkdir(exist_ok=True)
    Path("build/bench-gitops.json").write_text(json.dumps(figures, indent=1) + "\n")


def _through_agentk(
    plane: ControlPlane, folder: Path, count: int, figures: dict[str, float]
) -> None:
    origin = GitRepository.make(folder / "apps.git")
    project = {
        "paths": [{"glob": "/apps/*.yaml"}],
        "reconcile_timeout": "60s",
        "drift": {"mode": "off"},
    }
    section = {"gitops": {"manifest_projects": [project]}}
    commit = origin.commit(
        {_CONFIG: yaml.safe_dump(section), **manifest_files(manifests(count, "agentk"))}
    )
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

    def run() -> tuple[float, float]:
        """
        Return the seconds until the commit is in the cluster, and the CPU seconds of
        agentk.
        """
        process = agentk.start(
            *("--configuration-file", str(options), "--namespace", "default")
        )
        eventually(lambda: f"received commit {commit}" in process.said(), 60, "files")
        begun, cpu = time.monotonic(), _cpu(process.pid)
        done = f"commit {commit} is in the cluster"
        eventually(lambda: done in process.said(), 600, "applied")
        return time.monotonic() - begun, _cpu(process.pid) - cpu

    figures["agentk first"], figures["agentk cpu"] = run()
    process = agentk.process
    assert process is not None
    status = Path(f"/proc/{process.pid}/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    figures["agentk MiB at most"] = int(peak[1]) / 1024 if peak else 0.0
    agentk.stop()
    before = _asked(plane)
    figures["agentk again"], figures["agentk cpu again"] = run()
    for verb, number in _asked(plane).items():
        if more := number - before.get(verb, 0.0):
            figures[f"requests again: {verb}"] = more
    agentk.stop()
    kas.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else OBJECTS)
