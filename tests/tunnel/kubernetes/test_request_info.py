"""How a Kubernetes API server reads a request; tests/integration asks a real one."""

from __future__ import annotations

import pytest

from tunnel.kubernetes.request_info import Lasts, lasts, only_reads, request_info

NAMES = ("verb", "namespace", "resource", "subresource", "name")

# After k8s.io/apiserver, pkg/endpoints/request/requestinfo_test.go.
RESOURCES = [
    ("GET", "/api/v1/namespaces", "list", "", "namespaces", "", ""),
    ("GET", "/api/v1/namespaces/other", "get", "other", "namespaces", "", "other"),
    ("GET", "/api/v1/namespaces/other/pods", "list", "other", "pods", "", ""),
    ("GET", "/api/v1/namespaces/other/pods/foo", "get", "other", "pods", "", "foo"),
    ("HEAD", "/api/v1/namespaces/other/pods/foo", "get", "other", "pods", "", "foo"),
    ("GET", "/api/v1/pods", "list", "", "pods", "", ""),
    ("POST", "/api/v1/pods", "create", "", "pods", "", ""),
    ("GET", "/api/v1/proxy/namespaces/o/pods/foo", "proxy", "o", "pods", "", "foo"),
    ("GET", "/api/v1/proxy/namespaces/o/pods/f/a", "proxy", "o", "pods", "", "f"),
    ("GET", "/api/v1/watch/pods", "watch", "", "pods", "", ""),
    ("GET", "/api/v1/watch/namespaces/o/pods/f", "watch", "o", "pods", "", "f"),
    ("GET", "/api/v1/pods?watch=true", "watch", "", "pods", "", ""),
    ("GET", "/api/v1/pods?watch", "watch", "", "pods", "", ""),
    ("GET", "/api/v1/pods?watch=&watch=false", "watch", "", "pods", "", ""),
    ("GET", "/api/v1/pods?w%61tch=True", "watch", "", "pods", "", ""),
    ("GET", "/api/v1/pods?watch=FALSE", "list", "", "pods", "", ""),
    ("GET", "/api/v1/pods?watch=0", "list", "", "pods", "", ""),
    ("GET", "/api/v1/pods?a=%zz&watch=1;&x", "list", "", "pods", "", ""),
    ("GET", "/api/v1/pods/x?watch=1", "get", "", "pods", "", "x"),
    ("GET", "/api/v1/namespaces/o/pods/f/s", "get", "o", "pods", "s", "f"),
    ("GET", "/api/v1/namespaces/o/status", "get", "o", "namespaces", "status", "o"),
    ("PUT", "/api/v1/namespaces/o/finalize",
     "update", "o", "namespaces", "finalize", "o"),
    ("GET", "/api/v1/namespaces/o/exec", "list", "o", "exec", "", ""),
    ("GET", "/api/v1/namespaces/namespaces/pods/namespaces/exec",
     "get", "namespaces", "pods", "exec", "namespaces"),
    ("PATCH", "/apis/apps/v1/namespaces/o/deployments/d",
     "patch", "o", "deployments", "", "d"),
    ("DELETE", "/apis/apps/v1/namespaces/o/deployments",
     "deletecollection", "o", "deployments", "", ""),
    ("DELETE", "/apis/apps/v1/namespaces/o/deployments/d/",
     "delete", "o", "deployments", "", "d"),
    ("OPTIONS", "/api/v1/pods", "", "", "pods", "", ""),
    ("GET", "/api/v1//pods", "get", "", "", "", "pods"),
    ("GET", "/api/v1/namespaces/a%2fb", "list", "a", "b", "", ""),
]  # fmt: skip

# Of a list of pods, which name it asks for.
SELECTORS = [
    ("fieldSelector=metadata.name%3Dx", "x"),
    ("fieldSelector=metadata.name==x,spec.a!=b", "x"),
    (r"fieldSelector=metadata.name=a\,b", "a,b"),
    ("fieldSelector=metadata.name!=x", ""),
    ("fieldSelector=metadata.name=a/b", ""),
    ("fieldSelector=metadata.name=x&limit=ten", ""),
    ("fieldSelector=metadata.name", ""),
    (r"fieldSelector=metadata.name=a\x", ""),
    ("fieldSelector=", ""),
]


@pytest.mark.parametrize(("method", "target", *NAMES), RESOURCES)
def test_resources(
    method: str,
    target: str,
    verb: str,
    namespace: str,
    resource: str,
    subresource: str,
    name: str,
) -> None:
    info = request_info(method.encode(), target.encode())
    assert info.is_resource
    assert [getattr(info, field) for field in NAMES] == [
        *(verb, namespace, resource, subresource, name)
    ]


@pytest.mark.parametrize(("query", "name"), SELECTORS)
def test_selected_name(query: str, name: str) -> None:
    info = request_info(b"GET", f"/api/v1/pods?{query}".encode())
    assert (info.verb, info.name) == ("list", name)


def test_groups_and_versions() -> None:
    info = request_info(b"GET", b"/apis/apps/v1/deployments")
    assert (info.prefix, info.group, info.version) == ("apis", "apps", "v1")
    info = request_info(b"GET", b"/api/v1/pods")
    assert (info.prefix, info.group, info.version) == ("api", "", "v1")


@pytest.mark.parametrize(
    "target",
    [
        *("/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/version"),
        *("/healthz/ping/x/y", "/apisx/a/b/c", "/openapi/v3/apis/apps/v1", "//api//"),
    ],
)
def test_no_resources(target: str) -> None:
    info = request_info(b"GET", target.encode())
    assert (info.is_resource, info.verb, info.path) == (False, "get", target)


POD = "/api/v1/namespaces/a/pods/b"

ALLOWED = [
    ("GET", "/api/v1/namespaces/proxy/pods?watch=1", False),
    ("GET", "/api/v1/namespaces/proxy/pods?watch=1", True),
    ("GET", "/api/v1/namespaces/exec/pods/attach", False),
    ("GET", f"{POD}/log?follow=true", False),
    ("GET", f"{POD}/status", False),
    ("GET", "/apis/apps/v1/namespaces/a/deployments/b/scale", False),
    ("HEAD", "/api", False),
    ("GET", "/apis/apps/v1", False),
    ("GET", "/openapi/v3/apis/apps/v1?hash=1", False),
    ("GET", "/version/", False),
    ("GET", "/livez/ping?verbose", False),
    ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", False),
    ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", False),
]

REFUSED = [
    ("GET", "/api/v1/namespaces/a/pods/namespaces/exec?command=sh", False),
    ("GET", "/api/v1/namespaces/a/pods/namespaces/exec?command=sh", True),
    ("GET", "/api/v1/namespaces/namespaces/pods/namespaces/attach", True),
    ("GET", "/api/v1/namespaces/a/services/namespaces/proxy/x", False),
    ("GET", "/api/v1/nodes/namespaces/proxy/run/a/b/c", False),
    ("GET", "/api/v1/proxy/namespaces/a/pods/b", False),
    ("GET", "/apis/subresources.kubevirt.io/v1/namespaces/a"
     "/virtualmachineinstances/vm/console", True),
    ("GET", "/apis/subresources.kubevirt.io/v1/namespaces/a"
     "/virtualmachineinstances/vm/console", False),
    ("GET", f"{POD}/%65xec", False),
    ("GET", f"{POD}%2fexec", False),
    ("GET", f"{POD}/Attach", False),
    ("GET", f"{POD}/log", True),
    ("GET", POD, True),
    ("GET", f"{POD}/status/../exec", False),
    ("GET", f"{POD}/log/more", False),
    ("GET", f"{POD}//log", False),
    ("GET", "/api/v1/namespaces/a/pods?watch=false", True),
    ("GET", "/api/v1/../../metrics", False),
    ("GET", "/metrics", False),
    ("GET", "/logs/", False),
    ("GET", "/debug/pprof/heap", False),
    ("GET", "/", False),
    ("POST", "/api/v1/namespaces/a/pods", False),
    ("POST", "/api/v1/watch/pods", False),
    ("PUT", f"{POD}/status", False),
    ("PATCH", f"{POD}", False),
    ("DELETE", "/api/v1/namespaces/a", False),
    ("OPTIONS", "/api/v1/pods", False),
    ("get", "/api/v1/pods", False),
    ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", False),
    ("POST", "/apis/authorization.k8s.io/v1/namespaces/a"
     "/selfsubjectaccessreviews", False),
    ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/x", False),
    ("POST", "/apis/example.org/v1/selfsubjectaccessreviews", False),
    ("POST", "/version", False),
]  # fmt: skip


@pytest.mark.parametrize(("method", "target", "upgrade"), ALLOWED)
def test_only_reads(method: str, target: str, upgrade: bool) -> None:
    assert only_reads(method.encode(), target.encode(), upgrade)


@pytest.mark.parametrize(("method", "target", "upgrade"), REFUSED)
def test_may_change_something(method: str, target: str, upgrade: bool) -> None:
    assert not only_reads(method.encode(), target.encode(), upgrade)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"/api/v1/pods?watch=true", True),
        (b"/api/v1/pods?limit=5&watch=1&resourceVersion=3", True),
        (b"/api/v1/pods?watch=false", False),
        (b"/api/v1/pods?watch", True),
        (b"/api/v1/pods?w%61tch=yes", True),
        (b"/api/v1/watch/pods", True),
        (b"/api/v1/pods/x?watch=true", False),
        (b"/version?watch=true", False),
        (b"/api/v1/pods?labelSelector=watch%3Dtrue", False),
        (b"/api/v1/pods?xwatch=true", False),
        (b"/api/v1/namespaces/watch=true/pods", False),
        (b"/api/v1/pods", False),
    ],
)
def test_watches(target: bytes, expected: bool) -> None:
    assert lasts(b"GET", target) is (Lasts.WATCH if expected else Lasts.NO)
    assert lasts(b"POST", target) is Lasts.NO


def test_logs() -> None:
    target = b"/api/v1/namespaces/a/pods/b/log?container=c&follow=true"
    assert lasts(b"GET", target) is Lasts.LOG
    assert lasts(b"GET", target.replace(b"true", b"false")) is Lasts.NO
