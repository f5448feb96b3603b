"""What Sentry is told, and what it is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.logger import Logger

from tests.fakes.telemetry import Telemetry
from tunnel.config import Sentry
from tunnel.program.sentry import PER_MINUTE, ErrorReports


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    server = Telemetry()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reports(telemetry: Telemetry, clock: Clock) -> ErrorReports:
    dsn = f"http://key@127.0.0.1:{telemetry.port}/7"
    return ErrorReports(Sentry(dsn=dsn), "kas", clock)


def told(reports: ErrorReports, telemetry: Telemetry, *say: Any) -> list[Any]:
    """What comes of some words."""
    log = Logger("kas.somewhere")
    reports.start()
    for one in say:
        one(log)
    # Closing waits for the thread that sends.
    reports._client.close(timeout=10.0)
    return telemetry.errors


def fail(log: Logger) -> None:
    a_local_secret = "s3cret"
    try:
        raise ConnectionError(f"10.1.2.3:40123 hung up {len(a_local_secret)}")
    except ConnectionError:
        log.failure(
            "cannot ask {name} at 10.1.2.3:8080",
            name="x",
            trace_id="a" * 32,
            agent_id="7",
        )


def test_failure(reports: ErrorReports, telemetry: Telemetry) -> None:
    """Type, place and what it was about; nothing of the variables, and no ports."""
    (error,) = told(reports, telemetry, fail)
    assert error["logentry"]["formatted"] == "cannot ask x at 10.1.2.3"
    assert error["tags"] == {"program": "kas", "trace_id": "a" * 32, "name": "x"}
    assert error["user"] == {"id": "7"}
    assert (error["level"], error["logger"]) == ("fatal", "kas.somewhere")
    (exception,) = error["exception"]["values"]
    assert exception["type"] == "ConnectionError"
    assert exception["value"] == "10.1.2.3 hung up 6"
    assert exception["stacktrace"]["frames"][-1]["function"] == "fail"
    assert "s3cret" not in str(exception["stacktrace"]["frames"][-1].get("vars"))


def test_less_is_not_told(reports: ErrorReports, telemetry: Telemetry) -> None:
    """What users cause, and what is only worth a look."""
    said = told(
        reports,
        telemetry,
        lambda log: log.info("refused"),
        lambda log: log.warn("odd"),
        lambda log: log.error("bad at {where}", where="[::1]:99"),
    )
    assert [one["logentry"]["formatted"] for one in said] == ["bad at [::1]"]
    assert said[0]["level"] == "error"


def test_storm(reports: ErrorReports, telemetry: Telemetry, clock: Clock) -> None:
    """So many in a minute."""

    def storm(log: Logger) -> None:
        for number in range(PER_MINUTE + 50):
            log.error("number {number}", number=number)
        clock.advance(60)
        log.error("a minute later")

    said = [one["logentry"]["formatted"] for one in told(reports, telemetry, storm)]
    assert len(said) == PER_MINUTE + 1
    assert said[-1] == "a minute later"


def test_off(clock: Clock) -> None:
    """Without a DSN."""
    reports = ErrorReports(Sentry(), "kas", clock)
    reports.start()
    assert reports._client is None
