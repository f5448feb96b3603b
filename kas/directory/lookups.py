"""When answers are looked up: seldom, once for everybody, and not all at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from kas.directory.answers import Answer

__all__ = ["LOOK_INTERVAL", "LookUps"]

#: Seconds between two look-ups of one agent, however many ask for it.  Long enough to
#: cost nothing, short enough that a person who waits does not notice.
LOOK_INTERVAL = 1.0

#: Look-ups at the same time; the others wait for their turn.  Redis answers so many in
#: a few milliseconds, and the peers' private API is not flooded while it is down.
MAX_LOOKUPS = 256


@attrs.define(eq=False)
class LookUps:
    """
    Begins them.

    :param look_up: does one.
    """

    _clock: IReactorTime
    _look_up: Callable[[Answer], Coroutine[Any, Any, None]]
    _stopped: bool = attrs.field(default=False, init=False)
    #: At this moment.
    running: int = attrs.field(default=0, init=False)
    _queue: OrderedDict[str, Answer] = attrs.field(factory=OrderedDict, init=False)
    _log = Logger()

    def stop(self) -> None:
        """Begin no more."""
        self._stopped = True
        self._queue.clear()

    def when_due(self, answer: Answer) -> None:
        """Once the interval of this agent is over."""
        if self._stopped or (answer.timer is not None and answer.timer.active()):
            return
        if answer.looking:
            answer.again = True
            return
        wait = answer.next_look - self._clock.seconds()
        if wait <= 0:
            self.now(answer)
        else:
            answer.timer = self._clock.callLater(wait, self.now, answer)

    def now(self, answer: Answer) -> None:
        """As soon as it is its turn."""
        answer.cancel()
        if answer.looking or self._stopped:
            return
        answer.looking = True
        if self.running >= MAX_LOOKUPS:
            self._queue[answer.agent_id] = answer
            return
        self._begin(answer)

    def _begin(self, answer: Answer) -> None:
        self.running += 1
        answer.again = False
        answer.next_look = self._clock.seconds() + LOOK_INTERVAL
        looking = Deferred.fromCoroutine(self._look_up(answer))
        looking.addErrback(
            lambda failure: self._log.failure(
                "looking up {agent_id}", failure, agent_id=answer.agent_id
            )
        )
        looking.addBoth(self._looked, answer)

    def _looked(self, result: object, answer: Answer) -> None:
        self.running -= 1
        answer.looking = False
        answer.looked = self._clock.seconds()
        if answer.again and not answer.dropped:
            self.when_due(answer)
        while self._queue and self.running < MAX_LOOKUPS:
            self._begin(self._queue.popitem(last=False)[1])
