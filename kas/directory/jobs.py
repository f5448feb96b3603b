"""What is done in the background, by name: later, and each at most once at a time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

__all__ = ["Jobs"]


@attrs.define(eq=False)
class Jobs:
    """
    Plans and runs what has a name.

    :param ended: told of each that ran; why it failed, if it did.
    :ivar planned: what is called later.
    :ivar running: what runs now.
    """

    _clock: IReactorTime
    _ended: Callable[[str, Failure | None], None]
    planned: dict[str, IDelayedCall] = attrs.field(factory=dict, init=False)
    running: dict[str, Deferred[None]] = attrs.field(factory=dict, init=False)
    _stopped: bool = attrs.field(default=False, init=False)

    def later(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        """Call once; whatever was planned under this name is not."""
        timer = self.planned.pop(name, None)
        if timer is not None:
            timer.cancel()
        if not self._stopped:
            self.planned[name] = self._clock.callLater(seconds, self._due, name, call)

    def _due(self, name: str, call: Callable[[], None]) -> None:
        del self.planned[name]
        call()

    def run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Do something in the background, unless it is being done."""
        if name in self.running or self._stopped:
            work.close()
            return
        # Begins at once, and may look whether it runs.
        self.running[name] = Deferred()
        running = Deferred.fromCoroutine(work)
        self.running[name] = running
        running.addBoth(self._ran, name)

    def _ran(self, result: object, name: str) -> None:
        self.running.pop(name, None)
        self._ended(name, result if isinstance(result, Failure) else None)

    def pause(self, seconds: float) -> Deferred[None]:
        """Wait, in something that runs."""

        def cancel(_: Deferred[None]) -> None:
            timer.cancel()

        done: Deferred[None] = Deferred(cancel)
        timer = self._clock.callLater(seconds, done.callback, None)
        return done

    def stop(self) -> None:
        """End what runs, and begin nothing more."""
        self._stopped = True
        for timer in self.planned.values():
            timer.cancel()
        self.planned.clear()
        for running in tuple(self.running.values()):
            running.cancel()
