"""Questions about AdmissionReviews, and responses."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from agentk.policy.admission.reviews import alternatives, response
from agentk.policy.engine import PolicyDecision
from agentk.policy.floor import Floor
from tunnel.kubernetes import Purpose


def review(**request: Any) -> dict[str, Any]:
    """Return a review, as API servers send it."""
    user = {
        "username": "alice@example.org",
        "groups": ["ops", "system:authenticated"],
        "extra": {"txkas.dev/via": ["txkas"], "team": ["a"]},
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "operation": "CREATE",
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "namespace": "shop",
            "userInfo": user,
            **request,
        },
    }


def asked(**request: Any) -> list[tuple[str, ...]]:
    """Return verb, resource, subresource and name of each alternative."""
    uid, found = alternatives(review(**request), ())
    assert uid == "1"
    return [(one.verb, one.resource, one.subresource, one.name) for one in found]


def test_operations() -> None:
    create = {"metadata": {"name": "x"}}
    assert asked(object=create) == [("create", "configmaps", "", "x")]
    assert asked(object={"metadata": {"generateName": "x-"}}) == [
        ("create", "configmaps", "", "")
    ]
    update = {"operation": "UPDATE", "name": "x"}
    assert [one[0] for one in asked(**update)] == ["update", "patch"]
    for kind, verb in (("UpdateOptions", "update"), ("PatchOptions", "patch")):
        assert [one[0] for one in asked(**update, options={"kind": kind})] == [verb]
    assert asked(operation="DELETE", name="x") == [("delete", "configmaps", "", "x")]
    # Each object of a deletecollection.
    assert asked(operation="DELETE", oldObject=create) == [
        ("deletecollection", "configmaps", "", "x")
    ]


def test_connections() -> None:
    pods = {"group": "", "version": "v1", "resource": "pods"}
    of_pod = {"operation": "CONNECT", "resource": pods, "name": "web"}
    options = {"kind": "PodExecOptions", "command": ["sh", "-c", "x"]}
    _, found = alternatives(review(**of_pod, subResource="exec", object=options), ())
    assert [(one.verb, one.subresource, one.argv0) for one in found] == [
        ("create", "exec", "sh")
    ]
    proxied = asked(**of_pod, subResource="proxy", object={"kind": "PodProxyOptions"})
    assert {one[0] for one in proxied} == {"get", "create", "update", "patch", "delete"}


@pytest.mark.parametrize(
    ("path", "is_permitted"),
    [
        ("metrics", True),
        ("/metrics/cadvisor", True),
        ("/exec/a/b/c", False),
        ("/metrics/../exec", False),
        ("", False),
    ],
)
def test_the_kubelet(path: str, is_permitted: bool) -> None:
    """Its metrics are permitted, as in a request of agentk itself."""
    nodes = {"group": "", "version": "v1", "resource": "nodes"}
    options = {"kind": "NodeProxyOptions", "path": path}
    of_node = {"operation": "CONNECT", "resource": nodes, "name": "n", "namespace": ""}
    asked = review(**of_node, subResource="proxy", object=options)
    _, found = alternatives(asked, ())
    floor = Floor("txkas", True)
    refused = [one for one in found if one.verb == "get" and floor.why_refused(one)]
    assert bool(refused) is not is_permitted


def test_the_requested_resource() -> None:
    """API servers may convert the object to a version of the webhook."""
    asked_for = {"group": "apps", "version": "v1", "resource": "deployments"}
    [one] = asked(requestResource=asked_for, requestSubResource="scale")
    assert one[:3] == ("create", "deployments", "scale")


def test_identity() -> None:
    """Groups that the API server adds are not claims of kas."""
    _, [one] = alternatives(review(), ())
    assert one.identity.user == "alice@example.org"
    assert one.identity.named == ("ops",)
    assert set(one.identity.groups) == {"ops", "system:authenticated"}
    assert one.identity.extra == ("team",)
    account = {
        "username": "system:serviceaccount:a:b",
        "groups": [
            "system:serviceaccounts",
            "system:serviceaccounts:a",
            "system:authenticated",
        ],
    }
    _, [one] = alternatives(review(userInfo=account), ())
    assert one.identity.named == () and len(one.identity.groups) == 3


def test_modules() -> None:
    """Each module that rules name may have sent the request."""
    _, found = alternatives(review(), {"gitops"})
    origins = [(one.origin.module, one.origin.purpose) for one in found]
    assert origins == [
        ("gitops", Purpose.MODULE),
        ("kubernetes_api", Purpose.CALLER),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        {"request": None},
        {"request": {"uid": "1"}},
        review(operation="READ"),
        review(resource=None),
        review(userInfo=[]),
        review(object=[1]),
    ],
    ids=range(9),
)
def test_not_a_review(wrong: Any) -> None:
    with pytest.raises(ValueError, match="not an AdmissionReview"):
        alternatives(wrong, ())


def test_responses() -> None:
    allowed = PolicyDecision(True, "read")
    said = json.loads(response("1", allowed))
    assert said["response"] == {
        "uid": "1",
        "allowed": True,
        "auditAnnotations": {"rule": "read"},
    }
    denied = PolicyDecision(False, "", "no rule permits it" + "x" * 5000)
    found = json.loads(response("1", denied))["response"]
    assert found["status"]["code"] == 403
    assert len(found["status"]["message"]) < 300
    warned = attrs.evolve(denied, allowed=True)
    found = json.loads(response("1", warned))["response"]
    assert found["allowed"] and len(found["warnings"][0]) <= 250
