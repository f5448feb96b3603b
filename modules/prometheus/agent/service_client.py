"""Requests to a Service: by its name in DNS, or through the API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint

from modules.prometheus.agent.body_parts import BodyParts
from modules.prometheus.agent.services import ServiceTarget
from tunnel.api import IKubernetes
from tunnel.http1 import UpstreamLimits, UpstreamPool, UpstreamRequest
from tunnel.toolkit.recent import Recent

__all__ = [
    "ClusterServiceClient",
    "DnsServiceClient",
    "ProxiedServiceClient",
    "host_of",
]

#: Header fields of each request: nothing of the user, of kas or of agentk.
_FIELDS: Final = b"\r\nAccept: application/json\r\nAccept-Encoding: identity"
_FORM: Final = b"\r\nContent-Type: application/x-www-form-urlencoded"

#: Connections to one Service: the questions of one agent, and probes.
_LIMITS: Final = UpstreamLimits(max_connections=16, max_idle=4, max_waiting=32)

#: Services with open connections.  A search probes several, and asks one.
MAX_POOLS: Final = 8


class ClusterServiceClient(Protocol):
    """Client of Services, on one of two paths."""

    def send(
        self, target: ServiceTarget, path: str, form: str, post: bool, parts: BodyParts
    ) -> UpstreamRequest:
        """
        Send a request; redirects are not followed.

        :param path: the path of Prometheus' API.
        :param form: its parameters.
        :param post: whether to send them as the body of a POST.
        """

    def close(self) -> None:
        """End all requests."""


def host_of(target: ServiceTarget) -> str:
    """Return the name of a Service in the DNS of its cluster."""
    return f"{target.name}.{target.namespace}.svc"


def _line(
    prefix: str, path: str, form: str, post: bool
) -> tuple[bytes, bytes, bytes, bytes]:
    """Return method, target, fields and body of a request."""
    target = f"{prefix}{path}"
    if post:
        return b"POST", target.encode(), _FIELDS + _FORM, form.encode()
    return b"GET", (f"{target}?{form}" if form else target).encode(), _FIELDS, b""


def _send(
    pool: UpstreamPool,
    line: tuple[bytes, bytes, bytes, bytes],
    more: bytes,
    parts: BodyParts,
) -> UpstreamRequest:
    method, target, fields, body = line
    request = pool.request(method, target, fields + more, parts, length=len(body))
    if body:
        request.write(body)
        request.finish()
    return request


class DnsServiceClient:
    """
    Connections of agentk, which runs in the cluster, to Services by name.

    :param endpoint: returns the endpoint for a connection to a host and port.
    """

    def __init__(
        self,
        clock: IReactorTime,
        endpoint: Callable[[str, int], IStreamClientEndpoint],
    ) -> None:
        self._clock = clock
        self._endpoint = endpoint
        self._pools: Recent[tuple[str, int], UpstreamPool] = Recent(MAX_POOLS)

    @classmethod
    def of(cls, reactor: Any, clock: IReactorTime) -> DnsServiceClient:
        """Return a client with the system's resolver."""
        return cls(clock, lambda host, port: HostnameEndpoint(reactor, host, port))

    def send(
        self, target: ServiceTarget, path: str, form: str, post: bool, parts: BodyParts
    ) -> UpstreamRequest:
        """See `ClusterServiceClient`."""
        host, port = host_of(target), target.port
        pool = self._pools.get((host, port))
        if pool is None:
            pool = UpstreamPool(
                lambda: self._endpoint(host, port), self._clock, limits=_LIMITS
            )
            if len(self._pools) == MAX_POOLS:
                self._pools.popitem(last=False)[1].close()
        self._pools[host, port] = pool
        more = f"\r\nHost: {host}:{port}".encode()
        return _send(pool, _line(target.path, path, form, post), more, parts)

    def close(self) -> None:
        """See `ClusterServiceClient`."""
        while self._pools:
            self._pools.popitem()[1].close()


class ProxiedServiceClient:
    """
    Requests through the API server's proxy for Services, with agentk's rights.

    The API server checks agentk's credential and removes it.
    """

    def __init__(self, kubernetes: IKubernetes) -> None:
        self._kubernetes = kubernetes

    def send(
        self, target: ServiceTarget, path: str, form: str, post: bool, parts: BodyParts
    ) -> UpstreamRequest:
        """See `ClusterServiceClient`."""
        cluster = self._kubernetes.cluster_as_agentk
        prefix = (
            f"{cluster.path_prefix.rstrip('/')}/api/v1/namespaces/{target.namespace}"
            f"/services/{target.scheme}:{target.name}:{target.port_text}/proxy"
            f"{target.path}"
        )
        more = b"\r\nHost: " + cluster.host_header
        authorization = cluster.authorization()
        if authorization is not None:
            more += b"\r\nAuthorization: " + authorization
        line = _line(prefix, path, form, post)
        return _send(self._kubernetes.upstream, line, more, parts)

    def close(self) -> None:
        """See `ClusterServiceClient`."""
        self._kubernetes.upstream.give_up(lambda one: isinstance(one, BodyParts))
