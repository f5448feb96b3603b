"""When answers are looked up: seldom, once for everybody, and not all at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Coroutine, Sequence
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from kas.directory.cache_entry import Answer
from kas.directory.records import KasRecord

__all__ = ["ABSENT_INTERVAL", "LOOK_INTERVAL", "REACHED_INTERVAL", "LookUps"]

#: Seconds between two look-ups of one agent, however many ask for it.  Long enough to
#: cost nothing, short enough that a person who waits does not notice.
LOOK_INTERVAL = 1.0

#: Seconds between two look-ups of one agent where the last found nothing and news come
#: in: whoever connects says so, and this is only a net below that.
ABSENT_INTERVAL = 30.0

#: The same, more or less a half, where nobody waits for the agent and no news come in.
#: An answer that is wrong shows itself when a request goes there, so all that these
#: find are further instances, and every kas pays for them with a call to each other.
REACHED_INTERVAL = 20.0

#: Look-ups at the same time; the others wait for their turn.  Redis answers so many in
#: a few milliseconds, and the peers' private API is not flooded while it is down.
MAX_LOOKUPS = 256


@attrs.define(eq=False)
class LookUps:
    """
    Begins them.

    :param look_up: does one.
    :param here: agents that are connected to this kas.
    :param watched: those that somebody waits for.
    :param cut_off: kas whose agents the store cannot know.
    :ivar listening: news come in, so that what was looked up stays right.
    :ivar epoch: counts the gaps in the news: answers of an earlier one are old.
    """

    _clock: IReactorTime
    _look_up: Callable[[Answer], Coroutine[Any, Any, None]]
    _here: Container[str]
    _watched: Container[str]
    _cut_off: Callable[[Answer], Sequence[KasRecord]]
    listening: bool = attrs.field(default=False, init=False)
    epoch: int = attrs.field(default=0, init=False)
    #: When the last gap began.
    _gap: float = attrs.field(default=0.0, init=False)
    _stopped: bool = attrs.field(default=False, init=False)
    #: At this moment.
    running: int = attrs.field(default=0, init=False)
    _queue: OrderedDict[str, Answer] = attrs.field(factory=OrderedDict, init=False)
    _log = Logger()

    def stop(self) -> None:
        """Begin no more."""
        self._stopped = True
        self._queue.clear()

    def news_come_in(self, on: bool) -> None:
        """From now on, or no longer; some may have been missed either way."""
        self.grow_old()
        if not on:
            self._gap = self._clock.seconds()
        self.listening = on

    def grow_old(self) -> None:
        """Something may have been missed: every answer is looked up once more."""
        self.epoch += 1

    def is_due(self, answer: Answer, known: bool) -> bool:
        """Whether to look up one that is asked for; *known*: it leads somewhere."""
        if answer.looking:
            return False
        now = self._clock.seconds()
        if now < answer.next_look:
            return False
        if not self.listening:
            agent_id = answer.agent_id
            reached = known or agent_id in self._here
            if not reached or agent_id in self._watched:
                return True
            # Not all of them at once when a gap begins.
            wait = REACHED_INTERVAL * (0.5 + answer.spread)
            return now >= max(answer.looked, self._gap) + wait
        if answer.epoch != self.epoch:
            return True
        if known:
            return False
        return now >= answer.looked + ABSENT_INTERVAL or bool(self._cut_off(answer))

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
