"""A policy in effect: loading, reloading, time, and running requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from twisted.internet.defer import Deferred

from agentk.policy.guard import LOOK_SECONDS, MAX_PERMITTED, PolicyCollector
from tests.agentk.policy.world import READ, UID, PolicyWorld, access
from tunnel.api import KubernetesResource
from tunnel.errors import CallError, Status
from tunnel.http1 import UpstreamError
from tunnel.kubernetes import OwnerDenial
from tunnel.toolkit.files import reread_files

CONFIG_MAPS = KubernetesResource("", "v1", "ConfigMap", "configmaps", True)
PODS = "/api/v1/namespaces/app/pods"

FRIDAYS = READ + (
    '- {name: friday, deny: ["*"], resources: [pods], window: {days: [Fri], from: '
    '"17:31", zone: UTC}}\n'
)


def ask(world: PolicyWorld, method: str, path: str, user: str = "alice") -> int:
    """Return the status of a request of a user, who may be denied."""
    client = world.clients.of_module("kubernetes_api").acting_for(access(user))
    found: Any = world.run(client.request(method, path))
    return int(found.status)


def denial(world: PolicyWorld, method: str, path: str, user: str = "alice") -> str:
    """Return the error of a denied request, which does not leave agentk."""
    before = len(world.cluster.requests)
    with pytest.raises(OwnerDenial) as caught:
        ask(world, method, path, user)
    assert len(world.cluster.requests) == before
    return str(caught.value)


def test_allowed_and_denied(tmp_path: Path) -> None:
    """A denial names the rule; nothing of it reaches the API server."""
    world = PolicyWorld(tmp_path, FRIDAYS.replace("17:31", "17:00"))
    world.start()
    assert ask(world, "GET", "/api/v1/namespaces/app/configmaps") == 200
    assert denial(world, "GET", PODS) == (
        'list pods in the namespace "app" is forbidden by the policy of the cluster\'s '
        "owner: the rule 'friday' denies it"
    )
    assert "no rule permits it" in denial(world, "DELETE", "/api/v1/nodes/n")
    assert world.guard.results == {"allowed": 1, "denied": 2}


def test_known_requests(tmp_path: Path) -> None:
    """A remembered decision ends with a change of the policy, and is limited."""
    world = PolicyWorld(tmp_path)
    world.start()
    for number in range(MAX_PERMITTED + 10):
        world.guard.check(
            world.clients.of_module("m").upstream.origins[0],
            b"GET",
            b"/api/v1/nodes/%d" % number,
            b"",
            False,
        )
    assert len(world.guard._permitted) == MAX_PERMITTED
    assert ask(world, "GET", PODS) == 200
    world.write("kind: AgentPolicy\n")
    world.later(LOOK_SECONDS)
    denial(world, "GET", PODS)
    # Nothing is remembered for long.
    world.write(READ)
    world.later(LOOK_SECONDS)
    ask(world, "GET", PODS)
    assert world.guard._permitted
    world.later(120)
    assert not world.guard._permitted


def test_failed_start(tmp_path: Path) -> None:
    """Without a usable policy, everything is denied, and the reason is known."""
    for policy, reason in (
        (None, "cannot be read"),
        ("kind: AgentPolicy\nrule: []\n", "policy.yaml:2:1: unknown key 'rule'"),
        ("kind: AgentPolicy\nkind: AgentPolicy\n", "is duplicated"),
        ("kind: Other\n", "kind"),
        (READ + "---\nkind: AgentPolicy\n", "policy.yaml:4:"),
        (READ + READ, "is duplicated"),
    ):
        world = PolicyWorld(tmp_path, policy)
        world.start()
        assert world.guard.serial == -1
        assert reason in world.guard.problem, policy
        with pytest.raises(OwnerDenial) as caught:
            ask(world, "GET", "/version")
        assert caught.value.code == 503
        # Users see neither the file nor its content.
        assert str(tmp_path) not in caught.value.message
        assert "agentk cannot use the policy" in caught.value.message
        # It recovers by itself.
        world.write(READ)
        world.later(2 * LOOK_SECONDS)
        assert world.guard.serial == 0
        assert world.guard.problem == ""
        world.file.unlink()


def test_failed_reload(tmp_path: Path) -> None:
    """The last good policy stays, the problem is shown, and kas learns of it."""
    world = PolicyWorld(tmp_path)
    world.start()
    changes = world.changes
    world.write(READ + "- {name: other, deny: [get], resources: [Pods]}\n")
    world.later(LOOK_SECONDS)
    assert "policy.yaml:4:" in world.guard.problem
    assert world.changes == changes + 1
    assert ask(world, "GET", PODS) == 200
    denial(world, "DELETE", f"{PODS}/x")
    world.write(READ.replace("get, ", ""))
    world.later(LOOK_SECONDS)
    assert not world.guard.problem
    denial(world, "GET", f"{PODS}/x")


def test_half_written_policy(tmp_path: Path) -> None:
    """A file that is written in place is used when it stays the same."""
    whole = READ + "- {name: no-pods, deny: [get], resources: [pods]}\n"
    world = PolicyWorld(tmp_path, whole)
    world.start()
    denial(world, "GET", f"{PODS}/x")
    with world.file.open("w") as target:
        target.write(READ)
        target.flush()
        world.later(LOOK_SECONDS)
        denial(world, "GET", f"{PODS}/x")
        target.write("# more\n")
        target.flush()
        world.later(LOOK_SECONDS)
        denial(world, "GET", f"{PODS}/x")
        target.write("- {name: no-pods, deny: [get, list], resources: [pods]}\n")
    world.later(LOOK_SECONDS)
    ask(world, "GET", PODS)
    world.later(LOOK_SECONDS)
    denial(world, "GET", PODS)
    # A renamed file is whole.
    world.write(READ)
    world.later(LOOK_SECONDS)
    ask(world, "GET", f"{PODS}/x")
    # A file that appears later may be half-written, too.
    world.file.unlink()
    world.later(LOOK_SECONDS)
    assert not world.guard.problem
    world.later(LOOK_SECONDS)
    assert "cannot be read" in world.guard.problem
    world.file.write_text("kind: AgentPolicy\n")
    world.later(LOOK_SECONDS)
    ask(world, "GET", f"{PODS}/x")
    world.later(LOOK_SECONDS)
    denial(world, "GET", f"{PODS}/x")


def test_reread_files(tmp_path: Path) -> None:
    """SIGHUP changes no file, so agentk reads it at the next look."""
    world = PolicyWorld(tmp_path)
    world.start()
    before = world.guard._loaded
    reread_files()
    world.later(LOOK_SECONDS)
    assert world.guard._loaded is not before


def test_window(tmp_path: Path) -> None:
    """A window decides at once when it opens and closes, and ends watches."""
    world = PolicyWorld(tmp_path, FRIDAYS)
    world.start()
    ended: list[Exception] = []
    client = world.clients.of_module("kubernetes_api").acting_for(access("alice"))

    class Receiver:
        def response_failed(self, reason: Exception) -> None:
            ended.append(reason)

        def __getattr__(self, name: str) -> Any:
            return lambda *_: None

    receivers = [Receiver() for _ in range(2)]
    for receiver, path in zip(receivers, (PODS, "/api/v1/configmaps"), strict=True):
        method, target, fields = client._head("GET", f"{path}?watch=1", "*/*")
        client._upstream.request(method, target, fields, receiver)
    world.clock.advance(29)
    assert not ended
    world.clock.advance(2)
    [reason] = ended
    assert isinstance(reason, UpstreamError)
    assert "policy of the cluster's owner" in str(reason)
    assert world.guard.ended == 1
    denial(world, "GET", PODS)
    # The next day.
    world.clock.advance(7 * 3600)
    assert ask(world, "GET", PODS) == 200


def test_running_requests_after_reload(tmp_path: Path) -> None:
    """A new policy ends a watch of a module's own work with the rule."""
    world = PolicyWorld(tmp_path)
    world.start()
    client = world.clients.of_module("cluster_data").as_agentk()
    errors: list[CallError] = []

    async def watch() -> None:
        try:
            async for _ in client.watch(CONFIG_MAPS):
                pass
        except CallError as error:
            errors.append(error)

    Deferred.fromCoroutine(watch())
    world.later(5)
    assert any("watch" in one.path for one in world.cluster.requests)
    world.write("kind: AgentPolicy\n")
    world.later(LOOK_SECONDS + 5)
    assert [one.status for one in errors] == [Status.PERMISSION_DENIED]


def test_warn(tmp_path: Path) -> None:
    """With ``mode: warn``, denied requests run; the floor stays."""
    world = PolicyWorld(tmp_path, READ + "mode: warn\n")
    world.start()
    ask(world, "DELETE", f"{PODS}/x")
    assert world.guard.results["warned"] == 1
    denial(world, "GET", "/api/v1/nodes/n/proxy/pods")


@pytest.mark.parametrize(
    ("keys", "reads", "writes"),
    [
        ("not_before: 2026-11-28T00:00:00Z", False, False),
        ("not_before: 2026-11-27T18:30:00+02:00", True, True),
        ("expires: 2026-11-27T17:30:00Z", False, False),
        ("expires: 2026-11-27T17:30:00Z\non_expiry: keep-read-only", True, False),
        ("expires: 2026-11-27T17:31:00Z", True, True),
    ],
)
def test_validity(tmp_path: Path, keys: str, reads: bool, writes: bool) -> None:
    """Before and after its time, a policy denies."""
    rules = 'rules: [{name: all, allow: ["*"], resources: ["*/*"]}]\n'
    world = PolicyWorld(tmp_path, f"kind: AgentPolicy\n{rules}{keys}\n")
    world.start()
    for method, path, expected in (
        ("GET", PODS, reads),
        ("GET", "/version", reads),
        ("GET", f"{PODS}/x/log", reads),
        ("GET", f"{PODS}/x/proxy/", writes),
        ("DELETE", f"{PODS}/x", writes),
    ):
        if expected:
            ask(world, method, path)
        else:
            assert "the policy" in denial(world, method, path)


def test_expiry_while_running(tmp_path: Path) -> None:
    """The minute at which it expires."""
    world = PolicyWorld(tmp_path, READ + "expires: 2026-11-27T17:31:00Z\n")
    world.start()
    assert ask(world, "GET", PODS) == 200
    world.clock.advance(31)
    assert "has expired" in denial(world, "GET", PODS)
    # A clock that was set back counts, too.
    world.day -= 3600
    assert ask(world, "GET", PODS) == 200


def test_other_cluster(tmp_path: Path) -> None:
    """A policy for another cluster is refused."""
    world = PolicyWorld(tmp_path, READ + 'clusters: ["other"]\n')
    world.start()
    assert f"the uid of kube-system is '{UID}'" in world.guard.problem
    world.write(READ + f'clusters: ["other", "{UID}"]\n')
    world.later(LOOK_SECONDS)
    assert world.guard.is_enforced


def test_api_server_away(tmp_path: Path) -> None:
    """agentk repeats what it could not ask, and denies in the meantime."""
    world = PolicyWorld(tmp_path, READ + f'clusters: ["{UID}"]\n')
    world.cluster.refuses = True
    world.start()
    assert "the API server" in world.guard.problem
    with pytest.raises(OwnerDenial) as caught:
        ask(world, "GET", PODS)
    assert caught.value.code == 503
    world.cluster.refuses = False
    world.later(LOOK_SECONDS)
    assert world.guard.is_enforced


def test_slow_api_server(tmp_path: Path) -> None:
    """The start does not wait for ever."""
    world = PolicyWorld(tmp_path, READ + f'clusters: ["{UID}"]\n')
    world.cluster.silent = True
    world.run(world.guard.start(), 20)
    assert not world.guard.is_enforced
    world.guard.stop()


def test_own_roles(tmp_path: Path) -> None:
    """The roles of agentk's account are found, and protected at once."""
    world = PolicyWorld(
        tmp_path,
        'kind: AgentPolicy\nrules: [{name: a, allow: ["*"], resources: ["*"]}]\n',
    )
    api = "rbac.authorization.k8s.io"
    world.cluster.answer(
        "POST",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"status": {"userInfo": {"username": "system:serviceaccount:txkas:agentk"}}},
        201,
    )

    def bind(resource: str, name: str, account: str, namespace: str = "") -> None:
        binding = {
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"kind": "ClusterRole", "name": f"role-{name}"},
            "subjects": [
                {"kind": "ServiceAccount", "name": account, "namespace": "txkas"}
            ],
        }
        world.cluster.answer(
            "GET", f"/apis/{api}/v1/{resource}?limit=500", {"items": [binding]}
        )

    bind("clusterrolebindings", "mine", "agentk")
    bind("rolebindings", "yours", "other", "apps")
    world.start()
    for path in ("clusterrolebindings/mine", "clusterroles/role-mine"):
        assert "permissions of agentk" in denial(
            world, "DELETE", f"/apis/{api}/v1/{path}"
        )
    ask(world, "DELETE", f"/apis/{api}/v1/namespaces/apps/rolebindings/yours")
    ask(world, "DELETE", f"/apis/{api}/v1/clusterroles/role-other")
    bind("rolebindings", "yours", "agentk", "apps")
    world.later(700)
    denial(world, "DELETE", f"/apis/{api}/v1/namespaces/apps/rolebindings/yours")


@pytest.mark.parametrize(
    ("kind", "name", "is_own"),
    [
        ("Group", "system:serviceaccounts", True),
        ("Group", "system:serviceaccounts:txkas", True),
        ("Group", "system:authenticated", True),
        ("Group", "system:serviceaccounts:other", False),
        ("User", "system:serviceaccounts", False),
        ("Group", "system:serviceaccount:txkas:agentk", False),
        ("User", "system:serviceaccount:txkas:agentk", True),
    ],
)
def test_roles_of_groups(tmp_path: Path, kind: str, name: str, is_own: bool) -> None:
    """Roles that agentk has through a group are protected, too."""
    world = PolicyWorld(
        tmp_path,
        'kind: AgentPolicy\nrules: [{name: a, allow: ["*"], resources: ["*"]}]\n',
    )
    groups = ["serviceaccounts", "serviceaccounts:txkas", "authenticated"]
    user = {
        "username": "system:serviceaccount:txkas:agentk",
        "groups": [f"system:{one}" for one in groups],
    }
    world.cluster.answer(
        "POST",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"status": {"userInfo": user}},
        201,
    )
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    binding = {
        "metadata": {"name": "x", "namespace": "apps"},
        "roleRef": {"kind": "Role", "name": "role-x"},
        "subjects": [{"kind": "User", "name": "other"}, {"kind": kind, "name": name}],
    }
    world.cluster.answer("GET", f"{rbac}/clusterrolebindings?limit=500", {"items": []})
    lists = {"items": [binding]}
    world.cluster.answer("GET", f"{rbac}/rolebindings?limit=500", lists)
    world.start()
    for path in "rolebindings/x", "roles/role-x":
        path = f"{rbac}/namespaces/apps/{path}"
        if is_own:
            assert "permissions of agentk" in denial(world, "DELETE", path)
        else:
            ask(world, "DELETE", path)


def test_own_roles_with_a_bad_policy(tmp_path: Path) -> None:
    """A policy that agentk tries again and again does not keep it from new roles."""
    world = PolicyWorld(tmp_path)
    world.start()
    world.write(READ + 'clusters: ["other"]\n')
    world.later(LOOK_SECONDS)
    assert "another cluster" in world.guard.problem
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    before = len([one for one in world.cluster.requests if one.path == review])
    world.later(1300)
    after = len([one for one in world.cluster.requests if one.path == review])
    assert after - before == 2


def test_lists_for_a_module(tmp_path: Path) -> None:
    """A list for a module's own work excludes agentk's own namespace."""
    world = PolicyWorld(tmp_path)
    world.start()
    client = world.clients.of_module("cluster_data").as_agentk()

    async def read() -> None:
        async for _ in client.list(CONFIG_MAPS):
            pass

    world.run(read())
    [request] = [one for one in world.cluster.requests if "configmaps" in one.path]
    assert "fieldSelector=metadata.namespace%21%3Dtxkas" in request.path


def test_failures_deny(tmp_path: Path) -> None:
    """A failure of a decision denies, and a failed check does not end the checks."""
    world = PolicyWorld(tmp_path)
    world.start()

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    loaded = world.guard._loaded
    assert loaded is not None
    engine: Any = loaded.engine
    engine.decide = fail
    with pytest.raises(ZeroDivisionError):
        ask(world, "GET", PODS)
    assert not any("pods" in one.path for one in world.cluster.requests)
    guard: Any = world.guard
    look, guard.settings = guard.settings, None
    world.later(LOOK_SECONDS)
    guard.settings = look
    world.write("kind: AgentPolicy\n")
    world.later(LOOK_SECONDS)
    assert "no rule permits it" in denial(world, "GET", PODS)


def test_prefix(tmp_path: Path) -> None:
    """Behind a server with several clusters, only paths below the prefix are asked."""
    world = PolicyWorld(tmp_path)
    world.guard.path_prefix = "/k8s/c-1"
    world.start()
    origin = world.clients.of_module("m").upstream.origins[0]
    world.guard.check(origin, b"GET", b"/k8s/c-1/api/v1/pods", b"", False)
    world.guard.path_prefix = ""
    with pytest.raises(OwnerDenial):
        world.guard.check(origin, b"GET", b"http://other/api/v1/pods", b"", False)
    world.guard.path_prefix = "/k8s/c-1"
    for target in b"/k8s/c-2/api/v1/pods", b"/k8s/c-10/api/v1/pods", b"/api/v1/pods":
        with pytest.raises(OwnerDenial):
            world.guard.check(origin, b"GET", target, b"", False)


def test_metrics(tmp_path: Path) -> None:
    """What Prometheus sees."""
    world = PolicyWorld(tmp_path, READ + "serial: 3\nexpires: 2026-11-27T18:30:00Z\n")
    registry = CollectorRegistry()
    registry.register(PolicyCollector(world.guard))
    assert "agentk_policy_enforced 0.0" in generate_latest(registry).decode()
    world.start()
    ask(world, "GET", PODS)
    text = generate_latest(registry).decode()
    for line in (
        "agentk_policy_enforced 1.0",
        "agentk_policy_problem 0.0",
        "agentk_policy_serial 3.0",
        "agentk_policy_expiry_seconds 35",
        'agentk_policy_decisions_total{result="allowed"} 1.0',
        'agentk_policy_decisions_total{result="denied"} 0.0',
        "agentk_policy_ended_requests_total 0.0",
    ):
        assert line in text
