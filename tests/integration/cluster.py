"""The control plane of tests/kube, and its audit log."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import ssl
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.integration.processes import ROOT, Process, eventually
from tools.ports import free_port

_UP = ROOT / "tests" / "kube" / "up"


#: Seconds for a control plane to be ready, on a busy machine.
_START_SECONDS = 180


class ControlPlane:
    """
    etcd, API server, controllers and a kubelet that run, and their files in *folder*.

    :ivar agent: a kubeconfig with all rights, that of a service account.
    :ivar limited: one that may view ``default`` and impersonate.
    """

    def __init__(self, assets: Path, folder: Path) -> None:
        self.assets = assets
        self.folder = folder
        self.server: str = json.loads((folder / "ready.json").read_text())["server"]
        self.agent = folder / "agent.kubeconfig"
        self.limited = folder / "limited.kubeconfig"
        self.admin = folder / "admin.kubeconfig"

    @property
    def port(self) -> int:
        """Of the API server, on 127.0.0.1."""
        return int(self.server.rpartition(":")[2])

    @property
    def token(self) -> str:
        """That of `agent`."""
        return str(_user(self.agent)["token"])

    @property
    def authority(self) -> bytes:
        """The certificate that signed the API server's."""
        cluster = json.loads(self.agent.read_text())["clusters"][0]["cluster"]
        return base64.b64decode(cluster["certificate-authority-data"])

    def call(self, method: str, path: str, body: object = None) -> Any:
        """One request with all rights, for what a test needs beforehand."""
        context = ssl.create_default_context(cadata=self.authority.decode())
        request = urllib.request.Request(
            self.server + path,
            json.dumps(body).encode() if body is not None else None,
            {
                "Authorization": f"Bearer {self.token}",
                "Content-Type": "application/json",
            },
            method=method,
        )
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context),
            urllib.request.ProxyHandler({}),
        )
        with opener.open(request, timeout=60) as answer:
            return json.loads(answer.read())

    def add_namespace(self, name: str) -> None:
        """Make one in which pods can start."""
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
        eventually(lambda: self.call("GET", accounts)["items"], 60, "a service account")

    def remove_namespace(self, name: str) -> None:
        """Remove it and all that is in it, in its own time."""
        self.call("DELETE", f"/api/v1/namespaces/{name}")

    def audit(self) -> Audit:
        """What the API server notes from now on."""
        return Audit(self.folder / "audit.log")


@contextmanager
def shared(assets: Path, folder: Path) -> Iterator[ControlPlane]:
    """
    One control plane for all processes that ask for *folder* at the same time.

    Whoever is first starts it, and at its end waits for the others.
    """
    folder.mkdir(exist_ok=True)
    kube = folder / "kube"
    with ExitStack() as stack:
        starting = stack.enter_context((folder / "starting").open("w"))
        used = stack.enter_context((folder / "used").open("w"))
        fcntl.flock(starting, fcntl.LOCK_EX)
        fcntl.flock(used, fcntl.LOCK_SH)
        if not (kube / "ready.json").exists():
            process = _start(assets, kube)
            stack.callback(_stop, process)
            stack.callback(fcntl.flock, used, fcntl.LOCK_EX)
        fcntl.flock(starting, fcntl.LOCK_UN)
        yield ControlPlane(assets, kube)


def _start(assets: Path, folder: Path) -> Process:
    process = Process(
        "control plane",
        [
            *(sys.executable, _UP, folder, "--audit", "--fake-nodes", "0"),
            *("--ports", *(str(free_port()) for _ in range(3))),
        ],
        folder.parent / "up.log",
        environment={"KUBEBUILDER_ASSETS": str(assets)},
    )
    try:
        process.wait_for(r"ready: ", _START_SECONDS)
    except BaseException:
        process.kill()
        raise
    return process


def _stop(process: Process) -> None:
    try:
        process.stop()
    finally:
        process.kill()


class Audit:
    """The audit log from one moment on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin = os.path.getsize(path)

    def events(self) -> list[dict[str, Any]]:
        """Those since then."""
        with self._path.open("rb") as log:
            log.seek(self._begin)
            lines = log.read().split(b"\n")
        # The last is empty, or not yet written to its end.
        return [json.loads(line) for line in lines[:-1]]

    def about(self, mark: str) -> list[dict[str, Any]]:
        """Those whose URL has *mark* in it."""
        return [event for event in self.events() if mark in event["requestURI"]]

    def wait_for(self, mark: str, count: int = 1) -> list[dict[str, Any]]:
        """The same, once there are *count*: the log may come after the answer."""

        def look() -> list[dict[str, Any]] | None:
            found = self.about(mark)
            return found if len(found) >= count else None

        return eventually(look, 30, f"{count} audit events with {mark!r}")


def _user(kubeconfig: Path) -> dict[str, Any]:
    user: dict[str, Any] = json.loads(kubeconfig.read_text())["users"][0]["user"]
    return user
