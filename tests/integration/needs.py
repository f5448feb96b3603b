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

_MODULES = Path(__file__).parents[1] / "kube"


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


def faketime() -> Path:
    """The library that gives a program another time of day."""
    for folder in sorted(Path("/usr/lib").glob("*/faketime")):
        library = folder / "libfaketime.so.1"
        if library.exists():
            return library
    missing("faketime", "apt-get install faketime")


def helm() -> Path:
    """The helm of `tests/kube/build-go-tool`."""
    return _go_tool("helm", r"helm\.sh/helm/v3 (v\S+)")


def kustomize() -> Path:
    """The kustomize of `tests/kube/build-go-tool`."""
    return _go_tool("kustomize", r"sigs\.k8s\.io/kustomize/kustomize/v5 (v\S+)")


def sops() -> Path:
    """The sops of `tests/kube/build-go-tool`."""
    return _go_tool("sops", r"github\.com/getsops/sops/v3 (v\S+)")


def _go_tool(name: str, module: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    version = re.search(module, (_MODULES / name / "go.mod").read_text())
    assert version is not None
    found = Path(base, "txkas-kube", f"{name}-{version[1]}", name)
    if not os.access(found, os.X_OK):
        missing(name, "make kube")
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
