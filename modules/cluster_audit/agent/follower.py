"""The audit log of an API server, from the place that kas has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from modules.cluster_audit.agent.events import EventReader
from modules.cluster_audit.agent.log_files import (
    MAX_FILES,
    LogConflict,
    LogFiles,
    LogGone,
    LogRenamed,
    Piece,
)
from modules.cluster_audit.wire import cluster_audit_pb2 as wire

__all__ = ["LogFollower"]

#: Seconds between two looks at a log without new lines.
POLL_SECONDS = 1.0


@attrs.define(eq=False)
class LogFollower:
    """
    Sender of the events of a log, one piece after the other.

    agentk keeps no place: after each interruption, kas tells the place up to which it
    has the log.

    :param call: calls a method of kas.
    :ivar left_out: number of lines and files that could not be read, and of conflicts
        between files.
    """

    _log = Logger()

    files: LogFiles
    reader: EventReader
    _call: Callable[[str, Any], Awaitable[Any]]
    _clock: IReactorTime
    #: Called after each piece that kas has.
    _sent: Callable[[Piece], object]
    left_out: int = 0
    _mark: str = ""
    _offset: int = 0

    async def run(self) -> None:
        """
        Send events without end.

        :raises CallError: if kas does not respond, or refuses the events.
        :raises OSError: if the log cannot be read.
        """
        while True:
            try:
                if not self._mark:
                    await self._begin()
                if not self._mark or not await self._step():
                    await deferLater(self._clock, POLL_SECONDS)
            except LogRenamed:
                await deferLater(self._clock, POLL_SECONDS)
            except LogConflict as error:
                self.left_out += 1
                self._mark = ""
                self._log.error(
                    "{reason}; agentk reads all of them again, so kas may store events "
                    "twice. Remove copies of the log from its folder",
                    reason=str(error),
                )
            except LogGone as error:
                self.left_out += 1
                self._mark = ""
                self._log.error(
                    "{reason}; its last events are missing in kas. Let the API server "
                    "keep more files (--audit-log-maxbackup)",
                    reason=str(error),
                )

    async def _begin(self) -> None:
        """Find the place from which kas needs events."""
        files = (await deferToThread(self.files.all))[-MAX_FILES:]
        if not files:
            # Report a file that does not exist; an empty one will have lines.
            await deferToThread(self.files.path.stat)
            return
        marks = [one.mark for one in files]
        request = wire.GetPlacesRequest(logs=marks)
        response = await self._call("GetPlaces", request)
        places = {one.log: one.offset for one in response.places}
        known = [mark for mark in marks if mark in places]
        if known:
            self._mark, self._offset = known[-1], places[known[-1]]
        elif response.has_places:
            # kas has events of earlier files, and all of these are newer.
            self._mark, self._offset = marks[0], 0
        else:
            # kas has nothing: begin with the events from now on, and let kas store the
            # place, so that a restart before the next event changes nothing.
            mark = marks[-1]
            end = await deferToThread(self.files.end, mark)
            await self._send(Piece(mark, end, end, []))

    async def _step(self) -> bool:
        """Send the next piece; return whether there was one."""
        mark, start = self._mark, self._offset
        piece = await deferToThread(self.files.read, mark, start, self.reader)
        if piece.end > piece.start:
            await self._send(piece)
            return True
        if piece.newer:
            self._mark, self._offset = piece.newer, 0
            return True
        return False

    async def _send(self, piece: Piece) -> None:
        request = wire.StoreRequest(
            log=piece.mark,
            start=piece.start,
            end=piece.end,
            events=piece.events,
            left_out=piece.left_out,
        )
        response = await self._call("Store", request)
        # Another agentk may read the same file, or kas may have restored its state.
        self._mark, self._offset = piece.mark, response.offset
        if response.offset == piece.end:
            self.left_out += piece.left_out
            self._sent(piece)
