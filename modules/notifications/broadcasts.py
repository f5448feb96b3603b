"""Broadcasts of agents' rows to the browsers of a Rails server, through its Redis."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from modules.notifications.broadcast_settings import BroadcastSettings
from modules.notifications.waiting_rows import WaitingBytes, WaitingRows
from tunnel.api import IClusterRows, IRedisPublisher, IRowFollower, PublishingAgent
from tunnel.errors import CallError
from tunnel.toolkit.timers import cancel_call

__all__ = [
    "MAX_MESSAGE_BYTES",
    "MAX_WAITING_BYTES",
    "PAUSE",
    "RETRY",
    "BroadcastMetrics",
    "Broadcasts",
]

#: Minimum number of seconds between two messages about one view of one agent, because
#: every browser handles each of them.
PAUSE: Final = 0.25

#: Seconds until the next message after a failure.
RETRY: Final = 1.0

#: Maximum number of bytes of a message; Redis holds it for each of its subscribers.
#: Subscribers read larger states from kas.
MAX_MESSAGE_BYTES: Final = 1024 * 1024

#: Maximum number of bytes of all changes that wait for a slow Redis.  Beyond it, kas
#: reads all rows of a view when it can send them.
MAX_WAITING_BYTES: Final = 32 * 1024 * 1024


@implementer(IRowFollower)
class Broadcasts:
    """
    A follower of rows, which sends their latest values to Redis, one message at a time.

    :param rows_of: returns the capability; None while its module does not run.
    :param epoch: returns a random text.
    :ivar sent: number of messages that Redis has taken.
    :ivar failed: number of messages that it may not have taken.
    """

    _log = Logger()

    def __init__(
        self,
        settings: BroadcastSettings,
        rows_of: Callable[[], IClusterRows | None],
        clock: IReactorTime,
        epoch: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._rows_of = rows_of
        self._clock = clock
        self._epoch = epoch
        self._redis: IRedisPublisher | None = None
        self._unfollow: Callable[[], None] = lambda: None
        self._views: dict[tuple[str, str], WaitingRows] = {}
        self._queue: dict[WaitingRows, None] = {}
        self._bytes = WaitingBytes()
        self._sending: Deferred[None] | None = None
        self._is_sending = False
        self._missing: set[str] = set()
        self.sent = 0
        self.failed = 0

    @property
    def waiting(self) -> int:
        """Number of views with changes that were not sent."""
        return sum(one.has_changes for one in self._views.values())

    @property
    def is_up(self) -> bool:
        """Whether Redis takes messages."""
        return self._redis is not None and self._redis.is_up

    def start(self, redis: IRedisPublisher) -> None:
        """Send to a Redis from now on."""
        self._redis = redis
        self.follow()
        if self._rows_of() is None:
            self._log.warn(
                "modules.notifications.action_cable broadcasts nothing, because the "
                "module cluster_data is not enabled; add modules.cluster_data"
            )

    def follow(self) -> None:
        """Follow the rows, if the module that has them runs."""
        self._forget_all()
        rows = self._rows_of()
        if rows is not None:
            self._unfollow = rows.follow(self._settings.views, self)

    def stop(self) -> None:
        """Send nothing any more."""
        self._forget_all()
        self._redis = None
        if self._sending is not None:
            self._sending.cancel()

    def available(self) -> None:
        """Handle a new connection to Redis."""
        for one in self._views.values():
            # The Rails server may have lost its connection, and thus messages, too.
            one.needs_all = True
            one.clear()
        self._resume()

    def _resume(self) -> None:
        """Send the changes that wait."""
        if not self._is_sending and self._queue and self.is_up:
            self._is_sending = True
            self._sending = Deferred.fromCoroutine(self._send_all())
            self._sending.addErrback(self._ended)

    # IRowFollower

    def began(self, agent: PublishingAgent, views: Collection[str]) -> None:
        """See `IRowFollower`."""
        self.ended(agent)
        for view in self._settings.views:
            if view in views:
                waiting = WaitingRows(agent, view, self._epoch(), self._bytes)
                self._views[agent.agent_id, view] = waiting
            elif view not in self._missing:
                self._missing.add(view)
                self._log.warn(
                    "agent {agent} has no view {view}, which "
                    "modules.notifications.action_cable.views names; later agents "
                    "without it are not logged",
                    agent=agent.agent_name,
                    view=view,
                )

    def changed(
        self,
        agent: PublishingAgent,
        view: str,
        put: Mapping[str, Mapping[str, Any]],
        deleted: Collection[str],
    ) -> None:
        """See `IRowFollower`."""
        waiting = self._views.get((agent.agent_id, view))
        if waiting is not None:
            waiting.change(put, deleted)
            if (
                not self.is_up
                or waiting.size > MAX_MESSAGE_BYTES
                or self._bytes.count > MAX_WAITING_BYTES
            ):
                waiting.lose()
            self._wake(waiting)

    def replaced(self, agent: PublishingAgent, view: str) -> None:
        """See `IRowFollower`."""
        waiting = self._views.get((agent.agent_id, view))
        if waiting is not None:
            waiting.lose()
            self._wake(waiting)

    def ended(self, agent: PublishingAgent) -> None:
        """See `IRowFollower`."""
        for view in self._settings.views:
            waiting = self._views.pop((agent.agent_id, view), None)
            if waiting is not None:
                self._forget(waiting)

    # Messages

    def _wake(self, waiting: WaitingRows) -> None:
        """Send the changes of a view, after its pause and after the views before it."""
        if waiting.is_sending or waiting in self._queue:
            return
        seconds = waiting.not_before - self._clock.seconds()
        if seconds <= 0:
            self._queue[waiting] = None
            self._resume()
        elif waiting.timer is None:
            waiting.timer = self._clock.callLater(seconds, self._wake_now, waiting)

    def _wake_now(self, waiting: WaitingRows) -> None:
        waiting.timer = None
        self._wake(waiting)

    async def _send_all(self) -> None:
        while self._queue and self.is_up:
            waiting = next(iter(self._queue))
            del self._queue[waiting]
            waiting.is_sending = True
            try:
                await self._send(waiting)
            except CallError as error:
                # The client of Redis logs outages.
                self._log.debug("not broadcast: {reason}", reason=error.message)
                await self._failed(waiting)
            finally:
                waiting.is_sending = False
                if waiting.has_changes and self._is_current(waiting):
                    self._wake(waiting)
        self._is_sending = False

    async def _send(self, waiting: WaitingRows) -> None:
        """
        Send one message about a view.

        :raises CallError: subscribers may not have it.
        """
        message = await self._message(waiting)
        if self._redis is None or not self._is_current(waiting):
            return
        waiting.sequence += 1
        channel = self._settings.channel(waiting.agent.agent_id, waiting.view)
        await self._redis.publish(channel, message)
        self.sent += 1
        waiting.not_before = self._clock.seconds() + PAUSE

    async def _message(self, waiting: WaitingRows) -> bytes:
        if not waiting.needs_all:
            return waiting.take_changes()
        # Changes from now on may be in the rows already, and do no harm then.
        waiting.begin_all()
        source = self._rows_of()
        rows = None
        if source is not None:
            rows = await source.read(waiting.agent, waiting.view)
        if rows is not None:
            message = waiting.snapshot(rows)
            if len(message) <= MAX_MESSAGE_BYTES:
                return message
        return waiting.reload()

    async def _failed(self, waiting: WaitingRows) -> None:
        self.failed += 1
        waiting.lose()
        # One attempt at a time, however many views wait.
        await deferLater(self._clock, RETRY)

    def _ended(self, failure: Failure) -> None:
        self._is_sending = False
        if not failure.check(CancelledError):
            self._log.failure("broadcasting failed", failure)
            self._resume()

    def _is_current(self, waiting: WaitingRows) -> bool:
        key = (waiting.agent.agent_id, waiting.view)
        return self._views.get(key) is waiting

    def _forget(self, waiting: WaitingRows) -> None:
        self._queue.pop(waiting, None)
        waiting.clear()
        cancel_call(waiting.timer)

    def _forget_all(self) -> None:
        self._unfollow()
        self._unfollow = lambda: None
        for one in self._views.values():
            self._forget(one)
        self._views = {}


class BroadcastMetrics(Collector):
    """Collector of the metrics of broadcasts."""

    def __init__(self, broadcasts: Broadcasts) -> None:
        self._broadcasts = broadcasts

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        messages = CounterMetricFamily(
            "kas_notifications_broadcasts",
            "Messages to Rails: sent, and failed, which are sent again with all rows.",
            labels=["outcome"],
        )
        messages.add_metric(["sent"], self._broadcasts.sent)
        messages.add_metric(["failed"], self._broadcasts.failed)
        yield messages
        yield GaugeMetricFamily(
            "kas_notifications_broadcasts_waiting",
            "Views of agents with changes that were not sent yet.",
            self._broadcasts.waiting,
        )
        yield GaugeMetricFamily(
            "kas_notifications_broadcasts_up",
            "1 while Redis of Rails is available.",
            self._broadcasts.is_up,
        )
