"""
The parts of a program: started in order, drained by phases, stopped in reverse.

A program is a list of parts, each after the parts that it needs.  `PartTree` starts
them one after the other.  When the program ends, the tree first drains all of them,
phase by phase, so that running work can finish; then it stops them in reverse order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum

from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import Logger

__all__ = ["Part", "PartTree", "Phase", "Steps"]


class Phase(IntEnum):
    """
    The phases of a program's draining, in order.

    All parts finish a phase before the next one begins.
    """

    #: Probes, supervisors and load balancers learn that the program is stopping.
    READINESS = 1
    #: No new agents are accepted.
    LISTENERS = 2
    #: Agents connect elsewhere.
    AGENTS = 3
    #: No new requests are accepted, and running requests finish.
    REQUESTS = 4
    #: Modules stop.
    MODULES = 5
    #: Remaining data of modules is written.
    STORES = 6
    #: Sessions end.
    SESSIONS = 7


class Part:
    """
    The base class of parts, whose methods do nothing; each may return an awaitable.
    """

    #: The name for messages.
    name = "part"

    def start(self) -> object:
        """
        Start the part.

        :raises Exception: the program cannot run; the tree stops the started parts,
            including this one.
        """

    def drain(self, phase: Phase) -> object:
        """
        Prepare to stop; the tree waits for all parts before the next phase begins.
        """

    def stop(self) -> object:
        """Release everything; also called after a failed `start`."""


#: A step of `Steps`: it may return an awaitable.
Step = Callable[[], object]


class Steps(Part):
    """
    A part made of functions.

    :param drain: the functions, by phase.
    """

    def __init__(
        self,
        name: str,
        *,
        start: Step | None = None,
        drain: Mapping[Phase, Step] | None = None,
        stop: Step | None = None,
    ) -> None:
        self.name = name
        self._start = start
        self._drain = drain or {}
        self._stop = stop

    async def start(self) -> None:
        """See `Part.start`."""
        await _run(self._start)

    async def drain(self, phase: Phase) -> None:
        """See `Part.drain`."""
        await _run(self._drain.get(phase))

    async def stop(self) -> None:
        """See `Part.stop`."""
        await _run(self._stop)


async def _run(step: Step | None) -> None:
    if step is not None:
        await _finished(step())


async def _finished(result: object) -> None:
    if isinstance(result, Awaitable):
        await result


class PartTree:
    """
    The parts of one program.

    A failure while draining or stopping is logged, and does not affect other parts.
    """

    _log = Logger()

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._started: list[Part] = []
        self._ending = False
        #: Fires when the parts have stopped after a failed start.
        self._failed: Deferred[None] | None = None

    async def start(self) -> None:
        """
        Start the parts in order; if the program is stopped in the meantime, start no
        further part.

        :raises Exception: if a part failed.  The tree then stops the started parts, but
            this method does not wait for their end, because a daemon must report a
            failure before it forks.
        """
        for part in self._parts:
            if self._is_ending():
                return
            self._started.append(part)
            try:
                await _finished(part.start())
            except Exception:
                if self._is_ending():
                    # The start was cancelled by `end`, which stops all parts.
                    return
                self._ending = True
                self._failed = Deferred.fromCoroutine(self._stop())
                raise

    def _is_ending(self) -> bool:
        return self._ending

    async def end(self) -> None:
        """Drain all started parts, phase by phase, and stop them in reverse."""
        self._ending = True
        if self._failed is not None:
            await self._failed
            return
        for phase in Phase:
            await gatherResults(
                [
                    Deferred.fromCoroutine(self._drain(part, phase))
                    for part in self._started
                ]
            )
        await self._stop()

    async def _drain(self, part: Part, phase: Phase) -> None:
        try:
            await _finished(part.drain(phase))
        except Exception:
            self._log.failure(
                "draining {part} failed ({phase})", part=part.name, phase=phase.name
            )

    async def _stop(self) -> None:
        while self._started:
            part = self._started.pop()
            try:
                await _finished(part.stop())
            except Exception:
                self._log.failure("stopping {part} failed", part=part.name)
