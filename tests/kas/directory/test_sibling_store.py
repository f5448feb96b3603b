"""Directories of workers, which tell each other what changes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from kas.directory import sibling_store
from kas.directory.directory import Directory
from kas.directory.records import KasRecord
from kas.directory.sibling_store import (
    BATCH_SECONDS,
    MAX_PENDING,
    MAX_USES,
    RETRY_MOST,
    STATE_INTERVAL,
    SiblingStore,
)
from kas.directory.store import StoreDown
from kas.pb import directory_pb2 as pb
from tests.kas.directory.memory import kas, record
from tests.kas.directory.several import now
from tunnel.api import StoreEvent, StoreEventType
from tunnel.errors import CallError, Status
from tunnel.program.runtime import Runtime


@attrs.define(eq=False)
class Worker:
    """One worker, and what it has."""

    me: KasRecord
    store: SiblingStore
    directory: Directory
    #: Calls to it fail.
    dead: bool = False
    #: Or have no answer yet.
    hangs: bool = False
    watches: list[Deferred[None]] = attrs.Factory(list)


class Workers:
    """Some workers of one kas; `find_all_at` and `watch_at` are what RPC does."""

    def __init__(self, count: int) -> None:
        self.clock = Clock()
        self.all: dict[str, Worker] = {}
        self.finds: list[str] = []
        urls = [kas(number).url for number in range(1, count + 1)]
        for number in range(1, count + 1):
            self.begin(number, urls)

    def begin(self, number: int, urls: list[str], process: int = 0) -> Worker:
        """Begin a worker, as *process* of its number."""
        me = attrs.evolve(kas(number), kas_id=bytes([number + process]) * 16)
        others = [url for url in urls if url != me.url]
        runtime = Runtime(reactor=self.clock, random=lambda: 0.5, now=lambda: 1000.0)
        store = SiblingStore(me, others, self, runtime)
        directory = Directory(me, store, runtime)
        made = self.all[me.url] = Worker(me, store, directory)
        now(directory.start())
        return made

    def __getitem__(self, number: int) -> Worker:
        return self.all[kas(number).url]

    def settle(self, seconds: float = RETRY_MOST) -> None:
        """Let time pass."""
        for _ in range(round(seconds / BATCH_SECONDS) + 1):
            self.clock.advance(BATCH_SECONDS)

    def kill(self, number: int) -> None:
        """What SIGKILL does."""
        worker = self[number]
        worker.dead = True
        watches, worker.watches = worker.watches, []
        for one in watches:
            one.errback(CallError(Status.UNAVAILABLE, "gone"))
        now(worker.directory.stop())

    # SiblingCalls

    async def find_all_at(
        self, url: str, request: pb.FindRequest
    ) -> list[pb.AgentRecord]:
        worker = self.all[url]
        self.finds.append(url)
        if worker.dead:
            raise CallError(Status.UNAVAILABLE, "gone")
        if worker.hangs:
            await Deferred()
        return [
            one.to_message()
            for one in worker.directory.own()
            if request.agent_id in ("", one.agent.agent_id)
        ]

    async def watch_at(self, url: str) -> AsyncGenerator[pb.WatchResponse, None]:
        worker = self.all.get(url)
        if worker is None or worker.dead:
            raise CallError(Status.UNAVAILABLE, "gone")
        changes = worker.store.changes()
        while True:
            end: Deferred[Any] = Deferred()
            worker.watches.append(end)
            change = Deferred.fromCoroutine(_next(changes))
            # Unless the worker died meanwhile.
            change.addCallbacks(
                lambda message, end=end: end.called or end.callback(message),
                lambda failure, end=end: end.called or end.errback(failure),
            )
            message = await end
            worker.watches.remove(end)
            yield pb.WatchResponse.FromString(message.SerializeToString())


async def _next(changes: AsyncGenerator[pb.WatchResponse, None]) -> pb.WatchResponse:
    return await anext(changes)


class SiblingStoreTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.workers = Workers(3)
        self.workers.settle()
        self.one, self.two, self.three = (self.workers[n] for n in (1, 2, 3))

    def test_an_agent_that_connects_is_known_to_all(self) -> None:
        woken: list[int] = []
        self.one.directory.wait("a", lambda: woken.append(1))
        self.workers.settle()
        found = record("a", at=2)
        self.two.directory.connected(found)
        self.workers.settle(BATCH_SECONDS)
        self.assertEqual(woken, [1])
        self.assertEqual(list(self.one.directory.routes("a")), [found])
        self.two.directory.disconnected(found)
        self.workers.settle(BATCH_SECONDS)
        self.assertEqual(list(self.one.directory.routes("a")), [])
        self.assertEqual(now(self.one.store.last_seen(["a", "b"])), {"a": 1000.0})

    def test_an_agent_that_was_there_is_looked_up_once(self) -> None:
        found = record("a", at=3)
        self.three.directory.connected(found)
        self.workers.settle()
        self.one.directory.routes("a")
        self.workers.settle()
        self.workers.finds.clear()
        for _ in range(10):
            self.assertEqual(list(self.one.directory.routes("a")), [found])
        self.assertEqual(self.workers.finds, [])
        self.assertEqual(now(self.one.directory.agents()), [found])

    def test_what_came_and_went_within_a_batch(self) -> None:
        self.one.directory.wait("a", lambda: None)
        found = record("a", at=2)
        self.two.directory.connected(found)
        self.two.directory.disconnected(found)
        self.workers.settle()
        self.assertEqual(list(self.one.directory.routes("a")), [])

    def test_a_worker_dies_and_is_replaced(self) -> None:
        """All that it had is forgotten at once; the next one is heard of by itself."""
        self.two.directory.connected(record("a", at=2))
        self.one.directory.routes("a")
        self.workers.settle()
        self.assertEqual(len(self.one.directory.routes("a")), 1)
        self.assertEqual(len(self.one.directory.living()), 2)
        self.workers.kill(2)
        self.assertEqual(list(self.one.directory.routes("a")), [])
        self.assertEqual([one.url for one in self.one.directory.living()], [kas(3).url])
        new = self.workers.begin(2, list(self.workers.all), process=40)
        back = attrs.evolve(record("a", generation=2), kas_id=new.me.kas_id)
        # Before any other worker watches it.
        new.directory.connected(back)
        self.workers.settle(2 * RETRY_MOST)
        self.one.directory.routes("a")
        self.workers.settle()
        self.assertEqual(list(self.one.directory.routes("a")), [back])
        self.assertEqual(len(self.one.directory.living()), 2)

    def test_one_that_is_slow(self) -> None:
        """What it has is not gone, and is found as soon as it answers."""
        found = record("a", at=2)
        self.two.directory.connected(found)
        self.workers.settle()
        self.two.dead = True
        woken: list[int] = []
        self.one.directory.routes("a")
        self.one.directory.wait("a", lambda: woken.append(1))
        self.workers.settle(3)
        listing = Deferred.fromCoroutine(self.one.store.listed())
        self.failureResultOf(listing, StoreDown)
        self.assertEqual((woken, list(self.one.directory.routes("a"))), ([], []))
        self.two.dead = False
        self.workers.settle(3)
        self.assertEqual((woken, list(self.one.directory.routes("a"))), ([1], [found]))

    def test_another_one_hangs(self) -> None:
        """What answers is enough for a request that waits."""
        found = record("a", at=2)
        self.two.directory.connected(found)
        self.workers.settle()
        self.three.hangs = True
        woken: list[int] = []
        self.one.directory.wait("a", lambda: woken.append(1))
        self.one.directory.routes("a")
        self.assertEqual((woken, list(self.one.directory.routes("a"))), ([1], [found]))

    def test_an_instance_that_moved_ends_where_it_was(self) -> None:
        ended: list[object] = []
        self.one.directory.on_superseded = ended.append
        old, new = record("a", generation=1, at=1), record("a", generation=2, at=2)
        self.one.directory.connected(old)
        self.two.directory.connected(new)
        self.workers.settle()
        self.assertEqual(ended, [old])

    def test_how_the_others_are(self) -> None:
        self.two.directory.update(attrs.evolve(self.two.me, agents=7))
        self.workers.settle(STATE_INTERVAL + 1)
        self.two.directory.update(attrs.evolve(self.two.me, agents=7, draining=True))
        self.workers.settle(BATCH_SECONDS)
        (found,) = (
            one for one in self.one.directory.living() if one.url == self.two.me.url
        )
        self.assertEqual((found.agents, found.draining), (7, True))

    def test_one_that_does_not_read_begins_anew(self) -> None:
        """Its memory has a limit, and it misses nothing."""
        self.patch(sibling_store, "MAX_PENDING", 5)
        self.assertGreater(MAX_PENDING, 5)
        changes = self.one.store.changes()
        now(_next(changes))
        for number in range(6):
            self.one.directory.connected(record(str(number), at=1))
            self.workers.settle(BATCH_SECONDS)
        failed = self.failureResultOf(Deferred.fromCoroutine(_drain(changes)))
        self.assertEqual(failed.value.status, Status.RESOURCE_EXHAUSTED)

    def test_very_many_uses(self) -> None:
        """Are told in several messages, each once, and before what changes then."""
        self.patch(sibling_store, "MAX_USES", 2)
        self.assertGreater(MAX_USES, 2)
        self.one.store.workers = heard = Heard()
        heard.under_way = [("running", str(number), number) for number in range(5)]
        changes = self.one.store.changes()
        first: Any = now(_next(changes))
        self.one.store.used("running", "4", 0)
        self.workers.settle()
        rest: list[Any] = [now(_next(changes)) for _ in range(3)]
        self.assertEqual(first.kas.url, self.one.me.url)
        self.assertEqual(
            [[(use.key, use.amount) for use in one.uses] for one in (first, *rest)],
            [[("0", 0), ("1", 1)], [("2", 2), ("3", 3)], [("4", 4)], [("4", 0)]],
        )

    def test_what_else_is_told(self) -> None:
        """Changes of stores, uses of limits; what is under way to who comes later."""
        heard = Heard()
        self.one.store.workers = heard
        event = StoreEvent(StoreEventType.DELETED, "key", 12)
        self.two.store.stored("mod/ns", event)
        self.two.store.used("limit", "key", -1)
        self.workers.settle()
        url = self.two.me.url
        self.assertEqual(
            heard.calls,
            [("stored", "mod/ns", event), ("used", url, "limit", "key", -1)],
        )
        heard.calls.clear()
        self.workers.kill(2)
        self.assertEqual(heard.calls, [("ended", url)])
        heard.calls.clear()
        new = self.workers.begin(2, list(self.workers.all), process=40)
        new.store.workers = Heard()
        self.workers.settle(2 * RETRY_MOST)
        self.assertEqual(
            heard.calls, [("began", url), ("used", url, "running", "me", 5)]
        )

    def tearDown(self) -> None:
        for worker in self.workers.all.values():
            if not worker.dead:
                now(worker.directory.stop())
        self.assertEqual(self.workers.clock.getDelayedCalls(), [])


async def _drain(changes: AsyncGenerator[pb.WatchResponse, None]) -> None:
    async for _ in changes:
        pass


class Heard:
    """What a worker is told of others; 5 are running here."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.under_way = [("running", "me", 5)]

    def stored(self, name: str, event: StoreEvent) -> None:
        self.calls.append(("stored", name, event))

    def began(self, worker: str) -> None:
        self.calls.append(("began", worker))

    def used(self, worker: str, limit: str, key: str, amount: int) -> None:
        self.calls.append(("used", worker, limit, key, amount))

    def ended(self, worker: str) -> None:
        self.calls.append(("ended", worker))

    def uses(self) -> list[tuple[str, str, int]]:
        return self.under_way
