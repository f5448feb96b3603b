"""What is known about where one agent is, and how news change it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import attrs
from twisted.internet.interfaces import IDelayedCall

from kas.directory.records import AgentRecord

__all__ = ["MAX_GONE", "MAX_INSTANCES", "Answer", "newest"]

#: Instances (pods) of one agent that are kept.  Two or three are usual; an agent that
#: makes up new ones without end gains nothing by it.
MAX_INSTANCES = 256

#: Instances of one agent of which is remembered that they are gone, so that late news
#: do not bring them back.  News overtake each other by seconds at most, and so many
#: pods of one agent do not end in seconds.
MAX_GONE = 32

#: No look-up has answered yet.
NEVER = -1


@attrs.define(eq=False)
class _Instance:
    """One run of one agentk: its newest connection, or that this one is gone."""

    generation: int
    record: AgentRecord | None
    #: Number of the news that said so; 0 when a look-up did.
    news: int


@attrs.define(eq=False)
class Answer:
    """
    Where one agent is, as far as is known.

    Of each instance only the connection with the highest generation counts, and that
    one is gone for good once somebody said so: whichever way news and look-ups
    overtake each other, what remains is the newest.
    """

    agent_id: str
    #: When somebody last wanted it.
    used: float
    #: Between 0 and 1: spreads in time what would be due for all at once.
    spread: float = 0.5
    #: The next look-up may begin.
    next_look: float = 0.0
    #: When the last one ended.
    looked: float = 0.0
    #: One runs, or waits for its turn.
    looking: bool = False
    #: Somebody wants one that begins later than the last.
    again: bool = False
    #: News are complete since this one (`SharedDirectory`); NEVER: they are not.
    epoch: int = NEVER
    timer: IDelayedCall | None = None
    #: Nobody keeps it any more.
    dropped: bool = False
    _instances: dict[bytes, _Instance] = attrs.Factory(dict)

    def cancel(self) -> None:
        """Look nothing up by a timer."""
        if self.timer is not None and self.timer.active():
            self.timer.cancel()
        self.timer = None

    def drop(self) -> None:
        """Nobody keeps it any more."""
        self.dropped = True
        self.cancel()

    def records(self) -> Iterator[AgentRecord]:
        """The newest connection of each instance."""
        for known in self._instances.values():
            if known.record is not None:
                yield known.record

    def connected(self, record: AgentRecord, news: int) -> bool:
        """Take in a connection; False when it is nothing new."""
        agent = record.agent
        known = self._instances.get(agent.instance_id)
        if known is not None:
            if known.generation > agent.generation:
                return False
            if known.generation == agent.generation:
                if known.record is not None:
                    known.record, known.news = record, news
                return False
            known.generation, known.record, known.news = agent.generation, record, news
            return True
        if len(self._instances) >= MAX_INSTANCES:
            return False
        self._instances[agent.instance_id] = _Instance(agent.generation, record, news)
        return True

    def disconnected(self, instance_id: bytes, generation: int, news: int) -> None:
        """A connection is gone; a newer one of the instance is not."""
        known = self._instances.pop(instance_id, None)
        if known is not None and known.generation > generation:
            self._instances[instance_id] = known
            return
        # At the end: those that are forgotten first stand first.
        self._instances[instance_id] = _Instance(generation, None, news)
        gone = [key for key, one in self._instances.items() if one.record is None]
        for key in gone[:-MAX_GONE]:
            del self._instances[key]

    def looked_up(
        self,
        records: Iterable[AgentRecord],
        since: int,
        is_incomplete: Callable[[bytes], bool] = lambda kas_id: False,
    ) -> bool:
        """
        Take in what the store had; True when that holds something new.

        :param since: number of the last news before the look-up began.  What later
            ones said stays, because the store may have been read before it was so.
        :param is_incomplete: whether the store may lack what a kas has.
        """
        found = {}
        for record in newest(records):
            found[record.agent.instance_id] = record
        for key, known in tuple(self._instances.items()):
            if known.record is None or key in found or known.news > since:
                continue
            if not is_incomplete(known.record.kas_id):
                del self._instances[key]
        new = [self.connected(record, 0) for record in found.values()]
        return any(new)

    def forget(self, wrong: AgentRecord) -> None:
        """It led nowhere; should it be said again, it may be tried again."""
        known = self._instances.get(wrong.agent.instance_id)
        if known is not None and known.record is not None:
            same = known.record.kas_id == wrong.kas_id
            if same and known.generation == wrong.agent.generation:
                del self._instances[wrong.agent.instance_id]

    def forget_kas(self, kas_id: bytes) -> None:
        """It is dead, and all that it had."""
        for key, known in tuple(self._instances.items()):
            if known.record is not None and known.record.kas_id == kas_id:
                del self._instances[key]


def newest(records: Iterable[AgentRecord]) -> list[AgentRecord]:
    """Of each instance of each agent the connection with the highest generation."""
    best: dict[tuple[str, bytes], AgentRecord] = {}
    for record in records:
        key = (record.agent.agent_id, record.agent.instance_id)
        other = best.get(key)
        if other is None or other.agent.generation < record.agent.generation:
            best[key] = record
    return list(best.values())
