"""The half in kas: accepts clients, asks who they are, and sends requests on."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer, provider

from modules.kubernetes_api.config import KubernetesApiConfiguration
from modules.kubernetes_api.fields import (
    FAILED_HOP,
    Impersonations,
    Refused,
    status_answer,
)
from modules.kubernetes_api.frontdoor import enter, request_parser
from modules.kubernetes_api.metrics import ProxyMetrics
from modules.kubernetes_api.proxied import ProxiedRequest
from tunnel import __version__
from tunnel.errors import CallError, Status
from tunnel.http1 import (
    Exchange,
    HttpServerFactory,
    RequestHead,
    RequestReceiver,
    ResponseParser,
)
from tunnel.interfaces import (
    Access,
    AuditEvent,
    AuditLevel,
    IServerModule,
    IServerModuleApi,
    IServerModuleFactory,
)
from tunnel.kubernetes import only_reads, request_info

__all__ = ["KubernetesApiServer"]

# A request that passed so many proxies goes in a circle that we do not recognise.
_MAX_HOPS = 16

_STATUSES = {
    Status.UNAUTHENTICATED: 401,
    Status.PERMISSION_DENIED: 403,
    Status.NOT_FOUND: 404,
    Status.RESOURCE_EXHAUSTED: 429,
    Status.UNAVAILABLE: 503,
    Status.DEADLINE_EXCEEDED: 504,
}

_FIELDS = {
    401: b"\r\nWWW-Authenticate: Bearer\r\nGitlab-Unauthorized: true",
    429: b"\r\nRetry-After: 1",
    503: b"\r\nRetry-After: 5",
}

# All clusters share kas' origin: what one of them says to a browser about its own must
# not reach those of the others.
_NOT_FOR_CLIENTS = (
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


@implementer(IServerModule)
@provider(IServerModuleFactory)
class KubernetesApiServer:
    """
    Serves the Kubernetes API of every connected agent's cluster.

    :param token: makes the part of our name in ``Via`` by which we know ourselves.
    """

    _log = Logger()

    name = "kubernetes_api"
    configuration = KubernetesApiConfiguration

    def __init__(
        self,
        api: IServerModuleApi,
        token: Callable[[], str] = lambda: secrets.token_hex(4),
    ) -> None:
        self.api = api
        self.clock = api.clock
        self.metrics = ProxyMetrics("kas_kubernetes_api")
        self.responses = ResponseParser(taken=_NOT_FOR_CLIENTS)
        settings: KubernetesApiConfiguration = api.configuration
        self._settings = settings
        self._prefix = settings.url_path_prefix.rstrip("/").encode() + b"/"
        #: What ``Via`` says of us: the version, and which kas of several.
        self.pseudonym = f"gitlab-kas/{__version__}/{token()}".encode()
        self._impersonations = Impersonations()
        self.audits = api.audit_level is not AuditLevel.NONE
        #: Answers that are events.
        self.watches: set[ProxiedRequest] = set()
        self._by_credential: dict[str, set[ProxiedRequest]] = {}
        self._by_agent: dict[str, int] = {}
        self._unsubscribe: list[Callable[[], None]] = []
        self.front = HttpServerFactory(
            self,
            api.clock,
            parser=request_parser(settings.max_header_count),
            limits=settings.front_limits(),
            write=api.write,
            render_error=_render,
        )

    async def start(self) -> None:
        """Listen, and count."""
        self.api.metrics.register(self.metrics)
        self._unsubscribe = [
            self.api.subscribe("credential.revoked", self._revoked),
            self.api.subscribe("kas.draining", self._draining),
        ]
        listen: Any = self._settings.listen
        path = self._settings.url_path_prefix.rstrip("/")
        await self.api.listen(listen, self.front, path)

    async def stop(self) -> None:
        """Drop what is under way; ``kas.draining`` came first to let it finish."""
        if self._unsubscribe:
            for unsubscribe in self._unsubscribe:
                unsubscribe()
            self._unsubscribe = []
            self.api.metrics.unregister(self.metrics)
        self.front.drain()
        self.front.abort_all()
        for requests in list(self._by_credential.values()):
            for request in list(requests):
                request.client_gone(CallError(Status.UNAVAILABLE, "kas stops"))

    def _draining(self, _: object) -> None:
        # What runs may finish; its connection takes no further request.
        self.front.drain()
        for watch in tuple(self.watches):
            watch.end_watch()

    # Requests.

    def request_received(self, exchange: Exchange) -> RequestReceiver | None:
        """See `tunnel.http1.RequestHandler`."""
        try:
            entry = enter(exchange.head, self._prefix)
        except Refused as refused:
            self._refused(exchange, refused)
            return None
        request = ProxiedRequest(self, exchange, entry.target)
        try:
            answer = self.api.authorize(entry.kind, entry.agent, entry.token)
        except CallError:
            answer = fail()
        # Nearly always known already; a callback would cost more than the look-up.
        if isinstance(answer, Deferred):
            exchange.pauseProducing()
            request.checking = answer
            answer.addCallbacks(
                self._authorized,
                self._not_authorized,
                callbackArgs=(request,),
                errbackArgs=(request,),
            )
            answer.addErrback(self._log_bug, request)
        else:
            self._admit(request, answer)
        return request

    def _authorized(self, access: Access, request: ProxiedRequest) -> None:
        request.checking = None
        if not request.over:
            self._admit(request, access)
            request.exchange.resumeProducing()

    def _not_authorized(self, failure: Failure, request: ProxiedRequest) -> None:
        request.checking = None
        error = failure.value
        if request.over:
            return  # the client left
        if isinstance(error, CallError):
            status = _STATUSES.get(error.status, 500)
            message = f"client -> kas: {error.message or error.status.name.lower()}"
        else:
            self._log.failure("cannot check a credential", failure)
            status, message = (
                500,
                "kas: cannot check the credential; see the log of kas",
            )
        request.fail(status, message, _FIELDS.get(status, b""))

    def _log_bug(self, failure: Failure, request: ProxiedRequest) -> None:
        self._log.failure("cannot begin a request", failure)
        request.fail(500, "kas: an internal error; see the log of kas")

    def _admit(self, request: ProxiedRequest, access: Access) -> None:
        settings = self._settings
        mine = self._by_credential.get(access.credential_id)
        if mine is None:
            mine = self._by_credential[access.credential_id] = set()
        there = self._by_agent.get(access.agent_id, 0)
        request.access = access
        mine.add(request)
        self._by_agent[access.agent_id] = there + 1
        self.metrics.in_flight += 1
        if len(mine) > settings.max_requests_per_credential:
            self._too_many(request, f"of {access.who}")
        elif there >= settings.max_requests_per_agent:
            self._too_many(request, f"at agent {access.agent_name}")
        else:
            head = request.exchange.head
            if access.read_only and not only_reads(
                head.method, request.target, bool(head.upgrade)
            ):
                message = (
                    f"client -> kas: {access.who} is read-only: get, list and watch "
                    "are allowed, and what changes something or runs a command is not"
                )
                request.fail(403, message)
                return
            try:
                fields = self._fields(head, access)
            except Refused as refused:
                request.fail(refused.status, str(refused), refused.fields)
            else:
                try:
                    request.open(fields)
                except Exception:
                    # A request that is not ended here would count against its
                    # credential and its agent forever.
                    self._log.failure("cannot open a stream for a request")
                    request.fail(500, "kas: an internal error; see the log of kas")

    def _too_many(self, request: ProxiedRequest, which: str) -> None:
        message = f"client -> kas: too many requests {which} are under way"
        request.fail(429, message, _FIELDS[429])

    def _fields(self, head: RequestHead, access: Access) -> bytes:
        """What travels on; hop-by-hop lines are gone before identity is added."""
        hops = head.taken.get(b"via", [])
        if hops:
            joined = b", ".join(hops)
            if self.pseudonym in joined or joined.count(b",") >= _MAX_HOPS:
                raise Refused(
                    508,
                    "kas -> agent: the request came back to kas; the agent's "
                    "kubeconfig must name the API server itself",
                )
        via = b"\r\nVia: " + b", ".join([*hops, b"1.1 " + self.pseudonym])
        return head.fields + via + self._impersonations.fields(access, head)

    def refuse(
        self, exchange: Exchange, status: int, message: str, fields: bytes = b""
    ) -> None:
        """Answer with a Kubernetes Status."""
        more, body = status_answer(status, message, exchange.head.target)
        exchange.respond(status, more + fields, body)

    def _refused(self, exchange: Exchange, refused: Refused) -> None:
        self.metrics.answered(refused.status)
        self.metrics.failed("client -> kas")
        self.audit_answer(exchange.head, exchange.head.target, None, refused.status)
        self.refuse(exchange, refused.status, str(refused), refused.fields)

    def audit_answer(
        self, head: RequestHead, target: bytes, access: Access | None, status: int
    ) -> None:
        """For `ProxiedRequest`: the audit log learns of an answer, once."""
        if not self.audits:
            return
        if (
            self.api.audit_level is AuditLevel.CHANGES
            and status not in (401, 403)
            and only_reads(head.method, target, bool(head.upgrade))
        ):
            return
        info = request_info(head.method, target)
        details = {
            "verb": info.verb,
            "path": info.path,
            "group": info.group,
            "version": info.version,
            "resource": info.resource,
            "subresource": info.subresource,
            "namespace": info.namespace,
            "name": info.name,
        }
        said = {name: value for name, value in details.items() if value}
        self.api.audit(AuditEvent("kubernetes.request", access, str(status), said))

    def ended(self, request: ProxiedRequest, broken: bool) -> None:
        """For `ProxiedRequest`: it is over; called once."""
        access = request.access
        if broken:
            self.metrics.broken += 1
        if access is None:
            return
        self.metrics.in_flight -= 1
        mine = self._by_credential[access.credential_id]
        mine.discard(request)
        if not mine:
            del self._by_credential[access.credential_id]
        there = self._by_agent[access.agent_id] - 1
        if there:
            self._by_agent[access.agent_id] = there
        else:
            del self._by_agent[access.agent_id]

    def _revoked(self, credential_id: str) -> None:
        for request in list(self._by_credential.get(credential_id, ())):
            request.revoke()


def _render(status: int, message: str) -> tuple[bytes, bytes]:
    return status_answer(status, f"client -> kas: {message}", b"")
