"""
Connection of a worker to its supervisor, as a part of kas in the worker's process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kas.state.running_record import Announcer
from kas.workers.parent import Parent
from tunnel.program.listening import Listening

__all__ = ["SupervisedWorker"]


class SupervisedWorker(Announcer):
    """
    Connection of a worker to its supervisor, which writes the record of this kas.

    :param draining: returns whether this worker accepts no agents now.
    """

    _log = Logger()
    name = "the connection to the supervisor"

    def __init__(
        self, listening: Listening, draining: Callable[[], bool], reactor: Any
    ) -> None:
        self._listening = listening
        self._parent = Parent(reactor, draining, self._orphaned)

    def start(self) -> None:
        """Detect from now on when the supervisor dies."""
        self._parent.start()

    def publish(self) -> None:
        """Report the open ports to the supervisor."""
        self._parent.ready(self._listening.opened)

    def stop(self) -> None:
        """Stop reporting."""
        self._parent.stop()

    def _orphaned(self) -> None:
        """
        Stop, because the supervisor is dead, and the next supervisor needs all ports
        now.

        Running requests may finish, as after a signal to stop.
        """
        self._log.warn(
            "the supervisor is gone: finishing running requests and stopping"
        )
        self._listening.ending = True
        Deferred.fromCoroutine(self._listening.stop()).addErrback(
            lambda failure: self._log.failure("closing ports failed", failure)
        )
