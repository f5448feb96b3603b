"""The manifest of kas, as it is in deploy/, with a real kubelet."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from kas.state import pki
from kas.state.directory import StateDirectory
from tests.integration.cluster import ControlPlane
from tests.integration.kubectl import PATIENT, Kubectl
from tests.integration.processes import ROOT, eventually, script
from tests.integration.rawhttp import Way
from tests.integration.redisserver import RedisServer
from tests.integration.stack import Agentk, Kas
from tests.integration.test_in_cluster import unshare
from tools.ports import free_port

# A container here is a plain process with its volumes below $CONTAINER_ROOT; in a mount
# namespace of its own they are below /run, where every machine has a place for them.
_MOUNTED = """\
mount -t tmpfs none /run
for name in state config; do
  test -e "$CONTAINER_ROOT/$name" || continue
  mkdir /run/$name
  mount --rbind "$CONTAINER_ROOT/$name" /run/$name
done
exec "$@"
"""


class _Deployed(Kas):
    """The kas of the manifest: others are told of it as of one that tests start."""

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"


@pytest.fixture
def deployed(
    namespace: str, make_kubectl: Callable[..., Kubectl], tmp_path: Path
) -> Iterator[_Deployed]:
    """Made as the manifest says, one replica, at ports that are free here."""
    kubectl = make_kubectl("direct", namespace=namespace)
    kas = _Deployed(tmp_path)
    redis = RedisServer(tmp_path)
    try:
        kas.ctl("agent", "add", "main", "--token-file", tmp_path / "main.token")
        token = tmp_path / "user.token"
        kas.ctl(
            *("user", "add", "user", "--agent", "main", "--as-agent"),
            *("--token-file", token),
        )
        _make_secrets(kubectl, kas)
        kubectl.ok("apply", "-f", "-", input=_manifest(kas, redis, namespace).encode())
        yield kas
    finally:
        kubectl("delete", "deployment/kas", "--wait")
        redis.stop()


def _make_secrets(kubectl: Kubectl, kas: Kas) -> None:
    """As the comment at the head of the manifest tells."""
    made = pki.DevelopmentPki(
        StateDirectory.open(kas.folder / "made"),
        "kas.example",
        lambda: datetime.now(UTC),
    ).ensure()
    assert made.ca_file is not None
    shutil.copy(made.certificate_file, kas.folder / "tls.crt")
    shutil.copy(made.key_file, kas.folder / "tls.key")
    shutil.copy(made.ca_file, kas.authority)
    secret = kas.folder / "private-api-secret"
    secret.write_text(base64.b64encode(os.urandom(32)).decode())
    for name, files in (
        ("kas-identity", [kas.state / "identity.json"]),
        ("kas-secrets", [secret]),
        ("kas-tls", [kas.folder / "tls.crt", kas.folder / "tls.key", kas.authority]),
    ):
        sources = [f"--from-file={file}" for file in files]
        kubectl.ok("create", "secret", "generic", name, *sources)


def _manifest(kas: Kas, redis: RedisServer, namespace: str) -> str:
    text = (ROOT / "deploy" / "kustomize" / "kas" / "base" / "kas.yaml").read_text()
    for old, new in (
        ("8150", str(kas.agents)),
        ("8154", str(kas.proxy)),
        ("8151", str(kas.observability)),
        ("8155", str(free_port())),
        ("REDIS:6379", f"127.0.0.1:{redis.port}"),
        ("IMAGE", "any"),
        ("txkas", namespace),
        ("replicas: 3", "replicas: 1"),
    ):
        assert old in text
        text = text.replace(old, new)
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    for document in documents:
        if document["kind"] == "Namespace":
            # Probes that name a host, as they have to here, are not for everybody.
            del document["metadata"]["labels"]
        if document["kind"] == "ConfigMap":
            settings = document["data"]["kas.yaml"]
            document["data"]["kas.yaml"] = settings.replace("/config/", "/run/config/")
        if document["kind"] == "Deployment":
            spec = document["spec"]["template"]["spec"]
            spec["nodeName"] = "node-0"
            for container in spec["initContainers"] + spec["containers"]:
                container["command"] = _wrapped(container["command"])
                for probe in ("livenessProbe", "readinessProbe"):
                    if probe in container:
                        container[probe]["httpGet"]["host"] = "127.0.0.1"
    return yaml.safe_dump_all(documents)


def _wrapped(command: list[str]) -> list[str]:
    words = [
        word.replace("/config/", "/run/config/").replace("/state/", "/run/state/")
        for word in command
    ]
    if words[0] == "twistd":
        words[0] = str(script("twistd"))
    return [*unshare(), "sh", "-e", "-c", _MOUNTED, "pod", *words]


def test_manifest_runs(
    deployed: _Deployed,
    namespace: str,
    control_plane: ControlPlane,
    make_kubectl: Callable[..., Kubectl],
) -> None:
    """It becomes ready with its secrets, takes an agent, and ends in good order."""
    kubectl = make_kubectl("direct", namespace=namespace)
    done = kubectl("rollout", "status", "deployment/kas", PATIENT)
    assert done.code == 0, (
        kubectl("logs", "deployment/kas", "--all-containers").text,
        kubectl("describe", "pods").text[-3000:],
    )
    agentk = Agentk(
        deployed,
        deployed.folder / "main.token",
        control_plane.agent,
        address=f"tls://127.0.0.1:{deployed.agents}",
    )
    try:
        agentk.start("--kas-tls-server-name", "kas.example")
        deployed.kubeconfig("user", deployed.folder / "user.token")
        way = deployed.way("user")
        assert way.ask("GET", "/readyz").status == 200
        (pod,) = kubectl.json("get", "pods", "-l", "app=kas")["items"]
        name = pod["metadata"]["name"]
        assert all(
            one["restartCount"] == 0 for one in pod["status"]["containerStatuses"]
        )
        with kubectl.start("logs", "-f", name, "-c", "kas") as logs:
            kubectl.ok("delete", "pod", name, PATIENT)
            said = logs.ended(60).out
        assert b"Server Shut Down" in said
        # The next one takes its place, and the agent finds it.
        eventually(lambda: _answers(way))
    finally:
        if agentk.process is not None:
            agentk.process.kill()


def _answers(way: Way) -> bool:
    try:
        return way.ask("GET", "/readyz").status == 200
    except OSError:
        return False
