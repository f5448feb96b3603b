"""The answers that are kept: what somebody wanted lately."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container

import attrs
from twisted.internet.interfaces import IReactorTime

from kas.directory.cache_entry import Answer

__all__ = ["MAX_ANSWERS", "UNUSED_SECONDS", "Answers"]

#: Seconds after which an answer that nobody wants is dropped.
UNUSED_SECONDS = 300.0

#: Agents with a cached answer.  Ten times the agents that a kas is made for; a stranger
#: with a valid credential can only name agents that exist.
MAX_ANSWERS = 100_000


@attrs.define(eq=False)
class Answers:
    """
    One for each agent that is asked for.

    :param random: between 0 and 1, spreads what they are due for.
    :ivar kept: the one that was used last stands last.
    """

    _clock: IReactorTime
    _random: Callable[[], float]
    kept: OrderedDict[str, Answer] = attrs.field(factory=OrderedDict, init=False)

    def wanted(self, agent_id: str) -> Answer:
        """Keep one, whatever it says."""
        now = self._clock.seconds()
        answer = self.kept.get(agent_id)
        if answer is None:
            while len(self.kept) >= MAX_ANSWERS:
                self.kept.popitem(last=False)[1].drop()
            answer = self.kept[agent_id] = Answer(agent_id, now, self._random())
        else:
            self.kept.move_to_end(agent_id)
            answer.used = now
        return answer

    def forget_kas(self, kas_id: bytes) -> None:
        """A kas is dead, and all that it had."""
        for answer in self.kept.values():
            answer.forget_kas(kas_id)

    def sweep(self, needed: Container[str]) -> None:
        """Drop those that nobody wanted for long, but for the *needed* ones."""
        now = self._clock.seconds()
        while self.kept:
            agent_id, answer = next(iter(self.kept.items()))
            if now - answer.used < UNUSED_SECONDS:
                break
            if agent_id in needed:
                self.wanted(agent_id)
                continue
            self.kept.pop(agent_id).drop()

    def stop(self) -> None:
        """Look nothing up any more."""
        for answer in self.kept.values():
            answer.cancel()
