"""
Store of a directory for a kas with several workers and without Redis.

    worker 1 ──Watch──> worker 2: changes there, from now on
       └─────FindAll──> ... its present agents

The workers of one kas know each other's address from the start, run on one machine, and
end together, so they need not store anything for each other.  Each worker sends its
changes to the other workers through the private API between kas, and responds to
queries about its agents.  If a worker dies, the watches on it end, and the other
workers forget its agents.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from typing import Any, Protocol

import attrs
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.logger import Logger

from kas.directory.records import AgentRecord, KasRecord
from kas.directory.store import StoreDown, StoreListener
from kas.pb import directory_pb2 as pb
from kas.state.process_socket import worker_at
from tunnel.api import StoreEvent, StoreEventType
from tunnel.errors import CallError, Status, TunnelError
from tunnel.program.runtime import Runtime
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.recent import Recent
from tunnel.toolkit.timers import Timers

__all__ = ["SiblingCalls", "SiblingStore", "WorkersListener"]

#: Seconds during which changes are collected: many simultaneous connections then need
#: only a few messages.
BATCH_SECONDS = 0.02

#: Seconds between two messages about the state of a worker: only balancing needs this
#: state, because it contains the number of agents.
STATE_INTERVAL = 5.0

#: Maximum number of changes that wait for a sibling that does not read; a sibling for
#: which more changes wait has to watch again from the beginning.  Each change takes
#: about 300 bytes, and all of them go into one message.
MAX_PENDING = 10_000

#: Maximum number of uses in one message to a sibling that begins to watch: a use takes
#: about 70 bytes, and a message may be at most 4 MiB long.  The uses of all agents
#: together may number a hundred thousand.
MAX_USES = 10_000

#: Seconds before another attempt to watch a sibling that died: first and maximum pause.
#: A worker is replaced in about a second.
RETRY_FIRST, RETRY_MOST = 0.05, 1.0

#: Maximum number of agents whose last connection to a sibling is remembered, with 100
#: bytes each.
MAX_SEEN = 100_000


class SiblingCalls(Protocol):
    """Interface for calls to the other workers, by their address."""

    def watch_at(self, url: str) -> AsyncGenerator[pb.WatchResponse, None]:
        """
        Yield the changes at a worker.

        :raises TunnelError: if the call ended.
        """

    async def find_all_at(
        self, url: str, request: pb.FindRequest
    ) -> Sequence[pb.AgentRecord]:
        """
        Return all agents of a worker.

        :raises TunnelError: if the worker does not respond.
        """


class WorkersListener(Protocol):
    """
    Interface of a receiver of other workers' events, in addition to the directory.
    """

    def stored(self, name: str, event: StoreEvent) -> None:
        """
        Apply the change that another worker's module made to a value that all workers
        share.
        """

    def began(self, worker: str) -> None:
        """
        Handle the start of a watch: all changes arrive from now on; earlier ones may be
        lost.
        """

    def used(self, worker: str, limit: str, key: str, amount: int) -> None:
        """Count a use of a limited resource at another worker."""

    def ended(self, worker: str) -> None:
        """Forget a worker that has ended, and its work in progress."""

    def uses(self) -> Iterable[tuple[str, str, int]]:
        """
        Return this worker's current uses of limited resources: limit, key and amount.
        """


@attrs.define(eq=False)
class _Watcher:
    """
    A sibling that watches this worker, and the changes that it has not received yet.
    """

    pending: pb.WatchResponse = attrs.Factory(pb.WatchResponse)
    changes: int = 0
    _woken: Deferred[None] | None = None

    async def wait(self) -> None:
        if not self.changes:
            self._woken = Deferred()
            await self._woken

    def wake(self) -> None:
        woken, self._woken = self._woken, None
        if woken is not None:
            woken.callback(None)

    def take(self) -> pb.WatchResponse:
        taken, self.pending, self.changes = self.pending, pb.WatchResponse(), 0
        return taken


@attrs.define(eq=False)
class SiblingStore:
    """
    Implementation of `kas.directory.store.Store` that queries sibling workers.

    :param urls: the URL of the private API of each other worker.
    """

    _me: KasRecord
    _urls: Sequence[str]
    _calls: SiblingCalls
    _runtime: Runtime
    #: Listener for all that workers share in addition to the directory; None if they
    #: share nothing else.
    workers: WorkersListener | None = attrs.field(default=None, init=False)
    _listener: StoreListener | None = attrs.field(default=None, init=False)
    #: Siblings that this worker watches, by URL, each with its last record.
    _alive: dict[str, KasRecord] = attrs.field(factory=dict, init=False)
    _watchers: set[_Watcher] = attrs.field(factory=set, init=False)
    #: Changes for the watchers' next batch: the last change of each connection, and all
    #: other changes.
    _moves: dict[tuple[str, bytes], tuple[bool, AgentRecord]] = attrs.field(
        factory=dict, init=False
    )
    _batch: pb.WatchResponse = attrs.field(factory=pb.WatchResponse, init=False)
    _changes: int = attrs.field(default=0, init=False)
    _following: list[Deferred[None]] = attrs.field(factory=list, init=False)
    #: Times when agents disconnected from a sibling, ordered by the last change.
    _seen: Recent[str, float] = attrs.field(
        factory=lambda: Recent(MAX_SEEN), init=False
    )
    _timers: Timers = attrs.field(init=False)
    _stopping: bool = attrs.field(default=False, init=False)
    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._timers = Timers(self._runtime.reactor)

    def start(self, listener: StoreListener) -> None:
        """Watch the other workers in the background, with retries."""
        self._listener = listener
        listener.listening(True)
        for url in self._urls:
            self._following.append(Deferred.fromCoroutine(self._follow(url)))
        self._timers.later("state", STATE_INTERVAL, self._tell_state)

    async def stop(self) -> None:
        """
        Stop watching; the other workers notice by themselves that this worker has
        ended.
        """
        self._stopping = True
        self._listener = None
        self._timers.cancel_all()
        for one in self._following:
            # Ignore cancellation: some tasks wait for the next attempt, so it is not a
            # failure.
            one.addErrback(lambda failure: failure.trap(CancelledError))
            one.cancel()
        for watcher in tuple(self._watchers):
            watcher.wake()

    # Methods about connections of this worker.

    def put(self, record: AgentRecord) -> None:
        """Notify all workers of a connection of this worker."""
        self._move(record, here=True)

    def announce(self, record: AgentRecord) -> None:
        """Notify all workers of a connection once more."""
        self.put(record)

    def remove(self, record: AgentRecord) -> None:
        """Notify all workers that a connection has ended."""
        self._move(record, here=False)

    def _move(self, record: AgentRecord, *, here: bool) -> None:
        if self._is_told():
            key = (record.agent.agent_id, record.agent.instance_id)
            self._moves[key] = here, record
            self._changed()

    def update(self, me: KasRecord) -> None:
        """
        Set the state of this worker, which is sent every few seconds, and at once when
        the worker begins to drain.
        """
        before, self._me = self._me, me
        if before.draining != me.draining:
            self._tell_state()

    def stored(self, name: str, event: StoreEvent) -> None:
        """Notify all workers that a module changed a shared value."""
        if self._is_told():
            self._batch.stored.add(
                name=name,
                key=event.key,
                version=event.version,
                deleted=event.type is StoreEventType.DELETED,
            )
            self._changed()

    def used(self, limit: str, key: str, amount: int) -> None:
        """Notify all workers of a use of a limited resource."""
        if self._is_told():
            self._batch.uses.add(limit=limit, key=key, amount=amount)
            self._changed()

    def _tell_state(self) -> None:
        if self._stopping:
            return
        if self._is_told():
            self._batch.kas.CopyFrom(self._me.to_message())
            self._changed()
        self._timers.later("state", STATE_INTERVAL, self._tell_state)
        for kas in self._alive.values():
            # Send the state even if no connection changes.
            if self._listener is not None:
                self._listener.lease(kas)

    def _is_told(self) -> bool:
        return bool(self._watchers) and not self._stopping

    def _changed(self) -> None:
        self._changes += 1
        if "batch" not in self._timers:
            self._timers.later("batch", BATCH_SECONDS, self._send_batch)

    def _send_batch(self) -> None:
        batch, self._batch = self._batch, pb.WatchResponse()
        moves, self._moves = self._moves, {}
        changes, self._changes = self._changes, 0
        for here, record in moves.values():
            events = batch.events
            records = events.connected if here else events.disconnected
            records.append(record.to_message())
        for watcher in tuple(self._watchers):
            watcher.pending.MergeFrom(batch)
            watcher.changes += changes
            if watcher.changes > MAX_PENDING:
                self._watchers.discard(watcher)
            watcher.wake()

    async def changes(self) -> AsyncGenerator[pb.WatchResponse, None]:
        """
        Yield the changes at this worker from now on, for one sibling.

        :raises CallError: if the sibling is too far behind, or this worker stops.
        """
        watcher = _Watcher()
        self._watchers.add(watcher)
        try:
            uses = [] if self.workers is None else list(self.workers.uses())
            first = pb.WatchResponse(kas=self._me.to_message())
            for begin in range(0, len(uses), MAX_USES):
                for limit, key, amount in uses[begin : begin + MAX_USES]:
                    first.uses.add(limit=limit, key=key, amount=amount)
                yield first
                first = pb.WatchResponse()
            if not uses:
                yield first
            while True:
                await watcher.wait()
                if self._stopping:
                    raise CallError(Status.UNAVAILABLE, "kas is shutting down")
                if watcher not in self._watchers:
                    raise CallError(
                        Status.RESOURCE_EXHAUSTED, "the watcher is too far behind"
                    )
                yield watcher.take()
        finally:
            self._watchers.discard(watcher)

    # Methods about connections at other workers.

    async def _follow(self, url: str) -> None:
        backoff = Backoff(self._runtime.random, RETRY_FIRST, RETRY_MOST)
        while not self._stopping:
            try:
                async for message in self._calls.watch_at(url):
                    self._received(url, message)
                    backoff.reset()
            except TunnelError as error:
                self._log.debug(
                    "{worker}: {reason}", worker=worker_at(url), reason=error
                )
            except CancelledError:
                return
            except Exception:
                self._log.failure("following {worker} failed", worker=worker_at(url))
            self._lost(url)
            if not self._stopping:
                await deferLater(self._runtime.reactor, backoff.pause())

    def _received(self, url: str, message: pb.WatchResponse) -> None:
        listener = self._listener
        if listener is None:
            return
        new = url not in self._alive
        if message.HasField("kas"):
            kas = self._alive[url] = KasRecord.from_message(message.kas)
            listener.lease(kas)
        if new:
            # Report this again, because earlier changes will not arrive.
            listener.listening(True)
            if self.workers is not None:
                self.workers.began(url)
        events = message.events
        gone = [AgentRecord.from_message(one) for one in events.disconnected]
        for record in gone:
            self._seen[record.agent.agent_id] = self._runtime.now()
        came = [AgentRecord.from_message(one) for one in events.connected]
        if came or gone:
            listener.events(came, gone)
        if self.workers is not None:
            for change in message.stored:
                kind = StoreEventType.DELETED if change.deleted else StoreEventType.SET
                event = StoreEvent(kind, change.key, change.version)
                self.workers.stored(change.name, event)
            for use in message.uses:
                self.workers.used(url, use.limit, use.key, use.amount)

    def _lost(self, url: str) -> None:
        kas = self._alive.pop(url, None)
        if kas is None or self._listener is None:
            return
        self._listener.left(kas.kas_id)
        if self.workers is not None:
            self.workers.ended(url)

    async def find(self, agent_id: str) -> list[AgentRecord]:
        """
        Return an agent's connections to the other workers that this worker watches.

        :raises StoreDown: if one of the workers does not respond.
        """
        return await self._ask(pb.FindRequest(agent_id=agent_id))

    async def listed(self, project_id: int = 0) -> list[AgentRecord]:
        """
        Return the connections of a project's agents, or of all agents, to the other
        workers that this worker watches.

        :raises StoreDown: if one of the workers does not respond.
        """
        return await self._ask(pb.FindRequest(project_id=project_id))

    async def last_seen(self, agent_ids: Sequence[str]) -> dict[str, float]:
        """
        Return when each agent disconnected from a sibling, as far as this worker
        noticed it.
        """
        return {one: self._seen[one] for one in agent_ids if one in self._seen}

    async def _ask(self, request: pb.FindRequest) -> list[AgentRecord]:
        # Query only watched siblings: another sibling has just died or just started,
        # and the watch will report agents that connect to it.
        asking: list[Coroutine[Any, Any, Sequence[pb.AgentRecord]]] = [
            self._calls.find_all_at(url, request) for url in self._alive
        ]
        if request.agent_id:
            # Report each response at once: a sibling that does not respond must not
            # delay requests to the agents of another sibling.
            asking = [self._tell_of(one) for one in asking]
        answers = await gatherResults(
            [Deferred.fromCoroutine(self._or_none(one)) for one in asking]
        )
        found: list[AgentRecord] = []
        for answer in answers:
            if answer is None:
                # Fail, because the agents of a slow worker may still be connected.
                raise StoreDown("another worker does not respond")
            found += map(AgentRecord.from_message, answer)
        return found

    async def _or_none(
        self, asking: Coroutine[Any, Any, Sequence[pb.AgentRecord]]
    ) -> Sequence[pb.AgentRecord] | None:
        try:
            return await asking
        except TunnelError:
            return None

    async def _tell_of(
        self, asking: Coroutine[Any, Any, Sequence[pb.AgentRecord]]
    ) -> Sequence[pb.AgentRecord]:
        """
        Wait for one response, and report it to the listener before all others have
        arrived.
        """
        answer = await asking
        if answer and self._listener is not None:
            self._listener.found(list(map(AgentRecord.from_message, answer)))
        return answer
