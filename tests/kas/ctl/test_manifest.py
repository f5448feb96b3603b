"""kasctl agent manifest: deploy/kustomize/agentk, with everything filled in."""

from __future__ import annotations

import base64
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from kas.ctl.manifest import template
from kas.identity.store import digest
from kas.state import pki, running
from kas.state.directory import StateDirectory
from modules.cluster_data.agent.view_registry import OWN_VIEWS
from tests.kas.ctl.kasctl import Kasctl
from tunnel.api import ObjectKind
from tunnel.program.opened import Opened

DEPLOY = Path(__file__).parents[3] / "deploy" / "kustomize" / "agentk"
OVERLAY = DEPLOY / "overlays" / "cluster-wide"
COMMAND = ("agent", "manifest", "prod", "--image", "registry/txkas:1")


#: The kinds that agentk watches for live data.
KINDS = {kind for view in OWN_VIEWS for kind in view.kinds}


def by_kind(text: str) -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def test_one_source() -> None:
    """kasctl prints what the overlay for a whole cluster has."""
    resources = yaml.safe_load((OVERLAY / "kustomization.yaml").read_text())
    assert resources["resources"] == ["../../base", "rights.yaml"]
    base = OVERLAY / "../../base/agentk.yaml"
    texts = (base.read_text(), (OVERLAY / "rights.yaml").read_text())
    assert template() == [one for text in texts for one in yaml.safe_load_all(text)]


def test_all_that_a_cluster_needs(kasctl: Kasctl) -> None:
    state = StateDirectory.open(kasctl.state)
    pki.DevelopmentPki(state, "h", lambda: datetime.now(UTC), ["192.0.2.2"]).ensure()
    address = ("--kas-address", "tls://192.0.2.2:8150")
    found = by_kind(kasctl.ok(*COMMAND, *address, "--namespace", "edge"))
    assert list(found)[:3] == ["Namespace", "Secret", "ConfigMap"]
    labels = found["Namespace"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    token = base64.b64decode(found["Secret"]["data"]["token"])
    (kept,) = kasctl.store().load().agents[0].tokens
    assert digest(token).hex() == kept.sha256
    authority = (kasctl.state / "ca.crt").read_text()
    assert found["ConfigMap"]["data"] == {"ca.crt": authority}
    for kind in ("Secret", "ConfigMap", "ServiceAccount", "Deployment"):
        assert found[kind]["metadata"]["namespace"] == "edge"
    assert found["ClusterRoleBinding"]["subjects"][0]["namespace"] == "edge"
    assert found["ClusterRoleBinding"]["metadata"]["name"] == "edge-agentk"
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "registry/txkas:1"
    assert "--kas-address=tls://192.0.2.2:8150" in container["command"]
    names = {one.get("secret", {}).get("secretName") for one in pod["volumes"]}
    assert found["Secret"]["metadata"]["name"] in names


ADDRESS = ("--kas-address", "wss://kas.example.org/kas", "--system-cas")


def roles(text: str) -> list[str]:
    """The roles that agentk gets in the whole cluster."""
    return [
        one["roleRef"]["name"]
        for one in yaml.safe_load_all(text)
        if one["kind"] == "ClusterRoleBinding"
    ]


def test_rights(kasctl: Kasctl) -> None:
    """agentk may look; more is an explicit choice."""
    made = kasctl.run(*COMMAND, *ADDRESS).stdout
    assert roles(made) == ["view"]
    assert "impersonate" not in made
    again = (*COMMAND, *ADDRESS, "--rotate")
    made = kasctl.run(*again, "--cluster-role", "cluster-admin").stdout
    assert roles(made) == ["cluster-admin"]
    made = kasctl.run(*again, "--impersonate", "--namespace", "edge").stdout
    assert roles(made) == ["view", "edge-agentk-impersonate"]
    (role,) = (one for one in yaml.safe_load_all(made) if one["kind"] == "ClusterRole")
    assert role["metadata"]["name"] == "edge-agentk-impersonate"
    assert [one["verbs"] for one in role["rules"]] == [["impersonate"]] * 2
    assert "--cluster-role" in kasctl.fails(*again, "--cluster-role", "a/b", code=2)


def test_modules(kasctl: Kasctl) -> None:
    """agentk's file has them, and GitOps may keep records in agentk's namespace."""
    modules = ("--module", "gitops", "--module", "acme")
    done = kasctl.run(*COMMAND, *ADDRESS, *modules, "--namespace", "edge")
    made = list(yaml.safe_load_all(done.stdout))
    (file,) = (one for one in made if one["metadata"]["name"] == "agentk-file")
    assert yaml.safe_load(file["data"]["agentk.yaml"]) == {
        "modules": {"acme": {}, "gitops": {}}
    }
    (deployment,) = (one for one in made if one["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "--configuration-file=/config/file/agentk.yaml" in container["command"]
    assert container["resources"]["limits"] == {"memory": "2Gi"}
    mounted = {one["name"] for one in container["volumeMounts"]}
    assert mounted == {one["name"] for one in pod["volumes"]}
    found = {
        one["kind"]: one for one in made if one["metadata"]["name"] == "agentk-gitops"
    }
    assert found["RoleBinding"]["subjects"][0]["namespace"] == "edge"
    rights = {
        (resource, verb)
        for rule in found["Role"]["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert ("secrets", "update") in rights
    assert ("secrets", "list") not in rights
    # It says what the default role cannot do.
    assert "--cluster-role" in done.stderr
    again = (*COMMAND, *ADDRESS, "--rotate")
    plain = kasctl.run(*again, "--module", "acme").stdout
    assert "agentk-gitops" not in plain
    assert "--module" in kasctl.fails(*again, "--module", "A b", code=2)
    mistyped = kasctl.fails(*again, "--module", "gitop", code=2)
    assert "did you mean gitops?" in mistyped


def test_live_data(kasctl: Kasctl) -> None:
    """agentk may watch the kinds of live data, nodes included, and change nothing."""
    done = kasctl.run(*COMMAND, *ADDRESS, "--module", "cluster_data")
    made = list(yaml.safe_load_all(done.stdout))
    found = {
        one["kind"]: one
        for one in made
        if one["metadata"]["name"] == "txkas-agentk-cluster-data"
    }
    rules = found["ClusterRole"]["rules"]
    watched = {
        ObjectKind(group, kind.version, kind.kind)
        for kind in KINDS
        for rule in rules
        for group in rule["apiGroups"]
        if group == kind.group and f"{kind.kind.lower()}s" in rule["resources"]
    }
    assert watched == set(KINDS)
    assert {verb for rule in rules for verb in rule["verbs"]} == {
        "get",
        "list",
        "watch",
    }
    (subject,) = found["ClusterRoleBinding"]["subjects"]
    assert subject["name"] == "agentk"


def test_webhooks(kasctl: Kasctl) -> None:
    """agentk may read Services, and no Secret."""
    done = kasctl.run(*COMMAND, *ADDRESS, "--module", "webhooks")
    found = {
        one["kind"]: one
        for one in yaml.safe_load_all(done.stdout)
        if one["metadata"]["name"] == "txkas-agentk-webhooks"
    }
    assert found["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["services"], "verbs": ["get"]}
    ]
    (subject,) = found["ClusterRoleBinding"]["subjects"]
    assert subject["name"] == "agentk"


def test_without_a_private_authority(kasctl: Kasctl) -> None:
    assert "No token was made" in kasctl.fails(*COMMAND, *ADDRESS[:2])
    assert kasctl.store().load().agents == ()
    result = kasctl.run(*COMMAND, *ADDRESS)
    assert "add 'kas.example.org' to development_certificate_names" in result.stderr
    found = by_kind(result.stdout)
    assert "ConfigMap" not in found
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert not [one for one in container["command"] if "--ca-cert-file" in one]
    for volumes in (pod["volumes"], container["volumeMounts"]):
        assert {one["name"] for one in volumes} == {"temporary", "token"}


def test_an_agent_that_is_there(kasctl: Kasctl) -> None:
    kasctl.ok("agent", "add", "prod")
    address = ("--kas-address", "tls://localhost", "--force")
    before = kasctl.store().load()
    assert "pass --rotate" in kasctl.fails(*COMMAND, *address)
    assert kasctl.store().load() == before
    file = kasctl.path / "agentk.yaml"
    arguments = (*COMMAND, *address, "--rotate", "--output-file", str(file))
    said = kasctl.ok(*arguments)
    assert f"kubectl apply -f {file}" in said
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = base64.b64decode(by_kind(file.read_text())["Secret"]["data"]["token"])
    (old, new) = kasctl.store().load().agents[0].tokens
    assert old.expires_at is not None
    assert digest(token).hex() == new.sha256
    before = kasctl.store().load()
    assert "already exists" in kasctl.fails(*arguments)
    assert kasctl.store().load() == before


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "kas.localhost",
        "127.0.0.2",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
    ],
)
def test_the_machine_itself(kasctl: Kasctl, host: str) -> None:
    """A pod reaches no kas at its own address; that costs no token, unless forced."""
    address = ("--kas-address", f"tls://{host}:8150", "--system-cas")
    said = kasctl.fails(*COMMAND, *address, code=2)
    assert "the pod itself" in said
    assert "No token was made" in said
    assert kasctl.store().load().agents == ()
    made = kasctl.run(*COMMAND, *address, "--force").stdout
    assert f"--kas-address=tls://{host}" in made


def test_where_kas_is(kasctl: Kasctl) -> None:
    """Taken from the running kas only where another machine reaches that, too."""
    state = StateDirectory.open(kasctl.state)
    for address in (None, "127.0.0.1:8150", "0.0.0.0:8150", "/run/kas.sock"):
        if address is not None:
            running.tell(state, [Opened("agents", address, state.file("server.crt"))])
        said = kasctl.fails(*COMMAND, code=2)
        assert (
            "--kas-address: pass the address at which the cluster reaches kas"
        ) in said
    running.tell(state, [Opened("agents", "192.0.2.2:8150", state.file("server.crt"))])
    content = kasctl.data(*COMMAND)
    assert content["kind"] == "List"
    assert "--kas-address=tls://192.0.2.2:8150" in str(content["items"])


@pytest.mark.parametrize(
    ("port", "what"),
    [
        (8151, "health and metrics"),
        (8153, "the external API"),
        (8154, "kubernetes_api"),
        (8156, "pages of modules"),
    ],
)
def test_the_port_of_another_listener(kasctl: Kasctl, port: int, what: str) -> None:
    """A mistyped port costs no token, whether kas runs here or not."""
    address = ("--kas-address", f"tls://192.0.2.2:{port}")
    said = kasctl.fails(*COMMAND, *address)
    assert f"port {port} is usually for {what}, and 8150 for agents" in said
    state = StateDirectory.open(kasctl.state)
    agents = Opened("agents", "192.0.2.2:9150", state.file("server.crt"))
    running.tell(state, [agents, Opened(what, f"192.0.2.2:{port}")])
    said = kasctl.fails(*COMMAND, *address)
    assert f"on port {port}, kas listens for {what}" in said
    assert "it listens for agents on: 192.0.2.2:9150.  No token was made" in said
    assert kasctl.store().load().agents == ()
    # Another server may use any port.
    assert "Secret" in by_kind(kasctl.run(*COMMAND, *address, "--system-cas").stdout)


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (("--namespace", "A_b"), "is not the name of a namespace", 2),
        (("--kas-address", "https://kas"), "use wss://kas", 1),
    ],
)
def test_mistakes(
    kasctl: Kasctl, arguments: tuple[str, ...], says: str, code: int
) -> None:
    address = ("--kas-address", "tls://localhost", "--force")
    assert says in kasctl.fails(*COMMAND, *address, *arguments, code=code)
    assert not kasctl.state.exists() or kasctl.store().load().agents == ()


def test_prometheus(kasctl: Kasctl) -> None:
    """agentk may search for Prometheus, and needs no right to proxy to Services."""
    done = kasctl.run(*COMMAND, *ADDRESS, "--module", "prometheus")
    (role,) = [
        one
        for one in yaml.safe_load_all(done.stdout)
        if one["kind"] == "ClusterRole"
        and one["metadata"]["name"] == "txkas-agentk-prometheus"
    ]
    found = {
        (name, *rule["verbs"]) for rule in role["rules"] for name in rule["resources"]
    }
    assert found == {("services", "get", "list"), ("prometheuses", "list")}
