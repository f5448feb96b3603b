"""agentk where it belongs: in a pod, with a service account."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration import needs
from tests.integration.cluster import ControlPlane
from tests.integration.kubectl import PATIENT, Kubectl
from tests.integration.processes import ROOT, Process, eventually, kasctl, script
from tests.integration.stack import Kas
from tests.test_charts import rendered

# A container here is a plain process whose volumes are below $CONTAINER_ROOT.  In a
# mount namespace of its own they are where every pod has them.
_SCRIPT = """\
mount -t tmpfs none /run
mkdir -p /run/secrets/kubernetes.io/serviceaccount
mount --bind "$CONTAINER_ROOT/var/run/secrets/kubernetes.io/serviceaccount" \
  /run/secrets/kubernetes.io/serviceaccount
exec "$TWISTD" -n --pidfile= agentk "$@"
"""

_MANIFEST = """\
apiVersion: v1
kind: ServiceAccount
metadata: {{name: agentk}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}}
subjects: [{{kind: ServiceAccount, name: agentk, namespace: {namespace}}}]
---
apiVersion: v1
kind: Secret
metadata: {{name: agentk}}
data: {{token: {token}, ca.crt: {authority}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: agentk}}
spec:
  selector: {{matchLabels: {{app: agentk}}}}
  strategy: {{type: Recreate}}
  template:
    metadata: {{labels: {{app: agentk}}}}
    spec:
      serviceAccountName: agentk
      nodeName: node-0
      volumes: [{{name: kas, secret: {{secretName: agentk}}}}]
      containers:
      - name: agentk
        image: any
        command: {command}
        volumeMounts: [{{name: kas, mountPath: /etc/agentk}}]
        env:
        # Addresses of services do not exist here; the pod has the API server's own.
        - {{name: KUBERNETES_SERVICE_HOST, value: 127.0.0.1}}
        - {{name: KUBERNETES_SERVICE_PORT, value: "{api_server}"}}
        - {{name: TWISTD, value: {twistd}}}
        - name: POD_NAME
          valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}
        - name: POD_NAMESPACE
          valueFrom: {{fieldRef: {{fieldPath: metadata.namespace}}}}
        readinessProbe: &probe
          httpGet: {{host: 127.0.0.1, port: {port}, path: /readiness}}
          periodSeconds: 1
        livenessProbe:
          httpGet: {{host: 127.0.0.1, port: {port}, path: /liveness}}
"""


def unshare() -> list[str]:
    """The command before one that needs mounts of its own."""
    program = needs.program("unshare", "apt-get install util-linux")
    for options in ["--mount"], ["--mount", "--map-root-user"]:
        command = [str(program), *options, "--propagation", "private"]
        tried = subprocess.run(
            [*command, "mount", "-t", "tmpfs", "none", "/run"], capture_output=True
        )
        if tried.returncode == 0:
            return command
    needs.missing("mount namespaces", "run the tests as root, or allow user namespaces")


def test_pod(
    kas: Kas,
    control_plane: ControlPlane,
    namespace: str,
    make_kubectl: Callable[..., Kubectl],
) -> None:
    """It finds its cluster and its rights by itself, and survives its pod."""
    kubectl = make_kubectl("direct", namespace=namespace)
    token = kas.add_agent("inside")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        *unshare(),
        *("sh", "-e", "-c", _SCRIPT, "agentk"),
        *("--kas-address", f"tls://127.0.0.1:{kas.agents}"),
        *("--token-file", "etc/agentk/token", "--ca-cert-file", "etc/agentk/ca.crt"),
        *("--observability-listen-address", f"127.0.0.1:{port}"),
    ]
    manifest = _MANIFEST.format(
        namespace=namespace,
        token=base64.b64encode(token.read_bytes()).decode(),
        authority=base64.b64encode(kas.authority.read_bytes()).decode(),
        command=json.dumps(command),
        api_server=control_plane.port,
        twistd=script("twistd"),
        port=port,
    )
    try:
        kubectl.ok("apply", "-f", "-", input=manifest.encode())
        done = kubectl("rollout", "status", "deployment/agentk", PATIENT)
        assert done.code == 0, kubectl("logs", "deployment/agentk").text
        pod = kubectl.ok("get", "pods", "-o", "jsonpath={.items[0].metadata.name}")
        assert _connected(kas) == (namespace, pod)

        kas.add_user("insider", agent="inside")
        way = kas.way("insider")
        audit = control_plane.audit()
        mark = uuid.uuid4().hex
        path = f"/api/v1/namespaces/default/configmaps/{mark}"
        assert way.ask("GET", path).status == 404
        user = audit.wait_for(mark)[0]["user"]
        assert user["username"] == f"system:serviceaccount:{namespace}:agentk"
        # Its rights are those of its service account, and no others.
        assert way.ask("GET", "/api/v1/namespaces/default/secrets").status == 403

        kubectl.ok("delete", "pod", pod, PATIENT)
        assert way.ask("GET", path).status == 404
        eventually(lambda: _connected(kas) not in (None, (namespace, pod)))
    finally:
        kubectl("delete", "deployment/agentk", "clusterrolebinding/" + namespace)


def test_manifest_of_kasctl(
    kas: Kas,
    control_plane: ControlPlane,
    namespace: str,
    make_kubectl: Callable[..., Kubectl],
) -> None:
    """What kasctl prints runs where pods are restricted, and connects."""
    own = f"{namespace}-own"
    kubectl = make_kubectl("direct", namespace=own)
    text = kas.ctl(
        *("agent", "manifest", "printed", "--image", "any", "--namespace", own),
        *("--kas-address", f"tls://127.0.0.1:{kas.agents}", "--force"),
    )
    documents = list(yaml.safe_load_all(text))
    (deployment,) = (one for one in documents if one["kind"] == "Deployment")
    container = _runnable_here(deployment, control_plane)
    pod = deployment["spec"]["template"]["spec"]
    whole = yaml.safe_dump_all(documents).encode()
    try:
        done = kubectl("apply", "-f", "-", input=whole)
        # A warning would name what PodSecurity does not allow.
        assert (done.code, done.err) == (0, b"")
        rollout = ("rollout", "status", "deployment/agentk", PATIENT)
        done = kubectl(*rollout)
        assert done.code == 0, kubectl("get", "events").text
        eventually(lambda: _connected(kas, "printed") is not None)
        # And it is enforced: the same with a privilege makes no pod.
        container["securityContext"]["allowPrivilegeEscalation"] = True
        lax = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lax"}}
        lax_pod = yaml.safe_dump({**lax, "spec": pod}).encode()
        done = kubectl("apply", "-f", "-", input=lax_pod)
        assert b"violates PodSecurity" in done.err
    finally:
        kubectl("delete", "--wait=false", f"namespace/{own}")
        kubectl("delete", f"clusterrolebinding/{own}-agentk")


def _runnable_here(
    deployment: dict[str, Any], control_plane: ControlPlane
) -> dict[str, Any]:
    """
    Change what this cluster without nodes and networks needs; see _MANIFEST.

    :return: the container.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    deployment["spec"]["replicas"] = 1
    pod = deployment["spec"]["template"]["spec"]
    container: dict[str, Any]
    (container,) = pod["containers"]
    pod["nodeName"] = "node-0"
    words = [one.replace("/config/", "config/") for one in container["command"]]
    container["command"] = [
        *(*unshare(), "sh", "-e", "-c", _SCRIPT, "agentk"),
        *words[words.index("agentk") + 1 :],
        f"--observability-listen-address=127.0.0.1:{port}",
    ]
    container["env"] += [
        {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(control_plane.port)},
        {"name": "TWISTD", "value": str(script("twistd"))},
    ]
    if os.geteuid():
        # The kubelet gives the token to this user, and an ordinary user can give files
        # to no other.
        container["securityContext"]["runAsUser"] = os.geteuid()
    for probe in ("livenessProbe", "readinessProbe"):
        # Pods have no address here, and where pods are restricted no other is asked.
        del container[probe]
    return container


def test_install_of_kasctl(
    kas: Kas,
    control_plane: ControlPlane,
    namespace: str,
    make_kubectl: Callable[..., Kubectl],
    tmp_path: Path,
) -> None:
    """kasctl applies the objects itself, waits, and can be repeated."""
    own = f"{namespace}-installed"
    kubectl = make_kubectl("direct", namespace=own)
    context = json.loads(control_plane.agent.read_text())["current-context"]
    command: list[str | Path] = [
        *("agent", "install", "installed", "--context", context, "--image", "any"),
        *("--kubeconfig", control_plane.agent, "--namespace", own),
        *("--kas-address", f"tls://127.0.0.1:{kas.agents}", "--force"),
    ]
    secret = ("get", "secret/agentk-token", "-o", "jsonpath={.data.token}")
    try:
        # A wrong context makes nothing.
        wrong = [*command, "--context", "nowhere"]
        done = kasctl(*wrong, state=kas.state, check=False)
        assert (done.returncode, "has no context 'nowhere'" in done.stderr) == (1, True)
        assert "installed" not in kas.ctl("agent", "list")

        first = Process(
            "install",
            [script("kasctl"), *command, "--state-directory", kas.state],
            tmp_path / "install.log",
        )
        try:
            first.wait_for("waiting for the agent installed: ")
            deployment = json.loads(
                kubectl.ok("get", "deployment/agentk", "-o", "json")
            )
            _runnable_here(deployment, control_plane)
            spec = {key: deployment["spec"][key] for key in ("replicas", "template")}
            merge = ("patch", "deployment/agentk", "--type=merge", "--patch")
            kubectl.ok(*merge, json.dumps({"spec": spec}))
            assert first.ended(120) == 0, first.said()
        finally:
            first.kill()
        found = _connected(kas, "installed")
        assert found is not None
        assert f"is connected, from the pod {own}/{found[1]}" in first.said()
        token = kubectl.ok(*secret)
        assert token not in first.said()
        assert base64.b64decode(token).decode() not in first.said()

        # kubectl's changes of the pod are not overwritten, unless that is wanted.
        done = kasctl(*command, state=kas.state, check=False)
        assert done.returncode == 1
        assert "conflict" in done.stderr and "--force-conflicts" in done.stderr
        assert "No token was made" in done.stderr
        forced = [*command, "--force-conflicts", "--timeout", "3s"]
        done = kasctl(*forced, state=kas.state, check=False)
        assert "Deployment agentk: changed" in done.stderr
        assert "Namespace " + own + ": unchanged" in done.stderr
        assert "is not connected after 3 s: the pod agentk-" in done.stderr
        assert f"connected only from older pods: {found[1]}" in done.stderr
        assert kubectl.ok(*secret) == token
    finally:
        kubectl("delete", "--wait=false", f"namespace/{own}")
        kubectl("delete", f"clusterrolebinding/{own}-agentk")


def _connected(kas: Kas, name: str = "inside") -> tuple[str, str] | None:
    for one in kas.status()["agents"]:
        if one["agent_name"] == name:
            return one["pod_namespace"], one["pod_name"]
    return None


_IMPERSONATE = {
    "impersonate": True,
    "impersonateUsers": ["alice"],
    "impersonateGroups": ["developers"],
}


@pytest.mark.parametrize(
    "name, values",
    [
        ("agentk/overlays/namespaced", None),
        ("agentk/overlays/cluster-wide", None),
        ("kas/base", None),
        ("agentk", {"config": {"kasCaCert": "PEM"}}),
        ("agentk", {"rbac": {"scope": "cluster", **_IMPERSONATE}}),
        ("kas", {"redis": {"passwordSecret": "own", "tls": {"enabled": True}}}),
    ],
)
def test_manifest(
    name: str,
    values: dict[str, Any] | None,
    namespace: str,
    make_kubectl: Callable[..., Kubectl],
) -> None:
    """
    The API server takes what is in deploy/, also where pods are restricted.

    That is what kustomize makes, or helm with *values*.
    """
    label = "pod-security.kubernetes.io/enforce=restricted"
    kubectl = make_kubectl("direct", namespace=namespace)
    kubectl.ok("label", f"namespace/{namespace}", label)
    if values is None:
        manifest = kubectl.ok("kustomize", ROOT / "deploy" / "kustomize" / name)
    else:
        manifest = yaml.safe_dump_all(rendered(name, values))
    done = kubectl(
        *("apply", "--server-side", "--dry-run=server", "--force-conflicts"),
        *("--validate=strict", "-f", "-"),
        input=manifest.replace("txkas", namespace).encode(),
    )
    assert (done.code, done.err) == (0, b"")
