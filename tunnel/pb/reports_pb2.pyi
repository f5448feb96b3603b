from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClusterReport(_message.Message):
    __slots__ = ("problem",)
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    problem: str
    def __init__(self, problem: _Optional[str] = ...) -> None: ...

class ClusterReported(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ModuleProblem(_message.Message):
    __slots__ = ("module", "problem")
    MODULE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    module: str
    problem: str
    def __init__(self, module: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class ModulesReport(_message.Message):
    __slots__ = ("restarting",)
    RESTARTING_FIELD_NUMBER: _ClassVar[int]
    restarting: _containers.RepeatedCompositeFieldContainer[ModuleProblem]
    def __init__(self, restarting: _Optional[_Iterable[_Union[ModuleProblem, _Mapping]]] = ...) -> None: ...

class ModulesReported(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
