"""Services of kas itself on the external API: its version and its health."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

from twisted.internet.defer import Deferred

from kas.pb import health_pb2, server_info_pb2
from tunnel import __version__
from tunnel.errors import CallError, Status

__all__ = ["CHECK", "HEALTH", "SERVER_INFO", "ApiHealth", "ServerInfo"]

SERVER_INFO = server_info_pb2.DESCRIPTOR.services_by_name["ServerInfo"]
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]

#: Method that clients may call without a token, as probes do: the response does not
#: reveal more than an accepted connection does.
CHECK = f"/{HEALTH.full_name}/Check"

_ServingStatus = health_pb2.HealthCheckResponse.ServingStatus


class ServerInfo:
    """Implementation of GitLab's service for the version of kas."""

    async def get_server_info(
        self, request: server_info_pb2.GetServerInfoRequest, call: Any
    ) -> server_info_pb2.GetServerInfoResponse:
        """Return the version."""
        return server_info_pb2.GetServerInfoResponse(
            current_server_info=server_info_pb2.CurrentServerInfo(
                version=__version__, git_ref=f"v{__version__}"
            )
        )


class ApiHealth:
    """
    Health checking protocol of gRPC, for the external API as a whole.

    :param names: returns the full names of the available services.
    """

    def __init__(self, names: Callable[[], Collection[str]]) -> None:
        self._names = names
        self._draining = False
        self._watchers: set[Deferred[None]] = set()

    def drain(self) -> None:
        """Report from now on that kas does not serve calls."""
        self._draining = True
        watchers, self._watchers = self._watchers, set()
        for watcher in watchers:
            if not watcher.called:
                watcher.callback(None)

    async def check(
        self, request: health_pb2.HealthCheckRequest, call: Any
    ) -> health_pb2.HealthCheckResponse:
        """
        Return the status of a service; an empty name means the status of all services.

        :raises CallError: NOT_FOUND if no such service exists.
        """
        status = self._status(request.service)
        if status == _ServingStatus.SERVICE_UNKNOWN:
            raise CallError(Status.NOT_FOUND, "unknown service")
        return health_pb2.HealthCheckResponse(status=status)

    async def watch(
        self, request: health_pb2.HealthCheckRequest, call: Any
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Yield the current status, and then each change of the status."""
        status = self._status(request.service)
        yield health_pb2.HealthCheckResponse(status=status)
        if self._draining:
            return
        watcher: Deferred[None] = Deferred()
        self._watchers.add(watcher)
        try:
            await watcher
        finally:
            self._watchers.discard(watcher)
        yield health_pb2.HealthCheckResponse(status=_ServingStatus.NOT_SERVING)

    def _status(self, service: str) -> health_pb2.HealthCheckResponse.ServingStatus:
        if service and service not in self._names():
            return _ServingStatus.SERVICE_UNKNOWN
        if self._draining:
            return _ServingStatus.NOT_SERVING
        return _ServingStatus.SERVING
