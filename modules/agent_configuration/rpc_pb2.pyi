from modules.agent_configuration import agentcfg_pb2 as _agentcfg_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConfigurationRequest(_message.Message):
    __slots__ = ("commit_id",)
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    commit_id: str
    def __init__(self, commit_id: _Optional[str] = ...) -> None: ...

class ConfigurationResponse(_message.Message):
    __slots__ = ("configuration", "commit_id", "problems")
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    configuration: _agentcfg_pb2.AgentConfiguration
    commit_id: str
    problems: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, configuration: _Optional[_Union[_agentcfg_pb2.AgentConfiguration, _Mapping]] = ..., commit_id: _Optional[str] = ..., problems: _Optional[_Iterable[str]] = ...) -> None: ...

class RefusedRequest(_message.Message):
    __slots__ = ("commit_id", "problems")
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    commit_id: str
    problems: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, commit_id: _Optional[str] = ..., problems: _Optional[_Iterable[str]] = ...) -> None: ...

class RefusedResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
