"""
Watches on the kinds of objects that projects have: one for each kind, for all of them.

Only metadata comes, so nothing that a Secret holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from modules.gitops.manifests import ObjectKey
from tunnel.errors import CallError, Status
from tunnel.interfaces import (
    IKubernetesClient,
    KubernetesObject,
    KubernetesResource,
    WatchEventType,
)
from tunnel.util.backoff import Backoff
from tunnel.util.for_each import for_each

__all__ = ["Kind", "KindFollower", "KindWatches"]

#: Group and kind.
Kind = tuple[str, str]

#: Seconds before a kind that cannot be watched is tried again, at first and at most: a
#: definition that is about to come, a right that is given.
RETRY_FIRST, RETRY_MOST = 5.0, 600.0


class KindFollower(Protocol):
    """Is told of objects that it has."""

    def keys_of(self, kind: Kind) -> Collection[ObjectKey]:
        """Those that it has now."""

    def changed(self, key: ObjectKey, metadata: Mapping[str, Any]) -> None:
        """An object is there, and is perhaps another than before."""

    def deleted(self, key: ObjectKey) -> None:
        """An object is gone, or was for a while."""


class KindWatches:
    """
    See the module.

    :param random: between 0 and 1, for the jitter of pauses.
    """

    def __init__(
        self,
        client: IKubernetesClient,
        clock: IReactorTime,
        random: Callable[[], float],
    ) -> None:
        self._client = client
        self._clock = clock
        self._random = random
        self._watches: dict[Kind, _Watch] = {}

    def follow(self, follower: KindFollower, kinds: Mapping[Kind, str]) -> None:
        """
        Tell *follower* of objects of these kinds from now on, and of no others.

        :param kinds: in which version of its group each is asked for.
        """
        for kind, watch in tuple(self._watches.items()):
            if kind not in kinds:
                watch.leave(follower)
                if not watch.followers:
                    del self._watches[kind]
        for kind, api_version in kinds.items():
            if kind not in self._watches:
                self._watches[kind] = _Watch(
                    self._client, self._clock, self._random, kind, api_version
                )
            # The one of before may be served no more.
            self._watches[kind].api_version = api_version
            self._watches[kind].join(follower)

    def leave(self, follower: KindFollower) -> None:
        """Tell it nothing more."""
        self.follow(follower, {})

    def unwatched(self, follower: KindFollower) -> set[Kind]:
        """The kinds that it follows and nothing is learnt of now."""
        return {
            kind
            for kind, watch in self._watches.items()
            if follower in watch.followers and not watch.synced
        }

    def problems(self, follower: KindFollower) -> Mapping[Kind, str]:
        """Why kinds that it follows cannot be watched."""
        return {
            kind: watch.complaint
            for kind, watch in self._watches.items()
            if follower in watch.followers and watch.complaint
        }


@attrs.define(eq=False)
class _Watch:
    """
    One kind.

    :ivar api_version: in which it is asked for from the next time on.
    :ivar followers: each with what lists the objects once more for it, where it came
        after they had been listed.
    :ivar synced: all objects were told of, and changes are since then.
    :ivar complaint: why it cannot be watched; empty: it can, or was not tried yet.
    """

    _log = Logger()

    _client: IKubernetesClient
    _clock: IReactorTime
    _random: Callable[[], float]
    _kind: Kind
    api_version: str
    followers: dict[KindFollower, Deferred[Any] | None] = attrs.field(factory=dict)
    synced: bool = False
    _running: Deferred[Any] | None = None
    complaint: str = ""

    def join(self, follower: KindFollower) -> None:
        """Tell it, too; it may be told already."""
        if follower in self.followers:
            return
        self.followers[follower] = None
        if self._running is None:
            self._running = self._begun(self._run())
        else:
            self.followers[follower] = self._begun(self._catch_up(follower))

    def leave(self, follower: KindFollower) -> None:
        """Tell it nothing more; without followers nothing is watched."""
        catching_up = self.followers.pop(follower, None)
        if catching_up is not None:
            catching_up.cancel()
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
                await self._watch(resource, tuple, backoff)
            except CallError as error:
                self.synced = False
                if error.message != self.complaint:
                    self.complaint = error.message
                    self._log.info(
                        "{kind} cannot be watched for drift, and is looked at with "
                        "each full pass: {reason}",
                        kind=self._kind[1],
                        reason=error.message,
                    )
            except CancelledError:
                raise
            except Exception:
                # What one object breaks must not hide the drift of all others.
                self.synced = False
                self._log.failure("watching {kind} failed", kind=self._kind[1])
            await deferLater(self._clock, backoff.pause())

    async def _catch_up(self, follower: KindFollower) -> None:
        """List once more for one that came later."""
        try:
            resource = await self._resource()
            await self._watch(resource, lambda _: (follower,), None)
        except CallError:
            # So `_run` says, too, and lists for all of them once it can.
            return

    async def _resource(self) -> KubernetesResource:
        resource = await self._client.resource(self.api_version, self._kind[1])
        if not {"list", "watch"} <= resource.verbs:
            raise CallError(Status.FAILED_PRECONDITION, "its API has no watch")
        return resource

    async def _watch(
        self,
        resource: KubernetesResource,
        told: Callable[[Mapping[KindFollower, Any]], Collection[KindFollower]],
        backoff: Backoff | None,
    ) -> None:
        """
        Tell of each change; without *backoff* only of what there is.

        :param told: whom, of all that follow.
        """
        listed: set[tuple[str, str]] | None = None
        before: dict[KindFollower, frozenset[ObjectKey]] = {}
        events = self._client.watch(resource, metadata_only=True)
        async with aclosing(events):
            async for event in events:
                if event.type is WatchEventType.RESET:
                    listed = set()
                    before = {
                        one: frozenset(one.keys_of(self._kind))
                        for one in told(self.followers)
                    }
                elif event.type is WatchEventType.SYNCED and listed is not None:
                    self._lost(before, listed)
                    listed, before = None, {}
                    if backoff is None:
                        return
                    backoff.reset()
                    self.synced, self.complaint = True, ""
                elif event.object is not None:
                    key = self._key(event.object)
                    if listed is not None:
                        listed.add((key.namespace, key.name))
                    is_deleted = event.type is WatchEventType.DELETED
                    self._tell(told(self.followers), key, event.object, is_deleted)

    def _tell(
        self,
        followers: Iterable[KindFollower],
        key: ObjectKey,
        found: Mapping[str, Any],
        is_deleted: bool,
    ) -> None:
        """Tell all *followers*; one that fails keeps none of the others from it."""
        for_each(
            followers,
            lambda one: (
                one.deleted(key) if is_deleted else one.changed(key, found["metadata"])
            ),
            "telling a project of an object",
        )

    def _lost(
        self,
        before: Mapping[KindFollower, frozenset[ObjectKey]],
        listed: Collection[tuple[str, str]],
    ) -> None:
        """Tell of objects that went while nothing was watched."""
        for follower, keys in before.items():
            gone = [one for one in keys if (one.namespace, one.name) not in listed]
            for_each(gone, follower.deleted, "telling a project of an object")

    def _key(self, found: KubernetesObject) -> ObjectKey:
        metadata = found["metadata"]
        return ObjectKey(*self._kind, metadata.get("namespace", ""), metadata["name"])
