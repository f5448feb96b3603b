"""What people run, from Git and by kubectl, each into a control plane of its own."""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration import cluster, needs
from tests.integration.bundles import BUNDLES, Bundle
from tests.integration.cluster import ControlPlane
from tests.integration.processes import clean_environment, eventually
from tests.integration.stack import Agentk, Kas
from tools.git_repository import GitRepository

_CONFIG = ".gitlab/agents/main/config.yaml"

#: Kind with its group, namespace and name.
_Key = tuple[str, str, str]

#: What an API server or a controller gives each object anew.
_OF_THE_CLUSTER = {
    "metadata": (
        *("creationTimestamp", "generation", "managedFields"),
        *("resourceVersion", "uid"),
    ),
    "spec": ("clusterIP", "clusterIPs", "healthCheckNodePort"),
}

#: Ours, and what a controller writes when it comes to it.
_ANNOTATIONS = {
    "config.k8s.io/owning-inventory",
    "deployment.kubernetes.io/revision",
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/storage-provisioner",
}

#: Volumes of pods are named by chance.
_BY_CHANCE = re.compile(r"kube-api-access-\w+")

#: Where kubectl has a kind first made known, and its objects after that.
_ATTEMPTS = 5


def _run(*command: str | Path, **more: Any) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, env=clean_environment(), **more
    )
    assert done.returncode == 0, (command, done.stderr[-2000:])
    return str(done.stdout)


def _rendered(bundle: Bundle, folder: Path) -> str:
    """As a person does it by hand."""
    for path, text in bundle.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    source = bundle.source
    if not source:
        return "\n---\n".join(bundle.files.values())
    if source["kind"] == "kustomize":
        return _run(needs.kustomize(), "build", folder / source["path"])
    values = [f"--values={folder / one}" for one in source.get("values_files", ())]
    if "values" in source:
        (folder / "more.yaml").write_text(source["values"])
        values.append(f"--values={folder / 'more.yaml'}")
    return _run(
        *(needs.helm(), "template", source["release_name"], folder / source["path"]),
        *(*values, "--namespace=default", "--include-crds", "--no-hooks"),
        *("--kube-version=1.36.3", "--api-versions=apps/v1/Deployment"),
    )


def _applied_by_kubectl(plane: ControlPlane, text: str) -> None:
    for attempt in range(_ATTEMPTS):
        done = subprocess.run(
            [
                *(plane.assets / "kubectl", "--kubeconfig", plane.admin, "apply"),
                *("--server-side", "-f", "-"),
            ],
            input=text,
            capture_output=True,
            text=True,
            env=clean_environment(),
        )
        if done.returncode == 0:
            return
        assert attempt < _ATTEMPTS - 1, done.stderr[-2000:]


def _live(plane: ControlPlane, keys: set[_Key]) -> dict[_Key, Any]:
    """Each object of *keys* as it is, without what is another one in each cluster."""
    kinds: dict[str, set[_Key]] = defaultdict(set)
    for key in keys:
        kinds[key[0]].add(key)
    found: dict[_Key, Any] = {}
    for kind, wanted in kinds.items():
        text = _run(
            *(plane.assets / "kubectl", "--kubeconfig", plane.admin, "get", kind),
            *("--all-namespaces", "--output=json"),
        )
        for one in json.loads(_BY_CHANCE.sub("TOKEN", text))["items"]:
            metadata = one["metadata"]
            key = (kind, metadata.get("namespace", ""), metadata["name"])
            if key in wanted:
                found[key] = _plain(one)
    return found


def _plain(one: dict[str, Any]) -> dict[str, Any]:
    one.pop("status", None)
    for place, names in _OF_THE_CLUSTER.items():
        for name in names:
            one.get(place, {}).pop(name, None)
    annotations = one["metadata"].get("annotations", {})
    for name in _ANNOTATIONS & annotations.keys():
        del annotations[name]
    if not annotations:
        one["metadata"].pop("annotations", None)
    spec = one.get("spec", {})
    if one["kind"] == "Service":
        for port in spec["ports"]:
            port.pop("nodePort", None)
    elif one["kind"] == "Job":
        # They have its uid.
        for place in (one["metadata"], spec["template"]["metadata"]):
            place.pop("labels", None)
        del spec["selector"]
    return one


def _keys(text: str) -> set[_Key]:
    keys: set[_Key] = set()
    for one in yaml.safe_load_all(text):
        if one is not None:
            group, _, version = one["apiVersion"].rpartition("/")
            kind = f"{one['kind']}.{version}.{group}"
            metadata = one["metadata"]
            keys.add((kind, metadata.get("namespace", ""), metadata["name"]))
    return keys


@pytest.fixture(scope="module")
def programs() -> dict[str, str]:
    """For agentk."""
    return {"kustomize": str(needs.kustomize()), "helm": str(needs.helm())}


def test_bundles(tmp_path: Path, programs: dict[str, str]) -> None:
    """Twelve bundles, applied at the same time: field by field what kubectl makes."""
    texts: dict[str, str] = {}
    for bundle in BUNDLES:
        texts[bundle.name] = _rendered(bundle, tmp_path / "by-hand" / bundle.name)
    keys = {name: _keys(text) for name, text in texts.items()}
    # Charts name no namespace.
    for name in "library", "subcharts":
        keys[name] = {
            (kind, space or ("" if "Definition" in kind else "default"), one)
            for kind, space, one in keys[name]
        }
    whole = set().union(*keys.values())
    with cluster.shared(needs.kubernetes(), tmp_path / "kubectl") as plane:
        for text in texts.values():
            _applied_by_kubectl(plane, text)
        wanted = _live(plane, whole)
    assert wanted.keys() == whole
    with cluster.shared(needs.kubernetes(), tmp_path / "agentk") as plane:
        _applied_by_agentk(plane, tmp_path, programs)
        found = _live(plane, whole)
    assert found.keys() == wanted.keys()
    differing = sorted(key for key in whole if found[key] != wanted[key])
    assert [(key, found[key], wanted[key]) for key in differing] == []


def _applied_by_agentk(
    plane: ControlPlane, folder: Path, programs: dict[str, str]
) -> None:
    config = GitRepository.make(folder / "config.git")
    repositories = {"config": config}
    commits: dict[str, str] = {}
    projects = []
    for bundle in BUNDLES:
        origin = GitRepository.make(folder / f"{bundle.name}.git")
        repositories[bundle.name] = origin
        commits[bundle.name] = origin.commit(bundle.files)
        source = {"source": bundle.source} if bundle.source else {}
        projects.append({"id": bundle.name, "reconcile_timeout": "90s", **source})
    section = {"gitops": {"manifest_projects": projects}}
    config.commit({_CONFIG: yaml.safe_dump(section)})
    (folder / "kas").mkdir()
    kas = Kas(folder / "kas")
    named = {name: {"path": str(one.path)} for name, one in repositories.items()}
    kas.agent_settings = (
        f"configuration: {json.dumps({'repositories': {'config': named['config']}})}",
        f"gitops: {json.dumps({'repositories': named})}",
    )
    agentk = Agentk(kas, kas.add_agent("main"), plane.agent)
    options = folder / "agentk.yaml"
    options.write_text(yaml.safe_dump({"modules": {"gitops": programs}}))
    kas.start()
    try:
        process = agentk.start(
            *("--configuration-file", str(options), "--namespace", "default")
        )
        for name, commit in commits.items():
            done = f"commit {commit} is in the cluster"
            eventually(lambda done=done: done in process.said(), 120, name)  # type: ignore[misc]
        said = process.said()
        assert "failed" not in said, said[-4000:]
    finally:
        agentk.stop()
        kas.stop()
