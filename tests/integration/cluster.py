"""The control plane of tests/kube, and its audit log."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

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
        return json.loads(self._answer(method, path, body))

    def refusal(
        self, method: str, path: str, fields: dict[str, str], body: object
    ) -> str:
        """
        Send a request with further header fields, such as those of impersonation.

        :returns: the message of the API server; empty if the request succeeded.
        """
        try:
            self._answer(method, path, body, fields)
        except urllib.error.HTTPError as error:
            return str(json.loads(error.read())["message"])
        return ""

    def events(self, path: str, version: str) -> list[Any]:
        """What a watch tells of the objects at *path* since *version*."""
        query = f"watch=true&resourceVersion={version}&timeoutSeconds=2"
        lines = self._answer("GET", f"{path}?{query}").splitlines()
        return [json.loads(line) for line in lines]

    def _answer(
        self,
        method: str,
        path: str,
        body: object = None,
        fields: dict[str, str] | None = None,
    ) -> bytes:
        context = ssl.create_default_context(cadata=self.authority.decode())
        request = urllib.request.Request(
            self.server + path,
            json.dumps(body).encode() if body is not None else None,
            {
                "Authorization": f"Bearer {self.token}",
                "Content-Type": "application/json",
                **(fields or {}),
            },
            method=method,
        )
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context),
            urllib.request.ProxyHandler({}),
        )
        with opener.open(request, timeout=60) as answer:
            found: bytes = answer.read()
            return found

    def add_namespace(self, name: str) -> None:
        """Make one in which pods can start."""
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
        eventually(lambda: self.call("GET", accounts)["items"], 60, "a service account")

    def add_account(self, namespace: str, name: str, file: Path) -> str:
        """
        Make a service account with all rights, to tell its requests apart.

        :param file: where its kubeconfig is written.
        :return: the name of its user.
        """
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.call("POST", accounts, {"metadata": {"name": name}})
        rbac = "rbac.authorization.k8s.io"
        binding = {
            "metadata": {"name": f"{namespace}-{name}"},
            "roleRef": {
                "apiGroup": rbac,
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [
                {"kind": "ServiceAccount", "name": name, "namespace": namespace}
            ],
        }
        self.call("POST", f"/apis/{rbac}/v1/clusterrolebindings", binding)
        token = self.call("POST", f"{accounts}/{name}/token", {"spec": {}})
        config = yaml.safe_load(self.agent.read_text())
        config["users"][0]["user"] = {"token": token["status"]["token"]}
        file.write_text(yaml.safe_dump(config))
        return f"system:serviceaccount:{namespace}:{name}"

    def permit(self, user: str, namespace: str, rule: dict[str, Any]) -> None:
        """Give a user a right in one namespace, by a Role with the name of the user."""
        api = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        metadata = {"name": user}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user}
        binding = {
            "metadata": metadata,
            "roleRef": role,
            "subjects": [{"kind": "User", "name": user}],
        }
        self.call("POST", f"{api}/roles", {"metadata": metadata, "rules": [rule]})
        self.call("POST", f"{api}/rolebindings", binding)

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

    The first of them starts it; it goes on as long as any of them uses it.
    """
    folder.mkdir(exist_ok=True)
    with (
        (folder / "starting").open("w") as starting,
        (folder / "used").open("w") as used,
    ):
        fcntl.flock(starting, fcntl.LOCK_EX)
        # Waits for one that is about to stop.
        fcntl.flock(used, fcntl.LOCK_SH)
        if not _ready(folder).exists():
            _start(assets, folder)
        fcntl.flock(starting, fcntl.LOCK_UN)
        yield ControlPlane(assets, _ready(folder).parent)


def _ready(folder: Path) -> Path:
    return folder / "kube" / "ready.json"


def _start(assets: Path, folder: Path) -> None:
    """By a process that no test waits for, and that may outlive the one that did so."""
    log = folder / "keeper.log"
    with log.open("wb") as said:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.cluster", assets, folder],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd=ROOT,
            start_new_session=True,
        )

    def is_ready() -> bool:
        if keeper.poll() is not None:
            raise AssertionError(f"no control plane:\n{log.read_text()[-4000:]}")
        ready = _ready(folder)
        # Not yet written to its end.
        return ready.exists() and ready.read_text().endswith("\n")

    eventually(is_ready, _START_SECONDS, "the control plane is ready")


def _program(assets: Path, folder: Path, *arguments: str) -> Process:
    return Process(
        "control plane",
        [
            *(sys.executable, _UP, folder / "kube", "--audit", "--fake-nodes", "0"),
            *("--ports", *(str(free_port()) for _ in range(3))),
            *arguments,
        ],
        folder / "up.log",
        environment={"KUBEBUILDER_ASSETS": str(assets)},
    )


@contextmanager
def with_arguments(
    assets: Path, folder: Path, arguments: Sequence[str]
) -> Iterator[ControlPlane]:
    """
    A control plane of one test, without controllers.

    :param arguments: further ones of its API server.
    """
    more = [f"--apiserver-arg={one}" for one in arguments]
    process = _program(assets, folder, "--no-controllers", *more)
    try:
        process.wait_for(r"ready: ", _START_SECONDS)
        yield ControlPlane(assets, folder / "kube")
        process.stop()
    finally:
        process.kill()


def _keep(assets: Path, folder: Path) -> None:
    """Run a control plane until nobody uses it."""
    process = _program(assets, folder)
    try:
        process.wait_for(r"ready: ", _START_SECONDS)
        with (folder / "used").open("w") as used:
            fcntl.flock(used, fcntl.LOCK_EX)
            _ready(folder).unlink()
            process.stop()
    finally:
        process.kill()


#: Bytes of the longest line of an audit log.
_LONGEST_LINE = 1024 * 1024


class Audit:
    """The audit log from one moment on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Begin at the line that the API server may be writing now.
        with path.open("rb") as log:
            begin = max(0, os.path.getsize(path) - _LONGEST_LINE)
            log.seek(begin)
            self._begin = begin + log.read().rfind(b"\n") + 1

    def events(self) -> list[dict[str, Any]]:
        """Return the events since then."""
        with self._path.open("rb") as log:
            log.seek(self._begin)
            lines = log.read().split(b"\n")
        # The last is empty, or not yet written to its end.
        return [json.loads(line) for line in lines[:-1]]

    def open_watches(self, user: str) -> Counter[str]:
        """Return how many watches a user has now, by their path."""
        found: dict[str, str] = {}
        for event in self.events():
            if event["verb"] == "watch" and event["user"]["username"] == user:
                if event["stage"] == "ResponseComplete":
                    found.pop(event["auditID"], None)
                else:
                    found[event["auditID"]] = event["requestURI"].partition("?")[0]
        return Counter(found.values())

    def about(self, mark: str) -> list[dict[str, Any]]:
        """Those whose URL has *mark* in it."""
        return [event for event in self.events() if mark in event["requestURI"]]

    def wait_for(self, mark: str, count: int = 1) -> list[dict[str, Any]]:
        """The same, once there are *count*: the log may come after the answer."""

        def look() -> list[dict[str, Any]] | None:
            found = self.about(mark)
            return found if len(found) >= count else None

        return eventually(look, what=f"{count} audit events with {mark!r}")


def _user(kubeconfig: Path) -> dict[str, Any]:
    user: dict[str, Any] = json.loads(kubeconfig.read_text())["users"][0]["user"]
    return user


if __name__ == "__main__":
    _keep(Path(sys.argv[1]), Path(sys.argv[2]))
