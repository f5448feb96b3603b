"""Which version the API server has: kas shows it to people."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tunnel.http1 import ResponseHead, UpstreamError, UpstreamPool
from tunnel.interfaces import ICluster
from tunnel.pb import tunnel_pb2 as pb

__all__ = ["ClusterVersion", "OtherAnswer"]

#: Seconds for an answer: the first connection to kas waits for it.
TIMEOUT = 2.0

#: Bytes: it is an object of ten short texts.
MAX_BODY = 64 * 1024

#: Characters of one text: it travels in every greeting.
MAX_TEXT = 100


class OtherAnswer(UpstreamError):
    """The API server answered, with another status than 200."""

    def __init__(self, code: int) -> None:
        super().__init__(f"status {code}")
        self.code = code


class _Body:
    """Collects an answer."""

    def __init__(self) -> None:
        self.done: Deferred[bytes] = Deferred()
        self._body = b""
        self._code = 0

    def response_informational(self, head: ResponseHead) -> None:
        """There is none that matters."""

    def response_started(self, head: ResponseHead) -> None:
        """Whether it is an answer."""
        self._code = head.status

    def response_data(self, data: bytes) -> None:
        """A part of it."""
        self._body += data
        if len(self._body) > MAX_BODY:
            self._body = b""
            self._code = 413

    def response_finished(self, trailers: bytes) -> None:
        """All of it."""
        if self._code == 200:
            self._end(self._body)
        else:
            self._end(OtherAnswer(self._code))

    def response_failed(self, reason: Exception) -> None:
        """None."""
        self._end(reason)

    def _end(self, result: bytes | Exception) -> None:
        if self.done.called:
            return
        if isinstance(result, bytes):
            self.done.callback(result)
        else:
            self.done.errback(result)


class ClusterVersion:
    """Asks ``/version``, and remembers; who does not learn it goes without."""

    _log = Logger()

    def __init__(self, cluster: ICluster, reactor: Any) -> None:
        self._cluster = cluster
        self._reactor = reactor
        #: What was answered last; empty before that.
        self.known = pb.KubernetesVersion()

    async def refresh(self) -> None:
        """Ask; raises what keeps an answer away, within `TIMEOUT`."""
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
                "the version of Kubernetes is not known: {error!r}", error=error
            )

    async def _ask(self) -> bytes:
        cluster = self._cluster
        fields = b"\r\nHost: %b\r\nAccept: application/json" % cluster.host_header
        authorization = cluster.authorization()
        if authorization is not None:
            fields += b"\r\nAuthorization: " + authorization
        pool = UpstreamPool(cluster.endpoint, self._reactor)
        body = _Body()
        try:
            target = f"{cluster.path_prefix}/version".encode("ascii")
            pool.request(b"GET", target, fields, body)
            return await body.done.addTimeout(TIMEOUT, self._reactor)
        finally:
            pool.close()
