"""Record of a running kas in its state directory, from its start to its end."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from kas.state import running
from kas.state.directory import StateDirectory
from tunnel.program.opened import Opened
from tunnel.program.parts import Part, Phase

__all__ = ["Announcer", "RunningRecord"]


class Announcer(Part, ABC):
    """Base class of the part that announces a process on this machine."""

    @abstractmethod
    def publish(self) -> None:
        """Announce the open ports."""


class RunningRecord(Announcer):
    """
    Writer of the record of this process, and owner of the lock against a second kas
    without Redis.

    :param alone: whether kas has no Redis, so that no other kas may use the state
        directory.
    :param opened: returns the open ports.
    :param enforces_changes: see `kas.state.running.Running`.
    """

    name = "the record of this process"

    def __init__(
        self,
        state: StateDirectory,
        alone: bool,
        opened: Callable[[], Sequence[Opened]],
        enforces_changes: bool = False,
    ) -> None:
        self._state = state
        self._alone = alone
        self._opened = opened
        self._enforces_changes = enforces_changes
        #: Descriptor of the lock; None if this kas does not hold the lock.
        self._lock: int | None = None
        #: Whether the record belongs to this kas: if the start was refused, the record
        #: may belong to another kas.
        self._is_ours = False

    async def start(self) -> None:
        """
        Take the lock.

        :raises ConfigurationError: if another kas uses the state directory.
        """
        running.refuse_twins(self._state)
        if self._alone:
            self._lock = running.hold(self._state)
        self._is_ours = True

    def publish(self) -> None:
        """Write the record, so that `kasctl` finds this process and its ports."""
        running.tell(self._state, self._opened(), self._enforces_changes)

    async def drain(self, phase: Phase) -> None:
        """
        Mark the record as stopping, and let a successor start while this process ends.
        """
        if phase is not Phase.READINESS:
            return
        running.leave(self._state)
        self._release()

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    async def stop(self) -> None:
        """Remove the record."""
        self._release()
        if self._is_ours:
            running.forget(self._state)
