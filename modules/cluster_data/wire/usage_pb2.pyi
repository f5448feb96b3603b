from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UsageRequest(_message.Message):
    __slots__ = ("resource", "namespace", "label_selector", "by_memory", "limit")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    BY_MEMORY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    resource: str
    namespace: str
    label_selector: str
    by_memory: bool
    limit: int
    def __init__(self, resource: _Optional[str] = ..., namespace: _Optional[str] = ..., label_selector: _Optional[str] = ..., by_memory: bool = ..., limit: _Optional[int] = ...) -> None: ...

class UsageRows(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[UsageRow]
    def __init__(self, rows: _Optional[_Iterable[_Union[UsageRow, _Mapping]]] = ...) -> None: ...

class UsageRow(_message.Message):
    __slots__ = ("namespace", "name", "millicores", "memory")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MILLICORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    millicores: int
    memory: int
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., millicores: _Optional[int] = ..., memory: _Optional[int] = ...) -> None: ...

class TopRequest(_message.Message):
    __slots__ = ("usage", "clusters")
    USAGE_FIELD_NUMBER: _ClassVar[int]
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    usage: UsageRequest
    clusters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, usage: _Optional[_Union[UsageRequest, _Mapping]] = ..., clusters: _Optional[_Iterable[str]] = ...) -> None: ...

class TopResponse(_message.Message):
    __slots__ = ("rows", "missing", "queried", "cut")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    QUERIED_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[TopRow]
    missing: _containers.RepeatedCompositeFieldContainer[MissingUsage]
    queried: int
    cut: bool
    def __init__(self, rows: _Optional[_Iterable[_Union[TopRow, _Mapping]]] = ..., missing: _Optional[_Iterable[_Union[MissingUsage, _Mapping]]] = ..., queried: _Optional[int] = ..., cut: bool = ...) -> None: ...

class TopRow(_message.Message):
    __slots__ = ("agent_id", "agent_name", "usage")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    agent_name: str
    usage: UsageRow
    def __init__(self, agent_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., usage: _Optional[_Union[UsageRow, _Mapping]] = ...) -> None: ...

class MissingUsage(_message.Message):
    __slots__ = ("agent_id", "agent_name", "reason")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    agent_name: str
    reason: str
    def __init__(self, agent_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
