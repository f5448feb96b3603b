"""The query API for users, with rights that the cluster decides on."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modules.cluster_data.server import rights as rights_module
from modules.cluster_data.server.named_clusters import MAX_CLUSTERS, MAX_REACHED
from modules.cluster_data.server.store.queries import ListScope
from tests.modules.cluster_data.pair import LivePair, ThreadedClock, deployment, node
from tunnel.api import (
    Access,
    CredentialRevoked,
    Impersonation,
    Reach,
    ReachableAgent,
)
from tunnel.testing import FakeCluster, FakeRequest
from tunnel.testing.objects import Refusal

ALICE = Access("user:alice", "1", "agent-1", impersonation=Impersonation("alice"))
BOB = Access("user:bob", "1", "agent-1", impersonation=Impersonation("bob"))


class ReviewingCluster(FakeCluster):
    """A cluster that answers access reviews."""

    review: Any = None
    #: The path of a list that the API server cannot read.
    broken = ""

    def take(self, request: FakeRequest) -> Any:
        if self.broken and request.path.startswith(self.broken):
            return 500, b"{}"
        if request.path.endswith("/selfsubjectaccessreviews"):
            spec = json.loads(request.body)["spec"]
            try:
                allowed = self.review(request.user, spec)
            except Refusal as refusal:
                return refusal.code, json.dumps(refusal.status).encode()
            return 201, json.dumps({"status": {"allowed": allowed}}).encode()
        return super().take(request)


class RestStand(LivePair):
    """
    A pair with users.

    :ivar allowed: pairs of a user and a list: ``apps/deployments`` or
        ``apps/deployments@shop`` in a namespace.
    """

    make_cluster = ReviewingCluster

    def __init__(self, folder: Path, clock: ThreadedClock | None = None) -> None:
        super().__init__(folder, clock)
        self.allowed: set[tuple[str, str]] = set()
        self.reviews = 0
        self.server._api.users.tokens.update(alice=ALICE, bob=BOB)
        assert isinstance(self.cluster, ReviewingCluster)
        self.cluster.review = self.review

    def review(self, user: str, spec: Any) -> bool:
        self.reviews += 1
        asked = spec["resourceAttributes"]
        assert asked["verb"] == "list"
        name = f"{asked['group']}/{asked['resource']}"
        if asked["namespace"]:
            name += f"@{asked['namespace']}"
        return (user, name) in self.allowed

    def get(self, path: str, token: str = "alice", status: int = 200) -> Any:
        answer = self.pair.visit(
            f"/api/v1/{path}", authorization=f"Bearer {token}", wait=0.25
        )
        assert answer.status == status, answer.body
        return json.loads(answer.body)

    def names(self, path: str, token: str = "alice") -> set[str]:
        return {one["name"] for one in self.get(path, token)["items"]}


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestStand]:
    stand = RestStand(tmp_path)
    other = deployment("elsewhere")
    other["metadata"]["namespace"] = "other"
    stand.add(deployment("web", ready=0), other, node("a"))
    stand.lead()
    stand.advance(3)
    yield stand
    stand.close()


DEPLOYMENTS = "objects?kind=deploy&clusters=agent-1"


def test_only_permitted_rows(rest: RestStand) -> None:
    assert rest.names(DEPLOYMENTS) == set()
    rest.clock.advance(rights_module.DENIED_SECONDS)
    rest.allowed = {("alice", "apps/deployments@shop")}
    assert rest.names(DEPLOYMENTS) == {"web"}
    rest.clock.advance(rights_module.ALLOWED_SECONDS)
    rest.allowed = {("alice", "apps/deployments")}
    assert rest.names(DEPLOYMENTS) == {"web", "elsewhere"}
    # Each user has own rights.
    assert rest.names(DEPLOYMENTS, "bob") == set()


def test_each_view_has_the_same_rights(rest: RestStand) -> None:
    rest.allowed = {("alice", "apps/deployments")}
    assert rest.names("problems?clusters=agent-1") == {"web"}
    assert rest.names("problems?clusters=agent-1", "bob") == set()
    assert rest.names("objects?kind=nodes&clusters=agent-1") == set()
    (cluster,) = rest.get("clusters?clusters=agent-1")["clusters"]
    # A number of objects is visible with the right to list them in the whole cluster.
    assert set(cluster["summary"]) == {"deployments"}
    (cluster,) = rest.get("clusters?clusters=agent-1", "bob")["clusters"]
    assert "summary" not in cluster


def test_answers_are_remembered_for_some_time(rest: RestStand) -> None:
    rest.allowed = {("alice", "apps/deployments")}
    rest.names(DEPLOYMENTS)
    before = rest.reviews
    rest.names(DEPLOYMENTS)
    assert rest.reviews == before
    rest.allowed = set()
    rest.clock.advance(rights_module.ALLOWED_SECONDS)
    rest.advance(1)
    assert rest.names(DEPLOYMENTS) == set()


def test_rights_while_the_cluster_is_away(
    rest: RestStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest.allowed = {("alice", "apps/deployments")}
    rest.names(DEPLOYMENTS)
    rest.cluster.refuses = True
    rest.cluster.cut()
    rest.clock.advance(rights_module.ALLOWED_SECONDS + 1)
    found = rest.get(DEPLOYMENTS)
    assert {one["name"] for one in found["items"]} == {"web", "elsewhere"}
    assert found["clusters"]["incomplete"]
    # A user without a positive answer sees nothing.
    found = rest.get(DEPLOYMENTS, "bob")
    assert found["items"] == []
    assert found["clusters"]["incomplete"]
    monkeypatch.setattr(rights_module, "OFFLINE_SECONDS", 10.0)
    rest.clock.advance(rights_module.FAILURE_SECONDS)
    assert rest.names(DEPLOYMENTS) == set()


@pytest.mark.parametrize("code", [401, 502, 503])
def test_rights_while_a_proxy_refuses(rest: RestStand, code: int) -> None:
    """The cluster is connected, and new rows arrive: earlier rights do not count."""
    rest.allowed = {("alice", "apps/deployments")}
    assert rest.names(DEPLOYMENTS)

    def refuse(user: str, spec: Any) -> bool:
        raise Refusal(code, "Busy", "busy")

    assert isinstance(rest.cluster, ReviewingCluster)
    rest.cluster.review = refuse
    rest.clock.advance(rights_module.ALLOWED_SECONDS + 1)
    found = rest.get(DEPLOYMENTS)
    assert found["items"] == []
    assert found["clusters"]["incomplete"]


def test_credentials(rest: RestStand) -> None:
    assert rest.get(DEPLOYMENTS, "nobody", status=401)["message"] == "unknown token"
    # A wrong token does not show which clusters exist.
    assert rest.get("clusters?clusters=1", "nobody", status=401)["message"]
    answer = rest.pair.visit(f"/api/v1/{DEPLOYMENTS}")
    assert answer.status == 401
    assert "Authorization: Bearer" in json.loads(answer.body)["message"]
    # A token of another agent, which has no rows.
    other = Access("user:dave", "9", "nine", impersonation=Impersonation("dave"))
    rest.server._api.users.tokens["dave"] = other
    rest.allowed = {("dave", "apps/deployments")}
    for token in ("dave", "user:9:dave"):
        found = rest.get(DEPLOYMENTS, token)
        assert found["items"] == []
        assert found["clusters"]["incomplete"] == [
            {
                "id": "",
                "name": "agent-1",
                "state": "denied",
                "lastSeen": 0.0,
                "reason": "the token is for another agent",
            }
        ]
        found = rest.get("objects?kind=deploy&clusters=nine", token)
        (cluster,) = found["clusters"]["incomplete"]
        assert (cluster["id"], cluster["state"]) == ("9", "never")


@pytest.mark.parametrize(
    "path",
    [
        "objects?kind=deploy",
        "objects?clusters=agent-1",
        "objects?kind=deploy&clusters=agent-1&lableSelector=a",
        "objects?kind=deploy&clusters=agent-1&labelSelector==",
        "objects?kind=deploy&kind=nodes&clusters=agent-1",
        "objects?kind=deploy&clusters=agent-1&limit=x",
        "objects?kind=deploy&clusters=agent-1&format=xml",
        "objects?kind=deploy&clusters=agent-1&continue=x",
        "objects?kind=deploy&clusters=" + ",".join("x" * (MAX_CLUSTERS + 1)),
        "objects?kind=deploy&clusters=agent-1,*",
        "objects?kind=deploy&clusters=agent-1&name=" + "x" * 5000,
    ],
)
def test_invalid_requests(rest: RestStand, path: str) -> None:
    assert rest.get(path, status=400)["message"]


def test_all_clusters(rest: RestStand) -> None:
    """`*` stands for the clusters that the credential gives access to."""
    users = rest.server._api.users
    path = "objects?kind=deployments&clusters=*"
    assert rest.get(path, status=501)["message"] == "these agents cannot be listed"
    agent = ReachableAgent("1", "agent-1")
    users.reaches["alice"] = Reach("user:alice", "user:alice", (agent,))
    rest.allowed = {("alice", "apps/deployments")}
    assert rest.get(path)["items"] == rest.get(DEPLOYMENTS)["items"] != []
    assert rest.get("clusters?clusters=*")["clusters"][0]["name"] == "agent-1"
    users.reaches["alice"] = Reach("user:alice", "user:alice", ())
    assert rest.get(path, status=403)["message"] == "you may reach no cluster"
    users.reaches["alice"] = Reach("user:alice", "user:alice", (), is_complete=False)
    assert "cannot list" in rest.get(path, status=403)["message"]
    users.reaches["alice"] = Reach(
        "user:alice", "user:alice", (agent,) * (MAX_REACHED + 1)
    )
    assert "name them" in rest.get(path, status=429)["message"]


def test_pages(rest: RestStand) -> None:
    rest.allowed = {("alice", "apps/deployments")}
    first = rest.get(f"{DEPLOYMENTS}&limit=1")
    second = rest.get(f"{DEPLOYMENTS}&limit=1&continue={first['continue']}")
    names = [one["name"] for page in (first, second) for one in page["items"]]
    assert names == ["elsewhere", "web"]
    assert second["continue"] == ""


def test_csv(rest: RestStand) -> None:
    rest.allowed = {("alice", "apps/deployments")}
    formula = deployment("formula", image="=cmd()")
    rest.add(formula)
    rest.advance(2)
    answer = rest.pair.visit(
        f"/api/v1/{DEPLOYMENTS}&format=csv", authorization="Bearer alice", wait=0.25
    )
    rows = list(csv.DictReader(io.StringIO(answer.body.decode())))
    assert {one["name"] for one in rows} == {"web", "elsewhere", "formula"}
    assert not any(cell[:1] in "=+@" for one in rows for cell in one.values() if cell)


def test_an_unknown_cluster(rest: RestStand) -> None:
    found = rest.get("objects?kind=deploy&clusters=nobody")
    (cluster,) = found["clusters"]["incomplete"]
    assert (cluster["name"], cluster["state"]) == ("nobody", "denied")


def test_filters_do_not_decide_what_is_reviewed(rest: RestStand) -> None:
    """Otherwise a review would tell that a filter matches a row that is not shown."""
    for query in ("", "&image=web", "&image=x", "&labelSelector=app=web", "&name=web"):
        rest.clock.advance(rights_module.DENIED_SECONDS)
        before = rest.reviews
        assert rest.names(DEPLOYMENTS + query, "bob") == set()
        # The same list for each query, all Deployments, and those of two namespaces.
        assert rest.reviews - before == 4
    rest.cluster.refuses = True
    rest.cluster.cut()
    rest.clock.advance(rights_module.DENIED_SECONDS)
    answers = [
        rest.get(DEPLOYMENTS + query, "bob")["clusters"]["incomplete"][0]["reason"]
        for query in ("&image=web:1", "&image=x")
    ]
    assert answers[0] == "agentk has no connection to the API server"
    assert answers[0] == answers[1]


def test_errors_that_end_earlier_rights(rest: RestStand) -> None:
    """agentk may not impersonate the user any more."""
    rest.allowed = {("alice", "apps/deployments")}
    assert rest.names(DEPLOYMENTS) == {"web", "elsewhere"}

    def forbidden(user: str, spec: Any) -> bool:
        raise Refusal(403, "Forbidden", "cannot impersonate")

    rest.cluster.review = forbidden  # type: ignore[attr-defined]
    rest.clock.advance(rights_module.ALLOWED_SECONDS + 1)
    found = rest.get(DEPLOYMENTS)
    assert found["items"] == []
    assert "cannot impersonate" in found["clusters"]["incomplete"][0]["reason"]


def test_columns_do_not_hide_the_origin_of_a_row(rest: RestStand) -> None:
    rest.allowed = {("alice", "apps/deployments")}
    rest.damage('{"cluster": "other", "name": "admin", "health": "current"}')
    for one in rest.get(DEPLOYMENTS)["items"]:
        assert one["cluster"] == "agent-1"
        assert one["name"] in ("web", "elsewhere")


def test_a_revoked_credential(rest: RestStand) -> None:
    rest.allowed = {("alice", "apps/deployments")}
    rest.names(DEPLOYMENTS)
    before = rest.reviews
    rest.pair.server.bus.publish(CredentialRevoked("user:alice"))
    rest.names(DEPLOYMENTS)
    assert rest.reviews > before


def test_secrets_of_a_read_only_user(rest: RestStand) -> None:
    """kas denies them before the cluster is asked."""
    access = Access("user:carol", "1", "agent-1", read_only=True)
    scope = ListScope("1", "", "secrets", "shop")
    before = rest.reviews
    rights = rest.server._rights
    uid = rest.pair.run(rest.agent._cluster_uid.read())
    assert not rest.pair.run(rights.permitted(access, [scope], uid, True)).scopes
    # The list that is reviewed for each query.
    assert rest.reviews == before + 1
