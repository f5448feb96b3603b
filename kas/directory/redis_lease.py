"""
Our lease in Redis, which tells whether Redis has what we wrote.

Every transaction reads our lease before it writes it anew, with a number that rises.
A lease that is missing or has an older number tells that the store is not the one we
wrote to last: it was flushed, it failed over to an older state, or we slept so long
that others cleaned up behind us.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from twisted.internet.defer import Deferred

from kas.directory.records import KasRecord
from kas.directory.redis_layout import LEASE_MS, Layout
from kas.directory.redis_reading import read_lease
from kas.pb import store_pb2
from kas.redis import Command, RedisClient

__all__ = ["OwnLease"]


@attrs.define(eq=False)
class OwnLease:
    """
    Goes with everything that is written.

    :param me: what it says of this kas.
    :param lost: told why what was written is not there any more.
    """

    _client: RedisClient
    _layout: Layout
    me: KasRecord
    _lost: Callable[[str], None]
    #: Rises with each batch that is written.
    _sequence: int = attrs.field(default=0, init=False)
    #: What the last lease that was sent had; -1: none since Redis came back.
    _sent: int = attrs.field(default=-1, init=False)

    def forget(self) -> None:
        """Redis is back, and everything is written again anyway."""
        self._sent = -1

    def transaction(
        self, commands: Sequence[Command], *, changes: bool = False
    ) -> Deferred[list[Any]]:
        """
        Do *commands* with our lease, and see whether Redis has what we wrote.

        :param changes: they write what has to be there from now on.
        """
        self._sequence += changes
        lease = self._layout.lease(self.me.kas_id)
        value = store_pb2.Lease(kas=self.me.to_message(), sequence=self._sequence)
        data = value.SerializeToString()
        first: list[Command] = [
            ("GET", lease),
            ("SET", lease, data, "PX", LEASE_MS),
        ]
        before, self._sent = self._sent, self._sequence

        def answered(results: list[Any]) -> list[Any]:
            found = read_lease(results[0])
            if before >= 0:
                if found is None:
                    self._lost("our lease was gone")
                elif found.sequence < before:
                    self._lost("it is in an older state")
            return results[2:]

        return self._client.transaction([*first, *commands]).addCallback(answered)
