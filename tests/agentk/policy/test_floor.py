"""Requests that no policy permits, in every spelling."""

from __future__ import annotations

import pytest

from agentk.policy.floor import STATE_SECRET, Floor
from agentk.policy.questions import AGENTK, Question
from tests.agentk.policy.test_questions import asked
from tunnel.kubernetes import Purpose, RequestOrigin, Right

ROLES = "rbac.authorization.k8s.io"
OBJECTS = frozenset(
    {
        (ROLES, "clusterrolebindings", "", "agentk"),
        (ROLES, "clusterroles", "", "agentk-rights"),
        (ROLES, "rolebindings", "apps", "agentk"),
    }
)
FLOOR = Floor("txkas", True, OBJECTS)

CORE = "/api/v1/namespaces/txkas"
RBAC = f"/apis/{ROLES}/v1"
ADMISSION = "/apis/admissionregistration.k8s.io"


def refused(
    method: str, target: str, fields: bytes = b"", upgrade: bool = False
) -> bool:
    """Whether the floor refuses one of the meanings of a request."""
    found = asked(method, target, fields, upgrade)
    return any(FLOOR.why_refused(one) for one in found)


@pytest.mark.parametrize(
    "request_line",
    [
        # The policy, the keys and the token, by every way to read them.
        f"GET {CORE}/configmaps/agentk-policy",
        f"GET {CORE}/secrets/agentk-token",
        f"GET {CORE}/secrets",
        f"GET {CORE}/secrets?watch=1",
        f"GET {CORE}/secrets?watch=True",
        f"GET {CORE}/configmaps?fieldSelector=metadata.name%3Dagentk-policy",
        "GET /api/v1/watch/namespaces/txkas/configmaps/agentk-policy",
        "GET /api/v1/watch/secrets",
        "GET /api/v1/secrets",
        "GET /api/v1/configmaps?fieldSelector=metadata.name%3Dagentk-policy",
        "GET /api/v1/secrets?fieldSelector=metadata.namespace!%3Dother",
        "GET /api/v1/secrets?fieldSelector=metadata.namespace%3Dtxkas",
        "GET /api/v1/secrets?x=metadata.namespace!%3Dtxkas",
        # Spellings.
        "GET /api/v1//namespaces/txkas/secrets/agentk-token",
        "GET /api/v1/namespaces/txkas%2Fsecrets/agentk-token",
        "GET /api/v1/namespaces/%74xkas/secrets/agentk-token",
        "GET /api/v1/namespaces/a/../txkas/secrets/agentk-token",
        "GET /api/v1/namespaces/a/services/b/proxy/../../../../txkas/secrets",
        "GET /api/v1/namespaces/a/..%2Ftxkas/secrets/agentk-token",
        "GET /api/v1\\namespaces\\txkas\\secrets",
        "HEAD /api/v1/namespaces/txkas/secrets/agentk-token",
        # Changes.
        f"POST {CORE}/secrets",
        f"POST {CORE}/configmaps",
        f"PUT {CORE}/configmaps/agentk-policy",
        f"PATCH {CORE}/configmaps/agentk-policy",
        f"DELETE {CORE}/configmaps/agentk-policy",
        f"DELETE {CORE}/configmaps",
        "DELETE /api/v1/configmaps",
        "DELETE /api/v1/namespaces/txkas",
        "PUT /api/v1/namespaces/txkas/finalize",
        "PATCH /apis/apps/v1/namespaces/txkas/deployments/agentk",
        "PATCH /apis/apps/v1beta2/namespaces/txkas/deployments/agentk/scale",
        "DELETE /apis/apps/v1/namespaces/txkas/replicasets",
        f"PATCH {RBAC}/namespaces/txkas/roles/agentk",
        f"POST {CORE}/serviceaccounts/agentk/token",
        # Programs and connections in agentk's pod.
        f"POST {CORE}/pods/agentk-0/exec?command=sh",
        f"GET {CORE}/pods/agentk-0/exec?command=sh",
        f"POST {CORE}/pods/agentk-0/attach",
        f"GET {CORE}/pods/agentk-0/portforward",
        f"PATCH {CORE}/pods/agentk-0/ephemeralcontainers",
        f"GET {CORE}/pods/agentk-0:8080/proxy/metrics",
        f"GET {CORE}/services/agentk/proxy/",
        "GET /api/v1/proxy/namespaces/txkas/pods/agentk-0",
        f"POST {CORE}/pods/agentk-0/eviction",
        "GET /api/v1/nodes/n/proxy/run/txkas/agentk-0/agentk",
        "POST /api/v1/nodes/n/proxy/exec/other/web/web?command=sh",
        "GET /api/v1/nodes/n/proxy/pods",
        "GET /api/v1/nodes/n:10250/proxy/containerLogs/a/b/c",
        "GET /api/v1/proxy/nodes/n/pods",
        # Its permissions.
        f"PATCH {RBAC}/clusterrolebindings/agentk",
        f"PUT {RBAC}/clusterroles/agentk-rights",
        f"DELETE {RBAC}/clusterroles",
        f"DELETE {RBAC}/namespaces/apps/rolebindings",
        f"DELETE {RBAC}/namespaces/apps/rolebindings/agentk",
        "DELETE /apis/rbac.authorization.k8s.io/v1beta1/clusterrolebindings/agentk",
        # Admission policies.
        f"DELETE {ADMISSION}/v1/validatingadmissionpolicies/agentk-policy-x",
        f"PATCH {ADMISSION}/v1beta1/validatingadmissionpolicybindings/agentk-policy-x",
        f"DELETE {ADMISSION}/v1/validatingadmissionpolicybindings",
    ],
    ids=lambda one: one.replace("/", "_"),
)  # fmt: skip
def test_refused(request_line: str) -> None:
    """No spelling reaches what agentk needs."""
    method, _, target = request_line.partition(" ")
    assert refused(method, target)


@pytest.mark.parametrize(
    "request_line",
    [
        f"GET {CORE}/pods",
        f"GET {CORE}/pods/agentk-0/log",
        "GET /api/v1/pods",
        "GET /api/v1/namespaces/txkas",
        "GET /api/v1/secrets?fieldSelector=metadata.namespace!%3Dtxkas",
        "GET /api/v1/namespaces/other/secrets/x",
        "DELETE /api/v1/namespaces/other/configmaps",
        "GET /api/v1/nodes/n/proxy/metrics/cadvisor",
        f"GET {RBAC}/clusterroles/agentk-rights",
        f"PATCH {RBAC}/clusterroles/other",
        f"POST {RBAC}/clusterroles",
        f"DELETE {RBAC}/namespaces/other/rolebindings",
        f"DELETE {RBAC}/namespaces/other/rolebindings/agentk",
        f"PATCH {ADMISSION}/v1/validatingadmissionpolicies/other",
        f"GET {ADMISSION}/v1/validatingadmissionpolicies/agentk-policy-x",
    ],
    ids=lambda one: one.replace("/", "_"),
)
def test_left_to_the_policy(request_line: str) -> None:
    """Everything else is decided by rules."""
    method, _, target = request_line.partition(" ")
    assert not refused(method, target)


def test_service_of_agentk() -> None:
    """Modules do not connect to agentk itself."""
    origin = RequestOrigin("webhooks", Purpose.MODULE)
    assert FLOOR.why_refused(Question.to_service(origin, "txkas", "agentk", 8080))
    assert not FLOOR.why_refused(Question.to_service(origin, "other", "agentk", 8080))


def test_outside_of_the_cluster() -> None:
    """Only the Secret with the serial is protected."""
    floor = Floor("default", False)
    path = "/api/v1/namespaces/default/secrets"
    for line, expected in (
        (f"PUT {path}/{STATE_SECRET}", True),
        (f"DELETE {path}", True),
        (f"GET {path}/{STATE_SECRET}", False),
        (f"PUT {path}/other", False),
        (f"DELETE /api/v1/namespaces/other/secrets/{STATE_SECRET}", False),
    ):
        method, _, target = line.partition(" ")
        assert bool(floor.why_refused(asked(method, target)[0])) is expected, line


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        (Right("update", "configmaps", namespace="apps", name="inventory-1"), True),
        (Right("list", "configmaps"), True),
        (Right("create", "secrets", namespace="txkas"), True),
        (Right("get", "secrets", namespace="txkas", name="gitops-orders-1"), True),
        (Right("get", "secrets", namespace="apps", name="db"), False),
        (Right("list", "secrets", namespace="txkas"), False),
        (Right("update", "secrets", namespace="txkas", name=STATE_SECRET), False),
        (Right("get", "secrets", namespace="txkas", name="agentk-token"), False),
        (Right("update", "configmaps", namespace="txkas", name="policy"), False),
        (Right("create", "pods", namespace="apps"), False),
        (Right("create", "pods", subresource="exec", namespace="apps"), False),
        (Right("deletecollection", "configmaps", namespace="txkas"), False),
        (Right("watch", "configmaps", namespace="txkas"), False),
        (Right("deletecollection", "secrets", namespace="txkas"), False),
        (Right("watch", "secrets", namespace="txkas"), False),
        (Right("get", "leases", "coordination.k8s.io", namespace="a"), True),
        (Right("get", "leases", "coordination.k8s.io", "x", namespace="a"), False),
        (Right("get", "other", "coordination.k8s.io", namespace="a"), False),
        (Right("update", "leases", "coordination.k8s.io", namespace="a"), False),
    ],
)
def test_records(right: Right, expected: bool) -> None:
    """A module's own records are nothing else."""
    origin = RequestOrigin("gitops", Purpose.RECORDS)
    assert (not FLOOR.why_refused(Question.about(origin, AGENTK, right))) is expected


@pytest.mark.parametrize(
    ("namespace", "expected"), [("txkas", True), ("lists", True), ("other", False)]
)
@pytest.mark.parametrize("verb", ["get", "list", "create", "update", "patch", "delete"])
def test_namespaces_of_records(verb: str, namespace: str, expected: bool) -> None:
    """Records elsewhere, where kas may say so, need rules."""
    floor = Floor("txkas", True, records={"lists"})
    right = Right(verb, "configmaps", namespace=namespace, name="inventory-1")
    for purpose in Purpose:
        question = Question.about(RequestOrigin("gitops", purpose), AGENTK, right)
        is_record = expected and purpose is Purpose.RECORDS
        assert floor.is_record(question) is is_record, purpose


def test_records_everywhere() -> None:
    """A list of all namespaces needs rules, too."""
    origin = RequestOrigin("gitops", Purpose.RECORDS)
    question = Question.about(origin, AGENTK, Right("list", "configmaps"))
    assert not FLOOR.why_refused(question)
    assert not FLOOR.is_record(question)
