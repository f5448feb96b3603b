"""
Queries that stay: their results, and each change of them, for any number of listeners.

A change of an agent's rows makes the queries about this agent run again, after a short
pause, and a listener gets the difference.  Every result has passed the rights of the
reader, so a change of rights is a change of the result, too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from typing import Any, Protocol

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from modules.cluster_data.server.sources.peer_rows import AgentChange
from tunnel.errors import CallError, Status
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.timers import call_by, cancel_call

__all__ = [
    "AS_OF",
    "MAX_QUERIES",
    "MAX_QUERIES_EACH",
    "PAUSE",
    "REFRESH",
    "LiveQueries",
    "LiveQuery",
    "QueryListener",
]

#: Minimum number of seconds between two runs of a query.
PAUSE = 0.1

#: Further seconds for each KiB of the results of all queries of one user, because kas
#: parses and compares all of them: so each user needs two percent of a core at most.
KIB_PAUSE = 0.0004

#: Maximum number of KiB of the results of all queries of one user, as JSON; in memory,
#: they take up to ten times as much.
MAX_KIB_EACH = 8 * 1024

#: Seconds after which a query runs again without a change, because rights and ages
#: change, too.
REFRESH = 5.0

#: Key of the time of the rows, in seconds since 1970, while no newer ones can be read.
AS_OF = "asOf"

#: Maximum number of queries of all users, and of one user: each keeps its result.
MAX_QUERIES, MAX_QUERIES_EACH = 1000, 20

#: Maximum number of live queries of all other kas that are about agents of this kas.
MAX_REMOTES = 10 * MAX_QUERIES

#: See `PeerChanges.follow`.
_FollowPeers = Callable[
    [frozenset[str], frozenset[str], Callable[[], object]], Callable[[], None]
]


@attrs.frozen
class QueryResult:
    """
    Result of a query.

    :ivar rows: the rows by key.
    :ivar kib: the KiB of the rows as JSON, at least one for each row.
    :ivar agents: ids of the agents whose clusters the user may reach now; None if they
        are the same as before.
    :ivar as_of: time of the result in seconds since 1970.
    """

    rows: Mapping[str, Any]
    kib: int
    agents: frozenset[str] | None = None
    as_of: float = 0.0


class QueryListener(Protocol):
    """Interface of an object that follows a query."""

    def changed(
        self, query: LiveQuery, put: Mapping[str, Any], deleted: list[str]
    ) -> None:
        """Handle new and changed rows, and the keys of deleted rows."""

    def failed(self, error: CallError) -> None:
        """Handle the end: the query cannot be answered any more."""


@attrs.define(eq=False)
class LiveQuery:
    """
    One query with its last result.

    :ivar agents: ids of the agents that the query is about, and that the user may
        reach: the changes of others must not cost work, or show in its time.
    :ivar views: the views with its rows.
    :ivar epoch: random; identifies the sequence of results.
    :ivar sequence: number of the last result.
    :ivar rows: the last result, with `AS_OF` if no newer one can be read.
    :ivar as_of: time of the last result in seconds since 1970.
    """

    _log = Logger()

    owner: str
    agents: frozenset[str]
    views: frozenset[str]
    _run: Callable[[], Awaitable[QueryResult]]
    _clock: IReactorTime
    _ended: Callable[[], None]
    #: KiB of the results of all queries, by owner.
    _kib_by_owner: Counter[str]
    _follow_peers: _FollowPeers
    _unfollow: Callable[[], None] = lambda: None
    epoch: str = attrs.field(factory=lambda: os.urandom(8).hex())
    sequence: int = 0
    rows: Mapping[str, Any] = attrs.field(factory=dict)
    kib: int = 0
    as_of: float = 0.0
    listeners: dict[QueryListener, None] = attrs.field(factory=dict)
    _waiters: list[Deferred[None]] = attrs.field(factory=list)
    _running: Deferred[Any] | None = None
    _next: IDelayedCall | None = None
    _is_running: bool = False
    _is_stale: bool = False

    def follow(self, agents: frozenset[str]) -> None:
        """Run again after changes of these agents, also at other kas."""
        self._unfollow()
        self.agents = agents
        self._unfollow = self._follow_peers(agents, self.views, self.touch)

    async def begin(self) -> None:
        """Wait for the first result."""
        if self.sequence:
            return
        waiter: Deferred[None] = Deferred()
        self._waiters.append(waiter)
        if not self._is_running:
            self._start()
        await waiter

    def touch(self) -> None:
        """Run again soon, because rows have changed."""
        if self._is_running:
            self._is_stale = True
        else:
            self._run_by(self._pause())

    def leave(self, listener: QueryListener) -> None:
        """Stop notifying *listener*; end after the last one has left."""
        self.listeners.pop(listener, None)
        if not self.listeners:
            self.end()

    def end(self) -> None:
        """Stop running."""
        cancel_call(self._next)
        if self._running is not None:
            self._running.cancel()
        self._unfollow()
        self._resize(0)
        self._ended()

    def _resize(self, kib: int) -> None:
        # A sum that is kept: each change of an agent's rows needs it for each query.
        self._kib_by_owner[self.owner] += kib - self.kib
        self.kib = kib

    def _pause(self) -> float:
        return PAUSE + self._kib_by_owner[self.owner] * KIB_PAUSE

    def _run_by(self, seconds: float) -> None:
        when = self._clock.seconds() + seconds
        self._next = call_by(when, self._next, self._start, self._clock)

    def _start(self) -> None:
        self._is_stale, self._is_running = False, True
        self._running = Deferred.fromCoroutine(self._update())
        self._running.addErrback(self._failed)

    async def _update(self) -> None:
        try:
            found = await self._run()
        finally:
            self._is_running = False
        result, self.as_of = found.rows, found.as_of
        self._resize(found.kib)
        if found.agents is not None and found.agents != self.agents:
            self.follow(found.agents)
        if self._kib_by_owner[self.owner] > MAX_KIB_EACH:
            raise _TooManyRows(
                Status.RESOURCE_EXHAUSTED,
                f"the rows of all live queries of a user may have {MAX_KIB_EACH} KiB: "
                "name a kind, a namespace or labels",
            )
        pause = self._pause()
        self._run_by(pause if self._is_stale else max(pause, REFRESH))
        is_first = not self.sequence
        self._set(result)
        if is_first:
            self.sequence = 1
        waiters, self._waiters = self._waiters, []
        for one in waiters:
            one.callback(None)

    def _set(self, rows: Mapping[str, Any]) -> None:
        """Replace the rows, and notify the listeners of the difference."""
        put = {key: row for key, row in rows.items() if self.rows.get(key) != row}
        deleted = [key for key in self.rows if key not in rows]
        self.rows = rows
        if not self.sequence or not (put or deleted):
            return
        self.sequence += 1
        for_each(
            tuple(self.listeners),
            lambda one: one.changed(self, put, deleted),
            "notifying a listener of rows",
        )

    def _failed(self, failure: Any) -> None:
        if failure.check(CancelledError):
            return
        if not failure.check(CallError):
            self._log.failure("a live query failed", failure)
            error = CallError(Status.INTERNAL, "kas: an internal error")
        else:
            error = failure.value
        is_passing = error.status in _PASSING and not isinstance(error, _TooManyRows)
        if self.sequence and is_passing:
            # The listeners must not take the old rows for current ones.
            self._set({**self.rows, AS_OF: self.as_of})
            self._run_by(REFRESH)
            return
        waiters, self._waiters = self._waiters, []
        for one in waiters:
            one.errback(error)
        listeners, self.listeners = tuple(self.listeners), {}
        self.end()
        for_each(listeners, lambda one: one.failed(error), "ending a live query")


class _TooManyRows(CallError):
    """Raised if the results of a user's queries are too large; this does not pass."""


#: Errors after which a query runs again; other readers may keep the store busy.
_PASSING = (
    Status.UNAVAILABLE,
    Status.DEADLINE_EXCEEDED,
    Status.RESOURCE_EXHAUSTED,
)


@attrs.define(eq=False)
class _Remote:
    """
    Another kas, whose live query is about agents of this kas.

    :ivar changed: changes that the other kas does not know yet.
    :ivar waiter: fires after the next change.
    """

    agents: frozenset[str]
    views: frozenset[str]
    changed: dict[AgentChange, None] = attrs.field(factory=dict)
    waiter: Deferred[None] | None = None

    def touch(self, change: AgentChange) -> None:
        """Record a change."""
        self.changed[change] = None
        waiter, self.waiter = self.waiter, None
        if waiter is not None:
            waiter.callback(None)


class LiveQueries:
    """
    All live queries of one kas.

    :param follow_peers: calls a function after changes at other kas, until the returned
        function is called; see `PeerChanges.follow`.
    """

    def __init__(
        self,
        clock: IReactorTime,
        follow_peers: _FollowPeers,
    ) -> None:
        self._clock = clock
        self._follow_peers = follow_peers
        self._queries: dict[Hashable, LiveQuery] = {}
        self._remotes: dict[_Remote, None] = {}
        self._kib: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self._queries)

    async def follow(
        self,
        key: tuple[str, Hashable],
        agents: frozenset[str],
        views: frozenset[str],
        run: Callable[[], Awaitable[QueryResult]],
        listener: QueryListener,
    ) -> LiveQuery:
        """
        Let *listener* follow a query, and return the query with its first result.

        :param key: the user and the question; equal questions of one user share a
            query.
        :param agents: ids of the agents that the user may reach.
        :param run: answers the question.
        :raises CallError: RESOURCE_EXHAUSTED beyond the limits, or the error of *run*.
        """
        query = self._queries.get(key)
        if query is None:
            owner = key[0]
            mine = sum(one.owner == owner for one in self._queries.values())
            if mine >= MAX_QUERIES_EACH or len(self._queries) >= MAX_QUERIES:
                raise CallError(
                    Status.RESOURCE_EXHAUSTED,
                    f"a user may follow {MAX_QUERIES_EACH} queries, and all users "
                    f"{MAX_QUERIES}",
                )
            query = LiveQuery(
                owner,
                agents,
                views,
                run,
                self._clock,
                lambda: self._forget(key),
                self._kib,
                self._follow_peers,
            )
            self._queries[key] = query
            query.follow(agents)
        query.listeners[listener] = None
        try:
            await query.begin()
        except BaseException:
            query.leave(listener)
            raise
        return query

    def _forget(self, key: tuple[str, Hashable]) -> None:
        self._queries.pop(key, None)
        if not self._kib[key[0]]:
            del self._kib[key[0]]

    def views(self, agent_id: str) -> frozenset[str]:
        """Return the views of an agent that live queries follow."""
        followed: list[LiveQuery | _Remote] = [*self._queries.values(), *self._remotes]
        found = [one.views for one in followed if agent_id in one.agents]
        return frozenset().union(*found)

    def touch(self, agent_id: str, rights: bool = False) -> None:
        """
        Run the queries about an agent again soon, also those of other kas.

        :param rights: whether rights in its cluster have changed.
        """
        for query in tuple(self._queries.values()):
            if agent_id in query.agents:
                query.touch()
        for remote in tuple(self._remotes):
            if agent_id in remote.agents:
                remote.touch(AgentChange(agent_id, rights))

    async def changes(
        self, agents: frozenset[str], views: frozenset[str]
    ) -> AsyncGenerator[AgentChange, None]:
        """
        Yield changes of agents, for a live query of another kas.

        :raises CallError: RESOURCE_EXHAUSTED beyond the limit.
        """
        if len(self._remotes) >= MAX_REMOTES:
            text = f"other kas may follow {MAX_REMOTES} queries"
            raise CallError(Status.RESOURCE_EXHAUSTED, text)
        remote = _Remote(agents, views)
        self._remotes[remote] = None
        try:
            while True:
                changed, remote.changed = tuple(remote.changed), {}
                for change in changed:
                    yield change
                if not remote.changed:
                    remote.waiter = Deferred()
                    await remote.waiter
        finally:
            del self._remotes[remote]

    def end(self) -> None:
        """End all queries."""
        for query in tuple(self._queries.values()):
            query.end()
