"""Which events of an API server kas gets, and which parts of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from modules.cluster_audit.agent.events import EventReader, InvalidEvent
from modules.cluster_audit.wire import cluster_audit_pb2 as wire
from tests.modules.cluster_audit.pair import (
    AGENTK,
    ODD_BODIES,
    event,
    text_of,
    with_body,
)


def read(everything: bool = False, **changed: Any) -> wire.Event | None:
    line = json.dumps(event("1", **changed)).encode()
    return EventReader(everything, AGENTK).read(line)


def about(**changed: str) -> dict[str, Any]:
    return {**event("1")["objectRef"], **changed}


KEPT: dict[str, dict[str, Any]] = {
    "change": {},
    "panic": {"stage": "Panic"},
    "exec": {"verb": "get", "objectRef": about(resource="pods", subresource="exec")},
    "exec that runs": {
        "verb": "create",
        "stage": "ResponseStarted",
        "objectRef": about(resource="pods", subresource="exec"),
    },
    "proxy": {"verb": "get", "objectRef": about(resource="nodes", subresource="proxy")},
    "secret": {"verb": "get", "objectRef": about(resource="secrets")},
    "secrets": {"verb": "watch", "objectRef": about(resource="secrets", name="")},
    "refused read": {"verb": "list", "responseStatus": {"code": 403}},
    "no credential": {"verb": "get", "responseStatus": {"code": 401}},
    "review": {
        "verb": "create",
        "objectRef": about(resource="subjectaccessreviews", apiGroup="a.k8s.io"),
    },
}

LEFT_OUT: dict[str, dict[str, Any]] = {
    "read": {"verb": "get"},
    "watch": {"verb": "watch", "stage": "ResponseStarted"},
    "received": {"stage": "RequestReceived"},
    "lease": {"objectRef": about(resource="leases", apiGroup="coordination.k8s.io")},
    "event": {"objectRef": about(resource="events")},
    "health": {"verb": "get", "objectRef": None, "requestURI": "/livez?verbose"},
}


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    assert read(**KEPT[name]) is not None


@pytest.mark.parametrize("name", LEFT_OUT)
def test_left_out(name: str) -> None:
    assert read(**LEFT_OUT[name]) is None
    is_response = LEFT_OUT[name].get("stage") is None
    assert (read(everything=True, **LEFT_OUT[name]) is not None) == is_response


def test_a_request_without_an_object() -> None:
    found = read(everything=True, **LEFT_OUT["health"])
    assert found is not None
    assert (found.path, found.resource) == ("/livez", "")


def test_stages() -> None:
    """A session that runs has an event of its own."""
    found = read(**KEPT["exec that runs"])
    assert found is not None
    assert found.stage == "begun"
    found = read()
    assert found is not None
    assert found.stage == "ended"


def test_no_body() -> None:
    found = read()
    assert found is not None
    assert b"s3cret" not in found.SerializeToString()
    assert b"masters" not in found.SerializeToString()


@pytest.mark.parametrize(
    "changed",
    [
        {"user": None},
        {"user": {"username": ["x"]}},
        {"objectRef": "x", "verb": 7},
        {"sourceIPs": "x", "userAgent": {}},
        {"responseStatus": {"code": "200"}},
        {"requestReceivedTimestamp": "x", "stageTimestamp": 7},
        {"impersonatedUser": {"username": "x" * 10_000}},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_odd_events(changed: dict[str, Any]) -> None:
    """An aggregated API server may write anything."""
    found = read(everything=True, **changed)
    assert found is not None
    assert found.ByteSize() < 2000


@pytest.mark.parametrize("name", ODD_BODIES)
def test_bodies_that_clients_choose(name: str) -> None:
    """A client cannot hide a request behind its body."""
    line = with_body(text_of(event("1")), ODD_BODIES[name])
    assert EventReader().read(line) == read()


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b"7", b"{}", b'{"auditID": "1"}', b"[" * 100_000, b'["\\'],
    ids=["empty", "half", "list", "number", "no id", "no stage", "nested", "string"],
)
def test_lines_that_are_not_events(line: bytes) -> None:
    with pytest.raises(InvalidEvent):
        EventReader().read(line)
