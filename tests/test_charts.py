"""The charts of deploy/helm, as the pinned helm renders them."""

from __future__ import annotations

import copy
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from kas.ctl.manifest import template
from tests.integration import needs
from tunnel import __version__

pytestmark = pytest.mark.integration

DEPLOY = Path(__file__).parents[1] / "deploy"

#: What has no default, by chart.
GIVEN: dict[str, dict[str, Any]] = {
    "agentk": {
        "image": {"repository": "IMAGE"},
        "config": {
            "kasAddress": "tls://kas.example:8150",
            "secretName": "agentk-token",
        },
    },
    "kas": {
        "image": {"repository": "IMAGE"},
        "tls": {"serverName": "kas.example"},
        "redis": {"address": "REDIS:6379"},
    },
}


def helm(command: str, chart: str, *values: dict[str, Any]) -> tuple[int, str]:
    """Run helm with what is always given and *values*: its status and all it says."""
    merged: dict[str, Any] = copy.deepcopy(GIVEN[chart])
    for one in values:
        _merge(merged, one)
    name = [chart] if command == "template" else []
    done = subprocess.run(
        [
            *(str(needs.helm()), command, *name, str(DEPLOY / "helm" / chart)),
            *("--namespace", "txkas", "--kube-version", "1.36.0"),
            *("--values", "-"),
            *(["--strict"] if command == "lint" else []),
        ],
        input=yaml.safe_dump(merged),
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout if done.returncode == 0 else done.stderr


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def rendered(chart: str, *values: dict[str, Any]) -> list[dict[str, Any]]:
    """The documents of a release that is named like its chart, in ``txkas``."""
    code, text = helm("template", chart, *values)
    assert code == 0, text
    return [one for one in yaml.safe_load_all(text) if one]


def refused(chart: str, *values: dict[str, Any]) -> str:
    code, text = helm("template", chart, *values)
    assert code != 0
    return text


def of_kind(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (one for one in documents if one["kind"] == kind)
    return found


def pod(documents: list[dict[str, Any]]) -> Any:
    """The pod of the Deployment, its image named as in the manifests."""
    spec = of_kind(documents, "Deployment")["spec"]["template"]["spec"]
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        assert container.pop("imagePullPolicy", "IfNotPresent") == "IfNotPresent"
        container["image"] = container["image"].partition(":")[0]
    return spec


def rights(documents: list[dict[str, Any]]) -> set[tuple[str, str | None, str, str]]:
    """Kind, namespace, name and role of each binding."""
    return {
        (
            one["kind"],
            one["metadata"].get("namespace"),
            one["metadata"]["name"],
            one["roleRef"]["name"],
        )
        for one in documents
        if one["kind"].endswith("Binding")
    }


LEADER = ("RoleBinding", "txkas", "agentk-leader", "agentk-leader")


@pytest.mark.parametrize("chart", ["agentk", "kas"])
def test_lint(chart: str) -> None:
    code, text = helm("lint", chart)
    assert code == 0, text


@pytest.mark.parametrize("chart", ["agentk", "kas"])
def test_image_is_of_this_version(chart: str) -> None:
    """Where no tag is given, the image is that of the programs beside the chart."""
    spec = of_kind(rendered(chart), "Deployment")["spec"]["template"]["spec"]
    assert spec["containers"][0]["image"] == f"IMAGE:{__version__}"


def test_agentk_is_that_of_the_manifest() -> None:
    """A pod of the chart differs from one of kustomize and of kasctl in nothing."""
    documents = rendered("agentk", {"config": {"kasCaCert": "PEM"}})
    manifest = template()
    expected = pod(manifest)
    # There by the chart, or not mounted at all.
    (ca,) = (one for one in expected["volumes"] if one["name"] == "ca")
    assert ca["configMap"].pop("optional")
    found = pod(documents)
    environment = found["containers"][0]["env"]
    # How it was installed, which GitLab is told.
    told = {one["name"]: one["value"] for one in environment if "value" in one}
    assert told == {
        "GITLAB_AGENT_TELEMETRY_INSTALLATION_METHOD": "helm",
        "GITLAB_AGENT_TELEMETRY_HELM_CHART_VERSION": __version__,
    }
    environment[:] = [one for one in environment if one["name"] not in told]
    assert found == expected
    own = of_kind(documents, "Deployment")["spec"]
    assert own["replicas"] == of_kind(manifest, "Deployment")["spec"]["replicas"]
    (role,) = (one for one in manifest if one["kind"] == "Role")
    assert of_kind(documents, "Role")["rules"] == role["rules"]
    authority = of_kind(documents, "ConfigMap")
    assert authority["metadata"]["name"] == "agentk-ca"
    assert authority["data"] == {"ca.crt": "PEM"}


def test_kas_is_that_of_the_manifest() -> None:
    documents = rendered("kas")
    base = DEPLOY / "kustomize" / "kas" / "base" / "kas.yaml"
    manifest = list(yaml.safe_load_all(base.read_text()))
    assert pod(documents) == pod(manifest)
    for kind, what in (
        ("Deployment", ("spec", "replicas")),
        ("Deployment", ("spec", "strategy", "rollingUpdate")),
        ("Service", ("spec", "ports")),
        ("Service", ("spec", "type")),
        ("PodDisruptionBudget", ("spec", "maxUnavailable")),
    ):
        one, other = of_kind(documents, kind), of_kind(manifest, kind)
        for key in what:
            one, other = one[key], other[key]
        assert one == other, (kind, what)
    own, other = (
        yaml.safe_load(of_kind(some, "ConfigMap")["data"]["kas.yaml"])
        for some in (documents, manifest)
    )
    assert own == other


def test_least_rights_by_default() -> None:
    view = ("RoleBinding", "txkas", "agentk", "view")
    assert rights(rendered("agentk")) == {LEADER, view}


def test_rights_that_are_asked_for() -> None:
    def bound(**rbac: Any) -> set[tuple[str, str | None, str, str]]:
        return rights(rendered("agentk", {"rbac": rbac})) - {LEADER}

    assert bound(scope="none") == set()
    # as it stands in values for GitLab's chart
    view = ("RoleBinding", "txkas", "agentk", "view")
    assert bound(useExistingRole=None) == {view}
    assert rights(rendered("agentk", {"rbac": {"create": False}})) == set()
    assert bound(namespaces=["shop", "txkas", "shop"], useExistingRole="edit") == {
        ("RoleBinding", "shop", "txkas-agentk", "edit"),
        ("RoleBinding", "txkas", "agentk", "edit"),
    }
    assert bound(scope="cluster", useExistingRole="cluster-admin") == {
        ("ClusterRoleBinding", None, "txkas-agentk", "cluster-admin")
    }
    own = "txkas-agentk-impersonate"
    assert bound(scope="none", impersonate=True) == {
        ("ClusterRoleBinding", None, own, own)
    }


@pytest.mark.parametrize("resource, other", [("users", "Groups"), ("groups", "Users")])
def test_names_to_act_as(resource: str, other: str) -> None:
    """Users and groups are restricted, each by a list of its own."""
    key = f"impersonate{resource.capitalize()}"
    documents = rendered("agentk", {"rbac": {"impersonate": True, key: ["developers"]}})
    rules = of_kind(documents, "ClusterRole")["rules"]
    (named,) = (one for one in rules if resource in one["resources"])
    assert named["resourceNames"] == ["developers"]
    (open_,) = (one for one in rules if other.lower() in one["resources"])
    assert "resourceNames" not in open_
    assert {verb for rule in rules for verb in rule["verbs"]} == {"impersonate"}


def test_accounts_to_act_as() -> None:
    """Each by its name, in its namespace alone."""
    documents = rendered(
        "agentk", {"rbac": {"scope": "none", "serviceAccounts": ["web/deployer"]}}
    )
    name = "txkas-agentk-as-deployer"
    assert rights(documents) == {LEADER, ("RoleBinding", "web", name, name)}
    (role,) = (
        one for one in documents if one["metadata"]["name"] == name and "rules" in one
    )
    assert role["kind"] == "Role"
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["serviceaccounts"],
            "resourceNames": ["deployer"],
            "verbs": ["impersonate"],
        }
    ]


def test_token_of_the_values() -> None:
    documents = rendered("agentk", {"config": {"token": "hush", "secretName": None}})
    secret = of_kind(documents, "Secret")
    assert secret["data"] == {"token": "aHVzaA=="}
    (volume,) = (one for one in pod(documents)["volumes"] if one["name"] == "token")
    assert volume["secret"]["secretName"] == secret["metadata"]["name"]
    others = [one for one in documents if one["kind"] != "Secret"]
    assert "hush" not in yaml.safe_dump(others)


def test_options_of_agentk() -> None:
    """What the values become are options that agentk knows."""
    from agentk.tap import Options

    told = {
        "tracing": {"otlp_endpoint": "https://collector.example"},
        "sentry": {"dsn": "https://hush@sentry.example/1"},
        "profile": {"enabled": True},
    }
    documents = rendered(
        "agentk",
        {
            "config": {
                "kasAddress": "wss://kas.example/tunnel",
                "kasCaCert": "PEM",
                "kasHeaders": ["Cookie: a=b"],
                "kubernetes": {"allow_own_namespace": True},
                "modules": {"kubernetes_api": {}},
                "observability": {
                    "tls": {"enabled": True, "secret": {"name": "own"}},
                    **told,
                },
            },
            "extraArgs": ["--log-level=debug"],
        },
    )
    spec = pod(documents)
    (container,) = spec["containers"]
    command = container["command"]
    options = [one.partition("=") for one in command[command.index("agentk") + 1 :]]
    known = {name for name, *_ in Options.optParameters} | {"kas-address", "kas-header"}
    assert {name.removeprefix("--") for name, _, _ in options} - known == set()
    mounted = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    for _, _, value in options:
        if value.startswith("/"):
            assert str(Path(value).parent) in mounted
    assert set(mounted.values()) == {one["name"] for one in spec["volumes"]}
    assert "--kas-header=Cookie: a=b" in command
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    (configuration,) = (
        one["stringData"]["agentk.yaml"]
        for one in documents
        if one["kind"] == "Secret" and "stringData" in one
    )
    others = [one for one in documents if one["kind"] != "Secret"]
    assert "hush" not in yaml.safe_dump(others)
    assert yaml.safe_load(configuration) == {
        "kubernetes": {"allow_own_namespace": True},
        "modules": {"kubernetes_api": {}},
        "observability": told,
    }


def test_policy() -> None:
    """The webhook has a Service that leads to agentk."""
    policy = {"file": "/policy/policy.yaml"}
    values = {"config": {"policy": policy}, "admission": {"enabled": True}}
    documents = rendered("agentk", values)
    service = of_kind(documents, "Service")
    deployment = of_kind(documents, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    [port] = service["spec"]["ports"]
    assert port["port"] == 443
    [text] = (
        one["stringData"]["agentk.yaml"]
        for one in documents
        if one["kind"] == "Secret" and "stringData" in one
    )
    assert yaml.safe_load(text)["policy"] == {
        **policy,
        "admission": {
            "address": f":{port['targetPort']}",
            "service": service["metadata"]["name"],
        },
    }
    assert "no effect without config.policy" in refused(
        "agentk", {"admission": {"enabled": True}}
    )
    plain = {one["kind"] for one in rendered("agentk", {"config": {"policy": policy}})}
    assert "Service" not in plain


def test_rights_for_gitops() -> None:
    """In the namespace of the release, and only where the module is on."""

    def roles(modules: dict[str, Any]) -> list[Any]:
        config = {"kasAddress": "tls://kas.example:8150", "modules": modules}
        return [
            one
            for one in rendered("agentk", {"config": config})
            if one["kind"] == "Role" and one["metadata"]["name"].endswith("-gitops")
        ]

    assert roles({}) == []
    (role,) = roles({"gitops": {}})
    assert [one["resources"] for one in role["rules"]] == [["configmaps"], ["secrets"]]


def cluster_roles(suffix: str, scope: str, modules: dict[str, Any]) -> list[Any]:
    """The ClusterRoles of a module, by the end of their names."""
    config = {"kasAddress": "tls://kas.example:8150", "modules": modules}
    values = {"config": config, "rbac": {"scope": scope}}
    return [
        one
        for one in rendered("agentk", values)
        if one["kind"] == "ClusterRole" and one["metadata"]["name"].endswith(suffix)
    ]


def test_rights_for_live_data() -> None:
    """In the whole cluster, and only where the module is on."""

    roles = partial(cluster_roles, "-cluster-data")

    assert roles("cluster", {}) == []
    assert roles("namespaced", {"cluster_data": {}}) == []
    (role,) = roles("cluster", {"cluster_data": {}})
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {
        "get",
        "list",
        "watch",
    }
    assert "nodes" in role["rules"][0]["resources"]


def test_rights_for_webhooks() -> None:
    """agentk reads Services, and no Secret."""

    roles = partial(cluster_roles, "-webhooks")

    assert roles("cluster", {}) == []
    assert roles("namespaced", {"webhooks": {}}) == []
    (role,) = roles("cluster", {"webhooks": {}})
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["services"], "verbs": ["get"]}
    ]


def test_rights_for_prometheus() -> None:
    """agentk may search for Prometheus, only where the module is on."""

    roles = partial(cluster_roles, "-prometheus")

    assert roles("cluster", {}) == []
    assert roles("namespaced", {"prometheus": {}}) == []
    (role,) = roles("cluster", {"prometheus": {}})
    assert role["rules"][0]["resources"] == ["services"]


def test_password_of_redis() -> None:
    documents = rendered(
        "kas",
        {
            "redis": {
                "username": "kas",
                "passwordSecret": "own",
                "tls": {"enabled": True, "caSecret": "authority"},
            },
            "config": {"agent": {"listen": {"address": ":9999"}}},
        },
    )
    found = yaml.safe_load(of_kind(documents, "ConfigMap")["data"]["kas.yaml"])
    assert found["redis"] == {
        "server": {"address": "REDIS:6379"},
        "username": "kas",
        "password_file": "/config/redis/password",
        "tls": {"enabled": True, "ca_certificate_file": "/config/redis-ca/ca.crt"},
    }
    # what is given by itself wins, and the rest stays
    assert found["agent"]["listen"]["address"] == ":9999"
    assert found["agent"]["listen"]["key_file"] == "/config/tls/tls.key"
    spec = pod(documents)
    secrets = {
        one["name"]: one["secret"]["secretName"]
        for one in spec["volumes"]
        if "secret" in one
    }
    assert (secrets["redis"], secrets["redis-ca"]) == ("own", "authority")
    mounts = {one["mountPath"] for one in spec["containers"][0]["volumeMounts"]}
    assert {"/config/redis", "/config/redis-ca"} <= mounts


def test_one_kas_alone() -> None:
    documents = rendered("kas", {"replicas": 1, "redis": {"address": ""}})
    assert "PodDisruptionBudget" not in {one["kind"] for one in documents}
    found = yaml.safe_load(of_kind(documents, "ConfigMap")["data"]["kas.yaml"])
    assert "redis" not in found


def test_what_is_wrong_is_said() -> None:
    both = {"config": {"token": "hush"}}
    assert "are mutually exclusive" in refused("agentk", both)
    neither = {"config": {"secretName": None}}
    assert "kasctl agent add" in refused("agentk", neither)
    assert "serviceAccount.name" in refused(
        "agentk", {"serviceAccount": {"create": False}}
    )
    assert "kasAddress" in refused("agentk", {"config": {"kasAddress": "grpcs://x"}})
    assert "scope" in refused("agentk", {"rbac": {"scope": "all"}})
    assert "kasAdress" in refused("agentk", {"config": {"kasAdress": "tls://x"}})
    assert "replicas=1" in refused("kas", {"redis": {"address": ""}})


def test_values_of_gitlabs_chart() -> None:
    """Settings for GitLab's chart `gitlab-agent` are taken as they are."""
    documents = rendered(
        "agentk",
        {
            "image": {"tag": "v1", "pullPolicy": "IfNotPresent"},
            "replicas": 1,
            "maxSurge": 0,
            "maxUnavailable": 1,
            "serviceAccount": {"create": False, "name": "shared", "annotations": {}},
            "rbac": {"create": False},
            "podSecurityContext": {"fsGroup": 2000},
            "podLabels": {"role": "developer"},
            "additionalLabels": {"team": "a"},
            "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
            "priorityClassName": "high",
            "runtimeClassName": "runc",
            "hostAliases": [{"ip": "127.0.0.1", "hostnames": ["foo.local"]}],
        },
    )
    template = of_kind(documents, "Deployment")["spec"]["template"]
    spec = template["spec"]
    assert spec["containers"][0]["image"] == "IMAGE:v1"
    assert spec["serviceAccountName"] == "shared"
    assert spec["securityContext"] == {"fsGroup": 2000}
    assert template["metadata"]["labels"].items() >= {
        ("role", "developer"),
        ("team", "a"),
    }
    assert spec["containers"][0]["env"][-1]["name"] == "HTTPS_PROXY"
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert (spec["priorityClassName"], spec["runtimeClassName"]) == ("high", "runc")
    assert spec["tolerations"] and spec["affinity"] and spec["hostAliases"]
    assert {one["kind"] for one in documents} == {"Deployment"}


#: What teams keep in their values of GitLab's chart, with the features that are not
#: here turned off.
OFF: dict[str, Any] = {
    "config": {
        "receptive": {"enabled": False},
        "api": {"jwtPublicKey": ""},
        "operational_container_scanning": {"enabled": False},
        "observability": {
            "tls": {
                "enabled": False,
                "cert": "",
                "key": "",
                "secret": {"create": False, "name": "gitlab-agent-observability"},
            }
        },
    },
    "serviceMonitor": {"enabled": False},
    "service": {"internalPort": 8080},
}


def test_values_of_gitlab_that_say_off() -> None:
    """They change nothing."""
    assert rendered("agentk", OFF) == rendered("agentk")


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"config": {"receptive": {"enabled": True}}}, "receptive"),
        ({"config": {"api": {"jwtPublicKey": "x"}}}, "jwtPublicKey"),
        (
            {"config": {"operational_container_scanning": {"enabled": True}}},
            "operational_container_scanning",
        ),
        ({"config": {"observability": {"tls": {"cert": "x"}}}}, "cert"),
        ({"config": {"observability": {"tls": {"key": "x"}}}}, "key"),
        (
            {"config": {"observability": {"tls": {"secret": {"create": True}}}}},
            "create",
        ),
        ({"serviceMonitor": {"enabled": True}}, "serviceMonitor"),
    ],
)
def test_values_of_gitlab_that_say_on(values: dict[str, Any], key: str) -> None:
    """They are refused by name."""
    assert key in refused("agentk", OFF, values)


def test_registry() -> None:
    """It precedes the repository, as in GitLab's chart."""
    values = {"image": {"registry": "registry.example.org", "tag": "v1"}}
    deployment = of_kind(rendered("agentk", values), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.org/IMAGE:v1"
