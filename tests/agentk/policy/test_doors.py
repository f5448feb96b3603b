"""
Every way from kas through agentk into the cluster, and the policy in front of it.

One test lists the ways out in the source, and fails if there is a new one.  Others use
each way against a policy that denies everything: nothing may leave agentk.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from modules.cluster_data.agent.module import ClusterDataAgent
from modules.cluster_data.agent.objects.reads import ObjectReads
from modules.cluster_data.agent.usage import ResourceUsage
from modules.cluster_data.wire import objects_pb2, usage_pb2
from modules.kubernetes_api.agent import KubernetesApiAgent
from modules.kubernetes_api.fields import BY_OWNER, METHOD
from modules.prometheus.agent.body_parts import BodyParts
from modules.prometheus.agent.service_client import (
    DirectServiceClient,
    ProxiedServiceClient,
)
from modules.prometheus.agent.services import ServiceTarget
from modules.webhooks.agent.secrets import read_key
from modules.webhooks.wire.settings import SecretKey
from tests.agentk.policy.world import PolicyWorld, access
from tests.modules.cluster_audit.pair import AuditPair, event, in_one_thread
from tests.modules.kubernetes_api.pair import World
from tunnel.api import IKubernetes, IKubernetesClient, KubernetesResource
from tunnel.errors import CallError, Status
from tunnel.kubernetes import (
    KubernetesClients,
    OwnerDenial,
    ReviewedRights,
    Right,
    is_allowed,
)
from tunnel.testing import ModulePair

ROOT = Path(__file__).parents[3]

#: The code that runs in agentk.
PLACES = [
    "agentk",
    "tunnel/hosting",
    "tunnel/kubernetes",
    "modules/kubernetes_api",
    "modules/agent_configuration",
    "modules/*/agent",
]

#: Names with which code opens a connection, starts a program, or sends a request of its
#: own.
WAYS_OUT = {
    "HostnameEndpoint",
    "TCP4ClientEndpoint",
    "TCP6ClientEndpoint",
    "UNIXClientEndpoint",
    "clientFromString",
    "connectSSL",
    "connectTCP",
    "connectUDP",
    "connectUNIX",
    "client_endpoint",
    "create_connection",
    "HTTPConnection",
    "HTTPSConnection",
    "Popen",
    "create_subprocess_exec",
    "spawnProcess",
    "subprocess",
    "urlopen",
    "UpstreamPool",
    "GuardedUpstream",
    "KubernetesClients",
    "KubernetesClient",
    "cluster_as_agentk",
    "endpoint",
    "service_endpoint",
    "reach",
    "_reach",
    "_pool",
    "upstream",
    "tls_context",
}

#: Why each is not a way around the policy.  Another file has to be added, with the
#: check in front of it.
KNOWN = {
    # agentk itself: the API server for its own work, kas, and exec plugins of the
    # owner's kubeconfig.
    "agentk/service.py": {
        "HostnameEndpoint",
        "KubernetesClients",
        "UpstreamPool",
        "client_endpoint",
        "endpoint",
        "reach",
    },
    "agentk/dialer.py": {"endpoint"},
    "agentk/extra_tunnels.py": {"endpoint"},
    "agentk/kubernetes/cluster.py": {"HostnameEndpoint", "endpoint", "tls_context"},
    "agentk/kubernetes/exec_credential.py": {"spawnProcess"},
    "agentk/kubernetes/version.py": {"KubernetesClients", "UpstreamPool", "endpoint"},
    # The policy itself.
    "agentk/metrics.py": {"reach"},
    "agentk/modules.py": {"KubernetesClients"},
    "agentk/policy/guard.py": {"UpstreamPool"},
    "tunnel/kubernetes/__init__.py": set(WAYS_OUT),
    "tunnel/kubernetes/guard.py": {"GuardedUpstream", "UpstreamPool", "_pool"},
    # Requests go to `upstream_for`; `service_endpoint` asks `check_service` first.
    "tunnel/kubernetes/client.py": {
        "GuardedUpstream",
        "KubernetesClient",
        "KubernetesClients",
        "UpstreamPool",
        "_pool",
        "_reach",
        "cluster_as_agentk",
        "endpoint",
        "reach",
        "upstream",
    },
    # Modules: what they get is guarded.
    "modules/kubernetes_api/agent.py": {
        "UpstreamPool",
        "cluster_as_agentk",
        "upstream",
    },
    "modules/prometheus/agent/service_client.py": {
        "UpstreamPool",
        "cluster_as_agentk",
        "endpoint",
        "service_endpoint",
        "upstream",
    },
    "modules/prometheus/agent/module.py": {"reach"},
    "modules/prometheus/agent/questions.py": {"endpoint"},
    "modules/webhooks/agent/attempt.py": {
        "UpstreamPool",
        "endpoint",
        "service_endpoint",
    },
    # Renderers, which have no network.
    "modules/gitops/agent/source/child_processes.py": {"spawnProcess"},
}


def files() -> Iterator[Path]:
    for place in PLACES:
        for folder in sorted(ROOT.glob(place)):
            yield from sorted(folder.rglob("*.py"))


def names_in(file: Path) -> set[str]:
    """Return the names that a file uses as names, attributes and imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update(one.name.rpartition(".")[2] for one in node.names)
    return found


def test_ways_out() -> None:
    """No file has a way out that is not listed here with its check."""
    new: dict[str, set[str]] = defaultdict(set)
    for file in files():
        path = str(file.relative_to(ROOT))
        if "server.py" in path:
            continue
        unknown = (names_in(file) & WAYS_OUT) - KNOWN.get(path, set())
        if unknown:
            new[path] = unknown
    assert not new, (
        "new ways out of agentk: put PolicyGuard in front of them, or list them"
    )
    assert all((ROOT / path).exists() for path in KNOWN)


# Clients of modules.

PODS = KubernetesResource("", "v1", "Pod", "pods", True)
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"}}


async def read_all(found: Any) -> None:
    async for _ in found:
        pass


#: A use of each method of `IKubernetesClient`.
CLIENT: dict[str, Callable[[Any], Any]] = {
    "request": lambda client: client.request("GET", "/api/v1/pods"),
    "json": lambda client: client.json("POST", "/api/v1/namespaces/b/pods", POD),
    "check_right": lambda client: client.check_right("get", "pods"),
    "resources": lambda client: client.resources(),
    "resource": lambda client: client.resource("v1", "Pod"),
    "resource_named": lambda client: client.resource_named("v1", "pods"),
    "get": lambda client: client.get(PODS, "a", "b"),
    "list": lambda client: read_all(client.list(PODS)),
    "watch": lambda client: read_all(client.watch(PODS)),
    "apply": lambda client: client.apply(POD, field_manager="x"),
    "patch": lambda client: client.patch(PODS, "a", {}, "b"),
    "delete": lambda client: client.delete(PODS, "a", "b"),
}


def upstream_request(clients: Any) -> None:
    clients.upstream.request(b"GET", b"/api/v1/pods", b"", None)


def own_connection(clients: Any) -> None:
    clients.cluster_as_agentk.endpoint()


def records(clients: Any) -> Any:
    return clients.for_records().get(PODS, "a", "b")


#: A use of each member of `IKubernetes`; None for members that are clients, or data.
KUBERNETES: dict[str, Callable[[Any], Any] | None] = {
    "own_namespace": None,
    "cluster_as_agentk": own_connection,
    "upstream": upstream_request,
    "acting_for": None,
    "as_service_account": None,
    "as_agentk": None,
    "for_records": records,
    "follow": lambda clients: read_all(clients.follow(PODS)),
    "check_service": lambda clients: clients.check_service("a", "b", 80),
    "service_endpoint": lambda clients: clients.service_endpoint("a", "b", 80),
}

CLIENTS: dict[str, Callable[[KubernetesClients], Any]] = {
    "acting_for": lambda clients: clients.acting_for(access("alice")),
    "acting_for_agentk": lambda clients: clients.acting_for(access()),
    "as_service_account": lambda clients: clients.as_service_account("a", "b"),
    "as_agentk": lambda clients: clients.as_agentk(),
}


class Denying(PolicyWorld):
    """A policy that permits nothing, and the requests that left agentk anyway."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "kind: AgentPolicy\ndiscovery: false\n")
        self.start()
        self.cluster.requests.clear()
        self.module: Any = self.clients.of_module("any")

    def denies(self, use: Callable[[], Any]) -> None:
        """Check that a use fails, and that nothing left agentk."""
        with pytest.raises(OwnerDenial):
            found = use()
            if inspect.isawaitable(found):
                self.run(found)
        assert self.cluster.requests == []


@pytest.fixture
def denying(tmp_path: Path) -> Denying:
    """Return a world in which everything is denied."""
    return Denying(tmp_path)


def test_members() -> None:
    """Each member of the interfaces is used below."""
    assert set(CLIENT) == set(IKubernetesClient.names())
    assert set(KUBERNETES) == set(IKubernetes.names())


def test_interface(denying: Denying) -> None:
    """The guarded objects have what the interfaces list."""
    verifyObject(IKubernetes, denying.module)
    verifyObject(IKubernetesClient, denying.module.as_agentk())


@pytest.mark.parametrize("name", CLIENT)
@pytest.mark.parametrize("client", CLIENTS)
def test_clients(denying: Denying, client: str, name: str) -> None:
    """No method of any client gets past the policy."""
    denying.denies(lambda: CLIENT[name](CLIENTS[client](denying.module)))


@pytest.mark.parametrize("name", [name for name, use in KUBERNETES.items() if use])
def test_others(denying: Denying, name: str) -> None:
    """No other member gets past the policy."""
    use = KUBERNETES[name]
    assert use is not None
    denying.denies(lambda: use(denying.module))


# Modules.


def test_proxy(denying: Denying) -> None:
    """A request of kas gets 403, before any 101, and with a mark for kas' audit log."""
    world = World()
    # As agentk makes it, also with compiled modules.
    api: Any = world.agent_api
    api.upstream = denying.module.upstream
    world.agent = KubernetesApiAgent(api)
    heads: list[bytes] = []
    bodies: list[bytes] = []

    class Kas:
        def headers_received(self, block: bytes) -> None:
            heads.append(block)

        def data_received(self, data: bytes) -> None:
            bodies.append(data)

        def fin_received(self) -> None: ...

        def stream_closed(self, reason: Exception | None) -> None: ...

    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    for line, more in (
        (b"GET /api/v1/pods", b""),
        (b"GET /api/v1/namespaces/a/pods/b/exec?command=sh", upgrade),
        (b"GET /version", b"Impersonate-User: alice\r\n"),
        (b"GET /api/v1/namespaces/txkas/secrets/agentk-token", b""),
    ):
        block = line + b" HTTP/1.1\r\nHost: a\r\n" + more
        world.link.open_stream("agent-1", METHOD, Kas(), block, True)
        while world.link.pump():
            pass
        head = heads.pop()
        assert head.startswith(b"HTTP/1.1 403 Forbidden\r\n")
        assert b"txkas-failed-hop: " + BY_OWNER in head
        assert b'"reason": "Forbidden"' in bodies.pop()
    assert world.cluster.connections.wires == [] and not heads
    assert denying.cluster.requests == []
    assert world.agent.metrics.in_flight == 0


TARGET = ServiceTarget("monitoring", "prometheus", "web", 9090)


def test_prometheus(denying: Denying) -> None:
    """Neither way to Prometheus."""
    for client in (
        DirectServiceClient(denying.module, denying.clock),
        ProxiedServiceClient(denying.module),
    ):
        parts = BodyParts(denying.clock)
        with pytest.raises(OwnerDenial):
            client.send(TARGET, "/api/v1/query", "query=up", False, parts)
    assert denying.cluster.requests == []


def test_webhooks(denying: Denying) -> None:
    """Neither Secrets for webhooks nor their receivers."""
    for use in (
        lambda: read_key(denying.module, SecretKey("a", "b", "c")),
        lambda: denying.module.service_endpoint("a", "b", 80),
    ):
        with pytest.raises(CallError) as caught:
            denying.run(use())
        assert caught.value.status is Status.PERMISSION_DENIED
    assert denying.cluster.requests == []


def test_reviews(denying: Denying) -> None:
    """A user has no right that the policy denies, whatever the API server says."""
    client = denying.module.acting_for(access("alice"))
    assert denying.run(is_allowed(client, "list", "pods")) is False
    rights = ReviewedRights(denying.module, denying.clock)
    assert denying.run(rights.may(access("alice"), Right("list", "pods"))) is False
    assert denying.cluster.requests == []


def test_cached_answers_end(tmp_path: Path) -> None:
    """A right that was granted a moment ago ends with a change of the policy."""
    world = PolicyWorld(tmp_path)
    world.start()
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    world.cluster.answer("POST", path, {"status": {"allowed": True}}, 201)
    module = world.clients.of_module("cluster_data")
    rights = ReviewedRights(module, world.clock)
    right = Right("list", "pods")
    assert world.run(rights.may(access("alice"), right)) is True
    world.write("kind: AgentPolicy\n")
    world.later(10)
    assert world.run(rights.may(access("alice"), right)) is False


def test_cluster_data(denying: Denying) -> None:
    """Neither the cache nor usage answers anyone, and the leader watches nothing."""
    pair = ModulePair(denying.clock, cluster=denying.cluster, guard=denying.guard)
    pair.agent_half(ClusterDataAgent)
    pair.start()
    call = SimpleNamespace(access=access("alice"))
    reads = ObjectReads(denying.module, lambda: None, denying.clock, denying.now)

    async def read(target: str) -> list[Any]:
        request = objects_pb2.ReadRequest(target=target)
        return [part async for part in reads.read(request, call)]

    for target in "/api/v1/pods", "/api", "/api/v1/namespaces/a/configmaps/b":
        head, body = denying.run(read(target))
        assert head.head.status == 403, target
        assert b"no rule permits it" in body.data
    api: Any = SimpleNamespace(clock=denying.clock, kubernetes=denying.module)
    usage = ResourceUsage(api)

    async def use() -> None:
        async for _ in usage.read(usage_pb2.UsageRequest(resource="pods"), call):
            raise AssertionError("rows of a denied list")

    denying.denies(use)
    pair.settle()
    denying.later(30)
    assert denying.cluster.requests == []
    pair.stop()


def test_cluster_audit(
    denying: Denying, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No event of the API server's audit log reaches kas."""
    in_one_thread(monkeypatch)
    pair = AuditPair(tmp_path, denying.guard, denying.clock)
    pair.write(event("before"))
    pair.start()
    pair.write(event("1"))
    pair.later(10)
    pair.stop()
    assert not (tmp_path / "clusters").exists()
    assert pair.cluster.requests == []


def test_without_a_policy(tmp_path: Path) -> None:
    """Without a policy, modules use the connections themselves."""
    world = PolicyWorld(tmp_path)
    clients = KubernetesClients(
        world.cluster, world.pool, world.clock, jitter=lambda: 0.5
    )
    assert clients.of_module("any") is clients
    assert clients.upstream is world.pool
    assert clients.as_agentk()._upstream is world.pool
    waiting: Deferred[Any] = Deferred.fromCoroutine(
        clients.as_agentk().request("GET", "/version")
    )
    world.later(1)
    assert waiting.called


CONFIG_MAPS = KubernetesResource("", "v1", "ConfigMap", "configmaps", True)

#: A record in any namespace, by each method.
RECORD: dict[str, Callable[[Any, str], Any]] = {
    "get": lambda client, where: client.get(CONFIG_MAPS, "inventory-1", where),
    "list": lambda client, where: read_all(client.list(CONFIG_MAPS, where)),
    "watch": lambda client, where: read_all(client.watch(CONFIG_MAPS, where)),
    "create": lambda client, where: client.json(
        "POST", f"/api/v1/namespaces/{where}/configmaps", POD
    ),
    "update": lambda client, where: client.json(
        "PUT", f"/api/v1/namespaces/{where}/configmaps/inventory-1", POD
    ),
    "patch": lambda client, where: client.patch(CONFIG_MAPS, "inventory-1", {}, where),
    "delete": lambda client, where: client.delete(CONFIG_MAPS, "inventory-1", where),
    "deletecollection": lambda client, where: client.json(
        "DELETE", f"/api/v1/namespaces/{where}/configmaps"
    ),
}


@pytest.mark.parametrize("verb", sorted(RECORD))
def test_records_elsewhere(tmp_path: Path, verb: str) -> None:
    """A record in a namespace that kas may have chosen needs a rule."""
    world = Denying(tmp_path)
    world.guard.floor.records = {"lists"}
    client = world.clients.of_module("gitops").for_records()
    with pytest.raises(OwnerDenial):
        world.run(RECORD[verb](client, "victim"))
    assert world.cluster.requests == []
    if verb in ("watch", "deletecollection"):
        return
    for where in "txkas", "lists":
        world.cluster.requests.clear()
        with contextlib.suppress(CallError):
            world.run(RECORD[verb](client, where))
        assert len(world.cluster.requests) == 1
