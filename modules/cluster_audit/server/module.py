"""The server half: stores events of API servers, and the places of their logs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from zope.interface import implementer, provider

from modules.cluster_audit.server.files import AgentLog
from modules.cluster_audit.server.lines import lines_of
from modules.cluster_audit.wire import cluster_audit_pb2 as wire
from tunnel.api import (
    ConnectedAgent,
    IServerModule,
    IServerModuleApi,
    IServerModuleFactory,
)
from tunnel.config import Size, field
from tunnel.errors import CallError, Status
from tunnel.toolkit.files import in_words
from tunnel.toolkit.peer_slots import PeerSlots
from tunnel.toolkit.recent import Recent

__all__ = ["CLUSTER_AUDIT", "ClusterAuditServer", "ClusterAuditSettings"]

CLUSTER_AUDIT = wire.DESCRIPTOR.services_by_name["ClusterAudit"]

#: Maximum number of events in a request; agentk sends at most this many.
MAX_EVENTS = 500

#: Maximum number of logs of one agent whose places kas remembers, the newest ones: 32
#: files of each of three API servers.
MAX_LOGS = 100

#: Maximum characters of the mark of a log.
MAX_MARK = 80

#: Maximum number of agents whose last line this kas has read; a forgotten one is read
#: again.
MAX_AGENTS = 10_000


def _is_positive_size(instance: object, attribute: object, value: int) -> None:
    if value < 1024 * 1024:
        raise ValueError("the size must be at least 1MiB")


def _is_count(instance: object, attribute: object, value: int) -> None:
    if not 1 <= value <= 1000:
        raise ValueError("the number of files must be between 1 and 1000")


@attrs.frozen(kw_only=True)
class ClusterAuditSettings:
    """Section ``modules.cluster_audit``."""

    directory: Path = field(
        doc="folder with the files AGENT_ID.jsonl, which kas rotates"
    )
    file_size: Size = field(
        default=64 * 1024**2,
        doc="size after which a new file begins",
        validator=_is_positive_size,
    )
    files: int = field(
        default=8,
        doc="number of files of each agent; kas removes the oldest ones",
        validator=_is_count,
    )


@provider(IServerModuleFactory)
@implementer(IServerModule)
class ClusterAuditServer:
    """
    Implementation of `ClusterAudit`.

    :ivar now: returns the time in seconds since 1970; a test may set another function.
    """

    _log = Logger()
    configuration = ClusterAuditSettings

    def __init__(self, api: IServerModuleApi) -> None:
        self.name = api.name
        self._settings: ClusterAuditSettings = api.configuration
        self.now = time.time
        self._store = api.stores.open("places")
        #: One request of each agent at a time, so that an agent that repeats a request
        #: cannot store it twice, nor use more than one thread.
        self._turns: PeerSlots[str] = PeerSlots(1)
        #: Agents whose last line was compared with the stored place.
        self._compared: Recent[str, None] = Recent(MAX_AGENTS)
        self._is_broken = False
        api.calls.handle(CLUSTER_AUDIT, self)

    async def start(self) -> None:
        """Do nothing: agents begin."""

    async def stop(self) -> None:
        """Do nothing: each request ends by itself."""

    async def get_places(
        self, request: wire.GetPlacesRequest, call: Any
    ) -> wire.GetPlacesResponse:
        """Return the places of logs of the calling agent."""
        agent: ConnectedAgent = call.agent
        async with self._turns.slot(agent.agent_id):
            places, _ = await self._places(agent)
        return wire.GetPlacesResponse(
            places=[
                wire.Place(log=log, offset=places[log])
                for log in request.logs[:MAX_LOGS]
                if log in places
            ],
            has_places=bool(places),
        )

    async def store(self, request: wire.StoreRequest, call: Any) -> wire.StoreResponse:
        """Store events of the calling agent, unless they are stored already."""
        agent: ConnectedAgent = call.agent
        offsets = [request.start, *(one.end for one in request.events), request.end]
        if (
            not 0 < len(request.log) <= MAX_MARK
            or len(request.events) > MAX_EVENTS
            or offsets != sorted(offsets)
        ):
            raise CallError(Status.INVALID_ARGUMENT, "the request has a wrong place")
        async with self._turns.slot(agent.agent_id):
            return wire.StoreResponse(offset=await self._stored(agent, request))

    async def _stored(self, agent: ConnectedAgent, request: wire.StoreRequest) -> int:
        places, version = await self._places(agent)
        place = places.get(request.log, request.start)
        if place != request.start:
            return place
        lines = list(lines_of(agent, request, self.now()))
        if lines:
            await self._write(agent, lines)
        await self._set(agent, places, version, (request.log, request.end))
        return request.end

    async def _set(
        self,
        agent: ConnectedAgent,
        places: dict[str, int],
        version: int,
        place: tuple[str, int],
    ) -> int:
        """Store a new place, and return the version of the stored value."""
        log, offset = place
        places.pop(log, None)
        places[log] = offset
        newest = dict(list(places.items())[-MAX_LOGS:])
        try:
            value = json.dumps(newest).encode()
            stored: int = await self._store.set(agent.agent_id, value, version=version)
        except CallError:
            # The lines are in the file: compare with it before the next request.
            self._compared.pop(agent.agent_id, None)
            raise
        return stored

    async def _write(self, agent: ConnectedAgent, lines: list[bytes]) -> None:
        try:
            await deferToThread(self._file(agent).append, lines)
        except OSError as error:
            self._compared.pop(agent.agent_id, None)
            if not self._is_broken:
                self._is_broken = True
                self._log.error(
                    "cannot store audit logs of clusters: {reason}; agents wait",
                    reason=in_words(error),
                )
            text = "kas cannot write its files"
            raise CallError(Status.UNAVAILABLE, text) from None
        if self._is_broken:
            self._is_broken = False
            self._log.info("audit logs of clusters can be stored again")

    def _file(self, agent: ConnectedAgent) -> AgentLog:
        settings = self._settings
        return AgentLog(
            settings.directory, agent.agent_id, settings.file_size, settings.files
        )

    async def _places(self, agent: ConnectedAgent) -> tuple[dict[str, int], int]:
        """Return the places of an agent by log, and the version of the stored value."""
        found = await self._store.get(agent.agent_id)
        places = {} if found is None else _parsed(found.value)
        version = 0 if found is None else found.version
        if agent.agent_id not in self._compared:
            try:
                last = await deferToThread(self._file(agent).last_place)
            except OSError:
                # `_write` reports the reason.
                last = None
            else:
                self._compared[agent.agent_id] = None
            if last is not None and last[1] > places.get(last[0], 0):
                version = await self._set(agent, places, version, last)
        return places, version


def _parsed(value: bytes) -> dict[str, int]:
    try:
        found = json.loads(value)
        return {str(log): int(offset) for log, offset in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}
