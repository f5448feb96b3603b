"""Requests with agentk's own rights in its own namespace."""

from __future__ import annotations

import pytest
from zope.interface.verify import verifyObject

from tunnel.api import IOwnNamespace
from tunnel.kubernetes import OwnNamespace, OwnNamespaceRefusal

OWN = "/api/v1/namespaces/txkas"

READS = [
    ("GET", OWN),
    ("GET", f"{OWN}/pods"),
    ("GET", f"{OWN}/configmaps/inventory-a"),
    ("GET", f"{OWN}/pods/agentk-0/log?follow=true"),
    ("HEAD", f"{OWN}/pods"),
    ("GET", "/apis/apps/v1/namespaces/txkas/deployments?watch=true"),
    ("GET", "/api/v1/watch/namespaces/txkas/pods"),
]
OF_OTHERS = [
    ("POST", "/api/v1/namespaces/txkas-2/pods"),
    ("GET", "/api/v1/namespaces/apps/secrets/txkas"),
    ("DELETE", "/api/v1/namespaces/apps/secrets"),
    ("POST", "/api/v1/namespaces/apps/pods/a%20b/exec?command=txkas"),
    ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ("PATCH", "/apis/x.example/v1/txkas/secrets"),
    ("GET", "/apis/x.example/v1/secrets"),
    ("GET", "/version"),
]
SECRETS = [
    ("GET", f"{OWN}/secrets"),
    ("HEAD", f"{OWN}/secrets/agentk-token"),
    ("GET", f"{OWN}/secrets?watch=true"),
    ("GET", "/api/v1/watch/namespaces/txkas/secrets"),
    ("POST", f"{OWN}/secrets"),
    ("PUT", f"{OWN}/secrets/gitops-orders-a"),
    ("PATCH", f"{OWN}/secrets/gitops-orders-a"),
    ("DELETE", f"{OWN}/secrets/gitops-orders-a"),
    ("DELETE", f"{OWN}/secrets?labelSelector=txkas/gitops-of"),
]
WRITES = [
    ("POST", f"{OWN}/configmaps"),
    ("PATCH", f"{OWN}/configmaps/agentk-file"),
    ("DELETE", f"{OWN}/configmaps"),
    ("POST", f"{OWN}/serviceaccounts/agentk/token"),
    ("POST", f"{OWN}/pods"),
    ("POST", f"{OWN}/pods/agentk-0/exec?command=cat"),
    ("GET", f"{OWN}/pods/agentk-0/exec?command=cat"),
    ("GET", f"{OWN}/pods/agentk-0/attach"),
    ("GET", f"{OWN}/pods/agentk-0/proxy/metrics"),
    ("PATCH", f"{OWN}/pods/agentk-0/ephemeralcontainers"),
    ("POST", "/api/v1/nodes/n1/proxy/exec/txkas/agentk-0/agentk?command=cat"),
    ("GET", "/api/v1/nodes/n1/proxy/run/txkas/agentk-0/agentk"),
    ("DELETE", OWN),
    ("PATCH", OWN),
    ("PUT", f"{OWN}/finalize"),
    ("PATCH", "/apis/apps/v1/namespaces/txkas/deployments/agentk"),
    ("POST", "/apis/batch/v1/namespaces/txkas/jobs"),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/txkas/rolebindings"),
    ("PUT", "/apis/rbac.authorization.k8s.io/v1/namespaces/txkas/roles/agentk-gitops"),
    ("PUT", "/apis/coordination.k8s.io/v1/namespaces/txkas/leases/agent-1-lock"),
]
#: As servers before an API server may read them.
HIDDEN = [
    ("GET", "/api/v1/namespaces/%74xkas/%73ecrets"),
    ("GET", "/api/v1/namespaces/apps/../txkas/secrets"),
    ("GET", "/api/v1/namespaces/apps/%2e%2e/txkas/secrets"),
    ("GET", "/api//v1/./namespaces/txkas//secrets"),
    ("GET", "/api/v1/namespaces/txkas;a=b/secrets;c"),
    ("GET", "/api/v1/namespaces/apps/services/a/proxy/..%2f..%5c..%2f../txkas/secrets"),
]


def ask(method: str, target: str, own: OwnNamespace | None = None) -> str:
    """What is asked for in the place of *target*."""
    own = own or OwnNamespace("txkas", is_closed=True)
    return own.checked(method.encode(), target.encode()).decode()


def test_interface() -> None:
    """Modules are told of all of it."""
    verifyObject(IOwnNamespace, OwnNamespace("txkas"))


@pytest.mark.parametrize(("method", "target"), [*READS, *OF_OTHERS])
def test_allowed(method: str, target: str) -> None:
    """Reading there, and everything elsewhere, is asked as it is."""
    assert ask(method, target) == target


@pytest.mark.parametrize(("method", "target"), [*SECRETS, *HIDDEN])
def test_secrets(method: str, target: str) -> None:
    """Secrets there are neither read nor written, however the path is spelled."""
    with pytest.raises(OwnNamespaceRefusal, match="Secrets are neither") as caught:
        ask(method, target)
    for part in ("namespace txkas", "--as", "access_as", "allow_own_namespace: true"):
        assert part in str(caught.value)


@pytest.mark.parametrize(("method", "target"), WRITES)
def test_writes(method: str, target: str) -> None:
    """Nothing else is changed or run there."""
    with pytest.raises(OwnNamespaceRefusal, match="nothing is changed or run"):
        ask(method, target)


def test_upgrades() -> None:
    """Of them only a watch passes."""
    own = OwnNamespace("txkas", is_closed=True)
    own.checked(b"GET", f"{OWN}/pods?watch=true".encode(), True)
    with pytest.raises(OwnNamespaceRefusal):
        own.checked(b"GET", f"{OWN}/pods/a/log".encode(), True)


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        ("", "metadata.namespace%21%3Dtxkas"),
        ("?", "metadata.namespace%21%3Dtxkas"),
        ("?limit=5&continue=a", "metadata.namespace%21%3Dtxkas&limit=5&continue=a"),
        ("?watch=1", "metadata.namespace%21%3Dtxkas&watch=1"),
        (
            "?fieldSelector=type%3DOpaque&limit=1&fieldSelector=a",
            "metadata.namespace%21%3Dtxkas%2Ctype%3DOpaque&limit=1",
        ),
        # A backslash takes nothing of ours in, and an escape hides no second selector.
        (
            "?field%53elector=a%3Db%5C",
            "metadata.namespace%21%3Dtxkas%2Ca%3Db%5C",
        ),
    ],
)
def test_all_secrets(query: str, sent: str) -> None:
    """A list or watch of all leaves out those there."""
    for path in ("/api/v1/secrets", "/api/v1/watch/secrets", "/api/v1//secrets"):
        assert ask("GET", path + query) == f"{path}?fieldSelector={sent}"


def test_who_acts_as_agentk() -> None:
    """A user of another name does not, and a service account beside agentk may."""
    own = OwnNamespace("txkas")
    assert own.acts_as_agentk("")
    assert own.acts_as_agentk("system:serviceaccount:txkas:agentk")
    assert not own.acts_as_agentk("system:serviceaccount:txkas-2:agentk")
    assert not own.acts_as_agentk("alice")


def test_outside_of_the_cluster() -> None:
    """The namespace is closed only once a module keeps records there."""
    own = OwnNamespace("default")
    target = "/api/v1/namespaces/default/secrets"
    assert ask("GET", target, own) == target
    assert own.keep_records() == "default"
    assert own.records == set()
    assert own.keep_records("lists") == "default"
    assert own.records == {"lists"}
    with pytest.raises(OwnNamespaceRefusal):
        ask("GET", target, own)


def test_left_open() -> None:
    """The operator may leave it open."""
    own = OwnNamespace("txkas", is_closed=True, may_close=False)
    own.keep_records()
    assert ask("DELETE", OWN, own) == OWN
