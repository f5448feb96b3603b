"""GitLab, in its place a fake, says which agents there are: everything else is real."""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
import sys
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

from kas.state import pki
from kas.state.directory import StateDirectory
from tests.integration.cluster import ControlPlane
from tests.integration.processes import ROOT, Process, eventually, twistd
from tests.integration.rawhttp import Way
from tests.integration.stack import Agentk, Kas

#: Seconds that GitLab's word counts here.
LIFETIME = 4


@attrs.define(eq=False)
class GitLabProcess:
    """The fake, with TLS."""

    folder: Path
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
            environment={"PYTHONPATH": str(ROOT)},
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
            f"gitlab:\n  address: https://127.0.0.1:{self.port}\n"
            f"  authentication_secret_file: {self.secret}\n"
            f"  ca_certificate_file: {self.authority}\n"
        )

    def control(self, **rest: Any) -> dict[str, Any]:
        """See `FakeGitLab.control`."""
        context = ssl.create_default_context(cafile=str(self.authority))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=context),
        )
        url = f"https://127.0.0.1:{self.port}/-/control"
        with opener.open(url, json.dumps(rest).encode(), timeout=10) as answer:
            told: dict[str, Any] = json.loads(answer.read())
            return told


@pytest.fixture
def gitlab(tmp_path: Path) -> Iterator[GitLabProcess]:
    fake = GitLabProcess(tmp_path)
    yield fake
    violations = fake.control(mood="ok", delay=0)["violations"]
    fake.process.stop(signal.SIGKILL)
    assert violations == []


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
    process.wait_for("GitLab cannot be asked now")

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
