"""
The cache of the cluster's objects: one watch for each kind, which other modules of
agentk may share, and rows in place of objects.

A kind is read again after some failures.  Its rows stay until all objects have arrived,
and only then are the rows of missing objects deleted, so that readers never see a
cluster that seems to be empty.

If the scope of the agent is some namespaces, the cache watches each kind in each of
them, and has no kinds without namespaces.

For readers of whole objects, the cache also keeps those, compressed, from the same
watch (`modules.cluster_data.agent.objects`).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import attrs
import msgspec
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger, LogLevel

from modules.cluster_data.agent.objects.store import KeptKey, ObjectStore
from modules.cluster_data.agent.pod_state import pod_state
from modules.cluster_data.agent.shapes import Node, Pod
from modules.cluster_data.agent.table import Table, TableKey
from modules.cluster_data.agent.views.nodes import node_state
from modules.cluster_data.wire.view_names import KINDS, SUMMARY
from tunnel.api import (
    AgentScope,
    ClusterObject,
    ClusterView,
    IKubernetes,
    KubernetesResource,
    KubernetesShape,
    ObjectKind,
    ViewRow,
    WatchEvent,
    WatchEventType,
)
from tunnel.errors import CallError, Status
from tunnel.kubernetes import health_of
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.parallel import in_parallel
from tunnel.toolkit.recent import Recent

__all__ = ["ClusterCache", "KindState"]

#: Maximum number of kinds that are read for the first time at the same time: the
#: response to each holds all objects of the kind.
SYNCS = 2

#: Seconds after the start from which readers see a view whose kinds could not all be
#: read; the view of kinds says which are missing.
SYNC_PATIENCE = 60.0

#: Seconds before a kind that cannot be watched is tried again: first and maximum.
RETRY_FIRST, RETRY_MOST = 5.0, 600.0

#: Maximum number of states of a kind in the summary; clusters choose some of the words.
MAX_STATES = 50

#: Maximum number of characters of a state.
MAX_STATE = 64

#: Seconds after the last reader for which whole objects stay in the cache.
UNUSED_SECONDS = 600.0

#: Seconds between two searches for whole objects without readers.
SWEEP_SECONDS = 30.0

#: Maximum number of kinds with whole objects: each that no view needs costs the API
#: server a watch.
MAX_STORES = 64

#: Part of the budget from which whole objects have no room, so that rows stay.
STORES_SHARE = 0.8

#: Seconds for which a kind that had no room is not tried again.
FULL_SECONDS = 600.0

#: Bytes of the Python objects that the cache has of an object beside its rows.
OBJECT_SIZE = 350

#: The same of an object that is only counted.
COUNTED_SIZE = 200


@attrs.frozen(slots=True)
class _Kept:
    """
    What the cache has of an object.

    :ivar since: when the cache first saw *state*, in seconds since 1970.
    :ivar rows: the keys of the object's rows, each with its view.
    """

    uid: str
    version: str
    state: str
    since: float
    rows: tuple[tuple[str, TableKey], ...]


@attrs.define(eq=False)
class KindState:
    """
    State of the watch of one kind.

    :ivar state: ``waiting``, ``reading``, ``synced`` or ``absent``.
    :ivar reason: why the kind is absent, or why its objects are only counted.
    :ivar only_counted: whether the budget has no room for rows of this kind.
    :ivar store: whole objects for readers; None without readers.
    :ivar running: the watch, or the pause before it.
    :ivar begins_again: whether *running* was cancelled to begin again.
    """

    kind: ObjectKind
    shape: type[KubernetesShape]
    views: tuple[ClusterView, ...]
    resource: KubernetesResource | None = None
    state: str = "waiting"
    reason: str = ""
    only_counted: bool = False
    objects: dict[tuple[str, str], _Kept] = attrs.field(factory=dict)
    states: Counter[str] = attrs.field(factory=Counter)
    row_bytes: int = 0
    store: ObjectStore | None = None
    running: Deferred[None] | None = None
    begins_again: bool = False

    @property
    def rows_size(self) -> int:
        """Return the bytes of the kind's rows."""
        each = COUNTED_SIZE if self.only_counted else OBJECT_SIZE
        return self.row_bytes + each * len(self.objects)

    @property
    def size(self) -> int:
        """Return the bytes of the kind's rows and whole objects."""
        return self.rows_size + (0 if self.store is None else self.store.size)

    def begin_again(self) -> None:
        """Cancel the watch, which begins again at once."""
        if self.running is not None:
            self.begins_again = True
            self.running.cancel()


class ClusterCache:
    """
    All kinds that the views need.

    :param kubernetes: watches that other modules may share, with agentk's rights.
    :param budget: maximum number of bytes of all kinds; above it, the largest kind is
        only counted.
    :param random: returns a number between 0 and 1, for the jitter of pauses.
    :param now: returns the time in seconds since 1970.
    :param changed: called with the name of a view after its table has changed.
    :param scope: the part of the cluster to read.
    """

    _log = Logger()

    def __init__(
        self,
        kubernetes: IKubernetes,
        views: Sequence[ClusterView],
        budget: int,
        clock: IReactorTime,
        random: Callable[[], float],
        now: Callable[[], float],
        changed: Callable[[str], None],
        scope: AgentScope,
    ) -> None:
        self._kubernetes = kubernetes
        self._client = kubernetes.as_agentk()
        self._scope = scope
        self._budget = budget
        self._clock = clock
        self._random = random
        self._now = now
        self._changed = changed
        self._syncs = DeferredSemaphore(SYNCS)
        self._complete_at = clock.seconds() + SYNC_PATIENCE
        #: Views that have failed; each is logged once.
        self._failed_views: set[str] = set()
        self.tables = {
            name: Table(name) for name in (SUMMARY, KINDS, *(one.name for one in views))
        }
        self.kinds: dict[ObjectKind, KindState] = {}
        #: Watches of kinds that only readers need.
        self._extra: dict[ObjectKind, Deferred[None]] = {}
        #: Kinds whose whole objects had no room, with the time at which that ends.
        self._full: Recent[ObjectKind, float] = Recent(MAX_STORES)
        self._is_running = False
        for view in views:
            for kind, shape in view.kinds.items():
                found = self.kinds.setdefault(kind, KindState(kind, shape, ()))
                found.views = (*found.views, view)

    @property
    def size(self) -> int:
        """Return the accounted bytes of all kinds."""
        return sum(one.size for one in self.kinds.values())

    def is_complete(self, view: str) -> bool:
        """
        Return whether a view has the rows of all objects, and not only of those that
        have arrived since the start.
        """
        if view == KINDS or self._clock.seconds() >= self._complete_at:
            return True
        return all(
            one.state in ("synced", "absent")
            for one in self.kinds.values()
            if one.views
            and (view == SUMMARY or any(of.name == view for of in one.views))
        )

    async def run(self) -> None:
        """Watch all kinds until cancelled."""
        for kind in self.kinds.values():
            self._show(kind)
        watches = [lambda one=one: self._run_kind(one) for one in self.kinds.values()]
        self._is_running = True
        try:
            await in_parallel([*watches, self._sweep], len(watches) + 1)
        finally:
            self._is_running = False
            stopped = CallError(
                Status.UNAVAILABLE, "this agentk does not lead any more"
            )
            for one in tuple(self.kinds.values()):
                if one.store is not None:
                    self._release(one, stopped)

    # -- Whole objects

    def hold(self, resource: KubernetesResource) -> ObjectStore:
        """
        Return the whole objects of a kind, which the cache keeps until ten minutes
        after the last reader.

        :raises CallError: RESOURCE_EXHAUSTED if they have no room.
        """
        of = ObjectKind(resource.group, resource.version, resource.kind)
        kind = self.kinds.get(of)
        if kind is not None and kind.store is not None:
            return kind.store
        if not self._is_running:
            raise CallError(Status.UNAVAILABLE, "the cache of this agentk is starting")
        if not self._scope.is_whole_cluster:
            raise CallError(
                Status.FAILED_PRECONDITION,
                "the cache of an agent with a scope has no whole objects; use the "
                "ordinary endpoint, whose address is the same without '/cache'",
            )
        now = self._clock.seconds()
        if self._full.get(of, now) > now:
            raise CallError(Status.RESOURCE_EXHAUSTED, self._no_room(resource.name))
        stores = [one for one in self.kinds.values() if one.store is not None]
        if len(stores) >= MAX_STORES:
            unused = [one for one in stores if one.store and not one.store.readers]
            if not unused:
                # Not in place of a kind that others read.
                raise CallError(
                    Status.RESOURCE_EXHAUSTED,
                    f"agentk keeps the objects of at most {MAX_STORES} kinds, and all "
                    "have readers; use the ordinary endpoint, whose address is the "
                    "same without '/cache'",
                )
            self._release_one(unused)
        if kind is None:
            kind = self.kinds[of] = KindState(of, KubernetesShape, ())
        kind.store = ObjectStore(resource, now)
        if kind.running is not None:
            # The watch of the views has not kept the objects.
            kind.begin_again()
        elif not kind.views:
            self._extra[of] = running = Deferred.fromCoroutine(self._run_kind(kind))
            running.addErrback(lambda failure: failure.trap(CancelledError))
        return kind.store

    def _no_room(self, name: str) -> str:
        return (
            f"the cache of agentk has no room for {name}: {self.size >> 20} of "
            f"{self._budget >> 20} MiB are used; use the ordinary endpoint, whose "
            "address is the same without '/cache'"
        )

    def _release(self, kind: KindState, reason: CallError) -> None:
        """Drop the objects of a kind that readers need; the rows of views stay."""
        store, kind.store = kind.store, None
        if store is not None:
            store.end(reason)
        running = self._extra.pop(kind.kind, None)
        if running is not None:
            del self.kinds[kind.kind]
            # This method may run inside the watch, which cannot cancel itself.
            self._clock.callLater(0, running.cancel)

    def _release_one(self, stores: Sequence[KindState]) -> None:
        """
        Drop the whole objects of the kind that was unused for the longest time; if all
        have readers, of the largest one.
        """

        def order(kind: KindState) -> tuple[bool, float]:
            store = kind.store
            assert store is not None
            return store.readers > 0, -store.size if store.readers else store.used_at

        kind = min(stores, key=order)
        assert kind.store is not None
        name, size = kind.store.resource.name, kind.store.size
        if kind.store.readers:
            self._full[kind.kind] = self._clock.seconds() + FULL_SECONDS
            self._log.warn(
                "the cache has no room for the objects of {name}: {size} MiB",
                name=name,
                size=size >> 20,
            )
        self._release(kind, CallError(Status.RESOURCE_EXHAUSTED, self._no_room(name)))

    async def _sweep(self) -> None:
        """Drop whole objects without readers."""
        unused = CallError(Status.UNAVAILABLE, "the objects had no readers")
        while True:
            await deferLater(self._clock, SWEEP_SECONDS)
            until = self._clock.seconds() - UNUSED_SECONDS
            for one in tuple(self.kinds.values()):
                store = one.store
                if store is not None and not store.readers and store.used_at <= until:
                    self._release(one, unused)

    # -- Watches

    async def _run_kind(self, kind: KindState) -> None:
        backoff = Backoff(self._random, RETRY_FIRST, RETRY_MOST)
        while True:
            kind.running = Deferred.fromCoroutine(self._try(kind, backoff))
            try:
                await kind.running
            except CancelledError:
                if not kind.begins_again:
                    raise
                kind.begins_again = False
                backoff.reset()
            finally:
                kind.running = None

    async def _try(self, kind: KindState, backoff: Backoff) -> None:
        """Watch a kind until the watch fails, and wait before the next attempt."""
        try:
            await self._watch(kind, backoff)
        except CallError as error:
            self._is_absent(kind, error)
        except CancelledError:
            raise
        except Exception:
            # An object that causes a failure must not stop the other kinds.
            self._log.failure("watching {kind} failed", kind=kind.kind.kind)
        await deferLater(self._clock, backoff.pause())

    async def _watch(self, kind: KindState, backoff: Backoff) -> None:
        found = kind.kind
        await self._syncs.acquire()
        holds = True
        try:
            resource = await self._client.resource(found.api_version, found.kind)
            if not {"list", "watch"} <= resource.verbs:
                raise CallError(Status.FAILED_PRECONDITION, "its API has no watch")
            if not (self._scope.is_whole_cluster or resource.namespaced):
                why = self._scope.why_outside("")
                raise CallError(Status.FAILED_PRECONDITION, why)
            kind.resource = resource
            self._show(kind, "reading" if kind.state != "synced" else "synced")
            places = self._scope.namespaces or ("",)
            unsynced, denied = set(places), dict[str, CallError]()

            def synced(place: str, error: CallError | None = None) -> None:
                nonlocal holds
                unsynced.discard(place)
                denied.pop(place, None)
                if error is not None:
                    denied[place] = error
                if len(denied) == len(places):
                    raise next(iter(denied.values()))
                if unsynced:
                    return
                backoff.reset()
                reasons = [f"{name}: {one.message}" for name, one in denied.items()]
                self._show(kind, "synced", "; ".join(reasons))
                if holds:
                    holds = False
                    self._syncs.release()

            await in_parallel(
                (partial(self._watch_in, kind, place, synced) for place in places),
                len(places),
            )
        finally:
            if holds:
                self._syncs.release()

    async def _watch_in(
        self,
        kind: KindState,
        place: str,
        synced: Callable[[str, CallError | None], None],
    ) -> None:
        """
        Watch a kind in one namespace of the scope.

        A missing right in one namespace must not hide the objects of the others.

        :param place: the namespace; empty for the whole cluster.
        :param synced: called with *place* when all of its objects have arrived, or with
            the reason why they do not.
        """
        backoff = Backoff(self._random, RETRY_FIRST, RETRY_MOST)
        while True:
            try:
                await self._follow(kind, place, synced)
            except CallError as error:
                if not place or error.status is not Status.PERMISSION_DENIED:
                    raise
                for key in [one for one in kind.objects if one[0] == place]:
                    self._remove(kind, key)
                synced(place, error)
            await deferLater(self._clock, backoff.pause())

    async def _follow(
        self,
        kind: KindState,
        place: str,
        synced: Callable[[str, CallError | None], None],
    ) -> None:
        assert kind.resource is not None
        unseen: set[tuple[str, str]] | None = None
        follow = self._kubernetes.follow
        if kind.store is None:
            events = follow(kind.resource, place, shape=kind.shape)
        else:
            # An object whose fields do not suit the views is an object anyway.
            events = follow(kind.resource, place, shape=KubernetesShape, printed=True)
        decode = msgspec.json.Decoder(kind.shape).decode
        async with aclosing(events):
            async for event in events:
                self._store(kind, event)
                if event.type is WatchEventType.RESET:
                    unseen = {one for one in kind.objects if place in ("", one[0])}
                elif event.type is WatchEventType.SYNCED:
                    for key in unseen or ():
                        self._remove(kind, key)
                    unseen = None
                    synced(place, None)
                elif event.object is not None and kind.views:
                    metadata = event.object.metadata
                    key = (sys.intern(metadata.namespace), metadata.name)
                    if unseen is not None:
                        unseen.discard(key)
                    if event.type is WatchEventType.DELETED:
                        self._remove(kind, key)
                        continue
                    shaped = event.object
                    if event.printed is not None:
                        try:
                            shaped = decode(event.printed.text)
                        except (msgspec.DecodeError, RecursionError):
                            continue
                    self._update(kind, key, shaped)

    def _store(self, kind: KindState, event: WatchEvent) -> None:
        """Give an event to the readers of whole objects."""
        store = kind.store
        if store is None:
            return
        printed = event.printed
        if event.type is WatchEventType.RESET:
            store.begin()
        elif event.type is WatchEventType.SYNCED:
            columns = b"" if printed is None else bytes(printed.columns)
            store.complete(event.resource_version, columns)
        elif event.type is WatchEventType.BOOKMARK:
            store.reached(event.resource_version)
        elif event.object is not None and printed is not None:
            metadata = event.object.metadata
            key = KeptKey(sys.intern(metadata.namespace), metadata.name)
            if event.type is WatchEventType.DELETED:
                store.delete(key, metadata.resource_version, printed)
            else:
                store.put(key, metadata.resource_version, printed)
            self._check_budget()

    def _is_absent(self, kind: KindState, error: CallError) -> None:
        """Remove the rows of a kind that is missing, or that agentk may not read."""
        if kind.store is not None:
            kind.store.fail(error)
        for key in tuple(kind.objects):
            self._remove(kind, key)
        if kind.reason != error.message:
            # Many clusters have no such API, which is no problem.
            missing = error.status is Status.NOT_FOUND
            self._log.emit(
                LogLevel.debug if missing else LogLevel.info,
                "{kind} is not in the live data of this cluster: {reason}",
                kind=kind.kind.kind,
                reason=error.message,
            )
        self._show(kind, "absent", error.message)

    # -- Objects

    def _update(
        self, kind: KindState, key: tuple[str, str], found: KubernetesShape
    ) -> None:
        before = kind.objects.get(key)
        metadata = found.metadata
        if before is not None and before.version == metadata.resource_version != "":
            return
        now = self._now()
        seen = _seen(kind.kind, found, now)
        since = now
        if before is not None and before.uid == metadata.uid:
            since = before.since if before.state == seen.state else now
        one = attrs.evolve(seen, since=since)
        if kind.only_counted:
            kind.objects[key] = _Kept("", "", one.state, 0.0, ())
        else:
            rows = self._put_rows(kind, key, one)
            if before is not None:
                for view, row in before.rows:
                    if (view, row) not in rows:
                        self._delete_row(kind, view, row)
            kind.objects[key] = _Kept(
                metadata.uid, metadata.resource_version, one.state, since, rows
            )
        self._count(kind, before.state if before else None, one.state)
        self._check_budget()

    def _put_rows(
        self, kind: KindState, key: tuple[str, str], one: ClusterObject
    ) -> tuple[tuple[str, TableKey], ...]:
        assert kind.resource is not None
        rows: list[tuple[str, TableKey]] = []
        for view in kind.views:
            table = self.tables[view.name]
            for row in self._rows_in(view, one):
                where = TableKey(kind.kind.group, kind.kind.kind, *key, row.part)
                before = table.size
                if table.put(where, kind.resource.name, row.columns):
                    kind.row_bytes += table.size - before
                    self._changed(view.name)
                rows.append((view.name, where))
        return tuple(rows)

    def _rows_in(self, view: ClusterView, one: ClusterObject) -> Sequence[ViewRow]:
        """
        Return the rows of an object in a view; none if the view fails, which must not
        stop the other views.
        """
        try:
            return tuple(view.rows(one))
        except Exception:
            if view.name not in self._failed_views:
                self._failed_views.add(view.name)
                self._log.failure(
                    "the view {view} has no row of {kind} {namespace}/{name}",
                    view=view.name,
                    kind=one.kind.kind,
                    namespace=one.found.metadata.namespace,
                    name=one.found.metadata.name,
                )
            return ()

    def _remove(self, kind: KindState, key: tuple[str, str]) -> None:
        before = kind.objects.pop(key, None)
        if before is not None:
            for view, row in before.rows:
                self._delete_row(kind, view, row)
            self._count(kind, before.state, None)

    def _delete_row(self, kind: KindState, view: str, row: TableKey) -> None:
        table = self.tables[view]
        before = table.size
        table.delete(row)
        kind.row_bytes += table.size - before
        self._changed(view)

    # -- What the cache computes itself

    def _count(self, kind: KindState, before: str | None, after: str | None) -> None:
        if before == after and before is not None:
            return
        if before is not None:
            kind.states[before] -= 1
            if not kind.states[before]:
                del kind.states[before]
        if after is not None:
            kind.states[after] += 1
        # While a kind is read, the numbers would only grow towards the right ones.
        if kind.state == "synced":
            self._show_counts(kind)

    def _show_counts(self, kind: KindState) -> None:
        assert kind.resource is not None
        states = dict(kind.states.most_common(MAX_STATES))
        if rest := len(kind.objects) - sum(states.values()):
            states["other"] = rest
        columns = {"total": len(kind.objects), "states": states}
        key = TableKey(kind.kind.group, kind.kind.kind, "", "")
        if self.tables[SUMMARY].put(key, kind.resource.name, columns):
            self._changed(SUMMARY)

    def _show(self, kind: KindState, state: str = "", reason: str = "") -> None:
        """Record the state of a kind's watch in the table of kinds."""
        if state and state != kind.state:
            kind.state = state
            for view in kind.views:
                # The view may be complete now.
                self._changed(view.name)
        kind.reason = reason or (kind.reason if kind.only_counted else "")
        if not kind.views:
            return
        key = TableKey(kind.kind.group, kind.kind.kind, "", "")
        columns: dict[str, Any] = {
            "state": "count_only"
            if kind.only_counted and kind.state == "synced"
            else kind.state,
            "version": kind.kind.version,
        }
        if kind.reason:
            columns["reason"] = kind.reason
        resource = kind.resource.name if kind.resource is not None else ""
        if self.tables[KINDS].put(key, resource, columns):
            self._changed(KINDS)
        if kind.state == "synced":
            self._show_counts(kind)
        elif kind.state == "absent" and key in self.tables[SUMMARY].rows:
            self.tables[SUMMARY].delete(key)
            self._changed(SUMMARY)

    def _check_budget(self) -> None:
        size = self.size
        if size > STORES_SHARE * self._budget:
            stores = [one for one in self.kinds.values() if one.store is not None]
            if stores:
                self._release_one(stores)
                return
        if size > self._budget:
            self._step_down()

    def _step_down(self) -> None:
        """Keep only the numbers of the largest kind, because the budget is used up."""
        largest = max(
            (one for one in self.kinds.values() if not one.only_counted and one.views),
            key=lambda one: one.rows_size,
            default=None,
        )
        if largest is None:
            return
        largest.only_counted = True
        for key, kept in largest.objects.items():
            for view, row in kept.rows:
                self._delete_row(largest, view, row)
            largest.objects[key] = _Kept("", "", kept.state, 0.0, ())
        reason = (
            f"the cache has no room for more than {self._budget >> 20} MiB; objects of "
            "this kind are only counted"
        )
        self._log.warn("{kind}: {reason}", kind=largest.kind.kind, reason=reason)
        self._show(largest, reason=reason)


def _seen(kind: ObjectKind, found: KubernetesShape, now: float) -> ClusterObject:
    """Return an object with its health and its state."""
    plain = msgspec.to_builtins(found)
    plain["apiVersion"], plain["kind"] = kind.api_version, kind.kind
    health = health_of(plain, now)
    if isinstance(found, Pod):
        state = pod_state(found)
    elif isinstance(found, Node):
        state = node_state(found)
    else:
        state = health.status.value
    return ClusterObject(
        kind,
        found,
        health.status.value,
        health.reason,
        sys.intern(state[:MAX_STATE]),
        now,
    )
