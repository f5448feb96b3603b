"""
Watches on the kinds of objects that projects have: one watch for each kind, or, if the
scope of the agent is some namespaces, one for each kind in each of them.

All projects share the watches, also with other modules of agentk
(`IKubernetes.follow`).  They give this module only metadata, and so no secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

import attrs
import msgspec
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from modules.gitops.agent.objects.manifests import ObjectKey
from tunnel.api import (
    AgentScope,
    IKubernetes,
    KubernetesObject,
    KubernetesResource,
    WatchEvent,
    WatchEventType,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.for_each import for_each

__all__ = ["CATCH_UPS", "JOIN", "Kind", "KindFollower", "KindWatches"]

#: Group and kind.
Kind = tuple[str, str]

#: Kind, and the namespace of a watch; the namespace is empty for the whole cluster.
_Place = tuple[Kind, str]

#: Seconds before a kind that cannot be watched is tried again: first and maximum.  Its
#: definition may be created soon, or a permission granted.
RETRY_FIRST, RETRY_MOST = 5.0, 600.0

#: Seconds that agentk waits before it lists a kind again for later followers, so that
#: more followers can join: all projects start at the same time, and one list serves
#: them all.
JOIN = 1.0

#: Maximum number of kinds that are listed at the same time for later followers.
CATCH_UPS = 2


class KindFollower(Protocol):
    """
    Interface of an object that is notified of changes to its objects of some kinds.
    """

    def keys_of(self, kind: Kind) -> Collection[ObjectKey]:
        """Return the keys of the follower's current objects of a kind."""

    def changed(self, key: ObjectKey, metadata: Mapping[str, Any]) -> None:
        """Handle an object that exists and may have changed."""

    def deleted(self, key: ObjectKey) -> None:
        """Handle an object that does not exist, or did not exist for a while."""


class KindWatches:
    """
    Watches on all kinds of objects that projects have, and the followers of each watch.

    :param kubernetes: watches that other modules may share, with agentk's rights.
    :param random: returns a number between 0 and 1, for the jitter of pauses.
    """

    def __init__(
        self,
        kubernetes: IKubernetes,
        clock: IReactorTime,
        random: Callable[[], float],
    ) -> None:
        self._kubernetes = kubernetes
        self._clock = clock
        self._random = random
        self._scope = AgentScope()
        self._watches: dict[_Place, _Watch] = {}
        self._catch_ups = DeferredSemaphore(CATCH_UPS)

    def limit(self, scope: AgentScope) -> None:
        """Watch only in a scope from now on, for the present followers, too."""
        if scope == self._scope:
            return
        self._scope = scope
        followed: dict[KindFollower, dict[Kind, str]] = {}
        for (kind, _), watch in tuple(self._watches.items()):
            for follower in tuple(watch.followers):
                followed.setdefault(follower, {})[kind] = watch.api_version
                watch.leave(follower)
        self._watches.clear()
        for follower, kinds in followed.items():
            self.follow(follower, kinds)

    def follow(self, follower: KindFollower, kinds: Mapping[Kind, str]) -> None:
        """
        Notify *follower* of changes to objects of these kinds, and of no other kinds,
        from now on.

        :param kinds: for each kind, the API version for its requests.
        """
        for place, watch in tuple(self._watches.items()):
            if place[0] not in kinds:
                watch.leave(follower)
                if not watch.followers:
                    del self._watches[place]
        for kind, api_version in kinds.items():
            for namespace in self._scope.namespaces or ("",):
                watch = self._watches.setdefault(
                    (kind, namespace),
                    _Watch(
                        self._kubernetes,
                        self._clock,
                        self._random,
                        self._catch_ups,
                        kind,
                        namespace,
                        api_version,
                    ),
                )
                # Use the new version, because the API server may no longer serve the
                # earlier one.
                watch.api_version = api_version
                watch.join(follower)

    def leave(self, follower: KindFollower) -> None:
        """Stop notifying *follower*."""
        self.follow(follower, {})

    def unwatched(self, follower: KindFollower) -> set[Kind]:
        """Return the kinds that a follower needs and that cannot be watched now."""
        return {
            kind
            for (kind, _), watch in self._watches.items()
            if follower in watch.followers
            and (not watch.synced or follower in watch.late)
        }

    def problems(self, follower: KindFollower) -> Mapping[Kind, str]:
        """
        Return the kinds that *follower* needs but that cannot be watched, each with the
        reason.
        """
        return {
            kind: watch.complaint
            for (kind, _), watch in self._watches.items()
            if follower in watch.followers and watch.complaint
        }


@attrs.define(eq=False)
class _Watch:
    """
    Watch of one kind, in one namespace or in the whole cluster.

    :ivar api_version: the version for the next request.
    :ivar followers: the followers, the first one first.
    :ivar late: the followers that joined after the list and need another list; one list
        serves all of them.
    :ivar synced: whether the followers were notified of all objects, and receive
        changes.
    :ivar complaint: why the kind cannot be watched; empty if the kind can be watched,
        or was not tried yet.
    """

    _log = Logger()

    _kubernetes: IKubernetes
    _clock: IReactorTime
    _random: Callable[[], float]
    _catch_ups: DeferredSemaphore
    _kind: Kind
    _namespace: str
    api_version: str
    followers: dict[KindFollower, None] = attrs.field(factory=dict)
    late: set[KindFollower] = attrs.field(factory=set)
    synced: bool = False
    _running: Deferred[Any] | None = None
    _catching_up: Deferred[Any] | None = None
    complaint: str = ""

    def join(self, follower: KindFollower) -> None:
        """Also notify *follower* of changes, unless it already follows the kind."""
        if follower in self.followers:
            return
        self.followers[follower] = None
        if self._running is None:
            self._running = self._begun(self._run())
            return
        self.late.add(follower)
        if self._catching_up is None:
            self._catching_up = self._begun(self._catch_up())

    def leave(self, follower: KindFollower) -> None:
        """Stop notifying *follower*; stop watching after the last one has left."""
        self.followers.pop(follower, None)
        self.late.discard(follower)
        if not self.late and self._catching_up is not None:
            self._catching_up.cancel()
        if not self.followers and self._running is not None:
            self._running.cancel()

    def _begun(self, work: Any) -> Deferred[Any]:
        begun = Deferred.fromCoroutine(work)
        begun.addErrback(self._ended)
        return begun

    def _ended(self, failure: Any) -> None:
        if not failure.check(CancelledError):
            self._log.failure("watching {kind} failed", failure, kind=self._kind[1])

    async def _run(self) -> None:
        backoff = Backoff(self._random, RETRY_FIRST, RETRY_MOST)
        while True:
            try:
                resource = await self._resource()
                await self._watch(resource, backoff)
            except CallError as error:
                self.synced = False
                if error.message != self.complaint:
                    self.complaint = error.message
                    self._log.info(
                        "{kind} cannot be watched for drift, and is checked with "
                        "each full pass: {reason}",
                        kind=self._kind[1],
                        reason=error.message,
                    )
            except CancelledError:
                raise
            except Exception:
                # An object that causes a failure must not prevent the detection of
                # drift of all others.
                self.synced = False
                self._log.failure("watching {kind} failed", kind=self._kind[1])
            await deferLater(self._clock, backoff.pause())

    async def _catch_up(self) -> None:
        """List the objects once more for all followers that joined late."""
        backoff = Backoff(self._random, RETRY_FIRST, RETRY_MOST)
        try:
            while self.late:
                await deferLater(self._clock, JOIN)
                await self._catch_ups.acquire()
                try:
                    await self._list_again()
                    backoff.reset()
                    continue
                except CallError:
                    # `_run` logs the reason if the watch cannot continue either.
                    pass
                finally:
                    self._catch_ups.release()
                await deferLater(self._clock, backoff.pause())
        finally:
            self._catching_up = None

    async def _list_again(self) -> None:
        """
        Notify the late followers of the objects that exist now, and of deleted objects.

        Only one page is in memory at a time, and followers receive only their own
        objects.
        """
        resource = await self._resource()
        # Use the current set: a follower that joins from now on may miss the first
        # pages.
        batch = frozenset(self.late)
        waiting: dict[ObjectKey, list[KindFollower]] = {}
        for one in batch:
            for key in self._keys_of(one):
                waiting.setdefault(key, []).append(one)
        client = self._kubernetes.as_agentk()
        listing = client.list(resource, self._namespace, metadata_only=True)
        async with aclosing(listing) as pages:
            async for page in pages:
                for found in page:
                    key = self._key(found)
                    self._tell(waiting.pop(key, ()), key, found, is_deleted=False)
        for key, followers in waiting.items():
            self._tell(followers, key, {}, is_deleted=True)
        self.late -= batch

    async def _resource(self) -> KubernetesResource:
        client = self._kubernetes.as_agentk()
        resource = await client.resource(self.api_version, self._kind[1])
        if not {"list", "watch"} <= resource.verbs:
            raise CallError(Status.FAILED_PRECONDITION, "its API has no watch")
        if self._namespace and not resource.namespaced:
            why = "its objects have no namespace, so they are outside of the scope"
            raise CallError(Status.FAILED_PRECONDITION, why)
        return resource

    async def _watch(self, resource: KubernetesResource, backoff: Backoff) -> None:
        """Notify all followers of each object and change."""
        listed: set[tuple[str, str]] | None = None
        before: dict[KindFollower, frozenset[ObjectKey]] = {}
        events = self._kubernetes.follow(resource, self._namespace)
        async with aclosing(events):
            async for event in events:
                if event.type is WatchEventType.RESET:
                    listed = set()
                    # This list also serves the followers that joined late.
                    self.late.clear()
                    before = {
                        one: frozenset(self._keys_of(one)) for one in self.followers
                    }
                elif event.type is WatchEventType.SYNCED and listed is not None:
                    self._lost(before, listed)
                    listed, before = None, {}
                    backoff.reset()
                    self.synced, self.complaint = True, ""
                elif event.object is not None:
                    found = event.object.metadata
                    if not found.name:
                        raise KeyError("an object without a name")
                    key = ObjectKey(*self._kind, found.namespace, found.name)
                    if listed is not None:
                        listed.add((key.namespace, key.name))
                    self._changed(key, event)

    def _changed(self, key: ObjectKey, event: WatchEvent) -> None:
        """Notify the followers that have an object of its change."""
        concerned = [one for one in self.followers if key in one.keys_of(self._kind)]
        if not concerned:
            # Do not parse the metadata: nearly all objects of a cluster are of others.
            return
        is_deleted = event.type is WatchEventType.DELETED
        try:
            metadata = {} if is_deleted else msgspec.json.decode(event.metadata)
        except (msgspec.DecodeError, RecursionError):
            # Metadata that are nested this deeply are not compared.
            return
        self._tell(concerned, key, {"metadata": metadata}, is_deleted)

    def _tell(
        self,
        followers: Iterable[KindFollower],
        key: ObjectKey,
        found: Mapping[str, Any],
        is_deleted: bool,
    ) -> None:
        """Notify *followers* that still follow; log an exception and continue."""
        for_each(
            [one for one in followers if one in self.followers],
            lambda one: (
                one.deleted(key) if is_deleted else one.changed(key, found["metadata"])
            ),
            "notifying a project of an object",
        )

    def _lost(
        self,
        before: Mapping[KindFollower, frozenset[ObjectKey]],
        listed: Collection[tuple[str, str]],
    ) -> None:
        """
        Notify followers of objects that were deleted while the kind was not watched.
        """
        for follower, keys in before.items():
            gone = [one for one in keys if (one.namespace, one.name) not in listed]
            for_each(gone, follower.deleted, "notifying a project of an object")

    def _keys_of(self, follower: KindFollower) -> Collection[ObjectKey]:
        """Return the follower's objects that this watch covers."""
        keys = follower.keys_of(self._kind)
        return [one for one in keys if self._namespace in ("", one.namespace)]

    def _key(self, found: KubernetesObject) -> ObjectKey:
        metadata = found["metadata"]
        return ObjectKey(*self._kind, metadata.get("namespace", ""), metadata["name"])
