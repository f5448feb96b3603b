"""Paths and parameters of requests, each in one place only."""

from __future__ import annotations

import pytest

from modules.prometheus.server.envelope import QuestionRefused
from modules.prometheus.server.parameters import MAX_PARAMETERS, read_question

FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/query"),
        ("POST", "/api/v1/query"),
        ("GET", "/api/v1/query_range"),
        ("POST", "/api/v1/series"),
        ("POST", "/api/v1/labels"),
        ("GET", "/api/v1/label/job/values"),
        ("GET", "/api/v1/metadata"),
        ("GET", "/api/v1/targets"),
        ("GET", "/api/v1/rules"),
        ("GET", "/api/v1/alerts"),
        ("GET", "/api/v1/status/buildinfo"),
        ("POST", "/api/v1/format_query"),
        ("POST", "/api/v1/query_exemplars"),
    ],
)
def test_permitted(method: str, path: str) -> None:
    """The endpoints that read."""
    assert read_question(method, path, "", FORM, b"").path == path


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/api/v1/admin/tsdb/delete_series", 404),
        ("PUT", "/api/v1/admin/tsdb/snapshot", 404),
        ("POST", "/-/reload", 404),
        ("POST", "/api/v1/write", 404),
        ("POST", "/api/v1/otlp/v1/metrics", 404),
        ("POST", "/api/v1/read", 404),
        ("GET", "/federate", 404),
        ("GET", "/api/v1/status/config", 404),
        ("GET", "/api/v1/query/", 404),
        ("GET", "//api/v1/query", 404),
        ("GET", "/api/v1/../v1/query", 404),
        ("GET", "/api/v1/%71uery", 404),
        ("GET", "/api/v1/label/a%2Fb/values", 404),
        ("GET", "/api/v1/label/../values", 404),
        ("GET", "/api/v1/query\n", 404),
        ("DELETE", "/api/v1/series", 405),
        ("HEAD", "/api/v1/query", 405),
        ("POST", "/api/v1/label/job/values", 405),
        ("POST", "/api/v1/rules", 405),
    ],
)
def test_refused(method: str, path: str, status: int) -> None:
    """Everything else, and other methods."""
    with pytest.raises(QuestionRefused) as refused:
        read_question(method, path, "", FORM, b"")
    assert refused.value.status == status


def test_all_parameters_become_one_form() -> None:
    """Unknown parameters and repeated matchers pass."""
    question = read_question(
        "POST",
        "/api/v1/series",
        "match[]=a%7Bb%3D%22c%22%7D&match%5B%5D=d&dedup=true",
        FORM + "; charset=utf-8",
        b"start=1&end=2&replicaLabels=x&replicaLabels=y&empty=",
    )
    assert question.form == (
        "match%5B%5D=a%7Bb%3D%22c%22%7D&match%5B%5D=d&dedup=true&start=1&end=2"
        "&replicaLabels=x&replicaLabels=y&empty="
    )
    assert question.value("start") == "1" and question.value("limit") == ""


@pytest.mark.parametrize(
    ("method", "query", "kind", "body", "status"),
    [
        ("POST", "query=a", FORM, b"query=b", 400),
        ("POST", "match[]=a", FORM, b"match%5B%5D=b", 400),
        ("POST", "quer%79=a", FORM, b"query=a", 400),
        ("GET", "query=a&query=b", "", b"", 400),
        ("POST", "", FORM, b"query=a&quer%79=b", 400),
        ("GET", "query=a;time=b", "", b"", 400),
        ("GET", "query=%ff", "", b"", 400),
        ("GET", "&".join(["a[]=b"] * (MAX_PARAMETERS + 1)), "", b"", 400),
        ("GET", "query=a", FORM, b"time=1", 400),
        ("POST", "", "application/json", b"{}", 415),
        ("POST", "", "multipart/form-data; boundary=x", b"--x", 415),
    ],
    ids=[
        "both",
        "both-matchers",
        "both-escaped",
        "twice",
        "twice-escaped",
        "semicolon",
        "not-utf8",
        "many",
        "get-with-body",
        "json",
        "multipart",
    ],
)
def test_one_place(
    method: str, query: str, kind: str, body: bytes, status: int
) -> None:
    """kas does not forward what two servers could read differently."""
    with pytest.raises(QuestionRefused) as refused:
        read_question(method, "/api/v1/query", query, kind, body)
    assert refused.value.status == status
