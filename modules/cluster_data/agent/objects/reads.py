"""Responses to requests of readers, from the cache."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import Any, Final, Protocol

import attrs
from twisted.internet.defer import TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from modules.cluster_data.agent.objects.forms import Printer
from modules.cluster_data.agent.objects.packing import ObjectText, with_version
from modules.cluster_data.agent.objects.requests import (
    ObjectRequest,
    ReadRefused,
    is_discovery,
    read_request,
)
from modules.cluster_data.agent.objects.selection import Selection
from modules.cluster_data.agent.objects.store import KeptKey, ObjectChange, ObjectStore
from modules.cluster_data.wire import objects_pb2 as wire
from tunnel.api import Access, IKubernetes, KubernetesResource
from tunnel.errors import CallError, Status
from tunnel.kubernetes import ReviewedRights, Right, only_reads, status_object
from tunnel.toolkit.counts import one_less
from tunnel.toolkit.held_bytes import HeldBytes, TooManyBytes
from tunnel.toolkit.peer_turns import PeerTurns, TooManyTurns

__all__ = ["IObjectCache", "ObjectReads", "ReadMetrics"]

#: Bytes of one part of a response, which becomes one message.
PART: Final = 32 * 1024

#: Seconds for which a positive answer of the API server about a right counts: the
#: maximum age of the answer when a response begins, and the seconds for which a watch
#: continues after its right was revoked.
RIGHT_SECONDS: Final = 10.0

#: Seconds without a change after which the right of a watch is reviewed again.
IDLE_SECONDS: Final = 60.0

#: Seconds that a request waits until the objects of its kind have arrived.
LOAD_SECONDS: Final = 50.0

#: Seconds that a request waits for a version that the API server has and the cache not
#: yet, as long as the API server itself waits.
VERSION_SECONDS: Final = 3.0

#: Minimum and maximum seconds of a watch, as at the API server.
WATCH_SECONDS: Final = 1800.0
MAX_WATCH_SECONDS: Final = 3600.0

#: Lists that are written at the same time, of one user and of all users.  A list holds
#: references to all its objects until the client has read it, and clients may be slow.
MAX_OF_USER, MAX_AT_ONCE = 2, 32

#: Requests that agentk forwards at the same time, of one user and of all users: a
#: response may have 16 MiB.
MAX_FORWARDED_OF_USER, MAX_FORWARDED = 2, 4

#: Bytes of forwarded responses that clients have not read, of one user and of all
#: users.
MAX_HELD_OF_USER, MAX_HELD = 32 * 1024 * 1024, 64 * 1024 * 1024

#: Kinds that one user reads at the same time: half of the kinds of a cache.
MAX_KINDS_OF_USER: Final = 32

#: Lists and forwarded requests of one user that wait, and the seconds that each waits.
MAX_WAITING, WAIT_SECONDS = 100, 30.0

#: Open watches of one user, and of all users: each takes some 20 KiB.
MAX_WATCHES_OF_USER, MAX_WATCHES = 200, 2000

#: Maximum number of changes that a watch writes at once.
BATCH: Final = 100

_JSON: Final = "application/json"

#: HTTP status of an error of a call; 503 for others.
_CODES: Final = {
    Status.INVALID_ARGUMENT: 400,
    Status.PERMISSION_DENIED: 403,
    Status.NOT_FOUND: 404,
    Status.OUT_OF_RANGE: 410,
    Status.RESOURCE_EXHAUSTED: 503,
    Status.INTERNAL: 500,
    Status.DEADLINE_EXCEEDED: 504,
}


class IObjectCache(Protocol):
    """Part of the cache that readers use."""

    def hold(self, resource: KubernetesResource) -> ObjectStore:
        """
        Return the objects of a kind, which the cache reads from now on.

        :raises CallError: RESOURCE_EXHAUSTED if the cache has no room for them.
        """


@attrs.define
class ReadMetrics:
    """
    Counters of requests.

    :ivar results: number of responses by verb and HTTP status.
    :ivar watches: number of open watches by owner.
    """

    results: Counter[tuple[str, int]] = attrs.field(factory=Counter)
    watches: Counter[str] = attrs.field(factory=Counter)


class ObjectReads:
    """
    Implementation of `ClusterObjects`.

    :param cache: returns the cache; None while this agentk does not lead.
    :param now: returns the time in seconds since 1970.
    """

    def __init__(
        self,
        kubernetes: IKubernetes,
        cache: Callable[[], IObjectCache | None],
        clock: IReactorTime,
        now: Callable[[], float],
    ) -> None:
        self._kubernetes = kubernetes
        self._cache = cache
        self._clock = clock
        self._now = now
        self._rights = ReviewedRights(kubernetes, clock, allowed_seconds=RIGHT_SECONDS)
        self._turns = _turns(clock, MAX_OF_USER, MAX_AT_ONCE)
        self._forwarding = _turns(clock, MAX_FORWARDED_OF_USER, MAX_FORWARDED)
        self._held = HeldBytes(MAX_HELD_OF_USER, MAX_HELD)
        #: Number of requests in progress by kind, by owner.
        self._kinds: dict[str, Counter[KubernetesResource]] = {}
        self.metrics = ReadMetrics()

    def rights_changed(self) -> None:
        """Ask the API server again about the rights of readers."""
        self._rights.changed()

    async def read(
        self, request: wire.ReadRequest, call: Any
    ) -> AsyncGenerator[wire.ReadPart, None]:
        """
        Yield the response to a request.

        :raises CallError: PERMISSION_DENIED if the call has no user.
        """
        access: Access | None = call.access
        if access is None:
            raise CallError(Status.PERMISSION_DENIED, "the request has no user")
        verb, begun = "other", False
        try:
            if request.review or is_discovery(request.target):
                parts = self._forward(request, access)
            else:
                asked = read_request(request.target, request.accept)
                verb = asked.info.verb
                parts = self._answer(asked, request, access)
            async with aclosing(parts):
                async for part in parts:
                    if not begun:
                        begun = True
                        self.metrics.results[verb, part.head.status] += 1
                    yield part
        except ReadRefused as error:
            refused = error
        except (TooManyTurns, TooManyBytes) as error:
            refused = ReadRefused(429, f"too many requests: {error}")
        except CallError as error:
            refused = ReadRefused(_CODES.get(error.status, 503), error.message)
        else:
            return
        if begun:
            raise CallError(Status.UNAVAILABLE, str(refused))
        self.metrics.results[verb, refused.code] += 1
        yield _head(refused.code)
        yield wire.ReadPart(data=_status(refused))

    async def _forward(
        self, request: wire.ReadRequest, access: Access
    ) -> AsyncGenerator[wire.ReadPart, None]:
        """Ask the API server, with the rights of the caller."""
        method = "POST" if request.review else "GET"
        if not only_reads(method.encode(), request.target.encode()):
            raise ReadRefused(405, "the cache changes nothing")
        client = self._kubernetes.acting_for(access)
        async with self._forwarding.turn(access.owner):
            try:
                found = await client.request(
                    method,
                    request.target,
                    request.review,
                    content_type=request.content_type or _JSON,
                    accept=request.accept or _JSON,
                )
            except ValueError as error:
                raise ReadRefused(400, str(error)) from None
        # The turn has ended: a slow client must not stop the requests of others.
        with self._held.holder() as held:
            held.take(access.owner, len(found.body))
            yield _head(found.status, found.content_type or _JSON)
            for part in _data(found.body):
                yield part

    async def _answer(
        self, asked: ObjectRequest, request: wire.ReadRequest, access: Access
    ) -> AsyncGenerator[wire.ReadPart, None]:
        """Answer from the cache."""
        await self._check(asked, access)
        if asked.selection is None:
            # Only the API server knows this field.
            async with aclosing(self._forward(request, access)) as parts:
                async for part in parts:
                    yield part
            return
        cache = self._cache()
        if cache is None:
            raise ReadRefused(503, "the cache of this agentk is starting")
        resource = await self._resource(asked)
        selection = asked.selection
        if not resource.namespaced:
            selection = attrs.evolve(selection, namespace="")
        with self._kind_of_user(access.owner, resource):
            store = cache.hold(resource)
            async with aclosing(
                self._from_store(store, asked, selection, access)
            ) as parts:
                async for part in parts:
                    yield part

    async def _from_store(
        self,
        store: ObjectStore,
        asked: ObjectRequest,
        selection: Selection,
        access: Access,
    ) -> AsyncGenerator[wire.ReadPart, None]:
        """Answer from the objects of a kind."""
        with _reading(store, self._clock):
            await self._loaded(store, asked)
            # The right may have ended while the request waited.
            await self._check(asked, access)
            if asked.info.verb == "watch":
                parts = self._watch(store, asked, selection, access)
            elif asked.info.verb == "list":
                parts = self._list(store, asked, selection, access)
            else:
                parts = self._get(store, asked, selection)
            async with aclosing(parts):
                async for part in parts:
                    yield part

    @contextmanager
    def _kind_of_user(self, owner: str, resource: KubernetesResource) -> Iterator[None]:
        """
        Count a request of a user for a kind.

        :raises ReadRefused: the user already reads many other kinds.
        """
        kinds = self._kinds.setdefault(owner, Counter())
        if resource not in kinds and len(kinds) >= MAX_KINDS_OF_USER:
            raise ReadRefused(
                429, f"a user may read {MAX_KINDS_OF_USER} kinds at the same time"
            )
        kinds[resource] += 1
        try:
            yield
        finally:
            one_less(kinds, resource)
            if not kinds:
                self._kinds.pop(owner, None)

    async def _check(self, asked: ObjectRequest, access: Access) -> None:
        """
        Check that a user may do what a request asks for.

        :raises ReadRefused: the API server does not permit it.
        """
        info = asked.info
        right = Right(
            info.verb,
            info.resource,
            group=info.group,
            namespace=info.namespace,
            name=info.name,
        )
        # A denial of the cluster's owner names the rule.
        self._kubernetes.acting_for(access).check_right(**right._asdict())
        if await self._rights.may(access, right):
            return
        group = f".{info.group}" if info.group else ""
        name = f' "{info.name}"' if info.name else ""
        where = (
            f'in the namespace "{info.namespace}"'
            if info.namespace
            else "at the cluster scope"
        )
        raise ReadRefused(
            403,
            f"{info.resource}{group}{name} is forbidden: {access.who} cannot "
            f"{info.verb} it {where}",
        )

    async def _resource(self, asked: ObjectRequest) -> KubernetesResource:
        """
        Return the kind of a request.

        :raises ReadRefused: the API server has no such kind, or has no watch of it.
        """
        info = asked.info
        client = self._kubernetes.as_agentk()
        try:
            resource = await client.resource_named(asked.api_version, info.resource)
        except CallError as error:
            if error.status is Status.NOT_FOUND:
                raise _not_found() from None
            raise
        # The path of a Namespace contains its name twice for the API server: as the
        # name, and as the namespace of the right.  No other object without a namespace
        # is below a namespace: a right in this namespace must not permit to read it.
        is_namespace = info.parts == ("namespaces", info.namespace) and not info.group
        if info.namespace and not resource.namespaced and not is_namespace:
            raise _not_found()
        if info.verb == "get" and resource.namespaced and not info.namespace:
            raise _not_found()
        if not {"list", "watch"} <= resource.verbs:
            raise ReadRefused(
                405,
                f"the API server has no watch of {info.resource}, so the cache does "
                "not have them; use the ordinary endpoint, whose address is the same "
                "without '/cache'",
            )
        return resource

    async def _loaded(self, store: ObjectStore, asked: ObjectRequest) -> None:
        """
        Wait until the cache has the objects, and the version of the request.

        :raises ReadRefused: that does not happen in time.
        """

        def is_loaded() -> bool:
            if store.error is not None:
                raise store.error
            return bool(store.version)

        if not await self._until(store, is_loaded, LOAD_SECONDS):
            raise ReadRefused(
                503, f"the cache is still reading {asked.info.resource}; try again"
            )
        version = asked.version
        if not version or version == "0":
            return
        is_known = await self._until(
            store, lambda: not store.is_ahead(version), VERSION_SECONDS
        )
        if not is_known:
            raise ReadRefused(
                504,
                f"Too large resource version: {version}, current: {store.version}",
                "Timeout",
            )
        if asked.is_exact and version != store.version:
            raise _expired(version)

    async def _until(
        self, store: ObjectStore, condition: Callable[[], bool], seconds: float
    ) -> bool:
        """Wait for changes of a store until a condition holds, and return whether."""
        end = self._clock.seconds() + seconds
        while not condition():
            left = end - self._clock.seconds()
            if left <= 0 or not await self._change_within(store, left):
                return condition()
        return True

    async def _change_within(self, store: ObjectStore, seconds: float) -> bool:
        """Wait for a change of a store; return False without one."""
        try:
            await store.changed().addTimeout(seconds, self._clock)
        except TimeoutError:
            return False
        return True

    # Responses.

    async def _get(
        self, store: ObjectStore, asked: ObjectRequest, selection: Selection
    ) -> AsyncGenerator[wire.ReadPart, None]:
        kept = store.get(KeptKey(selection.namespace, selection.name))
        if kept is None:
            info = asked.info
            group = f".{info.group}" if info.group else ""
            raise ReadRefused(404, f'{info.resource}{group} "{info.name}" not found')
        printer = Printer(store, asked.form, asked.include, self._now())
        yield _head(200)
        for part in _data(printer.one(store.text(kept), kept.version) + b"\n"):
            yield part

    async def _list(
        self,
        store: ObjectStore,
        asked: ObjectRequest,
        selection: Selection,
        access: Access,
    ) -> AsyncGenerator[wire.ReadPart, None]:
        async with self._turns.turn(access.owner):
            await self._check(asked, access)
            printer = Printer(store, asked.form, asked.include, self._now())
            yield _head(200)
            text = printer.begin(store.version)
            separator = b""
            for found, _ in self._selected(store, selection):
                text += separator + printer.item(found)
                separator = b","
                if len(text) >= PART:
                    for part in _data(text):
                        yield part
                    text = b""
                    await self._pause()
            for part in _data(text + printer.end()):
                yield part

    def _selected(
        self, store: ObjectStore, selection: Selection
    ) -> Iterator[tuple[ObjectText, str]]:
        """
        Return the selected objects of this moment, with their versions.

        Objects that change while the caller iterates keep their state.
        """
        kept = store.select(selection.namespace, selection.name)
        for key, one in kept:
            if selection.has_key(key):
                text = store.text(one)
                if selection.has_labels(text.text):
                    yield text, one.version

    async def _watch(
        self,
        store: ObjectStore,
        asked: ObjectRequest,
        selection: Selection,
        access: Access,
    ) -> AsyncGenerator[wire.ReadPart, None]:
        watches = self.metrics.watches
        of_user = watches[access.owner]
        if of_user >= MAX_WATCHES_OF_USER or watches.total() >= MAX_WATCHES:
            raise ReadRefused(
                429,
                f"at most {MAX_WATCHES_OF_USER} watches of a user and {MAX_WATCHES} of "
                "all users are open at the same time",
            )
        watches[access.owner] += 1
        try:
            watch = _Watch(
                store,
                asked,
                selection,
                Printer(store, asked.form, asked.include, self._now()),
                self._clock,
                lambda: self._check(asked, access),
            )
            yield _head(200)
            if watch.begins_with_objects:
                async with self._turns.turn(access.owner):
                    try:
                        await self._check(asked, access)
                    except ReadRefused as error:
                        for part in _data(_error(error)):
                            yield part
                        return
                    version, watch.position = store.version, store.position
                    text = b""
                    for found, at in self._selected(store, selection):
                        text += watch.printer.event("ADDED", found, at)
                        if len(text) >= PART:
                            for part in _data(text):
                                yield part
                            text = b""
                            await self._pause()
                    if asked.initial_events:
                        text += watch.printer.bookmark(version, is_end=True)
                    for part in _data(text):
                        yield part
            async with aclosing(watch.texts(self._now)) as texts:
                async for text in texts:
                    for part in _data(text):
                        yield part
        finally:
            one_less(watches, access.owner)

    async def _pause(self) -> None:
        """Let other work run."""
        await deferLater(self._clock, 0)


class _Watch:
    """
    An open watch.

    :param check: reviews the right of the user again.
    """

    def __init__(
        self,
        store: ObjectStore,
        asked: ObjectRequest,
        selection: Selection,
        printer: Printer,
        clock: IReactorTime,
        check: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._asked = asked
        self._selection = selection
        self.printer = printer
        self._clock = clock
        self._check = check
        seconds = min(asked.seconds or WATCH_SECONDS, MAX_WATCH_SECONDS)
        self._end = clock.seconds() + seconds
        self._checked_at = clock.seconds()
        self._bookmark = store.bookmark
        version = asked.version
        if asked.initial_events is None:
            self.begins_with_objects = version in ("", "0")
        else:
            self.begins_with_objects = asked.initial_events
        #: Number of the next change; None if it is forgotten.
        self.position = (
            store.position if version in ("", "0") else store.position_at(version)
        )

    async def texts(self, now: Callable[[], float]) -> AsyncGenerator[bytes, None]:
        """Yield lines, some at once, until the watch ends."""
        while True:
            store = self._store
            position = self.position
            changes = None if position is None else store.since(position, BATCH)
            if store.ended or changes is None:
                yield _error(_expired(self._asked.version))
                return
            if store.error is not None:
                yield _error(ReadRefused(503, store.error.message))
                return
            assert position is not None
            left = self._end - self._clock.seconds()
            if left <= 0:
                return
            has_bookmark = not changes and self._bookmark != store.bookmark
            due = self._checked_at + IDLE_SECONDS - self._clock.seconds()
            if not changes and not has_bookmark and due > 0:
                await self._wait(min(left, due))
                continue
            text = b""
            for change in changes:
                # The reader may be slow; what it gets next is decided then.
                position += 1
                text += self._line(change, now())
                if len(text) >= PART:
                    break
            if has_bookmark:
                self._bookmark = store.bookmark
                if self._asked.bookmarks:
                    text += self.printer.bookmark(store.bookmark)
            self.position = position
            if not text and due > 0:
                continue
            # Nothing is sent without a recent review, and an idle watch ends, too.
            try:
                await self._check()
            except ReadRefused as error:
                yield _error(error)
                return
            self._checked_at = self._clock.seconds()
            if text:
                yield text

    async def _wait(self, seconds: float) -> None:
        """Wait for a change."""
        with suppress(TimeoutError):
            await self._store.changed().addTimeout(seconds, self._clock)

    def _line(self, change: ObjectChange, now: float) -> bytes:
        """Return the line of a change; empty if it is not selected."""
        self.printer.now = now
        store, selection = self._store, self._selection
        if not selection.has_key(change.key):
            return b""
        before = None if change.before is None else store.text(change.before)
        after = None if change.after is None else store.text(change.after)
        was = before is not None and selection.has_labels(before.text)
        if after is not None and selection.has_labels(after.text):
            kind = "MODIFIED" if was else "ADDED"
            return self.printer.event(kind, after, change.version)
        if not was:
            return b""
        # An object that is not selected any more is deleted for this reader.  As at the
        # API server, the event has its previous state and the new version.
        found = before if change.last is None else store.text(change.last)
        assert found is not None
        return self.printer.event(
            "DELETED", with_version(found, change.version), change.version
        )


@contextmanager
def _reading(store: ObjectStore, clock: IReactorTime) -> Iterator[None]:
    """Count a request among the readers of a store."""
    store.readers += 1
    try:
        yield
    finally:
        store.readers -= 1
        store.used_at = clock.seconds()


def _not_found() -> ReadRefused:
    # The words of the API server.
    return ReadRefused(404, "the server could not find the requested resource")


def _expired(version: str) -> ReadRefused:
    return ReadRefused(410, f"too old resource version: {version}", "Expired")


def _status(error: ReadRefused) -> bytes:
    found = status_object(error.code, str(error), error.reason)
    if error.code == 504:
        # Clients recognize the cause, and begin at any version then.
        causes = [{"reason": "ResourceVersionTooLarge", "message": str(error)}]
        found["details"] = {"causes": causes, "retryAfterSeconds": 1}
    return json.dumps(found).encode() + b"\n"


def _error(error: ReadRefused) -> bytes:
    return b'{"type":"ERROR","object":%b}\n' % _status(error).strip()


def _head(status: int, content_type: str = _JSON) -> wire.ReadPart:
    return wire.ReadPart(head=wire.ReadHead(status=status, content_type=content_type))


def _data(data: bytes) -> Iterator[wire.ReadPart]:
    """Yield parts of limited size: an object may have megabytes."""
    for start in range(0, len(data), PART):
        yield wire.ReadPart(data=data[start : start + PART])


def _turns(clock: IReactorTime, of_user: int, of_all: int) -> PeerTurns[str]:
    return PeerTurns(
        clock,
        of_peer=of_user,
        of_all=of_all,
        most_waiting=MAX_WAITING,
        seconds=WAIT_SECONDS,
    )
