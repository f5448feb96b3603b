"""Both halves of ``cluster_audit`` in memory, and a log of an API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from modules.cluster_audit.agent import follower, webhook
from modules.cluster_audit.agent.module import ClusterAuditAgent
from modules.cluster_audit.server import module as server
from modules.cluster_audit.server.module import ClusterAuditServer
from tunnel.testing import FakeCluster, ModulePair

AGENTK = "system:serviceaccount:txkas:agentk"
_REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def event(audit_id: str, **changed: Any) -> dict[str, Any]:
    """An event as API servers write it, at the level RequestResponse."""
    return {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "auditID": audit_id,
        "stage": "ResponseComplete",
        "requestURI": "/api/v1/namespaces/a/configmaps/x?fieldManager=kubectl-edit",
        "verb": "patch",
        "user": {"username": "admin", "groups": ["system:masters"]},
        "sourceIPs": ["192.0.2.7", "10.0.0.1"],
        "userAgent": "kubectl/v1.36.3 (linux/amd64)",
        "objectRef": {
            "resource": "configmaps",
            "namespace": "a",
            "name": "x",
            "apiVersion": "v1",
        },
        "responseStatus": {"metadata": {}, "code": 200},
        "requestObject": {"data": {"key": "s3cret"}},
        "responseObject": {"data": {"key": "s3cret"}},
        "requestReceivedTimestamp": "2026-05-01T12:00:00.204106Z",
        "stageTimestamp": "2026-05-01T12:00:00.210304Z",
        **changed,
    }


#: Bodies of requests that API servers accept, or write to their log unread.
ODD_BODIES: dict[str, bytes] = {
    "arrays": b"[" * 100_000 + b"]" * 100_000,
    "objects": b'{"a\\"]":[' * 50_000 + b'"}"' + b"]}" * 50_000,
    "number": b"1" * 10_000,
    "bytes": b'"\xff\xfe"',
    "surrogate": b'"\\ud800"',
}


def with_body(text: str, body: bytes) -> bytes:
    """Return the JSON text of `event` with another body of the request."""
    found = text.encode().replace(b'{"key":"s3cret"}', body)
    assert body in found
    return found


def text_of(*events: dict[str, Any]) -> str:
    """Return the lines of events."""
    return "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in events)


@attrs.define(eq=False)
class AuditPair:
    """
    kas, agentk and the folder with the log of an API server.

    :ivar log: the file that the API server writes.
    """

    folder: Path
    guard: Any = None
    clock: Clock = attrs.field(factory=Clock)
    options: dict[str, Any] = attrs.field(factory=dict)
    settings: dict[str, Any] = attrs.field(factory=dict)
    cluster: FakeCluster = attrs.field(init=False)
    pair: ModulePair = attrs.field(init=False)
    server: Any = attrs.field(init=False)
    agent: Any = attrs.field(init=False)
    store: Any = None

    def __attrs_post_init__(self) -> None:
        self.cluster = FakeCluster(self.clock)
        user = {"userInfo": {"username": AGENTK}}
        self.cluster.answer("POST", _REVIEW, {"status": user}, 201)

    @property
    def log(self) -> Path:
        """The file of the API server."""
        return self.folder / "audit.log"

    def start(self) -> None:
        """Start both halves; the store of kas survives a restart."""
        self.pair = ModulePair(self.clock, cluster=self.cluster, guard=self.guard)
        if self.store is None:
            self.store = self.pair.store
        self.pair.store = self.store
        self.server = self.pair.server_half(
            ClusterAuditServer, directory=self.folder / "clusters", **self.settings
        )
        self.agent = self.pair.agent_half(
            ClusterAuditAgent, file=self.log, **self.options
        )
        self.pair.start()
        self.later()

    def stop(self) -> None:
        """Stop both halves."""
        self.pair.stop()

    def later(self, seconds: float = 3.0) -> None:
        """Let time pass."""
        for _ in range(round(seconds * 4)):
            self.pair.settle()
            self.clock.advance(0.25)
        self.pair.settle()

    def write(self, *events: dict[str, Any]) -> None:
        """Append events to the log."""
        with self.log.open("a") as file:
            file.write(text_of(*events))

    def rotate(self, name: str) -> Path:
        """Rename the log as the API server does."""
        return self.log.rename(self.folder / f"audit-{name}.log")

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines in the files of kas, oldest first."""
        found: list[dict[str, Any]] = []
        paths = sorted(self.folder.glob("clusters/*.jsonl*"), reverse=True)
        for path in paths:
            found += map(json.loads, path.read_text().splitlines())
        return found

    def ids(self) -> list[str]:
        """Return the audit ids of these lines."""
        return [one["id"] for one in self.lines()]


def in_one_thread(monkeypatch: Any) -> None:
    """Call blocking functions at once."""
    for one in (follower, webhook, server):
        monkeypatch.setattr(one, "deferToThread", maybeDeferred)
