"""Who changed an object beside kas, of whom the API server's audit log tells."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from modules.gitops.agent.drift import audit_log
from modules.gitops.agent.drift.audit_log import KubernetesAuditLog
from modules.gitops.agent.objects.differences import Writer
from tests.modules.gitops.agent.drift.test_change_authors import KEY, MAPS

#: 1970-01-01T00:01:40Z.
NOW = 110.0
EDIT = Writer("kubectl-edit", "Update", "", "1970-01-01T00:01:40Z")

Audit = Callable[..., tuple[str, ...]]


def event(**changed: Any) -> dict[str, Any]:
    """As API servers write it, at the level Metadata."""
    return {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "stage": "ResponseComplete",
        "requestURI": "/api/v1/namespaces/a/configmaps/x?fieldManager=kubectl-edit",
        "verb": "patch",
        "user": {"username": "alice", "groups": ["people"]},
        "userAgent": "kubectl/v1.36.3 (linux/amd64)",
        "objectRef": {
            "resource": "configmaps",
            "namespace": "a",
            "name": "x",
            "apiVersion": "v1",
        },
        "responseStatus": {"metadata": {}, "code": 200},
        "requestReceivedTimestamp": "1970-01-01T00:01:40.204106Z",
        "stageTimestamp": "1970-01-01T00:01:40.210304Z",
        **changed,
    }


def ref(**changed: str) -> dict[str, Any]:
    return {"objectRef": {**event()["objectRef"], **changed}}


@pytest.fixture
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Audit:
    """Who is named, of these events or lines."""
    monkeypatch.setattr(audit_log, "deferToThread", maybeDeferred)
    path = tmp_path / "audit.log"

    def named(
        *events: Any,
        age: float = 60.0,
        writers: tuple[Writer, ...] = (EDIT,),
    ) -> tuple[str, ...]:
        lines = [one if isinstance(one, str) else json.dumps(one) for one in events]
        # Go writes no spaces there.
        text = "".join(f"{one.replace(': ', ':')}\n" for one in lines)
        path.write_text(text)
        return who(path, age, writers)

    return named


def who(
    path: Path, age: float = 60.0, writers: tuple[Writer, ...] = (EDIT,)
) -> tuple[str, ...]:
    clock = Clock()
    found = KubernetesAuditLog(path, clock, lambda: NOW)
    asking = Deferred.fromCoroutine(found.of(MAPS, KEY, age, writers))
    clock.advance(audit_log.LATE)
    named: tuple[str, ...] = SynchronousTestCase().successResultOf(asking)
    return named


def test_one(audit: Audit) -> None:
    bob = event(user={"username": "agentk"}, impersonatedUser={"username": "bob"})
    assert audit(event()) == ("kubernetes:alice",)
    assert audit(bob, event()) == ("kubernetes:alice", "kubernetes:bob")


def test_nobody(audit: Audit) -> None:
    """Another object, manager, second, verb; refused, not done, or a dry run."""
    uri = "/api/v1/namespaces/a/configmaps/x"
    for other in (
        event(**ref(name="y")),
        event(**ref(namespace="b")),
        event(**ref(apiGroup="apps")),
        event(**ref(resource="secrets")),
        event(**ref(subresource="status")),
        event(verb="get"),
        event(verb="delete"),
        event(stage="RequestReceived"),
        event(responseStatus={"code": 409}),
        event(responseStatus=None),
        event(requestURI=f"{uri}?dryRun=All&fieldManager=kubectl-edit"),
        event(requestURI=f"{uri}?fieldManager=helm"),
        event(requestURI=uri),
        event(
            requestReceivedTimestamp="1970-01-01T00:01:42.5Z",
            stageTimestamp="1970-01-01T00:01:42.6Z",
        ),
        event(stageTimestamp="yesterday"),
        "{",
        "[]",
        "[" * 100_000 + '"name":"x"',
    ):
        assert audit(other) == ()
    # It was as it should be after that.
    assert audit(event(), age=8.0) == ()
    assert audit(event(), age=12.0) == ("kubernetes:alice",)


def test_a_manager_by_the_program(audit: Audit) -> None:
    kubectl = Writer("kubectl", "Update", "", EDIT.time)
    said = event(requestURI="/api/v1/namespaces/a/configmaps/x")
    assert audit(said, writers=(kubectl,)) == ("kubernetes:alice",)


def test_a_delete(audit: Audit) -> None:
    deleted = event(verb="delete", requestURI="/api/v1/namespaces/a/configmaps/x")
    assert audit(deleted, writers=()) == ("kubernetes:alice",)
    assert audit(event(), writers=()) == ()
    assert audit({**deleted, **ref(subresource="x")}, writers=()) == ()


def test_names(audit: Audit) -> None:
    """They are cut, and so is how many there are."""
    evil = event(user={"username": "x\x1b[2J" + "y" * 500})
    (found,) = audit(evil)
    assert found.startswith("kubernetes:x?[2Jy")
    assert len(found) == audit_log.MAX_NAME
    many = [event(user={"username": f"user-{n}"}) for n in range(50)]
    assert len(audit(*many)) == audit_log.MAX_NAMES


def test_how_much_is_read(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last lines of the object, within the end of the file, whole ones."""
    monkeypatch.setattr(audit_log, "MAX_LINES", 2)
    assert audit(event(), *[event(verb="get")] * 2) == ()
    assert audit(event(), event(verb="get")) == ("kubernetes:alice",)
    huge = event(requestObject={"data": "z" * audit_log.MAX_LINE})
    assert audit(event(), huge) == ("kubernetes:alice",)
    assert audit(huge) == ()
    monkeypatch.setattr(audit_log, "MAX_READ", 2000)
    others = [event(**ref(name="y"))] * 10
    assert audit(event(), *others) == ()
    assert audit(*others, event()) == ("kubernetes:alice",)


def test_a_line_that_is_being_written(tmp_path: Path, audit: Audit) -> None:
    audit(event())
    path = tmp_path / "audit.log"
    text = path.read_text()
    path.write_text(text[:-2])
    assert who(path) == ()
    clock = Clock()
    found = KubernetesAuditLog(path, clock, lambda: NOW)
    asking = Deferred.fromCoroutine(found.of(MAPS, KEY, 60.0, (EDIT,)))
    path.write_text(text)
    clock.advance(audit_log.LATE)
    assert SynchronousTestCase().successResultOf(asking) == ("kubernetes:alice",)


def test_a_file_that_cannot_be_read(tmp_path: Path, audit: Audit) -> None:
    """It is said once, until it can be."""
    log = EventLoggingObserver()
    globalLogPublisher.addObserver(log)
    found = KubernetesAuditLog(tmp_path / "none", Clock(), lambda: NOW)
    try:
        for _ in range(3):
            asking = Deferred.fromCoroutine(found.of(MAPS, KEY, 60.0, (EDIT,)))
            assert SynchronousTestCase().successResultOf(asking) == ()
    finally:
        globalLogPublisher.removeObserver(log)
    (said,) = [
        one for one in log if one["log_namespace"].endswith("KubernetesAuditLog")
    ]
    assert said["why"] == "No such file or directory"
