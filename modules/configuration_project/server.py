"""kas' half: finds configuration files in the repository that GitLab names."""

from __future__ import annotations

import re
from typing import Any

import attrs
from zope.interface import implementer, provider

from modules.configuration_project import rpc_pb2
from tunnel.api import (
    GitalyAddress,
    IServerModule,
    IServerModuleApi,
    IServerModuleFactory,
    TreeEntryKind,
)
from tunnel.details import bad_request
from tunnel.errors import CallError, Status

__all__ = ["CONFIGURATION_PROJECT", "ConfigurationProjectServer"]

CONFIGURATION_PROJECT = rpc_pb2.DESCRIPTOR.services_by_name["ConfigurationProject"]

_FOLDER = ".gitlab/agents"

_FILE = re.compile(r"\.gitlab/agents/([^/]+)/config\.yaml")

#: Maximum number of files in one response, because a message may be at most about 4 MiB
#: long.
MAX_FILES = 10_000


@attrs.frozen(kw_only=True)
class ConfigurationProjectSettings:
    """``modules.configuration_project``: the section has no settings."""


@provider(IServerModuleFactory)
@implementer(IServerModule)
class ConfigurationProjectServer:
    """Implementation of `ConfigurationProject`."""

    configuration = ConfigurationProjectSettings

    def __init__(self, api: IServerModuleApi) -> None:
        self.name = api.name
        self._api = api
        api.calls.handle_external(CONFIGURATION_PROJECT, self)

    async def start(self) -> None:
        """Do nothing: the module needs no preparation."""

    async def stop(self) -> None:
        """Do nothing: the module holds no resources."""

    async def list_agent_config_files(
        self, request: rpc_pb2.ListAgentConfigFilesRequest, call: Any
    ) -> rpc_pb2.ListAgentConfigFilesResponse:
        """
        Return the configuration files on the default branch; an empty list if none
        exist.
        """
        asked, info = request.repository, request.gitaly_info
        for name, given in (
            ("repository", asked.relative_path),
            ("gitaly_info", info.address),
        ):
            if not given:
                details = [bad_request({name: "is missing"})]
                raise CallError(Status.INVALID_ARGUMENT, f"{name} is missing", details)
        address = GitalyAddress(
            address=info.address,
            token=info.token,
            features=tuple(sorted(info.features.items())),
            storage_name=asked.storage_name,
            relative_path=asked.relative_path,
            git_object_directory=asked.git_object_directory,
            git_alternate_object_directories=tuple(
                asked.git_alternate_object_directories
            ),
            gl_repository=asked.gl_repository,
            gl_project_path=asked.gl_project_path,
        )
        repository = self._api.git.open(address)
        try:
            commit = await repository.resolve(request.default_branch or "HEAD")
            entries = await repository.tree(commit, _FOLDER, recursive=True)
        except CallError as error:
            # Versions of Gitaly report a missing folder with different statuses.
            if error.status not in (Status.NOT_FOUND, Status.INVALID_ARGUMENT):
                raise
            return rpc_pb2.ListAgentConfigFilesResponse()
        found = [
            rpc_pb2.AgentConfigFile(name=entry.path, agent_name=match[1])
            for entry in entries
            if entry.kind is TreeEntryKind.FILE
            and (match := _FILE.fullmatch(entry.path)) is not None
        ]
        if len(found) > MAX_FILES:
            text = f"the project has more than {MAX_FILES} configuration files"
            raise CallError(Status.RESOURCE_EXHAUSTED, text)
        return rpc_pb2.ListAgentConfigFilesResponse(config_files=found)
