"""What every place for modules' stores has to do: the same tests for each."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import attrs
from twisted.internet.defer import Deferred

from tunnel.api import StoreEvent, StoreEventType
from tunnel.errors import CallError, Status
from tunnel.hosting.stores import NamespaceStore, StoreLimits

#: Small, so that they can be reached.
LIMITS = StoreLimits(keys=20, bytes=100_000, events=5, watches=3, pending=4)

RESET = StoreEventType.RESET


class Stand:
    """A place to test, and the time there."""

    store: NamespaceStore

    async def passes(self, seconds: float) -> None:
        """Let time pass, and happen what has to."""
        raise NotImplementedError

    async def settled(self) -> None:
        """Let every event arrive."""
        raise NotImplementedError

    async def again(self, namespace: str, owner: str = "mod") -> NamespaceStore:
        """A store of another module, or another namespace."""
        raise NotImplementedError


async def refused(work: Coroutine[Any, Any, Any]) -> Status:
    """The status that *work* fails with."""
    try:
        result = await work
    except CallError as error:
        return error.status
    raise AssertionError(f"it worked: {result}")


@attrs.define
class Reader:
    """A watch that is read, and what came."""

    events: list[StoreEvent] = attrs.Factory(list)
    reading: Deferred[None] | None = None
    ended: bool = False

    def take(self) -> list[tuple[StoreEventType, str]]:
        taken = [(one.type, one.key) for one in self.events]
        self.events.clear()
        return taken

    async def _read(self, store: NamespaceStore, prefix: str) -> None:
        async with contextlib.aclosing(store.watch(prefix)) as watch:
            async for event in watch:
                self.events.append(event)
        self.ended = True


@contextlib.asynccontextmanager
async def reader(store: NamespaceStore, prefix: str = "") -> AsyncIterator[Reader]:
    """Read changes meanwhile."""
    made = Reader()
    made.reading = Deferred.fromCoroutine(made._read(store, prefix))
    try:
        yield made
    finally:
        made.reading.addErrback(lambda failure: None)
        made.reading.cancel()


async def all_keys(store: NamespaceStore, prefix: str = "", limit: int = 500) -> Any:
    return [page async for page in store.keys(prefix, limit=limit)]


# Each takes a stand whose store is empty.


async def keeps_values(stand: Stand) -> None:
    """Whatever bytes, at whatever text."""
    store = stand.store
    assert await store.get("a") is None
    for key in ("a", "ä/☃/\U0001f600", "a b%_[*]", "x" * 256):
        for value in (b"x" * 65536, b"\x00\xff\r\n:", b"12:34:x", b""):
            version = await store.set(key, value)
            found = await store.get(key)
            assert found is not None
            assert (found.value, found.version) == (value, version)
            assert "x" * 10 not in repr(found)
    assert await store.delete("a") is True
    assert await store.delete("a") is False
    assert await store.get("a") is None


async def compares_and_sets(stand: Stand) -> None:
    """Only who knows the last version changes a key."""
    store = stand.store
    first = await store.set("k", b"1", version=0)
    assert await refused(store.set("k", b"x", version=0)) == Status.ABORTED
    second = await store.set("k", b"2", version=first)
    assert second > first
    assert await refused(store.set("k", b"x", version=first)) == Status.ABORTED
    assert await refused(store.set("none", b"x", version=first)) == Status.ABORTED
    assert await refused(store.delete("k", version=first)) == Status.ABORTED
    found = await store.get("k")
    assert found is not None and found.value == b"2"
    assert await store.delete("k", version=second) is True
    assert await store.delete("k", version=second) is False
    # Made again it is another one.
    third = await store.set("k", b"3", version=0)
    assert third > second
    assert await refused(store.set("k", b"x", version=second)) == Status.ABORTED


async def lists_by_prefix(stand: Stand) -> None:
    """Sorted, page by page, and nothing of the neighbours."""
    store = stand.store
    names = ["a/1", "a/10", "a/2", "a", "a0", "b/1", "B", "ä/1", "\U0001f600", "￿"]
    for name in names:
        await store.set(name, b"")
    assert await all_keys(store) == [sorted(names)]
    assert await all_keys(store, "a/") == [["a/1", "a/10", "a/2"]]
    assert await all_keys(store, "a/", 2) == [["a/1", "a/10"], ["a/2"]]
    assert await all_keys(store, "", 5) == [sorted(names)[:5], sorted(names)[5:]]
    assert await all_keys(store, "ä") == [["ä/1"]]
    assert await all_keys(store, "c") == []
    for limit in (0, 1001):
        status = await refused(all_keys(store, "", limit))
        assert status == Status.INVALID_ARGUMENT


async def refuses_what_cannot_be(stand: Stand) -> None:
    """Keys, values, versions and times."""
    store = stand.store
    for key in ("", "x" * 257, "ä" * 129, "a\nb", "a\x00", "\x7f", "\ud800"):
        assert await refused(store.get(key)) == Status.INVALID_ARGUMENT
        assert await refused(store.set(key, b"")) == Status.INVALID_ARGUMENT
        assert await refused(store.delete(key)) == Status.INVALID_ARGUMENT
    text: Any = "text"
    assert await refused(store.set("k", text)) == Status.INVALID_ARGUMENT
    assert await refused(store.set("k", b"", version=-1)) == Status.INVALID_ARGUMENT
    for seconds in (0.0, -1.0, float("inf"), float("nan"), 11 * 365 * 86400.0):
        setting = store.set("k", b"", expires_after=seconds)
        assert await refused(setting) == Status.INVALID_ARGUMENT
    assert await refused(store.set("k", b"x" * 65537)) == Status.RESOURCE_EXHAUSTED
    assert await store.get("k") is None


async def has_room_for_so_much(stand: Stand) -> None:
    """Keys and bytes are limited; what goes makes room."""
    store = stand.store
    for number in range(20):
        await store.set(f"{number:02}", b"x")
    assert await refused(store.set("20", b"")) == Status.RESOURCE_EXHAUSTED
    await store.set("00", b"y")
    await store.delete("01")
    await store.set("20", b"")
    await store.delete("20")
    # 19 keys of 2 bytes with a value of 1 byte, and what 00 may have then
    await store.set("00", b"x" * 40_000)
    await store.set("02", b"x" * (60_000 - 19 * 3 + 2))
    setting = store.set("03", b"xx")
    assert await refused(setting) == Status.RESOURCE_EXHAUSTED
    await store.set("03", b"y")
    await store.set("00", b"")
    await store.set("03", b"xx")


async def forgets_in_time(stand: Stand) -> None:
    """What expires is gone for everyone, and makes room; watches are told."""
    store = stand.store
    await store.set("short", b"x" * 60_000, expires_after=5)
    await store.set("renewed", b"x", expires_after=5)
    await store.set("kept", b"x", expires_after=5)
    async with reader(store) as read:
        await stand.settled()
        read.take()
        await stand.passes(4)
        assert await store.get("short") is not None
        await store.set("renewed", b"x", expires_after=5)
        await store.set("kept", b"y")
        await stand.settled()
        read.take()
        await stand.passes(2)
        assert await store.get("short") is None
        assert await all_keys(store) == [["kept", "renewed"]]
        assert read.take() == [(StoreEventType.DELETED, "short")]
        await store.set("other", b"x" * 60_000)
        await store.set("short", b"", version=0)
        assert await store.delete("short") is True
        await stand.settled()
        read.take()
        await stand.passes(10)
        assert read.take() == [(StoreEventType.DELETED, "renewed")]
        assert await all_keys(store) == [["kept", "other"]]


async def tells_of_changes(stand: Stand) -> None:
    """Each one, to those who asked for it, after a RESET."""
    store = stand.store
    async with reader(store) as every, reader(store, "a/") as some:
        await stand.settled()
        assert every.take() == some.take() == [(RESET, "")]
        version = await store.set("a/1", b"")
        await store.set("b/1", b"")
        await store.delete("a/1")
        await store.delete("a/1")
        await refused(store.set("b/1", b"", version=0))
        await stand.settled()
        assert [one.version for one in some.events][:1] == [version]
        changed, gone = StoreEventType.SET, StoreEventType.DELETED
        assert some.take() == [(changed, "a/1"), (gone, "a/1")]
        assert every.take() == [(changed, "a/1"), (changed, "b/1"), (gone, "a/1")]


async def bounds_its_watches(stand: Stand) -> None:
    """How many there are, and what waits for one that is not read."""
    store = stand.store
    async with contextlib.AsyncExitStack() as stack:
        slow = await stack.enter_async_context(contextlib.aclosing(store.watch()))
        assert (await anext(slow)).type == RESET
        for _ in range(2):
            await stack.enter_async_context(reader(store))
        one_more = store.watch()
        status = await refused(anext(one_more))
        assert status == Status.RESOURCE_EXHAUSTED
        for number in range(5):
            await store.set("k", b"%d" % number)
        await stand.settled()
        assert (await anext(slow)).key == "k"
        for number in range(2):
            await store.set("k", b"%d" % number)
        await stand.settled()
        assert (await anext(slow)).type == RESET
        await store.set("last", b"")
        await stand.settled()
        assert (await anext(slow)).key == "last"
    async with reader(store) as read:
        await stand.settled()
        assert read.take() == [(RESET, "")]


async def is_of_one_module(stand: Stand) -> None:
    """Other modules and other namespaces see and hear nothing of it."""
    other, theirs = await stand.again("two"), await stand.again("one", "other")
    async with reader(other) as read, reader(theirs) as their_read:
        await stand.settled()
        read.take(), their_read.take()
        await stand.store.set("k", b"ours")
        await stand.settled()
        for store in (other, theirs):
            assert await store.get("k") is None
            assert await all_keys(store) == []
        assert read.take() == their_read.take() == []


async def lets_few_wait(stand: Stand) -> None:
    """So many at a time; those that are cancelled are done all the same."""
    store = stand.store
    working = [
        Deferred.fromCoroutine(store.set(f"{number}", b"")) for number in range(4)
    ]
    if not all(one.called for one in working):
        status = await refused(store.set("4", b""))
        assert status == Status.RESOURCE_EXHAUSTED
    for one in working:
        one.addErrback(lambda failure: None)
        one.cancel()
    while store._pending:
        await stand.settled()
    assert await all_keys(store) == [["0", "1", "2", "3"]]


ALL = [
    keeps_values,
    compares_and_sets,
    lists_by_prefix,
    refuses_what_cannot_be,
    has_room_for_so_much,
    forgets_in_time,
    tells_of_changes,
    bounds_its_watches,
    is_of_one_module,
    lets_few_wait,
]
