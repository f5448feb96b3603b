"""``/agents/<agent>/cache``: the Kubernetes API of one cluster, from agentk's cache."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import aclosing
from typing import Final

from twisted.internet.defer import Deferred, TimeoutError
from zope.interface import implementer

from modules.cluster_data.wire import objects_pb2 as wire
from tunnel.api import (
    AgentPathRequest,
    IAgentPath,
    IAgentPathResponse,
    IServerModuleApi,
)
from tunnel.errors import CallError, Status
from tunnel.kubernetes import only_reads, status_object

__all__ = ["NAME", "OBJECTS", "SECONDS", "CachePath"]

#: Name of the path.
NAME: Final = "cache"

#: Maximum bytes of a question for the rights of the caller.
MAX_BODY: Final = 64 * 1024

#: Maximum seconds of a response; agentk ends a watch after an hour.
SECONDS: Final = 4000.0

#: Seconds after which a client that reads nothing is disconnected.
READ_SECONDS: Final = 60.0

_JSON: Final = "application/json"

#: The service of agentk's half.
OBJECTS: Final = wire.DESCRIPTOR.services_by_name["ClusterObjects"]

#: HTTP status of an error of a call; 500 for others.
_CODES: Final = {
    Status.PERMISSION_DENIED: 403,
    Status.RESOURCE_EXHAUSTED: 429,
    Status.FAILED_PRECONDITION: 503,
    Status.UNAVAILABLE: 503,
    Status.UNIMPLEMENTED: 503,
    Status.DEADLINE_EXCEEDED: 504,
}


@implementer(IAgentPath)
class CachePath:
    """
    See `IAgentPath`.

    :ivar requests: number of responses by HTTP status.
    """

    max_body_bytes = MAX_BODY
    is_kubernetes = True

    def __init__(self, api: IServerModuleApi) -> None:
        self._api = api
        self.requests: Counter[int] = Counter()

    def render_error(self, status: int, message: str) -> tuple[str, bytes]:
        """See `IAgentPath`."""
        self.requests[status] += 1
        return _JSON, json.dumps(status_object(status, message)).encode() + b"\n"

    async def answer(
        self, request: AgentPathRequest, response: IAgentPathResponse
    ) -> None:
        """
        Let agentk answer a request, or refuse it.

        :raises CallError: the response is incomplete, which the client notices.
        """
        target = request.path + (f"?{request.query}" if request.query else "")
        refused = _why_refused(request, target)
        if refused is not None:
            response.respond(refused[0], *self.render_error(*refused))
            return
        access = request.access
        client = self._api.calls.client(OBJECTS, access.agent_id, access)
        asked = wire.ReadRequest(
            target=target,
            accept=request.fields.get("accept", ""),
            review=request.body,
            content_type=request.fields.get("content-type", ""),
        )
        async with aclosing(client.stream("Read", asked, timeout=SECONDS)) as parts:
            try:
                head = (await anext(parts)).head
            except CallError as error:
                code = _CODES.get(error.status, 500)
                response.respond(code, *self.render_error(code, _text(error)))
                return
            except StopAsyncIteration:
                response.respond(500, *self.render_error(500, "agentk sent nothing"))
                return
            self.requests[head.status] += 1
            response.stream(head.status, head.content_type)
            async for part in parts:
                await self._write(response, part.data)

    async def _write(self, response: IAgentPathResponse, data: bytes) -> None:
        """
        Send a part of a response.

        :raises CallError: the client does not read, and would hold its turn in agentk.
        """

        async def write() -> None:
            await response.write(data)

        writing = Deferred.fromCoroutine(write())
        writing.addTimeout(READ_SECONDS, self._api.clock)
        try:
            await writing
        except TimeoutError:
            raise CallError(
                Status.DEADLINE_EXCEEDED, "the client has not read the response"
            ) from None


def _why_refused(request: AgentPathRequest, target: str) -> tuple[int, str] | None:
    """Return status and message for a request that agentk shall not get."""
    is_review = request.method == "POST" and only_reads(b"POST", target.encode())
    if request.method != "GET" and not is_review:
        return 405, (
            f"the cache only permits get, list and watch, not {request.method}; use "
            "the ordinary endpoint, whose address is the same without '/cache'"
        )
    if is_review == (not request.body):
        return 400, "only a POST has a body"
    return None


def _text(error: CallError) -> str:
    if error.status is Status.UNIMPLEMENTED:
        return (
            "the agent does not have the module cluster_data; enable "
            "modules.cluster_data in the configuration of agentk, or update agentk"
        )
    return error.message
