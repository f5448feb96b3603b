from modules.notifications import event_pb2 as _event_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GitPushEventRequest(_message.Message):
    __slots__ = ("event",)
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: _event_pb2.GitPushEvent
    def __init__(self, event: _Optional[_Union[_event_pb2.GitPushEvent, _Mapping]] = ...) -> None: ...

class GitPushEventResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
