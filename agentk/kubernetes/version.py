"""The version of the API server, which kas shows to users."""

from __future__ import annotations

import json
from typing import Any

from twisted.logger import Logger

from tunnel.api import ICluster
from tunnel.errors import TunnelError
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import KubernetesClients
from tunnel.pb import tunnel_pb2 as pb

__all__ = ["ClusterVersion", "OtherAnswer"]

#: Maximum number of seconds for a response, because the first connection to kas waits
#: for it.
TIMEOUT = 2.0

#: Maximum number of characters of one text, which is part of every greeting.
MAX_TEXT = 100


class OtherAnswer(TunnelError):
    """Raised if the API server responded with a status other than 200."""

    def __init__(self, code: int) -> None:
        super().__init__(f"status {code}")
        self.code = code


class ClusterVersion:
    """
    The API server's version, requested from ``/version`` and remembered.

    If the version is unknown, callers continue without it.
    """

    _log = Logger()

    def __init__(self, cluster: ICluster, reactor: Any) -> None:
        self._cluster = cluster
        self._reactor = reactor
        #: The last known version; empty before the first response.
        self.known = pb.KubernetesVersion()

    async def refresh(self) -> None:
        """
        Request the version.

        :raises Exception: if the request fails, or takes longer than `TIMEOUT`.
        """
        answer = await self._ask()
        try:
            found = json.loads(answer)
            self.known = pb.KubernetesVersion(
                **{
                    ours: str(found.get(theirs, ""))[:MAX_TEXT]
                    for ours, theirs in (
                        ("major", "major"),
                        ("minor", "minor"),
                        ("git_version", "gitVersion"),
                        ("platform", "platform"),
                    )
                }
            )
        except Exception as error:
            self._log.debug(
                "the version of Kubernetes is unknown: {error!r}", error=error
            )

    async def _ask(self) -> bytes:
        # A new connection is used, because a connection that was kept proves nothing
        # about new connections.
        pool = UpstreamPool(self._cluster.endpoint, self._reactor)
        # One request has no pauses for jitter.
        clients = KubernetesClients(
            self._cluster, pool, self._reactor, jitter=lambda: 1.0
        )
        try:
            response = await clients.as_agentk().request(
                "GET", "/version", timeout=TIMEOUT
            )
        finally:
            pool.close()
        if response.status != 200:
            raise OtherAnswer(response.status)
        return response.body
