"""Where traces and failures go."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest

from tunnel.config import Sentry, Tracing, read
from tunnel.errors import ConfigurationError


def problem(text: str, schema: type[Any]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(text, "a.yaml", schema)
    (found,) = caught.value.problems
    return str(found)


def test_no_dsn() -> None:
    """The key that is in one is not repeated."""
    for dsn in (
        "a-key",
        "https://sentry.example.com/1",
        "ftp://a-key@x/1",
        "https://sentry.example.com:a-key/1",
        "https://a-key\u2100@sentry.example.com/1",
        "https://a-key@[::1/1",
        "https://a-key@sentry.example.com:99999/1",
    ):
        said = problem(f"dsn: {dsn!r}\n", Sentry)
        assert said.startswith("a.yaml:1:")
        assert "this is not a DSN" in said
        assert "a-key" not in said


def test_no_endpoint() -> None:
    """A URL, and no password in it."""
    assert "complete URL" in problem("otlp_endpoint: 'localhost:4317'\n", Tracing)
    said = problem("otlp_endpoint: https://a:b@c/\n", Tracing)
    assert "must not contain a user name or password" in said
    for url in ("https://a:s3cret", "https://a:s3cret\u2100@c/", "https://[s3cret"):
        said = problem(f"otlp_endpoint: {url!r}\n", Tracing)
        assert "this is not a URL" in said
        assert "s3cret" not in said


@pytest.mark.parametrize(
    ("text", "schema", "package", "extra"),
    [
        ("otlp_endpoint: http://a", Tracing, "opentelemetry", "tracing"),
        ("dsn: http://a@b/1", Sentry, "sentry_sdk", "sentry"),
    ],
)
def test_not_installed(
    text: str,
    schema: type[Any],
    package: str,
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says what to install."""
    find = importlib.util.find_spec
    telemetry = sys.modules["tunnel.config.telemetry"]
    monkeypatch.setattr(
        telemetry, "find_spec", lambda name: None if name == package else find(name)
    )
    assert f"pip install 'txkas[{extra}]'" in problem(text, schema)


def test_off_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A section without a DSN, as GitLab's files have it."""
    telemetry = sys.modules["tunnel.config.telemetry"]
    monkeypatch.setattr(telemetry, "find_spec", lambda name: None)
    assert read("dsn: ''\n", "a.yaml", Sentry) == Sentry()
