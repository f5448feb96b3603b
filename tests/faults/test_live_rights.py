"""Live data for users whose rights change, and what its readers cost the API server."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.faults.record import Record
from tests.integration.cable_client import CableSocket
from tests.integration.conftest import lone_kas
from tests.integration.processes import eventually
from tests.integration.test_live import ask, live, opener
from tests.integration.test_live_rights import Users, users

__all__ = ["live", "lone_kas", "users"]

NAME = "rights of live data"

#: Seconds until a change of rights shows in each door, and until the connections of a
#: removed user end.
CHANGED, REVOKED = 15, 5

#: Number of pages of one user, each with a live query.
PAGES = 20

#: A user with rights in one namespace, and one with all rights.
USER, ADMIN = "one-space", "admin-user"

_ROLES = "/apis/rbac.authorization.k8s.io/v1"


def in_cache(users: Users, name: str, namespace: str) -> bool:
    """Return whether agentk's cache lists the Deployments of a namespace for a user."""
    kas = users.live.kas
    path = f"agents/main/cache/apis/apps/v1/namespaces/{namespace}/deployments"
    request = urllib.request.Request(
        f"https://localhost:{kas.proxy}/{path}",
        headers={"Authorization": f"Bearer {users.tokens[name]}"},
    )
    try:
        with opener(kas).open(request, timeout=30) as answer:
            return bool(json.loads(answer.read())["items"])
    except urllib.error.HTTPError as error:
        assert error.code == 403
        return False


def doors(users: Users, name: str) -> list[set[str]]:
    """Return the namespaces whose Deployments a user sees, by each door."""
    ways = (users.by_query, users.by_csv, users.by_view, users.by_cable)
    shown = [{space for space, _ in way(name, "Deployment")} for way in ways]
    return [*shown, {one for one in users.spaces if in_cache(users, name, one)}]


def connected(users: Users, name: str) -> tuple[CableSocket, set[str]]:
    """Return a connection that follows workloads, and the namespaces that it shows."""
    live = users.live
    socket = CableSocket(live.port, live.kas.authority, users.tokens[name])
    socket.subscribe("ClusterChannel", cluster="main")
    return socket, spaces_of(socket.rows()["snapshot"])


def spaces_of(keys: Any) -> set[str]:
    """Return the namespaces of the Deployments with some keys."""
    return {one.split("/")[3] for one in keys if "/Deployment/" in one}


def test_rights_that_change(users: Users, record: Record) -> None:
    """A Role that moves to another namespace, and a user who is removed."""
    before, after = users.spaces
    eventually(lambda: all(one == {before} for one in doors(users, USER)), 60)
    socket, seen = connected(users, USER)
    assert seen == {before}
    cluster = users.live.cluster
    cluster.call("DELETE", f"{_ROLES}/namespaces/{before}/rolebindings/{USER}")
    every = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    cluster.permit(USER, after, every)
    began = time.monotonic()
    eventually(
        lambda: all(one == {after} for one in doors(users, USER)), 3 * CHANGED, pause=1
    )
    while seen != {after}:
        message = socket.rows()
        seen |= spaces_of(message["put"])
        seen -= spaces_of(message["delete"])
    seconds = time.monotonic() - began
    socket.close()
    with record.together():
        record.note(
            NAME,
            f"a changed Role shows in each door after {seconds:.0f} s",
            f"<= {CHANGED} s",
            in_time=seconds <= CHANGED,
        )
        socket, _ = connected(users, ADMIN)
        began = time.monotonic()
        users.live.kas.ctl("user", "remove", ADMIN)
        with pytest.raises(ConnectionClosed):
            while True:
                socket.next()
        seconds = time.monotonic() - began
        socket.close()
        record.note(
            NAME,
            f"connections of a removed user end after {seconds:.1f} s",
            f"<= {REVOKED} s",
            in_time=seconds <= REVOKED,
        )


def test_readers_cost_only_reviews(users: Users, record: Record, long: bool) -> None:
    """Pages read rows, filter them and follow changes without a list of the cluster."""
    namespace, cluster = users.spaces[0], users.live.cluster
    eventually(lambda: users.by_query(USER, "Deployment"), 60)
    audit = cluster.audit()
    pages = [connected(users, USER)[0] for _ in range(PAGES)]
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    rounds, latest = 3000 if long else 5, 0.0
    for changes in range(1, rounds + 1):
        changed = cluster.call("GET", path)
        changed["metadata"]["labels"] = {"app": "web", "n": str(changes)}
        cluster.call("PUT", path, changed)
        began = time.monotonic()
        for page in pages:
            while _label(page.rows(), namespace) != str(changes):
                pass
        latest = max(latest, time.monotonic() - began)
        for more in ("", "&labelSelector=app=web", "&image=web", "&name=web"):
            query = f"objects?kind=deploy&clusters=main&namespace={namespace}{more}"
            found = ask(users.live, query, users.tokens[USER])
            assert len(found["items"]) == 1
        if long:
            time.sleep(1)
    for page in pages:
        page.close()
    asked = Counter(
        f"{one['verb']} {one['objectRef']['resource']}"
        for one in audit.events()
        if one.get("impersonatedUser", {}).get("username") == USER
        and one["stage"] == "ResponseComplete"
    )
    reviews = asked.pop("create selfsubjectaccessreviews", 0)
    record.note(
        NAME,
        f"{PAGES} pages, {rounds} changes and {4 * rounds} queries cost "
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
