"""What a test needs that may be missing on a machine, and how to get it."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

#: Everything that `tests/kube/build` makes; a folder with less was not finished.
KUBE_PROGRAMS = (
    *("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler"),
    *("hostnode", "kwok", "kubectl"),
)

_HELM_MODULES = Path(__file__).parents[1] / "kube" / "helm" / "go.mod"


def missing(what: str, command: str) -> NoReturn:
    """Skip the test; where everything has to be there, let it fail."""
    reason = f"needs {what}: {command}"
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def program(name: str, command: str) -> Path:
    """The program *name* from ``$PATH``; *command* would install it."""
    found = shutil.which(name)
    if found is None:
        missing(name, command)
    return Path(found)


def helm() -> Path:
    """The helm of `tests/kube/build-helm`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    version = re.search(r"helm\.sh/helm/v3 (v\S+)", _HELM_MODULES.read_text())
    assert version
    found = Path(base, "txkas-kube", f"helm-{version[1]}", "helm")
    if not os.access(found, os.X_OK):
        missing("helm", "make kube")
    return found


def kubernetes() -> Path:
    """The folder with the programs of a control plane."""
    if named := os.environ.get("KUBEBUILDER_ASSETS"):
        candidates = [Path(named)]
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        candidates = sorted(Path(base, "txkas-kube").glob("v*"), reverse=True)
    for folder in candidates:
        if all(os.access(folder / name, os.X_OK) for name in KUBE_PROGRAMS):
            return folder
    missing("Kubernetes' API server and kubelet", "make kube")
