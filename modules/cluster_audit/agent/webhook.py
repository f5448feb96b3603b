"""The webhook that an API server calls with the events of its audit log."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from modules.cluster_audit.agent.event_filter import EventFilter
from modules.cluster_audit.agent.events import EventReader, InvalidEvent, decoded
from modules.cluster_audit.wire import cluster_audit_pb2 as wire
from tunnel.http1 import (
    Exchange,
    HttpServerFactory,
    HttpServerLimits,
    RequestHead,
    RequestParser,
    RequestReceiver,
)
from tunnel.toolkit.recent import Recent

__all__ = ["PATH", "AuditWebhook", "WebhookEvents"]

#: Path of the URL in the kubeconfig of the API server.
PATH: Final = b"/audit"

#: Maximum bytes of events that arrive or wait for kas: the events of about a minute of
#: a busy API server at the level Metadata.
MAX_WAITING = 8 * 1024**2

#: Maximum bytes of a request with its bodies, which are left out of a larger one: this
#: takes longer than to read the events, and most batches are smaller.
MAX_WHOLE = 128 * 1024

#: Maximum number of requests that wait for kas; API servers send one a second.
MAX_BODIES = 1000

#: Maximum number of events in a message to kas.
MAX_EVENTS = 500

#: Maximum number of recent events by which repeated ones are recognized: an API server
#: repeats a request whose response it did not get.
MAX_RECENT = 10_000

#: Maximum number of connections; each API server has one or two.
LIMITS = HttpServerLimits(max_connections=50, body_seconds=30.0)

_BEARER = re.compile(rb"[Bb]earer +([!-~]+)")

#: Each event has one of these.
_MARK = b'"auditID"'


@attrs.define(eq=False)
class WebhookEvents:
    """
    Events that wait for kas; agentk forgets them if it ends.

    :param reader: selects events.
    :ivar left_out: number of events that had no room, or could not be read.
    """

    left_out: int = 0
    #: Part of `left_out` that kas does not know.
    _untold: int = 0
    _bodies: deque[bytes] = attrs.field(factory=deque, init=False)
    _size: int = 0
    #: Events that kas gets next.
    _events: list[wire.Event] = attrs.field(factory=list, init=False)
    #: Digests: a client can choose the audit id, and use that of another request.
    _seen: Recent[bytes, None] = attrs.field(
        factory=lambda: Recent(MAX_RECENT), init=False
    )
    #: Fires when there is something to send.
    _wait: Deferred[None] | None = None
    #: The events since the start of agentk are a log of their own, without gaps.
    _mark: str = attrs.field(
        factory=lambda: f"webhook:{secrets.token_hex(16)}", init=False
    )
    _offset: int = 0

    def hold(self, size: int) -> bool:
        """Take room for a number of bytes that have arrived, if there is any."""
        if len(self._bodies) >= MAX_BODIES or self._size + size > MAX_WAITING:
            return False
        self._size += size
        return True

    def release(self, size: int) -> None:
        """Give back the room of a request that is not put."""
        self._size -= size

    def put(self, body: bytes) -> None:
        """Add a request of the API server, which has its room."""
        self._bodies.append(body)
        self._wake()

    def leave_out(self, count: int) -> None:
        """Count events that have no room."""
        self.left_out += count
        self._untold += count
        self._wake()

    def _wake(self) -> None:
        waiting, self._wait = self._wait, None
        if waiting is not None:
            waiting.callback(None)

    async def run(
        self,
        reader: EventReader,
        call: Callable[[str, Any], Awaitable[Any]],
        sent: Callable[[int], object],
    ) -> None:
        """
        Send events without end; after an error, another call continues.

        :param call: calls a method of kas.
        :param sent: called with the number of events that kas has stored.
        :raises CallError: if kas does not respond, or refuses the events.
        """
        while True:
            while self._events or self._untold:
                await self._send(call, sent)
            if self._bodies:
                body = self._bodies[0]
                events, invalid = await deferToThread(_parsed, body, reader)
                self._bodies.popleft()
                self._size -= len(body)
                self.left_out += invalid
                self._untold += invalid
                self._events += filter(self._is_new, events)
                continue
            self._wait = Deferred()
            await self._wait

    def _is_new(self, event: wire.Event) -> bool:
        text = event.SerializeToString(deterministic=True)
        key = hashlib.sha256(text).digest()
        is_new = key not in self._seen
        self._seen[key] = None
        return is_new

    async def _send(
        self,
        call: Callable[[str, Any], Awaitable[Any]],
        sent: Callable[[int], object],
    ) -> None:
        events, untold = self._events[:MAX_EVENTS], self._untold
        # An offset is the number of events; a request without any needs one, too.
        end = self._offset + max(len(events), 1)
        for number, event in enumerate(events):
            event.end = self._offset + number + 1
        response = await call(
            "Store",
            wire.StoreRequest(
                log=self._mark,
                start=self._offset,
                end=end,
                events=events,
                left_out=untold,
            ),
        )
        self._offset = response.offset
        if response.offset == end:
            del self._events[: len(events)]
            self._untold -= untold
            sent(len(events))


def _parsed(body: bytes, reader: EventReader) -> tuple[list[wire.Event], int]:
    """Return the events of a request, and the number of those that are invalid."""
    try:
        items = decoded(body, 3)["items"]
    except (ValueError, KeyError, TypeError):
        return [], max(body.count(_MARK), 1)
    events: list[wire.Event] = []
    invalid = 0
    for item in items if isinstance(items, list) else ():
        if not isinstance(item, dict):
            invalid += 1
            continue
        try:
            event = reader.of(item)
        except InvalidEvent:
            invalid += 1
            continue
        if event is not None:
            events.append(event)
    return events, invalid


class AuditWebhook:
    """
    Handler of requests at `PATH`, which responds as soon as a request has arrived.

    The API server would otherwise keep its events in memory.  It gets 200 even if there
    is no room, because it would repeat the request.

    :param token: returns the token that requests must have; raises `ValueError` if its
        file cannot be used.
    """

    _log = Logger()

    def __init__(self, events: WebhookEvents, token: Callable[[], bytes]) -> None:
        self._events = events
        self._token = token
        self._is_broken = False

    def factory(self, clock: IReactorTime) -> HttpServerFactory:
        """Return a factory for connections of the API server."""
        parser = RequestParser(
            taken=[b"authorization"], max_count=LIMITS.max_header_count
        )
        return HttpServerFactory(self, clock, parser=parser, limits=LIMITS)

    def request_received(self, exchange: Exchange) -> RequestReceiver | None:
        """See `tunnel.http1.RequestHandler`."""
        head = exchange.head
        try:
            is_permitted = self._is_permitted(head)
        except ValueError as error:
            if not self._is_broken:
                self._log.error("refusing audit events: {reason}", reason=str(error))
            self._is_broken = True
            exchange.respond(503, b"", b"")
            return None
        if not is_permitted:
            exchange.respond(401, b"\r\nWWW-Authenticate: Bearer", b"")
        elif head.target.partition(b"?")[0] != PATH:
            exchange.respond(404, b"", b"")
        elif head.method != b"POST":
            exchange.respond(405, b"\r\nAllow: POST", b"")
        elif not head.length:
            exchange.respond(400, b"", b"")
        else:
            return _Body(self._events, exchange)
        return None

    def _is_permitted(self, head: RequestHead) -> bool:
        values = head.taken.get(b"authorization", [])
        found = _BEARER.fullmatch(values[0]) if len(values) == 1 else None
        token = self._token()
        self._is_broken = False
        return found is not None and hmac.compare_digest(found[1], token)


class _Body:
    """Receiver of the body of one request."""

    def __init__(self, events: WebhookEvents, exchange: Exchange) -> None:
        self._events = events
        self._exchange = exchange
        #: Leaves out bodies, if the request is large.
        self._filter: EventFilter | None = None
        self._parts: list[bytes] = []
        #: Number of bytes in `_parts`, for which there is room.
        self._size = 0
        #: Number of events in the parts without room, or None.
        self._left_out: int | None = None

    def body_received(self, data: bytes) -> None:
        """Keep a part of the body while there is room."""
        if self._filter is None:
            if self._size + len(data) <= MAX_WHOLE and self._keep(bytes(data)):
                return
            data = b"".join((*self._parts, data))
            self._forget()
            # An event is an item of the array in the list.
            self._filter = EventFilter(3)
        part = self._filter.feed(bytes(data))
        if self._left_out is not None:
            self._left_out += part.count(_MARK)
        elif not self._keep(part):
            self._left_out = b"".join((*self._parts, part)).count(_MARK)
            self._forget()

    def _keep(self, part: bytes) -> bool:
        if not self._events.hold(len(part)):
            return False
        self._parts.append(part)
        self._size += len(part)
        return True

    def body_finished(self, trailers: bytes) -> None:
        """Respond, and let kas get the events."""
        self._exchange.respond(200, b"", b"")
        if self._left_out is not None:
            self._events.leave_out(max(self._left_out, 1))
        else:
            self._events.put(b"".join(self._parts))

    def client_gone(self, reason: Exception) -> None:
        """Forget the request, which the API server repeats."""
        self._forget()

    def _forget(self) -> None:
        self._events.release(self._size)
        self._parts.clear()
        self._size = 0
