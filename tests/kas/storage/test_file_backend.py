"""Stores in a file: the conformance tests, damage, and kas that die."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import Clock, deferLater

from kas.state.directory import StateDirectory
from kas.storage.file_backend import FILE, FileBackend, lock_file
from tests.tunnel.hosting import store_conformance as conformance
from tests.tunnel.hosting.store_conformance import LIMITS, Stand, reader, refused
from tunnel.api import StoredValue
from tunnel.errors import CallError, Status
from tunnel.hosting.stores import NamespaceStore, Stores

reactor: Any = _reactor

#: The time of day at the beginning.
NOW = 1_800_000_000.0


class FileStand(Stand):
    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.state = StateDirectory.open(folder)
        self.stores = Stores(self._backend, self.clock, LIMITS)
        self.store = self.stores.open("mod", "one")

    def _backend(self) -> FileBackend:
        now = lambda: NOW + self.clock.seconds()  # noqa: E731
        return FileBackend(self.state, reactor, now, LIMITS)

    async def passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.settled()

    async def settled(self) -> None:
        await deferLater(reactor, 0)
        # One at a time: what was asked before is done.
        with contextlib.suppress(CallError):
            await self.store._backend.get("mod/one", "k")

    async def again(self, namespace: str, owner: str = "mod") -> NamespaceStore:
        return self.stores.open(owner, namespace)


@contextlib.asynccontextmanager
async def stand(folder: Path, clock: Clock | None = None) -> AsyncIterator[FileStand]:
    made = FileStand(folder, clock)
    try:
        yield made
    finally:
        await made.stores.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    return path


@pytest.mark.parametrize("check", conformance.ALL, ids=lambda one: one.__name__)
@pytest_twisted.ensureDeferred
async def test_conformance(
    check: Callable[[Stand], Awaitable[None]], folder: Path
) -> None:
    async with stand(folder) as one:
        await check(one)


@pytest_twisted.ensureDeferred
async def test_keeps_it(folder: Path) -> None:
    """Another kas has it, expiry and all; only its user can read the file."""
    clock = Clock()
    async with stand(folder, clock) as one:
        version = await one.store.set("k", b"1")
        await one.store.set("short", b"1", expires_after=5)
    assert (folder / FILE).stat().st_mode & 0o777 == 0o600
    clock.advance(10)
    async with stand(folder, clock) as one:
        found = await one.store.get("k")
        assert found is not None and (found.value, found.version) == (b"1", version)
        assert await conformance.all_keys(one.store) == [["k"]]
        async with reader(one.store):
            await one.settled()
            assert await one.store.set("k", b"2", version=version) > version
    # A copy that sqlite3 makes is whole, too.
    with contextlib.closing(sqlite3.connect(folder / FILE)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest_twisted.ensureDeferred
async def test_one_kas_at_a_time(folder: Path) -> None:
    """A second one says why it stores nothing, and does once the first is gone."""
    async with stand(folder) as first:
        await first.store.set("k", b"1")
        async with stand(folder) as second:
            with pytest.raises(CallError, match="another kas uses it"):
                await second.store.get("k")
            await first.stores.stop()
            assert await refused(first.store.get("k")) == Status.UNAVAILABLE
            found = await second.store.get("k")
            assert found is not None and found.value == b"1"


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _scribble(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(4096))


def _replace(path: Path) -> None:
    path.write_bytes(b"not at all a database " * 100)


def _foreign(path: Path) -> None:
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE theirs (x)")


@pytest.mark.parametrize("damage", [_cut, _empty, _scribble, _replace, _foreign])
@pytest_twisted.ensureDeferred
async def test_damage(damage: Callable[[Path], None], folder: Path) -> None:
    """It is named, and nothing that may be left is touched."""
    async with stand(folder) as one:
        for number in range(20):
            await one.store.set(f"{number}", b"x" * 1000)
    damage(folder / FILE)
    left = (folder / FILE).read_bytes()
    async with stand(folder) as one:
        for work in (one.store.get("1"), one.store.set("1", b"y")):
            with pytest.raises(CallError, match=FILE) as caught:
                await work
            assert caught.value.status == Status.DATA_LOSS
    assert (folder / FILE).read_bytes() == left


@pytest_twisted.ensureDeferred
async def test_a_newer_format(folder: Path) -> None:
    """It is left alone."""
    async with stand(folder) as one:
        await one.store.set("k", b"1")
    with contextlib.closing(sqlite3.connect(folder / FILE)) as database:
        database.execute("PRAGMA user_version = 9")
    async with stand(folder) as one:
        with pytest.raises(CallError, match="it has format 9"):
            await one.store.get("k")


@pytest_twisted.ensureDeferred
async def test_a_full_disk(folder: Path) -> None:
    """What does not fit was not done, and what does not need more works on."""
    async with stand(folder) as one:
        await one.store.set("k", b"1")
        backend: Any = one.store._backend
        pages = backend._database.execute("PRAGMA page_count").fetchone()[0]
        backend._database.execute(f"PRAGMA max_page_count = {pages}")
        status = await refused(one.store.set("big", b"x" * 60_000))
        assert status == Status.UNAVAILABLE
        found = await one.store.get("k")
        assert found is not None and found.value == b"1"
        backend._database.execute("PRAGMA max_page_count = 10000")
        await one.store.set("big", b"x" * 60_000)


_WRITER = """
import sys, time
from pathlib import Path
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from kas.state.directory import StateDirectory
from kas.storage.file_backend import FileBackend
from tunnel.hosting.stores import Stores

async def write():
    state = StateDirectory.open(Path(sys.argv[1]))
    stores = Stores(lambda: FileBackend(state, reactor, time.time), reactor)
    store = stores.open("mod", "one")
    found = await store.get("k")
    version = found.version if found else 0
    number = int(found.value[:8]) if found else 0
    while True:
        number += 1
        version = await store.set("k", b"%08d" % number * 4000, version=version)
        print(number, flush=True)

writing = Deferred.fromCoroutine(write())
writing.addErrback(lambda failure: (print(failure, flush=True), reactor.stop()))
reactor.run()
"""


def test_killed_in_the_middle(folder: Path) -> None:
    """Whatever a kas that is killed has said to be stored is there, whole."""
    chance = random.Random(7)
    last = 0
    for _ in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(folder)], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        said = [int(writer.stdout.readline())]
        assert said[0] in (last + 1, last + 2)
        for _ in range(chance.randrange(20)):
            said.append(int(writer.stdout.readline()))
        # At any moment of the next one.
        with contextlib.suppress(subprocess.TimeoutExpired):
            writer.wait(chance.random() / 50)
        writer.send_signal(signal.SIGKILL)
        rest = writer.communicate()[0].split()
        last = int(rest[-1]) if rest else said[-1]
    with contextlib.closing(sqlite3.connect(folder / FILE)) as database:
        (value,) = database.execute("SELECT value FROM entries").fetchone()
    assert int(value[:8]) in (last, last + 1)
    assert value == value[:8] * 4000


@pytest_twisted.ensureDeferred
async def test_workers_share_it(folder: Path) -> None:
    """Each sees what the others wrote; another kas has to stay away."""
    state = StateDirectory.open(folder)
    clock = Clock()
    told: list[tuple[int, str, str]] = []
    lock = lock_file(state)
    workers = [
        Stores(
            lambda number=number: FileBackend(  # type: ignore[misc]
                state,
                reactor,
                lambda: NOW + clock.seconds(),
                LIMITS,
                lambda name, event: told.append((number, name, event.key)),
            ),
            clock,
            LIMITS,
        )
        for number in range(2)
    ]
    one, two = (each.open("mod", "one") for each in workers)
    first = await one.set("k", b"1")
    assert await two.get("k") == StoredValue(b"1", first)
    for number in range(20):
        # Both at once: SQLite has one of them wait.
        await gatherResults(
            Deferred.fromCoroutine(store.set(key, b"%d" % number))
            for key, store in (("a", one), ("b", two))
        )
    assert [len(page) async for page in one.keys()] == [3]
    with pytest.raises(CallError, match="has changed: its version is"):
        await two.set("k", b"2", version=first + 1)
    assert told[0] == (0, "mod/one", "k")
    assert len(told) == 41
    async with stand(folder) as other:
        with pytest.raises(CallError, match="another kas uses it"):
            await other.store.get("k")
    for each in workers:
        await each.stop()
    os.close(lock)
