"""kas' half: accepts clients, checks their credentials, and forwards requests."""

from __future__ import annotations

import itertools
import json
import re
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any, ClassVar, Final, Protocol

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import classImplements, directlyProvides

from modules.kubernetes_api.agent_paths import AgentPaths, PathRequest, ServedPath
from modules.kubernetes_api.audits import RequestAudit, RequestAudits
from modules.kubernetes_api.browsers import ISOLATED, CrossOrigin, not_passed
from modules.kubernetes_api.config import KubernetesApiConfiguration, websocket_secret
from modules.kubernetes_api.fields import (
    BY_OWNER,
    FAILED_HOP,
    MAX_BLOCK,
    MAX_HEAD,
    MAX_LINES,
    METHOD,
    fitted,
    passed_by,
)
from modules.kubernetes_api.forwarded import TrustedProxies
from modules.kubernetes_api.frontdoor import (
    PAGE_PREFIX,
    Entry,
    OutgoingFields,
    Refused,
    parse_page_request,
    parse_request,
    request_parser,
)
from modules.kubernetes_api.heartbeats import Heartbeats
from modules.kubernetes_api.metrics import ProxyMetrics
from modules.kubernetes_api.reviews import (
    MAX_REVIEW,
    ReviewError,
    is_review,
    refusal,
)
from modules.kubernetes_api.shares import Shares, Sharing, TooMany
from modules.kubernetes_api.spans import STATUS_CODE, begin_span
from modules.kubernetes_api.statuses import INTERNAL_ERROR, status_answer
from modules.kubernetes_api.watch_api import PATH, WatchConnection, wants_watches
from modules.kubernetes_api.watch_boundary import Boundary
from modules.kubernetes_api.watch_turns import WatchTurns
from modules.kubernetes_api.websocket_tokens import (
    SealedCredential,
    UsedTokens,
    WebSocketTokens,
)
from modules.kubernetes_api.writes import READS, credential_field
from tunnel import __version__
from tunnel.api import (
    PAGE_SESSION,
    SESSION_COOKIE,
    Access,
    AgentPathsStarted,
    CredentialRevoked,
    Draining,
    HasPeer,
    IAgentPaths,
    ICachedWatches,
    IPathReceiver,
    IServerModule,
    IServerModuleApi,
    IServerModuleFactory,
    ISharedCount,
    ISpan,
    IStream,
    ITracer,
    SpanKind,
    StreamOptions,
    Usage,
)
from tunnel.errors import (
    AgentUnavailable,
    CallError,
    ErrorCode,
    SessionClosed,
    Status,
    StreamReset,
    TunnelError,
)
from tunnel.http1 import (
    ClientGone,
    Exchange,
    HeadError,
    HeadNote,
    HttpServerFactory,
    RequestHead,
    RequestReceiver,
    ResponseHead,
    ResponseParser,
    UpstreamLimits,
    clean_trailers,
    encode_request,
)
from tunnel.kubernetes import (
    Lasts,
    SessionReader,
    lasts,
    why_refused,
)
from tunnel.toolkit.failure_log import FailureLog
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.traces import new_trace_id, trace_id_in, with_traceparent

__all__ = ["KubernetesApiServer"]

#: Outcomes, in the audit log, of requests without a response.
CLIENT_LEFT: Final = "client left"
KAS_STOPPED: Final = "kas stopped"
NO_ANSWER: Final = "no answer"

#: Reasons, in the audit log, for the end of requests that may last.
FINISHED: Final = "finished"
INTERRUPTED: Final = "kas ended the watch, so that the client connects again"

#: Events of one watch in an aggregated connection.
_AUDIT: Final[HeadNote[RequestAudit]] = HeadNote()

#: Usage counter for a request whose credential does not define its own counter.
_USED: Final = Usage(counters=("k8s_api_proxy_request",))

_STATUSES: Final = {
    Status.UNAUTHENTICATED: 401,
    Status.PERMISSION_DENIED: 403,
    Status.NOT_FOUND: 404,
    Status.RESOURCE_EXHAUSTED: 429,
    Status.UNAVAILABLE: 503,
    Status.DEADLINE_EXCEEDED: 504,
}

_FIELDS: Final = {
    401: b"\r\nWWW-Authenticate: Bearer\r\nGitlab-Unauthorized: true",
    429: b"\r\nRetry-After: 1",
    503: b"\r\nRetry-After: 5",
}

_MAX_INFORMATIONAL: Final = UpstreamLimits().max_informational

#: Maximum bytes of a response that needs no producer: every socket accepts this much at
#: once, or kas buffers it.
SMALL: Final = 16 * 1024

_BROKEN_HOP: Final = "kas -> agent"

#: All combinations of options for opening a stream: (fin, idempotent, resumable).
_OPTIONS: Final = {
    (fin, idempotent, resumable): StreamOptions(
        fin=fin, idempotent=idempotent, resumable=resumable
    )
    for fin, idempotent, resumable in itertools.product((False, True), repeat=3)
}

# All clusters share the origin of kas: a header of one cluster must not affect the
# others in a browser.
_NOT_FOR_CLIENTS: Final = (
    b"access-control-*",
    b"alt-svc",
    b"clear-site-data",
    b"gitlab-unauthorized",
    b"public-key-pins",
    b"public-key-pins-report-only",
    b"set-cookie",
    b"set-cookie2",
    b"strict-transport-security",
    b"via",
    FAILED_HOP,
)


class Ending(Protocol):
    """Response with events, which has to be ended when kas stops."""

    def end_watch(self) -> None:
        """End the response."""


class Held(Sharing, Protocol):
    """A request or connection that a credential holds open."""

    def revoke(self) -> None:
        """End the request, because its credential is no longer valid."""

    def client_gone(self, reason: Exception) -> object:
        """End the request or connection, because kas is stopping."""


class PageDoor:
    """Handler of the requests of kas' own page."""

    def __init__(self, server: KubernetesApiServer) -> None:
        self._server = server

    def request_received(self, exchange: Exchange) -> RequestReceiver | None:
        """See `tunnel.http1.RequestHandler`."""
        return self._server.page_request_received(exchange)


class KubernetesApiServer:
    """
    kas' half of the module, which serves the Kubernetes API of each connected agent's
    cluster.

    :param token: returns the part of kas' name in ``Via`` that identifies this
        kas.
    :param now: returns the time of day.
    """

    _log: ClassVar = Logger()

    name: ClassVar = "kubernetes_api"
    configuration: ClassVar = KubernetesApiConfiguration

    def __init__(
        self,
        api: IServerModuleApi,
        token: Callable[[], str] = lambda: secrets.token_hex(4),
        now: Callable[[], float] = time.time,
    ) -> None:
        self.api = api
        self._users = api.users
        self._calls = api.calls
        self.clock = api.clock
        self.metrics = ProxyMetrics("kas_kubernetes_api")
        self.failures = FailureLog(api.clock)
        self.responses = ResponseParser(taken=_NOT_FOR_CLIENTS, max_count=MAX_LINES)
        settings: KubernetesApiConfiguration = api.configuration
        self._settings = settings
        file = settings.websocket_token_secret_file
        # Without a configured secret, tokens are valid only at this kas.
        secret = secrets.token_bytes(32) if file is None else websocket_secret(file)
        self.tokens = WebSocketTokens(secret, now)
        self._used = UsedTokens(partial(api.stores.open, "websocket-tokens"))
        allowed = settings.extra_allowed_response_headers
        self.not_for_pages = not_passed(allowed)
        # A redirect would repeat a request with the user's rights: scripts of kas' own
        # page reach all clusters at one origin.
        self.not_for_own_page = not_passed(allowed, but=("location",))
        proxies = settings.trusted_proxies
        self._proxies = TrustedProxies(proxies) if proxies else None
        self._prefix = settings.url_path_prefix.rstrip("/").encode() + b"/"
        #: Name of this kas in ``Via``: the version and a random id.
        self.pseudonym = f"gitlab-kas/{__version__}/{token()}".encode()
        self._agents = self._prefix + b"agents/"
        self._outgoing = OutgoingFields(self.pseudonym)
        self._count = api.users.count_usage
        self._tracer = api.tracer
        self.audits = RequestAudits(api.audit, api.clock, self._client_address)
        #: Responses with events, which end when kas drains.
        self.watches: set[Ending] = set()
        self.watch_turns = WatchTurns(self.clock)
        self._paths = AgentPaths()
        api.capabilities.provide(IAgentPaths, self._paths)
        self.shares: Shares[Held] = Shares(
            api.clock,
            settings.max_requests_per_credential,
            settings.max_requests_per_agent,
            settings.max_requests_per_second,
            _together(api, settings),
        )
        self._unsubscribe: list[Callable[[], None]] = []
        self._stopping = False
        origins = api.web.page_origins
        self._cross_origin = CrossOrigin(origins) if origins else None
        self.front = HttpServerFactory(
            self,
            api.clock,
            parser=request_parser(settings.max_header_count, bool(origins)),
            limits=settings.front_limits(),
            write=api.write,
            render_error=self._render,
        )

        #: The same for kas' own page, whose users have sessions and nothing else.
        self.page_front = HttpServerFactory(
            PageDoor(self),
            api.clock,
            parser=request_parser(settings.max_header_count),
            limits=settings.front_limits(),
            write=api.write,
            render_error=self._render,
        )
        api.web.hand_over(PAGE_PREFIX, self.page_front)

    async def start(self) -> None:
        """Start to listen, and register metrics."""
        self.api.metrics.register(self.metrics)
        self.api.metrics.register(self.shares)
        self.api.users.recheck(self.shares.credentials)
        self._unsubscribe = [
            self.api.events.subscribe(CredentialRevoked, self._revoked),
            self.api.events.subscribe(Draining, self._draining),
        ]
        listen: Any = self._settings.listen
        path = self._settings.url_path_prefix.rstrip("/")
        self.api.events.publish(AgentPathsStarted())
        await self.api.network.listen(listen, self.front, path)

    async def stop(self) -> None:
        """Drop requests in progress; ``kas.draining`` gave them time to finish."""
        if self._unsubscribe:
            for unsubscribe in self._unsubscribe:
                unsubscribe()
            self._unsubscribe = []
            self.api.metrics.unregister(self.metrics)
            self.api.metrics.unregister(self.shares)
        self._stopping = True
        for front in (self.front, self.page_front):
            front.drain()
            front.abort_all()
        for_each(
            self.shares.all(),
            lambda one: one.client_gone(CallError(Status.UNAVAILABLE, "kas stops")),
            "ending a request",
        )
        self.shares.stop()

    def _draining(self, _: object) -> None:
        # Running requests may finish; their connections accept no further request.
        self.front.drain()
        self.page_front.drain()
        for_each(tuple(self.watches), lambda watch: watch.end_watch(), "ending a watch")

    # Requests.

    def request_received(self, exchange: Exchange) -> RequestReceiver | None:
        """See `tunnel.http1.RequestHandler`."""
        # Fields for browsers, which each response to this request contains.
        fields = b""
        if self._cross_origin is not None:
            allowed = self._cross_origin.fields(exchange.head)
            if allowed is None:
                self._refused(exchange, Refused(403, "another origin"), empty=True)
                return None
            fields = allowed
            if exchange.head.method == b"OPTIONS":
                more = self._cross_origin.preflight(exchange.head)
                exchange.respond(200, fields + more, b"")
                self.metrics.answered(200)
                return None
        try:
            entry = parse_request(exchange.head, self._prefix, self.tokens)
        except Refused as refused:
            self._refused(exchange, refused, fields)
            return None
        return self._entered(exchange, entry, fields)

    def page_request_received(self, exchange: Exchange) -> RequestReceiver | None:
        """Handle a request of kas' own page, like `request_received`."""
        try:
            entry = parse_page_request(exchange.head, self.tokens)
        except Refused as refused:
            self._refused(exchange, refused, ISOLATED)
            return None
        return self._entered(exchange, entry, b"")

    def _entered(
        self, exchange: Exchange, entry: Entry, fields: bytes
    ) -> RequestReceiver:
        request = ProxiedRequest(self, exchange, entry.target, fields)
        if entry.kind == SESSION_COOKIE:
            request.isolate(self.not_for_pages)
        elif entry.kind == PAGE_SESSION:
            request.isolate(self.not_for_own_page)
        if entry.wants_token:
            request.wants = SealedCredential(entry.kind, entry.agent, entry.token)
        try:
            proxies = self._proxies
            client = exchange if proxies is None else proxies.client_of(exchange)
            answer = (
                Deferred.fromCoroutine(self._authorize_once(entry, client))
                if entry.sealed_in
                else self._users.authorize(entry.kind, entry.agent, entry.token, client)
            )
        except CallError:
            answer = fail()
        if exchange.head.upgrade and wants_watches(exchange.head, entry.target):
            return self._aggregate(exchange, answer, fields)
        served = self._paths.find(entry.target)
        if served is not None and exchange.head.target.startswith(
            (self._agents, PAGE_PREFIX.encode())
        ):
            return self._serve_path(exchange, served, entry, answer, fields)
        # The result of the check is nearly always known already; a callback would cost
        # more than the lookup.
        if isinstance(answer, Deferred):
            exchange.pauseProducing()
            request.checking = answer
            answer.addCallbacks(
                self._authorized,
                self._not_authorized,
                callbackArgs=(request,),
                errbackArgs=(request,),
            )
            answer.addErrback(self.log_bug, request)
        else:
            self._admit(request, answer)
        return request

    # Paths of modules: `modules.kubernetes_api.agent_paths.PathHost`.

    def _serve_path(
        self,
        exchange: Exchange,
        served: ServedPath,
        entry: Entry,
        answer: Access | Deferred[Access],
        fields: bytes,
    ) -> RequestReceiver:
        if entry.kind in (SESSION_COOKIE, PAGE_SESSION):
            fields += ISOLATED
        request = PathRequest(self, exchange, served, entry.target, fields)
        if not isinstance(answer, Deferred):
            answer = succeed(answer)
        exchange.pauseProducing()
        request.checking = answer
        answer.addCallbacks(
            request.authorized,
            lambda failure: self._refuse_path(failure, request),
        )
        answer.addErrback(self._log_failed_path, request)
        return request

    def _refuse_path(self, failure: Failure, request: PathRequest) -> None:
        status, message = self._refusal(failure)
        request.fail(status, message, _FIELDS.get(status, b""))

    def _log_failed_path(self, failure: Failure, request: PathRequest) -> None:
        self._log.failure("cannot begin a request for a path", failure)
        request.fail(500, INTERNAL_ERROR)

    def path_ended(self, request: PathRequest, outcome: int | str) -> None:
        """See `PathHost`."""
        if isinstance(outcome, int):
            self.metrics.answered(outcome)
        if (audit := request.audit) is None:
            return
        if isinstance(outcome, int):
            audit.answer(request.access, outcome)
        elif request.status and audit.has_begun:
            audit.answer(request.access, request.status)
        reason = outcome if isinstance(outcome, str) else ""
        amounts = (request.received, request.sent)
        audit.end(request.access, outcome, reason, amounts=amounts)

    def audit_path(
        self, exchange: Exchange, target: bytes, served: ServedPath
    ) -> RequestAudit | None:
        """See `PathHost`."""
        if not served.path.is_kubernetes:
            return self.audits.of(exchange, target, reads=True)
        return self.audits.of(exchange, target, base=b"/" + served.name.encode())

    def path_begins(
        self, request: PathRequest, access: Access
    ) -> Deferred[None] | None:
        """See `PathHost`."""
        return None if request.audit is None else request.audit.begin(access)

    def path_refused(self, request: PathRequest, status: int, message: str) -> str:
        """See `PathHost`."""
        self.metrics.failed(message.partition(":")[0])
        access = request.access
        return self.failures.report(
            message,
            trace_id_in(request.exchange.head.fields) or new_trace_id(),
            ours=status >= 500,
            status=status,
            agent_id="" if access is None else access.agent_id,
        )

    # Aggregated watches: `modules.kubernetes_api.watch_api.WatchHost`.

    def _aggregate(
        self, exchange: Exchange, answer: Access | Deferred[Access], fields: bytes
    ) -> RequestReceiver:
        connection = WatchConnection(self, exchange, fields)
        if not isinstance(answer, Deferred):
            answer = succeed(answer)
        exchange.pauseProducing()
        connection.checking = answer
        answer.addCallbacks(
            connection.authorized,
            lambda failure: connection.refuse(*self._refusal(failure)),
        )
        answer.addErrback(self._log_failed_watch, connection)
        answer.addBoth(self._read_on, connection)
        return connection

    def _read_on(self, _: object, connection: WatchConnection) -> None:
        if not connection.over:
            connection.exchange.resumeProducing()

    def _log_failed_watch(self, failure: Failure, connection: WatchConnection) -> None:
        self._log.failure("cannot begin aggregated watches", failure)
        connection.refuse(500, INTERNAL_ERROR)

    def enters(self, watch: Any, access: Access) -> bool:
        """See `WatchHost`."""
        self.metrics.in_flight += 1
        self.shares.admit(watch, access, self.clock.seconds())
        if isinstance(watch, WatchConnection):
            return True
        return self.shares.admits(watch, access)

    def leaves(self, watch: Any, access: Access) -> None:
        """See `WatchHost`."""
        self.metrics.in_flight -= 1
        self.shares.leave(watch, access)

    def watch_begins(
        self, exchange: Exchange, head: RequestHead, access: Access
    ) -> Deferred[None] | None:
        """See `WatchHost`."""
        audit = self._audit_watch(exchange, head)
        committed = None if audit is None else audit.begin(access)
        if committed is not None:
            committed.addErrback(_refuse_watch)
        return committed

    def open_watch(
        self,
        exchange: Exchange,
        head: RequestHead,
        access: Access,
        receiver: IPathReceiver,
    ) -> IStream:
        """See `WatchHost`."""
        fields = self._outgoing.of(head, access)
        audit = self._audit_watch(exchange, head)
        if audit is not None:
            fields += audit.field()
        found = fitted(encode_request(b"GET", head.target, fields))
        if found is None:
            raise Refused(431, f"kas -> agent: {access.who} has too many groups")
        if self._count is not None:
            self._count(access.usage or _USED)
        method, block = found
        options = _OPTIONS[True, True, True]
        return self._calls.open_stream(
            access.agent_id, method, receiver, block, options
        )

    def cached_watch(
        self, head: RequestHead, access: Access
    ) -> AsyncGenerator[bytes, None] | None:
        """See `WatchHost`."""
        source = self.api.capabilities.get(ICachedWatches)
        # The cache would give the rights of the credential, and not those of the user
        # that the client names.
        if source is None or any(one.startswith(b"impersonate-") for one in head.taken):
            return None
        found: AsyncGenerator[bytes, None] = source.open(access, head.target.decode())
        return found

    def cached_watch_begins(self, access: Access) -> None:
        """See `WatchHost`."""
        if self._count is not None:
            self._count(access.usage or _USED)

    def why_forbidden(self, head: RequestHead, access: Access) -> str | None:
        """See `WatchHost`."""
        if not access.read_only:
            return None
        why = why_refused(access, head.method, head.target)
        return None if why is None else f"client -> kas: {why}"

    def read_head(self, block: bytes) -> ResponseHead:
        """See `WatchHost`."""
        return self.responses.parse(block, b"GET")

    def watch_answered(
        self, exchange: Exchange, head: RequestHead, access: Access, status: int
    ) -> None:
        """See `WatchHost`."""
        self.metrics.answered(status)
        if (audit := self._audit_watch(exchange, head)) is not None:
            audit.answer(access, status)

    def watch_failed(
        self, exchange: Exchange, head: RequestHead, access: Access, reason: Exception
    ) -> None:
        """See `WatchHost`."""
        status = reason.status if isinstance(reason, Refused) else _explain(reason)[0]
        if isinstance(reason, TooMany):
            status = 429
        self.metrics.answered(status)
        if (audit := self._audit_watch(exchange, head)) is not None:
            audit.answer(access, status, _may_have_run(reason))
            audit.end(access, status, str(reason))

    def watch_cancelled(
        self, exchange: Exchange, head: RequestHead, access: Access
    ) -> None:
        """See `WatchHost`."""
        outcome = self.left(ClientGone("the client ended the watch"))
        if (audit := self._audit_watch(exchange, head)) is not None:
            audit.end(access, outcome, unanswered=True)

    def watch_ended(
        self,
        exchange: Exchange,
        head: RequestHead,
        access: Access,
        reason: str,
        size: int,
    ) -> None:
        """See `WatchHost`."""
        if (audit := self._audit_watch(exchange, head)) is not None:
            audit.end(
                access,
                NO_ANSWER,
                reason or str(self.left(ClientGone("the client ended the watch"))),
                amounts=(0, size),
            )

    def _audit_watch(
        self, exchange: Exchange, head: RequestHead
    ) -> RequestAudit | None:
        """Return the events of one watch in an aggregated connection."""
        audit = _AUDIT.read(head)
        if audit is None:
            audit = self.audits.of(exchange, head.target, head)
            if audit is not None:
                _AUDIT.write(head, audit)
        return audit

    def left(self, reason: Exception) -> int | str:
        """
        Return the outcome to record for a request that *reason* ended before its
        response.
        """
        if isinstance(reason, ClientGone) and reason.status is not None:
            return reason.status
        if self._stopping:
            return KAS_STOPPED
        return CLIENT_LEFT if isinstance(reason, ClientGone) else NO_ANSWER

    def explain(self, reason: Exception) -> str:
        """See `WatchHost`."""
        return str(reason) if isinstance(reason, Refused) else _explain(reason)[1]

    def refuse_watches(
        self, exchange: Exchange, status: int, message: str, access: Access | None
    ) -> None:
        """See `WatchHost`."""
        self.metrics.answered(status)
        self.metrics.failed("client -> kas")
        self._audit_answer(exchange, exchange.head.target, access, status)
        self.refuse(exchange, status, message, _FIELDS.get(status, b""), access)

    def watches_begin(self, connection: WatchConnection) -> None:
        """See `WatchHost`."""
        self.metrics.answered(101)
        self.metrics.upgrades["switched"] += 1
        self._audit_answer(connection.exchange, PATH, connection.access, 101)
        if connection.access is not None:
            connection.exchange.limit_turns(connection.access.owner)
        self.watches.add(connection)

    def watches_end(self, connection: WatchConnection) -> None:
        """See `WatchHost`."""
        self.watches.discard(connection)

    async def _authorize_once(self, entry: Entry, client: HasPeer) -> Access:
        await self._used.use(entry.sealed_in)
        answer = self._users.authorize(entry.kind, entry.agent, entry.token, client)
        return await answer if isinstance(answer, Deferred) else answer

    def _authorized(self, access: Access, request: ProxiedRequest) -> None:
        request.checking = None
        if not request.over:
            self._admit(request, access)
            if not request.held:
                request.exchange.resumeProducing()

    def _not_authorized(self, failure: Failure, request: ProxiedRequest) -> None:
        request.checking = None
        if request.over:
            return  # the client left
        status, message = self._refusal(failure)
        request.fail(status, message, _FIELDS.get(status, b""))

    def _refusal(self, failure: Failure) -> tuple[int, str]:
        """Return the status and message for a rejected credential."""
        error = failure.value
        if isinstance(error, CallError):
            said = error.message or error.status.name.lower()
            return _STATUSES.get(error.status, 500), f"client -> kas: {said}"
        self._log.failure("cannot check a credential", failure)
        return 500, "kas: cannot check the credential; see the log of kas"

    def log_bug(self, failure: Failure, request: ProxiedRequest) -> None:
        """Respond to *request* after an error in kas."""
        self._log.failure("cannot begin a request", failure)
        request.fail(500, INTERNAL_ERROR)

    def _admit(self, request: ProxiedRequest, access: Access) -> None:
        request.access = access
        # Count the work for this caller: otherwise all users behind one address would
        # share the turns of that address.
        request.exchange.limit_turns(access.owner)
        self.metrics.in_flight += 1
        try:
            self.shares.admit(request, access, request.started_at)
        except TooMany as error:
            request.fail(429, f"client -> kas: too many requests {error}", _FIELDS[429])
            return
        if request.wants is not None:
            request.give_token(request.wants)
            return
        head = request.exchange.head
        if access.read_only:
            why = why_refused(access, head.method, request.target, bool(head.upgrade))
            if why is not None:
                request.fail(403, f"client -> kas: {why}")
                return
            if is_review(head.method, request.target):
                request.collect()
                return
        self.take_turn(request, access)

    def take_turn(self, request: ProxiedRequest, access: Access) -> None:
        """Forward *request* now or later."""
        if self.shares.admits(request, access):
            self.begin(request, access)
        else:
            request.hold()

    def begin(self, request: ProxiedRequest, access: Access) -> None:
        """Forward *request*, because it is its turn."""
        try:
            fields = self._outgoing.of(request.exchange.head, access)
        except Refused as refused:
            request.fail(refused.status, str(refused), refused.fields)
            return
        if request.exchange.head.method not in READS:
            fields += credential_field(access.credential_id)
        committed = None
        if request.audit is not None:
            committed = request.audit.begin(access)
            fields += request.audit.field()
        if committed is None:
            self.forward(request, access, fields)
        else:
            request.wait_for(committed, fields)

    def forward(self, request: ProxiedRequest, access: Access, fields: bytes) -> None:
        """Forward *request* with *fields*, after its beginning is recorded."""
        if self._tracer is not None:
            fields = request.trace(self._tracer, access, fields)
        if self._count is not None:
            self._count(access.usage or _USED)
        try:
            request.open(fields)
        except Exception:
            # A request that is not ended here would count for its credential and its
            # agent forever.
            self._log.failure("cannot open a stream for a request")
            request.fail(500, INTERNAL_ERROR)

    def refuse(
        self,
        exchange: Exchange,
        status: int,
        message: str,
        fields: bytes = b"",
        access: Access | None = None,
    ) -> None:
        """Respond with a Kubernetes Status."""
        head = exchange.head
        text = self.failures.report(
            message,
            trace_id_in(head.fields) or new_trace_id(),
            ours=status >= 500,
            status=status,
            agent_id="" if access is None else access.agent_id,
        )
        status, more, body = status_answer(status, text, head.target, head.fields)
        exchange.respond(status, more + fields, body)

    def _refused(
        self,
        exchange: Exchange,
        refused: Refused,
        fields: bytes = b"",
        empty: bool = False,
    ) -> None:
        self.metrics.answered(refused.status)
        self.metrics.failed("client -> kas")
        self._audit_answer(exchange, exchange.head.target, None, refused.status)
        if empty:
            exchange.respond(refused.status, b"", b"")
        else:
            fields += refused.fields
            self.refuse(exchange, refused.status, str(refused), fields)

    def _render(self, status: int, message: str) -> tuple[bytes, bytes]:
        # An unreadable request may have had an id.
        text = self.failures.report(
            f"client -> kas: {message}", new_trace_id(), ours=False, status=status
        )
        _, fields, body = status_answer(status, text, b"", b"")
        return fields, body

    def _audit_answer(
        self, exchange: Exchange, target: bytes, access: Access | None, status: int
    ) -> None:
        """Record a response of kas itself in the audit log."""
        if (audit := self.audits.of(exchange, target)) is not None:
            audit.answer(access, status)

    def _client_address(self, exchange: Exchange) -> str:
        """Return the address of the client, even behind trusted proxies."""
        proxies = self._proxies
        client = exchange if proxies is None else proxies.client_of(exchange)
        return str(getattr(client.peer_address, "host", ""))

    def _revoked(self, event: CredentialRevoked) -> None:
        for_each(
            self.shares.of(event.credential_id),
            lambda request: request.revoke(),
            "the cancellation of a request with a revoked credential",
        )


classImplements(KubernetesApiServer, IServerModule)
directlyProvides(KubernetesApiServer, IServerModuleFactory)


class ProxiedRequest:
    """

    One request to an agent.

    The object receives the events of the client's `Exchange` and of the agent's stream.
    If one side accepts no more data, the object pauses the other side.
    """

    __slots__ = (
        "_boundary",
        "_bytes_in",
        "_bytes_out",
        "_commits",
        "_ending",
        "_fields",
        "_forwarded",
        "_heartbeats",
        "_informational",
        "_not_passed",
        "_over",
        "_packed",
        "_review",
        "_session",
        "_span",
        "_stream",
        "_trailers",
        "_watch",
        "access",
        "audit",
        "checking",
        "exchange",
        "held",
        "module",
        "started_at",
        "target",
        "wants",
    )

    def __init__(
        self,
        module: KubernetesApiServer,
        exchange: Exchange,
        target: bytes,
        fields: bytes,
    ) -> None:
        self.module = module
        self.exchange = exchange
        self.target = target
        #: Fields that every response to the request contains.
        self._fields = fields
        #: Names of response fields that a browser does not get; None for others.
        self._not_passed: re.Pattern[bytes] | None = None
        #: The credential, if the client requests a token for it instead of a response
        #: from the cluster; None for other requests.
        self.wants: SealedCredential | None = None
        self.access: Access | None = None
        #: The events of the audit log about the request.
        self.audit = module.audits.of(exchange, target)
        #: Check of the credential that is in progress.
        self.checking: Deferred[Access] | None = None
        #: Whether the request waits for its turn, so that kas does not read its body.
        self.held = False
        # Whether the request waits until its event is on disk.
        self._commits = False
        self._stream: IStream | None = None
        self.started_at = module.clock.seconds()
        self._informational = 0
        self._trailers = b""
        self._over = False
        self._bytes_in = self._bytes_out = 0
        #: Reader of the program's exit code; None for other requests.
        self._session: SessionReader | None = None
        # Whether the request was sent to the agent, which may have received it.
        self._forwarded = False
        # Whether the head was compressed to fit into a frame.
        self._packed = False
        # Filter of an upgraded connection, until the server has finished.
        self._heartbeats: Heartbeats | None = None
        # Parser of the events in a watch, and whether to end the watch after the
        # current event.
        self._watch = False
        self._boundary: Boundary | None = None
        self._ending = False
        self._span: ISpan | None = None
        # The body of a review that kas may answer itself.
        self._review: bytearray | None = None

    @property
    def over(self) -> bool:
        """Whether the request has ended."""
        return self._over

    def isolate(self, not_passed: re.Pattern[bytes]) -> None:
        """
        Add header fields that isolate the response in a browser, because for a browser
        the clusters of all agents are one origin.

        :param not_passed: see `modules.kubernetes_api.browsers.not_passed`.
        """
        self._not_passed = not_passed
        self._fields += ISOLATED

    def trace(self, tracer: ITracer, access: Access, fields: bytes) -> bytes:
        """
        Begin a span if this request is traced, and return *fields* with the
        ``traceparent`` of the span.
        """
        method = self.exchange.head.method
        span = begin_span(tracer, SpanKind.SERVER, method, self.target, fields)
        if span is None:
            return fields
        self._span = span
        span.set("txkas.agent.id", access.agent_id)
        return with_traceparent(fields, span.traceparent)

    def hold(self) -> None:
        """Stop reading until `begin` is called."""
        if not self.exchange.complete:
            self.held = True
            self.exchange.pauseProducing()

    def begin(self) -> None:
        """See `Sharing`."""
        assert self.access is not None
        self.module.begin(self, self.access)
        self._read_on()

    def _read_on(self) -> None:
        if self.held and not self._commits:
            self.held = False
            self.exchange.resumeProducing()

    def wait_for(self, committed: Deferred[None], fields: bytes) -> None:
        """Forward the request, with *fields*, as soon as its event is on disk."""
        self._commits = True
        self.hold()
        committed.addCallbacks(
            self._committed, self._not_committed, callbackArgs=(fields,)
        )
        committed.addErrback(self.module.log_bug, self)
        committed.addBoth(lambda _: self._read_on())

    def _committed(self, _: object, fields: bytes) -> None:
        self._commits = False
        if not self._over:
            assert self.access is not None
            self.module.forward(self, self.access, fields)

    def _not_committed(self, failure: Failure) -> None:
        self._commits = False
        failure.trap(CallError)
        # Without Retry-After: with it, kubectl would retry ten times, and print nothing
        # for minutes.
        self.fail(503, f"kas: {failure.value}")

    def begin_failed(self) -> None:
        """See `Sharing`."""
        self.fail(500, INTERNAL_ERROR)

    def open(self, fields: bytes) -> None:
        """Forward the request, with *fields* in place of the client's header fields."""
        exchange = self.exchange
        head = exchange.head
        block = encode_request(
            head.method,
            self.target,
            fields,
            length=head.length,
            upgrade=head.upgrade,
            expect_continue=head.expect_continue,
        )
        assert self.access is not None
        method, size = METHOD, len(block)
        # Nearly every block fits, and a call would cost more than the comparison.
        self._packed = size > MAX_BLOCK
        if self._packed:
            found = fitted(block)
            if found is None:
                self._too_large(size)
                return
            method, block = found
        fin = head.length == 0 and not head.upgrade
        goes_on = lasts(head.method, self.target)
        self._forwarded = True
        self._watch = goes_on is Lasts.WATCH
        try:
            stream = self.module.api.calls.open_stream(
                self.access.agent_id,
                method,
                self,
                block,
                _OPTIONS[
                    fin,
                    fin and head.method in (b"GET", b"HEAD"),
                    bool(head.upgrade) or goes_on is not Lasts.NO,
                ],
            )
        except TunnelError as error:
            self._forwarded = False
            self.fail(*_explain(error))
            return
        # The stream may be closed before this method returns.
        if not self._over:
            self._stream = stream
            if self._review is not None:
                stream.write(bytes(self._review))
                stream.finish()
            elif head.length:
                stream.registerProducer(exchange, True)

    def _too_large(self, size: int) -> None:
        """Refuse a head of *size* bytes, with a message that names its largest part."""
        access = self.access
        sent = len(self.exchange.head.fields)
        if access is not None and access.impersonation is not None and sent < size // 2:
            groups = len(access.impersonation.groups)
            message = (
                f"kas -> agent: {access.who} has too many groups: with {groups} of "
                f"them the head of the request takes {size} bytes, and at most "
                f"{MAX_HEAD} can be sent"
            )
            self.fail(431, message)
        else:
            self.fail(431, "client -> kas: the head of the request is too large")

    def collect(self) -> None:
        """Read the whole review before it is forwarded."""
        self._review = bytearray()
        if self.exchange.head.length == 0:
            self.fail(400, "client -> kas: the review has no body")

    def _answer_review(self, body: bytes) -> None:
        """Deny the requested permission, or let the cluster decide."""
        access = self.access
        assert access is not None
        try:
            answer = refusal(access, self.target, body)
        except ReviewError as error:
            self.fail(error.status, f"client -> kas: {error}")
            return
        if answer is None:
            self.module.take_turn(self, access)
            return
        self.module.metrics.answered(201)
        self._record_answer(201)
        self._end()
        lines = b"\r\nContent-Type: application/json"
        self.exchange.respond(201, lines + self._fields, answer)

    def give_token(self, credential: SealedCredential) -> None:
        """Respond with a token for a WebSocket at the same path."""
        path = self.target.partition(b"?")[0]
        token = self.module.tokens.seal(credential, path)
        lines = b"\r\nContent-Type: application/json\r\nCache-Control: no-store"
        self.module.metrics.answered(200)
        self._record_answer(200)
        self._end()
        body = json.dumps({"token": token}).encode()
        self.exchange.respond(200, lines + self._fields, body)

    def fail(self, status: int, message: str, fields: bytes = b"") -> None:
        """Respond with an error, or abort if a response has begun."""
        if self._over:
            return
        if self.exchange.head_sent:
            self._end(broken=True, reason=message)
            self.exchange.abort()
        else:
            hop = message.partition(":")[0]
            self.module.metrics.failed(hop)
            self.module.metrics.answered(status)
            self._record_answer(status, self._forwarded)
            if self.exchange.head.upgrade:
                self.module.metrics.upgrades["failed"] += 1
            if self._span is not None:
                self._span.set(STATUS_CODE, status)
                self._span.end(message if status >= 500 else "")
            self._end(reason=message)
            fields += self._fields
            self.module.refuse(self.exchange, status, message, fields, self.access)

    def _record_answer(
        self, status: int, unanswered: bool = False, by_owner: bool = False
    ) -> None:
        if self.audit is not None:
            self.audit.answer(self.access, status, unanswered, by_owner)

    def _end(
        self,
        broken: bool = False,
        outcome: int | str = NO_ANSWER,
        reason: str = "",
    ) -> None:
        """
        Count the request as ended, and drop its stream if it is still open.

        :param outcome: why there is no response, if there is none.
        :param reason: why the request ended, if *outcome* does not say it.
        """
        if self._over:
            return
        self._over = True
        if self.access is not None and self.audit is not None:
            self.audit.end(
                self.access,
                outcome,
                reason or str(outcome),
                self._forwarded,
                (self._bytes_in, self._bytes_out),
                None if self._session is None else self._session.exit_code,
            )
        if self._heartbeats is not None:
            self._heartbeats.stop()
        if self._span is not None:
            self._span.end("the response ended early" if broken else "")
        module = self.module
        module.watches.discard(self)
        if broken:
            module.metrics.broken += 1
        if self.access is not None:
            module.metrics.in_flight -= 1
            module.shares.leave(self, self.access)
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.reset(ErrorCode.CANCELLED, "the client stopped reading")

    # Callbacks of the client's exchange.

    def body_received(self, data: bytes) -> None:
        """See `tunnel.http1.RequestReceiver`."""
        if self._review is not None and not self._over:
            self._review += data
            if len(self._review) > MAX_REVIEW:
                self.fail(413, "client -> kas: the review is too large")
        elif self._stream is not None:
            self.module.metrics.bytes_received += len(data)
            self._bytes_in += len(data)
            if self._session is not None:
                self._session.from_client(data)
            if self._heartbeats is not None:
                self._heartbeats.from_client(data)
            else:
                self._stream.write(data)

    def body_finished(self, trailers: bytes) -> None:
        """See `tunnel.http1.RequestReceiver`."""
        stream = self._stream
        if self._review is not None:
            if not self._over:
                self._answer_review(bytes(self._review))
        elif stream is not None:
            if self._heartbeats is not None:
                self._heartbeats.client_finished()
            stream.unregisterProducer()
            if trailers:
                stream.send_headers(trailers[2:] + b"\r\n")
            stream.finish()

    def client_gone(self, reason: Exception) -> None:
        """See `tunnel.http1.RequestReceiver`."""
        self._end(broken=True, outcome=self.module.left(reason))
        if self.checking is not None:
            self.checking.cancel()

    # Callbacks of the agent's stream.

    def headers_received(self, block: bytes) -> None:
        """See `tunnel.api.IStreamReceiver`."""
        if self._over:
            return
        exchange = self.exchange
        if exchange.head_sent:
            self._trailers_received(block)
            return
        try:
            head = self.module.responses.parse(block, exchange.head.method)
        except HeadError as error:
            self.fail(502, f"{_BROKEN_HOP}: {error}")
            return
        status = head.status
        fields = passed_by(head, self.module.pseudonym) + self._fields
        if self._not_passed is not None:
            head.fields = self._not_passed.sub(b"", head.fields)
        if status == 101:
            self._switch(head.upgrade, head.block(fields))
            return
        if status < 200:
            self._informational += 1
            if self._informational > _MAX_INFORMATIONAL:
                self.fail(502, f"{_BROKEN_HOP}: too many informational responses")
            else:
                exchange.informational(head.block())
            return
        hop = head.taken.get(FAILED_HOP)
        by_owner = hop == [BY_OWNER]
        self._head_passed(status, hop == [b"api-server"], by_owner)
        if exchange.head.upgrade:
            self.module.metrics.upgrades["refused"] += 1
        if hop is not None and not by_owner:
            self.module.metrics.failed(
                "agent -> API server" if hop == [b"api-server"] else "agent"
            )
        exchange.send_head(
            b"%b%b%b\r\n" % (head.start, head.fields, fields),
            head.length,
            # The API server closes its connection after this response, for example
            # after a 413.
            close=not head.keep_alive,
        )
        if not 0 <= head.length <= SMALL:
            exchange.registerProducer(self._stream, True)
        if status == 200 and self._watch:
            self._boundary = Boundary(head.fields)
            self.module.watches.add(self)
            if self._ending:
                self.end_watch()

    def _switch(self, upgrade: bytes, block: bytes) -> None:
        exchange = self.exchange
        wanted = exchange.head.upgrade
        if not wanted or upgrade.lower() != wanted.lower():
            self.fail(502, f"{_BROKEN_HOP}: an upgrade that the client did not request")
            return
        self._head_passed(101)
        self.module.metrics.upgrades["switched"] += 1
        stream = self._stream
        assert stream is not None
        # Create the filter before the first byte is forwarded, because the client may
        # send bytes at once.
        self._heartbeats = Heartbeats(
            wanted, self.module.clock, stream.write, exchange.write, exchange
        )
        stream.registerProducer(exchange, True)
        exchange.registerProducer(stream, True)
        if self.audit is not None and self.audit.is_session:
            self._session = SessionReader(wanted)
        exchange.upgrade(block)

    def _head_passed(
        self, status: int, unanswered: bool = False, by_owner: bool = False
    ) -> None:
        module = self.module
        module.metrics.head_passed(status, module.clock.seconds() - self.started_at)
        if self._span is not None:
            self._span.set(STATUS_CODE, status)
        self._record_answer(status, unanswered, by_owner)

    def _trailers_received(self, block: bytes) -> None:
        if self._trailers or self.exchange.upgraded:
            self.fail(502, f"{_BROKEN_HOP}: an unexpected header block")
            return
        try:
            self._trailers = clean_trailers(block)
        except HeadError as error:
            self.fail(502, f"{_BROKEN_HOP}: {error}")

    def data_received(self, data: bytes) -> None:
        """See `tunnel.api.IStreamReceiver`."""
        if self._over:
            return
        if not self.exchange.head_sent:
            self.fail(502, f"{_BROKEN_HOP}: a body without a head")
            return
        self.module.metrics.bytes_sent += len(data)
        self._bytes_out += len(data)
        if self._session is not None:
            self._session.from_server(data)
        if self._heartbeats is not None:
            self._heartbeats.from_server(data)
        else:
            self.exchange.write(data)
        if self._boundary is not None:
            self._boundary.feed(data)
            if self._ending:
                self.end_watch()
                return
        if self.exchange.finished:
            # The body was longer than the head announced: the client was disconnected.
            self._end(broken=True, reason="the response was longer than announced")

    def fin_received(self) -> None:
        """See `tunnel.api.IStreamReceiver`."""
        if self._over:
            return
        exchange = self.exchange
        if not exchange.head_sent:
            self.fail(
                502, f"{_BROKEN_HOP}: the agent ended the request without a response"
            )
        elif exchange.upgraded:
            if self._heartbeats is not None:
                self._heartbeats.client_finished()
                self._heartbeats = None
            exchange.finish()
        else:
            if exchange.complete and not exchange.head.upgrade:
                # Both halves of the stream are finished, so it closes by itself.
                self._stream = None
            self._end(reason=FINISHED)
            exchange.finish(self._trailers)

    def stream_closed(self, reason: Exception | None) -> None:
        """See `tunnel.api.IStreamReceiver`."""
        self._stream = None
        if self._over:
            return
        if reason is None:
            self._end(reason=FINISHED)
            self.exchange.finish()
        elif (
            self._packed
            and isinstance(reason, StreamReset)
            and reason.code == ErrorCode.UNKNOWN_METHOD
        ):
            access = self.access
            who = access and access.impersonation
            self._forwarded = False
            self.fail(
                502,
                f"{_BROKEN_HOP}: agentk is too old for the large head of "
                f"{access and access.who} with {len(who.groups) if who else 0} groups; "
                "update agentk",
            )
        else:
            self._forwarded = _may_have_run(reason)
            self.fail(*_explain(reason))

    def end_watch(self) -> None:
        """End the response between two events, as an API server does after a while."""
        self._ending = True
        if self._boundary is not None and self._boundary.between and not self._over:
            self._end(reason=INTERRUPTED)
            self.exchange.finish()

    def path_in_doubt(self) -> None:
        """Do nothing: kas uses another path if possible."""

    def path_missing(self) -> None:
        """
        End a watch whose agentk is probably dead; see `IPathReceiver`.

        The client restarts the watch from its position at another agentk and loses
        nothing; waiting would only make its data old.
        """
        if self._boundary is not None:
            self.end_watch()
            if not self._over:
                self.fail(502, f"{_BROKEN_HOP}: the agent's connection was closed")

    def revoke(self) -> None:
        """End the request, because its credential is no longer valid."""
        self.fail(
            401,
            "client -> kas: the credential was revoked",
            b"\r\nWWW-Authenticate: Bearer\r\nGitlab-Unauthorized: true",
        )


classImplements(ProxiedRequest, IPathReceiver)


def _refuse_watch(failure: Failure) -> None:
    """Refuse a watch whose beginning cannot be recorded."""
    failure.trap(CallError)
    raise Refused(503, f"kas: {failure.value}")


def _may_have_run(reason: Exception) -> bool:
    """
    Return whether the agent may have received a request whose stream ended for
    *reason*.
    """
    if isinstance(reason, StreamReset):
        return reason.code not in (ErrorCode.REFUSED, ErrorCode.UNKNOWN_METHOD)
    return not isinstance(reason, AgentUnavailable | Refused | TooMany)


def _explain(reason: Any) -> tuple[int, str, bytes]:
    """
    Return the status, message and fields for a stream that ended before its response.
    """
    if isinstance(reason, AgentUnavailable):
        # A client that has waited in kas gets the response without Retry-After: with
        # it, kubectl would retry ten times, and print nothing for minutes.
        again = b"" if reason.waited else b"\r\nRetry-After: 5"
        return 503, f"{_BROKEN_HOP}: {reason}", again
    if isinstance(reason, StreamReset):
        if reason.code == ErrorCode.UNKNOWN_METHOD:
            return (
                502,
                f"{_BROKEN_HOP}: the agent does not serve the Kubernetes API; "
                "enable its module kubernetes_api",
                b"",
            )
        if reason.code in (ErrorCode.REFUSED, ErrorCode.SHUTDOWN):
            return (
                503,
                (
                    f"{_BROKEN_HOP}: the agent does not accept more requests now "
                    f"({reason})"
                ),
                b"\r\nRetry-After: 1",
            )
        if reason.code in (ErrorCode.PATH_LOST, ErrorCode.NOT_RESUMABLE):
            return 502, f"{_BROKEN_HOP}: the path to the agent broke ({reason})", b""
        if reason.code == ErrorCode.DEADLINE:
            return 504, f"{_BROKEN_HOP}: the agent did not respond in time", b""
        return 502, f"{_BROKEN_HOP}: the agent aborted the request ({reason})", b""
    if isinstance(reason, SessionClosed):
        return (
            502,
            f"{_BROKEN_HOP}: the agent's connection was lost ({reason}); try again",
            b"",
        )
    return 502, f"{_BROKEN_HOP}: {reason}", b""


def _together(
    api: IServerModuleApi, settings: Any
) -> tuple[ISharedCount, ISharedCount] | None:
    """
    Return the counters of requests by caller and by agent that all workers of this kas
    share; None if kas runs without workers.
    """
    callers = api.workers.count_together(
        "callers", settings.max_requests_per_credential
    )
    agents = api.workers.count_together("agents", settings.max_requests_per_agent)
    return None if callers is None or agents is None else (callers, agents)
