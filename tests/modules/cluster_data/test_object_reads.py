"""Readers of whole objects, and the requests that they cost the API server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater

from modules.cluster_data.agent import cache as cache_module
from modules.cluster_data.agent.objects import reads as reads_module
from modules.cluster_data.agent.objects.reads import RIGHT_SECONDS, ObjectReads
from modules.cluster_data.agent.rights_watch import KINDS, SOON
from modules.cluster_data.server.cache_path import READ_SECONDS
from tests.modules.cluster_data.pair import LivePair, deployment
from tests.modules.cluster_data.test_rest import ALICE, BOB, ReviewingCluster
from tunnel.api import Access, AgentPathRequest, ObjectKind
from tunnel.errors import CallError
from tunnel.testing import FakePathResponse
from tunnel.toolkit.peer_turns import PeerTurns

DEPLOYMENTS = "/apis/apps/v1/deployments"
SHOP = "/apis/apps/v1/namespaces/shop/deployments"
MAPS = "/api/v1/namespaces/shop/configmaps"


def config_map(name: str, **labels: str) -> Any:
    metadata = {"name": name, "namespace": "shop", "labels": labels}
    data = {"colour": "green"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


class Response(FakePathResponse):
    """A response whose client may stop reading."""

    def __init__(self, is_stuck: bool) -> None:
        super().__init__()
        self.stuck: Deferred[None] | None = Deferred() if is_stuck else None

    async def write(self, data: bytes) -> None:
        if self.stuck is not None:
            await self.stuck
        await super().write(data)


class Reader:
    """A request of a client, and its response so far."""

    def __init__(
        self,
        stand: ReadStand,
        path: str,
        access: Access,
        fields: Any,
        is_stuck: bool = False,
    ) -> None:
        self.response = Response(is_stuck)
        target, _, query = path.partition("?")
        request = AgentPathRequest(access, "GET", target, query, fields, b"")
        served = stand.pair.paths.served["cache"]

        async def answer() -> None:
            await served.answer(request, self.response)

        self.ended = False
        self._reading = Deferred.fromCoroutine(answer())
        self._reading.addErrback(
            lambda failure: failure.trap(CancelledError, CallError)
        )
        self._reading.addCallback(self._end)
        stand.advance(1)

    def _end(self, _: object) -> None:
        self.ended = True

    @property
    def found(self) -> Any:
        return json.loads(self.response.body)

    def lines(self) -> list[Any]:
        """Return the new events of a watch."""
        body, self.response.body = self.response.body, b""
        return [json.loads(line) for line in body.splitlines()]

    def events(self) -> list[str]:
        """Return the new events: type and name."""
        return [
            f"{one['type']} {one['object']['metadata'].get('name', '')}".strip()
            for one in self.lines()
        ]

    def leave(self) -> None:
        self._reading.cancel()


class ReadStand(LivePair):
    """
    A pair with readers.

    :ivar allowed: users and rights: ``alice list apps/deployments@shop``.
    """

    make_cluster = ReviewingCluster

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.reviews: list[str] = []
        self.allowed: set[str] = set()
        self.everything = True
        assert isinstance(self.cluster, ReviewingCluster)
        self.cluster.review = self.review

    def review(self, user: str, spec: Any) -> bool:
        asked = spec["resourceAttributes"]
        right = f"{user} {asked['verb']} {asked['group']}/{asked['resource']}"
        right += f"@{asked['namespace']}" if asked["namespace"] else ""
        right += f":{asked['name']}" if "name" in asked else ""
        self.reviews.append(right)
        return self.everything or right in self.allowed

    def read(self, path: str, access: Access = ALICE, accept: str = "") -> Reader:
        return Reader(self, path, access, {"accept": accept} if accept else {})

    def get(self, path: str, status: int = 200, accept: str = "") -> Any:
        reader = self.read(path, accept=accept)
        assert reader.response.status == status, reader.response.body
        return reader.found

    def requests(self, part: str) -> list[str]:
        """Return agentk's own requests for lists and watches of a kind."""
        return [
            one.path
            for one in self.cluster.requests
            if part in one.path and not one.user and "limit=1&" not in one.path
        ]

    @property
    def kinds(self) -> Any:
        """The kinds in agentk's cache."""
        cache = self.agent._metrics.cache
        assert cache is not None
        return cache.kinds


@pytest.fixture
def reads(tmp_path: Path) -> Iterator[ReadStand]:
    stand = ReadStand(tmp_path)
    stand.add(deployment("web"), config_map("one", app="web"), config_map("two"))
    stand.lead()
    stand.advance(3)
    yield stand
    stand.close()


def names(found: Any) -> list[str]:
    return [one["metadata"]["name"] for one in found["items"]]


def test_one_watch_for_readers_and_views(reads: ReadStand) -> None:
    """The kind is read once more, and not watched twice."""
    watched = len(reads.requests(f"{DEPLOYMENTS}?"))
    found = reads.get(DEPLOYMENTS)
    assert found["kind"] == "DeploymentList" and names(found) == ["web"]
    item = found["items"][0]
    assert (item["kind"], item["apiVersion"]) == ("Deployment", "apps/v1")
    assert item["spec"]["replicas"] == 1
    assert "managedFields" not in item["metadata"]
    readers = [reads.read(f"{DEPLOYMENTS}?watch=true") for _ in range(5)]
    assert len(reads.requests(f"{DEPLOYMENTS}?")) == watched + 1
    # One for each kind of the views that the cluster has, and those of RBAC.
    found = [one for one in reads.kinds.values() if one.state != "absent"]
    assert len(found) == 10
    assert len(reads.cluster.objects.watchers) == len(found) + len(KINDS)
    reads.add(deployment("api", ready=0))
    reads.advance(2)
    for one in readers:
        assert one.events() == ["ADDED web", "ADDED api"]
    # The views see the same event.
    assert set(reads.rows("workloads", kind="deployments")) == {"web", "api"}
    assert len(reads.requests(f"{DEPLOYMENTS}?")) == watched + 1


def test_a_kind_of_readers_is_released(reads: ReadStand) -> None:
    assert reads.requests("configmaps") == []
    reader = reads.read(f"{MAPS}?watch=true&timeoutSeconds=3600")
    assert reader.events() == ["ADDED one", "ADDED two"]
    maps = ObjectKind("", "v1", "ConfigMap")
    assert maps in reads.kinds
    reads.advance(cache_module.UNUSED_SECONDS + cache_module.SWEEP_SECONDS)
    assert len(reads.requests("/configmaps?")) < 5
    reader.leave()
    reads.advance(cache_module.UNUSED_SECONDS + cache_module.SWEEP_SECONDS + 1)
    before = len(reads.requests("/configmaps?"))
    assert maps not in reads.kinds
    reads.advance(600)
    assert len(reads.requests("/configmaps?")) == before
    # The next reader begins again.
    assert names(reads.get(MAPS)) == ["one", "two"]


def test_selection(reads: ReadStand) -> None:
    assert names(reads.get(f"{MAPS}?labelSelector=app%3Dweb")) == ["one"]
    assert names(reads.get(f"{MAPS}?labelSelector=!app")) == ["two"]
    assert names(reads.get(f"{MAPS}?fieldSelector=metadata.name%3Dtwo")) == ["two"]
    assert names(reads.get(f"{MAPS}?fieldSelector=metadata.name!%3Dtwo")) == ["one"]
    assert names(reads.get("/api/v1/namespaces/other/configmaps")) == []
    assert names(reads.get("/api/v1/configmaps?limit=1")) == ["one", "two"]
    assert reads.get(f"{MAPS}/one")["data"] == {"colour": "green"}
    assert reads.get(f"{MAPS}/three", 404)["message"].endswith('"three" not found')
    assert reads.get("/api/v1/namespaces/kube-system")["kind"] == "Namespace"
    reads.get(f"{MAPS}?labelSelector=a%3D%3D%3D", 400)


def test_changes_of_a_selection(reads: ReadStand) -> None:
    """An object enters and leaves the selection by its labels."""
    reader = reads.read(f"{MAPS}?watch=true&labelSelector=app%3Dweb")
    assert reader.events() == ["ADDED one"]
    reads.add(config_map("two", app="web"))
    reads.add(config_map("one", app="api"))
    reads.add(config_map("two", app="web", tier="x"))
    reads.objects.remove("v1", "ConfigMap", "two", "shop")
    reads.add(config_map("three"))
    reads.advance(1)
    assert reader.events() == [
        "ADDED two",
        "DELETED one",
        "MODIFIED two",
        "DELETED two",
    ]


def test_forms(reads: ReadStand) -> None:
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    found = reads.get(MAPS, accept=table)
    assert found["kind"] == "Table"
    assert [one["name"] for one in found["columnDefinitions"]] == ["Name", "Age"]
    assert [one["cells"][0] for one in found["rows"]] == ["one", "two"]
    row = found["rows"][0]["object"]
    assert (row["kind"], "data" in row) == ("PartialObjectMetadata", False)
    found = reads.get(f"{MAPS}/one?includeObject=Object", accept=table)
    assert found["rows"][0]["object"]["data"] == {"colour": "green"}
    found = reads.get(f"{MAPS}?includeObject=None", accept=table)
    assert set(found["rows"][0]) == {"cells"}
    reader = reads.read(f"{MAPS}?watch=true", accept=table)
    first, second = reader.lines()
    assert first["object"]["columnDefinitions"] and first["object"]["rows"]
    assert second["object"]["columnDefinitions"] is None
    partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    found = reads.get(MAPS, accept=partial)
    assert found["kind"] == "PartialObjectMetadataList"
    assert set(found["items"][0]) == {"kind", "apiVersion", "metadata"}
    reads.get(MAPS, 406, accept="application/vnd.kubernetes.protobuf")


def test_what_the_cache_refuses(reads: ReadStand) -> None:
    for path, status in [
        ("/api/v1/namespaces/shop/secrets", 403),
        ("/api/v1/namespaces/shop/secrets/one", 403),
        (f"{MAPS}/one/status", 405),
        ("/api/v1/proxy/namespaces/shop/pods/one", 405),
        ("/api/v1/namespaces/shop/pods/one/log", 405),
        ("/api/v1/namespaces/shop/widgets", 404),
        ("/healthz", 404),
        (f"{MAPS}?watch=true&fieldSelector=data%3Dx", 400),
        (f"{MAPS}?continue=x", 410),
    ]:
        found = reads.get(path, status)
        assert (found["kind"], found["code"]) == ("Status", status)
    assert not reads.requests("secrets")
    for method in ("POST", "PUT", "PATCH", "DELETE", "HEAD"):
        answer = reads.pair.run(
            reads.pair.paths.request(ALICE, f"/cache{MAPS}/one", method)
        )
        assert answer.status == 405


def test_each_right(reads: ReadStand) -> None:
    """Each request needs exactly its right."""
    reads.everything = False
    reads.allowed = {"alice list /configmaps@shop", "alice get /configmaps@shop:one"}
    assert names(reads.get(MAPS)) == ["one", "two"]
    assert reads.get(f"{MAPS}/one")
    for path, right in [
        (f"{MAPS}/two", "get /configmaps@shop:two"),
        (f"{MAPS}?watch=true", "watch /configmaps@shop"),
        ("/api/v1/configmaps", "list /configmaps"),
        (SHOP, "list apps/deployments@shop"),
    ]:
        found = reads.get(path, 403)
        assert "forbidden: user alice" in found["message"]
        assert reads.reviews[-1] == f"alice {right}"
    assert reads.read(MAPS, BOB).response.status == 403


def test_cluster_scoped_objects_below_a_namespace(reads: ReadStand) -> None:
    """A right in one namespace permits to read this Namespace, and no other."""
    space: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace"}
    for name in ("shop", "kube-system"):
        reads.add(space | {"metadata": {"name": name}})
    reads.advance(1)
    assert reads.get("/api/v1/namespaces/shop")["metadata"]["name"] == "shop"
    assert reads.reviews[-1] == "alice get /namespaces@shop:shop"
    selected = "fieldSelector=metadata.name%3Dkube-system"
    for path in (
        "/api/v1/namespaces/shop/namespaces",
        "/api/v1/namespaces/shop/namespaces/kube-system",
        "/api/v1/namespaces/shop/namespaces?watch=1",
        f"/api/v1/namespaces/shop/namespaces?{selected}",
        "/api/v1/namespaces/shop/nodes",
        "/api/v1/namespaces/shop/nodes/one",
        "/apis/x/v1/namespaces/shop",
    ):
        assert reads.get(path, 404)["code"] == 404
    assert "shop" in names(reads.get("/api/v1/namespaces"))
    assert reads.reviews[-1] == "alice list /namespaces"


def test_a_right_that_is_revoked(reads: ReadStand) -> None:
    reader = reads.read(f"{MAPS}?watch=true")
    other = reads.read(f"{MAPS}?watch=true", BOB)
    reader.lines(), other.lines()
    reads.everything = False
    reads.allowed = {"bob watch /configmaps@shop"}
    reads.advance(RIGHT_SECONDS)
    reads.add(config_map("three"))
    reads.advance(1)
    (refused,) = reader.lines()
    assert (refused["type"], refused["object"]["code"]) == ("ERROR", 403)
    assert reader.ended
    assert other.events() == ["ADDED three"]
    # An idle watch ends, too.
    reads.allowed = set()
    reads.advance(reads_module.IDLE_SECONDS + 1)
    assert [one["object"]["code"] for one in other.lines()] == [403]


def test_a_role_that_changes(reads: ReadStand) -> None:
    """Earlier answers of the API server do not count any more."""
    assert reads.get(MAPS)["kind"] == "ConfigMapList"
    reads.everything = False
    reads.advance(1)
    assert reads.get(MAPS)["kind"] == "ConfigMapList"
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "a", "namespace": "shop"},
    }
    reads.add(role)
    reads.advance(SOON + 0.1)
    assert reads.get(MAPS, 403)["code"] == 403


@pytest.mark.parametrize("path", [MAPS, f"{MAPS}/one", f"{MAPS}?watch=true"])
@pytest.mark.parametrize("place", ["objects", "turn"])
def test_a_right_that_is_revoked_while_a_request_waits(
    reads: ReadStand, monkeypatch: pytest.MonkeyPatch, path: str, place: str
) -> None:
    """A request may wait for its objects, and for its turn, longer than a minute."""
    reads.get(MAPS)
    loaded, turn = ObjectReads._loaded, PeerTurns.turn

    async def load_late(*rest: Any) -> None:
        await loaded(*rest)
        await deferLater(reads.clock, 2 * RIGHT_SECONDS)

    @asynccontextmanager
    async def take_late(turns: Any, peer: Any) -> AsyncIterator[None]:
        await deferLater(reads.clock, 2 * RIGHT_SECONDS)
        async with turn(turns, peer):
            yield

    if place == "objects":
        monkeypatch.setattr(ObjectReads, "_loaded", load_late)
    else:
        monkeypatch.setattr(PeerTurns, "turn", take_late)
    reader = reads.read(path)
    reads.everything = False
    reads.advance(3 * RIGHT_SECONDS)
    if "watch" in path and place == "turn":
        # The response has begun.
        (refused,) = reader.lines()
        assert (refused["type"], refused["object"]["code"]) == ("ERROR", 403)
        assert reader.ended
    elif path.endswith("one") and place == "turn":
        # Only lists wait for a turn.
        assert reader.response.status == 200
    else:
        assert reader.response.status == 403


def test_readers_share_reviews(reads: ReadStand) -> None:
    for _ in range(5):
        reads.read(f"{MAPS}?watch=true")
    assert reads.reviews == ["alice watch /configmaps@shop"]
    reads.advance(RIGHT_SECONDS)
    reads.add(config_map("three"))
    reads.advance(1)
    assert len(reads.reviews) == 2


def test_reviews_only_for_events(reads: ReadStand) -> None:
    """Changes that a reader does not see cost no review."""
    reader = reads.read(f"{MAPS}?watch=true&labelSelector=app%3Dweb")
    for number in range(10):
        reads.advance(RIGHT_SECONDS / 2)
        reads.add(config_map("two", number=str(number)))
    assert reader.events() == ["ADDED one"]
    assert len(reads.reviews) == 1
    reads.everything = False
    reads.advance(RIGHT_SECONDS + 1)
    # The watch ends anyway.
    assert reader.ended and len(reads.reviews) == 2


def test_versions(reads: ReadStand) -> None:
    version = reads.get(MAPS)["metadata"]["resourceVersion"]
    reads.add(config_map("three"))
    reads.advance(1)
    reader = reads.read(f"{MAPS}?watch=true&resourceVersion={version}")
    assert reader.events() == ["ADDED three"]
    digits = "9" * 5000
    (unknown,) = reads.read(f"{MAPS}?watch=true&resourceVersion={digits}").lines()
    assert unknown["object"]["reason"] == "Expired"
    (old,) = reads.read(f"{MAPS}?watch=true&resourceVersion=1").lines()
    assert (old["type"], old["object"]["reason"]) == ("ERROR", "Expired")
    ahead = reads.read(f"{MAPS}?resourceVersion=99999")
    reads.advance(3)
    assert ahead.response.status == 504
    causes = ahead.found["details"]["causes"]
    assert causes[0]["reason"] == "ResourceVersionTooLarge"
    exact = f"{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact"
    assert reads.get(exact, 410)["reason"] == "Expired"
    streamed = reads.read(
        f"{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        "&allowWatchBookmarks=true"
    )
    *objects, marker = streamed.lines()
    assert len(objects) == 3 and marker["type"] == "BOOKMARK"
    annotations = marker["object"]["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}


def test_an_interrupted_watch(reads: ReadStand) -> None:
    """Readers see the differences, and no error, after agentk's watch expired."""
    reader = reads.read(f"{MAPS}?watch=true")
    reader.lines()
    reads.get(MAPS)
    reads.cluster.refuses = True
    reads.cluster.cut()
    reads.advance(1)
    reads.objects.remove("v1", "ConfigMap", "two", "shop")
    reads.add(config_map("three"), config_map("one", app="api"))
    reads.objects.forget()
    assert names(reads.get(MAPS)) == ["one", "two"]
    reads.cluster.refuses = False
    reads.advance(40)
    assert reader.events() == ["ADDED three", "MODIFIED one", "DELETED two"]
    found = reads.get(MAPS)
    assert names(found) == ["one", "three"]
    assert not reader.ended


def test_a_slow_reader(reads: ReadStand, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that is behind reads the list again; nothing waits for it."""
    monkeypatch.setattr("modules.cluster_data.agent.objects.store.MAX_CHANGES", 3)
    version = reads.get(MAPS)["metadata"]["resourceVersion"]
    for number in range(5):
        reads.add(config_map("one", number=str(number)))
    reads.advance(1)
    (old,) = reads.read(f"{MAPS}?watch=true&resourceVersion={version}").lines()
    assert old["object"]["code"] == 410


def test_no_room(tmp_path: Path) -> None:
    """Whole objects go before rows, and their readers learn why."""
    stand = ReadStand(tmp_path, max_memory=20_000)
    stand.add(*(config_map(f"map-{number}") for number in range(60)))
    stand.add(deployment("web"))
    stand.lead()
    stand.advance(3)
    found = stand.read(MAPS)
    assert found.response.status == 503, found.response.body
    assert "no room for configmaps" in found.found["message"]
    requests = len(stand.requests("/configmaps?"))
    assert stand.get(MAPS, 503)
    assert len(stand.requests("/configmaps?")) == requests
    assert set(stand.rows("workloads")) == {"web"}
    stand.close()


def test_limits_of_watches(reads: ReadStand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads_module, "MAX_WATCHES_OF_USER", 1)
    first = reads.read(f"{MAPS}?watch=true")
    assert reads.get(f"{MAPS}?watch=true", 429)["reason"] == "TooManyRequests"
    first.leave()
    reads.advance(1)
    assert reads.read(f"{MAPS}?watch=true").response.status == 200


def test_limits_of_kinds(reads: ReadStand, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new kind never displaces a kind with readers."""
    monkeypatch.setattr(cache_module, "MAX_STORES", 2)
    watches = [reads.read(f"{path}?watch=true") for path in (MAPS, SHOP)]
    refused = reads.get("/api/v1/namespaces/shop/pods", 503)
    assert "at most 2 kinds" in refused["message"]
    assert not any(one.ended for one in watches)
    watches[1].leave()
    reads.advance(1)
    assert reads.get("/api/v1/namespaces/shop/pods")["items"] == []
    assert not watches[0].ended


def test_kinds_of_a_user(reads: ReadStand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads_module, "MAX_KINDS_OF_USER", 1)
    watch = reads.read(f"{MAPS}?watch=true")
    assert "a user may read 1 kinds" in reads.get(SHOP, 429)["message"]
    assert reads.get(MAPS)["items"]
    assert reads.read(SHOP, BOB).response.status == 200
    watch.leave()
    reads.advance(1)
    assert reads.get(SHOP)["items"]


def test_slow_clients_of_forwarded_requests(
    reads: ReadStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold bytes, but no turn."""
    large = {"text": "x" * 2_000_000}
    reads.cluster.answer("GET", "/openapi/v2", large)
    monkeypatch.setattr(reads_module, "MAX_HELD_OF_USER", 5_000_000)
    for access in (ALICE, BOB):
        for _ in range(reads_module.MAX_FORWARDED_OF_USER):
            Reader(reads, "/openapi/v2", access, {}, is_stuck=True)
    assert reads.get("/api")["kind"] == "APIGroupDiscoveryList"


def test_large_objects(reads: ReadStand) -> None:
    """Large objects arrive in parts, in lists and in watches."""
    large = "x" * (3 * reads_module.PART)
    watch = reads.read(f"{MAPS}?watch=true&fieldSelector=metadata.name%3Dlarge")
    for number in range(3):
        reads.add(config_map("large") | {"data": {"text": large, "n": str(number)}})
    reads.advance(1)
    events = watch.lines()
    assert [one["object"]["data"]["n"] for one in events] == ["0", "1", "2"]
    assert all(one["object"]["data"]["text"] == large for one in events)
    assert reads.get(f"{MAPS}/large")["data"]["text"] == large
    assert len(names(reads.get(MAPS))) == 3


def test_what_agentk_forwards(reads: ReadStand) -> None:
    """Discovery and unknown selectors, with the rights of the caller."""
    path = f"{MAPS}?fieldSelector=data%3Dx"
    reads.cluster.answer("GET", path, {"kind": "ConfigMapList", "items": []})
    newer = f"{MAPS}?labelSelector=a%3E5"
    reads.cluster.answer("GET", newer, {"kind": "ConfigMapList", "items": []})
    assert reads.get(newer)["items"] == []
    reads.cluster.answer("GET", "/version", {"major": "1"})
    assert reads.get(path)["items"] == []
    assert reads.get("/version") == {"major": "1"}
    assert reads.get("/api")["kind"] == "APIGroupDiscoveryList"
    asked = [path, newer, "/version"]
    users = {one.user for one in reads.cluster.requests if one.path in asked}
    assert users == {"alice"}
    # An escaped slash does not hide a resource.
    assert reads.get("/api/v1%2Fsecrets", 403)["reason"] == "Forbidden"


def test_questions_about_rights(reads: ReadStand) -> None:
    body = b'{"spec": {"resourceAttributes": {"verb": "list", "group": "", '
    body += b'"resource": "pods", "namespace": "a"}}}'
    path = "/cache/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    paths = reads.pair.paths
    asking = paths.request(ALICE, path, "POST", body)
    answer = reads.pair.run(asking)
    assert json.loads(answer.body) == {"status": {"allowed": True}}
    assert reads.reviews == ["alice list /pods@a"]
    for method, content in (("POST", b""), ("GET", b"x")):
        assert reads.pair.run(paths.request(ALICE, path, method, content)).status == 400


def test_clients_that_read_nothing(reads: ReadStand) -> None:
    """They hold their turns for a minute, and only their own."""
    # More than the tunnel buffers.
    for number in range(40):
        large = config_map(f"large-{number:02}")
        reads.add(large | {"data": {"text": "x" * 100_000}})
    stuck = [
        Reader(reads, MAPS, ALICE, {}, is_stuck=True)
        for _ in range(reads_module.MAX_OF_USER)
    ]
    waiting = reads.read(MAPS)
    assert not waiting.response.status
    assert len(names(reads.read(MAPS, BOB).found)) == 42
    reads.advance(READ_SECONDS)
    assert all(one.ended for one in stuck)
    assert len(names(reads.read(MAPS).found)) == 42


def test_the_end_of_a_watch(reads: ReadStand) -> None:
    reader = reads.read(f"{MAPS}?watch=true&timeoutSeconds=5")
    assert not reader.ended
    reads.advance(6)
    assert reader.ended


def test_another_agentk_leads(reads: ReadStand) -> None:
    reader = reads.read(f"{MAPS}?watch=true")
    reader.lines()
    reads.follow()
    reads.advance(1)
    assert reader.ended
    reads.lead()
    reads.advance(3)
    assert names(reads.get(MAPS)) == ["one", "two"]
