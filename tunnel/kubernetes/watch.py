"""
A watch that reads the initial objects, follows changes, and restarts when necessary.

There are two ways to read the initial objects:

    streamed   the watch itself begins with all objects, and a bookmark with an
               annotation ends them (Kubernetes: "watch-list").  The API server holds
               no list of them in memory.
    listed     page by page, then the watch begins at the version of the list; for API
               servers, or API groups of an aggregated API server, that do not stream

Source: client-go, tools/cache/reflector.go.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from itertools import repeat
from typing import Any

import attrs
import msgspec
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from tunnel.api import KubernetesShape, PrintedObject, WatchEvent, WatchEventType
from tunnel.errors import CallError, Status
from tunnel.http1 import UpstreamError
from tunnel.kubernetes.answers import (
    AnswerLines,
    ListOrTable,
    ObjectPage,
    PrintedRow,
    columns_of,
    error_of,
)
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.timers import cancel_call

__all__ = [
    "FINAL",
    "MARKER_SECONDS",
    "PAGE",
    "RETRY_FIRST",
    "RETRY_MOST",
    "InitialEvents",
    "WatchRequests",
    "watch_events",
]

#: Number of objects of one page of a list: the page size of client-go.
PAGE = 500

#: Minimum duration of one request of a watch in seconds.  The maximum is twice as long,
#: so that watches that began together do not restart together (as in client-go).
LASTS = 300.0

#: Seconds after the planned end of a request after which its connection is cut.
LATE = 30.0

#: Seconds before the planned end of a request from which an end does not count as
#: early.
EARLY = 5.0

#: First and longest pause between attempts, in seconds.
RETRY_FIRST, RETRY_MOST = 0.5, 30.0

#: Maximum number of seconds without an event while initial objects are streamed; after
#: that, the objects are listed instead, because some aggregated API servers ignore the
#: parameter that requests the end marker.
MARKER_SECONDS = 10.0

#: Seconds of internal errors after which the watch reads all objects again.
INTERNAL_SECONDS = 60.0

#: Annotation of the bookmark that ends the initial objects.
_MARKER = "k8s.io/initial-events-end"

#: Errors of an API server that may soon restart, with an older state of etcd.
_OF_THE_SERVER = (Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.INTERNAL)

#: Errors that a retry does not fix.
FINAL = (Status.PERMISSION_DENIED, Status.NOT_FOUND, Status.INVALID_ARGUMENT)

_CHANGES = {
    one.value: one
    for one in (
        WatchEventType.ADDED,
        WatchEventType.MODIFIED,
        WatchEventType.DELETED,
        WatchEventType.BOOKMARK,
    )
}


#: Types of changes that are never initial objects.
_NEVER_INITIAL = (WatchEventType.MODIFIED, WatchEventType.DELETED)


class InitialEvents:
    """
    API groups of one API server that do not stream initial objects.

    Aggregated API servers serve groups of their own, and may be older than the API
    server.
    """

    _log = Logger()

    def __init__(self) -> None:
        self._without: set[str] = set()

    def are_streamed(self, group: str) -> bool:
        """Tell whether a group may stream initial objects."""
        return group not in self._without

    def refuse(self, group: str) -> None:
        """Record that a group does not stream initial objects."""
        if group not in self._without:
            self._without.add(group)
            self._log.info(
                "the API server does not stream initial objects of API group "
                "{group!r}: agentk lists them in pages",
                group=group,
            )


@attrs.frozen
class WatchRequests:
    """
    Functions that send the requests of one watch.

    :ivar group: the API group of its kind.
    :ivar pages: lists all objects.
    :ivar changes: starts one watch request with the given parameters.
    :ivar newest: returns the current version, read from etcd.
    :ivar rejected: reports that the API server did not accept the credential.
    :ivar shape: the fields to read of each object; None for whole objects.
    :ivar printed: whether responses are Tables, if the API server has them.
    """

    group: str
    pages: Callable[[], AsyncGenerator[ObjectPage, None]]
    changes: Callable[[Mapping[str, str]], AnswerLines]
    newest: Callable[[], Awaitable[str]]
    rejected: Callable[[], None]
    shape: type[KubernetesShape] | None = None
    printed: bool = False


@attrs.frozen
class _Change:
    """
    One event in the response to a request.

    :ivar is_marker: whether the event ends the initial objects.
    """

    event: WatchEvent
    is_marker: bool = False


@attrs.define(eq=False)
class _Progress:
    """
    Position and state of a watch.

    :ivar version: the version of the next request; empty to begin with all objects.
    :ivar known: the last known version; streamed objects must not be older.
    :ivar lists: whether this watch lists all objects.
    :ivar broke: whether a request failed, or did not end by itself, and no event
        arrived since.
    :ivar internal_since: the time since which the API server has had internal errors;
        None without errors.
    """

    version: str = ""
    known: str = ""
    lists: bool = False
    broke: bool = False
    internal_since: float | None = None

    def begin_again(self, known: str = "") -> None:
        """Read all objects again."""
        self.version, self.known = "", known
        self.broke, self.internal_since = False, None

    def came_to(self, version: str) -> None:
        """Continue from *version*."""
        self.version = self.known = version
        self.broke, self.internal_since = False, None


async def watch_events(
    requests: WatchRequests,
    initial: InitialEvents,
    clock: IReactorTime,
    jitter: Callable[[], float],
) -> AsyncGenerator[WatchEvent, None]:
    """
    See `tunnel.api.IKubernetesClient.watch`.

    :param initial: the groups without streamed initial objects, shared by all watches.
    """
    progress = _Progress()
    backoff = Backoff(jitter, RETRY_FIRST, RETRY_MOST)
    is_reset = False
    while True:
        failed = True
        try:
            if progress.version and progress.broke:
                await _check_version(requests, progress)
            may_stream = initial.are_streamed(requests.group) and not progress.lists
            streams = may_stream and not progress.version
            if not progress.version and not is_reset:
                is_reset = True
                yield WatchEvent(WatchEventType.RESET)
            if not progress.version and not streams:
                listed, columns = "", msgspec.Raw()
                async for page in requests.pages():
                    listed, columns = page.resource_version, page.columns
                    sources = page.printed or repeat(None)
                    for one, printed in zip(page.objects, sources, strict=False):
                        is_reset = False
                        yield WatchEvent(WatchEventType.ADDED, one, printed=printed)
                progress.came_to(listed)
                is_reset = False
                yield _synced(requests, listed, columns)
            seconds = LASTS * (1 + jitter())
            reading = _Request(requests, initial, clock, streams, seconds, progress)
            async for event in reading.events():
                if progress.version:
                    backoff.reset()
                is_reset = False
                yield event
            # A watch that ends at once, again and again, counts as failed, too.
            failed = reading.lasted < 1 and not reading.refused
            progress.broke = reading.was_cut or reading.is_early
            if not failed:
                backoff.reset()
        except CallError as error:
            if error.status in FINAL:
                raise
            progress.broke = progress.broke or error.status in _OF_THE_SERVER
            _note_error(progress, error, clock.seconds())
        except UpstreamError:
            progress.broke = True
        if failed:
            await deferLater(clock, backoff.pause())


def _synced(requests: WatchRequests, version: str, columns: msgspec.Raw) -> WatchEvent:
    printed = PrintedObject(columns=columns) if requests.printed else None
    return WatchEvent(WatchEventType.SYNCED, None, version, printed)


def _note_error(progress: _Progress, error: CallError, now: float) -> None:
    """Decide where to continue after an error of the API server."""
    if error.status is Status.OUT_OF_RANGE:
        # The error is 410, or a version that the API server does not have yet: streamed
        # objects may begin at the previous version, or, if that fails as well, at any
        # version.
        progress.begin_again(known=progress.version)
    elif error.status is Status.INTERNAL:
        if progress.internal_since is None:
            progress.internal_since = now
        elif now - progress.internal_since >= INTERNAL_SECONDS:
            progress.begin_again()


async def _check_version(requests: WatchRequests, progress: _Progress) -> None:
    """
    Restart the watch if the API server's versions have decreased, because etcd was
    restored from a backup.

    The API server would accept the higher version, and send nothing until its own
    versions have become higher than that.
    """
    newest = await requests.newest()
    try:
        went_back = int(newest) < int(progress.version)
    except ValueError:
        # Aggregated API servers may use versions that cannot be compared.
        return
    if went_back:
        progress.begin_again()


@attrs.define(eq=False)
class _Request:
    """
    One request of a watch.

    :ivar streams: whether the response begins with all objects.
    :ivar seconds: the planned duration of the request.
    """

    _requests: WatchRequests
    _initial: InitialEvents
    _clock: IReactorTime
    _streams: bool
    _seconds: float
    _progress: _Progress
    #: Whether the API server does not stream initial objects.
    refused: bool = attrs.field(default=False, init=False)
    #: Whether agentk cut the connection.
    was_cut: bool = attrs.field(default=False, init=False)
    _begun: float = attrs.field(default=0.0, init=False)
    #: Time at which the wait for the next line began; None if no caller waits.
    _waits_since: float | None = attrs.field(default=None, init=False)
    _marker_call: IDelayedCall | None = attrs.field(default=None, init=False)
    _lines: AnswerLines = attrs.field(init=False)
    _read: Callable[[bytes, int], _Change | None] = attrs.field(init=False)
    _printed: _PrintedChanges | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        shape = self._requests.shape
        if shape is None:
            self._read = _change_in
        elif self._requests.printed:
            self._printed = _PrintedChanges(shape)
            self._read = self._printed.read
        else:
            self._read = _ShapedChanges(shape).read

    @property
    def lasted(self) -> float:
        """Return the seconds since the request began."""
        return self._clock.seconds() - self._begun

    @property
    def is_early(self) -> bool:
        """Tell whether the request has lasted less than planned."""
        return self.lasted < self._seconds - EARLY

    async def events(self) -> AsyncGenerator[WatchEvent, None]:
        """
        Yield the events until the request ends.

        :raises CallError: the API server ended the request with an error.
        :raises UpstreamError: the connection broke.
        """
        asked = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._progress.version,
            "timeoutSeconds": f"{self._seconds:.0f}",
        }
        if self._streams:
            asked["sendInitialEvents"] = "true"
            asked["resourceVersionMatch"] = "NotOlderThan"
            asked["resourceVersion"] = self._progress.known
        if not asked["resourceVersion"]:
            del asked["resourceVersion"]
        self._lines = lines = self._requests.changes(asked)
        self._begun = self._clock.seconds()
        # Without this timer, a connection that was lost without a packet would be read
        # forever.
        late = self._clock.callLater(self._seconds + LATE, self._cut)
        if self._streams:
            self._await_marker()
        try:
            async for change in self._changes():
                if not self._streams:
                    self._progress.came_to(change.event.resource_version)
                    yield change.event
                elif change.is_marker:
                    self._end_of_initial()
                    version = change.event.resource_version
                    self._progress.came_to(version)
                    table = self._printed
                    columns = msgspec.Raw() if table is None else table.columns
                    yield _synced(self._requests, version, columns)
                elif change.event.type in _NEVER_INITIAL:
                    # The API server ignores the parameter that requests the marker, and
                    # never ends the initial objects.
                    self._refuse()
                    break
                elif change.event.type is not WatchEventType.BOOKMARK:
                    # The versions of initial objects are in no order.
                    yield attrs.evolve(change.event, resource_version="")
            if self._streams and not self.is_early:
                self._refuse()
        except CallError as error:
            refused = lines.status in (400, 422)
            if not self._streams or not (
                refused or error.status is Status.OUT_OF_RANGE
            ):
                raise
            if lines.status == 422:
                self._refuse()
            elif refused:
                # The selector may be invalid; a list of the objects will show whether
                # it is invalid.
                self.refused = self._progress.lists = True
            # The next attempt may begin at any version, and so differs from this
            # request.
            self._progress.begin_again()
        finally:
            self._end_of_initial()
            cancel_call(late)
            lines.close()
            if lines.status == 401:
                self._requests.rejected()

    def _end_of_initial(self) -> None:
        self._streams = False
        cancel_call(self._marker_call)
        self._marker_call = None

    def _await_marker(self) -> None:
        """Fall back to a list if no event arrives within `MARKER_SECONDS`."""
        since = self._waits_since
        now = self._clock.seconds()
        silent = 0.0 if since is None else now - since
        if silent >= MARKER_SECONDS:
            self._refuse()
            self._lines.close()
            return
        left = MARKER_SECONDS - silent
        self._marker_call = self._clock.callLater(left, self._await_marker)

    def _cut(self) -> None:
        self.was_cut = True
        self._lines.close()

    def _refuse(self) -> None:
        self.refused = True
        self._initial.refuse(self._requests.group)

    async def _changes(self) -> AsyncGenerator[_Change, None]:
        lines = self._lines
        while True:
            self._waits_since = self._clock.seconds()
            line = await lines.next()
            self._waits_since = None
            if line is None:
                break
            if (change := self._read(line, lines.status)) is not None:
                yield change
        if lines.status not in (0, 200):
            raise error_of(lines.status, None)


class _Line(msgspec.Struct, gc=False):
    """An event whose object is not parsed yet."""

    type: str = ""
    object: msgspec.Raw = msgspec.Raw()


_LINES = msgspec.json.Decoder(_Line)


class _ShapedChanges:
    """Parser of lines that reads only some fields of each object."""

    def __init__(self, shape: type[KubernetesShape]) -> None:
        self._objects = msgspec.json.Decoder(shape)

    def read(self, line: bytes, status: int) -> _Change | None:
        """See `_change_in`; return None also for an object with unexpected types."""
        try:
            said = _LINES.decode(line)
        except (msgspec.DecodeError, RecursionError):
            return _change_in(line, status)
        kind = _CHANGES.get(said.type)
        if status != 200 or kind is None or kind is WatchEventType.BOOKMARK:
            return _change_in(line, status)
        try:
            found = self._objects.decode(said.object)
        except (msgspec.DecodeError, RecursionError):
            # The line is JSON, so only the types are not those of the shape.
            return None
        version = found.metadata.resource_version
        return _Change(WatchEvent(kind, found, version, PrintedObject(said.object)))


_TABLES = msgspec.json.Decoder(ListOrTable)


class _PrintedChanges:
    """
    Parser of lines whose objects are Tables of one row each, or plain objects if the
    API server has no Table of the kind.

    :ivar columns: the columns of the last Table, which are not repeated in each line.
    """

    def __init__(self, shape: type[KubernetesShape]) -> None:
        self._objects = msgspec.json.Decoder(shape)
        self.columns = msgspec.Raw()

    def read(self, line: bytes, status: int) -> _Change | None:
        """See `_ShapedChanges.read`."""
        try:
            said = _LINES.decode(line)
            table = _TABLES.decode(said.object)
        except (msgspec.DecodeError, RecursionError):
            return _change_in(line, status)
        kind = _CHANGES.get(said.type)
        row = PrintedRow(object=said.object)
        if table.kind == "Table":
            self.columns = columns_of(table) or self.columns
            row = table.rows[0] if table.rows else row
        if status != 200 or kind is None:
            return _change_in(line, status)
        if kind is WatchEventType.BOOKMARK:
            plain = b'{"type":"BOOKMARK","object":%b}' % bytes(row.object)
            return _change_in(plain, status)
        try:
            found = self._objects.decode(row.object)
        except (msgspec.DecodeError, RecursionError):
            return None
        printed = PrintedObject(row.object, row.cells, self.columns)
        version = found.metadata.resource_version
        return _Change(WatchEvent(kind, found, version, printed))


def _change_in(line: bytes, status: int) -> _Change | None:
    """
    Return the change in a line of a response; None if its object is nested too deeply.

    :raises CallError: the line is an error of the API server.
    """
    try:
        said: Any = json.loads(line)
        if status != 200:
            raise error_of(status, said)
        changed = said["object"]
        if said["type"] == "ERROR":
            raise error_of(changed.get("code", 500), changed)
        kind = _CHANGES[said["type"]]
        metadata = changed["metadata"]
        version = metadata["resourceVersion"]
        is_bookmark = kind is WatchEventType.BOOKMARK
        annotations = (metadata.get("annotations") or {}) if is_bookmark else {}
        is_marker = annotations.get(_MARKER) == "true"
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CallError(Status.UNAVAILABLE, "API server: a malformed event") from None
    except RecursionError:
        # An exception would make the watch read this object again and again.  The
        # object is skipped, and all other objects are reported.
        return None
    return _Change(
        WatchEvent(kind, None if is_bookmark else changed, version), is_marker
    )
