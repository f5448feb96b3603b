"""GitLab, in its place a fake, says which agents there are: everything else is real."""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

from kas.state import pki
from kas.state.directory import StateDirectory
from tests.fakes.gitlab import job_answer, user_answer
from tests.integration.asker_module import DROPIN as ASKER
from tests.integration.cluster import Audit, ControlPlane
from tests.integration.kubectl import Kubectl
from tests.integration.module_kas import python_path
from tests.integration.pods import start_pods
from tests.integration.processes import PATIENCE, ROOT, Process, eventually, twistd
from tests.integration.rawhttp import Answer, Way
from tests.integration.stack import Agentk, Kas
from tools.load.clients import Agents

#: As whom agentk asks the API server.
AGENT = "system:serviceaccount:kube-system:agent"

#: Where browsers have GitLab's pages from.
PAGES = "https://gitlab.example.com"

#: Where GitLab has what modules ask for.
MODULES = "/api/v4/internal/kubernetes/modules"

#: Seconds that GitLab's word counts here.
LIFETIME = 4


@attrs.define(eq=False)
class GitLabProcess:
    """The fake, with TLS, at *host*."""

    folder: Path
    host: str = "127.0.0.1"
    process: Process = attrs.field(init=False)
    port: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.secret.write_text(base64.b64encode(os.urandom(32)).decode())
        self.secret.chmod(0o600)
        files = pki.DevelopmentPki(
            StateDirectory.open(self.folder / "pki"), "h", lambda: datetime.now(UTC)
        ).ensure()
        assert files.ca_file is not None
        self.authority = files.ca_file
        self.process = Process(
            "gitlab",
            [
                sys.executable,
                "-m",
                "tests.fakes.gitlab",
                self.secret,
                files.certificate_file,
                files.key_file,
            ],
            self.folder / "gitlab.log",
            environment={
                "PYTHONPATH": str(ROOT),
                "INTERFACE": self.host.strip("[]"),
            },
        )
        self.port = int(self.process.wait_for(r"(?m)^(\d+)$")[1])

    authority: Path = attrs.field(init=False)

    @property
    def secret(self) -> Path:
        """The file with the secret that kas shares with it."""
        return self.folder / "gitlab-secret"

    @property
    def settings(self) -> str:
        """The section of kas' configuration."""
        return (
            f"gitlab:\n  address: https://{self.host}:{self.port}\n"
            f"  authentication_secret_file: {self.secret}\n"
            f"  ca_certificate_file: {self.authority}\n"
            f"  external_url: {PAGES}\n"
        )

    def control(self, **rest: Any) -> dict[str, Any]:
        """See `FakeGitLab.control`."""
        context = ssl.create_default_context(cafile=str(self.authority))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=context),
        )
        url = f"https://{self.host}:{self.port}/-/control"
        with opener.open(url, json.dumps(rest).encode(), timeout=PATIENCE) as answer:
            told: dict[str, Any] = json.loads(answer.read())
            return told


def test_ipv6(tmp_path: Path, lone_kas: Kas) -> None:
    """An address in brackets is one like others: certificate, request, error text."""
    gitlab = GitLabProcess(tmp_path, "[::1]")
    gitlab.control(
        agents={"glagent-prod": {"agent_id": 7, "name": "prod", "project_id": 42}}
    )
    lone_kas.settings = gitlab.settings
    lone_kas.start()
    with Agents(lone_kas.authority, [lone_kas.agents]) as agents:
        agents.connect(["glagent-prod"], lone_kas.agents)
        (agent,) = lone_kas.status()["agents"]
    assert agent["agent_id"] == "7"
    assert gitlab.control()["violations"] == []
    gitlab.process.kill()
    way = Way("a job", lone_kas.proxy, lone_kas.authority, "ci:7:glcbt-x")
    said = way.ask("GET", "/version").body.decode()
    assert "GitLab is unavailable: the connection failed" in said


@pytest.fixture
def gitlab(tmp_path: Path) -> Iterator[GitLabProcess]:
    fake = GitLabProcess(tmp_path)
    yield fake
    violations = fake.control(mood="ok", delay=0)["violations"]
    fake.process.stop(signal.SIGKILL)
    assert violations == []


@pytest.fixture
def served(
    gitlab: GitLabProcess, lone_kas: Kas, control_plane: ControlPlane
) -> Iterator[Kas]:
    """A kas of GitLab with agent 7; what GitLab says serves for `LIFETIME`."""
    gitlab.control(
        agents={"glagent-prod": {"agent_id": 7, "name": "prod", "project_id": 42}}
    )
    kas = lone_kas
    kas.settings = gitlab.settings
    kas.agent_settings = (f"info_cache_ttl: {LIFETIME}s", "info_cache_error_ttl: 1s")
    kas.proxy_settings = (
        f"allowed_agent_cache_ttl: {LIFETIME}s",
        "allowed_agent_cache_error_ttl: 1s",
    )
    kas.observability_settings = ("usage_reporting_period: 2s",)
    kas.start()
    token = kas.folder / "agent.token"
    token.write_text("glagent-prod")
    token.chmod(0o600)
    agentk = Agentk(kas, token, control_plane.agent)
    agentk.start()
    yield kas
    agentk.stop()


def path(mark: str) -> str:
    """Something that is not there, with *mark* in its path."""
    return f"/api/v1/namespaces/default/configmaps/{mark}"


def impersonated(audit: Audit, mark: str) -> dict[str, Any] | None:
    """As whom the API server took the request."""
    event = audit.wait_for(mark)[0]
    assert event["user"]["username"] == AGENT
    user: dict[str, Any] | None = event.get("impersonatedUser")
    return user


def test_jobs(gitlab: GitLabProcess, served: Kas, control_plane: ControlPlane) -> None:
    """A CI job is whom the agent's configuration says, until its token ends."""
    environment = {"slug": "review-1", "tier": "development"}
    someone = {"username": "deployer", "groups": ["deployers"], "uid": "u-1"}
    gitlab.control(
        jobs={
            "as-agent": job_answer({7: {"access_as": {"agent": {}}}}),
            "as-job": job_answer(
                {7: {"access_as": {"ci_job": {}}}}, environment=environment
            ),
            "as-other": job_answer({7: {"access_as": {"impersonate": someone}}}),
            "elsewhere": job_answer({8: {}}),
        }
    )

    def way(token: str, agent: int = 7) -> Way:
        secret = f"ci:{agent}:{token}"
        return Way(token, served.proxy, served.authority, secret)

    audit = control_plane.audit()
    assert way("as-agent").ask("GET", path("as-agent")).status == 404
    assert impersonated(audit, "as-agent") is None
    assert way("as-job").ask("GET", path("as-job")).status == 403
    assert impersonated(audit, "as-job") == {
        "username": "gitlab:ci_job:501",
        "groups": [
            "gitlab:ci_job",
            "gitlab:group:9",
            "gitlab:group_env_tier:9:development",
            "gitlab:group:8",
            "gitlab:group_env_tier:8:development",
            "gitlab:project:5",
            "gitlab:project_env:5:review-1",
            "gitlab:project_env_tier:5:development",
            "system:authenticated",
        ],
        "extra": {
            "agent.gitlab.com/id": ["7"],
            "agent.gitlab.com/config_project_id": ["42"],
            "agent.gitlab.com/project_id": ["5"],
            "agent.gitlab.com/ci_pipeline_id": ["301"],
            "agent.gitlab.com/ci_job_id": ["501"],
            "agent.gitlab.com/username": ["dev"],
            "agent.gitlab.com/environment_slug": ["review-1"],
            "agent.gitlab.com/environment_tier": ["development"],
        },
    }
    assert way("as-other").ask("GET", path("as-other")).status == 403
    assert impersonated(audit, "as-other") == {
        "username": "deployer",
        "uid": "u-1",
        "groups": ["deployers", "system:authenticated"],
    }
    # Neither who it is nor where it may go is the client's choice.
    smuggled = way("as-job").ask("GET", path("smuggled"), "Impersonate-User: root")
    assert smuggled.status == 400
    assert way("elsewhere").ask("GET", path("elsewhere")).status == 403
    assert way("as-job", 8).ask("GET", path("other-agent")).status == 403
    unknown = way("unknown").ask("GET", path("unknown"))
    assert unknown.status == 401
    assert unknown.field("Gitlab-Unauthorized") == "true"
    fence = way("as-agent").ask("GET", path("fence"))
    assert fence.status == 404
    audit.wait_for("fence")
    for mark in ("smuggled", "elsewhere", "other-agent", "unknown"):
        assert not audit.about(mark)

    # GitLab is away, and back; then the job ends, and so does its watch.
    gitlab.control(mood="down")
    assert way("as-agent").ask("GET", "/readyz").status == 200
    assert way("new").ask("GET", "/readyz").status in (500, 503)
    gitlab.control(mood="ok")
    with way("as-agent").connect() as connection:
        target = "/api/v1/namespaces/default/configmaps?watch=true"
        connection.send(way("as-agent").head("GET", target))
        assert connection.head()[1] == 200
        begun = time.monotonic()
        gitlab.control(revoke="as-agent")
        connection.sock.settimeout(4 * LIFETIME)
        connection.rest()
        assert time.monotonic() - begun < 3 * LIFETIME
    assert way("as-agent").ask("GET", "/readyz").status == 401
    log = (served.folder / "kas.log").read_text()
    assert not any(token in log for token in ("as-agent", "as-job:", "elsewhere"))

    def told() -> Counter[str]:
        counted: Counter[str] = Counter()
        for one in gitlab.control()["usage"]:
            counted.update(one["counters"])
            # Numbers of jobs and users are those of the fake.
            assert one["unique_counters"]["agent_users_using_ci_tunnel"]
        return counted

    name = "k8s_api_proxy_requests_via_ci_access"
    eventually(lambda: told()[name] >= 3, what="GitLab knows how much was used")
    assert told()[name] == told()["k8s_api_proxy_request"]


AS_USER = {
    "user": {
        "projects": [{"id": 5, "roles": ["developer"]}],
        "groups": [{"id": 9, "roles": ["maintainer"]}],
    }
}


def whom(access_type: str) -> dict[str, Any]:
    """alice of GitLab, as the API server has her."""
    return {
        "username": "gitlab:user:alice",
        "groups": [
            "gitlab:user",
            "gitlab:project_role:5:developer",
            "gitlab:group_role:9:maintainer",
            "system:authenticated",
        ],
        "extra": {
            "agent.gitlab.com/id": ["7"],
            "agent.gitlab.com/username": ["alice"],
            "agent.gitlab.com/access_type": [access_type],
            "agent.gitlab.com/config_project_id": ["42"],
        },
    }


def test_as_many_roles_as_gitlab_gives(
    gitlab: GitLabProcess, served: Kas, control_plane: ControlPlane
) -> None:
    """500 projects and 500 groups share an agent, and a user may own all of them."""
    roles = ["developer", "maintainer", "owner"]
    several = {
        "projects": [{"id": 10**8 + n, "roles": roles} for n in range(500)],
        "groups": [{"id": 10**8 + n, "roles": roles} for n in range(500)],
    }
    gitlab.control(users={"glpat-many": user_answer(7, {"user": several})})
    secret = "pat:7:glpat-many"
    way = Way(secret, served.proxy, served.authority, secret)
    audit = control_plane.audit()
    answer = way.ask("GET", path("pat-many"))
    # 403 is the word of the API server, which knows the user and all groups.
    assert answer.status == 403, answer.body[:500]
    seen = impersonated(audit, "pat-many")
    assert seen is not None
    assert len(seen["groups"]) == 1 + 3_000 + 1
    assert "gitlab:group_role:100000499:owner" in seen["groups"]


def test_people(
    gitlab: GitLabProcess, served: Kas, control_plane: ControlPlane
) -> None:
    """A personal access token is its user, beside users of the identity file."""
    gitlab.control(
        users={
            "glpat-a": user_answer(7, AS_USER),
            "glpat-b": user_answer(7, {"agent": {}}),
        }
    )

    def way(secret: str) -> Way:
        return Way(secret, served.proxy, served.authority, secret)

    audit = control_plane.audit()
    assert way("pat:7:glpat-a").ask("GET", path("pat-a")).status == 403
    assert impersonated(audit, "pat-a") == whom("personal_access_token")
    assert way("pat:7:glpat-b").ask("GET", path("pat-b")).status == 404
    assert impersonated(audit, "pat-b") is None
    for wrong in ("pat:8:glpat-a", "pat:7:glpat-c", "pat:0:glpat-a", "pat:7:"):
        answer = way(wrong).ask("GET", path("pat-wrong"))
        assert answer.status == 401, wrong
        assert answer.field("Gitlab-Unauthorized") == "true"
        assert "glpat" not in answer.body.decode()
    glass = served.folder / "glass.token"
    rest = ("--agent", "*", "--as-agent", "--token-file", glass)
    served.ctl("user", "add", "glass", *rest)
    secret = glass.read_text().strip()
    eventually(lambda: way(f"user:7:{secret}").ask("GET", "/readyz").body == b"ok")
    gitlab.control(revoke="glpat-b")
    eventually(lambda: way("pat:7:glpat-b").ask("GET", "/readyz").status == 401)
    assert not audit.about("pat-wrong")
    eventually(lambda: gitlab.control()["registered"], what="GitLab hears of the agent")
    (told,) = gitlab.control()["registered"]
    assert (told["agent_id"], told["project_id"]) == (7, 42)
    assert told["agent_version"] and told["architecture"]
    assert "glpat-" not in (served.folder / "kas.log").read_text()


def test_browsers(
    gitlab: GitLabProcess, served: Kas, control_plane: ControlPlane
) -> None:
    """A page of GitLab asks with its user's session, by headers and by a WebSocket."""
    gitlab.control(users={"key+1==": user_answer(7, AS_USER)})
    cookie = "Cookie: _gitlab_kas=key%2B1%3D%3D"
    page = f"Origin: {PAGES}"
    csrf = "X-Csrf-Token: csrf-of-key+1=="
    way = Way("browser", served.proxy, served.authority, "")

    def ask(target: str, *lines: str, method: str = "GET") -> Answer:
        head = (f"{method} {target} HTTP/1.1", "Host: kas", *lines)
        with way.connect() as connection:
            connection.send("\r\n".join(head).encode() + b"\r\n\r\n")
            return connection.answer(method)

    audit = control_plane.audit()
    agent = "Gitlab-Agent-Id: 7"
    answer = ask(path("headers"), cookie, csrf, agent, page)
    assert answer.status == 403
    assert answer.field("Access-Control-Allow-Origin") == PAGES
    assert answer.field("Access-Control-Allow-Credentials") == "true"
    assert answer.field("Content-Security-Policy") == "sandbox"
    assert impersonated(audit, "headers") == whom("session_cookie")
    query = "gitlab-agent-id=7&gitlab-csrf-token=csrf-of-key%2B1%3D%3D"
    websocket = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    )
    watch = f"/api/v1/pods?watch=true&fieldSelector=metadata.name%3Dquery&{query}"
    assert ask(watch, cookie, page, *websocket).status == 403
    event = audit.wait_for("metadata.name%3Dquery")[0]
    assert event["impersonatedUser"]["username"] == "gitlab:user:alice"
    assert "csrf" not in event["requestURI"] and "gitlab" not in event["requestURI"]

    # A token in place of the query; the API server sees the other subprotocol only.
    sealed = "/api/v1/pods?watch=true&fieldSelector=metadata.name%3Dsealed"
    wants = f"{sealed}&kas-websocket-token-request=true"
    token = json.loads(ask(wants, cookie, csrf, agent, page).body)["token"]
    protocol = "Sec-WebSocket-Protocol: base64.binary.k8s.io, "
    protocol += f"websocket-token.kas.gitlab.com.{token}"
    assert ask(sealed, cookie, page, protocol, *websocket).status == 403
    (user,) = {
        one["impersonatedUser"]["username"]
        for one in audit.wait_for("metadata.name%3Dsealed")
    }
    assert user == "gitlab:user:alice"
    assert ask(sealed, cookie, page, f"{protocol}x", *websocket).status == 401

    # Without the CSRF token, with that of another, from another page, it is nobody.
    for lines in (
        (cookie, agent, page),
        (cookie, agent, "X-Csrf-Token: other", page),
        (cookie, csrf, page),
        (cookie, csrf, "Gitlab-Agent-Id: 8", page),
    ):
        refused = ask(path("wrong"), *lines)
        assert refused.status == 401, lines
        assert refused.field("Gitlab-Unauthorized") == "true"
    evil = "Origin: https://evil.example.com"
    assert ask(path("wrong"), cookie, csrf, agent, evil).status == 403
    assert ask(watch, cookie, evil, *websocket).status == 403
    preflight = ask(path("wrong"), page, method="OPTIONS")
    assert (preflight.status, preflight.body) == (200, b"")
    assert ask(path("fence"), cookie, csrf, agent).status == 403
    audit.wait_for("fence")
    assert not audit.about("wrong")
    about = audit.about("metadata.name%3Dquery")
    assert {one["auditID"] for one in about} == {event["auditID"]}

    # Signed out.
    gitlab.control(revoke="key+1==")
    eventually(lambda: ask("/readyz", cookie, csrf, agent).status == 401)
    assert "csrf-of" not in (served.folder / "kas.log").read_text()


def kubeconfig(kas: Kas, secret: str) -> Path:
    """As GitLab writes it for a job."""
    path = kas.folder / f"{secret.rpartition(':')[2]}.kubeconfig"
    cluster = {
        "server": f"https://127.0.0.1:{kas.proxy}",
        "certificate-authority": str(kas.authority),
    }
    context = {"cluster": "gitlab", "user": "agent:7"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "gitlab", "cluster": cluster}],
        "users": [{"name": "agent:7", "user": {"token": secret}}],
        "contexts": [{"name": "group/project-42:prod", "context": context}],
        "current-context": "group/project-42:prod",
    }
    path.write_text(json.dumps(content))
    path.chmod(0o600)
    return path


def test_kubectl(
    gitlab: GitLabProcess,
    served: Kas,
    shared_namespace: str,
    make_kubectl: Callable[..., Kubectl],
) -> None:
    """A job and a person run kubectl; a terminal ends with its token, no other does."""
    start_pods(make_kubectl("direct", namespace=shared_namespace))
    gitlab.control(
        jobs={"glcbt-k": job_answer({7: {"access_as": {"ci_job": {}}}})},
        users={
            "glpat-k": user_answer(7, AS_USER),
            "glpat-x": user_answer(7, {"agent": {}}),
            "glpat-y": user_answer(7, {"agent": {}}),
        },
    )

    def kubectl(secret: str) -> Kubectl:
        return attrs.evolve(
            make_kubectl("direct", namespace=shared_namespace),
            kubeconfig=kubeconfig(served, secret),
            cache=served.folder / "cache",
        )

    for secret, name in (
        ("ci:7:glcbt-k", "gitlab:ci_job:501"),
        ("pat:7:glpat-k", "gitlab:user:alice"),
    ):
        who = kubectl(secret).json("auth", "whoami")["status"]["userInfo"]
        assert who["username"] == name
    wrong = kubectl("ci:7:glcbt-wrong")("get", "pods")
    assert wrong.code == 1
    assert b"Unauthorized" in wrong.err or b"logged in" in wrong.err, wrong.err
    run = ("exec", "-i", "main", "-c", "echo", "--", "sh", "-c", "echo begun; cat")
    with (
        kubectl("pat:7:glpat-x").start(*run, stdin=True) as ended,
        kubectl("pat:7:glpat-y").start(*run, stdin=True) as other,
    ):
        assert ended.line() == other.line() == b"begun\n"
        gitlab.control(revoke="glpat-x")
        assert ended.ended(3 * LIFETIME).code != 0
        other.write(b"still here\n")
        assert other.line() == b"still here\n"


def test_flood(
    gitlab: GitLabProcess, lone_kas: Kas, control_plane: ControlPlane
) -> None:
    """Invented tokens cost GitLab only so much; what it knows goes on, agents too."""
    gitlab.control(
        agents={"glagent-prod": {"agent_id": 7, "name": "prod", "project_id": 42}},
        jobs={"good": job_answer({7: {}})},
    )
    kas = lone_kas
    kas.settings = gitlab.settings + "  failed_checks_per_address_per_minute: 5\n"
    kas.start()
    token = kas.folder / "agent.token"
    token.write_text("glagent-prod")
    token.chmod(0o600)
    agentk = Agentk(kas, token, control_plane.agent)
    agentk.start()

    def ask(secret: str) -> Answer:
        return Way("one", kas.proxy, kas.authority, secret).ask("GET", "/readyz")

    assert ask("ci:7:good").status == 200
    answers = [ask(f"{kind}:7:bad-{n}") for n in range(20) for kind in ("ci", "pat")]
    statuses = Counter(answer.status for answer in answers)
    assert 5 <= statuses[401] <= 8 and statuses[401] + statuses[429] == 40
    assert answers[-1].field("Retry-After")
    asked = gitlab.control()["asked"]
    bad = (count for one, count in asked.items() if one.startswith("bad-"))
    assert sum(bad) == statuses[401]
    assert ask("ci:7:good").status == 200
    other = kas.folder / "other.token"
    other.write_text("glagent-other")
    other.chmod(0o600)
    stranger = Agentk(kas, other, control_plane.agent, "stranger")
    process = Process(
        stranger.name, twistd("agentk", *stranger.arguments()), kas.folder / "o.log"
    )
    process.wait_for("too many credentials from your address were refused")
    process.stop()
    agentk.stop()


def test_agents(
    gitlab: GitLabProcess, lone_kas: Kas, control_plane: ControlPlane
) -> None:
    """
    An agent of GitLab serves, also while GitLab is away, and until it is revoked.

    The user is one of the identity file, for the day on which GitLab is away.
    """
    gitlab.control(
        agents={"glagent-prod": {"agent_id": 7, "name": "prod", "project_id": 42}}
    )
    kas = lone_kas
    kas.settings = gitlab.settings
    kas.agent_settings = (f"info_cache_ttl: {LIFETIME}s", "info_cache_error_ttl: 1s")
    kas_process = kas.start()
    token = kas.folder / "agent.token"
    token.write_text("glagent-prod")
    token.chmod(0o600)
    agentk = Agentk(kas, token, control_plane.agent)
    agentk.start()

    glass = kas.folder / "glass.token"
    rest = ("--agent", "*", "--as-agent", "--token-file", glass)
    kas.ctl("user", "add", "glass", *rest)
    secret = glass.read_text().strip()
    way = Way("glass", kas.proxy, kas.authority, f"user:7:{secret}")
    eventually(lambda: way.ask("GET", "/readyz").body == b"ok")
    (agent,) = kas.ctl_json("agent", "list")
    assert (agent["id"], agent["name"], agent["connected"]) == ("7", "prod", True)
    # GitLab's names are not of one agent only.
    nobody = Way("glass", kas.proxy, kas.authority, f"user:prod:{secret}")
    assert nobody.ask("GET", "/readyz").status in (401, 403)

    # GitLab is away: what runs runs on, and an agent that it knew comes back.
    gitlab.control(mood="down")
    agentk.stop()
    agentk.start()
    eventually(lambda: way.ask("GET", "/readyz").body == b"ok")
    new_token = kas.folder / "new.token"
    new_token.write_text("glagent-new")
    new_token.chmod(0o600)
    gitlab.control(
        agents={"glagent-new": {"agent_id": 8, "name": "new", "project_id": 42}}
    )
    new = Agentk(kas, new_token, control_plane.agent, "agentk-new")
    process = Process(
        new.name, twistd("agentk", *new.arguments()), kas.folder / "new.log"
    )
    process.wait_for("GitLab is unavailable")

    # It is back, and takes the first one's token away.
    gitlab.control(mood="ok")
    kas_process.wait_for(r"agent new \(8\) connected", 60)
    process.stop()
    assert agentk.process is not None
    gitlab.control(revoke="glagent-prod")
    agentk.process.wait_for("GitLab does not know this agent token", 6 * LIFETIME)
    assert not agentk.ready()
    gitlab.control(
        agents={"glagent-prod": {"agent_id": 7, "name": "prod", "project_id": 42}}
    )
    agentk.wait_until_ready(90)
    agentk.stop()


def test_modules_ask_gitlab(
    gitlab: GitLabProcess, lone_kas: Kas, control_plane: ControlPlane
) -> None:
    """What a module in agentk asks reaches its own path, with both signatures."""
    gitlab.control(
        agents={"glagent-prod": {"agent_id": 7, "name": "prod", "project_id": 42}}
    )
    lone_kas.settings = gitlab.settings
    lone_kas.start()
    folder = lone_kas.folder
    plugins = folder / "twisted" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "tests_asker_modules.py").write_text(ASKER)
    token = folder / "agent.token"
    token.write_text("glagent-prod")
    token.chmod(0o600)
    file = folder / "agentk.yaml"
    file.write_text("modules:\n  asker: {}\n")
    agentk = Agentk(lone_kas, token, control_plane.agent)
    process = Process(
        agentk.name,
        twistd("agentk", *agentk.arguments(), "--configuration-file", file),
        folder / "agentk.log",
        environment=python_path(folder),
    )
    try:
        process.wait_for(
            "GitLab responded with 201 to 7 at .*/modules/asker/things: 300000"
        )
    finally:
        process.stop()
    assert gitlab.control()["paths"][f"{MODULES}/asker/things"] == 1
