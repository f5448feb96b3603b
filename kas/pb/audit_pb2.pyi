from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SearchRequest(_message.Message):
    __slots__ = ("user", "agent", "namespace", "object", "action", "denied", "since", "until", "limit")
    USER_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    DENIED_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    user: str
    agent: str
    namespace: str
    object: str
    action: str
    denied: bool
    since: str
    until: str
    limit: int
    def __init__(self, user: _Optional[str] = ..., agent: _Optional[str] = ..., namespace: _Optional[str] = ..., object: _Optional[str] = ..., action: _Optional[str] = ..., denied: bool = ..., since: _Optional[str] = ..., until: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class FoundLine(_message.Message):
    __slots__ = ("time", "line")
    TIME_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    time: str
    line: str
    def __init__(self, time: _Optional[str] = ..., line: _Optional[str] = ...) -> None: ...

class FindResponse(_message.Message):
    __slots__ = ("found", "is_partial")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    IS_PARTIAL_FIELD_NUMBER: _ClassVar[int]
    found: _containers.RepeatedCompositeFieldContainer[FoundLine]
    is_partial: bool
    def __init__(self, found: _Optional[_Iterable[_Union[FoundLine, _Mapping]]] = ..., is_partial: bool = ...) -> None: ...

class SilentKas(_message.Message):
    __slots__ = ("address", "reason")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    address: str
    reason: str
    def __init__(self, address: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class SearchResponse(_message.Message):
    __slots__ = ("lines", "is_partial", "silent")
    LINES_FIELD_NUMBER: _ClassVar[int]
    IS_PARTIAL_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedScalarFieldContainer[str]
    is_partial: bool
    silent: _containers.RepeatedCompositeFieldContainer[SilentKas]
    def __init__(self, lines: _Optional[_Iterable[str]] = ..., is_partial: bool = ..., silent: _Optional[_Iterable[_Union[SilentKas, _Mapping]]] = ...) -> None: ...
