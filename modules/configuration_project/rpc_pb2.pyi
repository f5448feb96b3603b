from modules.configuration_project import gitaly_info_pb2 as _gitaly_info_pb2
from tunnel.gitaly import gitaly_pb2 as _gitaly_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListAgentConfigFilesRequest(_message.Message):
    __slots__ = ("repository", "gitaly_info", "default_branch")
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    GITALY_INFO_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BRANCH_FIELD_NUMBER: _ClassVar[int]
    repository: _gitaly_pb2.Repository
    gitaly_info: _gitaly_info_pb2.GitalyInfo
    default_branch: str
    def __init__(self, repository: _Optional[_Union[_gitaly_pb2.Repository, _Mapping]] = ..., gitaly_info: _Optional[_Union[_gitaly_info_pb2.GitalyInfo, _Mapping]] = ..., default_branch: _Optional[str] = ...) -> None: ...

class AgentConfigFile(_message.Message):
    __slots__ = ("name", "agent_name")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    agent_name: str
    def __init__(self, name: _Optional[str] = ..., agent_name: _Optional[str] = ...) -> None: ...

class ListAgentConfigFilesResponse(_message.Message):
    __slots__ = ("config_files",)
    CONFIG_FILES_FIELD_NUMBER: _ClassVar[int]
    config_files: _containers.RepeatedCompositeFieldContainer[AgentConfigFile]
    def __init__(self, config_files: _Optional[_Iterable[_Union[AgentConfigFile, _Mapping]]] = ...) -> None: ...
