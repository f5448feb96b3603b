"""
Scheduler that splits long calculations in the reactor into turns, between other work of
kas.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from tunnel.toolkit.recent import Recent

__all__ = ["COMPILING", "LISTING", "PARSING", "SLICE", "StepScheduler", "Work"]

#: Number of steps in one turn, which takes one or two milliseconds.  One step compares
#: a character of a path with a character of a glob.
SLICE = 500_000

#: Seconds between two turns, for each `SLICE` of steps in the last turn. kas does not
#: use a thread, because after each system call kas would wait up to 5 ms until the
#: thread yields.
PAUSE = 0.003

#: Cost of parsing one character of a glob, and cost of compiling one, in steps.
PARSING, COMPILING = 300, 2000

#: Cost of reading one entry of a listing, in steps.  The steps are counted after kas
#: has read the listing, so they only delay the agent's next calculation; because of
#: them, kas remembers the outcome for a large folder, including refusals.
LISTING = 1000

#: Maximum number of agents whose steps are counted; kas forgets the agent that was
#: counted longest ago.
MAX_AGENTS = 10_000


class StepScheduler:
    """
    Queue of calculations that wait for their turn, by agent.

    One calculation runs at a time.  Agents take turns, regardless of the number of
    their calculations.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: dict[Hashable, deque[Deferred[None]]] = {}
        self._is_begun = False
        self._steps = 0
        #: Number of steps of each agent since its last turn, over all its calculations.
        self.unpaid: Recent[Hashable, int] = Recent(MAX_AGENTS)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def waits(self, key: Hashable) -> bool:
        """Return whether calculations of an agent are waiting."""
        return key in self._waiting

    async def next(self, key: Hashable, steps: int) -> None:
        """
        Wait for the next turn of an agent.

        :param steps: number of steps since the caller's last turn.
        """
        self._steps += steps
        queue = self._waiting.setdefault(key, deque())
        turn: Deferred[None] = Deferred()
        queue.append(turn)
        self._schedule()
        try:
            await turn
        finally:
            if turn in queue:
                # The caller was cancelled.
                queue.remove(turn)
                if not queue:
                    del self._waiting[key]

    def _schedule(self) -> None:
        if self._is_begun or not self._waiting:
            return
        self._is_begun = True
        slices = max(1.0, self._steps / SLICE)
        self._steps = 0
        self._clock.callLater(PAUSE * slices, self._begin)

    def _begin(self) -> None:
        if self._waiting:
            key = next(iter(self._waiting))
            queue = self._waiting.pop(key)
            turn = queue.popleft()
            if queue:
                # Put the agent behind all other agents.
                self._waiting[key] = queue
            turn.callback(None)
        self._is_begun = False
        self._schedule()


class Work:
    """
    Calculation that waits for a turn after each `SLICE` of its agent's steps.

    :ivar total: the number of steps so far.
    """

    def __init__(self, scheduler: StepScheduler, key: Hashable) -> None:
        self._scheduler = scheduler
        self._key = key
        #: Remaining steps of the current turn.
        self._left = 0
        self.total = 0

    async def take(self, steps: int) -> None:
        """
        Count *steps* before the caller does them, and wait for a turn if necessary.
        """
        self.total += steps
        scheduler, key = self._scheduler, self._key
        done = scheduler.unpaid.get(key, 0)
        if self._left < steps and (
            scheduler.waits(key) or (done and done + steps > SLICE)
        ):
            scheduler.unpaid.pop(key, None)
            await scheduler.next(key, done)
            self._left = SLICE
        self._left = max(0, self._left - steps)
        scheduler.unpaid[key] = scheduler.unpaid.get(key, 0) + steps
