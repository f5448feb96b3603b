"""The admission webhook beside a cluster in memory."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from agentk.config import AdmissionSettings
from agentk.policy.admission import server
from agentk.policy.admission.certificates import LIFE, OVERLAP, RENEW_BEFORE
from agentk.policy.admission.registration import Registration
from agentk.policy.admission.webhook import LOOK_SECONDS, AdmissionWebhook
from agentk.policy.floor import WEBHOOK_SECRET
from agentk.policy.guard import PolicyGuard
from agentk.policy.via import Via
from tests.agentk.policy.admission.test_reviews import review
from tests.agentk.policy.world import PolicyWorld
from tunnel.api import KubernetesResource
from tunnel.config import Invalid
from tunnel.kubernetes import KubernetesClients

POLICY = """\
kind: AgentPolicy
identities: {users: ["*@example.org"], groups: [ops]}
rules:
- {name: own, allow: ["*"], resources: [configmaps], namespaces: [shop]}
- name: friday
  deny: ["*"]
  resources: [configmaps]
  names: [keep]
  window: {days: [Fri], from: "16:00", to: "18:00", zone: UTC}
"""

SECRET = f"/api/v1/namespaces/txkas/secrets/{WEBHOOK_SECRET}"
REGISTERED = (
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/"
    "agentk-policy-txkas"
)


class FakeListening:
    """The ports of agentk: remembers what was opened."""

    def __init__(self) -> None:
        self.opened: list[tuple[Any, Any]] = []

    async def listen(self, listen: Any, factory: Any, **rest: Any) -> None:
        self.opened.append((listen, factory))


class WebhookWorld(PolicyWorld):
    """A policy, and its webhook."""

    def __init__(self, folder: Path, policy: str = POLICY) -> None:
        super().__init__(folder, policy)
        self.cluster.objects.add_kind(
            KubernetesResource(
                "admissionregistration.k8s.io",
                "v1",
                "ValidatingWebhookConfiguration",
                "validatingwebhookconfigurations",
                False,
            )
        )
        self.listening = FakeListening()
        self.start()
        self.webhook = self.replica(self.guard)

    def replica(self, guard: PolicyGuard, **settings: Any) -> AdmissionWebhook:
        """Return the webhook of one replica of agentk."""
        chosen = AdmissionSettings(**settings or {"service": "agentk"})
        own = KubernetesClients(
            self.cluster, self.pool, self.clock, jitter=lambda: 0.5
        ).as_agentk()
        return AdmissionWebhook(
            chosen,
            guard,
            Registration(own, "txkas", chosen),
            self.listening,  # type: ignore[arg-type]
            self.clock,
            self.now,
        )

    @property
    def hook(self) -> Any:
        """The registered webhook."""
        found = self.cluster.objects.find(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            "agentk-policy-txkas",
            "",
        )
        assert found is not None
        [hook] = found["webhooks"]
        return hook

    @property
    def accepted(self) -> list[bytes]:
        """The certificates that the API server accepts."""
        bundle = base64.b64decode(self.hook["clientConfig"]["caBundle"])
        end = b"-----END CERTIFICATE-----\n"
        return [one + end for one in bundle.split(end) if one]

    @property
    def presented(self) -> bytes:
        """The file with the certificate and the key."""
        data: bytes = self.listening.opened[0][0].certificate_file.read_bytes()
        return data

    def ask(self, path: str = "", body: bytes | None = None, **request: Any) -> Any:
        """Send a review over HTTP, and return status and response."""
        _, factory = self.listening.opened[0]
        if body is None:
            body = json.dumps(review(**request)).encode()
        path = path or self.hook["clientConfig"]["service"]["path"]
        protocol, transport = factory.buildProtocol(None), StringTransport()
        protocol.makeConnection(transport)
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        protocol.dataReceived(head.encode() + body)
        self.clock.advance(0)
        first, _, rest = transport.value().partition(b"\r\n\r\n")
        protocol.connectionLost(Failure(ConnectionError()))
        return int(first.split()[1]), json.loads(rest)


@pytest.fixture
def world(tmp_path: Path) -> Any:
    """A webhook that is registered."""
    made = WebhookWorld(tmp_path)
    made.run(made.webhook.start())
    assert made.webhook.problem == ""
    yield made
    made.webhook.stop()


def test_registration(world: WebhookWorld) -> None:
    """Requests of others do not match, and so do not depend on agentk."""
    hook = world.hook
    assert hook["failurePolicy"] == "Fail" and hook["timeoutSeconds"] == 3
    [condition] = hook["matchConditions"]
    assert (
        '"txkas" in request.userInfo.extra["txkas.dev/via"]'
        in (condition["expression"])
    )
    service = hook["clientConfig"]["service"]
    assert (service["namespace"], service["name"]) == ("txkas", "agentk")
    [listen, _] = world.listening.opened[0]
    assert listen.address == ":8443"
    mode = listen.key_file.stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    [certificate] = world.accepted
    assert world.presented.startswith(certificate)
    # Another client removes it.
    world.cluster.objects.remove(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "agentk-policy-txkas",
        "",
    )
    world.clock.advance(LOOK_SECONDS)
    assert world.hook["clientConfig"]


def test_decisions(world: WebhookWorld) -> None:
    """Windows count, and names that only the object has."""
    object_ = {"metadata": {"name": "x"}}
    status, said = world.ask(object=object_)
    assert (status, said["response"]["allowed"]) == (200, True)
    assert said["response"]["auditAnnotations"] == {"rule": "own"}
    _, said = world.ask(object={"metadata": {"name": "keep"}})
    assert said["response"]["status"]["message"] == (
        "the policy of the cluster's owner: the rule 'friday' denies it"
    )
    _, said = world.ask(object=object_, namespace="other")
    assert "no rule permits it" in said["response"]["status"]["message"]
    world.clock.advance(3600)
    assert world.ask(object={"metadata": {"name": "keep"}})[1]["response"]["allowed"]
    user = {"username": "mallory", "groups": []}
    _, said = world.ask(object=object_, userInfo=user)
    assert "kas may not claim" in said["response"]["status"]["message"]
    assert dict(world.guard.admissions) == {"allowed": 2, "denied": 3}


def test_questions_about_own_rights(world: WebhookWorld) -> None:
    """``kubectl auth can-i`` needs them, and no rule."""
    for resource, group in (
        ("selfsubjectaccessreviews", "authorization.k8s.io"),
        ("selfsubjectreviews", "authentication.k8s.io"),
    ):
        kind = {"group": group, "version": "v1", "resource": resource}
        _, said = world.ask(resource=kind, namespace="")
        assert said["response"]["allowed"], resource
    kind = {
        "group": "authorization.k8s.io",
        "version": "v1",
        "resource": "subjectaccessreviews",
    }
    assert not world.ask(resource=kind, namespace="")[1]["response"]["allowed"]


def test_warnings(tmp_path: Path) -> None:
    world = WebhookWorld(tmp_path, f"mode: warn\n{POLICY}")
    world.run(world.webhook.start())
    _, said = world.ask(namespace="other")
    assert said["response"]["allowed"] and said["response"]["warnings"]
    world.webhook.stop()


def test_without_a_policy(tmp_path: Path) -> None:
    """A policy that cannot be used denies everything here, too."""
    world = WebhookWorld(tmp_path, "rules: 1")
    world.run(world.webhook.start())
    _, said = world.ask()
    assert not said["response"]["allowed"]
    world.webhook.stop()


def test_strangers(world: WebhookWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request with another path gets 404, whatever its body is."""
    token = world.hook["clientConfig"]["service"]["path"].rpartition("/")[2]
    assert len(token) == 32 and token not in repr(world.webhook)
    for path in ("/", "/admit/", f"/admit/{'0' * 32}", f"/admit/{token}/x"):
        assert world.ask(path)[0] == 404
    assert world.ask(body=b"{")[0] == 400
    assert world.ask(body=b"[" * 100_000)[0] == 400
    monkeypatch.setattr(server, "MAX_REVIEW", 100)
    assert world.ask(body=b" " * 101)[0] == 413
    monkeypatch.setattr(server, "MAX_BODIES", 50)
    assert world.ask(body=b" " * 60)[0] == 503
    # Nothing is left of them.
    monkeypatch.setattr(server, "MAX_REVIEW", 10_000)
    monkeypatch.setattr(server, "MAX_BODIES", 10_000)
    assert world.ask(object={"metadata": {"name": "x"}})[0] == 200


def test_rotation(world: WebhookWorld) -> None:
    """The API server knows the next certificate for an hour before its first use."""
    [first] = world.accepted
    world.day += (LIFE - RENEW_BEFORE).total_seconds()
    world.clock.advance(LOOK_SECONDS)
    assert len(world.accepted) == 2 and world.presented.startswith(first)
    _, second = world.accepted
    world.day += OVERLAP.total_seconds()
    world.clock.advance(LOOK_SECONDS)
    assert world.presented.startswith(second)
    assert set(world.accepted) == {first, second}


def test_replicas(world: WebhookWorld) -> None:
    """They share certificate and path."""
    other = world.replica(world.guard)
    world.run(other.start())
    assert len(world.listening.opened) == 2
    files = [listen.key_file.read_bytes() for listen, _ in world.listening.opened]
    assert files[0] == files[1]
    other.stop()
    assert world.ask()[0] == 200


def test_a_damaged_secret(world: WebhookWorld) -> None:
    """It is replaced, because nobody else needs its content."""
    before = world.accepted
    secret = world.cluster.objects.find("v1", "Secret", WEBHOOK_SECRET, "txkas")
    assert secret is not None
    secret["data"].pop("current.key")
    world.cluster.objects.put(secret)
    world.clock.advance(LOOK_SECONDS)
    assert world.webhook.problem == ""
    assert world.accepted != before
    assert world.presented.startswith(world.accepted[0])
    assert world.ask()[0] == 200


def test_missing_permissions(tmp_path: Path) -> None:
    world = WebhookWorld(tmp_path)
    world.cluster.answer("GET", SECRET, {"message": "no"}, 403)
    world.run(world.webhook.start())
    assert "agentk-policy render rbac --webhook" in world.webhook.problem
    assert world.listening.opened == []
    world.cluster.answer("GET", SECRET, {"message": "gone"}, 404)
    world.clock.advance(LOOK_SECONDS)
    assert world.webhook.problem == ""
    world.webhook.stop()


def test_marks(tmp_path: Path) -> None:
    """Requests of users leave agentk with the mark, and agentk's own without it."""
    world = WebhookWorld(tmp_path)
    world.guard.via = Via("txkas")
    for fields in (b"\r\nHost: a", b"\r\nImpersonate-User: alice\r\nHost: a"):
        assert (b"txkas.dev%2Fvia: txkas" in world.guard.marked(fields)) == (
            b"User" in fields
        )
    world.guard.via = None
    assert b"via" not in world.guard.marked(b"\r\nImpersonate-User: alice")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"service": "a", "url": "https://a"},
        {"url": "http://a"},
        {"url": "https://a/path"},
        {"url": "https://"},
    ],
    ids=range(5),
)
def test_settings(settings: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        AdmissionSettings(**settings)
