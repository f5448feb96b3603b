"""Watches that modules of one agentk share, on a cluster in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from agentk.policy.guard import LOOK_SECONDS
from tests.agentk.policy.world import PolicyWorld
from tunnel.api import KubernetesResource, KubernetesShape, WatchEvent
from tunnel.errors import CallError, Status
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import KubernetesClients, OwnerDenial, shared_watches
from tunnel.testing import FakeCluster, FakeRequest

VERBS = frozenset(["list", "watch"])
MAPS = KubernetesResource("", "v1", "ConfigMap", "configmaps", True, VERBS)


class MapShape(KubernetesShape):
    """The data of a ConfigMap."""

    data: dict[str, str] | None = None


def config_map(name: str, **data: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "a", "annotations": {"x": "y"}},
        "data": data,
    }


class Reader:
    """
    A module that follows, and what it was told.

    :ivar seen: the type of each event, with the name of its object.
    :ivar stops_at: an object on which it waits until `resume`.
    """

    def __init__(self, clients: Any, **how: Any) -> None:
        self.seen: list[str] = []
        self.events: list[WatchEvent] = []
        self.error: BaseException | None = None
        self.stops_at = ""
        self.leaves_at = ""
        self._stopped: Deferred[None] | None = None
        resource = how.pop("resource", MAPS)
        self._following = clients.follow(resource, how.pop("namespace", ""), **how)
        self._reading = Deferred.fromCoroutine(self._read())
        self._reading.addErrback(self._ended)

    async def _read(self) -> None:
        async with aclosing(self._following) as events:
            async for event in events:
                name = event.object.metadata.name if event.object else ""
                self.seen.append(f"{event.type.name} {name}".strip())
                self.events.append(event)
                if name and name == self.leaves_at:
                    return
                if name and name == self.stops_at:
                    self._stopped = Deferred()
                    await self._stopped

    def _ended(self, failure: Any) -> None:
        self.error = failure.value

    def resume(self) -> None:
        assert self._stopped is not None
        self.stops_at = ""
        self._stopped.callback(None)

    def leave(self) -> None:
        self._reading.cancel()

    def taken(self) -> list[str]:
        """What was told since the last time, bookmarks left out."""
        seen, self.seen = self.seen, []
        return [one for one in seen if one != "BOOKMARK"]


class Stand:
    """A cluster with two ConfigMaps, and the clients of modules."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.cluster = FakeCluster(self.clock)
        self.put("one", n="1")
        self.put("two", n="2")
        pool = UpstreamPool(self.cluster.endpoint, self.clock)
        self.clients = KubernetesClients(
            self.cluster, pool, self.clock, jitter=lambda: 0.5
        )
        self.readers: list[Reader] = []

    def put(self, name: str, **data: Any) -> None:
        self.cluster.objects.put(config_map(name, **data))

    def remove(self, name: str) -> None:
        self.cluster.objects.remove("v1", "ConfigMap", name, "a")

    def follow(self, **how: Any) -> Reader:
        reader = Reader(self.clients, **how)
        self.readers.append(reader)
        return reader

    def settle(self, seconds: float = 0.5) -> None:
        for _ in range(20):
            self.clock.advance(seconds / 20)

    def joined(self, **how: Any) -> Reader:
        """Follow, until all present objects were told."""
        reader = self.follow(**how)
        self.settle()
        assert reader.seen[-1] == "SYNCED"
        return reader

    @property
    def watches(self) -> int:
        return len(self.cluster.objects.watchers)

    def asked(self, *parts: str) -> list[FakeRequest]:
        return [
            one
            for one in self.cluster.requests
            if all(part in one.path for part in ("configmaps", *parts))
        ]


@pytest.fixture
def stand() -> Iterator[Stand]:
    stand = Stand()
    yield stand
    for one in stand.readers:
        one.leave()
    stand.settle()
    assert not stand.watches
    assert not stand.clients._shared._watches


ALL = ["RESET", "ADDED one", "ADDED two", "SYNCED"]


def test_followers_of_metadata_share_a_watch(stand: Stand) -> None:
    first, second = stand.follow(), stand.follow()
    stand.settle()
    assert first.taken() == second.taken() == ALL
    stand.put("one", n="3")
    stand.remove("two")
    stand.settle()
    assert first.taken() == second.taken() == ["MODIFIED one", "DELETED two"]
    assert (len(stand.asked()), stand.watches) == (1, 1)
    (request,) = stand.asked()
    assert "as=PartialObjectMetadata" in request.fields["accept"][0]


def test_metadata_are_text_and_nothing_else(stand: Stand) -> None:
    """Also if the watch has whole objects, for another follower."""
    reader = stand.joined()
    whole = stand.joined(shape=MapShape)
    for event in reader.events:
        if event.object is not None:
            metadata = json.loads(bytes(event.metadata))
            assert metadata["name"] == event.object.metadata.name
            assert metadata["annotations"] == {"x": "y"}
            assert metadata["managedFields"][0]["manager"] == "test"
            assert type(event.object) is KubernetesShape
            assert event.printed is None
    found = [one.object for one in whole.events if one.object is not None]
    assert [one.data for one in found] == [{"n": "1"}, {"n": "2"}]
    assert all(one.printed is None and not bytes(one.metadata) for one in whole.events)


def test_one_that_joins_late_reads_a_list(stand: Stand) -> None:
    """The watch and the other follower continue."""
    first = stand.joined(shape=MapShape)
    first.taken()
    second = stand.joined()
    assert second.taken() == ALL
    assert first.taken() == []
    assert (len(stand.asked("watch=")), len(stand.asked("limit="))) == (1, 1)
    (listed,) = stand.asked("limit=")
    assert "as=PartialObjectMetadataList" in listed.fields["accept"][0]
    stand.put("one", n="3")
    stand.settle()
    assert first.taken() == second.taken() == ["MODIFIED one"]


def test_changes_during_the_list(stand: Stand) -> None:
    """The list may be older: it does not bring back an object that was deleted."""
    stand.joined()
    take = stand.cluster.take

    def changing(request: FakeRequest) -> Any:
        answer = take(request)
        if "limit=" in request.path:
            stand.remove("one")
            stand.put("two", n="3")
            stand.put("three", n="1")
        return answer

    stand.cluster.take = changing  # type: ignore[method-assign]
    late = stand.joined()
    assert late.taken() == [
        "RESET",
        "DELETED one",
        "MODIFIED two",
        "ADDED three",
        "SYNCED",
    ]


def test_the_watch_begins_again_during_the_list(stand: Stand) -> None:
    """Its objects replace the list, whose end is not told."""
    first = stand.joined()
    first.taken()
    stand.cluster.silent = True
    late = stand.follow()
    stand.settle(0)
    assert late.taken() == ["RESET"]
    stand.cluster.silent = False
    stand.joined(shape=MapShape)
    assert first.taken() == late.taken() == ALL
    stand.cluster.cut()
    stand.settle(10)
    assert late.taken() == []


def test_a_follower_of_whole_objects_joins(stand: Stand) -> None:
    """The watch begins again with whole objects, which all followers read."""
    first = stand.joined()
    first.taken()
    whole = stand.joined(shape=MapShape)
    assert first.taken() == whole.taken() == ALL
    assert stand.watches == 1
    printed = stand.joined(shape=KubernetesShape, printed=True)
    assert first.taken() == whole.taken() == ALL
    accepts = [one.fields["accept"][0] for one in stand.asked("watch=")]
    parts = ["as=PartialObjectMetadata", "application/json", "as=Table"]
    assert [part in one for part, one in zip(parts, accepts, strict=True)] == [True] * 3
    texts = [one.printed for one in printed.events if one.object is not None]
    assert all(one is not None and b'"data"' in bytes(one.text) for one in texts)
    assert not stand.asked("limit=")


def test_one_that_joins_before_the_first_response(stand: Stand) -> None:
    stand.cluster.silent = True
    first = stand.follow()
    stand.settle()
    second = stand.follow()
    assert first.taken() == second.taken() == ["RESET"]
    stand.cluster.cut()
    stand.cluster.silent = False
    stand.settle(10)
    assert first.taken() == second.taken() == ALL[1:]
    assert not stand.asked("limit=")


def test_an_object_that_does_not_suit_a_follower(stand: Stand) -> None:
    reader = stand.joined()
    whole = stand.joined(shape=MapShape)
    for one in (reader, whole):
        one.taken()
    stand.put("three", n=3)
    stand.put("four", n="4")
    stand.settle()
    assert whole.taken() == ["ADDED four"]
    assert reader.taken() == ["ADDED three", "ADDED four"]


def test_the_slowest_follower(stand: Stand) -> None:
    """No event waits in agentk while a follower handles another."""
    slow, fast = stand.joined(), stand.joined()
    slow.stops_at = "one"
    for one in (slow, fast):
        one.taken()
    for number in range(100):
        stand.put("one", n=str(number))
    stand.settle()
    assert slow.taken() == fast.taken() == ["MODIFIED one"]
    (watches,) = stand.clients._shared._watches.values()
    assert all(not one._events for one in watches[0].followers)
    slow.resume()
    stand.settle()
    assert slow.taken() == fast.taken() == ["MODIFIED one"] * 99


def test_a_list_for_a_slow_follower(stand: Stand) -> None:
    stand.joined()
    late = stand.follow()
    late.stops_at = "one"
    stand.settle()
    assert late.taken() == ["RESET", "ADDED one"]
    late.resume()
    stand.settle()
    assert late.taken() == ["ADDED two", "SYNCED"]


def test_followers_that_leave(stand: Stand) -> None:
    first, second, third = stand.joined(), stand.joined(), stand.joined()
    first.leaves_at = "one"
    stand.put("one", n="3")
    stand.settle()
    second.leave()
    stand.put("two", n="3")
    stand.settle()
    assert third.taken()[4:] == ["MODIFIED one", "MODIFIED two"]
    assert second.taken()[4:] == first.taken()[4:] == ["MODIFIED one"]
    assert isinstance(second.error, CancelledError) and first.error is None
    # The last one, while it handles an event.
    third.leaves_at = "one"
    stand.put("one", n="4")
    stand.settle()
    assert not stand.watches


@pytest.mark.parametrize("name", ["one", "two", ""])
def test_one_that_leaves_during_its_list(stand: Stand, name: str) -> None:
    first = stand.joined()
    late = stand.follow()
    late.leaves_at = name
    if not name:
        late.leave()
    stand.settle()
    assert "SYNCED" not in late.seen
    stand.put("one", n="3")
    stand.settle()
    assert first.taken() == [*ALL, "MODIFIED one"]


def test_a_list_that_fails(stand: Stand) -> None:
    """It is read again; an error that a retry does not fix ends only this follower."""
    first = stand.joined()
    path = "/api/v1/configmaps?limit=500"
    stand.cluster.answer("GET", path, {"message": "busy"}, 503)
    late = stand.follow()
    stand.settle(5)
    assert late.taken() == ["RESET"]
    assert len(stand.asked("limit=")) > 1
    stand.cluster._answers.clear()
    stand.settle(60)
    assert late.taken() == ALL[1:]
    stand.cluster.answer("GET", path, {"message": "no such kind"}, 404)
    lost = stand.follow()
    stand.settle()
    assert isinstance(lost.error, CallError)
    assert lost.error.status is Status.NOT_FOUND
    assert (first.error, late.error, stand.watches) == (None, None, 1)


def test_a_list_during_which_too_much_changes(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch begins again, so that agentk has no long table of what changed."""
    monkeypatch.setattr(shared_watches, "MAX_ARRIVED", 20)
    first = stand.joined()
    path = "/api/v1/configmaps?limit=500"
    stand.cluster.answer("GET", path, {"message": "busy"}, 503)
    late = stand.follow()
    stand.settle()
    for number in range(20):
        stand.put(f"m{number}")
    stand.settle()
    assert len(stand.asked("watch=")) == 1
    stand.put("more")
    stand.settle(60)
    assert len(stand.asked("watch=")) == 2
    late.taken()
    stand.put("one", n="3")
    stand.settle()
    assert late.taken() == ["MODIFIED one"]
    assert first.seen[-1] == "MODIFIED one"


def test_a_list_that_is_denied(stand: Stand) -> None:
    """The watch begins again: with streamed objects, it needs no right to list."""
    first = stand.joined()
    first.taken()
    path = "/api/v1/configmaps?limit=500"
    stand.cluster.answer("GET", path, {"message": "no right"}, 403)
    late = stand.joined()
    assert late.taken() == ["RESET", *ALL]
    assert (first.taken(), stand.watches) == (ALL, 1)


def test_a_kind_that_is_refused(stand: Stand) -> None:
    """All followers are told; one that tries again begins the watch again."""
    gone = KubernetesResource("", "v1", "Thing", "things", True, VERBS)
    first, second = stand.follow(resource=gone), stand.follow(resource=gone)
    stand.settle()
    for one in (first, second):
        assert isinstance(one.error, CallError)
        assert one.error.status is Status.NOT_FOUND
    stand.cluster.objects.add_kind(gone)
    again = stand.joined(resource=gone)
    assert again.taken() == ["RESET", "SYNCED"]


def test_namespaces_and_versions(stand: Stand) -> None:
    """Fields differ between versions; metadata do not."""
    stand.cluster.objects.add_kind(
        KubernetesResource("", "v2", "ConfigMap", "configmaps", True, VERBS)
    )
    newer = KubernetesResource("", "v2", "ConfigMap", "configmaps", True, VERBS)
    stand.joined(resource=newer)
    stand.joined(shape=MapShape)
    stand.joined(resource=newer)
    assert stand.watches == 1
    stand.joined(resource=newer, shape=MapShape)
    assert stand.watches == 2
    spaced = stand.joined(namespace="b")
    assert (spaced.taken(), stand.watches) == (["RESET", "SYNCED"], 3)


def test_a_failure_of_the_watch(stand: Stand) -> None:
    """Whatever it is, followers get it, and can begin again."""

    def failing(*rest: Any, **more: Any) -> Any:
        raise ZeroDivisionError

    first = stand.joined()
    (watches,) = stand.clients._shared._watches.values()
    client: Any = watches[0]._client
    client.watch = failing
    stand.follow(shape=MapShape)
    stand.settle()
    assert isinstance(first.error, ZeroDivisionError)
    assert stand.joined().error is None


POLICY = """\
kind: AgentPolicy
rules:
- {name: both, allow: [list, watch], resources: [pods], modules: [first, second]}
"""

ONE = POLICY.replace("[first, second]", "[second]")

PODS = KubernetesResource("", "v1", "Pod", "pods", True, VERBS)


def test_a_policy_that_denies_one_module(tmp_path: Path) -> None:
    """A module gets nothing from the watch of another that it may not watch itself."""
    world = PolicyWorld(tmp_path, POLICY)
    world.start()
    first, second, third = (
        Reader(world.clients.of_module(name), resource=PODS)
        for name in ("first", "second", "third")
    )
    world.later(1)
    assert isinstance(third.error, CallError)
    assert third.error.status is Status.PERMISSION_DENIED
    assert third.taken() == []
    assert first.taken() == second.taken() == ["RESET", "SYNCED"]
    assert len(world.cluster.objects.watchers) == 1
    # The policy denies the running watch to one of them.
    world.write(ONE)
    world.later(LOOK_SECONDS)
    metadata = {"name": "a", "namespace": "b"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    world.cluster.objects.put(pod)
    world.later(30)
    assert isinstance(first.error, CallError)
    assert "forbidden by the policy" in first.error.message
    assert first.taken() == []
    assert second.taken() == ["RESET", "SYNCED", "ADDED a"]
    assert second.error is None
    assert len(world.cluster.objects.watchers) == 1
    second.leave()


def test_requests_of_no_module(tmp_path: Path) -> None:
    """A request that no module makes has no right."""
    world = PolicyWorld(tmp_path)
    world.start()
    client: Any = world.clients._client_of_modules([])
    with pytest.raises(OwnerDenial, match="no module makes this request"):
        world.run(client.get(PODS, "a", "b"))


def test_a_policy_that_is_not_read_yet(tmp_path: Path) -> None:
    """Followers wait for it."""
    world = PolicyWorld(tmp_path, POLICY)
    reader = Reader(world.clients.of_module("first"), resource=PODS)
    world.later(1)
    assert reader.taken() == ["RESET"]
    world.start()
    world.later(30)
    assert reader.taken() == ["SYNCED"]
    reader.leave()
