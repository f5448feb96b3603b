"""Watches from the cache of an agent, for other modules of kas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from zope.interface.verify import verifyObject

from modules.cluster_data.server.cached_watches import CachedWatches
from tests.modules.cluster_data.test_object_reads import MAPS, ReadStand, config_map
from tests.modules.cluster_data.test_rest import ALICE, BOB
from tunnel.api import Access, ICachedWatches
from tunnel.errors import CallError

TARGET = f"{MAPS}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true"


class Watcher:
    """A module that reads a watch to its end."""

    def __init__(self, stand: ReadStand, access: Access, target: str) -> None:
        self.parts: list[bytes] = []
        self.error = ""
        found: CachedWatches = stand.pair.server.capabilities.get(ICachedWatches)
        assert verifyObject(ICachedWatches, found)
        self._source = found

        async def read() -> None:
            try:
                async for part in found.open(access, target):
                    self.parts.append(part)
            except CallError as error:
                self.error = error.message

        self._reading = Deferred.fromCoroutine(read())
        self._reading.addErrback(lambda failure: failure.trap(CancelledError))
        stand.advance(1)

    def events(self) -> list[str]:
        """Return type and name of the new events."""
        text = b"".join(self.parts)
        self.parts = []
        found: list[Any] = [json.loads(line) for line in text.splitlines()]
        return [
            f"{one['type']} {one['object']['metadata'].get('name', '')}".strip()
            for one in found
        ]

    def leave(self) -> None:
        self._reading.cancel()

    @property
    def outcomes(self) -> dict[str, int]:
        return dict(self._source.outcomes)


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[ReadStand]:
    stand = ReadStand(tmp_path)
    stand.add(config_map("one"), config_map("two"))
    stand.lead()
    yield stand
    stand.close()


def test_many_watches(stand: ReadStand) -> None:
    """All of them cost the API server one request."""
    watchers = [
        Watcher(stand, (ALICE, BOB)[number % 2], TARGET) for number in range(10)
    ]
    for one in watchers:
        # It begins with an empty part, as soon as agentk answers.
        assert one.parts[0] == b""
        assert one.events() == ["ADDED one", "ADDED two", "BOOKMARK"]
    stand.add(config_map("three"))
    stand.advance(1)
    assert [one.events() for one in watchers] == 10 * [["ADDED three"]]
    assert len(stand.requests("configmaps")) == 1
    assert watchers[0].outcomes == {"answered": 10}
    for one in watchers:
        one.leave()
    stand.advance(1)
    assert stand.agent._metrics._reads.watches.total() == 0


def test_a_denied_watch(stand: ReadStand) -> None:
    """The rights are those of the user, in this namespace."""
    stand.everything = False
    stand.allowed = {"alice watch /configmaps@shop"}
    assert Watcher(stand, ALICE, TARGET).parts[0] == b""
    denied = Watcher(stand, BOB, TARGET)
    assert (denied.parts, denied.error) == (
        [],
        "the cache of the agent responded with 403",
    )
    assert denied.outcomes == {"answered": 1, "refused": 1}


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/namespaces/shop/secrets?watch=true",
        f"{MAPS}?watch=true&fieldSelector=data%3Dx",
        "/api/v1/namespaces/shop/nothings?watch=true",
    ],
    ids=["secrets", "field selector", "unknown kind"],
)
def test_not_in_the_cache(stand: ReadStand, target: str) -> None:
    """The caller asks the API server itself."""
    watcher = Watcher(stand, ALICE, target)
    assert watcher.parts == []
    assert "the cache of the agent responded with 40" in watcher.error


def test_no_cache(stand: ReadStand) -> None:
    """An agentk that does not lead has no cache."""
    stand.follow()
    watcher = Watcher(stand, ALICE, TARGET)
    assert watcher.error
    assert watcher.outcomes == {"refused": 1}
