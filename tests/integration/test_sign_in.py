"""People of an identity provider, in its place a fake: everything else is real."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.fakes.identity_provider import FakeIdentityProvider, make_key
from tests.integration.cluster import ControlPlane
from tests.integration.kubectl import Kubectl
from tests.integration.processes import eventually
from tests.integration.rawhttp import Way
from tests.integration.stack import Kas, with_agent

_SETTINGS = """\
oidc:
  issuer: {issuer}
  client_id: kubernetes
  clock_skew: 1s
  keys_ttl: 2s
  access:
  - groups: ["oidc:dev"]
    agents: [main]
"""


@pytest.fixture
def provider() -> Iterator[FakeIdentityProvider]:
    """One that listens."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = None if fake.down else fake.answer(self.path)
            self.send_response(503 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake = FakeIdentityProvider(f"http://127.0.0.1:{server.server_port}", time.time)
    serving = threading.Thread(target=server.serve_forever, args=(0.05,))
    serving.start()
    yield fake
    server.shutdown()
    serving.join()
    server.server_close()


@pytest.fixture
def served(
    provider: FakeIdentityProvider, lone_kas: Kas, control_plane: ControlPlane
) -> Iterator[Kas]:
    """A kas of the provider, with the agent main."""
    lone_kas.settings = _SETTINGS.format(issuer=provider.issuer)
    file = lone_kas.folder / "audit.jsonl"
    lone_kas.observability_settings = (f"audit: {{file: {file}}}",)
    with with_agent(lone_kas, control_plane.agent):
        yield lone_kas


def _kubeconfig(kas: Kas, token: str) -> Path:
    """The path names the agent, as with any credential plugin."""
    path = kas.folder / "person.kubeconfig"
    cluster = {
        "server": f"https://127.0.0.1:{kas.proxy}/agents/main",
        "certificate-authority": str(kas.authority),
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "main", "cluster": cluster}],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [{"name": "me", "context": {"cluster": "main", "user": "me"}}],
        "current-context": "me",
    }
    path.write_text(json.dumps(content))
    path.chmod(0o600)
    return path


def test_sign_in(
    provider: FakeIdentityProvider, served: Kas, make_kubectl: Callable[..., Kubectl]
) -> None:
    """The cluster sees user and groups; what ends, ends."""
    direct = make_kubectl("direct")
    direct.ok(
        *("create", "clusterrolebinding", "sign-in", "--clusterrole", "view"),
        *("--group", "oidc:dev"),
    )
    try:
        _signed_in(provider, served, direct)
    finally:
        direct.ok("delete", "clusterrolebinding", "sign-in")


def _signed_in(provider: FakeIdentityProvider, served: Kas, direct: Kubectl) -> None:
    def status(token: str, agent: str = "main") -> int:
        way = Way("raw", served.proxy, served.authority, f"oidc:{agent}:{token}")
        return way.ask("GET", "/api/v1/namespaces/default/configmaps").status

    token = provider.token(groups=["dev", "system:masters"])
    person = Kubectl(direct.program, _kubeconfig(served, token), ours=direct.ours)
    who = person.json("auth", "whoami")["status"]["userInfo"]
    assert who["username"] == "oidc:alice"
    assert who["groups"] == ["oidc:dev", "oidc:system:masters", "system:authenticated"]
    person.ok("get", "configmaps")
    assert "cannot create" in person("create", "configmap", "x").err.decode()

    # Refused, with a reason and without the token.
    wrong = provider.token(groups=["dev"], aud="another")
    way = Way("raw", served.proxy, served.authority, f"oidc:main:{wrong}")
    answer = way.ask("GET", "/readyz")
    assert answer.status == 401
    assert answer.field("Gitlab-Unauthorized") == "true"
    assert "audience" in answer.body.decode()
    assert wrong.split(".")[1] not in answer.body.decode()
    assert status(provider.token(groups=["other"])) == 403
    assert status(token, "none") == 403

    # The provider is away: a new token is good with its last keys.
    provider.down = True
    assert status(provider.token(groups=["dev"], jti="new")) == 200
    provider.down = False

    # A watch ends with its token, and the other one goes on.
    short = provider.token(groups=["dev"], exp=int(time.time()) + 4)
    target = "/api/v1/namespaces/default/configmaps?watch=true"
    way = Way("raw", served.proxy, served.authority, f"oidc:main:{short}")
    with way.connect() as connection:
        connection.send(way.head("GET", target))
        eventually(lambda: served.streams() == 1)
        eventually(lambda: served.streams() == 0, what="the watch ended")
    assert status(short) == 401
    assert status(token) == 200

    # A new key, and the old one is taken back.
    provider.keys = {"two": ("ES256", make_key("ES256", 2))}
    eventually(lambda: status(token) == 401)
    eventually(lambda: status(provider.token("two", groups=["dev"])) == 200)
    log = (served.folder / "kas.log").read_text()
    assert token.split(".")[1] not in log
    _recorded(served, token, wrong)


def _recorded(served: Kas, *tokens: str) -> None:
    """Each sign-in is in the audit log once, without its token."""
    text = (served.folder / "audit.jsonl").read_text()
    found = [json.loads(one) for one in text.splitlines()]
    found = [one for one in found if one["action"] == "sign_in"]
    people = [one for one in found if one["method"] == "oidc"]
    credentials = [one["credential"] for one in people if one["outcome"] == "accepted"]
    # Each token is a credential: the first one, and three others of the test.
    assert len(credentials) == len(set(credentials)) == 4
    assert all(one.startswith("oidc_user:oidc:alice:") for one in credentials)
    reasons = {one["reason"] for one in people if one["outcome"] == "refused"}
    assert any("audience" in one for one in reasons)
    assert any("no access" in one for one in reasons)
    for token in tokens:
        assert token.split(".")[1] not in text
