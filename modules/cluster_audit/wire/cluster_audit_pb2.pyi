from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetPlacesRequest(_message.Message):
    __slots__ = ("logs",)
    LOGS_FIELD_NUMBER: _ClassVar[int]
    logs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, logs: _Optional[_Iterable[str]] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("log", "offset")
    LOG_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    log: str
    offset: int
    def __init__(self, log: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class GetPlacesResponse(_message.Message):
    __slots__ = ("places", "has_places")
    PLACES_FIELD_NUMBER: _ClassVar[int]
    HAS_PLACES_FIELD_NUMBER: _ClassVar[int]
    places: _containers.RepeatedCompositeFieldContainer[Place]
    has_places: bool
    def __init__(self, places: _Optional[_Iterable[_Union[Place, _Mapping]]] = ..., has_places: bool = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("audit_id", "stage", "time", "user", "impersonated", "by_agentk", "verb", "group", "version", "resource", "subresource", "namespace", "name", "path", "code", "source", "user_agent", "end")
    AUDIT_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    IMPERSONATED_FIELD_NUMBER: _ClassVar[int]
    BY_AGENTK_FIELD_NUMBER: _ClassVar[int]
    VERB_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    SUBRESOURCE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    USER_AGENT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    audit_id: str
    stage: str
    time: int
    user: str
    impersonated: str
    by_agentk: bool
    verb: str
    group: str
    version: str
    resource: str
    subresource: str
    namespace: str
    name: str
    path: str
    code: int
    source: str
    user_agent: str
    end: int
    def __init__(self, audit_id: _Optional[str] = ..., stage: _Optional[str] = ..., time: _Optional[int] = ..., user: _Optional[str] = ..., impersonated: _Optional[str] = ..., by_agentk: bool = ..., verb: _Optional[str] = ..., group: _Optional[str] = ..., version: _Optional[str] = ..., resource: _Optional[str] = ..., subresource: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., path: _Optional[str] = ..., code: _Optional[int] = ..., source: _Optional[str] = ..., user_agent: _Optional[str] = ..., end: _Optional[int] = ...) -> None: ...

class StoreRequest(_message.Message):
    __slots__ = ("log", "start", "end", "events", "left_out")
    LOG_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    log: str
    start: int
    end: int
    events: _containers.RepeatedCompositeFieldContainer[Event]
    left_out: int
    def __init__(self, log: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class StoreResponse(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...
