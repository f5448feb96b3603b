"""``agentk-policy``, without a cluster."""

from __future__ import annotations

import json
import re
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentk.policy.command import main
from agentk.policy.engine import Engine
from agentk.policy.rendering import admission_objects, rbac_objects
from agentk.policy.replay import MAX_CHANGES, replay
from tests.agentk.policy.test_engine import ALL, engine_of, policy_of
from tests.agentk.policy.test_signature import ALICE, BOB
from tests.agentk.policy.world import UID
from tunnel.errors import ConfigurationError

POLICY = """\
kind: AgentPolicy
identities: {users: ["*@example.org"], groups: [ops]}
rules:
- {name: read, allow: [get, list], resources: ["*"], except: [secrets]}
- {name: shell, allow: [create], resources: [pods/exec], groups: [ops], argv0: [ls]}
- name: friday
  deny: [create]
  resources: [pods]
  window: {days: [Fri], from: "16:00", zone: Europe/Berlin}
- {name: webhooks, allow: [connect], resources: [services], ports: [80]}
- {name: metrics, allow: [get], paths: [/metrics]}
"""


@pytest.fixture
def policy(tmp_path: Path) -> str:
    """Return the path of a policy."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return str(path)


def test_explain(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each rule, and its first key that does not match."""
    shell = ["create", "pods/exec", "web", "-n", "app", "--as", "a@example.org"]
    more = ["--as-group", "ops", "--argv0", "ls"]
    thursday = ["--at", "2026-11-26T17:00:00+01:00"]
    assert main(["explain", policy, *shell, *more, *thursday]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "deny  friday: does not match: window",
        "allow read: does not match: allow",
        "allow shell: matches",
        "allow webhooks: does not match: allow",
        "allow metrics: does not match: allow",
        'create pods/exec "web" in the namespace "app": allowed (shell)',
    ]
    friday = ["--at", "2026-11-27T17:00:00+01:00"]
    assert main(["explain", policy, *shell, *more, *friday]) == 1
    assert "denied (the rule 'friday' denies it)" in capsys.readouterr().out
    assert main(["explain", policy, *shell, *thursday]) == 1
    assert "allow shell: does not match: groups" in capsys.readouterr().out
    assert main(["explain", policy, "get", "/metrics", "--as", "a@example.org"]) == 0
    module = ["connect", "services", "r", "-n", "flux", "--module", "webhooks"]
    assert main(["explain", policy, *module, "--port", "80"]) == 0
    assert main(["explain", policy, *module, "--port", "81"]) == 1
    assert main(["explain", policy, "get", "pods", "--at", "soon"]) == 2


UPDATES = """\
kind: AgentPolicy
rules:
- {name: change, allow: [update], resources: [configmaps]}
- {name: new, allow: [create], resources: [configmaps], namespaces: [dev]}
- {name: keep, deny: [create], resources: [configmaps], names: [keep]}
"""


def test_updates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A PUT needs the verb create as well, for each command."""
    path = tmp_path / "policy.yaml"
    path.write_text(UPDATES)
    policy = str(path)
    update = ["explain", policy, "update", "configmaps"]
    assert main([*update, "x", "-n", "dev"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "deny  keep: does not match: deny",
        "allow change: matches",
        "allow new: does not match: allow",
        'update configmaps "x" in the namespace "dev": allowed (change)',
        "deny  keep: does not match: names",
        "allow change: does not match: allow",
        "allow new: matches",
        'create configmaps "x" in the namespace "dev": allowed (new)',
    ]
    assert main([*update, "x", "-n", "prod"]) == 1
    assert main([*update, "keep", "-n", "dev"]) == 1
    cases = tmp_path / "cases.yaml"
    cases.write_text(
        """\
cases:
- {verb: update, resource: configmaps, namespace: dev, name: x, expect: allow}
- {verb: update, resource: configmaps, namespace: prod, name: x, expect: deny}
- {verb: update, resource: configmaps, namespace: dev, name: keep, expect: deny,
   by: keep}
"""
    )
    assert main(["test", policy, str(cases)]) == 0, capsys.readouterr()
    line = json.dumps(event(verb="update", resource="configmaps")).encode()
    result = replay([line], engine_of(f"rules: [{ALL}]"), engine_of(UPDATES[18:]))
    assert [(one.before, one.after) for one in result.changes] == [
        ("allow by all", "deny")
    ]
    changes = policy_of("rules: [{name: a, allow: [update], resources: [configmaps]}]")
    rendered, _ = admission_objects(changes, "txkas", "agentk")
    permitted = rendered["spec"]["validations"][0]["expression"]
    assert 'request.operation in ["UPDATE"]' in permitted
    assert "CREATE" not in permitted


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("gett", "pods"), "the verbs are get, list"),
        (("*", "pods"), "the verbs are get, list"),
        (("get", "pod"), "write 'pods'"),
        (("get", "svc/proxy"), "write 'services'"),
        (("get", "deploy.apps"), "write 'deployments'"),
        (("get", "Pods"), "write the plural in lower case"),
    ],
)
def test_requests_that_cannot_be(
    policy: str,
    arguments: tuple[str, ...],
    problem: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They would be denied by no rule, which looks like a decision."""
    assert main(["explain", policy, *arguments]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("allow: [read], resources: [pods]", "the verbs are get, list"),
        ("deny: [get], resources: [pod]", "write 'pods'"),
        ("deny: [get], resources: [deployment.apps]", "write 'deployments'"),
        ("deny: [get], resources: ['*'], except: [secret]", "write 'secrets'"),
    ],
)
def test_rules_that_never_match(rule: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        policy_of(f"rules: [{{name: a, {rule}}}]")
    # A kind of another group may have such a name.
    policy_of("rules: [{name: a, deny: [get], resources: [pod.example.org]}]")


def test_cases(policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Expected decisions, and those that differ."""
    cases = tmp_path / "cases.yaml"
    cases.write_text(
        """\
cases:
- {as: a@example.org, verb: list, resource: pods, expect: allow, by: read}
- {as: a@example.org, verb: get, resource: secrets, namespace: a, expect: deny}
- {as: a@example.org, groups: [ops], verb: create, resource: pods/exec, argv0: ls,
   at: "2026-11-27T17:00:00+01:00", expect: deny, by: friday}
- {verb: get, resource: pods, expect: deny, by: identities}
- {as: a@example.org, verb: create, path: /version, expect: deny}
- {as: a@example.org, verb: create, expect: allow,
   resource: selfsubjectaccessreviews.authorization.k8s.io}
"""
    )
    assert main(["test", policy, str(cases)]) == 0
    assert "6 of 6 cases passed" in capsys.readouterr().out
    text = cases.read_text()
    cases.write_text(text.replace("by: read", "by: other").replace("deny}", "allow}"))
    assert main(["test", policy, str(cases)]) == 1
    said = capsys.readouterr().out
    assert "case 1: list pods in all namespaces: expected allow by other, got" in said
    assert "3 of 6 cases passed" in said
    cases.write_text("cases: [{verb: get, resource: pods}]")
    assert main(["test", policy, str(cases)]) == 2
    assert "cases.yaml:1:1: cases: case 1 has no 'expect" in capsys.readouterr().err


def test_sign_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The signatures that agentk would accept."""
    path, keys = tmp_path / "policy.yaml", tmp_path / "keys"
    text = f'{POLICY}serial: 3\nclusters: ["{UID}"]\n'
    path.write_text(text)
    keys.write_text(ALICE.line() + BOB.line())
    signature = tmp_path / "policy.yaml.sig"
    signature.write_text(ALICE.sign(text.encode()))
    arguments = ["sign-check", str(path), "--keys", str(keys)]
    assert main(arguments) == 0
    assert capsys.readouterr().out == "serial 3, signed by alice\n"
    assert main([*arguments, "--signatures", "2"]) == 1
    assert "1 of 2 required" in capsys.readouterr().err
    signature.unlink()
    assert main(arguments) == 2
    assert "policy.yaml.sig" in capsys.readouterr().err
    path.write_text(POLICY)
    signature.write_text(ALICE.sign(POLICY.encode()))
    assert main(arguments) == 2
    assert "needs clusters and a serial" in capsys.readouterr().err


def event(**more: Any) -> dict[str, Any]:
    """Return an event of the audit log."""
    return {
        "v": 1,
        "seq": 1,
        "stage": "answered",
        "time": "2026-11-26T16:00:00.000000+00:00",
        "action": "kubernetes.request",
        "as": "a@example.org",
        "verb": "get",
        "resource": "pods",
        "namespace": "app",
        "name": "web",
        "path": "/api/v1/namespaces/app/pods/web",
        **more,
    }


EVENTS = [
    event(),
    event(resource="secrets"),
    event(resource="secrets"),
    event(verb="create", subresource="exec", stage="begun"),
    event(verb="create", subresource="exec", stage="ended"),
    event(verb="get", resource="", namespace="", name="", path="/metrics"),
    event(action="gitops.approve"),
]


def test_diff(policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The requests of a log whose decision changes."""
    old = tmp_path / "old.yaml"
    old.write_text(f"kind: AgentPolicy\nrules: [{ALL}]\n")
    log = tmp_path / "audit.jsonl"
    log.write_text("".join(f"{json.dumps(one)}\n" for one in EVENTS) + "{\n")
    assert main(["diff", str(old), policy, "--replay", str(log)]) == 1
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        '2x a@example.org: get secrets "web" in the namespace "app": allow by all '
        "-> deny",
        '1x a@example.org: create pods/exec "web" in the namespace "app": allow by all '
        "-> deny",
        "1x a@example.org: get /metrics: deny -> allow by metrics",
        "4 of 5 requests would get another decision",
    ]
    assert "1 lines could not be read" in said.err
    assert main(["diff", policy, policy, "--replay", str(log)]) == 0


@pytest.mark.parametrize("verb", ["get", "create"])
def test_replay_of_sessions(verb: str) -> None:
    """A WebSocket is a GET request, and needs the verb create."""
    event = {
        "action": "kubernetes.request",
        "stage": "begun",
        "verb": verb,
        "resource": "pods",
        "subresource": "exec",
        "namespace": "a",
        "name": "web",
    }
    rule = f"rules: [{ALL}, {{name: d, deny: [create], resources: [pods/exec]}}]"
    line = json.dumps(event).encode()
    found = replay([line], engine_of(f"rules: [{ALL}]"), engine_of(rule))
    (change,) = found.changes
    assert change.after == "deny by d"


def test_replay_is_limited() -> None:
    """The list of changes has a limit; the number of requests does not."""
    old, new = engine_of(f"rules: [{ALL}]"), Engine(policy_of(""))
    number = MAX_CHANGES + 10
    lines = (json.dumps(event(name=f"n{one}")).encode() for one in range(number))
    result = replay(lines, old, new)
    assert (len(result.changes), result.left_out) == (MAX_CHANGES, 10)
    assert result.requests == number


def test_replay_is_fast() -> None:
    """A million lines take less than a minute."""
    old, new = engine_of(POLICY[18:]), engine_of(f"rules: [{ALL}]")
    lines = [json.dumps(one).encode() for one in EVENTS] * 700
    begun = time.process_time()
    assert replay(lines, old, new).requests == 3500
    assert (time.process_time() - begun) / len(lines) < 60e-6


def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Missing and wrong files have their own exit status."""
    assert main(["explain", str(tmp_path / "none"), "get", "pods"]) == 2
    path = tmp_path / "policy.yaml"
    path.write_text("kind: AgentPolicy\nrules: [{name: A}]\n")
    assert main(["render", "rbac", str(path)]) == 2
    assert "policy.yaml:2:" in capsys.readouterr().err


RENDERED = policy_of(
    """\
identities: {users: [alice, bob], groups: ["*"]}
rules:
- {name: read, allow: [get, list], resources: ["*", pods/log, "*/scale"]}
- {name: apps, allow: ["*"], except_verbs: [delete], resources: ["*.apps/*"],
   namespaces: [a, b]}
- {name: wide, allow: [create], resources: [configmaps], namespaces: ["app-*"]}
- {name: named, allow: [get], resources: [secrets], names: [one], namespaces: [a]}
- {name: paths, allow: [get], paths: [/metrics, "/logs/*"]}
- {name: users, allow: ["*"], resources: ["*"], groups: [ops]}
- {name: connect, allow: [connect], resources: [services]}
- {name: no, deny: ["*"], resources: ["*"]}
"""
)


def test_rbac() -> None:
    """Roles permit what allow rules permit, in their namespaces where RBAC can."""
    objects = rbac_objects(RENDERED, "txkas", "agentk")
    kinds = [(one["kind"], one["metadata"].get("namespace")) for one in objects]
    assert kinds == [
        ("ClusterRole", None),
        ("ClusterRoleBinding", None),
        ("Role", "a"),
        ("RoleBinding", "a"),
        ("Role", "b"),
        ("RoleBinding", "b"),
        ("Role", "txkas"),
        ("RoleBinding", "txkas"),
    ]
    verbs = ["get", "list"]
    assert objects[0]["rules"][:-2] == [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": verbs},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": verbs},
        {"apiGroups": ["*"], "resources": ["*/scale"], "verbs": verbs},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
        {"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]},
        {
            "apiGroups": [""],
            "resources": ["users"],
            "verbs": ["impersonate"],
            "resourceNames": ["alice", "bob"],
        },
        {"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"]},
    ]
    in_a = objects[2]["rules"]
    assert "delete" not in in_a[0]["verbs"] and "impersonate" not in in_a[0]["verbs"]
    assert in_a[1]["resourceNames"] == ["one"]
    assert objects[3]["subjects"] == [
        {"kind": "ServiceAccount", "name": "agentk", "namespace": "txkas"}
    ]


def test_constrained_rbac() -> None:
    """With constrained impersonation, users get what the rules permit."""
    objects = rbac_objects(RENDERED, "txkas", "agentk", constrained=True)
    rules = objects[0]["rules"]
    prefix = "impersonate-on:user-info:"
    on_all = [one["verbs"] for one in rules if one.get("resources") == ["*"]]
    assert on_all[0] == ["get", "list"]
    assert on_all[1] == [f"{prefix}get", f"{prefix}list"]
    # The rule for users gives agentk itself nothing.
    assert len(on_all) == 3 and all(one.startswith(prefix) for one in on_all[2])
    users = [one for one in rules if one.get("resources") == ["users"]]
    assert users == [
        {
            "apiGroups": ["authentication.k8s.io"],
            "resources": ["users"],
            "verbs": ["impersonate:user-info"],
            "resourceNames": ["alice", "bob"],
        }
    ]
    assert not any("impersonate" in one["verbs"] for one in rules)


def test_render(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The output is YAML for kubectl."""
    for kind, kinds in (
        ("rbac", ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
        (
            "admission",
            ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"],
        ),
    ):
        assert main(["render", kind, policy, "--namespace", "ns"]) == 0
        said = capsys.readouterr()
        found = list(yaml.safe_load_all(said.out))
        assert said.err.splitlines() == (
            [
                "the roles are wider than 'read': except",
                "RBAC has no deny rules: 'friday' is left out",
            ]
            if kind == "rbac"
            else []
        )
        assert [one["kind"] for one in found] == kinds


def test_admission() -> None:
    """Only rules about writes of objects become conditions."""
    policy, binding = admission_objects(RENDERED, "txkas", "agentk")
    assert policy["metadata"]["name"] == "agentk-policy-txkas-agentk"
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    spec = policy["spec"]
    assert spec["failurePolicy"] == "Fail"
    condition = spec["matchConditions"][0]["expression"]
    assert '"system:serviceaccount:txkas:agentk"' in condition
    permitted, no = (one["expression"] for one in spec["validations"])
    assert "configmaps" in permitted and "startsWith" in permitted
    assert "secrets" not in permitted.replace("'configmaps', 'secrets'", "")
    assert no.startswith("(!variables.is_user && variables.place")


def test_the_guide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The policy and the cases of docs/policy.rst are valid."""
    page = (Path(__file__).parents[3] / "docs" / "policy.rst").read_text()
    found = re.search(r"``policy\.yaml``::\n\n((?:    .*\n)+)", page)
    cases = re.search(r"expected ones::\n\n((?:        .*\n)+)", page)
    assert found is not None and cases is not None
    (tmp_path / "policy.yaml").write_text(textwrap.dedent(found[1]))
    (tmp_path / "cases.yaml").write_text(textwrap.dedent(cases[1]))
    arguments = [str(tmp_path / one) for one in ("policy.yaml", "cases.yaml")]
    assert main(["test", *arguments]) == 0, capsys.readouterr()
