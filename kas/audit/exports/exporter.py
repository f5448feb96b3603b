"""The exporter of an audit log to one receiver."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from kas.audit.exports.cursor import Cursor, CursorFile
from kas.audit.exports.dead import MAX_DEAD, DeadLetters
from kas.audit.exports.reader import Exported, LogReader
from tunnel.errors import TunnelError
from tunnel.program.runtime import Runtime
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.files import in_words
from tunnel.toolkit.texts import clean

__all__ = [
    "FIRST_PAUSE",
    "LONGEST_PAUSE",
    "POLL_SECONDS",
    "ExportReceiver",
    "Exporter",
    "NotAccepted",
    "Unsent",
]

#: Seconds between two looks at the log, if everything is sent.
POLL_SECONDS = 1.0

#: The first and the longest pause after an error, in seconds.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0

#: Seconds between two attempts to become the process that exports the log.
LOCK_SECONDS = 5.0

#: Maximum characters of a reason in messages.
MAX_REASON = 300


class Unsent(Exception):
    """Error for events that have to be sent again later."""


class NotAccepted(Exception):
    """
    Error for events that the receiver does not accept.

    :ivar too_large: whether the receiver says that they are too large.
    """

    def __init__(self, text: str, too_large: bool) -> None:
        super().__init__(text)
        self.too_large = too_large


class ExportReceiver(Protocol):
    """The other system."""

    #: Seconds for which the connection must stay open after events were sent, so that
    #: they count as received; 0 if the receiver acknowledges events.
    confirm_seconds: float

    #: Number of events that the receiver has dropped, although it accepted the request.
    dropped: int

    async def send(self, events: Sequence[Exported]) -> None:
        """
        Send events, in order.

        :raises Unsent: if the receiver may not have them.
        :raises NotAccepted: if the receiver does not accept all of them together.
        """

    async def check(self) -> None:
        """
        Check whether the connection is still open.

        :raises Unsent: if it is not.
        """

    def close(self) -> None:
        """Close the connection."""


class Exporter:
    """
    A loop that sends the events after the cursor, and then moves the cursor.

    An event may be sent twice, but it is not left out while its file exists.

    :param in_thread: calls a function that blocks.
    """

    _log = Logger()

    def __init__(
        self,
        name: str,
        receiver: ExportReceiver,
        reader: LogReader,
        cursors: CursorFile,
        dead: DeadLetters,
        runtime: Runtime,
        in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        self.name = name
        self._receiver = receiver
        self._reader = reader
        self._cursors = cursors
        self._dead = dead
        self._clock: IReactorTime = runtime.reactor
        self._now: Callable[[], float] = runtime.now
        self._in_thread = in_thread
        self._backoff = Backoff(runtime.random, FIRST_PAUSE, LONGEST_PAUSE)
        # The place after the events that were sent, and the place in the file.
        self._at: Cursor | None = None
        self._saved: Cursor | None = None
        #: Times at which places count as received, and the places.
        self._unconfirmed: deque[tuple[float, Cursor]] = deque()
        #: Whether this process exports the log; another worker may do it.
        self.is_active = False
        #: Numbers of sent events, failed attempts, and times that events were lost.
        self.sent = self.failures = self.losses = 0
        #: Bytes that were not sent, and the time of the first such event, in seconds
        #: since 1970; None if there is none.
        self.lag_bytes = 0
        self._oldest: float | None = None
        self._problem = ""

    @property
    def rejected(self) -> int:
        """Number of events that the receiver did not accept."""
        return self._dead.count + self._receiver.dropped

    @property
    def lag_seconds(self) -> float:
        """Age of the oldest event that was not sent."""
        return 0.0 if self._oldest is None else max(0.0, self._now() - self._oldest)

    async def run(self) -> None:
        """Send events until this coroutine is cancelled."""
        try:
            await self._become_active()
            while True:
                try:
                    pause = await self._step()
                except CancelledError:
                    raise
                except (Unsent, OSError, ValueError, TunnelError) as error:
                    pause = self._failed(error)
                except Exception as error:
                    self._log.failure("audit export {name} failed", name=self.name)
                    pause = self._failed(error)
                if pause:
                    await deferLater(self._clock, pause)
        finally:
            self._receiver.close()
            self._cursors.unlock()

    async def _become_active(self) -> None:
        while True:
            try:
                if await self._in_thread(self._cursors.lock):
                    self._at = self._saved = await self._in_thread(self._cursors.read)
                    self.is_active = True
                    return
                pause = LOCK_SECONDS
            except (OSError, TunnelError) as error:
                pause = self._failed(error)
            await deferLater(self._clock, pause)

    async def _step(self) -> float:
        """Send one batch; return the pause before the next one, in seconds."""
        await self._confirm()
        batch = await self._in_thread(self._reader.read, self._at)
        if batch.is_lost:
            self.losses += 1
            self._log.error(
                "audit export {name}: the file up to which events were sent is "
                "missing; events may be lost; continuing with the oldest file",
                name=self.name,
            )
        self.lag_bytes = batch.lag
        if not batch.events:
            self._oldest = None
            if batch.after is not None and batch.after != self._at:
                await self._sent_up_to(batch.after)
            await self._receiver.check()
            self._recovered()
            return POLL_SECONDS
        self._oldest = _time_of(batch.events[0])
        await self._deliver(batch.events)
        await self._sent_up_to(batch.after)
        self._recovered()
        return 0.0

    async def _deliver(self, events: Sequence[Exported]) -> None:
        """Send events; events that the receiver does not accept are found by halves."""
        parts = [events]
        while parts:
            part = parts.pop()
            try:
                await self._receiver.send(part)
            except NotAccepted as refusal:
                if len(part) > 1:
                    half = len(part) // 2
                    parts += [part[half:], part[:half]]
                    continue
                if not refusal.too_large and not self.sent:
                    # Perhaps the receiver accepts nothing because of its address or the
                    # credential.
                    raise Unsent(str(refusal)) from None
                await self._reject(part[0], refusal)
            else:
                self.sent += len(part)
            await self._sent_up_to(part[-1].after)

    async def _reject(self, one: Exported, refusal: NotAccepted) -> None:
        has_room = await self._in_thread(self._dead.add, one)
        where = self._dead.path if has_room else f"the log; {self._dead.path} is full"
        self._log.error(
            "audit export {name}: the receiver did not accept event {id}: {why}; the "
            "event is in {where}",
            name=self.name,
            id=clean(str(one.event.get("id", "")), 64),
            why=clean(str(refusal), MAX_REASON),
            where=where,
            most=MAX_DEAD,
        )

    async def _sent_up_to(self, place: Cursor) -> None:
        self._at = place
        seconds = self._receiver.confirm_seconds
        self._unconfirmed.append((self._clock.seconds() + seconds, place))
        await self._confirm()

    async def _confirm(self) -> None:
        """Save the newest place up to which the receiver has all events."""
        newest = None
        while self._unconfirmed and self._unconfirmed[0][0] <= self._clock.seconds():
            newest = self._unconfirmed.popleft()[1]
        if newest is not None and newest != self._saved:
            await self._in_thread(self._cursors.write, newest)
            self._saved = newest

    def _failed(self, error: Exception) -> float:
        """Go back to the last confirmed place; return the pause, in seconds."""
        self.failures += 1
        self._unconfirmed.clear()
        self._at = self._saved
        text = clean(in_words(error), MAX_REASON)
        if not self._problem:
            self._log.error(
                "audit export {name}: cannot send events; retrying without end: {why}",
                name=self.name,
                why=text,
            )
        self._problem = text
        return self._backoff.pause()

    def _recovered(self) -> None:
        self._backoff.reset()
        if self._problem:
            self._problem = ""
            self._log.info("audit export {name}: events are sent again", name=self.name)


def _time_of(one: Exported) -> float | None:
    try:
        return datetime.fromisoformat(str(one.event.get("time", ""))).timestamp()
    except (ValueError, OverflowError):
        return None
