"""The fake of modules' stores is one: it does what the real ones do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import pytest_twisted
from twisted.internet.task import Clock

from tests.tunnel.hosting import store_conformance as conformance
from tests.tunnel.hosting.store_conformance import LIMITS, RESET, Stand, reader
from tunnel.api import IStore, IStores
from tunnel.errors import Status
from tunnel.hosting.stores import DEFAULT_LIMITS, NamespaceStore, Stores
from tunnel.testing import FakeStore


class FakeStand(Stand):
    def __init__(self) -> None:
        self.clock = Clock()
        self.backend = FakeStore(self.clock, LIMITS)
        self.stores = Stores(lambda: self.backend, self.clock, LIMITS)
        self.store = self.stores.open("mod", "one")

    async def passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def settled(self) -> None:
        pass

    async def again(self, namespace: str, owner: str = "mod") -> NamespaceStore:
        return self.stores.open(owner, namespace)


@pytest.mark.parametrize("check", conformance.ALL, ids=lambda one: one.__name__)
@pytest_twisted.ensureDeferred
async def test_conformance(check: Callable[[Stand], Awaitable[None]]) -> None:
    await check(FakeStand())


@pytest_twisted.ensureDeferred
async def test_down() -> None:
    """It fails, and afterwards watches are told that they may have missed something."""
    stand = FakeStand()
    await stand.store.set("k", b"1")
    async with reader(stand.store) as read:
        read.take()
        stand.backend.down = True
        assert await conformance.refused(stand.store.get("k")) == Status.UNAVAILABLE
        async with reader(stand.store) as later:
            assert later.take() == []
            stand.backend.down = False
            assert read.take() == later.take() == [(RESET, "")]
    found = await stand.store.get("k")
    assert found is not None and found.value == b"1"


@pytest_twisted.ensureDeferred
async def test_lose() -> None:
    """Everything is gone, and watches are told."""
    stand = FakeStand()
    before = await stand.store.set("k", b"1")
    async with reader(stand.store) as read:
        read.take()
        stand.clock.advance(1)
        stand.backend.lose()
        assert read.take() == [(RESET, "")]
    assert await stand.store.get("k") is None
    assert await stand.store.set("k", b"1", version=0) > before


@pytest_twisted.ensureDeferred
async def test_a_module_stops() -> None:
    """Its watches end, and so do its timers; it may still save something."""
    stand = FakeStand()
    await stand.store.set("k", b"1", expires_after=5)
    async with reader(stand.store) as read:
        stand.stores.release("mod")
        assert read.ended
    assert not stand.clock.getDelayedCalls()
    assert [one async for one in stand.store.watch()] == []
    await stand.store.set("last", b"words")
    again = stand.stores.open("mod", "one")
    assert again is not stand.store
    found = await again.get("last")
    assert found is not None and found.value == b"words"


def test_figures() -> None:
    """The interface says what the limits are."""
    text = IStore.getDoc() + "".join(IStore[name].getDoc() for name in IStore.names())
    assert f"1 to {DEFAULT_LIMITS.key} bytes" in text
    assert f"at most {DEFAULT_LIMITS.value // 1024} KiB" in text
    assert f"{DEFAULT_LIMITS.keys:,} keys" in text
    assert f"{DEFAULT_LIMITS.bytes // 2**20} MiB" in text
    assert f"at most {DEFAULT_LIMITS.page}" in text
    assert f"{DEFAULT_LIMITS.events} events" in text
    assert f"has {DEFAULT_LIMITS.watches} watches" in text
    assert DEFAULT_LIMITS.expiry == 10 * 365 * 86400
    opening = IStores["open"].getDoc()
    assert f"at most {DEFAULT_LIMITS.namespaces}" in opening


def test_namespaces() -> None:
    """Names are short, and there are few for each module."""
    stand = FakeStand()
    assert stand.stores.open("mod", "one") is stand.store
    for name in ("", "A", "a/b", "-a", "a" * 64, "a\n", "ä"):
        with pytest.raises(ValueError, match="not a namespace"):
            stand.stores.open("mod", name)
    for number in range(31):
        stand.stores.open("mod", f"n{number}")
    with pytest.raises(
        ValueError, match="module mod has reached its limit of 32 namespaces"
    ):
        stand.stores.open("mod", "more")
    stand.stores.open("mod2", "more")
