"""A service for tests, with a method of each kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from tests.proto.echo_pb2 import DESCRIPTOR, Text
from tunnel.details import bad_request
from tunnel.errors import CallError, Status

ECHO = DESCRIPTOR.services_by_name["Echo"]


class Echo:
    """Answers; what it was asked for and what became of it is on record."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.cancelled = 0
        self.waiting: list[Deferred[None]] = []
        self.produced = 0
        #: Number of floods that have ended.
        self.closed = 0

    async def say(self, request: Text, call: Any) -> Text:
        self.calls.append(call)
        if request.text == "wait":
            waiting: Deferred[None] = Deferred()
            self.waiting.append(waiting)
            try:
                await waiting
            except CancelledError:
                self.cancelled += 1
                raise
        elif request.text == "refuse":
            raise CallError(Status.PERMISSION_DENIED, "not you: ünïcode\r\n%")
        elif request.text.startswith("explain "):
            _, details, text = request.text.split()
            why = bad_request({"text": "x" * int(details)})
            own = Text(text="own")
            raise CallError(Status.INVALID_ARGUMENT, "y" * int(text), [why, own])
        elif request.text == "crash":
            raise ZeroDivisionError("secret")
        elif request.text == "metadata":
            call.send_metadata({"Server": "echo"})
            return Text(text=call.metadata["from"])
        return Text(text=request.text.upper())

    async def spell(self, request: Text, call: Any) -> AsyncIterator[Text]:
        if request.text == "flood":
            try:
                for _ in range(10_000):
                    self.produced += 1
                    yield Text(text="x" * 1000)
            finally:
                self.closed += 1
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
