"""The audit log of a real API server, joined with the audit log of kas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import ControlPlane, with_arguments
from tests.integration.objects import config_maps
from tests.integration.processes import eventually
from tests.integration.stack import Agentk, Kas
from tests.tunnel.transport import certificates
from tools.ports import free_port


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short name: sockets are in it."""
    return tmp_path_factory.mktemp("k")


def stored(kas: Kas, namespace: str) -> list[dict[str, Any]]:
    """Return the lines in the files of kas that are about a namespace."""
    lines: list[dict[str, Any]] = []
    for path in sorted((kas.folder / "clusters").glob("*.jsonl*"), reverse=True):
        lines += map(json.loads, path.read_text().splitlines())
    return [one for one in lines if one.get("namespace") == namespace]


def test_who_bypassed_kas(
    short: Path, control_plane: ControlPlane, namespace: str
) -> None:
    """kas, agentk and a pause of both lose no event and store none twice."""
    kas = Kas(short, f"modules: {{cluster_audit: {{directory: {short}/clusters}}}}\n")
    kas.observability_settings = (f"audit: {{file: {short}/audit.jsonl}}",)
    kas.start()
    options = short / "agentk.yaml"
    log = control_plane.folder / "audit.log"
    options.write_text(f"modules: {{cluster_audit: {{file: {log}}}}}\n")
    kubeconfig = short / "agentk.kubeconfig"
    account = control_plane.add_account(namespace, "agentk", kubeconfig)
    agentk = Agentk(kas, kas.add_agent("main"), kubeconfig)
    agentk.start("--configuration-file", str(options))
    path = config_maps(namespace)

    def bypass(name: str) -> None:
        body = {"metadata": {"name": name}, "data": {"key": "s3cret"}}
        control_plane.call("POST", path, body)

    try:
        kas.add_user("alice", "--as", "alice@example.org")
        way = kas.way("alice")
        # agentk begins with the events after its start.
        eventually(
            lambda: bypass_until(control_plane, path) and stored(kas, namespace),
            what="the first event",
        )
        assert way.ask("DELETE", f"{path}/a").status == 403
        bypass("one")
        eventually(lambda: len(named(kas, namespace, "one")) == 1, what="one event")
        agentk.stop()
        bypass("two")
        agentk.start("--configuration-file", str(options))
        assert kas.process is not None
        kas.process.kill()
        bypass("three")
        kas.start()
        eventually(lambda: named(kas, namespace, "three"), 60, "the last event")
    finally:
        agentk.stop()
        kas.stop()
    for name in ("one", "two", "three"):
        assert len(named(kas, namespace, name)) == 1, name
    files = sorted((kas.folder / "clusters").glob("*.jsonl*"))
    assert "s3cret" not in "".join(one.read_text() for one in files)
    clusters = [word for one in files for word in ("--cluster-log", str(one))]
    search = ("audit", "search", f"{short}/audit.jsonl", "-n", namespace, *clusters)
    found = [
        json.loads(one) for one in kas.ctl(*search, "--output", "json").splitlines()
    ]
    (denied,) = [one for one in found if one["verb"] == "delete"]
    assert denied["credential"] == "user:alice"
    assert (denied["as"], denied["outcome"]) == ("alice@example.org", "403")
    beside = {one.get("name") for one in found if one.get("bypassed")}
    assert {"one", "two", "three"} <= beside
    assert denied["user"] == account
    assert "bypassed (" in kas.ctl(*search)
    assert "user:alice" in kas.ctl(*search, "--user", "alice")
    assert "bypassed" not in kas.ctl(*search, "--user", "alice")


def named(kas: Kas, namespace: str, name: str) -> list[dict[str, Any]]:
    """Return the stored events that created an object."""
    found = stored(kas, namespace)
    return [one for one in found if (one.get("name"), one["verb"]) == (name, "create")]


def deleted(kas: Kas) -> list[dict[str, Any]]:
    """Return the stored events whose client chose the id ``mine``."""
    return [one for one in stored(kas, "one") if one["id"] == "mine"]


def bypass_until(control_plane: ControlPlane, path: str) -> bool:
    """Change an object directly, so that the log has a new event."""
    body = {"metadata": {"generateName": "early-"}}
    control_plane.call("POST", path, body)
    return True


KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters:
- name: agentk
  cluster:
    server: https://127.0.0.1:{port}/audit
    certificate-authority: {authority}
users:
- name: apiserver
  user: {{token: {token}}}
contexts:
- name: agentk
  context: {{cluster: agentk, user: apiserver}}
current-context: agentk
"""


def test_webhook(short: Path, control_plane: ControlPlane) -> None:
    """An API server with the webhook backend, which keeps no file of agentk's."""
    token, port = "0123456789abcdef" * 2, free_port()
    (short / "token").write_text(f"{token}\n")
    certificate, key = certificates.server_identity().write(short, "webhook")
    authority = certificates.authority().write(short, "webhook-ca.crt")
    webhook = short / "webhook.kubeconfig"
    webhook.write_text(KUBECONFIG.format(port=port, authority=authority, token=token))
    arguments = (
        f"--audit-webhook-config-file={webhook}",
        "--audit-webhook-batch-max-wait=500ms",
        "--audit-webhook-initial-backoff=1s",
    )
    kas = Kas(short, f"modules: {{cluster_audit: {{directory: {short}/clusters}}}}\n")
    kas.start()
    with with_arguments(control_plane.assets, short, arguments) as cluster:
        cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": "one"}})
        options = short / "agentk.yaml"
        listen = (
            f"address: '127.0.0.1:{port}', certificate_file: {certificate}, "
            f"key_file: {key}, token_file: {short}/token"
        )
        options.write_text(f"modules: {{cluster_audit: {{webhook: {{{listen}}}}}}}\n")
        kubeconfig = short / "agentk.kubeconfig"
        cluster.add_account("one", "agentk", kubeconfig)
        agentk = Agentk(kas, kas.add_agent("main"), kubeconfig)
        agentk.start("--configuration-file", str(options))
        path = config_maps("one")
        try:
            for number in range(3):
                body = {"metadata": {"name": f"map-{number}"}, "data": {"k": "s3cret"}}
                cluster.call("POST", path, body)
            eventually(lambda: named(kas, "one", "map-2"), 60, "the events")
            # kas is away: the API server does not wait, and agentk keeps the events.
            assert kas.process is not None
            kas.process.kill()
            cluster.call("POST", path, {"metadata": {"name": "away"}})
            kas.start()
            eventually(lambda: named(kas, "one", "away"), 60, "the last event")
            for number in range(3):
                way, fields = f"{path}/map-{number}", {"Audit-ID": "mine"}
                assert cluster.refusal("DELETE", way, fields, None) == ""
            eventually(lambda: len(deleted(kas)) == 3, 60, "requests with one id")
        finally:
            agentk.stop()
    kas.stop()
    clusters = ("--cluster-log", str(kas.folder / "clusters" / "1.jsonl"))
    (short / "audit.jsonl").touch()
    found = kas.ctl("audit", "search", f"{short}/audit.jsonl", *clusters)
    assert found.count("delete configmaps one/map-") == 3
    for name in ("map-0", "map-1", "map-2", "away"):
        (event,) = named(kas, "one", name)
        assert event["log"].startswith("webhook:")
        assert "by_agentk" not in event
    files = sorted((kas.folder / "clusters").glob("*.jsonl*"))
    assert "s3cret" not in "".join(one.read_text() for one in files)
