from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CurrentServerInfo(_message.Message):
    __slots__ = ("version", "git_ref")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    GIT_REF_FIELD_NUMBER: _ClassVar[int]
    version: str
    git_ref: str
    def __init__(self, version: _Optional[str] = ..., git_ref: _Optional[str] = ...) -> None: ...

class GetServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServerInfoResponse(_message.Message):
    __slots__ = ("current_server_info",)
    CURRENT_SERVER_INFO_FIELD_NUMBER: _ClassVar[int]
    current_server_info: CurrentServerInfo
    def __init__(self, current_server_info: _Optional[_Union[CurrentServerInfo, _Mapping]] = ...) -> None: ...
