"""The policy of a cluster's owner, beside a real API server and a hostile kas."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
import pytest
import yaml

from agentk.policy.questions import Identity
from tests.integration import needs
from tests.integration.cluster import ControlPlane
from tests.integration.hostile_module import DROPIN
from tests.integration.kubectl import PATIENT, Kubectl
from tests.integration.module_kas import python_path
from tests.integration.processes import eventually
from tests.integration.stack import Agentk, Kas, fetch, metric

_POLICY = """\
kind: AgentPolicy
clusters: [{uid}]
serial: {serial}
identities: {{agent: true, users: ["*@example.org"], groups: [dev], never: ["boss@*"]}}
rules:
- name: read
  allow: [get, list, watch]
  resources: ["*", pods/log]
  except: [secrets]
- {{name: shell, allow: [create], resources: [pods/exec], namespaces: [{namespace}]}}
- name: write
  allow: [create, patch]
  resources: [configmaps]
  namespaces: ["policy-*"]
- {{name: night, deny: ["*"], resources: [pods], namespaces: [default]}}
{more}
"""

_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: web, image: any, command: [sleep, "600"]}]
"""


CONFIG_MAP = {"metadata": {"generateName": "x-"}}


def marked_as(user: str, group: str, mark: str) -> dict[str, str]:
    """
    Return the header fields of a request that agentk sends as a user.

    :param mark: the namespace of agentk; empty for a request beside agentk.
    """
    fields = {"Impersonate-User": user, "Impersonate-Group": group}
    if mark:
        fields["Impersonate-Extra-txkas.dev%2Fvia"] = mark
    return fields


class PolicyStand:
    """kas, agentk with a policy, and kubectl."""

    def __init__(self, folder: Path, kas: Kas, cluster: ControlPlane) -> None:
        self.folder = folder
        self.kas = kas
        self.cluster = cluster
        self.namespace = f"policy-{secrets.token_hex(4)}"
        found = cluster.call("GET", "/api/v1/namespaces/kube-system")
        self.uid = found["metadata"]["uid"]
        self.policy = folder / "policy.yaml"
        self.write(1)
        options = folder / "agentk.yaml"
        options.write_text(
            f"modules:\n  cluster_data: {{}}\npolicy:\n  file: {self.policy}\n"
        )
        self.options: tuple[str, ...] = ("--configuration-file", str(options))
        self.agentk = self.make_agentk()

    def make_agentk(self) -> Agentk:
        """Return agentk with all rights."""
        return Agentk(self.kas, self.kas.add_agent("main"), self.cluster.agent)

    def write(self, serial: int, more: str = "") -> None:
        """Replace the policy."""
        new = self.folder / "new"
        text = _POLICY.format(
            uid=self.uid, serial=serial, namespace=self.namespace, more=more
        )
        new.write_text(text)
        new.rename(self.policy)

    def user(self, name: str, *access: str) -> Kubectl:
        """Add a user, and return kubectl."""
        kubeconfig = self.kas.add_user(name, *access)
        return self.kubectl(kubeconfig)

    def kubectl(self, kubeconfig: Path) -> Kubectl:
        """Return kubectl with a kubeconfig."""
        return Kubectl(
            self.cluster.assets / "kubectl",
            kubeconfig,
            self.namespace,
            cache=self.folder / "discovery",
        )

    def decisions(self, result: str) -> float:
        """Return the number of decisions with a result."""
        name = f'agentk_policy_decisions_total{{result="{result}"}}'
        return metric(self.agentk.observability, name)


@pytest.fixture
def policed(
    tmp_path: Path, lone_kas: Kas, control_plane: ControlPlane
) -> Iterator[PolicyStand]:
    """Everything, started; kas has a hostile module."""
    audit = tmp_path / "audit.jsonl"
    lone_kas.observability_settings = (f"audit: {{file: {audit}, events: all}}",)
    lone_kas.settings = "modules:\n  cluster_data: {}\n  hostile: {}\n"
    plugins = tmp_path / "twisted" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "tests_hostile_modules.py").write_text(DROPIN)
    stand = PolicyStand(tmp_path, lone_kas, control_plane)
    lone_kas.start(environment=python_path(tmp_path))
    control_plane.add_namespace(stand.namespace)
    stand.agentk.start(*stand.options)
    yield stand
    control_plane.remove_namespace(stand.namespace)
    if stand.agentk.process is not None:
        stand.agentk.process.kill()


def test_kubectl(policed: PolicyStand) -> None:
    """What kubectl shows of permitted and denied requests, and what both logs say."""
    stand = policed
    direct = stand.kubectl(stand.cluster.admin)
    direct.ok("apply", "-f", "-", input=_POD.encode())
    direct.ok("wait", "--for=condition=Ready", "pods/web", PATIENT)
    root = stand.user("root", "--as-agent")
    assert "web" in root.ok("get", "pods")
    for transport in "websocket", "spdy":
        shell = Kubectl(
            root.program, root.kubeconfig, root.namespace, transport, root.cache
        )
        said = eventually(partial(_say, shell), 60)
        assert said == "yes\n"
    # The rule, for requests and for upgrades.
    stand.write(2, "- {name: late, deny: [create], resources: [pods/exec]}")
    eventually(
        lambda: metric(stand.agentk.observability, "agentk_policy_serial") == 2, 30
    )
    for transport in "websocket", "spdy":
        shell = Kubectl(
            root.program, root.kubeconfig, root.namespace, transport, root.cache
        )
        done = shell("exec", "web", "--", "echo", "yes")
        assert done.code != 0 and not done.out
        assert (
            b'create pods/exec "web" in the namespace "'
            + stand.namespace.encode()
            + b"\" is forbidden by the policy of the cluster's owner: the rule 'late' "
            b"denies it"
        ) in done.err, done.err
    done = root("get", "pods", "-n", "default")
    assert b"Error from server (Forbidden)" in done.err, done.err
    assert b"the rule 'night' denies it" in done.err
    done = root("get", "secrets")
    assert b"no rule permits it" in done.err
    done = root("delete", "pod", "web")
    assert b"no rule permits it" in done.err
    root.ok(
        "apply",
        "--server-side",
        "-f",
        "-",
        input=b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ours}\n",
    )
    # A user whom kas may not claim, although the API server would permit it.
    alice = stand.user("alice", "--as", "alice@example.org")
    assert b"Forbidden" in alice("get", "pods").err
    stand.cluster.permit(
        "alice@example.org",
        stand.namespace,
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]},
    )
    eventually(lambda: alice("get", "pods").code == 0, 30, "the right is in effect")
    boss = stand.user("boss", "--as", "boss@example.org")
    assert b"kas may never claim 'boss@example.org'" in boss("get", "pods").err
    # The audit log of kas.
    events = [
        json.loads(line)
        for line in (stand.folder / "audit.jsonl").read_text().splitlines()
    ]
    denied = [one for one in events if one.get("by") == "owner"]
    plain = [one for one in denied if one.get("resource") == "secrets"]
    assert plain and {one["stage"] for one in plain} == {"denied"}
    assert {one["outcome"] for one in denied} == {"403"}
    shells = [one for one in denied if one.get("subresource") == "exec"]
    assert {one["stage"] for one in shells} == {"ended"}
    assert stand.decisions("denied") >= len(denied)
    # agentk's own log.
    log = (stand.kas.folder / "agentk.log").read_text()
    assert "the policy of the cluster's owner denied" in log


def _say(kubectl: Kubectl) -> str:
    """Run a program in the pod, and return its output."""
    return kubectl("exec", "web", "--", "echo", "yes").text


def _order(stand: PolicyStand, path: str, body: bytes) -> dict[str, str]:
    """Let the hostile kas send something, and return the response."""
    assert stand.kas.process is not None
    found = stand.kas.process.wait_for(r"listening for hostile on 127\.0\.0\.1:(\d+)")
    agents = stand.kas.ctl_json("agent", "list")
    [agent_id] = [str(one["id"]) for one in agents if one["name"] == "main"]
    url = f"http://127.0.0.1:{found[1]}/{path}/{agent_id}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, body, method="POST"), timeout=60) as a:
        said: dict[str, str] = json.loads(a.read())
    return said


_UPGRADE = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
_ADMIN = "Impersonate-User: a@example.org\r\nImpersonate-Group: system:masters\r\n"
_CORE = "/api/v1/namespaces/{namespace}"

_HEADS = [
    # Secrets, in every spelling.
    f"GET {_CORE}/secrets",
    "GET /api/v1/secrets",
    "GET /api/v1/watch/secrets",
    "GET //api/v1/secrets",
    "GET /api/v1/./secrets",
    "GET /api/v1/pods/../secrets",
    "GET /api%2Fv1%2Fsecrets",
    "GET /api/v1/%73ecrets",
    "GET /api/v1/namespaces/default/pods",
    "GET /api/v1/pods",
    "GET /api/v1/pods?fieldSelector=metadata.namespace!%3Ddefault",
    "HEAD /api/v1/secrets",
    f"GET {_CORE}/services/x/proxy/../../secrets",
    # Other verbs.
    f"DELETE {_CORE}/pods/web",
    f"DELETE {_CORE}/configmaps",
    f"POST {_CORE}/pods",
    f"PUT {_CORE}/configmaps/x",
    f"OPTIONS {_CORE}/configmaps/x",
    "POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    # Connections.
    f"GET {_CORE}/pods/web/attach",
    f"GET {_CORE}/pods/web/portforward",
    f"POST {_CORE}/pods/web/portforward\r\n{_UPGRADE}",
    "POST /api/v1/namespaces/default/pods/web/exec?command=sh\r\n" + _UPGRADE,
    "GET /api/v1/nodes/node-0/proxy/pods",
    "GET /api/v1/nodes/node-0/proxy/run/default/web/web?cmd=ls",
    # Identities.
    f"GET {_CORE}/pods\r\n{_ADMIN}",
    f"GET {_CORE}/pods\r\nImpersonate-User: boss@example.org",
    f"GET {_CORE}/pods\r\nImpersonate-User: a@example.org\r\nimpersonate-group: ops",
    f"GET {_CORE}/pods\r\nImpersonate-Group: dev",
    f"GET {_CORE}/pods\r\nIMPERSONATE-USER: system:admin",
    f"GET {_CORE}/pods\r\nImpersonate-User: a@example.org\r\nImpersonate-User: admin",
    # Discovery is no way in.
    "GET /metrics",
    "GET /logs/",
    "POST /version",
    "GET /version\r\n" + _UPGRADE,
]


def test_hostile_kas(policed: PolicyStand) -> None:
    """A kas that sends what it likes gets nothing that the policy denies."""
    stand = policed
    assert (
        "200 OK"
        in _order(
            stand,
            "proxy",
            f"GET {_CORE}/pods HTTP/1.1\r\nHost: a\r\n".format(
                namespace=stand.namespace
            ).encode(),
        )["head"]
    )
    audit = stand.cluster.audit()
    for head in _HEADS:
        first, _, more = head.format(namespace=stand.namespace).partition("\r\n")
        more = more.strip()
        block = f"{first} HTTP/1.1\r\nHost: a\r\n" + (f"{more}\r\n" if more else "")
        said = _order(stand, "proxy", block.encode())
        assert re.match(r"HTTP/1\.1 (403|400|502) ", said["head"]), (head, said)
        assert "txkas-failed-hop" in said["head"].lower(), (head, said)
    # The cache, as any user.
    for user in "", "boss@example.org", "system:admin":
        for target in "/api/v1/namespaces/default/pods", "/api/v1/pods":
            said = _order(
                stand, "cache", json.dumps({"user": user, "target": target}).encode()
            )
            assert said["head"] == "403", (user, said)
    # Nothing of it reached the API server.
    marks = ("secrets", "portforward", "nodes/node-0/proxy", "default/pods")
    ours = [
        one["requestURI"]
        for one in audit.events()
        if one["user"]["username"].startswith("system:serviceaccount:")
        and any(mark in one["requestURI"] for mark in marks)
        and "kube-system:" not in one["user"]["username"]
        and one.get("userAgent", "") == ""
    ]
    assert ours == []


#: The script ``agentk-policy``.
_PROGRAM = "from agentk.policy.command import program; program()"


class LiveAgentk(Agentk):
    """An agentk that need not become ready."""

    def wait_until_ready(self, seconds: float = 30) -> None:
        """Wait until it is alive."""
        eventually(lambda: fetch(self.observability, "/liveness")[0] == 200, seconds)


def test_bad_policy(policed: PolicyStand) -> None:
    """A bad file keeps the last policy; at the start, nothing is permitted."""
    stand = policed
    root = stand.user("root", "--as-agent")
    root.ok("get", "pods")
    stand.policy.write_text("kind: AgentPolicy\nrulez: []\n")
    port = stand.agentk.observability
    eventually(lambda: metric(port, "agentk_policy_problem") == 1, 30)
    root.ok("get", "pods")
    # kas shows the problem.
    eventually(lambda: "unknown key 'rulez'" in stand.kas.ctl("status"), 30)
    stand.agentk.stop()
    old = stand.agentk
    stand.agentk = LiveAgentk(stand.kas, old.token, old.kubeconfig)
    stand.agentk.start(*stand.options)
    port = stand.agentk.observability
    unknown = b"unknown key 'rulez'"
    eventually(lambda: unknown in fetch(port, "/readiness")[1], 30)
    assert root("get", "pods").code != 0
    stand.write(3)
    eventually(lambda: fetch(port, "/readiness")[0] == 200, 30)
    root.ok("get", "pods")


def test_admission(tmp_path: Path, control_plane: ControlPlane, namespace: str) -> None:
    """The rendered objects bind agentk's account at the API server."""
    path = tmp_path / "policy.yaml"
    path.write_text(
        f"""\
kind: AgentPolicy
rules:
- {{name: own, allow: ["*"], resources: [configmaps, pods, pods/exec, pods/status],
   namespaces: ["{namespace[:-1]}*"]}}
- {{name: scale, allow: [patch], resources: [deployments.apps/scale]}}
- {{name: names, deny: ["*"], resources: [configmaps], names: ["keep-*"]}}
- {{name: mallory, deny: ["*"], resources: ["*"], users: ["mall*"]}}
- {{name: users, allow: [create], resources: [serviceaccounts], groups: ["system:*"]}}
"""
    )
    kubectl = Kubectl(
        control_plane.assets / "kubectl",
        control_plane.admin,
        namespace,
        cache=tmp_path / "discovery",
    )
    own = f"of-{namespace}"
    account = f"system:serviceaccount:{own}:agentk"

    def render(kind: str) -> bytes:
        arguments = ["render", kind, str(path), "--namespace", own]
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, *arguments],
            check=True,
            stdout=subprocess.PIPE,
        )
        return done.stdout

    objects = render("admission")
    kubectl.ok("apply", "-f", "-", input=objects)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": namespace},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"kind": "User", "name": account}],
    }
    kubectl.ok("apply", "-f", "-", input=json.dumps(binding).encode())
    admin = ("--as", account)
    outside = ("create", "configmap", "x", "-n", "default", *admin)

    def refuses() -> bool:
        kubectl("delete", "configmap", "x", "-n", "default")
        return b"no rule of the policy" in kubectl(*outside).err

    try:
        eventually(refuses, 60, "the admission policy is in effect")
        # Permitted writes, and reads, which never reach admission.
        kubectl.ok("create", "configmap", "x", *admin)
        kubectl.ok("annotate", "configmap", "x", "a=b", *admin)
        kubectl.ok("delete", "configmap", "x", *admin)
        kubectl.ok("get", "secrets", "-A", *admin)
        kubectl.ok("auth", "can-i", "create", "pods", *admin)
        kubectl.ok("apply", "-f", "-", *admin, input=_POD.encode())
        kubectl.ok("wait", "--for=condition=Ready", "pods/web", PATIENT)
        kubectl.ok("exec", "web", *admin, "--", "true")
        for arguments, reason in (
            (("create", "configmap", "keep-x"), b"the rule 'names'"),
            (("create", "serviceaccount", "x"), b"no rule"),
            (
                ("create", "clusterrole", "x", "--verb=get", "--resource=pods"),
                b"no rule",
            ),
            (("create", "token", "default"), b"no rule"),
            (("delete", "namespace", namespace, "--wait=false"), b"no rule"),
        ):
            done = kubectl(*arguments, *admin)
            assert done.code != 0 and reason in done.err, (arguments, done)
        # The users that agentk impersonates are bound as well, and only these.
        for user, mark, where, wanted in (
            ("carol", own, namespace, ""),
            ("carol", own, "default", "no rule"),
            ("carol", "", "default", ""),
            ("carol", "another", "default", ""),
            ("mallory", own, namespace, "the rule 'mallory'"),
            ("mallory", "", namespace, ""),
        ):
            where_path = f"/api/v1/namespaces/{where}/configmaps"
            fields = marked_as(user, "system:masters", mark)
            said = control_plane.refusal("POST", where_path, fields, CONFIG_MAP)
            assert wanted in said and bool(wanted) == bool(said), (user, where, said)
        attach = kubectl("attach", "web", *admin)
        assert b"no rule" in attach.err, attach.err
        # Others are not concerned.
        kubectl.ok("create", "serviceaccount", "x")
        # The roles are valid, too.
        kubectl.ok("create", "namespace", own)
        inside = attrs.evolve(kubectl, namespace=own)
        inside.ok("apply", "-f", "-", input=render("rbac"))
    finally:
        kubectl("delete", "-f", "-", input=objects)
        kubectl("delete", "clusterrolebinding", namespace, "agentk-policy")
        kubectl("delete", "clusterrole", "agentk-policy")
        kubectl("delete", "namespace", own, "--wait=false")


def test_groups(tmp_path: Path, control_plane: ControlPlane, namespace: str) -> None:
    """The policy knows the groups that the API server adds."""
    kubectl = Kubectl(
        control_plane.assets / "kubectl",
        control_plane.admin,
        namespace,
        cache=tmp_path / "discovery",
    )
    account = f"system:serviceaccount:{namespace}:default"
    claims: list[tuple[str, tuple[str, ...]]] = [
        ("alice@example.org", ()),
        ("alice@example.org", ("dev", "ops")),
        ("alice@example.org", ("system:authenticated",)),
        ("alice@example.org", ("system:unauthenticated",)),
        (account, ()),
        (account, ("dev",)),
        (account, ("system:authenticated",)),
        (account, ("system:serviceaccounts",)),
        ("system:serviceaccount:A:x", ()),
        ("system:serviceaccount:a:b:c", ()),
        ("system:serviceaccount:a:x..y", ()),
        ("system:node:n", ()),
        ("system:anonymous", ()),
        ("system:anonymous", ("dev",)),
        ("system:anonymous", ("system:authenticated",)),
    ]
    for number, (user, named) in enumerate(claims):
        found = Identity(user, named)
        arguments = ["--as", user, *(f"--as-group={one}" for one in named)]
        if "system:authenticated" in found.groups:
            # Only these users may review themselves.
            review = json.loads(kubectl.ok("auth", "whoami", "-o", "json", *arguments))
            theirs = review["status"]["userInfo"]
        else:
            audit = control_plane.audit()
            path = f"/api/v1/namespaces/{namespace}/pods/groups-{number}"
            kubectl("get", "--raw", path, *arguments)
            eventually(partial(audit.about, path), 30)
            theirs = audit.about(path)[0]["impersonatedUser"]
        assert theirs["username"] == user
        assert sorted(theirs.get("groups", [])) == sorted(found.groups), (user, named)


def test_constrained_impersonation(
    tmp_path: Path, control_plane: ControlPlane, namespace: str
) -> None:
    """With the rendered roles alone, agentk acts as users within the rules."""
    path = tmp_path / "policy.yaml"
    path.write_text(
        f"""\
kind: AgentPolicy
identities: {{users: [alice@example.org], groups: [dev]}}
rules:
- {{name: read, allow: [get, list], resources: [pods], namespaces: [{namespace}],
   groups: [dev]}}
"""
    )
    command = [sys.executable, "-c", _PROGRAM, "render", "rbac", str(path)]
    command += ["--namespace", namespace, "--constrained"]
    objects = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    admin = Kubectl(
        control_plane.assets / "kubectl",
        control_plane.admin,
        namespace,
        cache=tmp_path / "discovery",
    )
    rule = {"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["*"]}
    for user in "alice@example.org", "bob@example.org":
        control_plane.permit(user, namespace, rule)
    kubeconfig = tmp_path / "agentk.kubeconfig"
    found = yaml.safe_load(control_plane.agent.read_text())
    admin.ok("create", "serviceaccount", "agentk")
    token = admin.ok("create", "token", "agentk").strip()
    found["users"][0]["user"] = {"token": token}
    kubeconfig.write_text(yaml.safe_dump(found))
    agentk = attrs.evolve(admin, kubeconfig=kubeconfig)
    alice = ("--as", "alice@example.org", "--as-group", "dev")
    try:
        admin.ok("apply", "-f", "-", input=objects)
        eventually(
            lambda: agentk("get", "pods", *alice).code == 0,
            60,
            "the roles are in effect",
        )
        agentk.ok("auth", "can-i", "list", "pods", *alice)
        for arguments in (
            ("get", "secrets", *alice),
            ("delete", "pod", "x", *alice),
            ("get", "pods", "-n", "default", *alice),
            ("get", "pods", "--as", "bob@example.org"),
            ("get", "pods", *alice, "--as-group", "ops"),
            ("get", "pods", *alice, "--as-uid", "1"),
            ("get", "pods", "--as", "system:serviceaccount:kube-system:default"),
            ("get", "pods"),
        ):
            done = agentk(*arguments)
            assert done.code != 0 and b"orbidden" in done.err, (arguments, done)
    finally:
        admin("delete", "clusterrolebinding", "agentk-policy")
        admin("delete", "clusterrole", "agentk-policy")


class SignedStand(PolicyStand):
    """A policy that an SSH key signs, for an agentk in a namespace of its own."""

    def __init__(self, folder: Path, kas: Kas, cluster: ControlPlane) -> None:
        self.keygen = needs.program("ssh-keygen", "apt-get install openssh-client")
        self.key = folder / "key"
        self.run("-q", "-t", "ed25519", "-N", "", "-f", self.key)
        public = (folder / "key.pub").read_text()
        (folder / "keys").write_text(f"owner {public}")
        super().__init__(folder, kas, cluster)
        (folder / "agentk.yaml").write_text(
            f"policy: {{file: {self.policy}, keys: {folder / 'keys'}}}\n"
        )
        self.options = (*self.options, "--namespace", self.namespace)

    def run(self, *arguments: str | Path) -> None:
        """Run ssh-keygen."""
        subprocess.run(
            [self.keygen, *arguments],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )

    def write(self, serial: int, more: str = "") -> None:
        """Replace the policy, and sign it."""
        new = self.folder / "signed.yaml"
        new.write_text(
            f"kind: AgentPolicy\nserial: {serial}\nclusters: [{self.uid}]\n"
            'rules:\n- {name: all, allow: ["*"], resources: ["*/*"]}\n'
        )
        signature = self.folder / "signed.yaml.sig"
        signature.unlink(missing_ok=True)
        self.run("-Y", "sign", "-n", "txkas-policy@v1", "-f", self.key, new)
        signature.rename(self.folder / "policy.yaml.sig")
        new.rename(self.policy)


def test_signed_policy(
    tmp_path: Path, lone_kas: Kas, control_plane: ControlPlane
) -> None:
    """The cluster remembers the serial, and nobody changes it through kas."""
    stand = SignedStand(tmp_path, lone_kas, control_plane)
    control_plane.add_namespace(stand.namespace)
    try:
        lone_kas.start()
        stand.write(7)
        stand.agentk.start(*stand.options)
        port = stand.agentk.observability
        assert metric(port, "agentk_policy_serial") == 7
        root = stand.user("root", "--as-agent")
        boss = stand.user("boss", "--as", "boss@example.org")
        control_plane.permit(
            "boss@example.org",
            stand.namespace,
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        )
        direct = stand.kubectl(control_plane.admin)
        direct.ok("apply", "-f", "-", input=_POD.encode())
        direct.ok("wait", "--for=condition=Ready", "pods/web", PATIENT)
        secret = "secret/agentk-policy-state"
        eventually(lambda: boss("get", "pods").code == 0, 30, "the right is in effect")
        for user in root, boss:
            for arguments in (
                ("get", secret),
                ("get", "secrets"),
                ("get", "configmaps", "-w"),
                ("annotate", secret, "a=b"),
                ("delete", secret),
                ("delete", "secrets", "--all"),
                ("create", "configmap", "x"),
                ("create", "token", "default"),
                ("run", "x", "--image=any"),
                ("delete", "namespace", stand.namespace, "--wait=false"),
                ("exec", "web", "--", "true"),
                ("attach", "web"),
                ("port-forward", "web", "0:80"),
                ("debug", "web", "--image=any"),
            ):
                done = user(*arguments)
                assert done.code != 0, (arguments, done)
                assert b"protected" in done.err, (arguments, done)
        # Lists of all namespaces omit it.
        for kind in "secrets", "configmaps":
            everywhere = ("get", kind, "-A", "--no-headers")
            assert stand.namespace in direct.ok(*everywhere)
            assert stand.namespace not in root.ok(*everywhere)
        assert "kube-system" in root.ok("get", "configmaps", "-A")
        # An older policy, at runtime and after a restart.
        stand.write(6)
        eventually(lambda: metric(port, "agentk_policy_problem") == 1, 30)
        assert metric(port, "agentk_policy_serial") == 7
        root.ok("get", "pods")
        stand.agentk.stop()
        old = stand.agentk
        stand.agentk = LiveAgentk(stand.kas, old.token, old.kubeconfig)
        stand.agentk.start(*stand.options)
        port = stand.agentk.observability
        older = b"the serial 6 is lower than 7"
        eventually(lambda: older in fetch(port, "/readiness")[1], 30)
        # A policy that nobody signed.
        stand.write(8)
        eventually(lambda: metric(port, "agentk_policy_serial") == 8, 30)
        with stand.policy.open("a") as policy:
            policy.write("# changed\n")
        eventually(lambda: metric(port, "agentk_policy_problem") == 1, 30)
        assert metric(port, "agentk_policy_serial") == 8
    finally:
        control_plane.remove_namespace(stand.namespace)
        if stand.agentk.process is not None:
            stand.agentk.process.kill()
