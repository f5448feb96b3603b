"""Choice of the Kubernetes API that the agent serves."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs

from agentk.kubernetes.kubeconfig import find_target
from demo.processes import DemoError, Program
from tunnel.errors import ConfigurationError

__all__ = ["CHOICES", "Cluster", "choose", "kube_assets", "sandbox"]

ROOT = Path(__file__).resolve().parent.parent
CHOICES = ("kubeconfig", "kube", "sandbox")

#: Programs that `tests/kube/up` starts.
_PROGRAMS = (
    "etcd",
    "hostnode",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
)
#: Timeouts of the start, in seconds; the real API takes 4, and 8 on a busy machine.
_SANDBOX_TIMEOUT = 20.0
_KUBE_TIMEOUT = 90.0


@attrs.define(eq=False)
class Cluster:
    """A Kubernetes API that the demo started or found."""

    #: The choice, one of `CHOICES`.
    choice: str
    title: str
    #: The kubeconfig for agentk.
    kubeconfig: Path | None
    namespace: str
    program: Program | None = None
    #: Pods for the steps; empty if the steps have to find or create one.
    log_pod: str = ""
    exec_pod: str = ""
    _ready: Path | None = None
    _timeout: float = 0.0

    @property
    def is_yours(self) -> bool:
        """
        Whether the cluster is the user's, in which the demo should change as little as
        possible.
        """
        return self.choice == "kubeconfig"

    def wait(self) -> float:
        """
        Wait until the API responds; return the seconds since its start.

        :raises DemoError: if the API does not respond in time.
        """
        took = 0.0
        if self.program is not None and self._ready is not None:
            ready = self._ready
            try:
                self.program.wait_until(
                    lambda: _is_complete(ready), "the Kubernetes API", self._timeout
                )
            except DemoError as error:
                if self.choice == "sandbox":
                    raise
                hint = "KAS_DEMO_CLUSTER=sandbox does without it"
                raise DemoError(f"{error}; {hint}", error.log) from None
            took = ready.stat().st_mtime - self.program.began
        return max(0.0, took)


def _is_complete(file: Path) -> bool:
    """Tell whether a JSON file exists and is complete."""
    try:
        json.loads(file.read_bytes())
    except (OSError, ValueError):
        return False
    return True


def kube_assets(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of a Kubernetes that was built for the tests, if it exists."""
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/")) / ".cache"
    built = sorted((Path(cache) / "txkas-kube").glob("v*"), reverse=True)
    if given := environ.get("KUBEBUILDER_ASSETS"):
        built.insert(0, Path(given))
    for folder in built:
        if all((folder / name).exists() for name in _PROGRAMS):
            return folder
    return None


def choose(
    forced: str | None, environ: Mapping[str, str], state: Path, logs: Path
) -> Cluster:
    """
    Choose the best available cluster, and start it if necessary.

    :param forced: one of `CHOICES`, or None.
    :raises DemoError: the forced cluster is not available.
    """
    assets = kube_assets(environ)
    if forced is None:
        if environ.get("KUBECONFIG"):
            forced = "kubeconfig"
        else:
            forced = "sandbox" if assets is None else "kube"
    if forced == "kubeconfig":
        return _yours(environ)
    if forced == "sandbox":
        return sandbox(environ, state, logs)
    if assets is None:
        raise DemoError("there is no Kubernetes for tests; 'make kube' builds it")
    return _kube(environ, assets, state, logs)


def _yours(environ: Mapping[str, str]) -> Cluster:
    if not environ.get("KUBECONFIG"):
        raise DemoError("$KUBECONFIG is not set; it names the cluster to use")
    try:
        target = find_target(None, None, environ)
    except ConfigurationError as error:
        raise DemoError("\n".join(error.problems)) from None
    title = f"your own: {target.origin}, {target.authority}"
    return Cluster("kubeconfig", title, None, target.namespace or "default")


def sandbox(environ: Mapping[str, str], state: Path, logs: Path) -> Cluster:
    """Start the sandbox, and return it as a cluster."""
    folder = state / "sandbox"
    kubeconfig = folder / "kubeconfig"
    kubeconfig.unlink(missing_ok=True)
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "demo.sandbox",
        "--state-directory",
        folder,
    ]
    program = Program("the sandbox", command, logs / "sandbox.log", environ, ROOT)
    return Cluster(
        "sandbox",
        "the sandbox: a small stand-in for an API server, no Kubernetes",
        kubeconfig,
        "default",
        program,
        log_pod="ticker",
        exec_pod="shell",
        ready=kubeconfig,
        timeout=_SANDBOX_TIMEOUT,
    )


def _kube(environ: Mapping[str, str], assets: Path, state: Path, logs: Path) -> Cluster:
    out = state / "kube"
    ready = out / "ready.json"
    ready.unlink(missing_ok=True)
    up = ROOT / "tests" / "kube" / "up"
    command: list[str | Path] = [sys.executable, up, out, "--assets", assets]
    command += ["--fake-nodes", "0"]
    program = Program("tests/kube/up", command, logs / "kube.log", environ, ROOT)
    return Cluster(
        "kube",
        f"a real kube-apiserver, {assets.name}, on this machine",
        out / "agent.kubeconfig",
        "default",
        program,
        ready=ready,
        timeout=_KUBE_TIMEOUT,
    )
