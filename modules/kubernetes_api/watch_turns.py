"""Order in which paused watches of all connections resume."""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

__all__ = ["TURN_SECONDS", "TakesTurns", "WatchTurns"]

#: Seconds of one turn of the reactor that all resumed watches of a kas take together.
TURN_SECONDS: Final = 0.005


class TakesTurns(Protocol):
    """A connection with paused watches."""

    def take_turn(self) -> bool:
        """
        Let one watch deliver some of the events that it holds.

        :return: whether the connection needs a further turn.
        """


class WatchTurns:
    """
    A queue of connections, in which owners take turns, and connections of one owner.

    A watch that resumes delivers events that it holds, and all other connections of kas
    wait for that.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        #: The connections of each owner; the first owner is the next one.
        self._owners: dict[str, deque[TakesTurns]] = {}
        self._goes_on = False

    def add(self, owner: str, connection: TakesTurns) -> None:
        """Let *connection* take a turn soon; it may be added once at a time."""
        self._owners.setdefault(owner, deque()).append(connection)
        if not self._goes_on:
            self._goes_on = True
            self._clock.callLater(0, self._go)

    def _go(self) -> None:
        until = self._clock.seconds() + TURN_SECONDS
        # Connections that need a further turn take it in a later turn of the reactor.
        rest = sum(map(len, self._owners.values()))
        while rest:
            rest -= 1
            self._next()
            if self._clock.seconds() >= until:
                break
        self._goes_on = bool(self._owners)
        if self._goes_on:
            self._clock.callLater(0, self._go)

    def _next(self) -> None:
        owner = next(iter(self._owners))
        connections = self._owners.pop(owner)
        connection = connections.popleft()
        try:
            if connection.take_turn():
                connections.append(connection)
        except Exception:
            # A failure of one connection must not stop the others.
            self._log.failure("resuming a watch failed")
        if connections:
            self._owners[owner] = connections
