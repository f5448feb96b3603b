"""
`python -m bench.gitops [OBJECTS]`: a commit into a real cluster, beside kubectl.

The same objects twice, in namespaces of their own: by ``kubectl apply --server-side``,
one process as a pipeline starts it, and from Git through kas and agentk.  Then agentk
is started again, and looks through all of them without a change.  Needs what `make
kube` builds.
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
from typing import Any

import yaml

from tests.integration import cluster, needs
from tests.integration.cluster import ControlPlane
from tests.integration.processes import eventually
from tests.integration.stack import Agentk, Kas
from tools.git_repository import GitRepository

#: Objects of the source, in namespaces of fifty.
OBJECTS, EACH = 1000, 50

_CONFIG = ".gitlab/agents/main/config.yaml"


def _objects(count: int, prefix: str) -> list[dict[str, Any]]:
    """Namespaces with ConfigMaps, Secrets and Deployments of no replicas."""
    found: list[dict[str, Any]] = []
    for number in range(count):
        space = f"{prefix}-{number // EACH:03}"
        if number % EACH == 0:
            found.append(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
            )
            continue
        metadata = {"name": f"one-{number}", "namespace": space}
        text = {f"key-{each}": f"value {each} of {number}" for each in range(10)}
        if number % 5 == 1:
            labels = {"app": metadata["name"]}
            container = {"name": "app", "image": "example.org/app:1"}
            template = {"metadata": {"labels": labels}}
            template["spec"] = {"containers": [container]}  # type: ignore[dict-item]
            spec = {"replicas": 0, "selector": {"matchLabels": labels}}
            spec["template"] = template
            kind: dict[str, Any] = {"apiVersion": "apps/v1", "kind": "Deployment"}
            found.append({**kind, "metadata": metadata, "spec": spec})
        elif number % 5 == 2:
            kind = {"apiVersion": "v1", "kind": "Secret", "stringData": text}
            found.append({**kind, "metadata": metadata})
        else:
            kind = {"apiVersion": "v1", "kind": "ConfigMap", "data": text}
            found.append({**kind, "metadata": metadata})
    return found


def _files(objects: list[dict[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for begin in range(0, len(objects), 20):
        part = objects[begin : begin + 20]
        found[f"apps/{begin:05}.yaml"] = yaml.safe_dump_all(part)
    return found


def _asked(plane: ControlPlane) -> dict[str, float]:
    """How many requests the API server has answered, by verb and kind."""
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
    """Seconds that a process has worked."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _seconds(run: Callable[[], object]) -> float:
    begun = time.monotonic()
    run()
    return time.monotonic() - begun


def main(count: int) -> None:
    """Print the figures, and put them into build/bench-gitops.json."""
    folder = Path(tempfile.mkdtemp(prefix="bench-gitops-"))
    figures: dict[str, float] = {"objects": count}
    with cluster.shared(needs.kubernetes(), folder / "control-plane") as plane:
        manifests = folder / "manifests"
        for path, text in _files(_objects(count, "kubectl")).items():
            (manifests / path).parent.mkdir(parents=True, exist_ok=True)
            (manifests / path).write_text(text)
        kubectl = ["kubectl", "--kubeconfig", str(plane.admin), "apply", "-R"]
        kubectl += ["--server-side", "-f", str(manifests)]
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
        {_CONFIG: yaml.safe_dump(section), **_files(_objects(count, "agentk"))}
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
        """Seconds until the commit is in the cluster, and of agentk's work for it."""
        process = agentk.start(
            *("--configuration-file", str(options), "--namespace", "default")
        )
        eventually(lambda: f"commit {commit} has come" in process.said(), 60, "files")
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
