from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Question(_message.Message):
    __slots__ = ("path", "form", "max_bytes")
    PATH_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    path: str
    form: str
    max_bytes: int
    def __init__(self, path: _Optional[str] = ..., form: _Optional[str] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("head", "data")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    head: Head
    data: bytes
    def __init__(self, head: _Optional[_Union[Head, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class Head(_message.Message):
    __slots__ = ("status", "content_type")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    status: int
    content_type: str
    def __init__(self, status: _Optional[int] = ..., content_type: _Optional[str] = ...) -> None: ...

class FindRequest(_message.Message):
    __slots__ = ("again",)
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    again: bool
    def __init__(self, again: bool = ...) -> None: ...

class Trail(_message.Message):
    __slots__ = ("steps", "target", "problem", "age")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    AGE_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    target: Target
    problem: str
    age: float
    def __init__(self, steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., target: _Optional[_Union[Target, _Mapping]] = ..., problem: _Optional[str] = ..., age: _Optional[float] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("strategy", "service", "outcome", "reason")
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    strategy: str
    service: str
    outcome: str
    reason: str
    def __init__(self, strategy: _Optional[str] = ..., service: _Optional[str] = ..., outcome: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("namespace", "name", "port", "scheme", "path")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    port: str
    scheme: str
    path: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., port: _Optional[str] = ..., scheme: _Optional[str] = ..., path: _Optional[str] = ...) -> None: ...

class TrailRequest(_message.Message):
    __slots__ = ("agent", "again")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    agent: str
    again: bool
    def __init__(self, agent: _Optional[str] = ..., again: bool = ...) -> None: ...
