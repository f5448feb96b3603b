"""Which agentk leads, by a Lease in an API server in memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from agentk.leader_election import END_SECONDS, STOP_SECONDS, LeaderElection
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import KubernetesClients
from tunnel.program.runtime import Runtime
from tunnel.testing import FakeCluster

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Work:
    """Runs until it is cancelled, and then for as long as it is told to."""

    def __init__(self) -> None:
        self.running = False
        self.begun = 0
        self.ending: Deferred[None] | None = None

    async def run(self) -> None:
        self.running = True
        self.begun += 1
        try:
            await Deferred()
        except CancelledError:
            if self.ending is not None:
                await self.ending
        finally:
            self.running = False


class LeaderElectionTests(SynchronousTestCase):
    """`LeaderElection`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cluster = FakeCluster(self.clock)

    def candidate(
        self, identity: str, agent_id: str = "7"
    ) -> tuple[LeaderElection, Work]:
        """One that competes, and what it runs."""
        pool = UpstreamPool(self.cluster.endpoint, self.clock)
        clients = KubernetesClients(self.cluster, pool, self.clock, jitter=lambda: 0.0)
        election = LeaderElection(
            clients.as_agentk(),
            "txkas",
            identity,
            Runtime(
                reactor=self.clock,
                random=lambda: 0.0,
                now=lambda: EPOCH.timestamp() + self.clock.seconds(),
            ),
        )
        work = Work()
        election.add("gitops", work.run)
        election.agent_is(agent_id)
        return election, work

    def pass_(self, seconds: float) -> None:
        for _ in range(round(seconds * 20)):
            self.clock.advance(0.05)

    def spec(self, name: str = "agent-7-lock") -> dict[str, Any]:
        lease = self.cluster.objects.find(
            "coordination.k8s.io/v1", "Lease", name, "txkas"
        )
        assert lease is not None
        spec: dict[str, Any] = lease["spec"]
        return spec

    def stop(self, election: LeaderElection) -> None:
        stopping = Deferred.fromCoroutine(election.stop())
        self.pass_(1)
        self.successResultOf(stopping)

    def test_first(self) -> None:
        """The first leads, and renews; the Lease has the names of client-go."""
        election, work = self.candidate("one")
        self.pass_(1)
        self.assertTrue(election.leading and work.running)
        spec = self.spec()
        begun = "2026-01-01T00:00:00.000000Z"
        self.assertEqual(
            spec,
            {
                "holderIdentity": "one",
                "leaseDurationSeconds": 15,
                "acquireTime": spec["renewTime"],
                "renewTime": spec["renewTime"],
                "leaseTransitions": 0,
            },
        )
        self.assertTrue(begun <= spec["renewTime"] < "2026-01-01T00:00:01")
        self.pass_(60)
        self.assertTrue(election.leading)
        self.assertEqual(work.begun, 1)
        later = self.spec()
        self.assertEqual(later["acquireTime"], spec["acquireTime"])
        self.assertGreater(later["renewTime"], "2026-01-01T00:00:55")

    def test_nothing_to_lead(self) -> None:
        """Without work, or before kas said which agent this is, nobody competes."""
        pool = UpstreamPool(self.cluster.endpoint, self.clock)
        clients = KubernetesClients(self.cluster, pool, self.clock, jitter=lambda: 0.5)
        election = LeaderElection(
            clients.as_agentk(), "a", "one", Runtime(reactor=self.clock)
        )
        election.agent_is("7")
        self.pass_(10)
        self.assertEqual(self.cluster.requests, [])
        other, _ = self.candidate("two", agent_id="")
        self.pass_(10)
        self.assertEqual(self.cluster.requests, [])
        for one in (election, other):
            self.stop(one)

    def test_release(self) -> None:
        """One that stops lets the other lead within a look."""
        first, work = self.candidate("one")
        self.pass_(1)
        second, other = self.candidate("two")
        self.pass_(30)
        self.assertFalse(second.leading or other.running)
        self.stop(first)
        self.assertFalse(first.leading or work.running)
        self.assertIn(self.spec()["holderIdentity"], ("", "two"))
        self.pass_(5)
        self.assertTrue(second.leading and other.running)
        self.assertEqual(self.spec()["leaseTransitions"], 1)

    def test_gone(self) -> None:
        """One that renews no more is replaced after its time, not before."""
        first, _ = self.candidate("one")
        self.pass_(1)
        second, _ = self.candidate("two")
        self.pass_(1)
        # As after SIGKILL: nothing of it runs any more.
        first._works.clear()
        first._renewed_at = None
        renewed = self.clock.seconds()
        while not second.leading:
            self.pass_(0.1)
            self.assertLess(self.clock.seconds() - renewed, 20)
        self.assertGreater(self.clock.seconds() - renewed, 10)

    def test_clocks(self) -> None:
        """Times in the Lease are not compared with our clock."""
        first, _ = self.candidate("one")
        second, _ = self.candidate("two")
        for one, days in ((first, -900), (second, 900)):
            wrong = (EPOCH + timedelta(days=days)).timestamp()
            one._runtime = attrs.evolve(one._runtime, now=partial(float, wrong))
        self.pass_(60)
        self.assertEqual([first.leading, second.leading], [True, False])

    def test_cut_off(self) -> None:
        """Without the API server it leads up to the deadline, and again later."""
        election, work = self.candidate("one")
        self.pass_(1)
        self.cluster.refuses = True
        self.cluster.cut()
        self.pass_(8)
        self.assertTrue(election.leading and work.running)
        self.pass_(3)
        self.assertFalse(election.leading or work.running)
        self.cluster.refuses = False
        self.pass_(20)
        self.assertTrue(election.leading and work.running)
        self.assertEqual(work.begun, 2)

    def test_silent(self) -> None:
        """With an API server that answers nothing it leads up to the deadline."""
        for after in (0.2, 1.0, 1.9):
            election, work = self.candidate(f"after {after}")
            self.pass_(after)
            self.assertTrue(work.running)
            self.cluster.silent = True
            for _ in range(300):
                self.pass_(0.05)
                self.assertEqual(work.running, election.leading)
            self.assertFalse(work.running)
            self.cluster.silent = False
            self.pass_(20)
            self.stop(election)

    def test_work_that_cancels_itself(self) -> None:
        """It runs again as other work that fails, while this agentk leads."""
        election, _ = self.candidate("one")
        tried: list[float] = []

        async def cancelled() -> None:
            tried.append(self.clock.seconds())
            inner: Deferred[None] = Deferred()
            self.clock.callLater(0.1, inner.cancel)
            await inner

        election.add("drift", cancelled)
        self.pass_(10)
        self.assertGreater(len(tried), 2)
        self.flushLoggedErrors(CancelledError)
        election.withdraw("drift")
        count = len(tried)
        self.pass_(60)
        self.assertEqual(len(tried), count)

    def test_frozen(self) -> None:
        """One that was frozen does not lead, even before anything of it has run."""
        election, _ = self.candidate("one")
        self.pass_(1)
        self.clock.rightNow += 30
        self.assertFalse(election.leading)

    def test_taken(self) -> None:
        """One whose Lease another one has ends its work, at the next renewal."""
        election, work = self.candidate("one")
        self.pass_(1)
        lease = self.cluster.objects.find(
            "coordination.k8s.io/v1", "Lease", "agent-7-lock", "txkas"
        )
        assert lease is not None
        lease["spec"]["holderIdentity"] = "two"
        self.cluster.objects.put(lease)
        self.pass_(5)
        self.assertFalse(election.leading or work.running)
        self.assertEqual(self.spec()["holderIdentity"], "two")

    def test_touched(self) -> None:
        """Somebody else's change of the Lease, as a label, costs nothing."""
        election, work = self.candidate("one")
        self.pass_(1)
        lease = self.cluster.objects.find(
            "coordination.k8s.io/v1", "Lease", "agent-7-lock", "txkas"
        )
        assert lease is not None
        lease["metadata"]["labels"] = {"by": "hand"}
        self.cluster.objects.put(lease)
        self.pass_(30)
        self.assertTrue(election.leading)
        self.assertEqual(work.begun, 1)

    def test_slow_end(self) -> None:
        """It does not compete again before its work has ended."""
        election, work = self.candidate("one")
        work.ending = Deferred()
        self.pass_(1)
        self.cluster.refuses = True
        self.cluster.cut()
        self.pass_(12)
        self.cluster.refuses = False
        self.pass_(30)
        self.assertTrue(work.running)
        self.assertFalse(election.leading)
        ending, work.ending = work.ending, None
        ending.callback(None)
        self.pass_(5)
        self.assertTrue(election.leading and work.running)
        self.assertEqual(work.begun, 2)

    def test_work_that_survives_its_cancellation(self) -> None:
        """The work of others goes on; this one does not run twice."""
        election, work = self.candidate("one")
        other = Work()
        election.add("other", other.run)
        work.ending = Deferred()
        self.pass_(1)
        self.cluster.refuses = True
        self.cluster.cut()
        self.pass_(12)
        self.cluster.refuses = False
        with capturedLogs() as events:
            self.pass_(END_SECONDS + 5)
        self.assertIn(
            "work of module gitops has not ended 60 s",
            "".join(map(formatEvent, events)),
        )
        self.assertTrue(election.leading and other.running)
        self.assertEqual((work.begun, other.begun), (1, 2))
        ending, work.ending = work.ending, None
        ending.callback(None)
        self.pass_(1)
        self.assertTrue(work.running)
        self.assertEqual(work.begun, 2)

    def test_stop_while_work_survives(self) -> None:
        """agentk stops all the same, and releases its Lease."""
        election, work = self.candidate("one")
        work.ending = Deferred()
        self.pass_(1)
        stopping = Deferred.fromCoroutine(election.stop())
        self.pass_(STOP_SECONDS + 1)
        self.successResultOf(stopping)
        self.assertEqual(self.spec()["holderIdentity"], "")

    def test_forbidden(self) -> None:
        """What the service account lacks is said once, with what to do."""
        path = "/apis/coordination.k8s.io/v1/namespaces/txkas/leases/agent-7-lock"
        refusal = {"kind": "Status", "message": "leases are forbidden", "code": 403}
        self.cluster.answer("GET", path, refusal, 403)
        with capturedLogs() as logs:
            election, _ = self.candidate("one")
            self.pass_(30)
        self.assertFalse(election.leading)
        (said,) = [formatEvent(one) for one in logs if "cannot hold" in str(one)]
        self.assertIn("leases are forbidden", said)
        self.assertIn("kasctl agent manifest", said)

    def test_failing_work(self) -> None:
        """It runs again, with pauses that grow; other work does not notice."""
        election, work = self.candidate("one")
        tried: list[float] = []

        async def fail() -> None:
            tried.append(self.clock.seconds())
            raise ValueError("broken")

        election.add("drift", fail)
        self.pass_(20)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), len(tried))
        pauses = [b - a for a, b in pairwise(tried)]
        self.assertEqual(pauses, sorted(pauses))
        self.assertTrue(3 <= len(tried) <= 7, tried)
        self.assertEqual((work.begun, work.running), (1, True))

    def test_withdrawn(self) -> None:
        """A module that stops takes its work along; the last one frees the Lease."""
        election, work = self.candidate("one")
        other = Work()
        election.add("drift", other.run)
        self.pass_(1)
        election.withdraw("gitops")
        self.assertEqual([work.running, other.running], [False, True])
        self.pass_(5)
        self.assertTrue(election.leading)
        election.withdraw("drift")
        self.pass_(1)
        self.assertFalse(election.leading)
        self.assertEqual(self.spec()["holderIdentity"], "")
        election.add("drift", other.run)
        self.pass_(5)
        self.assertTrue(election.leading and other.running)

    def test_another_agent(self) -> None:
        """With another agent's token, it leads that agent's."""
        election, work = self.candidate("one")
        self.pass_(1)
        election.agent_is("8")
        self.pass_(5)
        self.assertTrue(election.leading and work.running)
        self.assertEqual(self.spec()["holderIdentity"], "")
        self.assertEqual(self.spec("agent-8-lock")["holderIdentity"], "one")

    def test_strange_lease(self) -> None:
        """A Lease that no client of ours wrote ends nothing for ever."""
        strange = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "agent-7-lock", "namespace": "txkas"},
            "spec": {"holderIdentity": "two", "leaseDurationSeconds": "long"},
        }
        self.cluster.objects.put(strange)
        election, _ = self.candidate("one")
        self.pass_(10)
        self.assertFalse(election.leading)
        self.assertTrue(self.flushLoggedErrors(ValueError))
        self.cluster.objects.remove(
            "coordination.k8s.io/v1", "Lease", "agent-7-lock", "txkas"
        )
        self.pass_(10)
        self.assertTrue(election.leading)

    def test_events(self) -> None:
        """``kubectl describe lease`` tells who led."""
        election, _ = self.candidate("one")
        self.pass_(1)
        self.stop(election)
        told = [
            one.body.decode()
            for one in self.cluster.requests
            if one.path.endswith("/events")
        ]
        self.assertEqual(len(told), 2)
        self.assertIn("one became leader", told[0])
        self.assertIn("one stopped leading", told[1])
