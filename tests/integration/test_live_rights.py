"""Every way to rows of live data, compared with what the cluster permits its users."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from tests.integration.cable_client import CableSocket
from tests.integration.cluster import ControlPlane
from tests.integration.processes import eventually
from tests.integration.test_gitops_drift import deployment
from tests.integration.test_live import Live, ask, fetched, live

__all__ = ["live"]

#: Kinds with their group, plural, and the view of ActionCable that has their rows.
KINDS = {
    "Deployment": ("apps", "deployments", "workloads"),
    "Service": ("", "services", "services"),
    "Node": ("", "nodes", "nodes"),
}


class Users:
    """Users with different rights in two namespaces, and what they see."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.spaces = (live.namespace, f"{live.namespace}-b")
        self.tokens: dict[str, str] = {}

    def add(self, name: str) -> None:
        """Add a user of kas who acts as a user of the cluster."""
        file = self.live.kas.folder / f"{name}.token"
        self.live.kas.ctl(
            *("user", "add", name, "--agent", "main", "--as", name),
            *("--token-file", file),
        )
        self.tokens[name] = file.read_text().strip()

    def may(self, name: str, kind: str, namespace: str) -> bool:
        """Return what ``kubectl auth can-i list`` prints."""
        group, plural, _ = KINDS[kind]
        review = {
            "spec": {
                "user": name,
                # The API server adds this group to each user.
                "groups": ["system:authenticated"],
                "resourceAttributes": {
                    "verb": "list",
                    "group": group,
                    "resource": plural,
                    "namespace": namespace,
                },
            }
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = self.live.cluster.call("POST", path, review)
        return bool(answer["status"]["allowed"])

    def expected(self, name: str, kind: str) -> set[tuple[str, str]]:
        """Return namespace and name of the objects of both namespaces that may show."""
        group, plural, _ = KINDS[kind]
        prefix = f"/apis/{group}/v1" if group else "/api/v1"
        spaces = ("",) if kind == "Node" else self.spaces
        found: set[tuple[str, str]] = set()
        for space in spaces:
            if self.may(name, kind, space):
                where = f"/namespaces/{space}" if space else ""
                listed = self.live.cluster.call("GET", f"{prefix}{where}/{plural}")
                found |= {(space, one["metadata"]["name"]) for one in listed["items"]}
        return found

    def by_query(self, name: str, kind: str) -> set[tuple[str, str]]:
        """Return the objects that the query API shows."""
        query = f"objects?kind={kind}&clusters=main"
        return self._own(kind, ask(self.live, query, self.tokens[name])["items"])

    def by_csv(self, name: str, kind: str) -> set[tuple[str, str]]:
        """Return the objects that the query API shows as CSV."""
        query = f"objects?kind={kind}&clusters=main&format=csv"
        text = fetched(self.live, query, self.tokens[name]).decode()
        return self._own(kind, list(csv.DictReader(io.StringIO(text))))

    def by_view(self, name: str, kind: str) -> set[tuple[str, str]]:
        """Return the objects that a view of the query API shows."""
        view = KINDS[kind][2]
        query = f"views/{view}?clusters=main"
        items = ask(self.live, query, self.tokens[name])["items"]
        return self._own(kind, [one for one in items if one["kind"] == kind])

    def by_cable(self, name: str, kind: str) -> set[tuple[str, str]]:
        """Return the objects in the first message of ActionCable."""
        socket = CableSocket(self.live.port, self.live.kas.authority, self.tokens[name])
        try:
            socket.subscribe("ClusterChannel", cluster="main", view=KINDS[kind][2])
            rows = socket.rows()["snapshot"]
        finally:
            socket.close()
        keys = [key.split("/") for key in rows]
        items = [
            {"namespace": key[3], "name": key[4]}
            for key in keys
            if len(key) > 4 and key[2] == kind
        ]
        return self._own(kind, items)

    def _own(self, kind: str, items: Any) -> set[tuple[str, str]]:
        """Leave out what other tests have in other namespaces."""
        found = {(one.get("namespace") or "", one["name"]) for one in items}
        spaces = ("",) if kind == "Node" else self.spaces
        return {one for one in found if one[0] in spaces}


@pytest.fixture
def users(live: Live, control_plane: ControlPlane) -> Iterator[Users]:
    """Two namespaces with a Deployment and a Service each, and five users."""
    made = Users(live)
    other = made.spaces[1]
    control_plane.add_namespace(other)
    for space in made.spaces:
        path = f"/apis/apps/v1/namespaces/{space}/deployments"
        control_plane.call("POST", path, deployment(space))
        service = {
            "metadata": {"name": "web"},
            "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}},
        }
        path = f"/api/v1/namespaces/{space}/services"
        control_plane.call("POST", path, service)
    services = {"apiGroups": [""], "resources": ["services"], "verbs": ["list"]}
    all_kinds = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    for space in made.spaces:
        control_plane.permit("services-only", space, services)
    control_plane.permit("one-space", made.spaces[0], all_kinds)
    # A right to read single objects, and one to watch, are none to list.
    for number, verbs in enumerate((["get"], ["watch"], ["get", "watch"])):
        rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": verbs}
        control_plane.permit(f"no-list-{number}", made.spaces[0], rule)
    binding = {
        "metadata": {"name": f"admin-{live.namespace}"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"kind": "User", "name": "admin-user"}],
    }
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    control_plane.call("POST", bindings, binding)
    for name in ("services-only", "one-space", "nobody", "no-list-2", "admin-user"):
        made.add(name)
    yield made
    control_plane.call("DELETE", f"{bindings}/admin-{live.namespace}")
    control_plane.remove_namespace(other)


def test_each_way_and_each_user(users: Users) -> None:
    """The same rows as the API server lists, and no others."""
    ways = (users.by_query, users.by_csv, users.by_view, users.by_cable)
    everything = {kind: users.expected("admin-user", kind) for kind in KINDS}
    assert len(everything["Deployment"]) == 2 and everything["Node"]
    eventually(
        lambda: all(
            users.by_query("admin-user", kind) == users.expected("admin-user", kind)
            for kind in KINDS
        ),
        60,
        "the rows are in kas",
    )
    shown = 0
    for name, kind, way in product(users.tokens, KINDS, ways):
        expected = users.expected(name, kind)
        assert way(name, kind) == expected, (name, kind, way.__name__)
        shown += len(expected)
    assert shown
    # Numbers and applications follow from the rows that the user may list.
    for name in users.tokens:
        apps = ask(users.live, "applications?clusters=main", users.tokens[name])
        spaces = {
            one["namespace"]
            for one in apps["items"]
            if one["namespace"] in users.spaces
        }
        permitted = {
            space for space in users.spaces if users.may(name, "Deployment", space)
        }
        assert spaces <= permitted, name
        clusters = ask(users.live, "clusters?clusters=main", users.tokens[name])
        has_numbers = "Deployment" in str(clusters["clusters"][0].get("summary", ""))
        assert has_numbers <= users.may(name, "Deployment", ""), name
