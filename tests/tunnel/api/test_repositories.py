"""Which agents the patterns of kas' file name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from modules.gitops.server.config import MergeRequestSettings, WebhookSettings
from tunnel.api import (
    AgentProject,
    GitAddress,
    GitalyAddress,
    RepositorySettings,
    agents_match,
    project_of,
    readable_repository,
)
from tunnel.errors import CallError, Status
from tunnel.testing.ends import AGENT


@pytest.mark.parametrize(
    ("pattern", "project", "matches"),
    [
        ("prod", None, True),
        ("prod", "group/evil", False),
        ("prod", "", False),
        ("prod*", "group/evil", False),
        ("*", None, True),
        ("*", "group/clusters", False),
        ("group/clusters:prod", "group/clusters", True),
        ("group/clusters:prod", "group/evil", False),
        ("group/clusters:prod", "", False),
        ("group/clusters:prod", None, False),
        ("group/*:prod", "group/clusters", True),
        ("*:prod", "", True),
    ],
)
def test_patterns(pattern: str, project: str | None, matches: bool) -> None:
    assert agents_match([pattern], "prod", project) is matches


def test_webhooks_and_previews(tmp_path: Path) -> None:
    """By default every agent; a pattern names no agent of other projects."""
    secret = tmp_path / "secret"
    secret.write_text("the-secret-of-webhooks")

    def settings(**more: Any) -> list[Any]:
        url = "https://example.org"
        return [
            WebhookSettings(url=url, secret_file=secret, **more),
            MergeRequestSettings(
                gitlab_url=url, webhook_secret_file=secret, token_file=secret, **more
            ),
        ]

    for one in settings():
        assert one.has("prod", None) and one.has("prod", "group/clusters")
    for one in settings(agents=("prod-*",)):
        assert one.has("prod-1", None)
        assert not one.has("prod-1", "group/evil")
        assert not one.has("prod-1", "")
    for one in settings(agents=("group/clusters:prod-*",)):
        assert one.has("prod-1", "group/clusters")
        assert not one.has("prod-1", "group/evil")


def test_projects() -> None:
    """An agent of GitLab whose project is unknown is still GitLab's."""

    class Projects:
        known: AgentProject | None = None

        def project(self, agent_id: str) -> AgentProject | None:
            return self.known

    projects = Projects()
    api: Any = SimpleNamespace(gitlab=projects)
    assert project_of(api, AGENT) is None
    assert project_of(api, attrs.evolve(AGENT, project_id=5)) == ""
    address = GitalyAddress(
        address="tcp://gitaly:8075", storage_name="default", relative_path="a.git"
    )
    projects.known = AgentProject(
        full_path="group/clusters", default_branch="main", repository=address
    )
    assert project_of(api, attrs.evolve(AGENT, project_id=5)) == "group/clusters"


def test_readable_repositories() -> None:
    """An agent reads its own project and what names it, and learns of nothing else."""
    address = GitalyAddress(address="tcp://gitaly:8075", relative_path="a.git")
    project = AgentProject(
        full_path="group/clusters", default_branch="main", repository=address
    )
    url = "https://git.example.org/{}.git"
    repositories = {
        "other": RepositorySettings(url=url.format("other"), agents=("other",)),
        "apps": RepositorySettings(url=url.format("apps"), agents=("agent-*",)),
    }

    def find(wanted: str, own: AgentProject | None = None) -> Any:
        api: Any = SimpleNamespace(gitlab=SimpleNamespace(project=lambda _: own))
        return readable_repository(
            api, repositories, AGENT, wanted, "acme.repositories"
        )

    for wanted in ("", "apps"):
        assert find(wanted) == ("apps", GitAddress(url=url.format("apps")), 0)
    for wanted in ("", "group/clusters"):
        found = find(wanted, project)
        assert found == ("group/clusters", address, AGENT.project_id)
    texts = []
    for wanted in ("other", "none"):
        with pytest.raises(CallError) as caught:
            find(wanted)
        assert caught.value.status is Status.FAILED_PRECONDITION
        texts.append(caught.value.message.replace(wanted, ""))
    # Both errors are equal, so an agent cannot find out names.
    assert texts[0] == texts[1]
    assert "acme.repositories" in texts[0]
    assert texts[0].endswith("it may read: apps")
