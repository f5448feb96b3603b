"""Spans that a collector does not take."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from twisted.internet import reactor
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import formatEvent, globalLogPublisher

from tests.fakes.telemetry import Telemetry
from tunnel.api import SpanKind
from tunnel.config import Tracing
from tunnel.errors import ConfigurationError
from tunnel.program import shutdown, tracing
from tunnel.program.tracing import Tracer
from tunnel.toolkit.files import MAX_SECRET_FILE
from tunnel.toolkit.traces import TRACEPARENT, trace_id_of

_reactor: Any = reactor


@pytest_twisted.ensureDeferred
async def test_collector_hangs_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program ends all the same: nothing waits for its answer."""
    monkeypatch.setattr(tracing, "TIMEOUT", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = Tracing(otlp_endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}")
        tracer = Tracer(settings, "kas", "a", 1.0, lambda: 0.0)
        assert tracer.begin("early", SpanKind.SERVER) is None
        tracer.start(_reactor)
        span = tracer.begin("GET", SpanKind.SERVER)
        assert span is not None
        span.end()
        span.end()
        monkeypatch.setattr(shutdown.run_at_shutdown, "__defaults__", (0.1,))
        await tracer.stop(_reactor)
        (left,) = [one for one in threading.enumerate() if one.name == "shutdown"]
        assert left.daemon
        # What comes after that is not traced, and breaks nothing.
        assert tracer.begin("late", SpanKind.SERVER) is None
        span.set("a", 1)
    left.join(30)


@pytest_twisted.ensureDeferred
async def test_what_begins_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of what has no parent; what has one is as its caller says."""
    monkeypatch.setattr(tracing, "TIMEOUT", 0.1)
    settings = Tracing(otlp_endpoint="http://127.0.0.1:9")
    chances = iter([0.1, 0.6])
    tracer = Tracer(settings, "kas", "a", 0.5, lambda: next(chances))
    tracer.start(_reactor)
    assert tracer.begin("GET", SpanKind.SERVER) is not None
    assert tracer.begin("GET", SpanKind.SERVER) is None
    ids = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    sampled = f"00-{ids[0]}-{ids[1]}-01"
    span = tracer.begin("GET", SpanKind.SERVER, sampled)
    assert span is not None
    assert span.traceparent.split("-")[1] == ids[0]
    assert span.traceparent.split("-")[2] != ids[1]
    assert tracer.begin("GET", SpanKind.SERVER, sampled[:-1] + "0") is None
    await tracer.stop(_reactor)


@pytest_twisted.ensureDeferred
async def test_collector_sends_elsewhere(tmp_path: Path) -> None:
    """No other server gets the token, wherever the collector says that it moved."""
    token = tmp_path / "token"
    token.write_text("glpat-s3cret\n")
    collector, other = Telemetry(), Telemetry()
    collector.refuses, collector.moved = 307, f"http://127.0.0.1:{other.port}/v1/traces"
    with collector, other:
        url = f"http://127.0.0.1:{collector.port}"
        settings = Tracing(otlp_endpoint=url, otlp_token_secret_file=token)
        tracer = Tracer(settings, "kas", "a", 1.0, lambda: 0.0)
        tracer.start(_reactor)
        span = tracer.begin("GET", SpanKind.SERVER)
        assert span is not None
        span.end()
        await tracer.stop(_reactor)
    (sent,) = collector.headers
    assert sent["private-token"] == "glpat-s3cret"
    assert other.headers == []
    assert (tracer.sent, tracer.failed) == (0, 1)


@pytest.mark.parametrize(
    "url", ["http://collector.example", "https://collector.example", "http://[::1]:1"]
)
@pytest_twisted.ensureDeferred
async def test_token_without_encryption(tmp_path: Path, url: str) -> None:
    """It is said where the token can be read on its way."""
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    log = EventLoggingObserver()
    globalLogPublisher.addObserver(log)
    try:
        settings = Tracing(otlp_endpoint=url, otlp_token_secret_file=token)
        tracer = Tracer(settings, "kas", "a", 1.0, lambda: 0.0)
        tracer.start(_reactor)
        await tracer.stop(_reactor)
    finally:
        globalLogPublisher.removeObserver(log)
    said = [formatEvent(event) for event in log]
    warned = any("without encryption" in one for one in said)
    assert warned == (url == "http://collector.example")
    assert "s3cret" not in "".join(said)


@pytest_twisted.ensureDeferred
async def test_texts_of_clients() -> None:
    """What a client writes into its path is one line that prints, and not endless."""
    with Telemetry() as collector:
        settings = Tracing(otlp_endpoint=f"http://127.0.0.1:{collector.port}")
        tracer = Tracer(settings, "kas", "a", 1.0, lambda: 0.0)
        tracer.start(_reactor)
        span = tracer.begin("GET\n", SpanKind.SERVER)
        assert span is not None
        span.set("url.path", "/a\0\n\u202eb" + "c" * 70_000)
        span.set("http.response.status_code", 200)
        span.rename("list \x1b[1m")
        span.end("no\rway")
        await tracer.stop(_reactor)
    (sent,) = collector.spans
    path = sent.attributes["url.path"]
    assert (path[:7], len(path)) == ("/a???bc", tracing.MAX_TEXT)
    assert sent.attributes["http.response.status_code"] == 200
    assert (sent.name, sent.message) == ("list ?[1m", "no?way")


@pytest_twisted.ensureDeferred
async def test_collector_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many wait for it; each further one is counted, and costs nothing."""
    monkeypatch.setattr(tracing, "TIMEOUT", 1.0)
    monkeypatch.setattr(tracing, "MAX_WAITING", 600)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = Tracing(otlp_endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}")
        tracer = Tracer(settings, "kas", "a", 1.0, lambda: 0.0)
        tracer.start(_reactor)
        for _ in range(650):
            span = tracer.begin("GET", SpanKind.SERVER)
            assert span is not None
            span.end()
            span.end()
        counted = {
            sample.labels["result"]: sample.value
            for metric in tracer.collect()
            for sample in metric.samples
        }
        assert counted == {"sent": 0, "failed": 0, "dropped": 50}
        # What the collector did not take waits no longer.
        tracer.note_result(100, "it refuses them")
        for _ in range(101):
            span = tracer.begin("GET", SpanKind.SERVER)
            assert span is not None
            span.end()
        assert (tracer.failed, tracer.dropped) == (100, 51)
        monkeypatch.setattr(shutdown.run_at_shutdown, "__defaults__", (0.1,))
        await tracer.stop(_reactor)
        (left,) = [one for one in threading.enumerate() if one.name == "shutdown"]
    left.join(30)


_IDS = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"


@given(
    st.sampled_from(["00", "01", "fe", "ff"]),
    st.sampled_from(["00", "01", "fe"]),
    st.text("-a \t\x0b\x1c\x85\xa0", max_size=150),
)
def test_parents_as_the_sdk_reads_them(version: str, flags: str, rest: str) -> None:
    """
    What counts as a trace that goes on is one for the SDK, too.

    Of others it would begin a new one, whatever part of them is wanted.
    """
    sent = f"{version}-{_IDS}-{flags}{rest}"
    context = TraceContextTextMapPropagator().extract({TRACEPARENT: sent})
    if trace_id_of(sent) is not None:
        assert get_current_span(context).get_span_context().is_valid


@pytest.mark.parametrize(
    "content", [b"\n", b"a b", b"a\nb", b"\xff", b"x" * (MAX_SECRET_FILE + 1), None]
)
def test_file_without_a_token(tmp_path: Path, content: bytes | None) -> None:
    """The tracer refuses the file without quoting it."""
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    settings = Tracing(
        otlp_endpoint="https://collector.example", otlp_token_secret_file=token
    )
    with pytest.raises(ConfigurationError) as refused:
        Tracer(settings, "kas", "a", 1.0, lambda: 0.0).start(_reactor)
    assert str(refused.value).endswith(
        f"{token} does not contain a token; write one line"
    )
