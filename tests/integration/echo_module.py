"""A module that answers one service with all kinds of calls on the external API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer, provider

from tests.proto.echo_pb2 import DESCRIPTOR, Text
from tunnel.api import IServerModule, IServerModuleFactory
from tunnel.details import bad_request
from tunnel.errors import CallError, Status

#: The dropin that makes it known.
DROPIN = """\
from tunnel.plugin import ServerModule

echo = ServerModule("echo", "tests.integration.echo_module.EchoModule")
"""


@attrs.frozen(kw_only=True)
class EchoConfiguration:
    """Nothing."""


@provider(IServerModuleFactory)
@implementer(IServerModule)
class EchoModule:
    """The same object could answer agents."""

    configuration = EchoConfiguration
    _log = Logger()

    def __init__(self, api: Any) -> None:
        self.name = api.name
        self._api = api
        api.handle_external(DESCRIPTOR.services_by_name["Echo"], self)

    async def start(self) -> None:
        """Nothing is to be done."""

    async def stop(self) -> None:
        """Nothing is held."""

    async def say(self, request: Text, call: Any) -> Text:
        assert call.agent is None
        assert "authorization" not in call.metadata
        if request.text == "wait":
            await Deferred()
        elif request.text == "slow":
            self._log.info("a slow call runs")
            await self._pause(1)
        elif request.text == "refuse":
            raise CallError(Status.PERMISSION_DENIED, "not you: ünïcode\r\n%")
        elif request.text.startswith("explain "):
            _, details, text = request.text.split()
            why = bad_request({"text": "x" * int(details)})
            raise CallError(Status.INVALID_ARGUMENT, "y" * int(text), [why])
        elif request.text == "crash":
            raise ZeroDivisionError("secret")
        elif request.text == "metadata":
            call.send_metadata({"Server-Said": "echo", "grpc-status": "7"})
            return Text(text=call.metadata["from"])
        return Text(text=request.text.upper())

    async def _pause(self, seconds: float) -> None:
        pause: Deferred[None] = Deferred()
        self._api.clock.callLater(seconds, pause.callback, None)
        await pause

    async def spell(self, request: Text, call: Any) -> AsyncIterator[Text]:
        if request.text == "count":
            for number in range(5):
                yield Text(text=str(number))
                await self._pause(0.1)
            return
        while request.text == "flood":
            yield Text(text="x" * 10_000)
        for letter in request.text:
            yield Text(text=letter)
        if request.text.endswith("!"):
            raise CallError(Status.OUT_OF_RANGE, "too loud")

    async def join(self, requests: AsyncIterator[Text], call: Any) -> Text:
        return Text(text="".join([request.text async for request in requests]))

    async def chat(
        self, requests: AsyncIterator[Text], call: Any
    ) -> AsyncIterator[Text]:
        async for request in requests:
            yield Text(text=request.text.upper())
            if request.text == "bye":
                return
