"""Paths of modules at the listener for kubectl, for tests of their modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zope.interface import implementer

from tunnel.api import (
    Access,
    AgentPathRequest,
    IAgentPath,
    IAgentPathResponse,
    IAgentPaths,
)

__all__ = ["FakeAgentPaths", "FakePathResponse"]


@implementer(IAgentPathResponse)
class FakePathResponse:
    """`IAgentPathResponse` that records the response."""

    def __init__(self) -> None:
        self.status = 0
        self.content_type = ""
        self.body = b""
        #: Whether the module sent the response part by part.
        self.streamed = False

    def respond(self, status: int, content_type: str, body: bytes) -> None:
        self.status, self.content_type, self.body = status, content_type, body

    def stream(self, status: int, content_type: str) -> None:
        self.status, self.content_type, self.streamed = status, content_type, True

    async def write(self, data: bytes) -> None:
        self.body += data


@implementer(IAgentPaths)
class FakeAgentPaths:
    """`IAgentPaths` whose requests come from the test."""

    def __init__(self) -> None:
        #: The served paths by name.
        self.served: dict[str, IAgentPath] = {}

    def serve(self, name: str, path: IAgentPath) -> Callable[[], None]:
        self.served[name] = path

        def withdraw() -> None:
            del self.served[name]

        return withdraw

    async def request(
        self,
        access: Access,
        target: str,
        method: str = "GET",
        body: bytes = b"",
        fields: Mapping[str, str] | None = None,
    ) -> FakePathResponse:
        """
        Send a request of a client whose credential was accepted.

        :param target: the target below the agent's name: ``/<name>/…?…``.
        """
        path, _, query = target.partition("?")
        _, name, *rest = path.split("/", 2)
        response = FakePathResponse()
        await self.served[name].answer(
            AgentPathRequest(
                access, method, "/" + "".join(rest), query, dict(fields or {}), body
            ),
            response,
        )
        return response
