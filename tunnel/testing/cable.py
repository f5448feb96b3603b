"""Subscriptions of ActionCable, for tests of channels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twisted.internet.address import IPv4Address
from zope.interface import implementer

from tunnel.api import (
    Access,
    ICableCaller,
    ICableSubscription,
    Reach,
    ReachableAgent,
)
from tunnel.errors import CallError, Status

__all__ = ["FakeCableCaller", "FakeCableSubscription"]


@implementer(ICableCaller)
class FakeCableCaller:
    """
    `ICableCaller` with rights at some agents.

    :param accesses: the rights, by id or name of the agent.
    """

    def __init__(self, accesses: Mapping[str, Access]) -> None:
        self.accesses = dict(accesses)
        self.peer_address = IPv4Address("TCP", "192.0.2.1", 40000)

    async def authorize(self, agent: str) -> Access:
        access = self.accesses.get(agent)
        if access is None:
            raise CallError(Status.PERMISSION_DENIED, f"no access to {agent}")
        return access

    async def reach(self) -> Reach:
        found = {one.agent_id: one for one in self.accesses.values()}
        agents = [
            ReachableAgent(one.agent_id, one.agent_name) for one in found.values()
        ]
        return Reach("", "", tuple(agents))


@implementer(ICableSubscription)
class FakeCableSubscription:
    """`ICableSubscription` that records the messages."""

    def __init__(
        self,
        channel: str,
        params: Mapping[str, Any],
        accesses: Mapping[str, Access] | None = None,
    ) -> None:
        self.channel = channel
        self.params = params
        self.caller = FakeCableCaller(accesses or {})
        self.closed = False
        #: The messages, each with its key.
        self.sent: list[tuple[Any, str]] = []

    def send(self, message: Any, key: str = "") -> None:
        if not self.closed:
            self.sent.append((message, key))

    def send_json(self, text: str, key: str = "") -> None:
        self.send(json.loads(text), key)

    def reject(self) -> None:
        self.closed = True
