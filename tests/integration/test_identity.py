"""As whom requests reach the API server, told by its audit log."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest
import yaml

from modules.kubernetes_api.statuses import status_answer
from tests.integration.cluster import Audit, ControlPlane
from tests.integration.kubectl import Kubectl
from tests.integration.processes import eventually
from tests.integration.rawhttp import Answer, Way
from tests.integration.stack import Agentk, Kas

AGENT = "system:serviceaccount:kube-system:agent"


@pytest.fixture(scope="module")
def alice(kas: Kas, agentk: Agentk) -> Way:
    """A user of kas who is ``alice@example.org`` in the cluster."""
    groups = ("--group", "developers", "--group", "a b: c")
    kas.add_user("alice", "--as", "alice@example.org", *groups)
    return kas.way("alice")


@pytest.fixture
def mark() -> str:
    """For the path of a request, to find it in the audit log."""
    return uuid.uuid4().hex


def path(mark: str) -> str:
    """Something that is not there, with *mark* in its path."""
    return f"/api/v1/namespaces/default/configmaps/{mark}"


def after_a_fence(audit: Audit, way: Way, mark: str) -> list[dict[str, Any]]:
    """What the log has about *mark*, once something later is in it."""
    fence = uuid.uuid4().hex
    way.ask("GET", path(fence))
    audit.wait_for(fence)
    return audit.about(mark)


def test_agent(ways: dict[str, Way], control_plane: ControlPlane, mark: str) -> None:
    """Who has the rights of agentk is agentk, and nobody else."""
    audit = control_plane.audit()
    assert ways["proxied"].ask("GET", path(mark)).status == 404
    event = audit.wait_for(mark)[0]
    assert event["user"]["username"] == AGENT
    assert "impersonatedUser" not in event


def test_own_impersonation(
    ways: dict[str, Way], control_plane: ControlPlane, mark: str
) -> None:
    """... and may use `--as`, in every form that it has."""
    audit = control_plane.audit()
    fields = (
        "Impersonate-User: eve",
        "Impersonate-Group: one",
        "impersonate-group: two",
        "Impersonate-Uid: 7",
        "Impersonate-Extra-Acme.org%2fteam: red",
        "Impersonate-Extra-Acme.org%2fteam: blue",
        "Impersonate-Extra-my_key: snake",
    )
    assert ways["proxied"].ask("GET", path(mark), *fields).status == 403
    event = audit.wait_for(mark)[0]
    assert event["user"]["username"] == AGENT
    assert event["impersonatedUser"] == {
        "username": "eve",
        "uid": "7",
        "groups": ["one", "two", "system:authenticated"],
        "extra": {"acme.org/team": ["red", "blue"], "my_key": ["snake"]},
    }


def test_user(alice: Way, control_plane: ControlPlane, mark: str) -> None:
    """A user with an identity of its own has that, and its rights only."""
    audit = control_plane.audit()
    assert alice.ask("GET", path(mark)).status == 404
    event = audit.wait_for(mark)[0]
    assert event["user"]["username"] == AGENT
    assert event["impersonatedUser"] == {
        "username": "alice@example.org",
        "groups": ["developers", "a b: c", "system:authenticated"],
    }
    assert alice.ask("GET", "/api/v1/nodes").status == 403


def test_user_with_kubectl(
    alice: Way,
    kas: Kas,
    make_kubectl: Callable[..., Kubectl],
) -> None:
    """The same as kubectl shows it."""
    kubectl = attrs.evolve(
        make_kubectl("proxied"), kubeconfig=kas.folder / "alice.kubeconfig"
    )
    who = kubectl.json("auth", "whoami")["status"]["userInfo"]
    assert who["username"] == "alice@example.org"
    assert kubectl.ok("auth", "can-i", "create", "configmaps") == "yes\n"
    refused = kubectl("get", "pods", "--as", "bob")
    assert refused.code == 1
    assert b"nested impersonation is not supported" in refused.err


NOT_TAKEN = [
    ("Impersonate-User: system:admin",),
    ("impersonate-group: system:masters",),
    ("IMPERSONATE-UID: 0",),
    ("Impersonate-Extra-Scopes: all",),
    ("Impersonate-Whatever: x",),
    ("Impersonate_User: system:admin",),
    ("Connection: Impersonate-User",),
    ("Connection: close, impersonate-group",),
    ("Connection: Authorization",),
    ("Connection: Impersonate-User", "Impersonate-User: system:admin"),
]


@pytest.mark.parametrize("fields", NOT_TAKEN)
def test_nobody_chooses_an_identity(
    fields: tuple[str, ...], alice: Way, control_plane: ControlPlane, mark: str
) -> None:
    """Neither by naming one, nor by having the real one cut off on the way."""
    audit = control_plane.audit()
    answer = alice.ask("GET", path(mark), *fields)
    assert answer.status == 400
    assert json.loads(answer.body)["kind"] == "Status"
    assert not after_a_fence(audit, alice, mark)


@pytest.mark.parametrize(
    "fields",
    [
        ("Connection: Impersonate-User",),
        ("Connection: Authorization", "Impersonate-User: eve"),
        ("Impersonate-User: eve", "Impersonate-User: eve"),
        ("Impersonate-Userr: eve",),
        ("Impersonate-User: eve", "Impersonate-Extra_scopes: all"),
    ],
)
def test_agent_mode_is_not_tricked(
    fields: tuple[str, ...],
    ways: dict[str, Way],
    control_plane: ControlPlane,
    mark: str,
) -> None:
    """Who may use `--as` cannot lose it on the way, and be agentk instead."""
    audit = control_plane.audit()
    way = ways["proxied"]
    assert way.ask("GET", path(mark), *fields).status == 400
    assert not after_a_fence(audit, way, mark)


@pytest.mark.parametrize(
    "fields",
    [
        ("X-Remote-User: system:admin", "X-Remote-Group: system:masters"),
        ("Cookie: _gitlab_kas=x", "X-Csrf-Token: y", "Gitlab-Agent-Id: 2"),
        ("Proxy-Authorization: Bearer x", "Forwarded: for=1.2.3.4"),
    ],
)
def test_without_effect(
    fields: tuple[str, ...], alice: Way, control_plane: ControlPlane, mark: str
) -> None:
    """What another server might believe changes nothing."""
    audit = control_plane.audit()
    assert alice.ask("GET", path(mark), *fields).status == 404
    event = audit.wait_for(mark)[0]
    assert event["impersonatedUser"]["username"] == "alice@example.org"


def test_wrong_credentials(ways: dict[str, Way]) -> None:
    """401, in a form that kubectl can show, and told from the cluster's own."""
    way = ways["proxied"]
    kind, agent, token = way.token.split(":", 2)

    def ask(value: str, target: str = "/api") -> Answer:
        return attrs.evolve(way, token=value).ask("GET", target)

    for value in (
        "nothing",
        f"{kind}:{agent}:{token[:-1]}",
        f"{kind}:{agent}:{token}x",
        f"ci:{agent}:{token}",
        f"{kind}:{agent}:",
    ):
        answer = ask(value)
        assert answer.status == 401, value
        assert answer.field("Gitlab-Unauthorized") == "true"
        assert json.loads(answer.body)["reason"] == "Unauthorized"
        assert token[:-1] not in answer.body.decode()
    assert ask(f"{kind}:999:{token}").status in (401, 403, 404)
    assert ask(token, "/agents/main/readyz").body == b"ok"
    assert ask(token, f"/agents/{agent}/readyz").body == b"ok"
    assert ask(token, "/agents/nobody/readyz").status in (401, 403, 404)


@pytest.mark.parametrize("kind", ["json", "yaml", "vnd.kubernetes.protobuf"])
def test_forms_of_errors(kind: str, ways: dict[str, Way]) -> None:
    """An error of kas has the form that the client takes, as the API server's has."""
    accept = f"Accept: application/{kind}"
    theirs, ours = (
        attrs.evolve(ways[name], token=token).ask("GET", "/api/v1/pods", accept)
        for name, token in (("direct", "x"), ("proxied", "user:1:x"))
    )
    assert theirs.status == ours.status == 401
    assert ours.field("Content-Type") == theirs.field("Content-Type")
    fields = f"\r\n{accept}".encode()
    _, _, body = status_answer(401, "Unauthorized", b"", fields)
    if kind in ("json", "yaml"):
        assert yaml.safe_load(body) == yaml.safe_load(theirs.body)
    else:
        assert body == theirs.body
    assert b"client -> kas" in ours.body


def test_agent_by_name_and_by_id(ways: dict[str, Way]) -> None:
    """The credential may say either."""
    way = ways["proxied"]
    kind, agent, token = way.token.split(":", 2)
    assert agent == "main"
    by_id = attrs.evolve(way, token=f"{kind}:1:{token}")
    assert by_id.ask("GET", "/readyz").body == b"ok"
    assert way.ask("GET", "/readyz").body == b"ok"


def test_agents_token_is_no_users(kas: Kas, ways: dict[str, Way]) -> None:
    """What agentk has in its file opens no door for clients."""
    token = (kas.folder / "agent-main.token").read_text().strip()
    for value in token, f"user:1:{token}", f"agent:1:{token}":
        assert attrs.evolve(ways["proxied"], token=value).ask("GET", "/").status == 401


def _is_known(way: Way) -> bool:
    """Whether kas lets the user of *way*, who is read-only, look."""
    return way.ask("GET", "/version").status == 200


def test_read_only_with_kubectl(
    kas: Kas, agentk: Agentk, make_kubectl: Callable[..., Kubectl]
) -> None:
    """kubectl is told what kas allows, and reads Secrets only where that is said."""
    for name, *more in ("looker",), ("secrets-looker", "--secrets"):
        kas.add_user(name, "--read-only", *more, wait=False)
        way = kas.way(name)
        eventually(partial(_is_known, way))
        kubectl = attrs.evolve(
            make_kubectl("proxied"), kubeconfig=kas.folder / f"{name}.kubeconfig"
        )
        assert kubectl.ok("auth", "can-i", "list", "pods") == "yes\n"
        refused = kubectl("auth", "can-i", "create", "pods")
        assert refused.code == 1
        assert refused.text.startswith("no - kas: user ")
        secrets = kubectl("auth", "can-i", "get", "secrets")
        assert (secrets.code == 0) is bool(more)
        listed = kubectl("get", "secrets")
        assert (listed.code == 0) is bool(more)
        assert (b"may not read Secrets" in listed.err) is not bool(more)


def test_viewers_run_nothing(kas: Kas, agentk: Agentk, ways: dict[str, Way]) -> None:
    """An exec by GET is not taken for reading."""
    kas.add_user("viewer", "--as", "vera", "--group", "viewers")
    way = kas.way("viewer")
    assert way.ask("GET", "/api/v1/namespaces/default/pods").status == 200
    upgrade = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Origin: http://here",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Protocol: v5.channel.k8s.io",
    )
    for kind in "exec?command=id", "attach?stdout=1", "portforward?ports=1":
        target = f"/api/v1/namespaces/default/pods/none/{kind}"
        assert way.ask("GET", target, *upgrade).status == 403


def test_circle(kas: Kas, agentk: Agentk, ways: dict[str, Way]) -> None:
    """An agent whose API server is kas itself ends nowhere, not in circles."""
    token = kas.add_agent("lost")
    kas.add_user("finder", agent="lost")
    inner = kas.add_user("inner")
    lost = Agentk(kas, token, inner, "lost agentk")
    lost.start()
    try:
        answer = kas.way("finder").ask("GET", "/readyz")
        assert answer.status == 508
        assert "came back to kas" in json.loads(answer.body)["message"]
    finally:
        lost.stop()
