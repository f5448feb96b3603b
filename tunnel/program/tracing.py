"""
Spans for OpenTelemetry: the steps of a request in this program, sent to a collector.

OpenTelemetry's SDK creates the spans, and sends them in a thread, by OTLP over HTTP.
While the collector is slow or unavailable, spans are dropped, and nothing blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector
from twisted.internet.interfaces import IReactorCore
from twisted.logger import Logger
from zope.interface import implementer

from tunnel import __version__
from tunnel.api import ISpan, ITracer, SpanKind
from tunnel.config import Tracing
from tunnel.errors import ConfigurationError
from tunnel.program.shutdown import run_at_shutdown
from tunnel.toolkit.files import read_secret_file
from tunnel.toolkit.texts import clean
from tunnel.toolkit.traces import TRACEPARENT, trace_id_of
from tunnel.toolkit.urls import is_private

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

__all__ = ["Tracer"]

#: Maximum number of spans that wait to be sent, as many as a busy kas creates in a
#: second. Further spans are dropped.
MAX_WAITING: Final = 2048

#: Timeout of the collector, in seconds.
TIMEOUT: Final = 10.0

#: Maximum number of characters of a text in a span.
MAX_TEXT: Final = 1000


@implementer(ISpan)
class Span:
    """See `tunnel.api.ISpan`."""

    __slots__ = ("_ended", "_span", "_tracer", "traceparent")

    def __init__(self, span: Any, tracer: Tracer) -> None:
        self._span = span
        self._tracer = tracer
        self._ended = False
        context = span.get_span_context()
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-01"

    def set(self, name: str, value: str | int | float | bool) -> None:
        """Set an attribute."""
        if isinstance(value, str):
            value = clean(value, MAX_TEXT)
        self._span.set_attribute(name, value)

    def rename(self, name: str) -> None:
        """Change the name."""
        self._span.update_name(clean(name, MAX_TEXT))

    def end(self, problem: str = "") -> None:
        """End the span; repeating it does nothing."""
        if self._ended:
            return
        self._ended = True
        if not self._tracer.has_room():
            return
        if problem:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, clean(problem, MAX_TEXT)))
        self._span.end()


@implementer(ITracer)
class Tracer(Collector):
    """
    A tracer that creates spans and sends them, from `start` to `stop`.

    :param program: ``kas`` or ``agentk``: the name of the service.
    :param instance: distinguishes several instances of the service.
    :param ratio: the fraction of root spans that begin a trace.
    :param random: returns a number between 0 and 1.
    """

    _log = Logger()

    def __init__(
        self,
        settings: Tracing,
        program: str,
        instance: str,
        ratio: float,
        random: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._program = program
        self._instance = instance
        self._ratio = ratio
        self._random = random
        self._provider: Any = None
        self._tracer: Any = None
        self._extract: Any = None
        self._kinds: dict[SpanKind, Any] = {}
        #: The numbers of spans that were sent, that the collector refused, and that
        #: were dropped because the queue was full.
        self.sent = self.failed = self.dropped = 0
        #: The number of spans that have ended and were not counted yet.
        self._waiting = 0
        #: Reason why the last spans were not accepted; empty if they were accepted.
        self._problem = ""

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        family = CounterMetricFamily(
            f"{self._program}_spans",
            "Spans for OpenTelemetry: sent, refused by the collector, and dropped "
            "because too many were waiting.",
            labels=["result"],
        )
        family.add_metric(["sent"], self.sent)
        family.add_metric(["failed"], self.failed)
        family.add_metric(["dropped"], self.dropped)
        yield family

    def start(self, reactor: IReactorCore) -> None:
        """
        Start to create spans.

        :raises ConfigurationError: the file with the token is invalid.
        """
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import SpanLimits, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
        from opentelemetry.trace import SpanKind as Kind
        from opentelemetry.trace.propagation.tracecontext import (
            TraceContextTextMapPropagator,
        )

        # The library would log failures that are counted here.
        library = logging.getLogger("opentelemetry")
        library.addHandler(logging.NullHandler())
        library.propagate = False
        settings = self._settings
        authority = settings.otlp_ca_certificate_file
        if settings.otlp_token_secret_file and not is_private(settings.otlp_endpoint):
            # GitLab's kas accepts such a file, too.
            self._log.warn(
                "the token of observability.tracing is sent to {endpoint} without "
                "encryption: use https",
                endpoint=settings.otlp_endpoint,
            )
        exporter = OTLPSpanExporter(
            endpoint=_endpoint(settings.otlp_endpoint),
            certificate_file=None if authority is None else str(authority),
            headers=_credential(settings.otlp_token_secret_file),
            timeout=TIMEOUT,
            session=_session(),
        )
        self._provider = TracerProvider(
            sampler=ParentBased(ALWAYS_ON),
            resource=Resource.create(
                {
                    "service.name": self._program,
                    "service.version": __version__,
                    "service.instance.id": self._instance,
                }
            ),
            span_limits=SpanLimits(max_span_attribute_length=MAX_TEXT),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                _counting(exporter, self, reactor), max_queue_size=MAX_WAITING
            )
        )
        self._extract = TraceContextTextMapPropagator().extract
        self._kinds = {
            SpanKind.SERVER: Kind.SERVER,
            SpanKind.CLIENT: Kind.CLIENT,
            SpanKind.INTERNAL: Kind.INTERNAL,
        }
        self._tracer = self._provider.get_tracer("txkas", __version__)

    async def stop(self, reactor: Any) -> None:
        """Send the remaining spans; waits for at most `SHUTDOWN_SECONDS` seconds."""
        provider, self._provider, self._tracer = self._provider, None, None
        if provider is None:
            return
        await run_at_shutdown(reactor, provider.force_flush)

    def begin(
        self,
        name: str,
        kind: SpanKind,
        parent: str | None = None,
    ) -> ISpan | None:
        """See `tunnel.api.ITracer.begin`."""
        if self._tracer is None:
            return None
        if trace_id_of(parent) is None:
            # The SDK could make this decision, too, but takes ten times as long.
            if self._random() >= self._ratio:
                return None
            parent = None
        context = self._extract({} if parent is None else {TRACEPARENT: parent})
        span = self._tracer.start_span(
            clean(name, MAX_TEXT), context, kind=self._kinds[kind]
        )
        return Span(span, self) if span.is_recording() else None

    def has_room(self) -> bool:
        """
        Tell whether a span that ends now can be queued.

        If the queue is full, the SDK would silently drop the oldest span.
        """
        if self._waiting >= MAX_WAITING:
            self.dropped += 1
            return False
        self._waiting += 1
        return True

    def note_result(self, count: int, problem: str) -> None:
        """
        Record the result for *count* spans.

        :param problem: why the collector refused them; empty if it accepted them.
        """
        self._waiting -= count
        if not problem:
            self.sent += count
        else:
            self.failed += count
        before, self._problem = self._problem, problem
        if problem and not before:
            self._log.warn(
                "cannot send spans to {endpoint}: {problem}; spans are dropped until "
                "it accepts them again",
                endpoint=self._settings.otlp_endpoint,
                problem=problem,
            )
        elif before and not problem:
            self._log.info(
                "{endpoint} accepts spans again",
                endpoint=self._settings.otlp_endpoint,
            )


def _endpoint(url: str) -> str:
    return url if urlsplit(url).path.strip("/") else url.rstrip("/") + "/v1/traces"


def _credential(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        token = read_secret_file(file).decode("ascii").strip()
    except ValueError:
        token = ""
    if not token or not token.isprintable() or " " in token:
        message = (
            f"observability.tracing.otlp_token_secret_file: {file} does not contain "
            "a token; write one line"
        )
        raise ConfigurationError([message])
    # GitLab expects its tokens in a different header.
    if token.startswith("glpat-"):
        return {"Private-Token": token}
    return {"Authorization": f"Bearer {token}"}


def _session() -> Any:
    """
    Return the HTTP session of the SDK, which fails if the response is a redirect.

    The SDK itself counts a redirect as success; older versions of the SDK follow a
    redirect with our token.
    """
    import requests

    def answered(response: requests.Response, **_: object) -> None:
        if 300 <= response.status_code < 400:
            raise requests.TooManyRedirects("the endpoint redirects to another URL")

    session = requests.Session()
    session.hooks["response"].append(answered)
    return session


def _counting(
    exporter: SpanExporter, tracer: Tracer, reactor: IReactorCore
) -> SpanExporter:
    """
    Wrap *exporter*, and report each outcome to *tracer*.

    The SDK calls the exporter in its own thread; *tracer* is called in the reactor's.
    """
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Counting(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            problem = "it refuses them, or cannot be reached"
            result = SpanExportResult.FAILURE
            try:
                result = exporter.export(spans)
                if result is SpanExportResult.SUCCESS:
                    problem = ""
            finally:
                reactor_: Any = reactor
                reactor_.callFromThread(tracer.note_result, len(spans), problem)
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

    return Counting()
