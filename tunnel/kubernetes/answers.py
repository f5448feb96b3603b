"""Responses of an API server: as a whole, or line by line."""

from __future__ import annotations

import json
import re
from collections import deque
from typing import Any

import attrs
import msgspec
from twisted.internet.defer import Deferred

from tunnel.api import KubernetesResponse, KubernetesShape, PrintedObject
from tunnel.errors import CallError, NoApiServer, Status
from tunnel.http1 import NotConnected, ResponseHead, UpstreamError, UpstreamRequest

__all__ = [
    "HOP",
    "MAX_BODY",
    "AnswerLines",
    "ListOrTable",
    "ObjectPage",
    "PrintedRow",
    "WholeAnswer",
    "columns_of",
    "error_of",
    "object_in",
    "shallow",
    "shaped_page",
    "unavailable",
]

#: Prefix of errors that occurred between agentk and the API server.
HOP = "agent -> API server: "

#: Maximum number of bytes of a response that is read as a whole.  A list of five
#: thousand pods is about as large; larger lists are requested in pages, or watched.
MAX_BODY = 16 * 1024 * 1024

#: Maximum number of bytes of lines that wait to be read; above it, the API server is
#: paused.
MAX_WAITING = 1024 * 1024

#: Maximum number of bytes of one line: etcd accepts objects of 1.5 MiB, and API servers
#: accept requests of 3 MiB.
MAX_LINE = 8 * 1024 * 1024

#: Maximum number of nesting levels of an object.  API servers accept ten thousand
#: levels, but copying an object in Python takes two stack frames for each level, and
#: Python permits about a thousand frames in total.  Definitions of kinds have sixty
#: levels.
MAX_DEPTH = 200

#: Maximum number of characters of an error message from the API server: such a message
#: may quote megabytes of an object, and is copied into logs, annotations and errors.
MAX_MESSAGE = 4000

_STATUSES = {
    400: Status.INVALID_ARGUMENT,
    # A 401 concerns agentk's own credential, because kas has authenticated the caller.
    401: Status.UNAVAILABLE,
    403: Status.PERMISSION_DENIED,
    404: Status.NOT_FOUND,
    409: Status.ABORTED,
    410: Status.OUT_OF_RANGE,
    422: Status.INVALID_ARGUMENT,
    429: Status.RESOURCE_EXHAUSTED,
    # A 500 concerns one object: the webhook that converts or checks it does not
    # respond.
    500: Status.INTERNAL,
    504: Status.DEADLINE_EXCEEDED,
}

_CONTENT_TYPE = re.compile(rb"\r\ncontent-type:([^\r\n]*)", re.IGNORECASE)


#: Prefixes of the API server's reports, as its own failure (500), that a manifest does
#: not match its kind: unknown fields, a number instead of text, invalid base64.
#: Source: apimachinery, pkg/util/managedfields/internal/structuredmerge.go.
_UNFIT = ("failed to create typed patch object (", "failed to convert new object (")

#: Prefix of a failure of the API server (500) that concerns every object.
_NO_STORAGE = "etcdserver: "


def object_in(response: KubernetesResponse) -> Any:
    """
    Return the object in a response; None if the response is not JSON.

    :raises CallError: if the API server refused the request, with its message;
        FAILED_PRECONDITION if the object is nested too deeply.
    """
    found, deep = None, False
    try:
        found = json.loads(response.body) if response.body else None
    except ValueError:
        pass
    except RecursionError:
        deep = True
    if not 200 <= response.status < 300:
        raise error_of(response.status, found)
    if deep:
        raise _too_deep()
    return found


class _PageMetadata(msgspec.Struct, rename={"version": "resourceVersion"}):
    version: str = ""
    #: Position of the next page; the key in JSON is a keyword of Python.
    going_on: str = msgspec.field(default="", name="continue")


class PrintedRow(msgspec.Struct):
    """A row of a Table that is not parsed yet."""

    cells: msgspec.Raw = msgspec.Raw()
    object: msgspec.Raw = msgspec.Raw()


class ListOrTable(msgspec.Struct, rename={"columns": "columnDefinitions"}):
    """
    A page of a list or of a Table, whose objects are not parsed yet.

    :ivar columns: JSON; empty or ``null`` if the columns are the previous ones.
    """

    kind: str = ""
    metadata: _PageMetadata = msgspec.field(default_factory=_PageMetadata)
    items: list[msgspec.Raw] | None = None
    rows: list[PrintedRow] | None = None
    columns: msgspec.Raw = msgspec.Raw()


_PAGES = msgspec.json.Decoder(ListOrTable)


@attrs.frozen
class ObjectPage:
    """
    A part of a list.

    :ivar resource_version: version of the state that all pages of the list show.
    :ivar printed: the sources of the objects, in their order, for objects of a shape.
    :ivar columns: ``columnDefinitions`` of the cells; empty without cells.
    """

    objects: list[Any]
    resource_version: str
    printed: list[PrintedObject] = attrs.field(factory=list)
    columns: msgspec.Raw = attrs.field(factory=msgspec.Raw)


def shaped_page(body: bytes, shape: type[KubernetesShape]) -> tuple[ObjectPage, str]:
    """
    Return one page of a list or of a Table, and the position of the next page, which is
    empty after the last page.

    Objects whose fields have unexpected types are omitted.

    :raises CallError: UNAVAILABLE if the page is not a list.
    """
    try:
        page = _PAGES.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise CallError(Status.UNAVAILABLE, "API server: a malformed list") from None
    decode = msgspec.json.Decoder(shape).decode
    columns = columns_of(page)
    found = ObjectPage([], page.metadata.version, [], columns)
    rows = [PrintedRow(object=one) for one in page.items or ()] + (page.rows or [])
    for one in rows:
        try:
            found.objects.append(decode(one.object))
        except (msgspec.DecodeError, RecursionError):
            continue
        found.printed.append(PrintedObject(one.object, one.cells, columns))
    return found, page.metadata.going_on


def columns_of(table: ListOrTable) -> msgspec.Raw:
    """Return the columns of a Table; empty if it has the previous ones."""
    return msgspec.Raw() if bytes(table.columns) == b"null" else table.columns


def shallow(found: Any) -> Any:
    """
    Check that an object is nested so little that it can be copied and compared, and
    return the object.

    :raises CallError: FAILED_PRECONDITION if the object has more than `MAX_DEPTH`
        levels.
    """
    level = [found]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for one in level
            if one and isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return found
    raise _too_deep()


def _too_deep() -> CallError:
    text = f"API server: an object of more than {MAX_DEPTH} levels cannot be read"
    return CallError(Status.FAILED_PRECONDITION, text)


def error_of(status: int, found: Any) -> CallError:
    """
    Return the error for a refusal, from its HTTP status and its ``Status`` object.
    """
    said = found.get("message") if isinstance(found, dict) else None
    meaning = _STATUSES.get(
        status, Status.UNAVAILABLE if status >= 500 else Status.FAILED_PRECONDITION
    )
    words = str(said or f"status {status}")
    if status == 500 and words.startswith(_UNFIT):
        meaning = Status.INVALID_ARGUMENT
    if status == 500 and words.startswith(_NO_STORAGE):
        meaning = Status.UNAVAILABLE
    if status == 504 and _has_cause(found, "ResourceVersionTooLarge"):
        # As with 410, the requested state does not exist.
        meaning = Status.OUT_OF_RANGE
    if len(words) > MAX_MESSAGE:
        words = words[:MAX_MESSAGE] + "…"
    return CallError(meaning, f"API server: {words}")


def _has_cause(found: Any, reason: str) -> bool:
    """Tell whether a ``Status`` object gives a reason among its causes."""
    try:
        return any(one["reason"] == reason for one in found["details"]["causes"])
    except (KeyError, TypeError):
        return False


def unavailable(error: UpstreamError) -> CallError:
    """Return the error for a failed connection to the API server."""
    meaning = NoApiServer if isinstance(error, NotConnected) else CallError
    return meaning(Status.UNAVAILABLE, f"{HOP}{error}")


class WholeAnswer:
    """Reader of one response as a whole; cancelling `done` aborts the request."""

    def __init__(self) -> None:
        self.done: Deferred[KubernetesResponse] = Deferred(self._cancelled)
        self._request: UpstreamRequest | None = None
        self._status = 0
        self._type = ""
        self._parts: list[bytes] = []
        self._size = 0

    def begin(self, request: UpstreamRequest, body: bytes) -> None:
        self._request = request
        if body:
            request.write(body)
            request.finish()

    def _cancelled(self, _: object) -> None:
        if self._request is not None:
            self._request.abort()

    def response_informational(self, head: ResponseHead) -> None:
        """See `tunnel.http1.ResponseReceiver`."""

    def response_started(self, head: ResponseHead) -> None:
        self._status = head.status
        found = _CONTENT_TYPE.search(head.fields)
        self._type = found[1].strip().decode("latin-1") if found is not None else ""

    def response_data(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= MAX_BODY:
            self._parts.append(data)
        elif not self.done.called:
            self._parts.clear()
            self.done.errback(
                CallError(
                    Status.RESOURCE_EXHAUSTED,
                    f"API server: the response has more than {MAX_BODY} bytes; "
                    "request it in pages (limit=500)",
                )
            )
            self._cancelled(None)

    def response_finished(self, trailers: bytes) -> None:
        if not self.done.called:
            body = b"".join(self._parts)
            self.done.callback(KubernetesResponse(self._status, body, self._type))

    def response_failed(self, reason: Exception) -> None:
        if not self.done.called:
            self.done.errback(reason)


class AnswerLines:
    """
    An endless response, line by line.

    :ivar status: the status of the response, after `next` has returned.
    """

    def __init__(self) -> None:
        self.status = 0
        self._request: UpstreamRequest | None = None
        self._lines: deque[bytes] = deque()
        self._waiting = 0
        self._paused = False
        #: Parts of an incomplete line, and their total size.
        self._parts: list[bytes] = []
        self._partial = 0
        self._end: Exception | None = None
        self._ended = False
        self._reader: Deferred[None] | None = None

    def begin(self, request: UpstreamRequest) -> None:
        self._request = request

    def close(self) -> None:
        """Stop reading."""
        request, self._request = self._request, None
        if not self._ended:
            self._over(None)
            if request is not None:
                request.abort()

    async def next(self) -> bytes | None:
        """
        Return the next line without its end; None after the last line.

        :raises UpstreamError: if the connection broke.
        :raises CallError: RESOURCE_EXHAUSTED if a line is longer than `MAX_LINE`.
        """
        while not self._lines and not self._ended:
            self._reader = Deferred()
            try:
                await self._reader
            finally:
                self._reader = None
        if not self._lines:
            if self._end is not None:
                raise self._end
            return None
        line = self._lines.popleft()
        self._waiting -= len(line)
        if self._paused and self._waiting <= MAX_WAITING // 2:
            self._paused = False
            if self._request is not None and not self._ended:
                self._request.resumeProducing()
        return line

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.called:
            self._reader.callback(None)

    def _over(self, reason: Exception | None) -> None:
        if not self._ended:
            self._ended, self._end = True, reason
            self._wake()

    def response_informational(self, head: ResponseHead) -> None:
        """See `tunnel.http1.ResponseReceiver`."""

    def response_started(self, head: ResponseHead) -> None:
        self.status = head.status

    def response_data(self, data: bytes) -> None:
        if self._ended:
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._parts.append(line)
            self._add(b"".join(self._parts))
            self._parts.clear()
            self._partial = 0
        if rest:
            self._parts.append(rest)
            self._partial += len(rest)
        if self._partial > MAX_LINE:
            self._parts.clear()
            request = self._request
            self._over(
                CallError(
                    Status.RESOURCE_EXHAUSTED,
                    f"API server: an event of more than {MAX_LINE} bytes",
                )
            )
            if request is not None:
                request.abort()

    def _add(self, line: bytes) -> None:
        if not line.strip():
            return
        self._lines.append(line)
        self._waiting += len(line)
        if self._waiting > MAX_WAITING and not self._paused:
            self._paused = True
            if self._request is not None:
                self._request.pauseProducing()
        self._wake()

    def response_finished(self, trailers: bytes) -> None:
        if self._parts:
            # A response with an error is a single line without an end.
            self._add(b"".join(self._parts))
            self._parts.clear()
        self._over(None)

    def response_failed(self, reason: Exception) -> None:
        self._over(reason)
