"""
One watch for all modules of agentk that follow a kind.

    API server --> watch.py --> _SharedWatch --> _Follower --> generator of a module

A watch requests no more than its followers need: metadata, whole objects, or Tables
with whole objects.  It keeps no objects: each follower keeps what it needs.  A follower
that joins later needs the present objects:

    of metadata        reads a list of metadata, while changes already arrive; the watch
                       and the other followers continue
    of whole objects   makes the watch begin again, because streamed objects cost the
                       API server less than a list of them

A watch that was begun for whole objects continues with them if only followers of
metadata are left, until it begins again for another reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from typing import Any, Protocol

import attrs
import msgspec
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from tunnel.api import (
    KubernetesResource,
    KubernetesShape,
    PrintedObject,
    WatchEvent,
    WatchEventType,
)
from tunnel.errors import CallError, Status
from tunnel.kubernetes.answers import ObjectPage
from tunnel.kubernetes.guard import RequestOrigin
from tunnel.kubernetes.watch import FINAL, RETRY_FIRST, RETRY_MOST
from tunnel.toolkit.backoff import Backoff

__all__ = ["SharedWatches", "WatchClient"]

#: Maximum number of kinds that are listed at the same time for followers that joined
#: late.
LISTS = 2

#: Maximum number of objects whose changes arrive while a follower reads a list; with
#: more, the watch begins again, because the list may take a long time.
MAX_ARRIVED = 10_000

#: Group, plural, and namespace of a watch; the namespace is empty for all namespaces.
_Place = tuple[str, str, str]


class WatchClient(Protocol):
    """The methods of `KubernetesClient` that shared watches use."""

    def watch(
        self,
        resource: KubernetesResource,
        namespace: str = "",
        *,
        metadata_only: bool = False,
        shape: type[KubernetesShape] | None = None,
        printed: bool = False,
    ) -> AsyncGenerator[WatchEvent, None]:
        """See `tunnel.api.IKubernetesClient.watch`."""

    def metadata_pages(
        self, resource: KubernetesResource, namespace: str
    ) -> AsyncGenerator[ObjectPage, None]:
        """List the metadata of all objects, page by page."""

    def check_watch(self, resource: KubernetesResource, namespace: str) -> None:
        """
        Check whether the policy of the cluster's owner permits the watch.

        :raises CallError: the policy denies it.
        """


class _Parts(msgspec.Struct):
    """An object whose metadata are not parsed yet."""

    metadata: msgspec.Raw = msgspec.Raw()


_PARTS = msgspec.json.Decoder(_Parts)


@attrs.define(eq=False)
class _Follower:
    """
    A module that follows a watch.

    There is no queue: the watch continues when every follower has handled an event.

    :ivar client: the client of the module, whose requests the policy checks as the
        module's own.
    :ivar origins: the module, for checks of shared requests; empty without a policy.
    :ivar shape: the fields to read; None for metadata only.
    :ivar arrived: while the follower reads a list, the keys of the objects that the
        watch has reported since; None after that.
    :ivar has_left: whether the module does not follow any more.
    """

    client: WatchClient
    origins: Collection[RequestOrigin]
    resource: KubernetesResource
    shape: type[KubernetesShape] | None
    printed: bool
    arrived: set[tuple[str, str]] | None = None
    listing: Deferred[None] | None = None
    has_left: bool = False
    _decode: Any = None
    _events: deque[WatchEvent] = attrs.field(factory=deque)
    _error: Exception | None = None
    #: Fires when there is an event or an error; None while the module handles an event.
    _waiting: Deferred[None] | None = None
    #: Fires when the module has handled all events; None if nothing waits for this.
    _handled: list[Deferred[None]] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        if self.shape not in (None, KubernetesShape):
            self._decode = msgspec.json.Decoder(self.shape).decode

    async def next(self) -> WatchEvent:
        """
        Return the next event.

        :raises CallError: why there are no more events.
        """
        while not self._events:
            if self._error is not None:
                raise self._error
            self._waiting = Deferred()
            self._wake_producers()
            try:
                await self._waiting
            finally:
                self._waiting = None
        return self._events.popleft()

    @property
    def is_busy(self) -> bool:
        """Whether the module has not handled all events yet."""
        return self._waiting is None and not self.has_left

    async def wait(self) -> None:
        """Wait until the module has handled all events."""
        while self.is_busy:
            handled: Deferred[None] = Deferred()
            self._handled.append(handled)
            await handled

    def _wake_producers(self) -> None:
        handled, self._handled = self._handled, []
        for one in handled:
            if not one.called:
                one.callback(None)

    def take(self, event: WatchEvent) -> None:
        """Take an event of the watch."""
        if self.arrived is not None:
            if event.object is None:
                # The list of this follower has its own end.
                return
            self.arrived.add(_key(event.object))
        self.show(event)

    def show(self, event: WatchEvent) -> None:
        """Pass an event to the module, with the fields that it needs."""
        shown = self._shown(event)
        if shown is not None:
            self._events.append(shown)
            self._wake()

    def fail(self, error: Exception) -> None:
        """End the events with an error."""
        self._error = error
        self._wake()

    def leave(self) -> None:
        """Note that the module does not follow any more."""
        self.has_left = True
        self.arrived = None
        self._events.clear()
        self._wake_producers()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.called:
            self._waiting.callback(None)

    def _shown(self, event: WatchEvent) -> WatchEvent | None:
        """Return an event as the module needs it; None if the object does not suit."""
        printed = event.printed
        if printed is None:
            return event
        kept = printed if self.printed else None
        if event.object is None:
            return attrs.evolve(event, printed=kept)
        found, metadata = event.object, msgspec.Raw()
        try:
            if self.shape is None:
                metadata = _PARTS.decode(printed.text).metadata
            elif self._decode is not None:
                found = self._decode(printed.text)
        except (msgspec.DecodeError, RecursionError):
            return None
        return WatchEvent(event.type, found, event.resource_version, kept, metadata)

    def why_denied(self, namespace: str) -> CallError | None:
        """Return why the policy denies this module the watch; None if it permits it."""
        try:
            self.client.check_watch(self.resource, namespace)
        except CallError as error:
            if error.status is Status.PERMISSION_DENIED:
                return error
            # agentk has not read the policy yet; the watch is retried until it has.
        return None


class SharedWatches:
    """
    The watches of all modules with agentk's rights: one for each kind and namespace.

    :param make_client: returns a client for requests that several modules share.
    :param jitter: returns a number between 0 and 1, for pauses.
    """

    def __init__(
        self,
        make_client: Callable[[Collection[RequestOrigin]], WatchClient],
        clock: IReactorTime,
        jitter: Callable[[], float],
    ) -> None:
        self._make_client = make_client
        self._clock = clock
        self._jitter = jitter
        self._lists = DeferredSemaphore(LISTS)
        self._watches: dict[_Place, list[_SharedWatch]] = {}

    async def follow(
        self,
        client: WatchClient,
        origins: Collection[RequestOrigin],
        resource: KubernetesResource,
        namespace: str,
        shape: type[KubernetesShape] | None,
        printed: bool,
    ) -> AsyncGenerator[WatchEvent, None]:
        """
        See `tunnel.api.IKubernetes.follow`.

        :param client: the client of the module that follows.
        :param origins: the module, for the policy of the cluster's owner.
        """
        follower = _Follower(client, origins, resource, shape, printed)
        denied = follower.why_denied(namespace)
        if denied is not None:
            raise denied
        place = (resource.group, resource.name, namespace)
        watch = self._watch_for(place, follower)
        watch.join(follower)
        try:
            while True:
                yield await follower.next()
        finally:
            watch.leave(follower)
            self._forget(place, watch)

    def _watch_for(self, place: _Place, follower: _Follower) -> _SharedWatch:
        """Return the watch that a follower joins."""
        watches = self._watches.setdefault(place, [])
        fitting = [one for one in watches if one.suits(follower)]
        # Metadata are the same in all versions of a kind, and fields are not.
        fitting.sort(key=lambda one: one.resource.version != follower.resource.version)
        if fitting:
            return fitting[0]
        watch = _SharedWatch(
            follower.resource,
            place[2],
            self._make_client,
            self._lists,
            self._clock,
            self._jitter,
        )
        watches.append(watch)
        return watch

    def _forget(self, place: _Place, watch: _SharedWatch) -> None:
        """Forget a watch without followers."""
        watches = self._watches.get(place, [])
        if not watch.followers and watch in watches:
            watches.remove(watch)
            if not watches:
                del self._watches[place]


class _SharedWatch:
    """
    A watch of one kind, in one namespace or in the whole cluster.

    :ivar followers: the followers, the first one first.
    """

    _log = Logger()

    def __init__(
        self,
        resource: KubernetesResource,
        namespace: str,
        make_client: Callable[[Collection[RequestOrigin]], WatchClient],
        lists: DeferredSemaphore,
        clock: IReactorTime,
        jitter: Callable[[], float],
    ) -> None:
        self.resource = resource
        self._namespace = namespace
        #: The modules that the policy has to permit the requests; the requests refer
        #: to this list.
        self._origins: list[RequestOrigin] = []
        self._client = make_client(self._origins)
        self._lists = lists
        self._clock = clock
        self._jitter = jitter
        self.followers: dict[_Follower, None] = {}
        self._is_running = False
        self._watching: Deferred[None] | None = None
        #: Whether followers are handling an event: the watch must not be cancelled by
        #: them, and looks at *_is_outdated* afterwards.
        self._is_delivering = False
        self._is_outdated = False
        #: What the current watch has reported: RESET, and anything after that.
        self._is_reset = False
        self._has_objects = False

    @property
    def _is_whole(self) -> bool:
        return any(one.shape is not None for one in self.followers)

    def suits(self, follower: _Follower) -> bool:
        """Return whether a follower can join."""
        has_version = self.resource.version == follower.resource.version
        return has_version or follower.shape is None or not self._is_whole

    def join(self, follower: _Follower) -> None:
        """Report the objects and their changes to a follower, too."""
        self.followers[follower] = None
        self._origins.extend(follower.origins)
        if follower.shape is not None:
            self.resource = follower.resource
        if not self._is_running:
            self._is_running = True
            running = Deferred.fromCoroutine(self._run())
            running.addErrback(self._broke)
        elif follower.shape is not None:
            self._begin_again()
        elif self._has_objects:
            follower.arrived = set()
            follower.listing = Deferred.fromCoroutine(self._list_for(follower))
            follower.listing.addErrback(self._list_failed, follower)
        elif self._is_reset:
            follower.show(WatchEvent(WatchEventType.RESET))

    def leave(self, follower: _Follower) -> None:
        """Report nothing to a follower any more; stop after the last one has left."""
        self._drop(follower)
        follower.leave()
        self._stop_list(follower)
        if not self.followers:
            self._begin_again()

    def _drop(self, follower: _Follower) -> None:
        if follower in self.followers:
            del self.followers[follower]
            for one in follower.origins:
                self._origins.remove(one)

    def _begin_again(self) -> None:
        """Begin the watch again, or end it if there are no followers."""
        self._is_outdated = True
        if self._watching is not None and not self._is_delivering:
            self._watching.cancel()

    def _broke(self, failure: Any) -> None:
        # Followers get all errors of the watch, so this is an error of this class.
        self._is_running = False
        self._log.failure("a shared watch failed", failure)
        for one in tuple(self.followers):
            self._end(one, failure.value)

    async def _run(self) -> None:
        while self.followers:
            self._is_outdated = self._is_reset = self._has_objects = False
            self._watching = Deferred.fromCoroutine(self._watch())
            try:
                await self._watching
            except CancelledError:
                if not self._is_outdated:
                    raise
            except CallError as error:
                self._refused(error)
            finally:
                self._watching = None
        self._is_running = False

    async def _watch(self) -> None:
        events = self._client.watch(
            self.resource,
            self._namespace,
            metadata_only=not self._is_whole,
            shape=KubernetesShape,
            printed=any(one.printed for one in self.followers),
        )
        async with aclosing(events):
            async for event in events:
                self._is_delivering = True
                try:
                    self._deliver(event)
                finally:
                    self._is_delivering = False
                if self._is_outdated:
                    return
                for one in tuple(self.followers):
                    if one.is_busy:
                        await one.wait()

    def _deliver(self, event: WatchEvent) -> None:
        if event.type is WatchEventType.RESET:
            self._is_reset, self._has_objects = True, False
            for one in self.followers:
                # The objects that follow replace the list.
                one.arrived = None
                self._stop_list(one)
        else:
            self._has_objects = True
        for one in tuple(self.followers):
            one.take(event)
            if one.arrived is not None and len(one.arrived) > MAX_ARRIVED:
                self._begin_again()

    def _refused(self, error: CallError) -> None:
        """
        End followers with an error.

        If the policy denies the watch to some modules, the others continue.
        """
        denied: dict[_Follower, CallError] = {}
        if error.status is Status.PERMISSION_DENIED:
            for one in self.followers:
                why = one.why_denied(self._namespace)
                if why is not None:
                    denied[one] = why
        for one in denied or tuple(self.followers):
            self._end(one, denied.get(one, error))

    def _end(self, follower: _Follower, error: Exception) -> None:
        self._drop(follower)
        self._stop_list(follower)
        follower.fail(error)

    # Lists for followers that joined late.

    async def _list_for(self, follower: _Follower) -> None:
        """
        Report the present objects to a follower that already gets changes.

        The list may be older than a change that has arrived, so it does not count for
        these objects.
        """
        arrived = follower.arrived
        assert arrived is not None
        backoff, version = Backoff(self._jitter, RETRY_FIRST, RETRY_MOST), ""
        follower.show(WatchEvent(WatchEventType.RESET))
        while follower.arrived is arrived:
            await self._lists.acquire()
            try:
                version = await self._read_list(follower, arrived)
                break
            except CallError as error:
                if error.status is Status.PERMISSION_DENIED:
                    # A watch that streams objects needs no right to list them.
                    self._begin_again()
                    return
                if error.status in FINAL:
                    raise
            finally:
                self._lists.release()
            await deferLater(self._clock, backoff.pause())
        if follower.arrived is arrived:
            follower.arrived = None
            follower.show(WatchEvent(WatchEventType.SYNCED, None, version))

    async def _read_list(
        self, follower: _Follower, arrived: set[tuple[str, str]]
    ) -> str:
        """Report the objects of a list, and return its version."""
        version = ""
        pages = follower.client.metadata_pages(follower.resource, self._namespace)
        async with aclosing(pages):
            async for page in pages:
                version = page.resource_version
                for found, printed in zip(page.objects, page.printed, strict=True):
                    await follower.wait()
                    if follower.arrived is not arrived:
                        return version
                    if _key(found) not in arrived:
                        follower.show(_added(found, printed))
        return version

    def _stop_list(self, follower: _Follower) -> None:
        listing, follower.listing = follower.listing, None
        if listing is not None:
            # The follower may be handling an object of the list.
            self._clock.callLater(0, listing.cancel)

    def _list_failed(self, failure: Any, follower: _Follower) -> None:
        if not failure.check(CancelledError):
            if not failure.check(CallError):
                self._log.failure("a list for a follower failed", failure)
            self._end(follower, failure.value)


def _added(found: KubernetesShape, printed: PrintedObject) -> WatchEvent:
    return WatchEvent(WatchEventType.ADDED, found, printed=printed)


def _key(found: KubernetesShape) -> tuple[str, str]:
    return found.metadata.namespace, found.metadata.name
