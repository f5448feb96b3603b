"""Reports to GitLab about the agents that have connected to this kas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from kas.gitlab.client import Unprocessable
from tunnel.api import AgentConnected, ConnectedAgent
from tunnel.errors import CallError, Status
from tunnel.toolkit.repeated import Repeated

__all__ = ["Registrations"]

#: Path of GitLab's internal API, and name of the event.
PATH, NAME = "agent_events", "register_agent_at_kas"

#: Maximum number of events that wait for the next report, with 400 bytes each: the
#: number of agents for which one kas is designed, because all of them may connect at
#: once when another kas ends.  Further events are dropped.
MAX_EVENTS = 10_000

#: Maximum number of events in one request, which take 400 KB.
MAX_SENT = 1_000

#: Maximum number of events that are dropped from one report because GitLab refuses only
#: these events.  Finding such an event takes ten requests, each with half of the events
#: of the last one.
MAX_DROPPED = 10


class Registrations:
    """
    Reporter of registrations, every *period* seconds, with one event for each process.

    A report that GitLab refuses is sent again later.  Reports are lost when this
    process ends, because GitLab uses them only to count installations.

    :param post: posts a body to a path of GitLab's internal API.
    """

    _log = Logger()

    def __init__(
        self,
        post: Callable[[str, Mapping[str, Any]], Awaitable[object]],
        period: float,
        clock: IReactorTime,
    ) -> None:
        self._post = post
        self._period = period
        #: First event of each agent and process.
        self._events: dict[tuple[str, bytes], Mapping[str, Any]] = {}
        self._problem = ""
        self._loop = Repeated(clock, "reporting registered agents", self._tick)

    def connected(self, event: AgentConnected) -> None:
        """Record an agent of GitLab that connected; other agents are ignored."""
        agent = event.agent
        key = agent.agent_id, agent.instance_id
        if agent.project_id and (key in self._events or len(self._events) < MAX_EVENTS):
            self._events[key] = _event(agent)

    def start(self) -> None:
        """Start to report."""
        self._loop.start(self._period)

    def stop(self) -> None:
        """Stop reporting."""
        self._loop.stop()

    def _tick(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._report())

    async def _report(self) -> None:
        size, dropped = MAX_SENT, 0
        try:
            while self._events:
                keys = list(self._events)[:size]
                events = [self._events[key] for key in keys]
                try:
                    await self._post(PATH, {"events": {NAME: events}})
                    size = MAX_SENT
                except Unprocessable as error:
                    if len(keys) > 1:
                        size = len(keys) // 2
                        continue
                    dropped += 1
                    if dropped > MAX_DROPPED:
                        raise
                    self._log.warn(
                        "GitLab refuses the registration of agent {agent_id}, which "
                        "was dropped: {problem}",
                        agent_id=keys[0][0],
                        problem=str(error),
                    )
                for key, event in zip(keys, events, strict=True):
                    # Keep the event if a newer event of the same process has replaced
                    # it.
                    if self._events.get(key) is event:
                        del self._events[key]
            self._problem = ""
        except CallError as error:
            if error.status is Status.NOT_FOUND:
                # GitLab before 16.8 has neither this path nor a use for these events.
                self._events.clear()
            elif str(error) != self._problem:
                self._problem = str(error)
                self._log.warn(
                    "cannot report registered agents to GitLab; retrying: {problem}",
                    problem=self._problem,
                )


def _event(agent: ConnectedAgent) -> Mapping[str, Any]:
    return {
        "project_id": agent.project_id,
        "agent_id": int(agent.agent_id),
        "agent_version": agent.version,
        "architecture": agent.architecture,
        "kubernetes_version": agent.kubernetes_version.git_version,
        "extra_telemetry_data": dict(agent.telemetry),
    }
