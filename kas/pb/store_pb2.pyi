from kas.pb import directory_pb2 as _directory_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Lease(_message.Message):
    __slots__ = ("kas", "sequence")
    KAS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    kas: _directory_pb2.KasRecord
    sequence: int
    def __init__(self, kas: _Optional[_Union[_directory_pb2.KasRecord, _Mapping]] = ..., sequence: _Optional[int] = ...) -> None: ...
