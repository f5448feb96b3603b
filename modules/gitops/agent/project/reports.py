"""Reports of drift, to kas and as Events of the objects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from modules.gitops.agent.drift.drift import Drift, DriftState
from modules.gitops.agent.objects.error_statuses import UNDECIDED
from modules.gitops.agent.project.messages import drift_message
from modules.gitops.wire import control_pb2, reports_pb2
from tunnel.api import IKubernetesClient, IServiceClient
from tunnel.errors import CallError, Status
from tunnel.toolkit.allowance import Allowance
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.parallel import in_parallel
from tunnel.toolkit.recent import Recent

__all__ = ["DriftReports"]

#: Maximum number of drifts that wait to be reported; if more wait, agentk drops the
#: oldest.
MAX_WAITING = 500

#: Maximum number of drifts in one call, and seconds between two calls, so that drifts
#: that happen at the same time share a call.
MAX_TOLD, TELL_PAUSE = 100, 1.0

#: Maximum bytes of drifts in one call: kas accepts twice as much.
MAX_TOLD_BYTES = 512 * 1024

#: The timeout of one call, in seconds.
TELL_SECONDS = 10.0

#: Seconds before agentk reports again after a failure: minimum and maximum of the
#: backoff.
AGAIN_FIRST, AGAIN_MOST = 5.0, 60.0

#: Maximum number of Kubernetes Events in a period, over all objects, and the seconds of
#: that period.
EVENTS, EVENTS_SECONDS = 30, 60.0

#: Maximum number of Events that wait while the API server does not respond; if more
#: wait, agentk drops the oldest.
MAX_EVENTS = 100

#: Seconds between two equal Events about one object, and maximum number of objects
#: whose last Event agentk remembers.
SAME_SECONDS, SAME_OBJECTS = 600.0, 1000

#: Reasons of Events, for the outcomes that have Events.
_REASONS = {
    DriftState.REPORTED: "Drifted",
    DriftState.REPAIRED: "DriftRepaired",
    DriftState.PAUSED: "DriftRepairPaused",
    DriftState.FAILED: "DriftRepairFailed",
}


@attrs.define(eq=False)
class DriftReports:
    """
    Reporter of drift, to kas and as Events of the objects.

    :param now: returns the time in seconds since 1970.
    """

    _log = Logger()

    _kas: IServiceClient
    _client: IKubernetesClient
    _clock: IReactorTime
    _random: Callable[[], float]
    _now: Callable[[], float]
    _waiting: deque[control_pb2.ObjectDrift] = attrs.field(factory=deque)
    _left_out: int = 0
    _events: deque[dict[str, Any]] = attrs.field(factory=deque)
    _events_left_out: int = 0
    #: Time of the last equal Event, by its object and text.
    _said: Recent[tuple[str, str], float] = attrs.field(
        factory=lambda: Recent(SAME_OBJECTS)
    )
    _allowed: Allowance = attrs.field(
        factory=lambda: Allowance(EVENTS, EVENTS_SECONDS), init=False
    )
    _wakes: list[Deferred[None]] = attrs.field(factory=list)

    def add(self, project: str, drift: Drift) -> None:
        """Add a drift that was found, or whose state has changed."""
        self._waiting.append(drift_message(project, drift))
        if len(self._waiting) > MAX_WAITING:
            self._waiting.popleft()
            self._left_out += 1
        self._add_event(project, drift)
        wakes, self._wakes = self._wakes, []
        for one in wakes:
            one.callback(None)

    async def run(self) -> None:
        """Send reports and Events until cancelled."""
        await in_parallel([self._tell_kas, self._make_events])

    async def _woken(self) -> None:
        wake: Deferred[None] = Deferred(lambda one: self._wakes.remove(one))
        self._wakes.append(wake)
        await wake

    # Reports to kas.

    async def _tell_kas(self) -> None:
        backoff = Backoff(self._random, AGAIN_FIRST, AGAIN_MOST)
        most = MAX_TOLD
        while True:
            if not self._waiting:
                await self._woken()
            await deferLater(self._clock, TELL_PAUSE)
            drifts = self._next(most)
            left_out, self._left_out = self._left_out, 0
            request = reports_pb2.ReportDriftRequest(drifts=drifts, left_out=left_out)
            try:
                await self._kas.call("ReportDrift", request, timeout=TELL_SECONDS)
            except CallError as error:
                if error.status is Status.UNIMPLEMENTED:
                    # An earlier version of kas cannot log drift; only agentk's own log
                    # contains the drift.
                    continue
                self._left_out += left_out
                if error.status is Status.INVALID_ARGUMENT:
                    # kas rejects one of the drifts, but would accept all others, so
                    # send smaller parts.
                    most = max(1, len(drifts) // 2)
                    if len(drifts) <= 1:
                        self._left_out += len(drifts)
                        drifts, most = [], MAX_TOLD
                    self._again(drifts)
                    continue
                self._again(drifts)
                await deferLater(self._clock, backoff.pause())
            else:
                most = MAX_TOLD
                backoff.reset()

    def _next(self, most: int) -> list[control_pb2.ObjectDrift]:
        """Return the drifts of the next call."""
        found: list[control_pb2.ObjectDrift] = []
        room = MAX_TOLD_BYTES
        while self._waiting and len(found) < most:
            room -= self._waiting[0].ByteSize()
            if found and room < 0:
                break
            found.append(self._waiting.popleft())
        return found

    def _again(self, drifts: list[control_pb2.ObjectDrift]) -> None:
        """Queue drifts to be reported again; drop those that do not fit."""
        room = MAX_WAITING - len(self._waiting)
        self._waiting.extendleft(reversed(drifts[-room:] if room else []))
        self._left_out += max(0, len(drifts) - room)

    # Reports as Events of Kubernetes.

    def _add_event(self, project: str, drift: Drift) -> None:
        reason = _REASONS.get(drift.state)
        now = self._clock.seconds()
        if reason is None or self._allowed.wait(now):
            return
        same = (str(drift.key), reason)
        if now - self._said.get(same, -SAME_SECONDS) < SAME_SECONDS:
            return
        self._said[same] = now
        self._allowed.take(now)
        key = drift.key
        time = datetime.fromtimestamp(self._now(), UTC)
        text = time.strftime("%Y-%m-%dT%H:%M:%SZ")
        good = drift.state is DriftState.REPAIRED
        self._events.append(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {
                    "generateName": "agentk-drift-",
                    "namespace": key.namespace or "default",
                },
                "involvedObject": {
                    "apiVersion": drift.api_version,
                    "kind": key.kind,
                    "name": key.name,
                    # ``kubectl describe`` finds the Event by the uid.
                    "uid": drift.uid,
                    **({"namespace": key.namespace} if key.namespace else {}),
                },
                "type": "Normal" if good else "Warning",
                "reason": reason,
                "message": f"GitOps project {project}: {drift}"[:1000],
                "source": {"component": "agentk"},
                "reportingComponent": "agentk",
                "firstTimestamp": text,
                "lastTimestamp": text,
                "count": 1,
            }
        )
        if len(self._events) > MAX_EVENTS:
            self._events.popleft()
            self._events_left_out += 1

    async def _make_events(self) -> None:
        while True:
            if not self._events:
                await self._woken()
                continue
            event = self._events.popleft()
            namespace = event["metadata"]["namespace"]
            path = f"/api/v1/namespaces/{namespace}/events"
            try:
                await self._client.json("POST", path, event)
            except CallError as error:
                # For example, agentk may not create Events, or the Namespace does not
                # exist.
                self._log.debug("no Event was created: {why}", why=error.message)
                if error.status in UNDECIDED:
                    continue
            if self._events_left_out:
                count, self._events_left_out = self._events_left_out, 0
                self._log.info(
                    "{count} Events about drift were dropped while the API server "
                    "did not answer",
                    count=count,
                )
