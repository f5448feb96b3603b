from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReadRequest(_message.Message):
    __slots__ = ("target", "accept", "review", "content_type")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    REVIEW_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    target: str
    accept: str
    review: bytes
    content_type: str
    def __init__(self, target: _Optional[str] = ..., accept: _Optional[str] = ..., review: _Optional[bytes] = ..., content_type: _Optional[str] = ...) -> None: ...

class ReadPart(_message.Message):
    __slots__ = ("head", "data")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    head: ReadHead
    data: bytes
    def __init__(self, head: _Optional[_Union[ReadHead, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class ReadHead(_message.Message):
    __slots__ = ("status", "content_type")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    status: int
    content_type: str
    def __init__(self, status: _Optional[int] = ..., content_type: _Optional[str] = ...) -> None: ...
