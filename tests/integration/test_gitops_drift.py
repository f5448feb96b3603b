"""People and other programs change what GitOps applied, in a real cluster."""

from __future__ import annotations

import hmac
import json
import re
import time
import urllib.error
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from tests.integration.kubectl import Kubectl
from tests.integration.processes import eventually
from tests.integration.test_gitops import FILE, Stand, config_map, stand

__all__ = ["stand"]


SECRET = b"of sixteen bytes and more"


@pytest.fixture
def received() -> Iterator[tuple[int, list[tuple[Message, bytes]]]]:
    """A server that takes webhooks: its port, and what it got."""
    found: list[tuple[Message, bytes]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.append((self.headers, body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port, found
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def gitops_settings(tmp_path: Path, received: tuple[int, Any]) -> str:
    """With that server as a webhook."""
    secret = tmp_path / "webhook-secret"
    secret.write_bytes(SECRET + b"\n")
    url = f"http://127.0.0.1:{received[0]}/drift"
    return f", webhooks: [{{url: '{url}', secret_file: '{secret}'}}]"


def deployment(namespace: str) -> dict[str, Any]:
    """With quantities, defaulted ports, and no replicas: others scale it."""
    container = {
        "name": "web",
        "image": "example.org/web:1",
        "ports": [{"containerPort": 80}],
        "resources": {
            "requests": {"cpu": 0.1, "memory": "1024Mi"},
            "limits": {"cpu": "1000m", "memory": "1Gi"},
        },
        "env": [{"name": "A", "value": "1"}],
    }
    labels = {"app": "web"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "nodeSelector": {"no": "node"}},
            },
        },
    }


def noisy(namespace: str) -> list[dict[str, Any]]:
    """Objects that API servers and controllers add something to."""
    metadata = {"namespace": namespace}
    return [
        deployment(namespace),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "login", **metadata},
            "stringData": {"password": "first"},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", **metadata},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        },
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web", **metadata},
            "spec": {
                "scaleTargetRef": {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "name": "web",
                },
                "maxReplicas": 5,
            },
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "web", **metadata},
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "web", **metadata},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
        },
        config_map("plain", namespace, key="value"),
    ]


def changed(stand: Stand, path: str, manager: str, change: Any) -> None:
    """As another client with its field manager: read, change, write."""
    for _ in range(20):
        live = stand.live(path)
        change(live)
        try:
            stand.cluster.call("PUT", f"{path}?fieldManager={manager}", live)
            return
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise
    raise AssertionError("it changes all the time")


#: Users change objects beside agentk here, with its own rights.
_OPEN = "kubernetes: {allow_own_namespace: true}\n"


def test_who_it_was(
    stand: Stand, received: tuple[int, list[tuple[Message, bytes]]]
) -> None:
    """Through kas by name; of two persons each its own; directly nobody."""
    space = stand.namespace
    stand.options.write_text(_OPEN + "modules: {gitops: {}}\n")
    stand.agentk.stop()
    stand.restart()
    stand.settled(
        stand.commit(*(config_map(f"m{n}", space, key="x") for n in range(6)))
    )
    program = stand.cluster.assets / "kubectl"
    direct = Kubectl(program, stand.cluster.agent)
    people = {
        name: Kubectl(program, stand.kas.add_user(name)) for name in ("alice", "bob")
    }
    patch = ("--type", "merge", "-p", '{"data": {"key": "y"}}')
    began = time.monotonic()
    people["alice"].ok("-n", space, "patch", "configmap", "m0", *patch)
    people["bob"].ok("-n", space, "patch", "configmap", "m1", *patch)
    direct.ok("-n", space, "patch", "configmap", "m2", *patch)
    people["bob"].ok("-n", space, "delete", "configmap", "m3", "--wait=false")
    direct.ok("-n", space, "delete", "configmap", "m4", "--wait=false")
    by = "changed by kubectl-patch (Update) at"
    stand.says(f"ConfigMap {space}/m4 deleted; it was repaired")
    stand.says(f"ConfigMap {space}/m3 deleted (user:bob); it was repaired")
    print(f"five kubectl and their repairs: {time.monotonic() - began:.1f} s")
    process = stand.agentk.process
    assert process is not None
    for name, who in {"m0": " (user:alice)", "m1": " (user:bob)", "m2": ""}.items():
        found = re.search(
            rf"{space}/{name} {re.escape(by)} \S+Z(.*?): /data/key; it was repaired",
            process.said(),
        )
        assert found is not None
        assert found[1] == who
    assert "by kubectl-patch at " in stand.kas.ctl("gitops", "drift", "main", "--ended")

    # The operator's address is told, with a signature.
    def told() -> set[tuple[str, str, str]]:
        return {
            (one["object"]["name"], one["state"], " ".join(one.get("credentials", ())))
            for _, body in received[1]
            for one in json.loads(body)["drifts"]
        }

    wanted = {("m0", "STATE_REPAIRED", "user:alice"), ("m4", "STATE_REPAIRED", "")}
    eventually(lambda: wanted <= told(), what="webhooks")
    headers, body = received[1][0]
    signed = headers["Txkas-Timestamp"].encode() + b"." + body
    mac = hmac.digest(SECRET, signed, "sha256").hex()
    assert headers["Txkas-Signature"] == f"sha256={mac}"
    assert json.loads(body)["agent"]["name"] == "main"
    # And who looks at the object sees it.
    events = stand.cluster.call("GET", f"/api/v1/namespaces/{space}/events")["items"]
    reasons = {one["reason"] for one in events if one["involvedObject"]["name"] == "m0"}
    assert reasons == {"DriftRepaired"}


def test_who_the_audit_log_names(stand: Stand) -> None:
    """Of those that do not come through kas."""
    space = stand.namespace
    log = stand.cluster.folder / "audit.log"
    stand.options.write_text(_OPEN + f"modules: {{gitops: {{audit_log: '{log}'}}}}\n")
    stand.agentk.stop()
    stand.restart()
    stand.settled(
        stand.commit(*(config_map(f"m{n}", space, key="x") for n in range(6)))
    )
    direct = Kubectl(stand.cluster.assets / "kubectl", stand.cluster.admin)
    alice = Kubectl(direct.program, stand.kas.add_user("alice"))
    carol = ("-n", space, "--as", "carol", "--as-group", "system:masters")
    patch = ("--type", "merge", "-p", '{"data": {"key": "y"}}')
    direct.ok(*carol, "patch", "configmap", "m0", *patch)
    direct.ok(*carol, "delete", "configmap", "m1", "--wait=false")
    alice.ok("-n", space, "patch", "configmap", "m2", *patch)
    stand.says(f"ConfigMap {space}/m1 deleted (kubernetes:carol); it was repaired")
    process = stand.agentk.process
    assert process is not None

    def named() -> dict[str, str]:
        said = process.said()
        found = re.findall(r"/(m\d) changed by .*? \((\w+:\w+)\): /data/key", said)
        return dict(found)

    wanted = {"m0": "kubernetes:carol", "m2": "user:alice"}
    eventually(lambda: named() == wanted, what="who it was")


def test_what_others_change(stand: Stand) -> None:
    """Edits, a scale, a delete: told with who did it, and repaired; the rest is not."""
    space = stand.namespace
    stand.settled(stand.commit(*noisy(space)))
    process = stand.agentk.process
    assert process is not None
    # What controllers do has been done, and was no drift.
    time.sleep(3)
    assert "drift" not in process.said()

    deployments = f"/apis/apps/v1/namespaces/{space}/deployments/web"

    def scale(live: Any) -> None:
        live["spec"]["replicas"] = 3

    def edit(live: Any) -> None:
        live["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = "2"

    changed(stand, deployments, "scaler", scale)
    changed(stand, deployments, "kubectl-edit", edit)
    stand.says("Deployment.apps " + space + "/web changed by kubectl-edit (Update)")
    stand.says("/spec/template/spec/containers/0/env/0/value; it is repaired")
    stand.says("/spec/template/spec/containers/0/env/0/value; it was repaired")
    live = stand.live(deployments)
    assert live["spec"]["replicas"] == 3
    assert live["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] == "1"

    secret = f"/api/v1/namespaces/{space}/secrets/login"
    changed(
        stand,
        secret,
        "kubectl-edit",
        lambda live: live["data"].update(password="c2Vjb25k"),
    )
    eventually(lambda: stand.live(secret)["data"]["password"] == "Zmlyc3Q=")
    assert "c2Vjb25k" not in process.said()

    for _ in range(2):
        stand.cluster.call("DELETE", f"/api/v1/namespaces/{space}/configmaps/plain")
        eventually(lambda: stand.config_map("plain"))
    stand.says("ConfigMap " + space + "/plain deleted; it was repaired")
    assert "failed" not in process.said()
    shown = stand.kas.ctl("gitops", "drift", "main", "--ended")
    assert f"Deployment.apps {space}/web  changed  repaired" in shown
    assert "by kubectl-edit at " in shown
    assert '/spec/template/spec/containers/0/env/0/value: "2", in Git "1"' in shown
    assert "/data/password: ***, in Git ***" in shown


def test_an_aggregated_role(stand: Stand) -> None:
    """Its rules are those of the control plane, before and after a change of it."""
    name, rbac = stand.namespace, "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
    part = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"{name}-part", "labels": {f"{name}/part": "yes"}},
        "rules": rules,
    }
    selectors = [{"matchLabels": {f"{name}/part": "yes"}}]
    whole: dict[str, Any] = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"{name}-all"},
        "aggregationRule": {"clusterRoleSelectors": selectors},
        "rules": [],
    }
    path = f"/apis/{rbac}/v1/clusterroles/{name}-all"
    try:
        stand.settled(stand.commit(part, whole))
        eventually(lambda: stand.live(path)["rules"] == rules)
        version = stand.live(path)["metadata"]["resourceVersion"]
        time.sleep(3)
        assert stand.live(path)["metadata"]["resourceVersion"] == version
        whole["metadata"]["labels"] = {"team": "a"}
        stand.settled(stand.commit(part, whole))
        live = stand.live(path)
        assert live["metadata"]["labels"] == {"team": "a"}
        assert live["rules"] == rules
        process = stand.agentk.process
        assert process is not None
        assert "drift" not in process.said()
    finally:
        for one in ("all", "part"):
            path = f"/apis/{rbac}/v1/clusterroles/{name}-{one}"
            if stand.live(path) is not None:
                stand.cluster.call("DELETE", path)


def cron_job(namespace: str) -> dict[str, Any]:
    """One that never runs."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a/b:1"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "never", "namespace": namespace},
        "spec": {
            "schedule": "0 0 1 1 *",
            "suspend": True,
            "jobTemplate": {"spec": {"template": {"spec": pod}}},
        },
    }


@pytest.mark.parametrize("scope", ["cluster", "namespace"])
def test_one_watch_for_drift_and_live_data(
    stand: Stand, tmp_path: Path, scope: str
) -> None:
    """The audit log of the API server has one for each kind, whoever needs it."""
    space, cluster = stand.namespace, stand.cluster
    assert stand.agentk.stop() and stand.kas.stop()
    stand.agentk.kubeconfig = tmp_path / "own.kubeconfig"
    user = cluster.add_account(space, "own", stand.agentk.kubeconfig)
    stand.kas.settings = "modules:\n  cluster_data: {}\n"
    stand.options.write_text("modules: {gitops: {}, cluster_data: {}}\n")
    project = {"paths": [{"glob": "/apps/**/*.yaml"}], "default_namespace": space}
    section: dict[str, Any] = {"gitops": {"manifest_projects": [project]}}
    middle = ""
    if scope == "namespace":
        section["scope"] = {"namespaces": [space]}
        middle = f"/namespaces/{space}"
    stand.origin.commit({FILE: yaml.safe_dump(section)})
    commit = stand.commit(
        deployment(space), cron_job(space), config_map("plain", space, x="1")
    )
    audit = cluster.audit()
    stand.kas.start()
    stand.restart()
    stand.settled(commit)
    both = [f"/apis/apps/v1{middle}/deployments", f"/apis/batch/v1{middle}/cronjobs"]
    needed = {*both, f"/api/v1{middle}/configmaps", f"/api/v1{middle}/pods"}

    def watches() -> Any:
        found = audit.open_watches(user)
        return found if needed <= set(found) else None

    eventually(watches)

    # Both get each change, and GitOps also those of a kind that it alone needs.
    def row() -> Any:
        shown = stand.kas.ctl_json("get", "deployments", "-n", space)["rows"]
        return [one["columns"].get("images") for one in shown] or None

    assert eventually(row) == [["example.org/web:1"]]
    path = f"/apis/apps/v1/namespaces/{space}/deployments/web"
    found = cluster.call("GET", path)
    found["spec"]["template"]["spec"]["containers"][0]["image"] = "example.org/web:2"
    cluster.call("PUT", path, found)
    stand.says(f"Deployment.apps {space}/web changed by")
    stand.says("it was repaired")
    eventually(lambda: row() == [["example.org/web:1"]])
    cluster.call("DELETE", f"/api/v1/namespaces/{space}/configmaps/plain")
    stand.says(f"ConfigMap {space}/plain deleted")
    cluster.call("DELETE", f"/apis/batch/v1/namespaces/{space}/cronjobs/never")
    stand.says(f"CronJob.batch {space}/never deleted")
    counts = eventually(watches)
    assert {path: counts[path] for path in both} == dict.fromkeys(both, 1)
    assert set(counts.values()) == {1}, counts
    if scope == "namespace":
        assert all(middle in path for path in counts), counts
