"""Rows of live data in tests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from tunnel.api import IClusterRows, IRowFollower, PublishingAgent
from tunnel.errors import CallError, Status

__all__ = ["FakeClusterRows"]


@implementer(IClusterRows)
class FakeClusterRows:
    """
    `IClusterRows` whose rows a test changes.

    :ivar rows: the rows by id of the agent and view, then by key; None for too many.
    :ivar followers: the followers with their views.
    :ivar reads: number of calls of `read`.
    :ivar fails: whether rows cannot be read.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], dict[str, Mapping[str, Any]] | None] = {}
        self.followers: list[tuple[Collection[str], Any]] = []
        self.reads = 0
        self.fails = False

    def follow(
        self, views: Collection[str], follower: IRowFollower
    ) -> Callable[[], None]:
        following = (views, follower)
        self.followers.append(following)
        return lambda: self.followers.remove(following)

    def read(
        self, agent: PublishingAgent, view: str
    ) -> Deferred[Mapping[str, Mapping[str, Any]] | None]:
        self.reads += 1
        if self.fails:
            return fail(CallError(Status.UNAVAILABLE, "the store: a test"))
        found = self.rows.get((agent.agent_id, view), {})
        return succeed(None if found is None else dict(found))

    def put(self, agent: PublishingAgent, view: str, **rows: Any) -> None:
        """Set rows by key; None deletes a row."""
        kept = self.rows.setdefault((agent.agent_id, view), {})
        assert kept is not None
        changed = {key: row for key, row in rows.items() if row is not None}
        deleted = [key for key, row in rows.items() if row is None]
        for key in deleted:
            kept.pop(key, None)
        kept.update(changed)
        for views, follower in self.followers:
            if view in views:
                follower.changed(agent, view, changed, deleted)
