"""Spans for OpenTelemetry and failures for Sentry, of real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.telemetry import Telemetry, TracedSpan
from tests.faults.stand import Fleet
from tests.integration.processes import eventually
from tests.integration.rawhttp import Way
from tests.integration.stack import Agentk, Kas, sandbox

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = CALLER.split("-")[1]


@pytest.fixture(scope="module")
def telemetry() -> Iterator[Telemetry]:
    server = Telemetry()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of the API server of the demo."""
    with sandbox(tmp_path_factory.mktemp("sandbox")) as kubeconfig:
        yield kubeconfig


def tracing(telemetry: Telemetry, folder: Path) -> str:
    token = folder / "otlp-token"
    token.write_text("a-secret-of-the-collector\n")
    return (
        f"tracing: {{otlp_endpoint: 'http://127.0.0.1:{telemetry.port}', "
        f"otlp_token_secret_file: {token}"
    )


@pytest.fixture(scope="module")
def fleet(
    tmp_path_factory: pytest.TempPathFactory, telemetry: Telemetry, kubeconfig: Path
) -> Iterator[Fleet]:
    """Two kas, of which the second has the agent."""
    folder = tmp_path_factory.mktemp("fleet")
    fleet = Fleet(folder, count=2)
    for kas in fleet.kas:
        settings = tracing(telemetry, folder) + ", sample_ratio: 0.0}"
        kas.observability_settings = (settings,)
    fleet.start()
    try:
        fleet.know_each_other()
        options = folder / "agentk.yaml"
        options.write_text(f"observability: {{{tracing(telemetry, folder)}}}}}\n")
        first, second = fleet.kas
        agentk = Agentk(second, first.add_agent("main"), kubeconfig)
        fleet.agentks.append(agentk)
        agentk.start("--configuration-file", str(options))
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture(scope="module")
def way(fleet: Fleet) -> Way:
    """To the API server, through the kas that does not have the agent."""
    first = fleet.kas[0]
    first.add_user("tracer")
    way = Way("tracer", first.proxy, first.authority, first.bearer("tracer"))
    eventually(lambda: way.ask("GET", "/version").status == 200, what="routed")
    return way


def traced(telemetry: Telemetry, trace_id: str, count: int) -> list[TracedSpan]:
    """The spans of a trace, the outermost first, once there are *count*."""

    def found() -> list[TracedSpan] | None:
        spans = [one for one in telemetry.spans if one.trace_id == trace_id]
        if len(spans) < count:
            return None
        assert len(spans) == count, spans
        return sorted(
            spans, key=lambda one: (one.service != "kas", one.name == "relay")
        )

    got: list[TracedSpan] = eventually(found, what="spans")
    return got


def ask(way: Way, traceparent: str) -> None:
    field = f"Traceparent: {traceparent}"
    assert way.ask("GET", "/api/v1/namespaces/default", field).status == 200


def test_through_two_kas(way: Way, telemetry: Telemetry) -> None:
    """One trace: the caller's, kas, the gateway of the other kas, agentk."""
    ask(way, CALLER)
    outer, relay, agentk = traced(telemetry, TRACE_ID, 3)
    assert (outer.service, relay.service, agentk.service) == ("kas", "kas", "agentk")
    assert outer.name == agentk.name == "get namespaces"
    assert outer.parent_id == CALLER.split("-")[2]
    assert relay.name == "relay"
    assert relay.parent_id == agentk.parent_id == outer.span_id
    for span in outer, agentk:
        assert span.attributes["http.response.status_code"] == 200
        assert span.attributes["k8s.object.name"] == "default"
    assert telemetry.headers[-1]["authorization"] == "Bearer a-secret-of-the-collector"
    # Where the caller does not trace, and no trace begins, nothing is sent.
    assert {one.trace_id for one in telemetry.spans} == {TRACE_ID}


def test_collector_away(way: Way, telemetry: Telemetry, fleet: Fleet) -> None:
    """Requests do not notice; what is lost is counted, and told once."""
    kas = fleet.kas[0]
    failed = 'kas_spans_total{result="failed"}'
    assert kas.metric(failed) == 0
    # A status that is not tried again, as 503 would be for ten seconds.
    telemetry.refuses = 400
    other = CALLER.replace(TRACE_ID, "1" * 32)
    ask(way, other)
    eventually(lambda: kas.metric(failed) == 1, what="lost")
    telemetry.refuses = 0
    last = CALLER.replace(TRACE_ID, "2" * 32)
    ask(way, last)
    assert traced(telemetry, "2" * 32, 3)
    # The others may have sent theirs when it was back.
    lost = [one for one in telemetry.spans if one.trace_id == "1" * 32]
    assert "kas" not in {one.service for one in lost if one.name != "relay"}
    process = kas.process
    assert process is not None
    back = "accepts spans again"
    eventually(lambda: back in process.said(), what="it is told")
    said = process.said()
    assert said.count("cannot send spans") == said.count(back) == 1
    assert "a-secret-of-the-collector" not in said


def test_failures_for_sentry(lone_kas: Kas, telemetry: Telemetry) -> None:
    """What the log has as an error, with what it was about."""
    dsn = f"http://a-public-key@127.0.0.1:{telemetry.port}/7"
    lone_kas.observability_settings = (
        f"sentry: {{dsn: '{dsn}', environment: staging}}",
    )
    process = lone_kas.start()
    (lone_kas.state / "identity.json").write_text("{")
    process.wait_for("identity file is invalid")
    (error,) = eventually(lambda: telemetry.errors, what="the event")
    assert "identity file is invalid" in error["logentry"]["formatted"]
    assert error["environment"] == "staging"
    assert error["release"].startswith("txkas@")
    assert error["tags"] == {"program": "kas"}
    assert "a-public-key" not in process.said()
