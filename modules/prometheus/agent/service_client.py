"""Requests to a Service: to its ClusterIP, or through the API server."""

from __future__ import annotations

from typing import Any, Final, Protocol

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IProtocolFactory,
    IReactorTime,
    IStreamClientEndpoint,
)
from zope.interface import implementer

from modules.prometheus.agent.body_parts import BodyParts
from modules.prometheus.agent.services import ServiceTarget
from tunnel.api import IKubernetes
from tunnel.http1 import UpstreamLimits, UpstreamPool, UpstreamRequest
from tunnel.toolkit.recent import Recent

__all__ = [
    "ClusterServiceClient",
    "DirectServiceClient",
    "ProxiedServiceClient",
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


def _host_of(target: ServiceTarget) -> str:
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


@implementer(IStreamClientEndpoint)
@attrs.frozen
class _ServiceEndpoint:
    """Endpoint that reads the Service for each connection, because it may change."""

    kubernetes: IKubernetes
    target: ServiceTarget

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        return Deferred.fromCoroutine(self._connected(protocolFactory))

    async def _connected(self, factory: IProtocolFactory) -> Any:
        target = self.target
        endpoint = await self.kubernetes.service_endpoint(
            target.namespace, target.name, target.port
        )
        return await endpoint.connect(factory)


class DirectServiceClient:
    """
    Connections of agentk, which runs in the cluster, to the ClusterIPs of Services.

    Neither DNS nor a Service without a selector can lead a connection to another place.
    """

    def __init__(self, kubernetes: IKubernetes, clock: IReactorTime) -> None:
        self._kubernetes = kubernetes
        self._clock = clock
        self._pools: Recent[tuple[str, int], UpstreamPool] = Recent(MAX_POOLS)

    def send(
        self, target: ServiceTarget, path: str, form: str, post: bool, parts: BodyParts
    ) -> UpstreamRequest:
        """See `ClusterServiceClient`."""
        # A connection may be older than a change of the owner's policy.
        self._kubernetes.check_service(target.namespace, target.name, target.port)
        host, port = _host_of(target), target.port
        pool = self._pools.get((host, port))
        if pool is None:
            endpoint = _ServiceEndpoint(self._kubernetes, target)
            pool = UpstreamPool(lambda: endpoint, self._clock, limits=_LIMITS)
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
