import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from modules.agent_tracker import entity_pb2 as _entity_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Agent(_message.Message):
    __slots__ = ("agent_id", "agent_name", "project_id", "instance_id", "connected_at", "meta", "cluster_problem")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_AT_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    agent_name: str
    project_id: int
    instance_id: bytes
    connected_at: _timestamp_pb2.Timestamp
    meta: _entity_pb2.AgentMeta
    cluster_problem: str
    def __init__(self, agent_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., project_id: _Optional[int] = ..., instance_id: _Optional[bytes] = ..., connected_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., meta: _Optional[_Union[_entity_pb2.AgentMeta, _Mapping]] = ..., cluster_problem: _Optional[str] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("agents",)
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[Agent]
    def __init__(self, agents: _Optional[_Iterable[_Union[Agent, _Mapping]]] = ...) -> None: ...
