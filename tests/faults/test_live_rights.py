"""Live data for users with different rights: each door agrees with the API server."""

from __future__ import annotations

import csv
import io
import json
import secrets
import ssl
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from websockets.exceptions import ConnectionClosed

from tests.faults.record import Record
from tests.integration.cable_client import CableSocket
from tests.integration.cluster import ControlPlane
from tests.integration.processes import eventually
from tests.integration.stack import Agentk, Kas
from tests.integration.test_gitops_drift import deployment
from tests.integration.test_live import SETTINGS
from tools.ports import free_port

NAME = "rights of live data"

#: Seconds until a change of rights shows in each door, and until the connections of a
#: removed user end.
CHANGED, REVOKED = 65, 5

#: Number of pages of one user, each with a live query.
PAGES = 20

_RBAC = "rbac.authorization.k8s.io"


@attrs.frozen
class RightsStand:
    """
    A kas, an agentk, two namespaces with a Deployment each, and users with tokens.
    """

    kas: Kas
    plane: ControlPlane
    port: int
    namespaces: tuple[str, str]
    tokens: Mapping[str, str]

    def allowed(self, user: str, namespace: str = "") -> bool:
        """Return whether a user may list Deployments, as the API server says."""
        attributes = {
            "verb": "list",
            "group": "apps",
            "resource": "deployments",
            "namespace": namespace,
        }
        review = {"spec": {"user": user, "resourceAttributes": attributes}}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(self.plane.call("POST", path, review)["status"]["allowed"])

    def expected(self, user: str) -> set[str]:
        """Return the namespaces whose Deployment a user may see."""
        return {one for one in self.namespaces if self.allowed(user, one)}

    def get(self, user: str, url: str) -> tuple[int, bytes]:
        """Return the status and the body of a response."""
        context = ssl.create_default_context(cafile=self.kas.authority)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=context),
        )
        fields = {"Authorization": f"Bearer {self.tokens[user]}"}
        request = urllib.request.Request(url, headers=fields)
        try:
            with opener.open(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def query(self, user: str, path: str) -> bytes:
        """Return the body of a response of the query API."""
        status, body = self.get(user, f"https://localhost:{self.port}/api/v1/{path}")
        assert status == 200, body
        return body

    def doors(self, user: str) -> dict[str, set[str]]:
        """Return the namespaces whose Deployment a user sees, by door."""
        objects = "objects?kind=deploy&clusters=main"
        listed = json.loads(self.query(user, objects))["items"]
        broken = json.loads(self.query(user, "problems?clusters=main"))["items"]
        table = csv.DictReader(
            io.StringIO(self.query(user, f"{objects}&format=csv").decode())
        )
        named = {
            one
            for one in self.namespaces
            if json.loads(self.query(user, f"{objects}&namespace={one}"))["items"]
        }
        cached = set()
        for one in self.namespaces:
            path = f"cache/apis/apps/v1/namespaces/{one}/deployments"
            status, _ = self.get(
                user, f"https://localhost:{self.kas.proxy}/agents/main/{path}"
            )
            assert status in (200, 403)
            if status == 200:
                cached.add(one)
        found = {
            "objects": {one["namespace"] for one in listed},
            "CSV": {one["namespace"] for one in table},
            "a namespace": named,
            "problems": {one["namespace"] for one in broken if one["kind"] != "Pod"},
            "ClusterChannel": self.rows(user, "ClusterChannel", cluster="main"),
            "ObjectsChannel": self.rows(
                user, "ObjectsChannel", clusters=["main"], kind="deploy"
            ),
            "the cache": cached,
        }
        return {door: spaces & {*self.namespaces} for door, spaces in found.items()}

    def rows(self, user: str, channel: str, **params: Any) -> set[str]:
        """Return the namespaces of the rows of a new subscription."""
        socket = CableSocket(self.port, self.kas.authority, self.tokens[user])
        socket.subscribe(channel, **params)
        rows = socket.rows()["snapshot"]
        socket.close()
        return {key.split("/")[3] for key in rows if "/Deployment/" in key}

    def counts(self, user: str) -> bool:
        """Return whether a user sees the number of all Deployments."""
        (cluster,) = json.loads(self.query(user, "clusters?clusters=main"))["clusters"]
        return "deployments" in cluster.get("summary", {})


@pytest.fixture
def stand(
    tmp_path_factory: pytest.TempPathFactory, control_plane: ControlPlane
) -> Iterator[RightsStand]:
    folder, port = tmp_path_factory.mktemp("rights"), free_port()
    kas = Kas(folder)
    kas.settings = SETTINGS.format(port=port)
    agentk = Agentk(kas, kas.add_agent("main"), control_plane.agent)
    mark = secrets.token_hex(4)
    namespaces = f"rights-{mark}-a", f"rights-{mark}-b"
    users = {name: f"{name}-{mark}" for name in ("all", "one", "pods", "none")}
    try:
        for one in namespaces:
            control_plane.add_namespace(one)
            path = f"/apis/apps/v1/namespaces/{one}/deployments"
            control_plane.call("POST", path, deployment(one))
        kas.start()
        tokens = {user: _add(kas, folder, user) for user in users.values()}
        _permit(control_plane, users, namespaces[0])
        options = folder / "agentk.yaml"
        options.write_text("modules:\n  cluster_data: {}\n")
        agentk.start("--configuration-file", str(options))
        stand = RightsStand(kas, control_plane, port, namespaces, tokens)
        eventually(lambda: len(stand.doors(users["all"])["objects"]) == 2, 60)
        yield stand
    finally:
        for program in (agentk, kas):
            if program.process is not None:
                program.process.kill()
        control_plane.call(
            "DELETE", f"/apis/{_RBAC}/v1/clusterrolebindings/{users['all']}"
        )
        for one in namespaces:
            control_plane.remove_namespace(one)


def _add(kas: Kas, folder: Path, user: str) -> str:
    file = folder / f"{user}.token"
    kas.ctl(
        *("user", "add", user, "--agent", "main", "--as", user),
        *("--token-file", file),
    )
    return file.read_text().strip()


def _permit(plane: ControlPlane, users: Mapping[str, str], namespace: str) -> None:
    """Give the users their rights: everywhere, in one namespace, to pods, and none."""
    binding = {
        "metadata": {"name": users["all"]},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": users["all"]}],
    }
    plane.call("POST", f"/apis/{_RBAC}/v1/clusterrolebindings", binding)
    for name, group, resource in (("one", "apps", "deployments"), ("pods", "", "pods")):
        rule = {"apiGroups": [group], "resources": [resource]}
        rule["verbs"] = ["list", "watch", "get"]
        plane.permit(users[name], namespace, rule)


def test_each_door(stand: RightsStand, record: Record) -> None:
    """Each door shows what ``kubectl auth can-i list`` says, also after changes."""
    wrong = []
    for user in stand.tokens:
        expected = stand.expected(user)
        wrong += [
            f"{user}: {door} shows {sorted(spaces)}, not {sorted(expected)}"
            for door, spaces in stand.doors(user).items()
            if spaces != expected
        ]
        if stand.counts(user) != stand.allowed(user):
            wrong.append(f"{user}: the number of Deployments")
    record.note(
        NAME,
        f"doors that differ from the API server, for four users: {wrong or 0}",
        "0",
        not wrong,
    )
    with record.together():
        seconds = _move(stand)
        record.note(
            NAME,
            f"a changed Role shows in each door after {seconds:.0f} s",
            f"<= {CHANGED} s",
            in_time=seconds <= CHANGED,
        )
        seconds = _remove(stand)
        record.note(
            NAME,
            f"connections of a removed user end after {seconds:.1f} s",
            f"<= {REVOKED} s",
            in_time=seconds <= REVOKED,
        )


def _move(stand: RightsStand) -> float:
    """Move the right of a user to the other namespace; return how long it took."""
    (user,) = (one for one in stand.tokens if one.startswith("one"))
    socket = CableSocket(stand.port, stand.kas.authority, stand.tokens[user])
    socket.subscribe("ClusterChannel", cluster="main")
    seen = {key.split("/")[3] for key in socket.rows()["snapshot"] if "/web/" in key}
    before, after = stand.namespaces
    assert seen == {before}
    api = f"/apis/{_RBAC}/v1/namespaces/{before}/rolebindings/{user}"
    stand.plane.call("DELETE", api)
    rule = {"apiGroups": ["apps"], "resources": ["deployments"]}
    rule["verbs"] = ["list", "watch", "get"]
    stand.plane.permit(user, after, rule)
    began = time.monotonic()
    eventually(lambda: stand.expected(user) == {after}, 30)
    eventually(
        lambda: all(spaces == {after} for spaces in stand.doors(user).values()),
        3 * CHANGED,
        pause=1.0,
    )
    while seen != {after}:
        message = socket.rows()
        seen |= {key.split("/")[3] for key in message["put"] if "/web/" in key}
        seen -= {key.split("/")[3] for key in message["delete"]}
    socket.close()
    return time.monotonic() - began


def _remove(stand: RightsStand) -> float:
    """Remove a user; return how long a connection stays."""
    (user,) = (one for one in stand.tokens if one.startswith("all"))
    socket = CableSocket(stand.port, stand.kas.authority, stand.tokens[user])
    socket.subscribe("ClusterChannel", cluster="main")
    socket.rows()
    began = time.monotonic()
    stand.kas.ctl("user", "remove", user)
    with pytest.raises(ConnectionClosed):
        while True:
            socket.next()
    seconds = time.monotonic() - began
    socket.close()
    return seconds


def test_readers_cost_only_reviews(
    stand: RightsStand, record: Record, long: bool
) -> None:
    """Pages read rows, filter them and follow changes without a list of the cluster."""
    (user,) = (one for one in stand.tokens if one.startswith("one"))
    namespace = stand.namespaces[0]
    audit = stand.plane.audit()
    pages = [
        CableSocket(stand.port, stand.kas.authority, stand.tokens[user])
        for _ in range(PAGES)
    ]
    for page in pages:
        page.subscribe("ClusterChannel", cluster="main")
        assert page.rows()["snapshot"]
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    end, changes, latest = time.monotonic() + (3600 if long else 20), 0, 0.0
    while time.monotonic() < end:
        changes += 1
        changed = stand.plane.call("GET", path)
        changed["metadata"]["labels"] = {"app": "web", "n": str(changes)}
        stand.plane.call("PUT", path, changed)
        began = time.monotonic()
        for page in pages:
            while _label(page.rows(), namespace) != str(changes):
                pass
        latest = max(latest, time.monotonic() - began)
        for more in ("", "&labelSelector=app=web", "&image=web", "&name=web"):
            query = f"objects?kind=deploy&clusters=main&namespace={namespace}{more}"
            assert len(json.loads(stand.query(user, query))["items"]) == 1
        time.sleep(1)
    for page in pages:
        page.close()
    asked = Counter(
        f"{one['verb']} {one['objectRef']['resource']}"
        for one in audit.events()
        if one.get("impersonatedUser", {}).get("username") == user
        and one["stage"] == "ResponseComplete"
    )
    reviews = asked.pop("create selfsubjectaccessreviews", 0)
    record.note(
        NAME,
        f"{PAGES} pages, {changes} changes and {4 * changes} queries cost "
        f"{reviews} reviews, and other requests: {dict(asked) or 0}; the latest page "
        f"has a change after {latest * 1000:.0f} ms",
        "0 other requests",
        not asked and reviews > 0,
    )


def _label(message: Mapping[str, Any], namespace: str) -> str:
    """Return the label ``n`` of the row in a message; empty without it."""
    for key, row in message.get("put", {}).items():
        if f"/{namespace}/web/" in key:
            return str(row.get("labels", {}).get("n", ""))
    return ""
