"""Agents' configuration from a real Git server, through a real kas and agentk."""

from __future__ import annotations

import base64
import json
import re
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kas.identity.jwt import read_secret, sign
from tests.integration.processes import PATIENCE, ROOT, Process, eventually
from tests.integration.stack import Agentk, Kas
from tests.integration.test_gitlab import GitLabProcess
from tools.git_repository import GitRepository, git
from tools.git_server import GitServer
from tools.ports import free_port

FILE = ".gitlab/agents/main/config.yaml"
DEBUG = "observability:\n  logging:\n    level: debug\n"
#: A key in the third line that no schema has.
BROKEN = "observability:\n  logging:\n    levle: debug\n"
SECRET = "glpat-very-secret"


@pytest.fixture
def origin(tmp_path: Path) -> GitRepository:
    """A repository with the configuration of the agent ``main``."""
    (tmp_path / "served").mkdir()
    origin = GitRepository.make(tmp_path / "served" / "clusters.git")
    origin.commit({FILE: DEBUG, "README": "x"})
    return origin


@pytest.fixture
def server(tmp_path: Path, origin: GitRepository) -> Iterator[GitServer]:
    """Serves it to those who know the password."""
    server = GitServer(tmp_path / "served", "kas", SECRET)
    yield server
    server.stop()


def peak_memory(pid: int) -> int:
    """The most memory that a process has had, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) // 1024


def configure(kas: Kas, server: GitServer, *more: str) -> None:
    credentials = kas.folder / "git-credentials"
    credentials.write_text(f"kas:{SECRET}\n")
    kas.agent_settings = (
        "configuration:",
        "  poll_period: 1s",
        "  repositories:",
        "    clusters:",
        f"      url: {server.url('clusters.git')}",
        f"      credentials_file: {credentials}",
        *more,
    )


def test_push_break_mend(
    lone_kas: Kas, lone_agentk: Agentk, origin: GitRepository, server: GitServer
) -> None:
    """A commit reaches agentk; a broken one changes nothing and says where it is."""
    configure(lone_kas, server)
    kas = lone_kas.start()
    agentk = lone_agentk.start()
    first = origin.run("rev-parse", "main")
    agentk.wait_for(f"the configuration of commit {first} is in effect")
    # ... which is seen from what agentk logs now.
    agentk.wait_for("logging events of level debug")

    broken = origin.commit({FILE: BROKEN})
    told = (
        f"commit {broken[:12]}: {FILE}:3:5: observability.logging: unknown key 'levle'"
    )
    agentk.wait_for(told.replace("[", "\\["))
    kas.wait_for(told)
    eventually(lambda: told in lone_kas.ctl("status"))
    assert first in agentk.said()
    assert broken + " is in effect" not in agentk.said()

    mended = origin.commit({FILE: "observability: {logging: {level: info}}\n"})
    agentk.wait_for(f"the configuration of commit {mended} is in effect")
    eventually(lambda: told not in lone_kas.ctl("status"))

    # The Git server goes away and comes back: nothing is lost, nothing is changed.
    server.refuses = 503
    eventually(lambda: "503" in lone_kas.ctl("status"))
    forced = origin.commit({FILE: DEBUG}, onto=None)
    server.refuses = 0
    agentk.wait_for(f"the configuration of commit {forced} is in effect", seconds=60)
    eventually(lambda: "503" not in lone_kas.ctl("status"))

    assert lone_agentk.stop()
    assert lone_kas.stop()
    for process in (kas, agentk):
        assert SECRET not in process.said()
    assert not list(lone_kas.state.glob("git-*"))


def test_an_agent_that_does_not_read(
    lone_kas: Kas, origin: GitRepository, server: GitServer
) -> None:
    """kas holds one configuration for its agentk, however many streams it opens."""
    item = "\U0001f600" * 1000
    text = f"remote_development:\n  a: &a {item}\n  list:\n" + "  - *a\n" * 480
    origin.commit({FILE: text})
    configure(lone_kas, server)
    kas = lone_kas.start()
    before = peak_memory(kas.pid)
    token = lone_kas.add_agent("main")
    arguments = (lone_kas.authority, lone_kas.agents, token, 60)
    greedy = Process(
        "greedy",
        [sys.executable, "-m", "tests.integration.greedy_agent", *map(str, arguments)],
        lone_kas.folder / "greedy.log",
        environment={"PYTHONPATH": str(ROOT)},
    )
    try:
        kas.wait_for("agentk refuses it: all opened")
        # The last stream, and the call that reported the problem.
        assert lone_kas.streams() <= 2
        assert peak_memory(kas.pid) - before < 48
    finally:
        greedy.kill()


def test_pushes_are_announced(
    lone_kas: Kas, lone_agentk: Agentk, origin: GitRepository, server: GitServer
) -> None:
    """A post-receive hook, and GitLab's call: both make kas look at once."""
    configure(lone_kas, server)
    web, api = free_port(), free_port()
    for name in ("hook", "api"):
        secret = base64.b64encode(name.encode() * 16).decode()
        (lone_kas.folder / f"{name}.secret").write_text(secret)
    lone_kas.agent_settings = tuple(
        line.replace("poll_period: 1s", "poll_period: 1h")
        for line in lone_kas.agent_settings
    )
    lone_kas.settings = f"""
web: {{listen: {{address: "127.0.0.1:{web}", development_certificate: false}}}}
api:
  listen:
    address: 127.0.0.1:{api}
    development_certificate: false
    authentication_secret_file: {lone_kas.folder}/api.secret
modules:
  notifications: {{webhook_secret_file: {lone_kas.folder}/hook.secret}}
"""
    lone_kas.start()
    agentk = lone_agentk.start()
    agentk.wait_for("is in effect")

    # As in hooks/post-receive of the repository.
    hook = origin.path / "hooks" / "post-receive"
    secret_file = lone_kas.folder / "hook.secret"
    hook.write_text(
        "#!/bin/sh\n"
        f'curl -sf -X POST -H "Authorization: Bearer $(cat {secret_file})" '
        f"http://127.0.0.1:{web}/git/pushed/clusters\n"
    )
    hook.chmod(0o755)
    commit = push(origin, "observability: {}\n")
    agentk.wait_for(f"the configuration of commit {commit} is in effect")

    hook.unlink()
    commit = push(origin, DEBUG)
    event = {"project": {"id": 7, "fullPath": "clusters"}}
    method = "notifications.rpc.Notifications/GitPushEvent"
    assert ask(api, lone_kas.folder / "api.secret", method, {"event": event}) == {}
    agentk.wait_for(f"the configuration of commit {commit} is in effect")


def test_gitlab_and_gitaly(tmp_path: Path, origin: GitRepository) -> None:
    """GitLab names Gitaly and the repository, and is told what is in it."""
    gitlab = GitLabProcess(tmp_path)
    command = (sys.executable, "-m", "tests.integration.gitaly_server")
    served = origin.path.parent
    gitaly = Process("gitaly", [*command, served, SECRET], tmp_path / "gitaly.log")
    port = int(gitaly.wait_for(r"listening on port (\d+)")[1])
    (served / "@hashed/ab").mkdir(parents=True)
    origin.path.rename(served / "@hashed/ab/cd.git")
    origin = GitRepository(served / "@hashed/ab/cd.git")
    token = tmp_path / "gitlab-agent.token"
    token.write_text("glagent-of-main")
    gitlab.control(
        agents={"glagent-of-main": {"agent_id": 7, "name": "main", "project_id": 42}},
        gitaly={
            "address": f"tcp://127.0.0.1:{port}",
            "token": SECRET,
            "features": {"gitaly-feature-test": "true"},
        },
    )
    api = free_port()
    secret = tmp_path / "api.secret"
    secret.write_text(base64.b64encode(b"api" * 16).decode())
    kas = Kas(
        tmp_path / "kas",
        settings=gitlab.settings
        + f"""
api:
  listen:
    address: 127.0.0.1:{api}
    development_certificate: false
    authentication_secret_file: {secret}
""",
    )
    kas.folder.mkdir()
    kas.agent_settings = ("configuration: {poll_period: 1s}",)
    agentk = Agentk(kas, token, nowhere(tmp_path))
    try:
        log = kas.start()
        said = agentk.start()
        first = origin.run("rev-parse", "main")
        said.wait_for(f"the configuration of commit {first} is in effect")
        access = {"projects": [{"id": "group/app"}]}
        second = origin.commit({FILE: f"ci_access: {json.dumps(access)}\n"})
        said.wait_for(f"the configuration of commit {second} is in effect")
        eventually(
            lambda: gitlab.control()["configurations"] == {"7": {"ci_access": access}}
        )
        GitRepository.make(served / "other.git").commit({"README": "no agents"})

        def files_of(path: str) -> Any:
            return ask(
                api,
                secret,
                "configuration_project.rpc.ConfigurationProject/ListAgentConfigFiles",
                {
                    "repository": {"storageName": "default", "relativePath": path},
                    "gitalyInfo": {
                        "address": f"tcp://127.0.0.1:{port}",
                        "token": SECRET,
                        "features": {"gitaly-feature-test": "true"},
                    },
                    "defaultBranch": "main",
                },
            )

        files = files_of("@hashed/ab/cd.git")
        assert files == {"configFiles": [{"name": FILE, "agentName": "main"}]}
        assert files_of("other.git") == {}
        broken = origin.commit({FILE: BROKEN})
        said.wait_for(f"commit {broken[:12]}: {FILE}:3:5: observability.logging")
        # Gitaly goes away for a while.
        gitaly.kill()
        eventually(lambda: "repository group/project-42" in kas.ctl("status"))
        assert gitlab.control()["violations"] == []
        assert SECRET not in log.said() + said.said()
    finally:
        for program in (agentk, kas):
            if program.process is not None:
                program.process.kill()
        gitlab.process.kill()
        gitaly.kill()


def ask(port: int, secret_file: Path, method: str, body: Any) -> Any:
    """What the external API answers to GitLab."""
    token = sign(
        read_secret(secret_file),
        issuer="gitlab.example.org",
        audience="gitlab-kas",
        now=time.time(),
        lifetime=60,
    )
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/gitlab.agent.{method}",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def nowhere(folder: Path) -> Path:
    """The kubeconfig of a cluster that is not there."""
    path = folder / "nowhere.kubeconfig"
    content = {
        "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "x", "user": {"token": "no-secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(content))
    return path


def push(origin: GitRepository, text: str) -> str:
    """Push a commit as a person would, hooks included."""
    work = origin.path.parent / f"work-{time.monotonic_ns()}"
    git("clone", "-q", str(origin.path), str(work))
    (work / FILE).write_text(text)
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    git("-C", str(work), *who, "commit", "-q", "-a", "-m", "a change")
    git("-C", str(work), "push", "-q", "origin", "main")
    return origin.run("rev-parse", "main")


def test_kas_restarts_while_git_is_down(
    lone_kas: Kas, lone_agentk: Agentk, origin: GitRepository, server: GitServer
) -> None:
    """A new agentk of a new kas gets the last configuration that worked."""
    configure(lone_kas, server)
    lone_kas.start()
    commit = origin.run("rev-parse", "main")
    effective = f"the configuration of commit {commit} is in effect"
    lone_agentk.start().wait_for(effective)
    assert lone_agentk.stop()
    assert lone_kas.stop()
    server.refuses = 503
    lone_kas.start()
    agentk = lone_agentk.start()
    agentk.wait_for(effective)
    agentk.wait_for(
        "is invalid; the previous configuration stays in effect: repository clusters"
    )


def test_of_this_machine(
    lone_kas: Kas, lone_agentk: Agentk, origin: GitRepository
) -> None:
    """A path in place of a URL; a repository without a commit, and then with one."""
    empty = GitRepository.make(lone_kas.folder / "empty.git")
    lone_kas.agent_settings = (
        "configuration:",
        "  poll_period: 1s",
        "  repositories:",
        f"    here: {{path: {empty.path}, agents: [main]}}",
    )
    lone_kas.start()
    agentk = lone_agentk.start()
    agentk.wait_for("no commit on the default branch|there is no commit on the default")
    commit = empty.commit({FILE: DEBUG})
    agentk.wait_for(f"the configuration of commit {commit} is in effect", seconds=60)
