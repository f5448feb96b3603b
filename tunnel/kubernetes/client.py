"""Requests of agent halves to the API server, each in the name of one caller."""

from __future__ import annotations

import json
import re
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from tunnel.errors import CallError, Status
from tunnel.http1 import (
    ResponseHead,
    ResponseParser,
    UpstreamError,
    UpstreamPool,
    UpstreamRequest,
)
from tunnel.interfaces import (
    Access,
    ICluster,
    IKubernetesClient,
    KubernetesResponse,
)
from tunnel.kubernetes.impersonation import impersonation_fields
from tunnel.kubernetes.request_info import climbs, only_reads

__all__ = ["KubernetesClient", "KubernetesClients"]

#: Bytes of an answer that is collected.  A list of five thousand pods has about that
#: much; what has more is asked in pages, or belongs on a stream.
MAX_BODY = 16 * 1024 * 1024

#: Seconds for an answer, where the caller says nothing; API servers give up after 60.
TIMEOUT = 30.0

_TARGET = re.compile(r"/[!-~]*")
_METHOD = re.compile(r"[A-Z]{1,20}")
_CONTENT_TYPE = re.compile(r"[!-~](?:[ -~]*[!-~])?")

_STATUSES = {
    400: Status.INVALID_ARGUMENT,
    # Of agentk's own credential: the caller has been authenticated by kas.
    401: Status.UNAVAILABLE,
    403: Status.PERMISSION_DENIED,
    404: Status.NOT_FOUND,
    409: Status.ABORTED,
    410: Status.OUT_OF_RANGE,
    422: Status.INVALID_ARGUMENT,
    429: Status.RESOURCE_EXHAUSTED,
    504: Status.DEADLINE_EXCEEDED,
}


class KubernetesClients:
    """
    Makes clients for callers; all of them share one pool of connections.

    :param cluster: the API server, and agentk's credential for it.
    """

    def __init__(self, cluster: ICluster, clock: IReactorTime) -> None:
        self.cluster: Any = cluster
        self.clock = clock
        self.pool = UpstreamPool(
            lambda: self.cluster.endpoint(), clock, parser=ResponseParser()
        )

    def acting_for(self, access: Access | None) -> KubernetesClient:
        """
        A client that may do what *access* may, and nothing else.

        :raises CallError: PERMISSION_DENIED, there is no access: the caller is not
            known, or the server half did not pass it on.
        """
        if access is None:
            raise CallError(
                Status.PERMISSION_DENIED,
                "the call names no user; the server half passes it on with "
                "api.client(service, agent_id, access=access)",
            )
        return KubernetesClient(self, access)

    def as_agentk(self) -> KubernetesClient:
        """A client with the rights of agentk's own account."""
        return KubernetesClient(self, None)

    def close(self) -> None:
        """Drop every connection; requests under way fail."""
        self.pool.close()


@implementer(IKubernetesClient)
class KubernetesClient:
    """
    See `tunnel.interfaces.IKubernetesClient`.

    :param access: whose rights requests have; None: agentk's.
    """

    def __init__(self, clients: KubernetesClients, access: Access | None) -> None:
        self._clients = clients
        self._access = access
        self._impersonation = b""
        if access is not None and access.impersonation is not None:
            try:
                self._impersonation = impersonation_fields(access.impersonation)
            except ValueError as error:
                raise CallError(
                    Status.PERMISSION_DENIED, f"{access.credential_id}: {error}"
                ) from None

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        content_type: str = "application/json",
        timeout: float = TIMEOUT,
    ) -> KubernetesResponse:
        """One request, whatever the API server answers."""
        if _TARGET.fullmatch(path) is None:
            raise ValueError(f"{path[:200]!r} is no path; percent-encode its parts")
        if climbs(path.partition("?")[0].encode("ascii")):
            raise ValueError(f"{path[:200]!r} leads out of the cluster")
        if _METHOD.fullmatch(method) is None:
            raise ValueError(f"{method[:20]!r} is no method")
        if _CONTENT_TYPE.fullmatch(content_type) is None:
            raise ValueError(f"{content_type[:200]!r} is no content type")
        access = self._access
        verb, target = method.encode("ascii"), path.encode("ascii")
        if access is not None and access.read_only and not only_reads(verb, target):
            raise CallError(Status.PERMISSION_DENIED, f"{access.who} is read-only")
        cluster = self._clients.cluster
        fields = b"\r\nHost: %b\r\nAccept: application/json" % cluster.host_header
        if body:
            fields += b"\r\nContent-Type: " + content_type.encode("ascii")
        authorization = cluster.authorization()
        if authorization is not None:
            fields += b"\r\nAuthorization: " + authorization
        answer = _Answer()
        answer.begin(
            self._clients.pool.request(
                verb,
                cluster.path_prefix.rstrip("/").encode("ascii") + target,
                fields + self._impersonation,
                answer,
                length=len(body),
            ),
            body,
        )
        try:
            response = await answer.done.addTimeout(timeout, self._clients.clock)
        except TimeoutError:
            raise CallError(
                Status.DEADLINE_EXCEEDED,
                f"agent -> API server: no answer within {timeout:g} s",
            ) from None
        except UpstreamError as error:
            raise CallError(
                Status.UNAVAILABLE, f"agent -> API server: {error}"
            ) from error
        if response.status == 401:
            cluster.rejected()
        return response

    async def json(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        timeout: float = TIMEOUT,
    ) -> Any:
        """One request, and the object in its answer."""
        data = b"" if body is None else json.dumps(body).encode()
        response = await self.request(
            method, path, data, content_type=content_type, timeout=timeout
        )
        try:
            found = json.loads(response.body) if response.body else None
        except ValueError:
            found = None
        if not 200 <= response.status < 300:
            said = found.get("message") if isinstance(found, dict) else None
            status = _STATUSES.get(
                response.status,
                Status.UNAVAILABLE
                if response.status >= 500
                else Status.FAILED_PRECONDITION,
            )
            raise CallError(
                status, f"API server: {said or f'status {response.status}'}"
            )
        return found


class _Answer:
    """Collects one answer."""

    def __init__(self) -> None:
        self.done: Deferred[KubernetesResponse] = Deferred(self._cancelled)
        self._request: UpstreamRequest | None = None
        self._status = 0
        self._parts: list[bytes] = []
        self._size = 0

    def begin(self, request: UpstreamRequest, body: bytes) -> None:
        """*request* was sent."""
        self._request = request
        if body:
            request.write(body)
            request.finish()

    def _cancelled(self, _: object) -> None:
        if self._request is not None:
            self._request.abort()

    def response_informational(self, head: ResponseHead) -> None:
        """See `tunnel.http1.ResponseReceiver`."""

    def response_started(self, head: ResponseHead) -> None:
        """See `tunnel.http1.ResponseReceiver`."""
        self._status = head.status

    def response_data(self, data: bytes) -> None:
        """See `tunnel.http1.ResponseReceiver`."""
        self._size += len(data)
        if self._size <= MAX_BODY:
            self._parts.append(data)
        elif not self.done.called:
            self._parts.clear()
            self.done.errback(
                CallError(
                    Status.RESOURCE_EXHAUSTED,
                    f"API server: the answer has more than {MAX_BODY} bytes; "
                    "ask in pages (limit=500)",
                )
            )
            self._cancelled(None)

    def response_finished(self, trailers: bytes) -> None:
        """See `tunnel.http1.ResponseReceiver`."""
        if not self.done.called:
            self.done.callback(KubernetesResponse(self._status, b"".join(self._parts)))

    def response_failed(self, reason: Exception) -> None:
        """See `tunnel.http1.ResponseReceiver`."""
        if not self.done.called:
            self.done.errback(reason)
