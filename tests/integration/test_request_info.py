"""Our reading of requests against that of the API server, told by its audit log."""

from __future__ import annotations

import random
import uuid

from tests.integration.cluster import ControlPlane
from tests.integration.rawhttp import Way
from tunnel.kubernetes import request_info

#: Requests in all.
COUNT = 400

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "FOO")

#: Of what paths are made: where a segment stands decides what it means.
SEGMENTS = (
    *("api", "apis", "v1", "apps", "namespaces", "pods", "services", "nodes"),
    *("exec", "proxy", "watch", "status", "finalize", "log", "deployments"),
    *("a", "namespaces", "%65xec", "a%2Fb", "w%61tch", "x%20y", "", "%C3%A9"),
)

QUERIES = (
    *("", "watch=true", "watch", "watch=0", "watch=False", "w%61tch=x"),
    *("watch=&watch=0", "watch=1;", "watch=%zz", "fieldSelector=metadata.name%3Dx"),
    *("fieldSelector=metadata.name=x,spec.a=b&limit=1", "limit=ten&watch=true"),
    *("fieldSelector=metadata.name%3Dx&limit=ten", "fieldSelector=metadata.name!=x"),
    "fieldSelector=spec.nodeName==n,metadata.name==y%5C%2Cz",
)

#: The forms that matter, with and without a namespace.
FORMS = (
    *("/api/v1/{0}", "/api/v1/{0}/{1}", "/api/v1/{0}/{1}/{2}"),
    "/api/v1/{0}/{1}/{2}/{3}",
    *("/apis/apps/v1/{0}/{1}", "/apis/apps/v1/namespaces/{0}/{1}/{2}/{3}"),
    *("/api/v1/namespaces/{0}/{1}", "/api/v1/namespaces/{0}/{1}/{2}"),
    *("/api/v1/namespaces/{0}/{1}/{2}/{3}", "/api/v1/watch/{0}/{1}/{2}"),
    *("/api/v1/proxy/{0}/{1}/{2}", "/{0}/{1}/{2}/{3}", "/{0}", "/apis/{0}/{1}"),
)


def requests() -> list[tuple[str, str]]:
    """Methods and targets, the same in every run."""
    chosen = random.Random(11)
    found = []
    for _ in range(COUNT):
        path = chosen.choice(FORMS).format(*chosen.choices(SEGMENTS, k=4))
        # A host of its own to Go's reader, and no path.
        path = "/" + path.lstrip("/")
        found.append((chosen.choice(METHODS), f"{path}?{chosen.choice(QUERIES)}"))
    return found


def test_equal_in_all(ways: dict[str, Way], control_plane: ControlPlane) -> None:
    """Verb, namespace, resource, subresource and name of some hundred requests."""
    audit = control_plane.audit()
    run = uuid.uuid4().hex
    way = ways["direct"]
    sent = {}
    for number, (method, target) in enumerate(requests()):
        mark = f"{run}-{number}-"
        # As a user without any right: nothing is done, and nothing lasts.
        way.ask(method, f"{target}&{mark}", "Impersonate-User: stranger")
        sent[mark] = method, target
    audit.wait_for(f"{run}-{COUNT - 1}-")
    read = {}
    for event in audit.about(run):
        mark = event["requestURI"].rpartition("&")[2]
        found = event.get("objectRef", {})
        read[mark] = (
            event["verb"],
            *(found.get(name, "") for name in ("apiGroup", "apiVersion")),
            *(found.get(name, "") for name in ("namespace", "resource")),
            *(found.get(name, "") for name in ("name", "subresource")),
        )
    wrong: list[object] = []
    for mark, (method, target) in sent.items():
        ours = request_info(method.encode(), f"{target}&{mark}".encode())
        if mark not in read:
            # It could not be read there, and got an error before any right was asked.
            if ours.verb or not ours.path.startswith(("/api/", "/apis/")):
                wrong.append((method, target, ours, "not in the log"))
            continue
        expected = (
            *(ours.verb, ours.group, ours.version),
            *(ours.namespace, ours.resource, ours.name, ours.subresource),
        )
        if read[mark] != expected:
            wrong.append((method, target, expected, read[mark]))
    assert not wrong, "\n".join(map(str, wrong[:20]))
    assert len(read) > 0.9 * COUNT
