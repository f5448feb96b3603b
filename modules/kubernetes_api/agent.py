"""agentk's half: sends the request of each stream to the API server."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, ClassVar, Final

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from zope.interface import classImplements, directlyProvides

from modules.kubernetes_api.config import KubernetesApiAgentConfiguration
from modules.kubernetes_api.fields import (
    BY_OWNER,
    FAILED_HOP,
    MAX_BLOCK,
    MAX_LINES,
    METHOD,
    PACKED_METHOD,
    error_block,
    passed_by,
    unpacked_block,
)
from modules.kubernetes_api.heartbeats import Heartbeats
from modules.kubernetes_api.metrics import ProxyMetrics
from modules.kubernetes_api.spans import STATUS_CODE, begin_span
from modules.kubernetes_api.watch_boundary import Boundary
from modules.kubernetes_api.writes import CREDENTIAL, READS, Write
from tunnel import __version__
from tunnel.api import (
    Draining,
    IAgentModule,
    IAgentModuleApi,
    IAgentModuleFactory,
    ICluster,
    IOwnNamespace,
    ISpan,
    IStream,
    IStreamReceiver,
    SpanKind,
    TunnelDisconnected,
)
from tunnel.errors import ErrorCode
from tunnel.http1 import (
    HeadError,
    HeadNote,
    RequestHead,
    RequestParser,
    ResponseHead,
    ResponseParser,
    ResponseReceiver,
    UpstreamError,
    UpstreamPool,
    UpstreamRequest,
    clean_trailers,
    is_value,
)
from tunnel.kubernetes import (
    Lasts,
    OwnerDenial,
    OwnNamespaceRefusal,
    escapes_root,
    lasts,
)
from tunnel.toolkit.failure_log import FailureLog
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.traces import new_trace_id, trace_id_in, with_traceparent

__all__ = ["KubernetesApiAgent"]

_PSEUDONYM: Final = f"gitlab-agent/{__version__}".encode()

#: Maximum number of cached heads, with at most 4 KiB of lines each.  Few clients of a
#: cluster are busy at the same time, and each has two or three heads.
MAX_KNOWN_HEADS: Final = 100

#: Maximum seconds that a head is cached: a head may contain secrets of a client that
#: has disconnected, and parsing a head again once a minute costs nothing.
KNOWN_SECONDS: Final = 60.0

#: Kubernetes' own users and groups.  The omitted names are harmless: impersonating a
#: service account needs a separate permission, and everyone is in the omitted groups.
_SYSTEM: Final = re.compile(
    rb"\r\nimpersonate-"
    rb"(?:user:[ \t]*(?!system:(?:serviceaccount:|anonymous[ \t]*\r))"
    rb"|group:[ \t]*(?!system:(?:serviceaccounts(?::|[ \t]*\r)"
    rb"|(?:un)?authenticated[ \t]*\r)))"
    rb"(system:[^\r]*)",
    re.IGNORECASE,
)

#: Line with the user that a request impersonates.  If a request has several such lines,
#: API servers use the first one.
_USER: Final = re.compile(rb"\r\nimpersonate-user:([^\r]*)", re.IGNORECASE)

#: Value of ``Authorization``, and the outgoing header fields that were made with this
#: value.
_OUTGOING: Final[HeadNote[tuple[bytes | None, bytes]]] = HeadNote()
#: Whether the request uses agentk's own permissions.
_AS_AGENTK: Final[HeadNote[bool]] = HeadNote()

_API_SERVER: Final = b"api-server"
_AGENT: Final = b"agent"


class KubernetesApiAgent:
    """
    agentk's half of the module, which sends requests from kas to the API server of
    agentk's cluster.

    :param now: returns the time in seconds since 1970.
    """

    name: ClassVar = "kubernetes_api"
    configuration: ClassVar = KubernetesApiAgentConfiguration

    def __init__(
        self, api: IAgentModuleApi, now: Callable[[], float] = time.time
    ) -> None:
        self.api = api
        self.now = now
        # kas has written the caller's Impersonate-* into each request, and restricts
        # read-only users, so requests are sent as they are.
        self.cluster: ICluster = api.kubernetes.cluster_as_agentk
        self.metrics = ProxyMetrics("agentk_kubernetes_api")
        self.failures = FailureLog(api.clock)
        # kas has checked each request; this parser only reads it.
        self.requests = RequestParser(
            taken=[b"authorization", b"via", CREDENTIAL],
            max_count=MAX_LINES,
            host_required=False,
            max_known=MAX_KNOWN_HEADS,
        )
        #: Heads that came through the current tunnel within the last minute.
        self.known: dict[bytes, RequestHead] = {}
        self._forgetting: IDelayedCall | None = None
        self.responses = ResponseParser(taken=[b"via", FAILED_HOP])
        # Compiled code calls the methods of its own class faster.
        kubernetes: Any = api.kubernetes
        upstream: Any = kubernetes.upstream
        #: The connections; None if the policy of the cluster's owner guards them.
        self.pool = upstream if isinstance(upstream, UpstreamPool) else None
        #: The guarded connections.
        self.guarded: Any = upstream if self.pool is None else None
        self.allow_system_names: bool = api.configuration.allow_system_names
        self.own_namespace: IOwnNamespace = api.kubernetes.own_namespace
        self.tracer = api.tracer
        #: Requests whose responses are streams of events.
        self.watches: set[AgentRequest] = set()
        self._counting = False
        self._unsubscribe: list[Callable[[], None]] = []
        api.calls.handle_stream(METHOD, self.accept)
        api.calls.handle_stream(PACKED_METHOD, self.accept_packed)

    async def start(self) -> None:
        """Start; agentk connects to the API server only for the first request."""
        self.api.metrics.register(self.metrics)
        self._counting = True
        self._unsubscribe = [
            self.api.events.subscribe(Draining, self._draining),
            # Heads of clients must not outlive the connection that carried them.
            self.api.events.subscribe(TunnelDisconnected, lambda _: self.known.clear()),
        ]

    def _draining(self, _: object) -> None:
        # End the watches, so that clients restart them at an agentk that keeps running.
        for_each(tuple(self.watches), lambda watch: watch.end_watch(), "ending a watch")

    async def stop(self) -> None:
        """End running requests with an error."""
        if self.pool is not None:
            self.pool.give_up(self._owns)
        else:
            self.guarded.give_up(self._owns)
        if self._counting:
            self._counting = False
            self.api.metrics.unregister(self.metrics)
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe = []
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forget()

    def parse(self, block: bytes) -> RequestHead:
        """
        Read the head of a request.

        :raises HeadError: if the head cannot be forwarded.
        """
        if self._forgetting is None:
            self._forgetting = self.api.clock.callLater(KNOWN_SECONDS, self._forget)
        return self.requests.parse(block, self.known)

    def _forget(self) -> None:
        self._forgetting = None
        self.known.clear()

    def _owns(self, receiver: ResponseReceiver) -> bool:
        return isinstance(receiver, AgentRequest) and receiver.belongs_to(self)

    def accept(self, stream: IStream, opened: Any) -> IStreamReceiver:
        """Accept one request."""
        request = AgentRequest(self, stream)
        request.begin(opened.metadata)
        return request

    def accept_packed(self, stream: IStream, opened: Any) -> IStreamReceiver:
        """Accept one request whose head did not fit into a frame."""
        request = AgentRequest(self, stream)
        try:
            block = unpacked_block(opened.metadata)
        except ValueError as error:
            request.refuse_head(str(error))
        else:
            request.begin(block)
        return request


classImplements(KubernetesApiAgent, IAgentModule)
directlyProvides(KubernetesApiAgent, IAgentModuleFactory)


class _SystemName(Exception):
    """Error for a request that would run as one of Kubernetes' own users or groups."""


def _outgoing(head: RequestHead, cluster: ICluster, allow_system_names: bool) -> bytes:
    """
    Return the fields of a request to the API server: the fields from kas, and agentk's
    own ``Host``, ``Via`` and credential.

    :raises _SystemName: if the request may not run as the user or in a group that it
        names.
    """
    authorization = cluster.authorization()
    noted = _OUTGOING.read(head)
    if noted is not None and noted[0] == authorization:
        return noted[1]
    # Check the same header lines only once; CR LF is appended so that each line has an
    # end.
    system = _SYSTEM.search(head.fields + b"\r\n")
    if system is not None and not allow_system_names:
        raise _SystemName(
            "agentk does not act as users and groups such as "
            f"{system[1].decode('latin-1')!r}, which are Kubernetes' own; "
            "kubernetes_api.allow_system_names: true in its configuration file "
            "permits it"
        )
    if authorization is not None and not is_value(authorization):
        raise ValueError("the token contains bytes that are not permitted in a header")
    fields = b"%b\r\nHost: %b\r\nVia: %b" % (
        head.fields,
        cluster.host_header,
        b", ".join([*head.taken.get(b"via", ()), b"1.1 " + _PSEUDONYM]),
    )
    if authorization is not None:
        fields += b"\r\nAuthorization: " + authorization
    _OUTGOING.write(head, (authorization, fields))
    return fields


def _checked(head: RequestHead, own: IOwnNamespace) -> bytes:
    """
    Return the target to request from the API server.

    :raises OwnNamespaceRefusal: if a client may not request this with agentk's own
        permissions.
    """
    as_agentk = _AS_AGENTK.read(head)
    if as_agentk is None:
        found = _USER.search(head.fields)
        username = "" if found is None else found[1].strip().decode("latin-1")
        as_agentk = own.acts_as_agentk(username)
        _AS_AGENTK.write(head, as_agentk)
    if not as_agentk:
        return head.target
    target: bytes = own.checked(head.method, head.target, bool(head.upgrade))
    return target


class AgentRequest:
    """

    One request that kas sends through a stream, and that agentk sends to the API
    server.

    The object receives the events of the stream and of the API server's response.  If
    one side accepts no more data, the object pauses the other side.
    """

    _log: ClassVar = Logger()

    __slots__ = (
        "_answered",
        "_boundary",
        "_ending",
        "_fields",
        "_heartbeats",
        "_module",
        "_over",
        "_raw",
        "_received",
        "_request",
        "_sent",
        "_span",
        "_started_at",
        "_stream",
        "_target",
        "_trailers",
        "_upgrade",
        "_watch",
        "_write",
    )

    def __init__(self, module: KubernetesApiAgent, stream: IStream) -> None:
        self._module = module
        self._stream = stream
        self._request: UpstreamRequest | None = None
        self._started_at = module.api.clock.seconds()
        self._target = b""
        self._fields = b""
        self._trailers = b""
        self._answered = False
        self._upgrade = False
        # Whether a 101 was sent: raw bytes flow both ways until both halves are closed.
        self._raw = False
        self._heartbeats: Heartbeats | None = None
        # Whether kas has finished its half of the stream, and the API server its
        # response.
        self._sent = False
        self._received = False
        self._over = False
        # Parser of the events in a watch, and whether to end the watch after the
        # current event.
        self._watch = False
        self._boundary: Boundary | None = None
        self._ending = False
        # Report of a request that may change an object; None after its response has
        # arrived.
        self._write: Write | None = None
        self._span: ISpan | None = None
        module.metrics.in_flight += 1

    def belongs_to(self, module: KubernetesApiAgent) -> bool:
        """Return whether *module* accepted the request."""
        return self._module is module

    def begin(self, block: bytes) -> None:
        """Send the request that *block* describes."""
        module = self._module
        cluster = module.cluster
        try:
            head = module.parse(block)
        except HeadError as malformed:
            self.refuse_head(str(malformed))
            return
        self._target = head.target
        self._fields = head.fields
        # kas also refuses such paths, but agentk does not rely on kas.
        if escapes_root(head.target.partition(b"?")[0]):
            self._refuse(
                400,
                "kas -> agent: the dot segments of the path lead out of the cluster",
                _AGENT,
            )
            return
        if module.tracer is not None:
            # kas decides which requests are traced.
            self._span = begin_span(
                module.tracer, SpanKind.CLIENT, head.method, head.target, head.fields
            )
        try:
            target = _checked(head, module.own_namespace)
            fields = _outgoing(head, cluster, module.allow_system_names)
        except (OwnNamespaceRefusal, _SystemName) as refused:
            # With a policy, the protection of the namespace is a part of it.
            hop = _AGENT if module.pool is not None else BY_OWNER
            self._refuse(403, f"kas -> agent: {refused}", hop)
            return
        except Exception as error:
            self._log.failure("no credentials for the API server")
            self._refuse(502, f"agent -> API server: no credentials: {error}", _AGENT)
            return
        if self._span is not None:
            fields = with_traceparent(fields, self._span.traceparent)
        if cluster.path_prefix:
            target = cluster.path_prefix.rstrip("/").encode() + target
        self._upgrade = bool(head.upgrade)
        if head.method not in READS:
            self._write = Write.of(head, module.api.clock.seconds)
        self._watch = lasts(head.method, head.target) is Lasts.WATCH
        pool = module.pool
        try:
            if pool is not None:
                request = pool.request(
                    head.method,
                    target,
                    fields,
                    self,
                    parser=module.responses,
                    length=head.length,
                    upgrade=head.upgrade,
                    expect_continue=head.expect_continue,
                )
            else:
                request = module.guarded.request(
                    head.method,
                    target,
                    fields,
                    self,
                    parser=module.responses,
                    length=head.length,
                    upgrade=head.upgrade,
                    expect_continue=head.expect_continue,
                )
        except OwnerDenial as denied:
            # The policy has logged and counted the denial.
            self._write = None
            self._respond(denied.code, denied.message, BY_OWNER)
            return
        # The request may have failed before this method returns.
        if not self._over:
            self._request = request
            self._stream.registerProducer(request, True)
            if head.length or head.upgrade:
                request.registerProducer(self._stream, True)

    def refuse_head(self, reason: str) -> None:
        """Respond to a request from kas whose head is invalid."""
        self._refuse(502, f"kas -> agent: {reason}", _AGENT)

    def _refuse(self, status: int, message: str, hop: bytes) -> None:
        """Respond with an error in place of the API server."""
        text = self._module.failures.report(
            message, self._trace_id(), ours=True, status=status
        )
        self._module.metrics.failed(hop.decode())
        self._respond(status, text, hop)

    def _respond(self, status: int, text: str, hop: bytes) -> None:
        """Respond in place of the API server."""
        if self._span is not None:
            self._span.set(STATUS_CODE, status)
            self._span.end(text)
        block, body = error_block(status, text, hop, self._target, self._fields)
        stream = self._stream
        self._module.metrics.answered(status)
        if self._upgrade:
            self._module.metrics.upgrades["failed"] += 1
        self._answered = True
        stream.send_headers(block)
        stream.write(body)
        self._finish()

    def _trace_id(self) -> str:
        return trace_id_in(self._fields) or new_trace_id()

    def _finish(self, trailers: bytes = b"", broken: bool = False) -> None:
        """Finish the stream; with *broken*, count the response as incomplete."""
        stream = self._stream
        self._end(broken)
        stream.unregisterProducer()
        if trailers:
            stream.send_headers(trailers[2:] + b"\r\n")
        stream.finish()
        if not self._sent:
            # Read and drop the rest of the body from kas.
            stream.resumeProducing()

    def _end(self, broken: bool = False) -> None:
        if not self._over:
            self._over = True
            self._request = None
            if self._span is not None:
                self._span.end("the response ended early" if broken else "")
            if self._heartbeats is not None:
                self._heartbeats.stop()
            self._module.watches.discard(self)
            self._module.metrics.in_flight -= 1
            if broken:
                self._module.metrics.broken += 1

    # Callbacks of the stream from kas.

    def headers_received(self, block: bytes) -> None:
        """See `tunnel.api.IStreamReceiver`; trailers of the request."""
        if not self._over:
            self._trailers = clean_trailers(block)

    def data_received(self, data: bytes) -> None:
        """See `tunnel.api.IStreamReceiver`."""
        if self._request is not None:
            self._module.metrics.bytes_received += len(data)
            if self._write is not None:
                self._write.sent(data)
            if self._heartbeats is not None:
                self._heartbeats.from_client(data)
            else:
                self._request.write(data)

    def fin_received(self) -> None:
        """See `tunnel.api.IStreamReceiver`."""
        self._sent = True
        if self._heartbeats is not None:
            self._heartbeats.client_finished()
        if self._request is not None:
            self._request.finish(self._trailers)
        if self._received:
            self._end()

    def stream_closed(self, reason: Exception | None) -> None:
        """See `tunnel.api.IStreamReceiver`."""
        if self._over:
            return
        request = self._request
        self._not_answered(request)
        self._end(broken=reason is not None)
        if request is not None and reason is not None:
            request.abort()

    # Callbacks of the request to the API server.

    def response_informational(self, head: ResponseHead) -> None:
        """See `tunnel.http1.ResponseReceiver`."""
        self._stream.send_headers(head.block())

    def response_started(self, head: ResponseHead) -> None:
        """See `tunnel.http1.ResponseReceiver`."""
        module = self._module
        if self._write is not None:
            self._written(self._write, head)
        fields = passed_by(head, _PSEUDONYM)
        if not head.keep_alive and not head.upgrade:
            # kas forwards this field to the client; agentk has removed the fields of
            # its own hop.
            fields += b"\r\nConnection: close"
        block = head.block(fields)
        if len(block) > MAX_BLOCK:
            raise UpstreamError("the head of the response is too large")
        metrics = module.metrics
        seconds = module.api.clock.seconds() - self._started_at
        metrics.head_passed(head.status, seconds)
        if self._span is not None:
            self._span.set(STATUS_CODE, head.status)
        if self._upgrade:
            metrics.upgrades["switched" if head.status == 101 else "refused"] += 1
        if head.status == 401:
            # The API server rejected agentk's token, not the client's: look for a newer
            # one.
            module.cluster.rejected()
        self._answered = True
        self._raw = head.status == 101
        request = self._request
        if self._raw and request is not None:
            self._heartbeats = Heartbeats(
                head.upgrade,
                module.api.clock,
                request.write,
                self._stream.write,
                request,
            )
        self._stream.send_headers(block)
        if self._watch and head.status == 200:
            self._boundary = Boundary(head.fields)
            module.watches.add(self)

    def _written(self, write: Write, head: ResponseHead) -> None:
        api = self._module.api
        written = write.answered(head.status, head.fields, api.clock.seconds())
        self._write = None
        if written is not None:
            api.events.publish(written)

    def _not_answered(self, request: UpstreamRequest | None) -> None:
        """
        Report a change that the API server may have made, although agentk received no
        response.
        """
        write, self._write = self._write, None
        if write is None or request is None or not request.may_have_run:
            return
        api = self._module.api
        written = write.unanswered(api.clock.seconds(), self._module.now())
        if written is not None:
            api.events.publish(written)

    def response_data(self, data: bytes) -> None:
        """See `tunnel.http1.ResponseReceiver`."""
        self._module.metrics.bytes_sent += len(data)
        if self._heartbeats is not None:
            self._heartbeats.from_server(data)
        else:
            self._stream.write(data)
        if self._boundary is not None:
            self._boundary.feed(data)
            if self._ending:
                self.end_watch()

    def end_watch(self) -> None:
        """End the response between two events, as an API server does after a while."""
        self._ending = True
        request = self._request
        if self._boundary is not None and self._boundary.between and not self._over:
            self._finish()
            if request is not None:
                request.abort()

    def response_finished(self, trailers: bytes) -> None:
        """See `tunnel.http1.ResponseReceiver`."""
        if self._over:
            return
        if not self._raw or self._sent:
            self._finish(trailers)
        else:
            self._received = True
            if self._heartbeats is not None:
                # The server has finished, so forwarding the beginning of a PING cannot
                # cause a reset.
                self._heartbeats.client_finished()
                self._heartbeats = None
            self._stream.unregisterProducer()
            self._stream.finish()

    def response_failed(self, reason: Exception) -> None:
        """See `tunnel.http1.ResponseReceiver`."""
        if self._over:
            return
        self._not_answered(self._request)
        if self._raw and isinstance(reason, UpstreamError):
            # Finish instead of resetting the stream, because a reset would overtake
            # data that was read before.  The protocol inside an upgraded connection
            # detects its own truncation.
            self._finish(broken=True)
        elif self._answered:
            self._end(broken=True)
            message = f"agent -> API server: {reason}"
            trace_id = self._trace_id()
            text = self._module.failures.report(message, trace_id, ours=True)
            self._stream.reset(ErrorCode.INTERNAL, text)
        else:
            status = reason.status if isinstance(reason, UpstreamError) else 502
            self._refuse(status, f"agent -> API server: {reason}", _API_SERVER)


classImplements(AgentRequest, IStreamReceiver)
