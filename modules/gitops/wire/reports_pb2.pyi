from modules.gitops.wire import control_pb2 as _control_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReportDriftRequest(_message.Message):
    __slots__ = ("drifts", "left_out")
    DRIFTS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    drifts: _containers.RepeatedCompositeFieldContainer[_control_pb2.ObjectDrift]
    left_out: int
    def __init__(self, drifts: _Optional[_Iterable[_Union[_control_pb2.ObjectDrift, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class ReportDriftResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReportFailingRequest(_message.Message):
    __slots__ = ("projects", "left_out")
    PROJECTS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    projects: _containers.RepeatedCompositeFieldContainer[FailingProject]
    left_out: int
    def __init__(self, projects: _Optional[_Iterable[_Union[FailingProject, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class FailingProject(_message.Message):
    __slots__ = ("project", "problem")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    project: str
    problem: str
    def __init__(self, project: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class ReportFailingResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReportPrunedRequest(_message.Message):
    __slots__ = ("prunes", "left_out")
    PRUNES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    prunes: _containers.RepeatedCompositeFieldContainer[Prune]
    left_out: int
    def __init__(self, prunes: _Optional[_Iterable[_Union[Prune, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class Prune(_message.Message):
    __slots__ = ("project", "commit", "count", "objects", "approved_by")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    APPROVED_BY_FIELD_NUMBER: _ClassVar[int]
    project: str
    commit: str
    count: int
    objects: _containers.RepeatedCompositeFieldContainer[_control_pb2.ObjectReference]
    approved_by: str
    def __init__(self, project: _Optional[str] = ..., commit: _Optional[str] = ..., count: _Optional[int] = ..., objects: _Optional[_Iterable[_Union[_control_pb2.ObjectReference, _Mapping]]] = ..., approved_by: _Optional[str] = ...) -> None: ...

class ReportPrunedResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
