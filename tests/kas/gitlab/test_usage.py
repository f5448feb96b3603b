"""How much is used, told to GitLab by one of several kas, and never lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from kas.gitlab import usage
from kas.gitlab.usage import UsageReport, used_via
from tests.kas.gitlab.cases import GitLabCase
from tunnel.api import Usage
from tunnel.hosting.stores import Stores
from tunnel.testing import FakeStore

PERIOD = 60.0
REQUEST = Usage(counters=("k8s_api_proxy_request",))


class UsageTests(GitLabCase):
    """`UsageReport`."""

    def setUp(self) -> None:
        super().setUp()
        self.backend = FakeStore(self.clock)
        self.store = Stores(lambda: self.backend, self.clock).open("kas", "usage")

    def report(self, me: str) -> UsageReport:
        """That of one kas."""
        made = UsageReport(self.client.post, self.store, me, PERIOD, self.clock)
        made.start()
        return made

    def sent(self) -> dict[str, Any]:
        """All reports together."""
        counters: dict[str, int] = {}
        unique: dict[str, set[int]] = {}
        for one in self.gitlab.usage:
            for name, value in one["counters"].items():
                counters[name] = counters.get(name, 0) + value
            for name, ids in one["unique_counters"].items():
                unique.setdefault(name, set()).update(ids)
        self.assert_obeyed()
        return {**counters, **unique}

    def test_of_a_job(self) -> None:
        """Names as GitLab has them; ids once; what is zero is not sent."""
        report = self.report("one")
        for _ in range(3):
            report.count(used_via("ci", 5, 7))
        report.count(used_via("pat", 6, 7))
        report.count(REQUEST)
        self.wait(PERIOD + 1, 1)
        (said,) = self.gitlab.usage
        self.assertEqual(
            said,
            {
                "counters": {
                    "k8s_api_proxy_request": 5,
                    "k8s_api_proxy_requests_via_ci_access": 3,
                    "k8s_api_proxy_requests_via_pat_access": 1,
                },
                "unique_counters": {
                    "agent_users_using_ci_tunnel": [5],
                    "k8s_api_proxy_requests_unique_users_via_ci_access": [5],
                    "k8s_api_proxy_requests_unique_agents_via_ci_access": [7],
                    "k8s_api_proxy_requests_unique_users_via_pat_access": [6],
                    "k8s_api_proxy_requests_unique_agents_via_pat_access": [7],
                },
            },
        )
        self.wait(2 * PERIOD, 1)
        self.assertEqual(len(self.gitlab.usage), 1)
        self.assert_obeyed()

    def test_several_kas(self) -> None:
        """One sends for all in each period."""
        reports = [self.report(name) for name in ("one", "two", "three")]
        for period in range(1, 4):
            for report in reports:
                report.count(REQUEST)
            self.wait(PERIOD, 1)
            self.assertLessEqual(len(self.gitlab.usage), period)
        self.wait(PERIOD, 1)
        self.assertEqual(self.sent(), {"k8s_api_proxy_request": 9})

    def test_gitlab_away(self) -> None:
        """What it did not take is sent later, once."""
        report = self.report("one")
        self.gitlab.control(mood="down")
        for _ in range(3):
            report.count(REQUEST)
            self.wait(PERIOD, 1)
        self.assertEqual(self.gitlab.usage, [])
        self.gitlab.control(mood="ok")
        self.wait(2 * PERIOD, 1)
        self.assertEqual(self.sent(), {"k8s_api_proxy_request": 3})

    def test_store_away(self) -> None:
        """Nothing is lost while Redis is away, and nothing is counted twice."""
        report = self.report("one")
        self.backend.down = True
        for _ in range(3):
            report.count(REQUEST)
            self.wait(PERIOD, 1)
        self.backend.down = False
        self.wait(2 * PERIOD, 1)
        self.assertEqual(self.sent(), {"k8s_api_proxy_request": 3})

    def test_ends(self) -> None:
        """What a kas counted right before its end another one sends."""
        report = self.report("one")
        report.count(REQUEST)
        stopping = Deferred.fromCoroutine(report.stop())
        self.settle()
        self.successResultOf(stopping)
        self.report("two")
        self.wait(PERIOD + 1, 1)
        self.assertEqual(self.sent(), {"k8s_api_proxy_request": 1})

    def test_many(self) -> None:
        """Ids of one batch, of one report and of one name have limits."""
        report = self.report("one")
        for number in range(1, usage.MAX_IDS + 10):
            report.count(used_via("ci", number, 7))
        self.wait(PERIOD + 1, 1)
        found = self.sent()
        self.assertEqual(len(found["agent_users_using_ci_tunnel"]), usage.MAX_IDS)
        self.assertEqual(found["k8s_api_proxy_request"], usage.MAX_IDS + 9)
        self.assertEqual(
            found["k8s_api_proxy_requests_via_ci_access"], usage.MAX_IDS + 9
        )

    def test_largest_batch(self) -> None:
        """It fits into the store."""
        counts = usage._Counts()
        for number in range(usage.MAX_BATCH_IDS + 1):
            counts.add(Usage(unique=(("a" * 100, 2**63 - 1 - number),)))
        for number in range(usage.MAX_NAMES + 10):
            counts.add(Usage(counters=(f"{number:0100}".replace("0", "a", 1),)))
        batches = list(counts.batches())
        self.assertEqual(len(counts.counters), usage.MAX_NAMES)
        self.assertLess(max(map(len, batches)), 65536)
        ids = [json.loads(one)["unique_counters"] for one in batches]
        self.assertEqual(
            sum(len(one) for part in ids for one in part.values()),
            usage.MAX_BATCH_IDS + 1,
        )

    def test_many_batches(self) -> None:
        """More than one request has are sent by several, in one period."""
        report = self.report("one")
        self.gitlab.control(mood="down")
        for _ in range(usage.MAX_SENT + 5):
            report.count(REQUEST)
            self.wait(PERIOD, 10)
        self.gitlab.control(mood="ok")
        self.wait(2 * PERIOD, 1)
        self.assertEqual(self.sent(), {"k8s_api_proxy_request": usage.MAX_SENT + 5})
        self.assertEqual(len(self.gitlab.usage), 2)

    def test_names(self) -> None:
        """A name that GitLab could not have is refused where it is written."""
        for bad in ("", "A", "a b", "a" * 101, "a-b"):
            with self.assertRaises(ValueError):
                Usage(counters=(bad,))
            with self.assertRaises(ValueError):
                Usage(unique=((bad, 1),))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[" * 60_000,
        b"[]",
        b'{"counters": {}}',
        b'{"counters": [], "unique_counters": {}}',
        b'{"counters": {"a": "1"}, "unique_counters": {}}',
        b'{"counters": {"a": true}, "unique_counters": {}}',
        b'{"counters": {"a": -1}, "unique_counters": {}}',
        b'{"counters": {"a": 99999999999999999999}, "unique_counters": {}}',
        b'{"counters": {}, "unique_counters": {"a": 1}}',
        b'{"counters": {}, "unique_counters": {"a": [[]]}}',
    ],
)
def test_batches_that_cannot_be_read(value: bytes) -> None:
    """They are ignored and deleted, and the others are sent."""
    clock = Clock()
    backend = FakeStore(clock)
    store = Stores(lambda: backend, clock).open("kas", "usage")
    sent: list[Any] = []

    async def post(path: str, body: Any) -> None:
        sent.append(body)

    async def keys() -> list[str]:
        return [key async for page in store.keys("batch/") for key in page]

    assert Deferred.fromCoroutine(store.set("batch/0", value)).called
    report = UsageReport(post, store, "one", PERIOD, clock)
    report.count(REQUEST)
    with capturedLogs() as events:
        Deferred.fromCoroutine(report._report())
    assert sent == [{"counters": {"k8s_api_proxy_request": 1}, "unique_counters": {}}]
    (line,) = map(formatEvent, events)
    assert line.startswith("ignoring invalid usage in the store at batch/0: ")
    left: list[Any] = []
    Deferred.fromCoroutine(keys()).addBoth(left.append)
    assert left == [[]]
