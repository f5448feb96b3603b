"""Which agents a project of GitLab has configuration files for."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from modules.configuration_project import rpc_pb2
from modules.configuration_project.server import (
    CONFIGURATION_PROJECT,
    ConfigurationProjectServer,
)
from tunnel.api import GitalyAddress, IServerModule
from tunnel.errors import CallError, Status
from tunnel.testing import ModulePair

ADDRESS = GitalyAddress(
    address="tcp://gitaly:8075",
    token="secret",
    features=(("gitaly-feature-x", "true"),),
    storage_name="default",
    relative_path="@hashed/a.git",
    gl_repository="project-1",
    gl_project_path="group/a",
)


class ConfigurationProjectTests(SynchronousTestCase):
    """The module behind an external API in memory."""

    def setUp(self) -> None:
        self.pair = ModulePair(Clock())
        self.module = self.pair.server_half(ConfigurationProjectServer)
        self.pair.start()
        self.addCleanup(self.pair.stop)
        self.repository = self.pair.repositories.open(ADDRESS)
        self.request = rpc_pb2.ListAgentConfigFilesRequest(default_branch="main")
        self.request.repository.storage_name = "default"
        self.request.repository.relative_path = "@hashed/a.git"
        self.request.repository.gl_repository = "project-1"
        self.request.repository.gl_project_path = "group/a"
        self.request.gitaly_info.address = "tcp://gitaly:8075"
        self.request.gitaly_info.token = "secret"
        self.request.gitaly_info.features["gitaly-feature-x"] = "true"

    def ask(self) -> list[tuple[str, str]]:
        calls = self.pair.external(CONFIGURATION_PROJECT)
        found: Any = self.pair.run(calls.call("ListAgentConfigFiles", self.request))
        return [(one.name, one.agent_name) for one in found.config_files]

    def refused(self) -> Status:
        with self.assertRaises(CallError) as caught:
            self.ask()
        status: Status = caught.exception.status
        return status

    def test_interface(self) -> None:
        """It is a module, under GitLab's name and numbers."""
        self.assertTrue(verifyObject(IServerModule, self.module))
        self.assertEqual(
            CONFIGURATION_PROJECT.full_name,
            "gitlab.agent.configuration_project.rpc.ConfigurationProject",
        )
        numbers = {field.name: field.number for field in self.request.DESCRIPTOR.fields}
        self.assertEqual(
            numbers, {"repository": 1, "gitaly_info": 2, "default_branch": 3}
        )

    def test_files(self) -> None:
        """Those of agents, and nothing else that is in the folder."""
        self.repository.commit(
            {
                ".gitlab/agents/prod/config.yaml": "{}",
                ".gitlab/agents/dev/config.yaml": "{}",
                ".gitlab/agents/dev/config.yml": "{}",
                ".gitlab/agents/dev/more/config.yaml": "{}",
                ".gitlab/agents/config.yaml": "{}",
                "config.yaml": "{}",
            },
            ref="main",
        )
        self.assertEqual(
            self.ask(),
            [
                (".gitlab/agents/dev/config.yaml", "dev"),
                (".gitlab/agents/prod/config.yaml", "prod"),
            ],
        )

    def test_none(self) -> None:
        """No repository, no branch, no folder: there are none."""
        self.assertEqual(self.ask(), [])
        self.repository.commit({"README": "x"}, ref="main")
        self.assertEqual(self.ask(), [])

    def test_gitaly_that_calls_it_invalid(self) -> None:
        """Both answers of Gitaly's versions mean that there are none."""
        for status in (Status.NOT_FOUND, Status.INVALID_ARGUMENT):
            self.repository.down = CallError(status, "invalid revision or path")
            self.assertEqual(self.ask(), [])

    def test_default_branch(self) -> None:
        """GitLab of older versions does not say which it is."""
        self.request.default_branch = ""
        self.repository.commit({".gitlab/agents/a/config.yaml": ""})
        self.assertEqual(self.ask(), [(".gitlab/agents/a/config.yaml", "a")])

    def test_refused(self) -> None:
        """What GitLab left out, what cannot be, and a Gitaly that is away."""
        self.repository.down = CallError(Status.UNAVAILABLE, "down")
        self.assertIs(self.refused(), Status.UNAVAILABLE)
        self.request.gitaly_info.address = ""
        self.assertIs(self.refused(), Status.INVALID_ARGUMENT)
        self.request.ClearField("repository")
        self.assertIs(self.refused(), Status.INVALID_ARGUMENT)
