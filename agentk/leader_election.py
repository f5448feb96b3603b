"""
Leader election among an agent's replicas, by a Lease in the cluster.

The Lease, its times and the algorithm are the same as in Kubernetes' own components
(client-go's ``leaderelection``) and in GitLab's agentk: both can compete for the same
Lease while one replaces the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import attrs
from twisted.internet.defer import (
    CancelledError,
    Deferred,
    TimeoutError,
    gatherResults,
)
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from tunnel.api import IKubernetesClient, KubernetesObject
from tunnel.errors import CallError, Status
from tunnel.program.runtime import Runtime
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.time_limit import within

__all__ = ["LeaderElection", "LeaseTimes"]

_API_VERSION = "coordination.k8s.io/v1"

#: Timeout of one request, in seconds; a renewal also ends at its own deadline.
REQUEST_SECONDS = 5.0

#: Timeout of an Event, in seconds; an Event is less important than a renewal.
EVENT_SECONDS = 2.0

#: Random part of the pause between two checks, so that the competitors do not all send
#: their requests at once.  Unlike in client-go, the pause never grows: including the
#: time until a replica sees the last renewal, the next replica leads at most ``duration
#: + 2 * retry`` seconds after this renewal.
JITTER = 0.5

#: Maximum number of seconds that this agentk waits for cancelled work: before it
#: competes again without it, and while it stops.
END_SECONDS, STOP_SECONDS = 60.0, 10.0

#: First and longest pause in seconds before work that failed runs again.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


@attrs.frozen
class LeaseTimes:
    """
    The times of a Lease, in seconds.

    :ivar duration: time after the last renewal when other replicas may take the Lease.
    :ivar renew_deadline: time after the last renewal when the holder stops leading;
        this is less than *duration*, so that the holder's work ends before another
        replica leads.
    :ivar retry: the pause between two attempts.
    """

    duration: int = 15
    renew_deadline: float = 10.0
    retry: float = 2.0


@attrs.define(eq=False)
class _Work:
    name: str
    run: Callable[[], Awaitable[None]]
    running: Deferred[None] | None = None


class LeaderElection:
    """
    Leader election of one agentk: runs work while this agentk leads, and ends the work
    before another replica can become the leader.

    :param client: the client of the API server, with agentk's own rights.
    :param namespace: the Namespace of the Lease.
    :param identity: the name of this agentk in the Lease: the pod's name, if known.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubernetesClient,
        namespace: str,
        identity: str,
        runtime: Runtime,
        times: LeaseTimes = LeaseTimes(),
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._identity = identity
        self._runtime = runtime
        #: Clock for all durations, which is independent of the clocks of other
        #: replicas.
        self._clock: IReactorTime = runtime.reactor
        self._times = times
        self._works: list[_Work] = []
        #: Running work.
        self._running: set[Deferred[None]] = set()
        self._agent_id = ""
        self._stopping = False
        self._competing: Deferred[None] | None = None
        self._pausing: Deferred[None] | None = None
        #: The Lease as it was last seen.
        self._lease: KubernetesObject | None = None
        #: Time since which the Lease has been unchanged.
        self._seen_at = 0.0
        #: Time at which the last renewal began; None if this agentk does not lead.
        self._renewed_at: float | None = None
        self._problem = ""

    @property
    def leading(self) -> bool:
        """
        Whether this agentk leads now.

        False as soon as the last renewal is too old, even if the process was frozen in
        the meantime.
        """
        at = self._renewed_at
        limit = self._times.renew_deadline
        return at is not None and self._clock.seconds() - at < limit

    @property
    def lease(self) -> str:
        """
        Return the Lease as ``namespace/name``; empty if the agent is not known yet.
        """
        if not self._agent_id:
            return ""
        return f"{self._namespace}/{_lease_name(self._agent_id)}"

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._runtime.now(), UTC)

    def agent_is(self, agent_id: str) -> None:
        """Set the id of this agent, as received from kas."""
        if agent_id != self._agent_id:
            self._agent_id = agent_id
            self._compete_where_needed()

    def add(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """
        Run *run* whenever this agentk leads, and cancel it when it does not.

        Failed work runs again, with backoff.

        :param name: the owner of the work, for `withdraw` and the log.
        """
        work = _Work(name, run)
        self._works.append(work)
        if self.leading:
            self._begin(work)
        self._compete_where_needed()

    def withdraw(self, name: str) -> None:
        """End all work that *name* added."""
        for work in [one for one in self._works if one.name == name]:
            self._works.remove(work)
            if work.running is not None:
                work.running.cancel()
        if not self._works:
            self._wake()

    async def stop(self) -> None:
        """End all work, and let another agentk lead at once."""
        self._stopping = True
        self._wake()
        if self._competing is not None:
            try:
                await within(self._competing, 2 * STOP_SECONDS, self._clock)
            except TimeoutError:
                self._log.error("the election of a leader did not end in time")

    # Competition for the Lease.

    def _compete_where_needed(self) -> None:
        if self._competing is not None:
            self._wake()
        elif self._works and self._agent_id and not self._stopping:
            self._competing = Deferred.fromCoroutine(self._compete(self._agent_id))
            self._competing.addErrback(
                lambda failure: self._log.failure("leader election failed", failure)
            )
            self._competing.addCallback(self._competed)

    def _competed(self, _: object) -> None:
        self._competing = None
        # Work may have been added in the meantime, or the agent's id may have changed.
        self._compete_where_needed()

    async def _compete(self, agent_id: str) -> None:
        self._lease = None
        name = _lease_name(agent_id)
        while self._works and self._agent_id == agent_id and not self._stopping:
            try:
                await self._turn(name)
            except Exception:
                # A possible cause is a Lease that another program wrote.
                self._log.failure("competing for lease {name} failed", name=name)
                if self._renewed_at is not None:
                    await self._lost(name)
            leads = self._renewed_at is not None
            jitter = 1 if leads else 1 - JITTER * self._runtime.random()
            await self._pause(self._times.retry * jitter)
        if self._renewed_at is not None:
            held = self._lease
            await self._lost(name)
            await self._release(name, held)

    async def _turn(self, name: str) -> None:
        if self._renewed_at is not None:
            if not await self._renew(name):
                await self._lost(name)
        elif await self._acquire(name):
            self._log.info("this agentk leads: it holds lease {name}", name=name)
            for work in self._works:
                self._begin(work)
            await self._tell(name, "became leader")

    async def _acquire(self, name: str) -> bool:
        begun = self._clock.seconds()
        try:
            lease = await self._ask("GET", name)
        except CallError as error:
            if error.status is not Status.NOT_FOUND:
                self._failed(name, error)
                return False
            lease = None
        if lease is not None and self._is_held(lease):
            self._problem = ""
            return False
        return await self._write(name, lease, begun, REQUEST_SECONDS)

    def _is_held(self, lease: KubernetesObject) -> bool:
        spec = lease.get("spec") or {}
        if self._lease is None or spec != self._lease.get("spec"):
            self._seen_at = self._clock.seconds()
        self._lease = lease
        if spec.get("holderIdentity") in (None, "", self._identity):
            return False
        seconds = int(spec.get("leaseDurationSeconds") or self._times.duration)
        return self._clock.seconds() < self._seen_at + seconds

    async def _renew(self, name: str) -> bool:
        """
        Renew the Lease, with retries until its deadline; return whether this agentk
        still holds it.
        """
        assert self._renewed_at is not None
        end = self._renewed_at + self._times.renew_deadline
        while not self._stopping:
            begun = self._clock.seconds()
            left = end - begun
            if left <= 0:
                return False
            if await self._write(name, self._lease, begun, min(left, REQUEST_SECONDS)):
                return True
            left = end - self._clock.seconds()
            await self._pause(max(0.0, min(self._times.retry, left)))
            left = end - self._clock.seconds()
            if left <= 0:
                return False
            try:
                lease = await self._ask("GET", name, None, min(left, REQUEST_SECONDS))
            except CallError as error:
                self._failed(name, error)
                continue
            if (lease.get("spec") or {}).get("holderIdentity") != self._identity:
                return False
            self._lease = lease
        return True

    async def _write(
        self, name: str, lease: KubernetesObject | None, begun: float, seconds: float
    ) -> bool:
        """Take or renew the Lease, unless it has changed since *lease* was read."""
        spec = dict((lease or {}).get("spec") or {})
        now = _micro_time(self._now())
        if spec.get("holderIdentity") != self._identity:
            taken = spec.get("leaseTransitions", 0) + 1 if lease is not None else 0
            spec |= {"acquireTime": now, "leaseTransitions": taken}
        spec |= {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._times.duration,
            "renewTime": now,
        }
        metadata = {"name": name, "namespace": self._namespace}
        written = {
            "apiVersion": _API_VERSION,
            "kind": "Lease",
            "metadata": metadata if lease is None else lease["metadata"],
            "spec": spec,
        }
        try:
            self._lease = await self._ask(
                "POST" if lease is None else "PUT", name, written, seconds
            )
        except CallError as error:
            if error.status is not Status.ABORTED:
                self._failed(name, error)
            return False
        # The time before the request is used, because it is not later than the time in
        # the Lease.
        self._renewed_at = begun
        self._problem = ""
        return self.leading

    async def _lost(self, name: str) -> None:
        self._renewed_at = self._lease = None
        self._log.info("this agentk does not lead any more: lease {name}", name=name)
        for running in tuple(self._running):
            running.cancel()
        ends = gatherResults(
            [_end_of(one) for one in self._running], consumeErrors=True
        )
        seconds = STOP_SECONDS if self._stopping else END_SECONDS
        try:
            await within(ends, seconds, self._clock)
        except TimeoutError:
            left = {one.name for one in self._works if one.running in self._running}
            self._log.error(
                "work of module {names} has not ended {seconds:g} s after it was "
                "cancelled; it does not begin again until it ends: correct the module, "
                "which must not catch CancelledError",
                names=", ".join(sorted(left)),
                seconds=seconds,
            )

    async def _release(self, name: str, lease: KubernetesObject | None) -> None:
        if lease is None:
            return
        now = _micro_time(self._now())
        freed = {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": now,
            "renewTime": now,
        }
        try:
            await self._ask("PUT", name, {**lease, "spec": {**lease["spec"], **freed}})
            await self._tell(name, "stopped leading")
        except CallError as error:
            self._failed(name, error)

    # Requests.

    async def _ask(
        self, method: str, name: str, body: Any = None, seconds: float = REQUEST_SECONDS
    ) -> KubernetesObject:
        path = f"/apis/{_API_VERSION}/namespaces/{self._namespace}/leases"
        if method != "POST":
            path += f"/{name}"
        found: KubernetesObject = await self._client.json(
            method, path, body, timeout=seconds
        )
        return found

    async def _tell(self, name: str, what: str) -> None:
        """
        Create an Event of the Lease, for ``kubectl describe``; nothing depends on it.
        """
        now = self._now()
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{name}.{int(now.timestamp() * 1e6):x}",
                "namespace": self._namespace,
            },
            "involvedObject": {
                "apiVersion": _API_VERSION,
                "kind": "Lease",
                "name": name,
                "namespace": self._namespace,
            },
            "reason": "LeaderElection",
            "message": f"{self._identity} {what}",
            "type": "Normal",
            "source": {"component": "agentk"},
            "firstTimestamp": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lastTimestamp": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "count": 1,
        }
        path = f"/api/v1/namespaces/{self._namespace}/events"
        try:
            await self._client.json("POST", path, event, timeout=EVENT_SECONDS)
        except CallError as error:
            self._log.debug("no event of the lease: {error}", error=error)

    def _failed(self, name: str, error: CallError) -> None:
        advice = ""
        if error.status is Status.PERMISSION_DENIED:
            advice = (
                "; agentk's service account must be permitted to get, create and "
                "update leases "
            )
            advice += f"in namespace {self._namespace} (see `kasctl agent manifest`)"
        problem = f"{error}{advice}"
        if problem != self._problem:
            self._problem = problem
            self._log.warn(
                "cannot hold lease {name}, so work of the leader may be suspended: "
                "{problem}",
                name=name,
                problem=problem,
            )

    # Waiting and working.

    async def _pause(self, seconds: float) -> None:
        if self._stopping:
            return
        self._pausing = deferLater(self._clock, seconds)
        try:
            await self._pausing
        except CancelledError:
            pass
        finally:
            self._pausing = None

    def _wake(self) -> None:
        if self._pausing is not None:
            self._pausing.cancel()

    def _begin(self, work: _Work) -> None:
        before = work.running
        if before is not None and before in self._running:
            # The same work must not run twice.
            before.addBoth(lambda _: self._begin_after(work, before))
            return
        running = work.running = Deferred.fromCoroutine(self._run(work))
        self._running.add(running)
        running.addBoth(lambda _: self._running.discard(running))

    def _begin_after(self, work: _Work, before: Deferred[None]) -> None:
        """Begin work that had to wait for its earlier run to end."""
        if work.running is before and work in self._works and self.leading:
            self._begin(work)

    async def _run(self, work: _Work) -> None:
        backoff = Backoff(self._runtime.random, FIRST_PAUSE, LONGEST_PAUSE)
        while self.leading:
            try:
                await work.run()
                return
            except Exception as error:
                ended = not self.leading or work not in self._works
                if ended and isinstance(error, CancelledError):
                    return
                self._log.failure("module {name} failed as a leader", name=work.name)
            await deferLater(self._clock, backoff.pause())


def _lease_name(agent_id: str) -> str:
    return f"agent-{agent_id}-lock"


def _end_of(running: Deferred[None]) -> Deferred[None]:
    """
    Return a Deferred that fires when *running* ends; cancelling it does not cancel
    *running*.
    """
    ended: Deferred[None] = Deferred()

    def end(result: object) -> object:
        ended.callback(None)
        return result

    running.addBoth(end)
    return ended


def _micro_time(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
