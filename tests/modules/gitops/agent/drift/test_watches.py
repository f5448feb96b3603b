"""Projects that follow a kind which others follow already."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import attrs

from modules.gitops.agent.drift.watches import (
    CATCH_UPS,
    JOIN,
    RETRY_FIRST,
    Kind,
    KindWatches,
)
from modules.gitops.agent.objects.manifests import ObjectKey
from tests.modules.gitops.agent.project.test_reconcile import config_maps
from tests.modules.gitops.halves import HalvesTestCase
from tunnel.testing import FakeRequest
from tunnel.testing.cluster import _Connection

CONFIG_MAPS = {("", "ConfigMap"): "v1"}


@attrs.define(eq=False)
class RecordingFollower:
    """A follower of ConfigMaps that records each call."""

    names: Collection[str]
    seen: list[str] = attrs.field(factory=list)
    gone: list[str] = attrs.field(factory=list)

    def keys_of(self, kind: Kind) -> Collection[ObjectKey]:
        return [ObjectKey(*kind, "default", name) for name in self.names]

    def changed(self, key: ObjectKey, metadata: Mapping[str, Any]) -> None:
        self.seen.append(key.name)

    def deleted(self, key: ObjectKey) -> None:
        self.gone.append(key.name)


class LateFollowerTests(HalvesTestCase):
    """The first follower has had the list; others join."""

    def setUp(self) -> None:
        super().setUp()
        for one in config_maps(1, 2, 3):
            metadata = {**one["metadata"], "namespace": "default"}
            self.cluster.objects.put({**one, "metadata": metadata})
        kubernetes = self.agent._api.kubernetes
        self.watches = KindWatches(kubernetes, self.clock, lambda: 1.0)
        self.followers: list[RecordingFollower] = []
        self.addCleanup(self.end)
        self.first = self.join("m001")
        self.passes(1)
        self.since = len(self.cluster.requests)

    def join(self, *names: str) -> RecordingFollower:
        follower = RecordingFollower(names)
        self.followers.append(follower)
        self.watches.follow(follower, CONFIG_MAPS)
        return follower

    def end(self) -> None:
        for one in self.followers:
            self.watches.leave(one)

    def lists(self) -> int:
        return sum(
            "limit=" in one.path and "configmaps" in one.path
            for one in self.cluster.requests[self.since :]
        )

    def test_one_list_is_for_all(self) -> None:
        late = [self.join(f"m{number:03}") for number in range(1, 101)]
        self.passes(JOIN / 2)
        self.assertEqual(self.lists(), 0)
        self.assertEqual(len(self.watches.unwatched(late[0])), 1)
        self.passes(JOIN)
        self.assertEqual(self.lists(), 1)
        self.assertEqual(self.watches.unwatched(late[0]), set())
        self.passes(60)
        self.assertEqual(self.lists(), 1)
        self.assertEqual(len(self.cluster.objects.watchers), 1)

    def test_each_is_told_of_its_own_objects_alone(self) -> None:
        late, none = self.join("m002", "m009"), self.join()
        self.passes(JOIN + 1)
        self.assertEqual((late.seen, late.gone), (["m002"], ["m009"]))
        self.assertEqual((none.seen, none.gone), ([], []))

    def test_one_that_joins_during_a_list(self) -> None:
        self.join("m002")
        later: list[RecordingFollower] = []
        take = self.cluster.take

        def joining(request: FakeRequest) -> Any:
            if not later:
                later.append(self.join("m003"))
            return take(request)

        self.patch(self.cluster, "take", joining)
        self.passes(JOIN + 0.1)
        self.assertEqual((self.lists(), later[0].seen), (1, []))
        self.passes(JOIN + 1)
        self.assertEqual((self.lists(), later[0].seen), (2, ["m003"]))

    def test_a_list_that_fails(self) -> None:
        late = self.join("m002")
        self.cluster.refuses = True
        self.passes(JOIN)
        self.assertEqual(len(self.watches.unwatched(late)), 1)
        self.cluster.refuses = False
        self.passes(2 * RETRY_FIRST + JOIN)
        self.assertEqual(self.watches.unwatched(late), set())
        self.assertEqual(late.seen, ["m002"])

    def test_one_that_leaves_before_the_list(self) -> None:
        late = self.join("m002")
        self.watches.leave(late)
        self.passes(JOIN + 1)
        self.assertEqual((self.lists(), late.seen), (0, []))

    def test_the_last_one_that_leaves(self) -> None:
        late = self.join("m002")
        self.cluster.silent = True
        self.clock.advance(JOIN)
        self.watches.leave(late)
        self.watches.leave(self.first)
        self.passes(JOIN + 1)
        self.assertEqual((late.seen, len(self.cluster.objects.watchers)), ([], 0))

    def test_a_list_of_the_watch_is_for_late_ones_as_well(self) -> None:
        late = self.join("m002")
        self.cluster.objects.forget()
        self.cluster.cut()
        self.passes(JOIN + 4)
        self.assertEqual((late.seen, self.watches.unwatched(late)), (["m002"], set()))

    def test_lists_of_all_kinds_together(self) -> None:
        kinds = {
            ("", "ConfigMap"): "v1",
            ("", "Secret"): "v1",
            ("", "Service"): "v1",
            ("apps", "Deployment"): "apps/v1",
        }
        self.watches.follow(self.first, kinds)
        self.passes(1)
        self.since = len(self.cluster.requests)
        self.watches.follow(self.join(), kinds)
        sent: list[bytes] = []
        self.patch(_Connection, "write", lambda _, data: sent.append(data))
        self.passes(JOIN)
        self.assertEqual(len(sent), CATCH_UPS)
