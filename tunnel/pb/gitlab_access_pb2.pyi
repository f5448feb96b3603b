from google.protobuf import any_pb2 as _any_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HeaderExtra(_message.Message):
    __slots__ = ("module_name",)
    MODULE_NAME_FIELD_NUMBER: _ClassVar[int]
    module_name: str
    def __init__(self, module_name: _Optional[str] = ...) -> None: ...

class Values(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, value: _Optional[_Iterable[str]] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("method", "header", "url_path", "query")
    class HeaderEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Values
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Values, _Mapping]] = ...) -> None: ...
    class QueryEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Values
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Values, _Mapping]] = ...) -> None: ...
    METHOD_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    URL_PATH_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    method: str
    header: _containers.MessageMap[str, Values]
    url_path: str
    query: _containers.MessageMap[str, Values]
    def __init__(self, method: _Optional[str] = ..., header: _Optional[_Mapping[str, Values]] = ..., url_path: _Optional[str] = ..., query: _Optional[_Mapping[str, Values]] = ...) -> None: ...

class Response(_message.Message):
    __slots__ = ("status_code", "status", "header")
    class HeaderEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Values
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Values, _Mapping]] = ...) -> None: ...
    STATUS_CODE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    status_code: int
    status: str
    header: _containers.MessageMap[str, Values]
    def __init__(self, status_code: _Optional[int] = ..., status: _Optional[str] = ..., header: _Optional[_Mapping[str, Values]] = ...) -> None: ...

class Data(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class Trailer(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HttpRequest(_message.Message):
    __slots__ = ("header", "data", "trailer", "upgrade_data")
    class Header(_message.Message):
        __slots__ = ("request", "extra", "content_length")
        REQUEST_FIELD_NUMBER: _ClassVar[int]
        EXTRA_FIELD_NUMBER: _ClassVar[int]
        CONTENT_LENGTH_FIELD_NUMBER: _ClassVar[int]
        request: Request
        extra: _any_pb2.Any
        content_length: int
        def __init__(self, request: _Optional[_Union[Request, _Mapping]] = ..., extra: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., content_length: _Optional[int] = ...) -> None: ...
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TRAILER_FIELD_NUMBER: _ClassVar[int]
    UPGRADE_DATA_FIELD_NUMBER: _ClassVar[int]
    header: HttpRequest.Header
    data: Data
    trailer: Trailer
    upgrade_data: Data
    def __init__(self, header: _Optional[_Union[HttpRequest.Header, _Mapping]] = ..., data: _Optional[_Union[Data, _Mapping]] = ..., trailer: _Optional[_Union[Trailer, _Mapping]] = ..., upgrade_data: _Optional[_Union[Data, _Mapping]] = ...) -> None: ...

class HttpResponse(_message.Message):
    __slots__ = ("header", "data", "trailer")
    class Header(_message.Message):
        __slots__ = ("response",)
        RESPONSE_FIELD_NUMBER: _ClassVar[int]
        response: Response
        def __init__(self, response: _Optional[_Union[Response, _Mapping]] = ...) -> None: ...
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TRAILER_FIELD_NUMBER: _ClassVar[int]
    header: HttpResponse.Header
    data: Data
    trailer: Trailer
    def __init__(self, header: _Optional[_Union[HttpResponse.Header, _Mapping]] = ..., data: _Optional[_Union[Data, _Mapping]] = ..., trailer: _Optional[_Union[Trailer, _Mapping]] = ...) -> None: ...
