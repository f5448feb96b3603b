"""
Which kas holds which agent.

The connections themselves are the truth, and each kas knows its own
(`kas.agents.registry`).  A directory is what a kas believes about those of its peers:
answers that it keeps, news that come in, and a store (Redis) in which every kas writes
down its own.

    records.py          a connection, a kas: what all of it is about
    shared.py           the directory: what is ours, held against what others have
    cache_entry.py      what is known of one agent, and how news change it
    cache.py            for which agents that is kept
    lookups.py          when it is looked up
    known_kas.py        the other kas: who lives, and who has to be asked itself

    store.py            what is needed of a store
    redis_store.py      one in Redis: what is ours is written, and kept right
    redis_lease.py      our lease, which tells whether it is still there
    jobs.py             what runs in the background for that
    redis_reading.py    what others wrote
    redis_news.py       what all of them tell each other
    redis_cleaning.py   what a dead one left
    redis_layout.py     keys, and the commands that change what stands there
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kas.directory.records import AgentRecord, KasRecord

__all__ = ["AgentRecord", "Directory", "KasRecord"]


class Directory(Protocol):
    """
    What the rest of kas uses of a directory.

    Nothing here waits for the store except `agents`: a request asks `routes`, goes
    where the answer says, and is told by `watch` when there may be a better one.
    """

    async def start(self) -> None:
        """
        Begin to write down what is ours, and to listen for news.

        A store that cannot be reached is no reason to fail: it is tried again.
        """

    async def stop(self) -> None:
        """Remove everything that is ours, within a short time, and let go."""

    def connected(self, record: AgentRecord) -> None:
        """An agent connected here: write it down and tell everyone."""

    def disconnected(self, record: AgentRecord) -> None:
        """It is gone from here; never removes what a newer connection wrote."""

    def routes(self, agent_id: str) -> Sequence[AgentRecord]:
        """
        Where *other* kas hold this agent, as far as is known now; the newest of each
        instance, never two of one.

        Costs no command.  An answer that is unknown or old is looked up in the
        background, at most once per interval and agent however often it is asked for.
        """

    def look_again(self, agent_id: str, wrong: AgentRecord | None = None) -> None:
        """
        The answer led nowhere: forget *wrong*, and look it up anew.

        At most once per interval; whoever watches is told when it is done.
        """

    def watch(self, agent_id: str, told: Callable[[], None]) -> Callable[[], None]:
        """
        Call *told* once, when `routes` may have become better: news of a connection,
        or a look-up that found one.  The result ends it.
        """

    def peers(self) -> Sequence[KasRecord]:
        """The other kas that are known, alive or not long gone."""

    def living(self) -> Sequence[KasRecord]:
        """Those of them whose lease is not over."""

    def is_current(self) -> bool:
        """What they say of themselves comes in; otherwise it may be old."""

    def own(self) -> Sequence[AgentRecord]:
        """Every connection that this kas holds."""

    async def agents(
        self, *, agent_id: str = "", project_id: int = 0
    ) -> list[AgentRecord]:
        """
        All connections of an agent, of a project, or at all; ours included.

        :raises tunnel.errors.CallError: UNAVAILABLE: neither store nor peers answer.
        """

    async def last_seen(self, agent_ids: Sequence[str]) -> dict[str, float]:
        """
        When each was last connected, in seconds since 1970, to whichever kas.

        Without those of which nobody knows; empty where the store does not answer.
        """
