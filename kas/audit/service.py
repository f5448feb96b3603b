"""Service for searches in the audit logs of all kas."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from kas.audit.search import AuditQuery, Newest, ObjectPattern
from kas.pb import audit_pb2
from tunnel.api import CLIENT_ADDRESS, OPERATOR, AuditEvent, IPeers, OtherKas
from tunnel.errors import CallError, Status
from tunnel.toolkit.parallel import in_parallel

__all__ = ["AUDIT_LOG", "PEER_AUDIT_LOG", "AuditSearches"]

AUDIT_LOG = audit_pb2.DESCRIPTOR.services_by_name["AuditLog"]
PEER_AUDIT_LOG = audit_pb2.DESCRIPTOR.services_by_name["PeerAuditLog"]

#: Maximum number of events of a response, and the number without a limit.
MAX_EVENTS, EVENTS = 10_000, 1000

#: Maximum bytes of the lines in a response, which must fit into a message of 4 MiB.
MAX_BYTES = 3 * 1024 * 1024

#: Timeout of a call of another kas, in seconds: it searches for at most 10 seconds.
TIMEOUT = 15.0

#: Maximum number of calls of other kas at the same time.
AT_ONCE = 10

#: Maximum characters of a query's text in the audit log.
MAX_TEXT = 256


@attrs.define(eq=False)
class AuditSearches:
    """
    Implementation of ``AuditLog`` and of ``PeerAuditLog``.

    Each search of an operator is itself an event of the log.

    :ivar file: the log; None if this kas has none.
    :ivar newest: searches in the files of this log; it runs in a thread.
    :ivar record: records an event.
    """

    file: Path | None
    peers: IPeers
    newest: Callable[[Path, AuditQuery, int], Deferred[Newest]]
    record: Callable[[AuditEvent], None]
    _is_busy: bool = attrs.field(default=False, init=False)

    async def find(
        self, request: audit_pb2.SearchRequest, call: Any
    ) -> audit_pb2.FindResponse:
        """
        Return the events of this kas.

        :raises CallError: FAILED_PRECONDITION without a log, RESOURCE_EXHAUSTED while
            another search runs, INVALID_ARGUMENT for an invalid request, or UNAVAILABLE
            if the files cannot be read.
        """
        query, limit = _query(request)
        if self.file is None:
            raise CallError(Status.FAILED_PRECONDITION, "it has no audit log")
        if self._is_busy:
            # A search takes a whole core.
            raise CallError(Status.RESOURCE_EXHAUSTED, "another search is running")
        try:
            result = await self._newest(self.file, query, limit)
        except OSError as error:
            text = f"the audit log cannot be read ({error.strerror})"
            raise CallError(Status.UNAVAILABLE, text) from None
        return audit_pb2.FindResponse(
            found=[
                audit_pb2.FoundLine(
                    time=str(one.event.get("time", "")),
                    line=one.line.decode("utf-8", "replace"),
                )
                for one in result.found
            ],
            is_partial=result.is_partial,
        )

    def _newest(self, file: Path, query: AuditQuery, limit: int) -> Deferred[Newest]:
        """
        Search in a thread; other searches are refused until the thread ends, also if
        the caller no longer waits for it.
        """
        waiting: Deferred[Newest] = Deferred()

        def ended(result: Newest | Failure) -> None:
            self._is_busy = False
            if isinstance(result, Failure):
                waiting.errback(result)
            else:
                waiting.callback(result)

        self._is_busy = True
        maybeDeferred(self.newest, file, query, limit).addBoth(ended)
        return waiting

    async def search(
        self, request: audit_pb2.SearchRequest, call: Any
    ) -> audit_pb2.SearchResponse:
        """
        Return the events of all kas, and the kas that did not respond.

        :raises CallError: INVALID_ARGUMENT for an invalid request.
        """
        _, limit = _query(request)
        self._record(request, call)
        # The workers of this kas write to the same file.
        others = [one for one in self.peers.others() if not one.is_worker]
        response = audit_pb2.SearchResponse()
        parts: list[audit_pb2.FindResponse] = []

        async def ask(other: OtherKas | None) -> None:
            try:
                if other is None:
                    parts.append(await self.find(request, call))
                    return
                client = await self.peers.client(other, PEER_AUDIT_LOG)
                parts.append(await client.call("Find", request, timeout=TIMEOUT))
            except CallError as error:
                reason = error.message or error.status.name.lower()
                if error.status is Status.UNIMPLEMENTED:
                    reason = "it is an older kas, which cannot search"
                address = "this kas" if other is None else other.address
                response.silent.add(address=address, reason=reason)

        await in_parallel([partial(ask, one) for one in (None, *others)], AT_ONCE)
        found = heapq.merge(*(part.found for part in parts), key=lambda one: one.time)
        # The workers of another kas return the lines of the same file.
        merged = list({one.line: one for one in found}.values())
        response.is_partial = any(part.is_partial for part in parts)
        size, first = 0, len(merged)
        while first and len(merged) - first < limit:
            size += len(merged[first - 1].line.encode())
            if size > MAX_BYTES:
                break
            first -= 1
        if first:
            response.is_partial = True
        response.lines.extend(one.line for one in merged[first:])
        response.silent.sort(key=lambda one: one.address)
        return response

    def _record(self, request: audit_pb2.SearchRequest, call: Any) -> None:
        details: dict[str, str | int | bool] = {
            f"query_{field.name}": value[:MAX_TEXT] if isinstance(value, str) else value
            for field, value in request.ListFields()
        }
        for name, key in (("operator", OPERATOR), ("client", CLIENT_ADDRESS)):
            if text := call.metadata.get(key, ""):
                details[name] = text[:MAX_TEXT]
        self.record(AuditEvent("audit.search", None, "OK", details))


def _query(request: audit_pb2.SearchRequest) -> tuple[AuditQuery, int]:
    try:
        pattern = ObjectPattern.parse(request.object) if request.object else None
    except ValueError as error:
        raise CallError(Status.INVALID_ARGUMENT, str(error)) from None
    query = AuditQuery(
        user=request.user,
        agent=request.agent,
        namespace=request.namespace,
        object=pattern,
        action=request.action,
        denied=request.denied,
        since=request.since,
        until=request.until,
    )
    return query, min(request.limit or EVENTS, MAX_EVENTS)
