"""Paths of other modules at the listener for kubectl: ``/agents/<agent>/<name>/``."""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, Protocol

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from modules.kubernetes_api.audits import RequestAudit
from modules.kubernetes_api.shares import TooMany
from modules.kubernetes_api.statuses import INTERNAL_ERROR
from tunnel.api import (
    Access,
    AgentPathRequest,
    IAgentPath,
    IAgentPathResponse,
    IAgentPaths,
)
from tunnel.errors import CallError
from tunnel.http1 import Exchange, is_value

__all__ = ["AgentPaths", "PathHost", "PathRequest", "ServedPath"]

_NAME: Final = re.compile("[a-z][a-z-]{0,31}")

#: First parts of the paths of API servers.
_TAKEN: Final = frozenset(
    "api apis debug flagz healthz livez logs metrics openapi proxy readyz statusz "
    "static swagger ui version".split()
)

#: Lines of a head.
_LINE: Final = re.compile(rb"\r\n([^:\r\n]+):[ \t]*([^\r\n]*)")

#: Fields of each response: data of a cluster, which a browser must not interpret.
_FIELDS: Final = b"\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff"


@attrs.frozen
class ServedPath:
    """A path that a module serves, and the part of the target below its name."""

    name: str
    path: IAgentPath


@implementer(IAgentPaths)
class AgentPaths:
    """See `tunnel.api.IAgentPaths`."""

    def __init__(self) -> None:
        self._served: dict[bytes, ServedPath] = {}

    def serve(self, name: str, path: IAgentPath) -> Callable[[], None]:
        if _NAME.fullmatch(name) is None or name in _TAKEN:
            raise ValueError(f"{name!r} cannot be the name of a path of a module")
        key = name.encode()
        if key in self._served:
            raise ValueError(f"another module serves the path {name!r}")
        served = self._served[key] = ServedPath(name, path)

        def withdraw() -> None:
            if self._served.get(key) is served:
                del self._served[key]

        return withdraw

    def find(self, target: bytes) -> ServedPath | None:
        """Return the path that serves *target*, the target below the agent's name."""
        if not self._served:
            return None
        name = target[1:].partition(b"?")[0].partition(b"/")[0]
        return self._served.get(name)


class PathHost(Protocol):
    """Part of the module's interface that paths of modules use."""

    def audit_path(
        self, exchange: Exchange, target: bytes, served: ServedPath
    ) -> RequestAudit | None:
        """Return the events of a request; None if nothing is recorded."""

    def enters(self, request: Any, access: Access) -> bool:
        """
        Count *request* among the requests of its caller.

        :returns: whether the request begins now; if not, its ``begin`` is called later.
        :raises TooMany: if the request has to be refused; it is counted anyway.
        """

    def leaves(self, request: Any, access: Access) -> None:
        """Stop counting *request*, which has ended."""

    def path_begins(
        self, request: PathRequest, access: Access
    ) -> Deferred[None] | None:
        """
        Record the beginning of a request that may last, such as a watch.

        :returns: see `RequestAudit.begin`.
        """

    def path_ended(self, request: PathRequest, outcome: int | str) -> None:
        """Record the end of a request: the status, or why no response was sent."""

    def path_refused(self, request: PathRequest, status: int, message: str) -> str:
        """Log an error of kas, and return its text for the client."""

    def left(self, reason: Exception) -> int | str:
        """Return the outcome of a request whose client left."""


@implementer(IAgentPathResponse, IPushProducer)
class PathRequest:
    """
    One request for a path of a module, and its response.

    :param target: the target below the agent's name.
    :param fields: header fields that the response contains.
    """

    _log = Logger()

    def __init__(
        self,
        host: PathHost,
        exchange: Exchange,
        served: ServedPath,
        target: bytes,
        fields: bytes,
    ) -> None:
        self.exchange = exchange
        self.target = target
        self.access: Access | None = None
        #: Running check of the credential.
        self.checking: Deferred[Access] | None = None
        #: Whether the request has ended.
        self.over = False
        #: Events of the audit log; None if nothing is recorded.
        self.audit = host.audit_path(exchange, target, served)
        #: Bytes from the client and to the client.
        self.received = self.sent = 0
        #: Status of the response, as soon as it is known.
        self.status = 0
        self._host = host
        self._served = served
        self._fields = fields + _FIELDS
        self._body = bytearray()
        self._begun = False
        self._answering: Deferred[None] | None = None
        self._full = False
        self._room: Deferred[None] | None = None

    # The beginning of the request.

    def authorized(self, access: Access) -> None:
        """Begin the request of the caller of *access*, now or later."""
        self.checking = None
        if self.over:
            return
        if any(name.startswith(b"impersonate-") for name in self.exchange.head.taken):
            # Without this, the response would have the rights of the credential, and
            # not those of the user that the client names.
            self.fail(
                403,
                f"client -> kas: requests below /{self._served.name} do not "
                "impersonate another user (kubectl --as)",
            )
            return
        self.access = access
        self.exchange.limit_turns(access.owner)
        try:
            now = self._host.enters(self, access)
        except TooMany as error:
            self.fail(429, f"client -> kas: too many requests {error}", _AGAIN)
            return
        if now:
            self.begin()

    def begin(self) -> None:
        """See `Sharing`."""
        assert self.access is not None
        committed = self._host.path_begins(self, self.access)
        if committed is None:
            self._begin(None)
            return
        committed.addCallbacks(self._begin, self._not_committed)
        committed.addErrback(self._not_begun)

    def _not_committed(self, failure: Failure) -> None:
        failure.trap(CallError)
        self.fail(503, f"kas: {failure.value}")

    def _not_begun(self, failure: Failure) -> None:
        self._log.failure("cannot begin a request for a path", failure)
        self.fail(500, INTERNAL_ERROR)

    def _begin(self, _: object) -> None:
        if self.over:
            return
        self._begun = True
        self.exchange.resumeProducing()
        if self.exchange.head.length == 0 or self.exchange.complete:
            self._answer()

    def begin_failed(self) -> None:
        """See `Sharing`."""
        self.fail(500, INTERNAL_ERROR)

    def _answer(self) -> None:
        if self.over or self._answering is not None:
            return
        raw, _, query = self.target.partition(b"?")
        head = self.exchange.head
        assert self.access is not None
        request = AgentPathRequest(
            self.access,
            head.method.decode("latin-1"),
            raw[1 + len(self._served.name) :].decode("latin-1") or "/",
            query.decode("latin-1"),
            {
                name.decode("latin-1").lower(): value.strip().decode("latin-1")
                for name, value in _LINE.findall(head.fields)
            },
            bytes(self._body),
        )
        self._body.clear()

        async def answer() -> None:
            await self._served.path.answer(request, self)

        self._answering = answering = Deferred.fromCoroutine(answer())
        answering.addCallbacks(self._answered, self._not_answered)

    def _answered(self, _: object) -> None:
        if not self.over:
            if not self.exchange.head_sent:
                self.fail(500, INTERNAL_ERROR)
                return
            exchange = self.exchange
            self._end(self.status)
            exchange.finish()

    def _not_answered(self, failure: Failure) -> None:
        if not self.over:
            if failure.check(CancelledError, CallError) is None:
                self._log.failure("cannot respond to a request for a path", failure)
            self.fail(500, INTERNAL_ERROR)

    # Methods of `IAgentPathResponse`.

    def respond(self, status: int, content_type: str, body: bytes) -> None:
        """See `IAgentPathResponse`."""
        if not self.over:
            self._send_head(status, content_type, len(body))
            self.sent += len(body)
            self.exchange.write(body)

    def stream(self, status: int, content_type: str) -> None:
        """See `IAgentPathResponse`."""
        if not self.over:
            self._send_head(status, content_type, -1)
            self.exchange.registerProducer(self, True)

    async def write(self, data: bytes) -> None:
        """See `IAgentPathResponse`."""
        while self._full and not self.over:
            self._room = Deferred()
            await self._room
        self.sent += len(data)
        self.exchange.write(data)

    def _send_head(self, status: int, content_type: str, length: int) -> None:
        kind = content_type.encode("latin-1", "replace")
        if not is_value(kind):
            raise ValueError("the content type cannot be the value of a header")
        self.status = status
        block = b"HTTP/1.1 %d %b\r\nContent-Type: %b%b\r\n" % (
            status,
            _phrase(status),
            kind,
            self._fields,
        )
        self.exchange.send_head(block, length)

    # Methods of `IPushProducer`, for the client's connection.

    def pauseProducing(self) -> None:
        self._full = True

    def resumeProducing(self) -> None:
        self._full = False
        room, self._room = self._room, None
        if room is not None and not room.called:
            room.callback(None)

    def stopProducing(self) -> None:
        """Do nothing: `client_gone` ends the request."""

    # The end of the request.

    def fail(self, status: int, message: str, fields: bytes = b"") -> None:
        """Respond with an error, or abort if a response has begun."""
        if self.over:
            return
        exchange = self.exchange
        if exchange.head_sent:
            self._end("no answer")
            exchange.abort()
            return
        text = self._host.path_refused(self, status, message)
        kind, body = self._served.path.render_error(status, text)
        self._end(status)
        lines = b"\r\nContent-Type: %b" % kind.encode()
        exchange.respond(status, lines + fields + self._fields, body)

    def _end(self, outcome: int | str) -> None:
        if self.over:
            return
        self.over = True
        self._host.path_ended(self, outcome)
        if self.access is not None:
            self._host.leaves(self, self.access)
        self.resumeProducing()
        answering, self._answering = self._answering, None
        if answering is not None:
            answering.cancel()

    def revoke(self) -> None:
        """End the request, because its credential is no longer valid."""
        self.fail(401, "client -> kas: the credential was revoked", _UNAUTHORIZED)

    # Callbacks of the client's exchange.

    def body_received(self, data: bytes) -> None:
        """See `tunnel.http1.RequestReceiver`."""
        if not self.over and self._answering is None:
            self.received += len(data)
            self._body += data
            if len(self._body) > self._served.path.max_body_bytes:
                self.fail(
                    413,
                    "client -> kas: the body of the request has more than "
                    f"{self._served.path.max_body_bytes} bytes",
                )

    def body_finished(self, trailers: bytes) -> None:
        """See `tunnel.http1.RequestReceiver`."""
        if self._begun:
            self._answer()

    def client_gone(self, reason: Exception) -> None:
        """See `tunnel.http1.RequestReceiver`."""
        self._end(self._host.left(reason))
        if self.checking is not None:
            self.checking.cancel()


_AGAIN: Final = b"\r\nRetry-After: 1"
_UNAUTHORIZED: Final = b"\r\nWWW-Authenticate: Bearer"


def _phrase(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:
        return b"Error"
