"""``/agents/<agent>/prometheus``: the Prometheus API of one cluster."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Final

from google.protobuf.json_format import MessageToDict
from zope.interface import implementer

from modules.prometheus.server.envelope import (
    JSON,
    QuestionRefused,
    envelope,
    refused,
)
from modules.prometheus.server.metrics import RequestMetrics
from modules.prometheus.server.parameters import (
    MAX_BODY,
    PromQuestion,
    read_question,
)
from modules.prometheus.wire import prometheus_pb2 as wire
from tunnel.api import (
    AgentPathRequest,
    IAgentPath,
    IAgentPathResponse,
    IServerModuleApi,
)
from tunnel.errors import CallError

__all__ = ["NAME", "PROMETHEUS", "SECONDS", "PrometheusPath"]

#: Name of the path.
NAME: Final = "prometheus"

#: Path that shows how agentk searches for Prometheus; not a path of Prometheus.
DISCOVERY: Final = "/discovery"

#: Maximum seconds of a response: Prometheus evaluates for 2 minutes, and a client that
#: reads more slowly would hold its turn.
SECONDS: Final = 600.0

#: Timeout of a search in seconds.
SEARCH_SECONDS: Final = 60.0

PROMETHEUS: Final = wire.DESCRIPTOR.services_by_name["Prometheus"]


@implementer(IAgentPath)
class PrometheusPath:
    """See `IAgentPath`."""

    max_body_bytes = MAX_BODY
    is_kubernetes = False

    def __init__(self, api: IServerModuleApi, metrics: RequestMetrics) -> None:
        self._api = api
        self._metrics = metrics

    def render_error(self, status: int, message: str) -> tuple[str, bytes]:
        """See `IAgentPath`."""
        self._metrics.count("agent", "", status)
        return JSON, envelope(status, message)

    async def answer(
        self, request: AgentPathRequest, response: IAgentPathResponse
    ) -> None:
        """
        Forward a request, or refuse it.

        :raises CallError: the response is incomplete, which the client notices.
        """
        endpoint = ""
        try:
            if request.path == DISCOVERY:
                endpoint = "discovery"
                status, body = 200, await self._discovery(request)
            else:
                question = read_question(
                    request.method,
                    request.path,
                    request.query,
                    request.fields.get("content-type", ""),
                    request.body,
                )
                endpoint = question.endpoint.name
                await self._forward(request, question, response)
                return
        except QuestionRefused as failure:
            status, body = failure.status, envelope(failure.status, str(failure))
        self._metrics.count("agent", endpoint, status)
        response.respond(status, JSON, body)

    async def _forward(
        self,
        request: AgentPathRequest,
        question: PromQuestion,
        response: IAgentPathResponse,
    ) -> None:
        """Ask the agent, and pass its response on, part by part."""
        access = request.access
        client = self._api.calls.client(PROMETHEUS, access.agent_id, access)
        asked = wire.Question(path=question.path, form=question.form)
        async with aclosing(client.stream("Ask", asked, timeout=SECONDS)) as parts:
            try:
                head = (await anext(parts)).head
            except CallError as error:
                raise refused(error) from None
            except StopAsyncIteration:
                raise QuestionRefused(500, "the agent did not respond") from None
            self._metrics.count("agent", question.endpoint.name, head.status)
            response.stream(head.status, _content_type(head.content_type))
            try:
                async for part in parts:
                    await response.write(part.data)
            except CallError:
                self._metrics.broken += 1
                raise

    async def _discovery(self, request: AgentPathRequest) -> bytes:
        if request.method != "GET":
            raise QuestionRefused(405, f"{DISCOVERY} permits GET only")
        access = request.access
        client = self._api.calls.client(PROMETHEUS, access.agent_id, access)
        try:
            trail = await client.call(
                "Find", wire.FindRequest(), timeout=SEARCH_SECONDS
            )
        except CallError as error:
            raise refused(error) from None
        shown = MessageToDict(trail, preserving_proto_field_name=True)
        return json.dumps(shown).encode() + b"\n"


def _content_type(said: str) -> str:
    """Return the content type of a response: JSON, or text that no browser runs."""
    return said if said.partition(";")[0].strip() == JSON else "text/plain"
