"""Publication of tables over a call that a test plays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from twisted.internet.defer import CancelledError, Deferred, DeferredQueue
from twisted.internet.task import Clock

from modules.cluster_data.agent.publisher import BEAT, RETRY_FIRST, TablePublisher
from modules.cluster_data.agent.table import Table, TableKey
from modules.cluster_data.wire import cluster_data_pb2 as wire

KEY = TableKey("apps", "Deployment", "shop", "web")


class PlayedCall:
    """
    A call of which the test is the other side.

    :ivar sent: the messages of agentk.
    :ivar blocks: whether the next message waits until `go_on` fires.
    """

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.blocks = False
        self.go_on: Deferred[None] = Deferred()
        self._responses: DeferredQueue[Any] = DeferredQueue()

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if self.blocks:
            await self.go_on

    def respond(self, message: Any) -> None:
        self._responses.put(message)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            message = await self._responses.get()
            if message is None:
                return
            yield message

    def cancel(self) -> None:
        """Nothing is left to end."""


class PublisherStand:
    """A publisher of one table."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.calls: list[PlayedCall] = []
        self.table = Table("workloads")
        self.is_complete = True
        self.publisher = TablePublisher(
            cast(Any, self),
            {"workloads": self.table},
            lambda view: self.is_complete,
            b"epoch",
            "uid",
            {},
            self.clock,
            lambda: 1.0,
        )
        self.running = Deferred.fromCoroutine(self.publisher.run())
        self.running.addErrback(lambda failure: failure.trap(CancelledError))

    def open(self, method: str) -> PlayedCall:
        assert method == "Publish"
        self.calls.append(PlayedCall())
        return self.calls[-1]

    def welcome(self, **sequences: int) -> PlayedCall:
        welcome = wire.Welcome(sequences=sequences, views=["workloads"])
        self.calls[-1].respond(wire.ServerMessage(welcome=welcome))
        return self.calls[-1]

    def put(self, ready: int) -> None:
        self.table.put(KEY, "deployments", {"ready": ready})
        self.publisher.changed("workloads")
        self.clock.advance(1)


@pytest.fixture
def stand() -> PublisherStand:
    return PublisherStand()


def test_a_call_that_ends_while_a_message_is_sent(stand: PublisherStand) -> None:
    """agentk does not wait for its next message to notice that."""
    call = stand.welcome()
    call.blocks = True
    stand.put(1)
    call.respond(None)
    call.go_on.callback(None)
    assert RETRY_FIRST < BEAT
    stand.clock.advance(RETRY_FIRST)
    assert len(stand.calls) == 2
    stand.running.cancel()


def test_a_snapshot_that_is_wanted_while_a_message_is_sent(
    stand: PublisherStand,
) -> None:
    call = stand.welcome()
    stand.put(1)
    call.blocks = True
    stand.put(2)
    assert call.sent[-1].HasField("delta")
    wanted = wire.SnapshotWanted(view="workloads")
    call.respond(wire.ServerMessage(snapshot_wanted=wanted))
    call.blocks = False
    call.go_on.callback(None)
    stand.clock.advance(1)
    assert call.sent[-1].HasField("snapshot")
    stand.running.cancel()
