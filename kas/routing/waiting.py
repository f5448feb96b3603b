"""What a stream without a way waits for, and how long anybody does between attempts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.interfaces import IDelayedCall

from tunnel.util.backoff import pause_before

if TYPE_CHECKING:
    from kas.routing.router import Router

__all__ = ["Wait"]


class Wait:
    """
    News, the next attempt, and the end of patience.

    :param seconds: until *late* is called.
    """

    def __init__(
        self,
        router: Router,
        agent_id: str,
        woken: Callable[[], None],
        late: Callable[[], None],
        seconds: float,
    ) -> None:
        self._router = router
        self._agent_id = agent_id
        self._woken = woken
        self._late = router.clock.callLater(seconds, late)
        self._retry: IDelayedCall | None = None
        self._give_up: list[Callable[[], None]] = []

    def again(self, attempts: int) -> None:
        """Wait for the next news; after an attempt that failed, also for a while."""
        self._drop()
        self._give_up = self._router.wait(self._agent_id, self._wake)
        if attempts:
            pause = pause_before(attempts, self._router.random)
            self._retry = self._router.clock.callLater(pause, self._wake)

    def _wake(self) -> None:
        self._drop()
        self._woken()

    def _drop(self) -> None:
        give_up, self._give_up = self._give_up, []
        for one in give_up:
            one()
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        self._retry = None

    def stop(self) -> None:
        """It waits no longer."""
        self._drop()
        if self._late.active():
            self._late.cancel()
        self._router.stopped_waiting(self._agent_id)
