"""Both halves of ``prometheus`` in memory, and a cluster with Services."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from twisted.internet.task import Clock

from modules.prometheus.agent.module import PrometheusAgent
from modules.prometheus.server.module import PrometheusServer
from modules.prometheus.server.trails import TRAILS
from modules.prometheus.wire import prometheus_pb2 as wire
from tunnel.api import Access, Impersonation
from tunnel.testing import FakeCluster, FakePathResponse, FakeRequest, ModulePair

ALICE = Access("user:alice", "1", "agent-1", impersonation=Impersonation("alice"))
BOB = Access(
    "user:bob", "1", "agent-1", impersonation=Impersonation("bob"), read_only=True
)


def envelope(data: Any, **more: Any) -> bytes:
    """Return an answer of Prometheus."""
    return json.dumps({"status": "success", "data": data} | more).encode()


UP = {"resultType": "vector", "result": [{"metric": {}, "value": [1, "1"]}]}

#: Answers a request for a Service: status and body.
Backend = Callable[[str, dict[str, list[str]]], tuple[int, bytes]]


def healthy(path: str, form: dict[str, list[str]]) -> tuple[int, bytes]:
    """Answer as a Prometheus."""
    if path == "/api/v1/status/buildinfo":
        return 200, envelope({"version": "2.42.0"})
    if path == "/api/v1/query":
        return 200, envelope(UP)
    if path.startswith("/api/v1/label"):
        return 200, envelope(["job"])
    if path == "/api/v1/series":
        return 200, envelope([{"job": "x"}])
    return 404, b"404 page not found"


def service(
    name: str,
    labels: dict[str, str] | None = None,
    namespace: str = "monitoring",
    ports: Any = ({"name": "web", "port": 9090},),
    **spec: Any,
) -> Any:
    """Return a Service."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"ports": list(ports), "selector": {"app": name}, **spec},
    }


class PromCluster(FakeCluster):
    """
    A cluster whose API server reviews rights, and proxies to Services.

    :ivar rights: pairs of a user and ``NAMESPACE/NAME`` of a Service, or ``list``.
    :ivar backends: by ``NAMESPACE/SCHEME:NAME:PORT``.
    :ivar asked: the requests of Services: backend, path, form.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.rights = {("alice", "monitoring/prom"), ("bob", "monitoring/prom")}
        self.backends: dict[str, Backend] = {"monitoring/http:prom:web": healthy}
        self.asked: list[tuple[str, str, dict[str, list[str]]]] = []
        self.received: list[FakeRequest] = []
        self.reviews = 0

    def take(self, request: FakeRequest) -> Any:
        if request.path.endswith("/selfsubjectaccessreviews"):
            self.reviews += 1
            spec = json.loads(request.body)["spec"]["resourceAttributes"]
            if spec["verb"] == "list":
                what = "list"
            else:
                assert (spec["verb"], spec["resource"]) == ("get", "services")
                assert spec["subresource"] == "proxy"
                what = f"{spec['namespace']}/{spec['name']}"
            allowed = (request.user, what) in self.rights
            return 201, json.dumps({"status": {"allowed": allowed}}).encode()
        _, services, rest = request.path.partition("/services/")
        name, proxy, path = rest.partition("/proxy")
        if not services or not proxy:
            return super().take(request)
        self.received.append(request)
        key = f"{request.path.split('/')[4]}/{name}"
        path, _, query = path.partition("?")
        form = parse_qs(query or request.body.decode())
        self.asked.append((key, path, form))
        backend = self.backends.get(key)
        if backend is None:
            status = {"kind": "Status", "message": f"no endpoints for {name}"}
            return 503, json.dumps(status).encode()
        return backend(path, form)


class MemoryStand:
    """A `ModulePair` with ``prometheus`` on both sides, and a Service ``prom``."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.cluster = PromCluster(self.clock)
        self.pair = ModulePair(self.clock, cluster=self.cluster)
        self.server = self.pair.server_half(PrometheusServer)
        self.agent = self.pair.agent_half(
            PrometheusAgent, **({"reach": "api-server"} | options)
        )
        self.pair.start()
        self.server.api.users.tokens.update(alice=ALICE, bob=BOB)

    def add(self, *objects: Any) -> None:
        for one in objects:
            self.cluster.objects.put(one)

    def add_prometheus(self) -> None:
        """Add the Service that our label selects."""
        self.add(service("prom", {"txkas/prometheus": "true"}))

    def request(
        self,
        target: str,
        access: Access = ALICE,
        method: str = "GET",
        body: bytes = b"",
        kind: str = "application/x-www-form-urlencoded",
    ) -> FakePathResponse:
        """Return the response at ``/agents/agent-1/prometheus``."""
        return self.pair.run(
            self.pair.paths.request(
                access,
                f"/prometheus{target}",
                method,
                body,
                {"content-type": kind} if body else {},
            ),
            patience=700,
        )

    def ask(self, target: str, status: int = 200, **more: Any) -> Any:
        """Return the envelope of a response."""
        response = self.request(f"/api/v1{target}", **more)
        assert response.status == status, response.body
        return json.loads(response.body)

    def fleet(self, path: str, status: int = 200, token: str = "alice") -> Any:
        """Return the envelope of ``/fleet/prometheus``."""
        answer = self.pair.visit(
            f"/fleet/prometheus/api/v1/{path}",
            authorization=f"Bearer {token}",
            wait=0.25,
        )
        assert answer.status == status, answer.body
        return json.loads(answer.body)

    def find(self, again: bool = True) -> wire.Trail:
        """Return the search, as ``kasctl prometheus`` shows it."""
        request = wire.TrailRequest(agent="agent-1", again=again)
        client = self.pair.external(TRAILS)
        trail: wire.Trail = self.pair.run(client.call("Find", request))
        return trail

    def steps(self) -> list[tuple[str, str, str]]:
        """Return strategy, Service and outcome of each step with a Service."""
        return [
            (one.strategy, one.service, one.outcome)
            for one in self.find().steps
            if one.service
        ]

    def close(self) -> None:
        self.pair.stop()
        assert not self.pair.failures
