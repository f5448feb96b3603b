import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from modules.agent_tracker import entity_pb2 as _entity_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConnectedAgentInfo(_message.Message):
    __slots__ = ("agent_meta", "connected_at", "connection_id", "agent_id", "project_id")
    AGENT_META_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_AT_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    agent_meta: _entity_pb2.AgentMeta
    connected_at: _timestamp_pb2.Timestamp
    connection_id: int
    agent_id: int
    project_id: int
    def __init__(self, agent_meta: _Optional[_Union[_entity_pb2.AgentMeta, _Mapping]] = ..., connected_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., connection_id: _Optional[int] = ..., agent_id: _Optional[int] = ..., project_id: _Optional[int] = ...) -> None: ...

class GetConnectedAgentsRequest(_message.Message):
    __slots__ = ("project_id", "agent_id")
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    project_id: int
    agent_id: int
    def __init__(self, project_id: _Optional[int] = ..., agent_id: _Optional[int] = ...) -> None: ...

class GetConnectedAgentsResponse(_message.Message):
    __slots__ = ("agents",)
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[ConnectedAgentInfo]
    def __init__(self, agents: _Optional[_Iterable[_Union[ConnectedAgentInfo, _Mapping]]] = ...) -> None: ...

class GetConnectedAgentsByAgentIDsRequest(_message.Message):
    __slots__ = ("agent_ids",)
    AGENT_IDS_FIELD_NUMBER: _ClassVar[int]
    agent_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, agent_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class GetConnectedAgentsByAgentIDsResponse(_message.Message):
    __slots__ = ("agents",)
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[ConnectedAgentInfo]
    def __init__(self, agents: _Optional[_Iterable[_Union[ConnectedAgentInfo, _Mapping]]] = ...) -> None: ...
