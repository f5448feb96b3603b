"""Listener that the pages and webhooks of all modules share."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import attrs
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from twisted.internet.interfaces import IAddress, IProtocolFactory, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource, getChildForRequest
from twisted.web.server import NOT_DONE_YET

from kas.config.schema import Web
from kas.state.running import WEB
from kas.web.draining import DrainingFactory, DrainingListener
from kas.web.requests import (
    BoundedRequest,
    BoundedSite,
    Bounds,
    RequestLimits,
    UpgradedConnection,
)
from tunnel.grpc.memory import RequestMemory
from tunnel.hosting.pages import Mount, Pages
from tunnel.program.listening import Listening
from tunnel.program.runtime import Runtime
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.forwarded import ForwardingProxies

__all__ = ["WebCollector", "WebFactory", "WebListener"]

#: Maximum bytes of all bodies in memory: each connection may hold a body of megabytes.
MAX_BODIES = 256 * 1024 * 1024


@attrs.define(eq=False)
class WebCounters:
    """
    Counters for metrics; the values of labels are limited to names of modules and
    classes of statuses.
    """

    #: Number of responses by module and class of the status; the module is empty if the
    #: request was not for a page.
    answers: Counter[tuple[str, str]] = attrs.Factory(Counter)
    #: Number of clients that disconnected before they had read their response.
    broken: int = 0


class WebRequest(BoundedRequest):
    _log = Logger()
    prepath: list[bytes]
    postpath: list[bytes]
    _mount: Mount | None = None
    _counted = False

    def __init__(
        self,
        pages: Pages,
        counters: WebCounters,
        proxies: ForwardingProxies,
        bounds: Bounds,
        *rest: Any,
    ) -> None:
        super().__init__(bounds, *rest)
        self._pages = pages
        self._counters = counters
        self._proxies = proxies

    def getClientAddress(self) -> IAddress:
        """
        Return the address of the client, from ``X-Forwarded-For`` behind a trusted
        proxy.
        """
        values = self.requestHeaders.getRawHeaders(b"x-forwarded-for", ())
        named = b",".join(values).decode("latin-1")
        return self._proxies.client(self._connection.getPeer(), named)

    @property
    def own_origin(self) -> str:
        """
        Origin of kas, as the client reaches it: behind a trusted proxy, from
        ``X-Forwarded-Proto`` and ``X-Forwarded-Host``.
        """
        scheme = "https" if self._connection.isSecure() else "http"
        host = self._last(b"host")
        if self._proxies.trusts(self._connection.getPeer()):
            scheme = self._last(b"x-forwarded-proto") or scheme
            host = self._last(b"x-forwarded-host") or host
        return f"{scheme}://{host}".lower()

    def _last(self, name: bytes) -> str:
        """Return the last value of a header field; empty without the field."""
        values = self.requestHeaders.getRawHeaders(name, ())
        return b",".join(values).decode("latin-1").rsplit(",", 1)[-1].strip()

    def upgrade(self, head: bytes, connection: UpgradedConnection) -> None:
        self.refused(101)
        super().upgrade(head, connection)

    def answer(self) -> None:
        """Let the resource for the path respond; see `PageSite.getResourceFor`."""
        super(BoundedRequest, self).process()

    def find(self) -> Any:
        path: list[bytes] = self.postpath
        self._mount = mount = self._pages.find(path)
        if mount is None:
            return _NO_PAGE
        count = len(mount.names)
        self.prepath, self.postpath = path[:count], path[count:]
        return getChildForRequest(mount.resource, self)

    def render(self, resource: Any) -> None:
        # Remove it, because clients need not know the server's name and version.
        self.responseHeaders.removeHeader(b"server")
        super().render(resource)

    def processingFailed(self, reason: Failure) -> Failure:
        """Log the failure of a resource, because the client must not see the reason."""
        self._log.failure(
            "the page {prefix} of module {module} failed",
            reason,
            module=self._mount.owner if self._mount else "",
            prefix=self._mount.prefix if self._mount else "",
        )
        if self.channel is None or self.finished:
            return reason
        if self.startedWriting:
            # Abort the response, because an incomplete response must not look like a
            # complete one.
            self.refused(500)
            self.channel.forceAbortClient()
            return reason
        for name, _ in tuple(self.responseHeaders.getAllRawHeaders()):
            self.responseHeaders.removeHeader(name)
        self.cookies.clear()
        _say(self, 500, "an internal error")
        return reason

    def finish(self) -> None:
        self._count()
        super().finish()

    def refused(self, status: int) -> None:
        """Respond with only a status, without a text."""
        self.code = status
        self._count()

    def gone(self) -> None:
        """Record that a request has ended without a response."""
        if not self._counted and not self._connection.closing:
            self._counters.broken += 1

    def _count(self) -> None:
        self._counted = True
        module = self._mount.owner if self._mount else ""
        self._counters.answers[module, f"{self.code // 100}xx"] += 1
        # Leave out path and query of the request, which may contain secrets.
        self._log.debug(
            "{method} below {prefix} of module {module}: {status}",
            method=self.method.decode("ascii", "replace"),
            prefix=self._mount.prefix if self._mount else "no prefix",
            module=module,
            status=self.code,
        )


def _say(request: Any, status: int, text: str) -> None:
    """Respond with one line, or with JSON if the client requests that."""
    accepted = request.requestHeaders.getRawHeaders(b"accept", [b""])
    if b"application/json" in b",".join(accepted).lower():
        kind, body = b"application/json", json.dumps({"message": text}).encode()
    else:
        kind, body = b"text/plain; charset=utf-8", text.encode()
    body += b"\n"
    request.setResponseCode(status)
    request.setHeader(b"content-type", kind)
    request.setHeader(b"content-length", b"%d" % len(body))
    request.write(b"" if request.method == b"HEAD" else body)
    request.finish()


class _NoPage(Resource):
    """Resource that responds to paths without a registered prefix."""

    isLeaf = True

    def render(self, request: Any) -> int:
        _say(request, 404, "this page does not exist")
        return NOT_DONE_YET


_NO_PAGE = _NoPage()  # type: ignore[no-untyped-call]


class PageSite(BoundedSite):
    """Site that finds the resource for a path by the prefixes of modules."""

    def __init__(
        self, request: Callable[..., BoundedRequest], bounds: Bounds, pages: Pages
    ) -> None:
        super().__init__(request, bounds)
        self._pages = pages

    def protocol_for(self, line: bytes) -> IProtocolFactory | None:
        path = line.split(b" ", 2)[1:2]
        return self._pages.protocol_for(path[0]) if path else None

    def getResourceFor(self, request: WebRequest) -> Any:
        request.site = self
        request.sitepath = []
        return request.find()


class WebFactory(DrainingFactory):
    """Factory that accepts connections for the pages of modules."""

    def __init__(self, settings: Web, pages: Pages, clock: IReactorTime) -> None:
        super().__init__(WEB, settings.max_connections)
        self.counters = WebCounters()
        self.pages = pages
        limits = RequestLimits(
            settings.request_timeout, settings.idle_timeout, settings.max_body_bytes
        )
        memory = RequestMemory(total=max(MAX_BODIES, settings.max_body_bytes))

        proxies = ForwardingProxies(settings.trusted_proxies)

        def request(*arguments: Any) -> WebRequest:
            return WebRequest(pages, self.counters, proxies, *arguments)

        self.site = PageSite(request, Bounds(limits, clock, memory, self), pages)

    def connect(self, address: IAddress) -> Any:
        return self.site.buildProtocol(address)

    @property
    def unfinished(self) -> int:
        return self.calls + sum(1 for one in self.open if _upgraded(one))

    def idle(self, connection: Any) -> bool:
        return super().idle(connection) and not _upgraded(connection)

    def drain(self, grace: float) -> None:
        super().drain(grace)
        upgraded = [one for one in map(_upgraded, self.open) if one is not None]
        for_each(upgraded, lambda one: one.drain(grace), "draining a WebSocket")


def _upgraded(connection: Any) -> UpgradedConnection | None:
    upgraded: UpgradedConnection | None = connection.upgraded
    return upgraded


class WebCollector(Collector):
    """Collector of the listener's metrics, which are read at each scrape."""

    def __init__(self, factory: WebFactory) -> None:
        self._factory = factory

    def collect(self) -> Iterator[Metric]:
        factory = self._factory
        yield GaugeMetricFamily(
            "kas_web_connections", "Connections for pages.", factory.connections
        )
        yield GaugeMetricFamily(
            "kas_web_requests_in_flight",
            "Requests for pages in progress.",
            factory.calls,
        )
        requests = CounterMetricFamily(
            "kas_web_requests",
            "Responses to requests for pages, by module and class of their status.",
            labels=["module", "code"],
        )
        for (module, code), count in sorted(factory.counters.answers.items()):
            requests.add_metric([module, code], count)
        yield requests
        yield CounterMetricFamily(
            "kas_web_requests_broken",
            "Requests for pages whose client left, or did not read the response.",
            factory.counters.broken,
        )
        yield from self._sockets()

    def _sockets(self) -> Iterator[Metric]:
        counters = self._factory.pages.sockets
        sockets = GaugeMetricFamily(
            "kas_web_sockets", "Open WebSockets, by module.", labels=["module"]
        )
        for module, number in sorted(counters.open.items()):
            sockets.add_metric([module], number)
        yield sockets
        for name, text, labels, counter in (
            (
                "kas_web_socket_messages",
                "Messages of WebSockets, by module and direction.",
                ["module", "direction"],
                counters.messages,
            ),
            (
                "kas_web_socket_bytes",
                "Content of these messages in bytes.",
                ["module", "direction"],
                counters.content,
            ),
            (
                "kas_web_sockets_closed",
                "Ended WebSockets, by module and close code (1006: lost).",
                ["module", "code"],
                counters.closed,
            ),
        ):
            family = CounterMetricFamily(name, text, labels=labels)
            for key, number in sorted(counter.items()):
                family.add_metric(list(key), number)
            yield family


class WebListener(DrainingListener):
    """Listener for pages, from ``web`` in the configuration."""

    def __init__(
        self, settings: Web, pages: Pages, listening: Listening, runtime: Runtime
    ) -> None:
        factory = WebFactory(settings, pages, runtime.reactor)
        super().__init__(
            settings.listen,
            factory,
            listening,
            runtime.reactor,
            what=WEB,
            setting="web.listen.address",
            alpn=("http/1.1",),
        )
        runtime.metrics.register(WebCollector(factory))
