"""What GitLab says of agents' repositories, and what it is told of their files."""

from __future__ import annotations

from typing import Any

from kas.gitlab.agents import GitLabAgents
from kas.gitlab.cache import Lifetimes
from kas.gitlab.projects import AgentProjects
from tests.kas.gitlab.cases import TOKEN, GitLabCase
from tunnel.api import GitalyAddress

LIFETIMES = Lifetimes(success=300, error=60, outage=14400)
CONFIGURATION = {"ci_access": {"projects": [{"id": "group/app"}]}}

REPOSITORY = {
    "storage_name": "d",
    "relative_path": "x.git",
    "gl_project_path": "trusted/clusters",
}
SAID: dict[str, Any] = {
    "gitaly_info": {"address": "tcp://g:1"},
    "gitaly_repository": REPOSITORY,
    "default_branch": "main",
}


class ProjectTests(GitLabCase):
    """`AgentProjects`, filled by the authenticator of agents."""

    def setUp(self) -> None:
        super().setUp()
        self.projects = AgentProjects(self.clock, self.client, lambda: 1.0)
        agents = GitLabAgents(self.client, LIFETIMES, list, self.clock, self.projects)
        self.gitlab.gitaly = {"features": {"gitaly-feature-x": "true"}}
        answer: Any = agents.authenticate_agent(TOKEN)
        self.settle()
        self.successResultOf(answer)

    def test_project(self) -> None:
        """All of it, and no secret in what is logged of it."""
        project = self.projects.project("7")
        assert project is not None
        self.assertEqual(project.full_path, "group/project-42")
        self.assertEqual(project.default_branch, "main")
        self.assertEqual(
            project.repository,
            GitalyAddress(
                address="tcp://gitaly.example:8075",
                token="gitaly-secret",
                features=(("gitaly-feature-x", "true"),),
                storage_name="default",
                relative_path="@hashed/ab/cd.git",
                gl_repository="project-42",
                gl_project_path="group/project-42",
            ),
        )
        self.assertNotIn("gitaly-secret", repr(project))
        self.assertIsNone(self.projects.project("8"))

    def test_unreadable(self) -> None:
        """An agent connects all the same, but without its former project."""
        for said in (
            {"gitaly_info": 1, "gitaly_repository": {}},
            {"gitaly_info": {"address": 1}, "gitaly_repository": {}},
            {"gitaly_info": {"address": "tcp://x:1"}, "gitaly_repository": {}},
            {"gitaly_info": {"address": "tcp://x:1"}, "gitaly_repository": 1},
            {},
        ):
            self.projects.update("7", SAID)
            self.assertIsNotNone(self.projects.project("7"))
            self.projects.update("7", said)
            self.assertIsNone(self.projects.project("7"))

    def test_unreadable_parts(self) -> None:
        """The path is unknown then, because it may give rights; the rest is used."""
        moved = {**REPOSITORY, "gl_project_path": "elsewhere/clusters"}
        for said, branch in (
            ({"gitaly_repository": moved, "default_branch": "main\u200b"}, ""),
            ({"gitaly_repository": moved, "default_branch": 1}, ""),
            ({"gitaly_repository": {**moved, "gl_project_path": "a\n"}}, "main"),
            ({"gitaly_repository": {**moved, "gl_project_path": 1}}, "main"),
        ):
            self.projects.update("7", SAID)
            project = self.projects.project("7")
            assert project is not None
            self.assertEqual(project.full_path, "trusted/clusters")
            self.projects.update("7", {**SAID, **said})
            project = self.projects.project("7")
            assert project is not None
            self.assertEqual((project.full_path, project.default_branch), ("", branch))
            self.assertEqual(project.repository.gl_project_path, "")
            self.assertEqual(project.repository.relative_path, "x.git")

    def test_moved(self) -> None:
        """That GitLab has a project somewhere else is told, once."""
        moved: list[str] = []
        projects = AgentProjects(self.clock, moved=moved.append)
        said: dict[str, Any] = {
            "default_branch": "main",
            "gitaly_info": {"address": "tcp://gitaly-1:8075"},
            "gitaly_repository": {"storage_name": "a", "relative_path": "b.git"},
        }
        projects.update("7", said)
        projects.update("7", said)
        self.assertEqual(moved, [])
        said["gitaly_info"] = {"address": "tcp://gitaly-2:8075"}
        projects.update("7", said)
        projects.update("7", said)
        self.assertEqual(moved, ["7"])
        projects.update("7", {**said, "default_branch": "other"})
        self.assertEqual(moved, ["7", "7"])
        projects.update("7", {})
        self.assertEqual(moved, ["7", "7"])

    def test_register(self) -> None:
        """GitLab is told how its own agents are configured."""
        self.projects.register_configuration("7", CONFIGURATION)
        self.projects.register_configuration("8", CONFIGURATION)
        self.settle()
        self.assertEqual(self.gitlab.configurations, {7: CONFIGURATION})
        self.assert_obeyed()

    def test_register_fails(self) -> None:
        """That GitLab is away, or has deleted the agent, stops nothing."""
        self.gitlab.mood = "down"
        self.projects.register_configuration("7", CONFIGURATION)
        self.wait(200, step=1)
        self.gitlab.mood = "ok"
        self.gitlab.agents.clear()
        self.projects.register_configuration("7", CONFIGURATION)
        self.settle()
        self.assertEqual(self.gitlab.configurations, {})
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_without_gitlab(self) -> None:
        """Nothing is known, and nothing is said."""
        alone = AgentProjects(self.clock)
        alone.register_configuration("7", CONFIGURATION)
        self.assertIsNone(alone.project("7"))

    def test_told_later(self) -> None:
        """A GitLab that was away for long learns of it all the same."""
        self.gitlab.mood = "down"
        self.projects.register_configuration("7", CONFIGURATION)
        self.wait(1000, step=1)
        self.gitlab.mood = "ok"
        self.wait(600, step=1)
        self.assertEqual(self.gitlab.configurations, {7: CONFIGURATION})
        self.projects.register_configuration("7", {})
        self.settle()
        self.assertEqual(self.gitlab.configurations, {7: {}})

    def test_no_pause_for_a_newer_one(self) -> None:
        """The pause after one that GitLab did not take is not for the next."""
        self.gitlab.mood = "down"
        self.projects.register_configuration("7", CONFIGURATION)
        self.wait(500, step=1)
        self.gitlab.mood = "ok"
        self.projects.register_configuration("7", {})
        self.wait(35, step=1)
        self.assertEqual(self.gitlab.configurations, {7: {}})

    def test_the_last_one(self) -> None:
        """An older configuration that was not taken never replaces a newer one."""
        newer: dict[str, Any] = {"ci_access": {"projects": []}}
        self.gitlab.mood = "down"
        self.projects.register_configuration("7", CONFIGURATION)
        self.settle()
        self.gitlab.mood = "ok"
        self.projects.register_configuration("7", newer)
        self.wait(60, step=0.1)
        self.assertEqual(self.gitlab.configurations, {7: newer})
