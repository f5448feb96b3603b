"""
Requests of modules in agentk to GitLab, which kas signs and sends with the agent's
token.

GitLab has one path for each module, and an agent can reach only these paths. Bodies are
streamed in both directions, with back-pressure.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IConsumer, IDelayedCall, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http_headers import Headers
from twisted.web.iweb import UNKNOWN_LENGTH, IBodyProducer, IResponse
from zope.interface import implementer

from kas.gitlab.client import TIMEOUT, GitLabClient
from tunnel.api import ConnectedAgent
from tunnel.errors import CallError, Status
from tunnel.hosting.gitlab_access import MAX_TIME, SERVICE, check_path
from tunnel.pb import gitlab_access_pb2 as pb
from tunnel.rpc.dispatch import Dispatcher
from tunnel.toolkit.counts import one_less
from tunnel.toolkit.timers import cancel_call

__all__ = ["GitLabForAgents"]

#: Maximum number of simultaneous requests of one agent.
MAX_PER_AGENT = 10

#: Maximum number of requests of all agents of this kas: the number of connections of
#: GitLab's own kas.  The last `RESERVED` requests are reserved for agents without
#: another request.
MAX_REQUESTS, RESERVED = 50, 10

#: Maximum bytes of the fields and the query from agentk, and maximum bytes of the
#: fields in GitLab's response.
MAX_HEAD = 16 * 1024

#: Maximum seconds without a transferred byte of either body.
IDLE = 60.0

_T = TypeVar("_T")

#: Methods whose responses could contain the request with kas' signature.
_NOT_PASSED_ON = frozenset(("CONNECT", "TRACE", "TRACK"))

_MODULE = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_METHOD = re.compile(r"[A-Z]{1,20}")
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

#: Header fields that belong to one connection and are not forwarded.
_HOP_BY_HOP = frozenset(
    "connection proxy-connection keep-alive proxy-authenticate proxy-authorization te "
    "trailer transfer-encoding upgrade http2-settings".split()
)

#: Header fields that kas sets itself, and fields that could mislead GitLab about the
#: sender.
_KAS_SAYS = frozenset(
    "host content-length expect authorization cookie job-token private-token "
    "deploy-token x-csrf-token user-agent forwarded via x-real-ip "
    "x-http-method-override client-ip x-client-ip true-client-ip cf-connecting-ip "
    "x-original-url x-rewrite-url x-sendfile-type".split()
)
_KAS_SAYS_ALL = ("gitlab-", "x-gitlab-", "x-forwarded-", "x-accel-")

#: Fields of the response that are not forwarded to agentk: cookies and signatures
#: belong to kas' connection.
_NOT_ANSWERED = frozenset(
    "set-cookie set-cookie2 gitlab-kas-api-request authorization "
    "gitlab-agentk-api-request gitlab-agent-api-request".split()
)


class GitLabForAgents:
    """
    Implementation of `GitlabAccess` for agents.

    :param client: the client of GitLab; None if this kas has no GitLab and refuses each
        request.
    :param token_of: returns the token of a connected agent; None if unknown.
    """

    def __init__(
        self,
        client: GitLabClient | None,
        token_of: Callable[[ConnectedAgent], bytes | None],
        clock: IReactorTime,
    ) -> None:
        self._client = client
        self._token_of = token_of
        self._clock = clock
        #: Number of requests in progress, by agent.
        self.running: Counter[str] = Counter()

    def serve(self, dispatcher: Dispatcher) -> None:
        """Register the implementation at *dispatcher*."""
        dispatcher.handle("kas", SERVICE, self)

    async def make_request(
        self, requests: AsyncIterator[pb.HttpRequest], call: Any
    ) -> AsyncIterator[pb.HttpResponse]:
        """Send one request to GitLab and yield its response."""
        client = self._client
        if client is None:
            raise CallError(
                Status.FAILED_PRECONDITION,
                "kas has no GitLab: configure 'gitlab'",
            )
        agent: ConnectedAgent = call.agent
        token = self._token_of(agent)
        if token is None:
            raise CallError(
                Status.UNAVAILABLE, "kas does not know this agent's token: try again"
            )
        id_ = agent.agent_id
        if self.running[id_] >= MAX_PER_AGENT:
            client.outcomes["modules", "refused"] += 1
            raise CallError(
                Status.RESOURCE_EXHAUSTED,
                (
                    f"this agent already has {MAX_PER_AGENT} requests to GitLab in "
                    "progress at kas"
                ),
            )
        most = MAX_REQUESTS - (RESERVED if self.running[id_] else 0)
        if self.running.total() >= most:
            client.outcomes["modules", "refused"] += 1
            raise CallError(
                Status.RESOURCE_EXHAUSTED,
                (
                    f"kas already has {MAX_REQUESTS} requests of agents to GitLab in "
                    "progress"
                ),
            )
        self.running[id_] += 1
        release = partial(one_less, self.running, id_)
        exchange = _Exchange(client, token, self._clock, release)
        try:
            async for response in exchange.run(requests):
                yield response
        finally:
            exchange.end()


class _Exchange:
    """
    One request of a module to GitLab, and its response.

    :param release: called once, when the request to GitLab has ended.
    """

    def __init__(
        self,
        client: GitLabClient,
        token: bytes,
        clock: IReactorTime,
        release: Callable[[], object],
    ) -> None:
        self._client = client
        self._token = token
        self._clock = clock
        self._release: Callable[[], object] | None = release
        self._late = ""
        self._asking: Deferred[Any] | None = None
        self._answer: _Answer | None = None
        self._timer: IDelayedCall | None = None
        self._total = clock.callLater(MAX_TIME, self._too_late, f"{MAX_TIME:g} s")
        self._moved(IDLE)

    async def run(
        self, requests: AsyncIterator[pb.HttpRequest]
    ) -> AsyncIterator[pb.HttpResponse]:
        """Yield GitLab's response, message by message."""
        module, request, length = _read_head(await self._wait(_first(requests)))
        target = f"/api/v4/internal/kubernetes/modules/{quote(module, safe='')}"
        query = _query(request)
        headers = _passed_on(request.header)
        body = _Body(requests, length, self._moved) if length else None
        self._moved(TIMEOUT if body is None else IDLE)
        path = target + request.url_path + (f"?{query}" if query else "")
        try:
            response = await self._wait(
                self._client.forward(request.method, path, headers, body, self._token)
            )
        except CallError:
            if body is not None and body.error is not None:
                raise body.error from None
            raise
        self._moved(IDLE)
        self._answer = answer = _Answer(self._moved)
        response.deliverBody(answer)
        yield _head(response)
        while True:
            try:
                data = await answer.next()
            except CancelledError:
                if self._late:
                    raise self._expired() from None
                raise
            if data is None:
                break
            yield pb.HttpResponse(data=pb.Data(data=data))
        yield pb.HttpResponse(trailer=pb.Trailer())

    async def _wait(self, asking: Coroutine[Any, Any, _T]) -> _T:
        """
        Return the result of *asking*.

        :raises CallError: DEADLINE_EXCEEDED if the timeout has passed.
        """
        self._asking = waiting = Deferred.fromCoroutine(asking)
        try:
            return await waiting
        except CancelledError:
            if self._late:
                raise self._expired() from None
            raise
        finally:
            self._asking = None

    def end(self) -> None:
        """
        Release all resources; the connection to GitLab is closed unless the response
        was read to its end.
        """
        self._cancel()

    def _cancel(self) -> None:
        for timer in (self._timer, self._total):
            cancel_call(timer)
        release, self._release = self._release, None
        if release is not None:
            release()
        if self._asking is not None:
            self._asking.cancel()
        if self._answer is not None:
            self._answer.leave()

    def _moved(self, seconds: float = IDLE) -> None:
        """Restart the timeout, because a byte was transferred in either direction."""
        if self._release is None:
            return
        cancel_call(self._timer)
        self._timer = self._clock.callLater(
            seconds, self._too_late, f"{seconds:g} s without a byte"
        )

    def _too_late(self, what: str) -> None:
        # Stop the timeout: from now on, an agent that does not read its response holds
        # no resources.
        self._late = what
        self._client.outcomes["modules", "timeout"] += 1
        self._cancel()

    def _expired(self) -> CallError:
        text = f"kas cancelled a request to GitLab after {self._late}"
        return CallError(Status.DEADLINE_EXCEEDED, text)


@implementer(IBodyProducer)
class _Body:
    """Request body from agentk, written as fast as GitLab accepts it."""

    def __init__(
        self,
        requests: AsyncIterator[pb.HttpRequest],
        length: int,
        moved: Callable[[float], None],
    ) -> None:
        self.length: Any = UNKNOWN_LENGTH if length < 0 else length
        #: Reason why agentk's body could not be forwarded.
        self.error: CallError | None = None
        self._left = length
        self._requests = requests
        self._moved = moved
        self._paused: Deferred[None] | None = None
        self._running: Deferred[None] | None = None

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        self._running = Deferred.fromCoroutine(self._pass_on(consumer))
        return self._running

    async def _pass_on(self, consumer: IConsumer) -> None:
        try:
            async for message in self._requests:
                kind = message.WhichOneof("message")
                if kind == "trailer" and self._left <= 0:
                    self._moved(TIMEOUT)
                    return
                if kind != "data":
                    raise _invalid("the body is malformed, or too short")
                self._moved(IDLE)
                data = message.data.data
                if self.length is not UNKNOWN_LENGTH:
                    self._left -= len(data)
                    if self._left < 0:
                        raise _invalid("the body is longer than announced")
                consumer.write(data)
                if self._paused is not None:
                    await self._paused
            raise _invalid("the body is incomplete")
        except CallError as error:
            self.error = error
            raise

    def pauseProducing(self) -> None:
        if self._paused is None:
            self._paused = Deferred()

    def resumeProducing(self) -> None:
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.callback(None)

    def stopProducing(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            # The request has ended before the rest of the body was sent; `error`
            # contains the reason for agentk.
            running.addErrback(lambda failure: failure.trap(CancelledError, CallError))
            running.cancel()


class _Answer(Protocol):
    """Response body from GitLab, read as fast as agentk accepts it."""

    def __init__(self, moved: Callable[[float], None]) -> None:
        self._moved = moved
        self._parts: deque[bytes] = deque()
        self._waiter: Deferred[None] | None = None
        self._ended: Failure | None = None

    def dataReceived(self, data: bytes) -> None:
        self._moved(IDLE)
        self._parts.append(data)
        self._pause(True)
        self._wake()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._ended is None:
            self._ended = reason
        self._wake()

    async def next(self) -> bytes | None:
        """Return the next part of the body; None after the last part."""
        while not self._parts:
            if self._ended is not None:
                if self._ended.check(ResponseDone):
                    return None
                if self._ended.check(CancelledError):
                    raise CancelledError
                # If the length is unknown, a body looks complete even if the connection
                # broke.
                raise CallError(
                    Status.UNAVAILABLE,
                    "the connection from kas to GitLab broke within a response",
                )
            self._pause(False)
            if self._parts or self._ended is not None:
                continue
            self._waiter = Deferred()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._moved(IDLE)
        return self._parts.popleft()

    def leave(self) -> None:
        """
        Stop reading: drop the buffered data, close the connection, and cancel a waiting
        `next`.
        """
        if self._ended is None:
            self._ended = Failure(CancelledError())
            self._parts.clear()
            if self.transport is not None:
                self.transport.loseConnection()
            self._wake()

    def _pause(self, paused: bool) -> None:
        transport: Any = self.transport
        if transport is None or self._ended is not None:
            return
        if paused:
            transport.pauseProducing()
        else:
            transport.resumeProducing()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.callback(None)


async def _first(requests: AsyncIterator[pb.HttpRequest]) -> pb.HttpRequest | None:
    return await anext(requests, None)


def _invalid(why: str) -> CallError:
    return CallError(
        Status.INVALID_ARGUMENT, f"kas does not forward this request: {why}"
    )


def _read_head(message: pb.HttpRequest | None) -> tuple[str, pb.Request, int]:
    """Return the name of the module that sent the request, the request for GitLab, and
    the length of the request's body."""
    if message is None or message.WhichOneof("message") != "header":
        raise _invalid("it does not begin with a head")
    head = message.header
    extra = pb.HeaderExtra()
    if not head.extra.Unpack(extra) or _MODULE.fullmatch(extra.module_name) is None:
        raise _invalid("it does not name a module")
    request = head.request
    if _METHOD.fullmatch(request.method) is None or request.method in _NOT_PASSED_ON:
        raise _invalid("its method is not permitted")
    check_path(request.url_path)
    if head.ByteSize() > MAX_HEAD:
        raise _invalid(f"its head has more than {MAX_HEAD} bytes")
    length = head.content_length if head.HasField("content_length") else -1
    if length < -1:
        raise _invalid("the length of its body is negative")
    return extra.module_name, request, length


def _query(request: pb.Request) -> str:
    pairs = [
        (name, value)
        for name, values in sorted(request.query.items())
        for value in values.value
    ]
    return urlencode(pairs)


def _passed_on(fields: Any) -> Headers:
    """Return the module's header fields that kas forwards to GitLab."""
    named = {
        token.strip().lower()
        for name, values in fields.items()
        if name.lower() == "connection"
        for value in values.value
        for token in value.split(",")
    }
    if "upgrade" in named or any(name.lower() == "upgrade" for name in fields):
        raise _invalid("upgrades are not supported here")
    headers = Headers()
    for name, values in fields.items():
        low = name.lower()
        if _NAME.fullmatch(name) is None:
            raise _invalid("the name of a field")
        # Some servers treat _ and - as the same.
        plain = low.replace("_", "-")
        if (
            low in named
            or plain in _HOP_BY_HOP
            or plain in _KAS_SAYS
            or plain.startswith(_KAS_SAYS_ALL)
        ):
            continue
        for value in values.value:
            if _VALUE.fullmatch(value) is None:
                raise _invalid("the value of a field")
            headers.addRawHeader(name.encode("ascii"), value.encode("latin-1"))
    return headers


def _head(response: IResponse) -> pb.HttpResponse:
    found = [
        (name.decode("latin-1").lower(), values)
        for name, values in response.headers.getAllRawHeaders()
    ]
    size = sum(len(name) + sum(map(len, values)) for name, values in found)
    if response.code < 200 or size > MAX_HEAD:
        raise CallError(
            Status.UNAVAILABLE,
            (
                "GitLab responded with an upgrade, or with a head of more than "
                f"{MAX_HEAD} bytes"
            ),
        )
    named = {
        token.strip().lower()
        for name, values in found
        if name == "connection"
        for value in values
        for token in value.decode("latin-1").split(",")
    }
    answer = pb.Response(
        status_code=response.code, status=response.phrase.decode("latin-1")
    )
    for name, values in found:
        if name in named or name in _HOP_BY_HOP or name in _NOT_ANSWERED:
            continue
        answer.header[name].value.extend(value.decode("latin-1") for value in values)
    return pb.HttpResponse(header=pb.HttpResponse.Header(response=answer))
