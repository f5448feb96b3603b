"""
Two kas, Redis, Gitaly, a Git server, agentk and a cluster: only GitLab is a fake.

Agents are at the second kas; GitLab, Git, jobs and people speak to the first.  What one
kas is told the other acts on: pushes, tokens that end, requests.
"""

from __future__ import annotations

import base64
import json
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from tests.fakes.gitlab import job_answer, user_answer
from tests.faults.stand import Fleet
from tests.integration.cluster import ControlPlane
from tests.integration.kubectl import Kubectl
from tests.integration.processes import PATIENCE, Process, eventually
from tests.integration.rawhttp import Way
from tests.integration.stack import Agentk
from tests.integration.test_agent_configuration import BROKEN, DEBUG, ask
from tests.integration.test_gitlab import (
    AS_USER,
    LIFETIME,
    GitLabProcess,
    impersonated,
    kubeconfig,
    path,
    whom,
)
from tools.git_repository import GitRepository
from tools.git_server import GitServer
from tools.ports import free_port

#: Where the agents' files are.
PROD = ".gitlab/agents/prod/config.yaml"
EDGE = ".gitlab/agents/edge/config.yaml"

SECRETS = {
    name: f"{name}-{'s' * 20}"
    for name in (
        *("gitaly", "git", "glagent-prod", "glagent-edge"),
        *("glcbt-job", "glcbt-other", "glpat-a"),
    )
}

_MORE = """\
api:
  listen:
    address: 127.0.0.1:{api}
    development_certificate: false
    authentication_secret_file: {folder}/api.secret
web: {{listen: {{address: "127.0.0.1:{web}", development_certificate: false}}}}
modules:
  notifications: {{webhook_secret_file: {folder}/hook.secret}}
"""


@attrs.define(eq=False)
class Stand:
    """
    All programs, in *folder*.

    :ivar project: the repository of the agent ``prod``, which GitLab has at Gitaly.
    :ivar origin: that of ``edge``, at a Git server beside GitLab.
    """

    folder: Path
    gitlab: GitLabProcess
    control_plane: ControlPlane
    gitaly: Process
    gitaly_port: int
    project: GitRepository
    origin: GitRepository
    server: GitServer
    api: int = attrs.Factory(free_port)
    web: int = attrs.Factory(free_port)
    fleet: Fleet = attrs.field(init=False)

    def start(self) -> None:
        """GitLab knows both agents, and all kas and no agentk run."""
        self.gitlab.control(
            agents={
                SECRETS["glagent-prod"]: {
                    "agent_id": 7,
                    "name": "prod",
                    "project_id": 42,
                },
                SECRETS["glagent-edge"]: {
                    "agent_id": 8,
                    "name": "edge",
                    "project_id": 43,
                },
            },
            gitaly={
                "address": f"tcp://127.0.0.1:{self.gitaly_port}",
                "token": SECRETS["gitaly"],
                "features": {"gitaly-feature-test": "true"},
            },
        )
        for name in ("api", "hook"):
            secret = base64.b64encode(name.encode() * 16).decode()
            (self.folder / f"{name}.secret").write_text(secret)
        credentials = self.folder / "git.credentials"
        credentials.write_text(f"kas:{SECRETS['git']}\n")
        self.fleet = Fleet(self.folder, 2, self.gitlab.settings)
        first = self.fleet.kas[0]
        first.more += _MORE.format(api=self.api, web=self.web, folder=self.folder)
        for kas in self.fleet.kas:
            kas.agent_settings = (
                f"info_cache_ttl: {LIFETIME}s",
                "info_cache_error_ttl: 1s",
                "configuration:",
                "  poll_period: 1h",
                "  repositories:",
                "    edges:",
                f"      url: {self.server.url('edges.git')}",
                f"      credentials_file: {credentials}",
                "      agents: ['group/project-43:*']",
            )
            kas.proxy_settings = (
                f"allowed_agent_cache_ttl: {LIFETIME}s",
                "allowed_agent_cache_error_ttl: 1s",
            )
        self.fleet.start()
        self.fleet.know_each_other()

    def agentk(self, name: str) -> Agentk:
        """At the second kas."""
        token = self.folder / f"{name}.token"
        token.write_text(SECRETS[f"glagent-{name}"])
        token.chmod(0o600)
        cluster = self.control_plane.agent
        return self.fleet.agentk(token, cluster, name=name, at=self.fleet.kas[1])

    def pushed_to_gitlab(self) -> None:
        """GitLab tells the first kas of a push to the project."""
        event = {"project": {"id": 42, "fullPath": "group/project-42"}}
        method = "notifications.rpc.Notifications/GitPushEvent"
        secret = self.folder / "api.secret"
        assert ask(self.api, secret, method, {"event": event}) == {}

    def pushed_to_server(self) -> None:
        """The hook of the Git server tells it."""
        secret = (self.folder / "hook.secret").read_text()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.web}/git/pushed/edges",
            b"{}",
            {"X-Gitlab-Token": secret},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            assert answer.status == 204

    def way(self, secret: str) -> Way:
        """Through the first kas."""
        first = self.fleet.kas[0]
        return Way("one", first.proxy, first.authority, secret)

    def said(self) -> str:
        """What all our programs logged."""
        return "".join(log.read_text() for log in self.folder.rglob("*.log"))


@pytest.fixture
def stand(tmp_path: Path, control_plane: ControlPlane) -> Iterator[Stand]:
    served = tmp_path / "served"
    (served / "@hashed/ab").mkdir(parents=True)
    project = GitRepository.make(served / "@hashed/ab/cd.git")
    project.commit({PROD: DEBUG, "README": "x"})
    origin = GitRepository.make(served / "edges.git")
    origin.commit({EDGE: DEBUG})
    command = (sys.executable, "-m", "tests.integration.gitaly_server")
    log = tmp_path / "gitaly.log"
    gitaly = Process("gitaly", [*command, served, SECRETS["gitaly"]], log)
    port = int(gitaly.wait_for(r"listening on port (\d+)")[1])
    server = GitServer(served, "kas", SECRETS["git"])
    gitlab = GitLabProcess(tmp_path)
    stand = Stand(
        tmp_path, gitlab, control_plane, gitaly, port, project, origin, server
    )
    try:
        stand.start()
        yield stand
    finally:
        stand.fleet.stop()
        gitlab.process.stop(signal.SIGKILL)
        gitaly.kill()
        server.stop()


def in_effect(commit: str) -> str:
    """What agentk logs."""
    return f"the configuration of commit {commit} is in effect"


def test_gitlab_git_and_cluster(
    stand: Stand, make_kubectl: Callable[..., Kubectl]
) -> None:
    """From the registration of agents until a token is revoked."""
    gitlab, first, second = stand.gitlab, *stand.fleet.kas
    prod, edge = stand.agentk("prod"), stand.agentk("edge")
    assert prod.process is not None and edge.process is not None
    prod.process.wait_for(in_effect(stand.project.run("rev-parse", "main")))
    edge.process.wait_for(in_effect(stand.origin.run("rev-parse", "main")))

    # A push of which the first kas is told reaches agents of the second.
    access = {"projects": [{"id": "group/app", "access_as": {"ci_job": {}}}]}
    people = {"access_as": {"user": {}}, "projects": [{"id": "group/app"}]}
    said = {"ci_access": access, "user_access": people}
    commit = stand.project.commit({PROD: json.dumps(said)})
    stand.pushed_to_gitlab()
    prod.process.wait_for(in_effect(commit))
    commit = stand.origin.commit({EDGE: "observability: {}\n"})
    stand.pushed_to_server()
    edge.process.wait_for(in_effect(commit))
    eventually(lambda: gitlab.control()["configurations"].get("7") == said)

    # A job and a person run kubectl, as whom GitLab says they are.
    gitlab.control(
        jobs={
            SECRETS["glcbt-job"]: job_answer({7: access["projects"][0]}),
            SECRETS["glcbt-other"]: job_answer({7: {}}, job=502),
        },
        users={SECRETS["glpat-a"]: user_answer(7, AS_USER)},
    )
    job, person = f"ci:7:{SECRETS['glcbt-job']}", f"pat:7:{SECRETS['glpat-a']}"
    other = stand.way(f"ci:7:{SECRETS['glcbt-other']}")
    audit = stand.control_plane.audit()
    direct = make_kubectl("direct")
    for secret, name in ((job, "gitlab:ci_job:501"), (person, "gitlab:user:alice")):
        kubectl = attrs.evolve(direct, kubeconfig=kubeconfig(first, secret))
        who = kubectl.json("auth", "whoami")["status"]["userInfo"]
        assert who["username"] == name
    assert stand.way(person).ask("GET", path("e2e-person")).status == 403
    assert impersonated(audit, "e2e-person") == whom("personal_access_token")
    elsewhere = stand.way(job.replace("ci:7", "ci:8"))
    assert elsewhere.ask("GET", path("e2e-elsewhere")).status == 403

    # The agent's file is broken: what was stays, and everyone can see why.
    broken = stand.project.commit({PROD: BROKEN})
    stand.pushed_to_gitlab()
    why = f"commit {broken[:12]}: {PROD}:3:5: observability.logging: unknown key"
    prod.process.wait_for(why)
    eventually(lambda: why in json.dumps(second.status()))
    assert gitlab.control()["configurations"]["7"] == said
    stand.project.commit({PROD: json.dumps(said)})
    stand.pushed_to_gitlab()
    eventually(lambda: why not in json.dumps(second.status()))
    assert in_effect(broken) not in prod.process.said()

    # GitLab is away: who was known goes on, also with a new connection and a push.
    gitlab.control(mood="down")
    assert stand.way(job).ask("GET", "/readyz").status == 200
    assert stand.way("ci:7:new").ask("GET", "/readyz").status in (500, 503)
    edge.stop()
    again = edge.start()
    commit = stand.origin.commit({EDGE: DEBUG})
    stand.pushed_to_server()
    again.wait_for(in_effect(commit))
    gitlab.control(mood="ok")

    # A job ends, and then an agent is taken away; nobody else notices.
    with other.connect() as connection:
        target = "/api/v1/namespaces/default/configmaps?watch=true"
        connection.send(other.head("GET", target))
        assert connection.head()[1] == 200
        begun = time.monotonic()
        gitlab.control(revoke=SECRETS["glcbt-other"])
        connection.sock.settimeout(4 * LIFETIME)
        connection.rest()
        assert time.monotonic() - begun < 3 * LIFETIME
    gitlab.control(revoke=SECRETS["glagent-edge"])
    again.wait_for("GitLab does not know this agent token", 6 * LIFETIME)
    assert other.ask("GET", "/readyz").status == 401
    for secret in (job, person):
        assert stand.way(secret).ask("GET", "/readyz").status == 200
    assert prod.ready() and not edge.ready()

    assert gitlab.control()["violations"] == []
    told = stand.said()
    for name, secret in SECRETS.items():
        assert secret not in told, name
