"""Publishes the tables of the cache to kas, and resumes after an interruption."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from modules.cluster_data.agent.table import Table, TableKey, TableRow
from modules.cluster_data.wire import cluster_data_pb2 as wire
from tunnel.api import IClientCall, IServiceClient
from tunnel.errors import CallError, Status
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.timers import call_by, cancel_call

__all__ = ["BEAT", "PART_SIZE", "SUM_EVERY", "TablePublisher"]

#: Seconds between two beats; a beat shows kas that the data is current.
BEAT = 10.0

#: Number of beats between two that contain the sums of the views.
SUM_EVERY = 30

#: Minimum number of seconds between two messages about a view that somebody follows.
FOLLOWED_PAUSE = 0.1

#: Maximum number of bytes of the rows of one message.
PART_SIZE = 256 * 1024

#: Maximum number of rows, and of deleted keys, of one message.
PART_KEYS = 1000

#: Seconds before the next attempt to reach kas: first and maximum.
RETRY_FIRST, RETRY_MOST = 1.0, 60.0

#: Statuses of a kas that does not have the module, or does not let this agent use it.
_NOT_THERE = (Status.UNIMPLEMENTED, Status.PERMISSION_DENIED)


@attrs.define(eq=False)
class _Sent:
    """
    State of one view at kas.

    :ivar sequence: number of the last change that kas has; None if kas needs all rows.
    :ivar not_before: time of the next message at the earliest.
    """

    sequence: int | None = None
    not_before: float = 0.0


class TablePublisher:
    """
    Sends the tables of one cache to kas.

    :param is_complete: returns whether a view has all its rows; before that, kas keeps
        the rows of the former cache.
    :param epoch: identifies the cache.
    :param cluster_uid: the uid of the cluster; empty if it is not known.
    :param pauses: minimum number of seconds between two messages, by view.
    :param random: returns a number between 0 and 1, for the jitter of pauses.
    """

    _log = Logger()

    def __init__(
        self,
        service: IServiceClient,
        tables: Mapping[str, Table],
        is_complete: Callable[[str], bool],
        epoch: bytes,
        cluster_uid: str,
        pauses: Mapping[str, float],
        clock: IReactorTime,
        random: Callable[[], float],
    ) -> None:
        self._service = service
        self._tables = tables
        self._is_complete = is_complete
        self._epoch = epoch
        self._cluster_uid = cluster_uid
        self._pauses = pauses
        self._clock = clock
        self._random = random
        self._complaint = ""
        self._followed: frozenset[str] = frozenset()
        self._sent: dict[str, _Sent] = {}
        self._beat_at = 0.0
        self._beats = 0
        self._wake_call: IDelayedCall | None = None
        #: Whether kas does not know of a change of rights yet.
        self._has_changed_rights = False
        #: Fires when the loop has to look for changes again.
        self._waiting: Deferred[None] | None = None

    def changed(self, view: str) -> None:
        """Record that a table has changed; the change is sent after a pause."""
        if self._waiting is not None and view in self._sent:
            self._wake_at(max(self._sent[view].not_before, self._clock.seconds()))

    def rights_changed(self) -> None:
        """Notify kas that rights in the cluster may have changed."""
        self._has_changed_rights = True
        self._wake()

    async def run(self) -> None:
        """Publish until cancelled."""
        backoff = Backoff(self._random, RETRY_FIRST, RETRY_MOST)
        while True:
            try:
                await self._publish(backoff)
            except CallError as error:
                if error.message != self._complaint:
                    self._complaint = error.message
                    say = (
                        self._log.info
                        if error.status in _NOT_THERE
                        else self._log.debug
                    )
                    say("kas takes no live data: {reason}", reason=error.message)
            except CancelledError:
                raise
            except Exception:
                self._log.failure("publishing live data failed")
            await deferLater(self._clock, backoff.pause())

    async def _publish(self, backoff: Backoff) -> None:
        call = self._service.open("Publish")
        try:
            hello = wire.Hello(
                epoch=self._epoch, cluster_uid=self._cluster_uid, views=self._tables
            )
            await call.send(wire.AgentMessage(hello=hello))
            responses = aiter(call)
            first = await anext(responses, None)
            if first is None or not first.HasField("welcome"):
                raise CallError(Status.INTERNAL, "kas: a response without a welcome")
            self._welcomed(first.welcome)
            backoff.reset()
            self._complaint = ""
            reading = Deferred.fromCoroutine(self._read(responses))
            try:
                await self._send(call, reading)
            finally:
                reading.cancel()
        finally:
            self._sent, self._followed = {}, frozenset()
            cancel_call(self._wake_call)
            call.cancel()

    def _welcomed(self, welcome: wire.Welcome) -> None:
        self._beat_at = self._clock.seconds() + BEAT
        self._beats = 0
        for name, table in self._tables.items():
            if name not in welcome.views:
                continue
            known = welcome.sequences.get(name)
            resumes = known is not None and table.has_since(known)
            self._sent[name] = _Sent(known if resumes else None)

    async def _read(self, responses: AsyncIterator[Any]) -> None:
        """Read what kas asks for, until the call ends."""
        async for message in responses:
            if message.HasField("snapshot_wanted"):
                view = message.snapshot_wanted.view
                if view in self._sent:
                    self._sent[view].sequence = None
                    self._wake()
            elif message.HasField("followed"):
                self._followed = frozenset(message.followed.views)
                for view, sent in self._sent.items():
                    soon = self._clock.seconds() + self._pause(view)
                    sent.not_before = min(sent.not_before, soon)
                self._wake()
        raise CallError(Status.UNAVAILABLE, "kas ended the call")

    async def _send(self, call: IClientCall, reading: Deferred[None]) -> None:
        """Send changes and beats, until the call ends."""
        ended: list[Failure] = []

        def end(failure: Failure) -> None:
            ended.append(failure)
            self._wake()

        reading.addErrback(end)
        while not ended:
            now = self._clock.seconds()
            for name, sent in self._sent.items():
                if self._is_behind(name) and now >= sent.not_before:
                    await self._send_view(call, self._tables[name], sent)
                    sent.not_before = self._clock.seconds() + self._pause(name)
            if self._has_changed_rights:
                self._has_changed_rights = False
                changed = wire.AgentMessage(rights_changed=wire.RightsChanged())
                await call.send(changed)
            if self._clock.seconds() >= self._beat_at:
                await self._send_beat(call)
            if not (ended or self._has_changed_rights):
                # The call may have ended while a message was sent.
                await self._wait()
        ended[0].raiseException()

    def _pause(self, name: str) -> float:
        pause = self._pauses.get(name, 1.0)
        return min(pause, FOLLOWED_PAUSE) if name in self._followed else pause

    def _is_behind(self, name: str) -> bool:
        sequence = self._sent[name].sequence
        if sequence is None:
            return self._is_complete(name)
        return sequence < self._tables[name].sequence

    async def _wait(self) -> None:
        """Wait until a view may be sent, or the next beat is due."""
        behind = [
            one.not_before for name, one in self._sent.items() if self._is_behind(name)
        ]
        waiting: Deferred[None] = Deferred()
        self._waiting = waiting
        self._wake_at(min([self._beat_at, *behind]))
        try:
            await waiting
        finally:
            self._waiting = None
            cancel_call(self._wake_call)

    def _wake_at(self, time: float) -> None:
        self._wake_call = call_by(time, self._wake_call, self._wake, self._clock)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    # -- Messages

    async def _send_view(self, call: IClientCall, table: Table, sent: _Sent) -> None:
        since = sent.sequence
        if since is None or not table.has_since(since):
            await self._send_snapshot(call, table, sent)
            return
        # From now on, kas may ask for all rows again.
        sent.sequence = sequence = table.sequence
        deltas = list(_deltas(table, *table.since(since)))
        # kas resumes at this number, and so it must have all parts first.
        deltas[-1].sequence = sequence
        for delta in deltas:
            await call.send(wire.AgentMessage(delta=delta))

    async def _send_snapshot(
        self, call: IClientCall, table: Table, sent: _Sent
    ) -> None:
        # Rows that change meanwhile are sent as they are then, or are missing; the next
        # delta has all of them.
        sent.sequence = sequence = table.sequence
        keys = list(table.rows)
        parts = list(_parts(keys, table)) or [[]]
        for count, part in enumerate(parts):
            message = wire.Snapshot(
                view=table.name,
                sequence=sequence,
                first=count == 0,
                last=count == len(parts) - 1,
                rows=[_row(key, row) for key, row in table.items(part)],
            )
            await call.send(wire.AgentMessage(snapshot=message))

    async def _send_beat(self, call: IClientCall) -> None:
        self._beat_at = self._clock.seconds() + BEAT
        self._beats += 1
        beat = wire.Beat()
        if self._beats % SUM_EVERY == 0:
            for name, sent in self._sent.items():
                table = self._tables[name]
                if sent.sequence == table.sequence:
                    beat.sums[name].sequence = table.sequence
                    beat.sums[name].sum = table.sum
        await call.send(wire.AgentMessage(beat=beat))


def _row(key: TableKey, row: TableRow) -> wire.Row:
    return wire.Row(key=_key(key), resource=row.resource, columns=row.columns)


def _key(key: TableKey) -> wire.RowKey:
    return wire.RowKey(
        group=key.group,
        kind=key.kind,
        namespace=key.namespace,
        name=key.name,
        part=key.part,
    )


def _parts(keys: Sequence[TableKey], table: Table) -> Iterator[list[TableKey]]:
    """Yield *keys* in lists whose rows fit into one message."""
    part: list[TableKey] = []
    size = 0
    for key, row in table.items(keys):
        if size >= PART_SIZE or len(part) == PART_KEYS:
            yield part
            part, size = [], 0
        part.append(key)
        size += len(row.columns) + sum(map(len, key))
    if part:
        yield part


def _deltas(
    table: Table, put: Sequence[TableKey], deleted: Sequence[TableKey]
) -> Iterator[wire.Delta]:
    """Yield the messages of a change, at least one."""
    for part in _parts(put, table):
        rows = [_row(key, row) for key, row in table.items(part)]
        yield wire.Delta(view=table.name, put=rows)
    for start in range(0, max(1, len(deleted)), PART_KEYS):
        keys = [_key(key) for key in deleted[start : start + PART_KEYS]]
        yield wire.Delta(view=table.name, deleted=keys)
