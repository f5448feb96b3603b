"""
Times when agents were last connected, for clients of absent agents.

A kas keeps its own observations in memory, and saves them in its state directory.
Several kas share their observations through a store, which is read only when a request
waits for an absent agent, or when an operator lists agents.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from kas.state.directory import StateDirectory
from tunnel.api import (
    AgentConnected,
    AgentDisconnected,
)
from tunnel.errors import ConfigurationError, TunnelError
from tunnel.program.runtime import Runtime
from tunnel.toolkit.recent import Recent
from tunnel.toolkit.timers import call_by, cancel_call

__all__ = ["FILE_NAME", "LastSeen", "ago"]

FILE_NAME = "last-seen.json"

#: Seconds from a change until it is saved, so that many simultaneous connections need
#: only one write.
SAVE_DELAY = 10.0

#: Seconds between two writes while agents are connected: the precision of the times
#: after a kas was killed.
SAVE_INTERVAL = 300.0

#: Minimum seconds between two queries to the store about one agent, however many
#: requests wait.
ASK_INTERVAL = 10.0

#: Maximum number of agents whose time is remembered; ten times the agents of a large
#: kas.  Only agents with a valid token count, so this limits the memory and the file,
#: at
MAX_AGENTS = 100_000

_VERSION = 1


class KnownAgent(Protocol):
    """Interface of an agent that may connect."""

    @property
    def name(self) -> str: ...

    @property
    def created_at(self) -> datetime: ...


class Shared(Protocol):
    """Interface to the times that several kas share; see `kas.directory.Directory`."""

    async def last_seen(self, agent_ids: Sequence[str]) -> dict[str, float]:
        """
        Return the time when each agent was last connected to any kas; agents whose time
        is unknown are left out.
        """


@attrs.define(eq=False)
class LastSeen:
    """
    Record of the times at which agents were last connected, in seconds since 1970.

    :param connected: returns the ids of the agents that are connected to this kas now.
    :param find: returns an agent that may connect, by its id.
    """

    _state: StateDirectory
    _connected: Callable[[], Iterable[str]]
    _find: Callable[[str], KnownAgent | None]
    _shared: Shared
    _runtime: Runtime
    _seen: Recent[str, float] = attrs.field(
        factory=lambda: Recent(MAX_AGENTS), init=False
    )
    #: Time since which this kas, or another kas with the same state directory, records
    #: the times.
    _since: float = attrs.field(default=math.inf, init=False)
    _asked: dict[str, float] = attrs.field(factory=dict, init=False)
    #: Agents whose record the store has returned.
    _answered: set[str] = attrs.field(factory=set, init=False)
    _saving: IDelayedCall | None = attrs.field(default=None, init=False)
    _running: bool = attrs.field(default=False, init=False)
    _complained: bool = attrs.field(default=False, init=False)
    _log = Logger()

    def start(self) -> None:
        """Read the saved times, and follow connects and disconnects."""
        self._running = True
        self._since = self._runtime.now()
        self._merge_file()
        bus = self._runtime.bus
        bus.subscribe("kas", AgentConnected, self._changed)
        bus.subscribe("kas", AgentDisconnected, self._changed)
        self._save_within(SAVE_INTERVAL)

    def stop(self) -> None:
        """Save the times."""
        self._running = False
        cancel_call(self._saving)
        self._saving = None
        self._save()

    def _changed(self, event: AgentConnected | AgentDisconnected) -> None:
        self._note(event.agent.agent_id, self._runtime.now())
        self._save_within(SAVE_DELAY)

    def _note(self, agent_id: str, when: float) -> None:
        self._seen[agent_id] = max(self._seen.get(agent_id, when), when)

    # Methods that query the times.

    def known(self, agent_id: str) -> float | None:
        """
        Return when this kas last saw an agent that is not connected now; None if this
        kas has never seen it.
        """
        return self._seen.get(agent_id)

    async def of(self, agent_ids: Sequence[str]) -> dict[str, float]:
        """
        Return when each agent was last connected to any kas; agents that never
        connected are left out.
        """
        self._merge(await self._shared.last_seen(agent_ids))
        self._answered.update(agent_ids)
        return {one: self._seen[one] for one in agent_ids if one in self._seen}

    def sought(self, agent_id: str) -> None:
        """
        Query the store in the background, at a limited rate, because a request waits
        for the agent.
        """
        now = self._runtime.reactor.seconds()
        if now - self._asked.get(agent_id, -math.inf) < ASK_INTERVAL:
            return
        if len(self._asked) >= MAX_AGENTS:
            self._asked.clear()
            self._answered.clear()
        self._asked[agent_id] = now
        asking = Deferred.fromCoroutine(self.of([agent_id]))
        asking.addErrback(self._not_answered)

    def _not_answered(self, failure: Failure) -> None:
        if failure.check(TunnelError) is None:
            self._log.failure("querying when an agent was last seen failed", failure)

    def never(self, agent_id: str) -> bool:
        """
        Return whether an agent has certainly never connected to any kas.

        This is certain if the agent was added after `_since`, and if the store, which
        `sought` queries, has responded about the agent.
        """
        agent = self._find(agent_id)
        return (
            agent_id in self._answered
            and agent_id not in self._seen
            and agent is not None
            and agent.created_at.timestamp() >= self._since
        )

    def name(self, agent_id: str) -> str:
        """Return the name of an agent, or its id if the name is not known."""
        agent = self._find(agent_id)
        return agent_id if agent is None else agent.name

    def absence(self, agent_id: str) -> str:
        """
        Return the beginning of a sentence that says that the agent is not connected,
        and since when.
        """
        agent, name = self._find(agent_id), self.name(agent_id)
        seen = self._seen.get(agent_id)
        if seen is not None:
            when = _time_of_day(seen)
            return (
                f"agent {name} is not connected; last seen {when} "
                f"({ago(self._runtime.now() - seen)})"
            )
        if agent is not None and agent.created_at.timestamp() >= self._since:
            return f"agent {name} has never connected"
        if self._since < math.inf:
            since = _time_of_day(self._since)
            return f"agent {name} is not connected, and has not been since {since}"
        return f"agent {name} is not connected"

    # Methods that read and write the file.

    def _save_within(self, seconds: float) -> None:
        if not self._running:
            return
        due = self._runtime.reactor.seconds() + seconds
        self._saving = call_by(
            due, self._saving, self._save_again, self._runtime.reactor
        )

    def _save_again(self) -> None:
        self._saving = None
        self._save()
        self._save_within(SAVE_INTERVAL)

    def _save(self) -> None:
        now = self._runtime.now()
        for agent_id in self._connected():
            self._note(agent_id, now)
        # Several kas may share the directory; the next write of each kas repeats the
        # data that another kas overwrote between this read and the write.
        self._merge_file()
        content = {
            "version": _VERSION,
            "since": round(self._since),
            "agents": {
                agent_id: round(seen)
                for agent_id, seen in self._seen.items()
                if self._find(agent_id) is not None
            },
        }
        data = json.dumps(content).encode() + b"\n"
        try:
            self._state.write(FILE_NAME, data, durable=False)
        except OSError as error:
            if not self._complained:
                self._log.warn(
                    "cannot write {file} ({reason}): after a restart, kas will not "
                    "know when agents were last seen",
                    file=str(self._state.file(FILE_NAME)),
                    reason=error.strerror,
                )
            self._complained = True
        else:
            self._complained = False

    def _merge_file(self) -> None:
        # Ignore errors, because only programs write the file, and nothing depends on
        # it.
        try:
            content = json.loads(self._state.read(FILE_NAME) or b"{}")
            since, agents = float(content.get("since", math.inf)), content["agents"]
            read = {str(one): float(seen) for one, seen in agents.items()}
        except (
            OSError,
            ConfigurationError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
        ):
            return
        self._since = min(self._since, since)
        self._merge(read)

    def _merge(self, found: Mapping[str, float]) -> None:
        # Ignore a time in the future, which comes from a wrong clock.
        latest = self._runtime.now()
        for agent_id, seen in found.items():
            if 0 < seen <= latest:
                self._note(agent_id, seen)


def _time_of_day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(seconds: float) -> str:
    """
    Return a text like ``5 minutes ago``, in the largest unit that fits at least once.
    """
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number} {unit}{'' if number == 1 else 's'} ago"
    # Return a text that is constant for a while, so that clients that retry show it
    # only once.
    return "less than a minute ago"
