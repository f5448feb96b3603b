"""What a request means, from its bytes."""

from __future__ import annotations

import pytest

from agentk.policy.questions import (
    AGENTK,
    Identity,
    Question,
    identity_of,
    questions_of,
)
from tunnel.kubernetes import Purpose, RequestOrigin

KUBECTL = RequestOrigin("kubernetes_api", Purpose.CALLER)


def asked(
    method: str, target: str, fields: bytes = b"", upgrade: bool = False
) -> list[Question]:
    """Return the meanings of a request."""
    return list(
        questions_of(
            KUBECTL,
            identity_of(fields),
            method.encode(),
            target.encode(),
            fields,
            upgrade,
        )
    )


def test_exec_is_create() -> None:
    """A WebSocket, which is a GET request, is judged as the POST of SPDY."""
    target = "/api/v1/namespaces/a/pods/web/exec?command=sh&command=-c&stdin=true"
    for method in "GET", "POST":
        [one] = asked(method, target, upgrade=True)
        assert (one.verb, one.resource, one.subresource) == ("create", "pods", "exec")
        assert one.argv0 == "sh"


@pytest.mark.parametrize(
    ("target", "namespace", "name", "covers"),
    [
        ("/api/v1/pods", "", "", True),
        ("/api/v1/nodes", "", "", False),
        ("/api/v1/namespaces/a/pods", "a", "", False),
        ("/api/v1/pods?fieldSelector=metadata.name%3Dweb", "", "web", True),
        ("/api/v1/watch/namespaces/a/pods/web", "a", "web", False),
        ("/api/v1/namespaces/a", "a", "a", False),
    ],
)
def test_places(target: str, namespace: str, name: str, covers: bool) -> None:
    """The namespace, the name, and whether every namespace is concerned."""
    [one] = asked("GET", target)
    assert (one.namespace, one.name, one.covers_namespaces) == (namespace, name, covers)


def test_spellings() -> None:
    """A path that servers read in two ways asks two questions."""
    for target in (
        "/api/v1/namespaces/a/services/x/proxy/../../../../b/secrets/db",
        "/api/v1/namespaces/a/services/x/proxy/%2e%2e/..%5c..//../b/secrets/db",
    ):
        first, second = asked("GET", target)
        assert (first.subresource, second.resource) == ("proxy", "secrets")
        assert (second.namespace, second.name) == ("b", "db")
    # The API server itself decodes %2F.
    assert asked("GET", "/api/v1/namespaces/a%2Fsecrets/db")[0].resource == "secrets"


def test_apply_may_create() -> None:
    """Server-side apply needs both verbs; other patches do not."""
    target = "/api/v1/namespaces/a/configmaps/x?fieldManager=me"
    apply = b"\r\nContent-Type: application/Apply-patch+yaml"
    merge = b"\r\nContent-Type: application/merge-patch+json"
    assert [one.verb for one in asked("PATCH", target, apply)] == ["patch", "create"]
    assert [one.verb for one in asked("PATCH", target, merge)] == ["patch"]


@pytest.mark.parametrize(
    ("target", "verbs"),
    [
        ("/api/v1/namespaces/a/configmaps/x", ["update", "create"]),
        ("/apis/apps/v1/namespaces/a/deployments/x", ["update", "create"]),
        ("/api/v1/namespaces/a", ["update", "create"]),
        ("/apis/apps/v1/namespaces/a/deployments/x/scale", ["update"]),
        ("/api/v1/namespaces/a/finalize", ["update"]),
        ("/api/v1/namespaces/a/pods/x/proxy", ["update"]),
        ("/logs/x", ["put"]),
    ],
)
def test_put_may_create(target: str, verbs: list[str]) -> None:
    """PUT of an object needs both verbs, with its name; subresources exist."""
    found = asked("PUT", target)
    assert [one.verb for one in found] == verbs
    assert len({one.name for one in found}) == 1


def test_discovery() -> None:
    """Discovery and reviews of oneself are known; nothing else is."""
    for method, target in (
        ("GET", "/apis"),
        ("GET", "/openapi/v3?timeout=32s"),
        ("GET", "/version"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ):
        assert all(one.discovers for one in asked(method, target)), target
    for method, target in (
        ("GET", "/metrics"),
        ("POST", "/version"),
        ("GET", "/apis/../metrics"),
        ("GET", "/api/v1/pods"),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
        (
            "POST",
            "/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews",
        ),
    ):
        assert not all(one.discovers for one in asked(method, target)), target
    # Other servers upgrade such requests.
    assert not asked("GET", "/version", upgrade=True)[0].discovers


def test_identity() -> None:
    """Fields of any case count, and values without spaces around them."""
    found = identity_of(
        b"\r\nAccept: */*\r\niMPERSONATE-user:  alice \r\nimpersonate-Group: dev"
        b"\r\nImpersonate-Group: ops\r\nImpersonate-Uid: 1"
        b"\r\nImpersonate-Extra-Example.org%2FTeam: x\r\nHost: a"
        b"\r\nImpersonate-Extra-txkas.dev%2FVia: x"
    )
    assert (found.user, found.named, found.problem) == ("alice", ("dev", "ops"), "")
    assert found.groups == ("dev", "ops", "system:authenticated")
    assert found.extra == ("example.org/team",)
    assert identity_of(b"\r\nAccept: impersonate-user: x\r\nHost: a") == AGENTK


@pytest.mark.parametrize(
    "user",
    [
        "system:serviceaccount:a",
        "system:serviceaccount:a:b:c",
        "system:serviceaccount:A:b",
        "system:serviceaccount:a.b:c",
        "system:serviceaccount:a:-b",
        "system:serviceaccount:a:b..c",
        f"system:serviceaccount:{64 * 'a'}:b",
        f"system:serviceaccount:a:{254 * 'b'}",
        "system:serviceaccount:a:b\n",
        "x system:serviceaccount:a:b",
    ],
)
def test_users_like_service_accounts(user: str) -> None:
    """The API server takes these names for users, who have no more groups."""
    assert Identity(user).groups == ("system:authenticated",)


@pytest.mark.parametrize(
    "fields",
    [
        b"\r\nImpersonate-Group: system:masters",
        b"\r\nImpersonate-User:\r\nImpersonate-Group: dev",
        b"\r\nImpersonate-User: a\r\nImpersonate-User: b",
        b"\r\nImpersonate-Nobody: x\r\nImpersonate-User: a",
        b"\r\nImpersonate_User: a\r\nImpersonate-User: b",
    ],
)
def test_uncertain_identities(fields: bytes) -> None:
    """What two servers could read in two ways is refused."""
    assert identity_of(fields).problem


def test_texts() -> None:
    """A denial shows the request in words."""
    texts = [
        asked(method, target)[0].what
        for method, target in (
            ("POST", "/api/v1/namespaces/a/pods/web/exec"),
            ("GET", "/apis/apps/v1/deployments"),
            ("DELETE", "/api/v1/nodes/n"),
            ("GET", "/metrics"),
        )
    ]
    assert texts == [
        'create pods/exec "web" in the namespace "a"',
        "list deployments.apps in all namespaces",
        'delete nodes "n"',
        "get /metrics",
    ]
    service = Question.to_service(KUBECTL, "a", "web", 80)
    assert service.what == 'connect services "web" in the namespace "a", port 80'
