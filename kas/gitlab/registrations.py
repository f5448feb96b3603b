"""Which agents registered at this kas, and what they are, told to GitLab."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from kas.gitlab.client import Unprocessable
from tunnel.api import ConnectedAgent
from tunnel.errors import CallError, Status

__all__ = ["Registrations"]

#: Where GitLab takes it, below its internal API, and the name of the event.
PATH, NAME = "agent_events", "register_agent_at_kas"

#: Events that wait for the next report: 400 bytes each.  As many agents as a kas is
#: made for come at once when another one ends; of more, the first.
MAX_EVENTS = 10_000

#: Events of one request: 400 KB.
MAX_SENT = 1_000

#: Events that are dropped in one report because GitLab takes all but them: each costs
#: ten requests, until it is found by halves.
MAX_DROPPED = 10


class Registrations:
    """
    Reporter of registrations, every *period* seconds, with one event for each process.

    It sends refused reports later, and loses them when this process ends: GitLab only
    counts installations with them.

    :param post: sends to GitLab's internal API: path, and body.
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
        #: By agent and process, the first that came first.
        self._events: dict[tuple[str, bytes], Mapping[str, Any]] = {}
        self._problem = ""
        self._loop = LoopingCall(self._tick)
        self._loop.clock = clock

    def connected(self, agent: ConnectedAgent) -> None:
        """
        Register an agent of GitLab that connected; other agents are not registered.
        """
        key = agent.agent_id, agent.instance_id
        if agent.project_id and (key in self._events or len(self._events) < MAX_EVENTS):
            self._events[key] = _event(agent)

    def start(self) -> None:
        """Report from now on."""
        looping: Deferred[LoopingCall] = self._loop.start(self._period, now=False)
        looping.addErrback(lambda failure: self._log.failure("agent events", failure))

    def stop(self) -> None:
        """Report no more."""
        if self._loop.running:
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
                        "GitLab does not take that agent {agent_id} registered, and is "
                        "not told: {problem}",
                        agent_id=keys[0][0],
                        problem=str(error),
                    )
                for key, event in zip(keys, events, strict=True):
                    # A newer one of the same process stays.
                    if self._events.get(key) is event:
                        del self._events[key]
            self._problem = ""
        except CallError as error:
            if error.status is Status.NOT_FOUND:
                # A GitLab of before 16.8 has no such path, and shows nothing of it.
                self._events.clear()
            elif str(error) != self._problem:
                self._problem = str(error)
                self._log.warn(
                    "cannot tell GitLab which agents registered; it is tried again: "
                    "{problem}",
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
