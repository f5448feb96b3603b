"""
GitLab's aggregated watches: all watches of a page in one WebSocket.

    page --WebSocket /watch--> kas --a watch each--> agentk's cache --> API server

A watch that the cache does not answer, or stops answering, is a plain watch of the API
server.

The page uses the subprotocol ``gitlab-agent-watch-api``.  Its messages are JSON in
snake_case, the messages of kas JSON in camelCase, as in ``@gitlab/cluster-client``::

    {"type": "watch", "watch_id": "pods", "watch_params": {"version": "v1", …}}
    {"type": "unwatch", "watch_id": "pods"}

    {"type": "event", "watchId": "pods", "watchEvent": {"type": "ADDED", "object": …}}
    {"type": "error", "watchId": "pods", "error": {"object": Status}}
    {"type": "stop", "watchId": "pods"}

Each watch is a separate request, with the caller's permissions and share.  The client
ignores MODIFIED for an object that it has not seen, and adds an object twice after two
ADDED: kas remembers the objects that it sent, and corrects the type.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, NoReturn, Protocol
from urllib.parse import urlencode

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol as WebSocketCore
from websockets.protocol import Side, State
from zope.interface import implementer

from modules.kubernetes_api.cached_watch import CachedWatch
from modules.kubernetes_api.frontdoor import Refused
from modules.kubernetes_api.shares import TooMany
from modules.kubernetes_api.statuses import INTERNAL_ERROR
from modules.kubernetes_api.watch_turns import WatchTurns
from tunnel.api import Access, IPathReceiver, IStream
from tunnel.errors import ErrorCode, SessionClosed
from tunnel.http1 import Exchange, HeadError, RequestHead, ResponseHead
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.texts import DNS_LABEL
from tunnel.toolkit.timers import cancel_call

__all__ = ["WatchConnection", "WatchHost", "wants_watches"]

PATH: Final = b"/watch"
SUBPROTOCOL: Final = b"gitlab-agent-watch-api"

#: Maximum number of watches of one connection: a page of GitLab has ten.
MAX_WATCHES: Final = 100

#: Maximum bytes of a client's message; real messages have 300.
MAX_MESSAGE: Final = 16 * 1024

#: Maximum bytes of one event.  etcd accepts objects of 1.5 MiB, and a cluster may be
#: hostile.
MAX_EVENT: Final = 4 * 1024 * 1024

#: Maximum number of events that a watch delivers before others have their turns: each
#: takes some 25 us.
MAX_EVENTS: Final = 100

#: Maximum bytes of incomplete events in all watches of a connection.
MAX_HELD: Final = 16 * 1024 * 1024

#: Maximum number of objects in all watches of a connection, with 100 to 600 bytes each
#: in kas: more than any page shows.
MAX_OBJECTS: Final = 20_000

#: Maximum characters of an object's uid or resourceVersion, which kas remembers;
#: Kubernetes' have 36 and 20.
MAX_NAME: Final = 128

#: Maximum bytes of a response that is not a watch.
MAX_REFUSAL: Final = 64 * 1024

#: Maximum characters of a client's name for a watch.
MAX_ID: Final = 256

#: Seconds between two PINGs; kas disconnects a client that misses three.
PING_SECONDS: Final = 30.0
DEAD_AFTER: Final = 3

#: Seconds before a watch that ended is restarted, and how often it may end without an
#: event in between.
AGAIN_SECONDS: Final = 1.0
MAX_AGAIN: Final = 5

_KEY = re.compile(
    rb"\r\nsec-websocket-key:[ \t]*([A-Za-z0-9+/]{22}==)[ \t]*(?=\r|\Z)", re.I
)
_VERSION = re.compile(rb"\r\nsec-websocket-version:[ \t]*13[ \t]*(?=\r|\Z)", re.I)
_PROTOCOLS = re.compile(rb"\r\nsec-websocket-protocol:([^\r]*)", re.I)
_AGENT = re.compile(rb"\r\nuser-agent:[^\r]*", re.I)
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

_PARTS: Final = {
    "group": re.compile(rf"{DNS_LABEL}(\.{DNS_LABEL}){{0,10}}"),
    "version": re.compile(DNS_LABEL),
    "resource": re.compile(DNS_LABEL),
    "namespace": re.compile(DNS_LABEL),
}
_QUERY: Final = {
    "label_selector": "labelSelector",
    "field_selector": "fieldSelector",
    "resource_version": "resourceVersion",
    "resource_version_match": "resourceVersionMatch",
    "send_initial_events": "sendInitialEvents",
}


def wants_watches(head: RequestHead, target: bytes) -> bool:
    """Return whether a request opens a connection for aggregated watches."""
    if target.partition(b"?")[0] != PATH or head.upgrade.lower() != b"websocket":
        return False
    found = b",".join(_PROTOCOLS.findall(head.fields))
    return SUBPROTOCOL in [one.strip(b" \t") for one in found.split(b",")]


class WatchHost(Protocol):
    """Part of the module's interface that aggregated watches use."""

    clock: IReactorTime
    watch_turns: WatchTurns

    def enters(self, watch: Any, access: Access) -> bool:
        """
        Count *watch* among the requests of its caller.

        :returns: whether the watch begins now; if not, its ``begin`` is called later.
        :raises TooMany: if the watch has to be refused; it is counted anyway.
        """

    def leaves(self, watch: Any, access: Access) -> None:
        """Stop counting *watch*, which has ended."""

    def watch_begins(
        self, exchange: Exchange, head: RequestHead, access: Access
    ) -> Deferred[None] | None:
        """
        Record the beginning of a watch.

        :returns: a `Deferred` if the watch must wait until its event is on disk; it
            fails with `Refused` if the log cannot be written.
        """

    def open_watch(
        self,
        exchange: Exchange,
        head: RequestHead,
        access: Access,
        receiver: IPathReceiver,
    ) -> IStream:
        """
        Open the stream of one watch.

        :param exchange: the exchange of the watch's connection.
        :param head: the head of the watch itself.
        :raises TunnelError: if the stream cannot be opened.
        """

    def cached_watch(
        self, head: RequestHead, access: Access
    ) -> AsyncGenerator[bytes, None] | None:
        """
        Return a watch from the cache of the agent: see `tunnel.api.ICachedWatches`.

        :returns: None if no cache can answer it.
        """

    def cached_watch_begins(self, access: Access) -> None:
        """Count a watch that the cache answers."""

    def why_forbidden(self, head: RequestHead, access: Access) -> str | None:
        """Return why *access* does not include a watch; None if it does."""

    def read_head(self, block: bytes) -> ResponseHead:
        """
        Parse the head of a response.

        :raises HeadError: if the head is malformed.
        """

    def watch_answered(
        self, exchange: Exchange, head: RequestHead, access: Access, status: int
    ) -> None:
        """
        Count and audit the response to one watch.

        :param exchange: the exchange of the watch's connection.
        :param head: the head of the watch itself.
        """

    def watch_failed(
        self, exchange: Exchange, head: RequestHead, access: Access, reason: Exception
    ) -> None:
        """Count and audit a watch that failed for *reason* before its response."""

    def watch_cancelled(
        self, exchange: Exchange, head: RequestHead, access: Access
    ) -> None:
        """Audit a watch that the client or a stopping kas ended before its response."""

    def watch_ended(
        self,
        exchange: Exchange,
        head: RequestHead,
        access: Access,
        reason: str,
        size: int,
    ) -> None:
        """
        Audit the end of a watch.

        :param reason: why it ended; empty if the client or a stopping kas ended it.
        :param size: bytes of its response.
        """

    def explain(self, reason: Exception) -> str:
        """Return why a stream ended."""

    def refuse_watches(
        self, exchange: Exchange, status: int, message: str, access: Access | None
    ) -> None:
        """
        Respond with an error to the request that would open a connection of watches.
        """

    def watches_begin(self, connection: WatchConnection) -> None:
        """Register *connection*, which ends when kas stops."""

    def watches_end(self, connection: WatchConnection) -> None:
        """Forget *connection*, which has ended."""


class _Invalid(Exception):
    """Error for an invalid message of the client."""


@implementer(IPushProducer)
class WatchConnection:
    """
    One WebSocket and its watches; receiver of the events of an `Exchange`.

    :param fields: header fields that the response contains.
    """

    _log = Logger()

    def __init__(self, host: WatchHost, exchange: Exchange, fields: bytes) -> None:
        self.exchange = exchange
        self.host = host
        self.fields = fields
        self.access: Access | None = None
        #: Running check of the credential.
        self.checking: Deferred[Access] | None = None
        self.over = False
        self.paused = False
        self.watches: dict[str, _Watch] = {}
        self.objects = 0
        self._core = WebSocketCore(Side.SERVER, max_size=MAX_MESSAGE)
        self._parts = b""
        self._ping: IDelayedCall | None = None
        self._silent = 0
        #: Names of the watches that are paused, in the order of their next turns.
        self._waiting: dict[str, None] = {}
        #: Whether the connection is in the queue of `WatchTurns`.
        self._is_queued = False

    # The beginning of the connection.

    def authorized(self, access: Access) -> None:
        """
        Switch the connection to the WebSocket protocol, for the caller of *access*.
        """
        self.checking = None
        if self.over:
            return
        self.access = access
        try:
            self.host.enters(self, access)
        except TooMany as error:
            self.refuse(429, f"client -> kas: too many requests {error}")
            return
        fields = self.exchange.head.fields
        key = _KEY.search(fields)
        if key is None or _VERSION.search(fields) is None:
            self.refuse(400, "client -> kas: this is not a WebSocket of version 13")
            return
        accept = base64.b64encode(
            hashlib.sha1(key[1] + _GUID, usedforsecurity=False).digest()
        )
        block = (
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
            b"Upgrade: websocket\r\nSec-WebSocket-Accept: %b\r\n"
            b"Sec-WebSocket-Protocol: %b%b\r\n" % (accept, SUBPROTOCOL, self.fields)
        )
        self.exchange.registerProducer(self, True)
        self.host.watches_begin(self)
        self._ping = self.host.clock.callLater(PING_SECONDS, self._tick)
        self.exchange.upgrade(block)

    def refuse(self, status: int, message: str) -> None:
        """Respond with an error."""
        if not self.over:
            access = self.access
            self._end()
            self.host.refuse_watches(self.exchange, status, message, access)

    # Methods of `Sharing`: the connection counts as one request of its caller.

    def begin(self) -> None:
        """Note that the watch began."""

    def begin_failed(self) -> None:
        """See `begin`, which never raises."""

    def revoke(self) -> None:
        """End the connection, because its credential is no longer valid."""
        self.close(CloseCode.POLICY_VIOLATION, "the credential was revoked")

    def end_watch(self) -> None:
        """End the connection, because kas stops; the page reconnects."""
        self.close(CloseCode.GOING_AWAY, "kas stops")

    # Callbacks of the client's exchange.

    def body_received(self, data: bytes) -> None:
        """See `tunnel.http1.RequestReceiver`."""
        if self.over:
            return
        self._silent = 0
        core = self._core
        core.receive_data(data)
        for event in core.events_received():
            if isinstance(event, Frame) and not self.over:
                self._frame(event)
        self._flush()
        if core.state is not State.OPEN and not self.over:
            # The client sent a closing handshake, or bytes that are not a WebSocket.
            self._finish()

    def body_finished(self, trailers: bytes) -> None:
        """See `tunnel.http1.RequestReceiver`."""
        self._finish()

    def client_gone(self, reason: Exception) -> None:
        """See `tunnel.http1.RequestReceiver`."""
        self._end()
        if self.checking is not None:
            self.checking.cancel()

    def _frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.TEXT or frame.opcode is Opcode.BINARY:
            self._parts = bytes(frame.data)
        elif frame.opcode is Opcode.CONT:
            self._parts += frame.data
        else:
            return
        if len(self._parts) > MAX_MESSAGE:
            self.close(CloseCode.MESSAGE_TOO_BIG, "a message is too large")
        elif frame.fin:
            text, self._parts = self._parts, b""
            self._message(text)

    def _message(self, text: bytes) -> None:
        name = ""
        try:
            message = _object(text)
            name = message.get("watch_id", "")
            if not isinstance(name, str) or not 0 < len(name) <= MAX_ID:
                name = ""
                raise _Invalid(f"watch_id must be a text of 1 to {MAX_ID} characters")
            kind = message.get("type")
            if kind == "unwatch":
                watch = self.watches.pop(name, None)
                if watch is not None:
                    watch.cancel()
            elif kind == "watch":
                self._watch(name, message.get("watch_params"))
            else:
                raise _Invalid("type must be watch or unwatch")
        except _Invalid as error:
            self.tell(
                {"type": "error", "watchId": name, "error": {"message": str(error)}}
            )

    def _watch(self, name: str, params: Any) -> None:
        if name in self.watches:
            raise _Invalid("a watch with this watch_id already exists")
        if len(self.watches) >= MAX_WATCHES:
            raise _Invalid(f"a connection may have at most {MAX_WATCHES} watches")
        path, query, bookmarks = _request(params)
        watch = self.watches[name] = _Watch(self, name, path, query, bookmarks)
        watch.enqueue()

    # Messages to the client.

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self.send(json.dumps(message).encode())

    def send(self, text: bytes) -> None:
        """Send the text of a message."""
        if not self.over and self._core.state is State.OPEN:
            self._core.send_text(text)
            self._flush()

    def close(self, code: int, reason: str) -> None:
        """End the connection, and send the reason to the client."""
        if self.over:
            return
        if not self.exchange.head_sent:
            self.refuse(503, f"kas: {reason}")
            return
        if self._core.state is State.OPEN:
            self._core.send_close(code, reason)
        self._flush()
        self._finish()

    def _flush(self) -> None:
        for data in self._core.data_to_send():
            if data:
                self.exchange.write(data)

    def _finish(self) -> None:
        if not self.over:
            self._end()
            self.exchange.finish()

    def _end(self) -> None:
        if self.over:
            return
        self.over = True
        cancel_call(self._ping)
        self._waiting.clear()
        watches, self.watches = self.watches, {}
        for_each(watches.values(), lambda watch: watch.cancel(), "ending a watch")
        self.host.watches_end(self)
        if self.access is not None:
            self.host.leaves(self, self.access)

    def _tick(self) -> None:
        self._ping = None
        self._silent += 1
        if self._silent > DEAD_AFTER:
            self._end()
            self.exchange.abort()
            return
        if self._core.state is State.OPEN:
            self._core.send_ping(b"")
            self._flush()
        self._ping = self.host.clock.callLater(PING_SECONDS, self._tick)

    # Methods of `IPushProducer`: the client may read more slowly than events arrive.

    def pauseProducing(self) -> None:
        """Stop reading the watches and the client."""
        self.paused = True
        self.exchange.pauseProducing()
        for name in self.watches:
            self._waiting.setdefault(name)
        for_each(
            tuple(self.watches.values()),
            lambda watch: watch.pause(),
            "pausing a watch",
        )

    def resumeProducing(self) -> None:
        """Resume reading the watches and the client."""
        self.paused = False
        self.exchange.resumeProducing()
        self._queue()

    def _queue(self) -> None:
        """Let paused watches resume, one in each turn of this connection."""
        if self._waiting and not (self._is_queued or self.paused or self.over):
            assert self.access is not None
            self._is_queued = True
            self.host.watch_turns.add(self.access.owner, self)

    def take_turn(self) -> bool:
        """See `modules.kubernetes_api.watch_turns.TakesTurns`."""
        while self._waiting and not (self.paused or self.over):
            name = next(iter(self._waiting))
            del self._waiting[name]
            watch = self.watches.get(name)
            if watch is not None:
                for_each((watch,), lambda watch: watch.resume(), "resuming a watch")
                break
        self._is_queued = bool(self._waiting) and not (self.paused or self.over)
        return self._is_queued

    def wait_for_turn(self, name: str) -> None:
        """Resume a watch, which holds further events, in a later turn."""
        self._waiting.setdefault(name)
        self._queue()

    def stopProducing(self) -> None:
        """Do nothing: `client_gone` handles a client that left."""

    def is_paused(self, name: str) -> bool:
        """Return whether a watch has to wait until the client has read more."""
        if self.paused:
            self._waiting.setdefault(name)
        return name in self._waiting

    @property
    def held(self) -> int:
        """Number of bytes of events that were not delivered yet."""
        return sum(len(watch.buffer) for watch in self.watches.values())


@implementer(IPathReceiver)
class _Watch:
    """
    One watch; receiver of the events of its stream, and of later streams that continue
    it.
    """

    _log = Logger()

    def __init__(
        self,
        connection: WatchConnection,
        name: str,
        path: str,
        query: dict[str, str],
        bookmarks: bool,
    ) -> None:
        self._connection = connection
        self._name = name
        self._path = path
        self._query = query
        self._bookmarks = bookmarks
        self.over = False
        #: Events that were not delivered yet; the last one may be incomplete.
        self.buffer = bytearray()
        #: Called after the last event of a stream that has ended.
        self._at_end: Callable[[], None] | None = None
        self._stream: IStream | CachedWatch | None = None
        #: Whether the cache may answer the next request.
        self._may_use_cache = True
        #: Whether the cache answers, and sends the objects that exist at the beginning:
        #: their versions are not a position.
        self._is_initial = False
        self._is_cached = False
        #: Whether a stream is open, as far as known.
        self._live = False
        self._head: RequestHead | None = None
        #: Whether the outcome of the current request is in the audit log; also true
        #: without a request.
        self._recorded = True
        self._answer: ResponseHead | None = None
        #: Bytes of the response to the current request.
        self._size = 0
        #: Body of a response with a status other than 200.
        self._refusal = bytearray()
        self._seen: set[str] = set()
        #: The resourceVersion of the next request, after the API server ends the
        #: watch.
        self._version = ""
        self._ends = 0
        self._later: IDelayedCall | None = None
        assert connection.access is not None
        self._access = connection.access

    def enqueue(self) -> None:
        """Begin the watch when it is the caller's turn."""
        try:
            begins = self._connection.host.enters(self, self._access)
        except TooMany as error:
            self._prepare()
            self._record_failure(error)
            self._fail({"message": f"too many requests {error}"})
            return
        if begins:
            self.begin()

    def begin(self) -> None:
        """Send the request; an error in kas ends only this watch."""
        self._later = None
        try:
            self._request()
        except Exception:
            self._log.failure("cannot begin a watch")
            self.begin_failed()

    def begin_failed(self) -> None:
        """See `modules.kubernetes_api.shares.Sharing`."""
        if not self.over:
            self._record_failure(HeadError(500, INTERNAL_ERROR))
            self._fail({"message": INTERNAL_ERROR})

    def _next_query(self) -> dict[str, str]:
        """Return the query of the next request."""
        query = dict(self._query)
        if self._version:
            # The client knows the objects, so only changes are needed from now on.
            for name in ("sendInitialEvents", "resourceVersionMatch"):
                query.pop(name, None)
            query["resourceVersion"] = self._version
        return query

    def _prepare(self) -> RequestHead:
        """Return the head of the next request."""
        target = f"{self._path}?{urlencode(self._next_query())}".encode("ascii")
        came = self._connection.exchange.head
        fields = b"\r\nAccept: application/json"
        if (agent := _AGENT.search(came.fields)) is not None:
            fields += agent[0]
        taken = {
            name: values
            for name, values in came.taken.items()
            if name == b"via" or name.startswith(b"impersonate-")
        }
        head = self._head = RequestHead(b"GET", target, 1, fields, taken=taken)
        self._recorded = False
        return head

    def _record(self, status: int) -> None:
        """Record the response to the current request."""
        if self._head is not None and not self._recorded:
            self._recorded = True
            connection = self._connection
            host, exchange = connection.host, connection.exchange
            host.watch_answered(exchange, self._head, self._access, status)

    def _record_failure(self, reason: Exception) -> None:
        """Record that the current request failed before its response."""
        if self._head is not None and not self._recorded:
            self._recorded = True
            connection = self._connection
            host, exchange = connection.host, connection.exchange
            host.watch_failed(exchange, self._head, self._access, reason)

    def _record_end(self, reason: str) -> None:
        """Record the end of the current request, unless its end is recorded."""
        if self._head is not None:
            connection = self._connection
            host, exchange = connection.host, connection.exchange
            host.watch_ended(exchange, self._head, self._access, reason, self._size)

    def _request(self) -> None:
        head = self._prepare()
        self._answer = None
        self._is_cached = self._is_initial = False
        self._size = 0
        self._at_end = None
        self.buffer.clear()
        host = self._connection.host
        why = host.why_forbidden(head, self._access)
        if why is not None:
            self._record(403)
            self._fail({"message": why})
            return
        exchange = self._connection.exchange
        committed = host.watch_begins(exchange, head, self._access)
        if committed is None:
            self._open(head)
            return
        committed.addCallback(self._committed, head)
        committed.addErrback(self._not_open)

    def _committed(self, _: object, head: RequestHead) -> None:
        if not self.over:
            self._open(head)

    def _not_open(self, failure: Failure) -> None:
        """End the watch, because its beginning cannot be recorded."""
        if not isinstance(failure.value, Refused):
            self._log.failure("cannot begin a watch", failure)
            self.begin_failed()
        elif not self.over:
            self._record_failure(failure.value)
            self._fail({"message": str(failure.value)})

    def _open(self, head: RequestHead) -> None:
        if not (self._may_use_cache and self._open_cached(head)):
            self._open_plain(head)

    def _open_cached(self, head: RequestHead) -> bool:
        """Ask the cache; return False if there is none."""
        host = self._connection.host
        query = self._cached_query()
        target = f"{self._path}?{urlencode(query)}".encode("ascii")
        asked = RequestHead(b"GET", target, 1, head.fields, taken=head.taken)
        parts = host.cached_watch(asked, self._access)
        if parts is None:
            return False
        self._is_cached = self._live = True
        self._is_initial = query.get("sendInitialEvents") == "true"
        stream = self._stream = CachedWatch(parts, self, host.clock)
        if self._connection.is_paused(self._name):
            stream.pauseProducing()
        stream.start()
        return True

    def _cached_query(self) -> dict[str, str]:
        query = self._next_query()
        if not query.get("resourceVersion", "").strip("0"):
            # A bookmark follows the objects that exist at the beginning.
            query.setdefault("sendInitialEvents", "true")
            query.setdefault("resourceVersionMatch", "NotOlderThan")
        return query

    def cache_answered(self) -> None:
        """See `CachedWatchReceiver`."""
        self._answer = ResponseHead(200, b"HTTP/1.1 200 OK", b"")
        self._record(200)
        self._connection.host.cached_watch_begins(self._access)

    def cache_failed(self, reason: str) -> None:
        """See `CachedWatchReceiver`."""
        self._live, self._stream = False, None
        self._after_events(lambda: self._leave_cache(reason))

    def _leave_cache(self, reason: str) -> None:
        """Continue at the API server, which also explains why it refuses a watch."""
        if self.over:
            return
        self._is_cached = self._may_use_cache = False
        self._at_end = None
        stream, self._stream, self._live = self._stream, None, False
        if stream is not None:
            stream.reset(ErrorCode.CANCELLED, "the watch continues without the cache")
        self.buffer.clear()
        if self._answer is None:
            assert self._head is not None
            self._open_plain(self._head)
            return
        self._record_end(f"the cache ended the watch: {reason}")
        if self._is_initial and self._seen:
            # The client has some of the objects, at no position.
            self._fail({"message": f"kas -> agent: {reason}"})
            return
        # Not within a callback of the stream that has ended.
        self._later = self._connection.host.clock.callLater(0, self.begin)

    def _open_plain(self, head: RequestHead) -> None:
        host = self._connection.host
        self._live = True
        try:
            exchange = self._connection.exchange
            stream = host.open_watch(exchange, head, self._access, self)
        except Exception as error:
            self._live = False
            self._record_failure(error)
            self._fail({"message": host.explain(error)})
            return
        if not self._live:
            # The stream was closed before the call returned.
            return
        if self.over:
            stream.reset(ErrorCode.CANCELLED, "the client ended the watch")
            return
        self._stream = stream
        if self._connection.is_paused(self._name):
            stream.pauseProducing()

    def revoke(self) -> None:
        """End the connection, and this watch with it."""
        self._connection.revoke()

    def client_gone(self, reason: Exception) -> None:
        """End the watch, because kas is stopping."""
        self._connection.end_watch()

    def end_watch(self) -> None:
        """See `client_gone`."""
        self._connection.end_watch()

    def cancel(self) -> None:
        """End the watch for the client."""
        if self.over:
            return
        self.over = True
        connection = self._connection
        connection.objects -= len(self._seen)
        self._seen.clear()
        self.buffer.clear()
        cancel_call(self._later)
        connection.host.leaves(self, self._access)
        if self._head is not None and not self._recorded:
            self._recorded = True
            exchange = connection.exchange
            connection.host.watch_cancelled(exchange, self._head, self._access)
        self._record_end("")
        self._live = False
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.reset(ErrorCode.CANCELLED, "the client ended the watch")

    def pause(self) -> None:
        """Pause reading."""
        if self._stream is not None:
            self._stream.pauseProducing()

    def resume(self) -> None:
        """Deliver events from the buffer, and then resume reading."""
        if b"\n" in self.buffer:
            self._deliver()
        if self._stream is not None and not self._connection.is_paused(self._name):
            self._stream.resumeProducing()

    # Callbacks of the agent's stream.

    def headers_received(self, block: bytes) -> None:
        """See `tunnel.api.IStreamReceiver`."""
        if self.over or self._answer is not None:
            return
        host = self._connection.host
        try:
            head = host.read_head(block)
        except HeadError as error:
            self._record_failure(error)
            self._fail({"message": f"kas -> agent: {error}"})
            return
        if head.status == 101:
            self._record_failure(HeadError(502, "an upgrade"))
            self._fail({"message": "kas -> agent: an upgrade that was not requested"})
        elif head.status >= 200:
            self._answer = head
            self._record(head.status)

    def data_received(self, data: bytes) -> None:
        """See `tunnel.api.IStreamReceiver`."""
        if self.over or self._answer is None:
            return
        self._size += len(data)
        if self._answer.status != 200:
            self._refusal += data[: MAX_REFUSAL - len(self._refusal)]
            return
        self.buffer += data
        if b"\n" not in data:
            self._check_buffer()
        elif not self._connection.is_paused(self._name):
            self._deliver()

    def _deliver(self) -> None:
        """
        Send some of the events in the buffer; continue in a later turn if there are
        more.
        """
        *lines, rest = bytes(self.buffer).split(b"\n", MAX_EVENTS)
        self.buffer[:] = rest
        for line in lines:
            if len(line) > MAX_EVENT:
                self._fail_size()
                return
            if line.strip() and not self._event(line):
                return
        if b"\n" in rest:
            self.pause()
            self._connection.wait_for_turn(self._name)
            return
        self._check_buffer()
        if self._at_end is not None and not self.over:
            at_end, self._at_end = self._at_end, None
            at_end()

    def _check_buffer(self) -> None:
        """End the watch if incomplete events are too large."""
        if len(self.buffer) > MAX_EVENT or self._connection.held > MAX_HELD:
            self._fail_size()

    def _fail_size(self) -> None:
        self._fail({"message": f"an event has more than {MAX_EVENT // 1024**2} MiB"})

    def _after_events(self, at_end: Callable[[], None]) -> None:
        """Call *at_end* when the complete events in the buffer have been delivered."""
        if b"\n" in self.buffer:
            self._at_end = at_end
        else:
            at_end()

    def fin_received(self) -> None:
        """See `tunnel.api.IStreamReceiver`."""
        if not self.over:
            # Both halves of the stream are finished, so it closes by itself.
            self._live, self._stream = False, None
            self._after_events(self._ended)

    def stream_closed(self, reason: Exception | None) -> None:
        """See `tunnel.api.IStreamReceiver`."""
        if not self._live:
            return
        self._live, self._stream = False, None
        if not self.over:
            self._after_events(lambda: self._closed(reason))

    def _closed(self, reason: Exception | None) -> None:
        if reason is not None:
            self._record_failure(reason)
            self._record_end(self._connection.host.explain(reason))
        if reason is None:
            self._ended()
        elif self._version:
            # Continue at the same position, through any agentk of the agent.
            self._go_on()
        else:
            self._fail({"message": self._connection.host.explain(reason)})

    def path_in_doubt(self) -> None:
        """Do nothing: kas uses another path if possible."""

    def path_missing(self) -> None:
        """Continue at another agentk, because this one is probably dead."""
        self._live = False
        stream, self._stream = self._stream, None
        if stream is not None and not self.over:
            lost = SessionClosed(ErrorCode.PATH_LOST, "the agent's connection was lost")
            self._record_failure(lost)
            self._record_end(str(lost))
            stream.reset(ErrorCode.CANCELLED, "the watch continues at another agentk")
            if self._version:
                self._go_on()
            else:
                self._fail({"message": "kas -> agent: the agent's connection was lost"})

    def _ended(self) -> None:
        if self._answer is None:
            text = "the agent ended the watch without a response"
            self._record_failure(HeadError(502, text))
            self._fail({"message": "kas -> agent: the watch ended without a response"})
            return
        self._record_end("finished")
        if self._answer.status != 200:
            self._fail(_status(bytes(self._refusal), self._answer.status))
        elif self._version:
            self._go_on()
        else:
            self._stop()

    def _go_on(self) -> None:
        """Restart the watch, because an API server ends each watch after a while."""
        self._ends += 1
        if self._ends > MAX_AGAIN:
            self._fail({"message": "the API server keeps ending the watch"})
            return
        # The cache may have been starting before.
        self._may_use_cache = True
        clock = self._connection.host.clock
        self._later = clock.callLater(AGAIN_SECONDS * (self._ends - 1), self.begin)

    def _event(self, line: bytes) -> bool:
        """
        Send the event in *line* to the client; return whether the watch continues.
        """
        self._pass_on(line)
        return not self.over

    def _pass_on(self, line: bytes) -> None:
        try:
            event = _object(line)
            kind, value = event.get("type"), event.get("object")
            if not isinstance(value, dict):
                raise _Invalid("an event has no object")
            metadata = value.get("metadata")
            metadata = metadata if isinstance(metadata, dict) else {}
        except _Invalid as error:
            self._fail({"message": f"agent -> API server: {error}"})
            return
        if kind == "ERROR":
            if self._is_cached:
                self._leave_cache(_reason(value))
            else:
                self._fail({"object": value})
            return
        version, uid = metadata.get("resourceVersion"), metadata.get("uid")
        version = version if isinstance(version, str) else ""
        uid = uid if isinstance(uid, str) else ""
        for name, text in (("resourceVersion", version), ("uid", uid)):
            # Check both texts, because kas remembers them, and the version becomes a
            # part of the next request.
            if len(text) > MAX_NAME or not text.isprintable():
                why = f"must have at most {MAX_NAME} printable characters"
                self._fail({"message": f"agent -> API server: {name} {why}"})
                return
        self._version = version or self._version
        self._ends = 0
        if kind == "BOOKMARK":
            self._is_initial = False
            if self._bookmarks:
                self._send(line)
            return
        wanted = kind
        if kind in ("ADDED", "MODIFIED") and uid:
            wanted = "MODIFIED" if uid in self._seen else "ADDED"
            if uid not in self._seen:
                if self._connection.objects >= MAX_OBJECTS:
                    text = f"there are more than {MAX_OBJECTS} objects"
                    self._fail({"message": text})
                    return
                self._seen.add(uid)
                self._connection.objects += 1
        elif kind == "DELETED" and uid in self._seen:
            self._seen.discard(uid)
            self._connection.objects -= 1
        if wanted != kind:
            line = json.dumps({**event, "type": wanted}).encode()
        self._send(line)

    def _send(self, event: bytes) -> None:
        # The event was parsed as one JSON value, so it can be embedded unchanged.
        name = json.dumps(self._name).encode()
        self._connection.send(
            b'{"type":"event","watchId":%b,"watchEvent":%b}' % (name, event)
        )

    def _fail(self, error: dict[str, Any]) -> None:
        """End the watch, and send *error* to the client."""
        message = {"type": "error", "watchId": self._name, "error": error}
        self._connection.tell(message)
        self._stop()

    def _stop(self) -> None:
        connection = self._connection
        connection.tell({"type": "stop", "watchId": self._name})
        if connection.watches.get(self._name) is self:
            del connection.watches[self._name]
        self.cancel()


def _object(text: bytes) -> dict[str, Any]:
    """
    Parse a JSON object.

    :raises _Invalid: if *text* is not a JSON object.
    """
    try:
        # `json.loads` also accepts bytes in UTF-16, or with parts of characters, which
        # are not valid in a WebSocket message.
        found = json.loads(text.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise _Invalid("not JSON") from None
    if not isinstance(found, dict):
        raise _Invalid("not a JSON object")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)


def _request(params: Any) -> tuple[str, dict[str, str], bool]:
    """
    Return the path and query of a watch, and whether the client wants bookmarks.

    :raises _Invalid: if *params* do not describe a watch.
    """
    if not isinstance(params, dict):
        raise _Invalid("watch_params is missing")
    parts = {}
    for name, pattern in _PARTS.items():
        value = params.get(name) or ""
        needed = name in ("version", "resource")
        if not isinstance(value, str) or (
            pattern.fullmatch(value) is None and (value or needed)
        ):
            raise _Invalid(f"watch_params.{name} is missing or malformed")
        parts[name] = value
    path = f"/apis/{parts['group']}" if parts["group"] else "/api"
    path += f"/{parts['version']}"
    if parts["namespace"]:
        path += f"/namespaces/{parts['namespace']}"
    path += f"/{parts['resource']}"
    query = {"watch": "true", "allowWatchBookmarks": "true"}
    for name, parameter in _QUERY.items():
        value = params.get(name)
        if value is None or value == "":
            continue
        if isinstance(value, bool):
            value = "true" if value else "false"
        if not isinstance(value, str):
            raise _Invalid(f"watch_params.{name} must be a text")
        if not value.isprintable():
            raise _Invalid(f"watch_params.{name} must have printable characters only")
        query[parameter] = value
    return path, query, params.get("allow_watch_bookmarks") is True


def _status(body: bytes, code: int) -> dict[str, Any]:
    """
    Return the error in a response that is not a watch; the body is usually a Kubernetes
    Status.
    """
    try:
        return {"object": _object(body)}
    except _Invalid:
        return {"message": f"the API server responded with {code}"}


def _reason(status: dict[str, Any]) -> str:
    """Return the message of a Status."""
    message = status.get("message")
    return message if isinstance(message, str) else "an error"
