from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AgentMessage(_message.Message):
    __slots__ = ("hello", "snapshot", "delta", "beat", "rights_changed")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    snapshot: Snapshot
    delta: Delta
    beat: Beat
    rights_changed: RightsChanged
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., delta: _Optional[_Union[Delta, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ..., rights_changed: _Optional[_Union[RightsChanged, _Mapping]] = ...) -> None: ...

class RightsChanged(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Hello(_message.Message):
    __slots__ = ("epoch", "cluster_uid", "views")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_UID_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    epoch: bytes
    cluster_uid: str
    views: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, epoch: _Optional[bytes] = ..., cluster_uid: _Optional[str] = ..., views: _Optional[_Iterable[str]] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("view", "sequence", "first", "last", "rows")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    view: str
    sequence: int
    first: bool
    last: bool
    rows: _containers.RepeatedCompositeFieldContainer[Row]
    def __init__(self, view: _Optional[str] = ..., sequence: _Optional[int] = ..., first: bool = ..., last: bool = ..., rows: _Optional[_Iterable[_Union[Row, _Mapping]]] = ...) -> None: ...

class Delta(_message.Message):
    __slots__ = ("view", "sequence", "put", "deleted")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PUT_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    view: str
    sequence: int
    put: _containers.RepeatedCompositeFieldContainer[Row]
    deleted: _containers.RepeatedCompositeFieldContainer[RowKey]
    def __init__(self, view: _Optional[str] = ..., sequence: _Optional[int] = ..., put: _Optional[_Iterable[_Union[Row, _Mapping]]] = ..., deleted: _Optional[_Iterable[_Union[RowKey, _Mapping]]] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("sums",)
    class SumsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ViewSum
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ViewSum, _Mapping]] = ...) -> None: ...
    SUMS_FIELD_NUMBER: _ClassVar[int]
    sums: _containers.MessageMap[str, ViewSum]
    def __init__(self, sums: _Optional[_Mapping[str, ViewSum]] = ...) -> None: ...

class ViewSum(_message.Message):
    __slots__ = ("sequence", "sum")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    sum: int
    def __init__(self, sequence: _Optional[int] = ..., sum: _Optional[int] = ...) -> None: ...

class RowKey(_message.Message):
    __slots__ = ("group", "kind", "namespace", "name", "part")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    group: str
    kind: str
    namespace: str
    name: str
    part: str
    def __init__(self, group: _Optional[str] = ..., kind: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., part: _Optional[str] = ...) -> None: ...

class Row(_message.Message):
    __slots__ = ("key", "resource", "columns")
    KEY_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    key: RowKey
    resource: str
    columns: bytes
    def __init__(self, key: _Optional[_Union[RowKey, _Mapping]] = ..., resource: _Optional[str] = ..., columns: _Optional[bytes] = ...) -> None: ...

class ServerMessage(_message.Message):
    __slots__ = ("welcome", "snapshot_wanted", "followed")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_WANTED_FIELD_NUMBER: _ClassVar[int]
    FOLLOWED_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    snapshot_wanted: SnapshotWanted
    followed: Followed
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., snapshot_wanted: _Optional[_Union[SnapshotWanted, _Mapping]] = ..., followed: _Optional[_Union[Followed, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("sequences", "views")
    class SequencesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    sequences: _containers.ScalarMap[str, int]
    views: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sequences: _Optional[_Mapping[str, int]] = ..., views: _Optional[_Iterable[str]] = ...) -> None: ...

class Followed(_message.Message):
    __slots__ = ("views",)
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    views: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, views: _Optional[_Iterable[str]] = ...) -> None: ...

class SnapshotWanted(_message.Message):
    __slots__ = ("view",)
    VIEW_FIELD_NUMBER: _ClassVar[int]
    view: str
    def __init__(self, view: _Optional[str] = ...) -> None: ...

class ReviewRequest(_message.Message):
    __slots__ = ("lists",)
    LISTS_FIELD_NUMBER: _ClassVar[int]
    lists: _containers.RepeatedCompositeFieldContainer[ReviewedList]
    def __init__(self, lists: _Optional[_Iterable[_Union[ReviewedList, _Mapping]]] = ...) -> None: ...

class ReviewedList(_message.Message):
    __slots__ = ("group", "resource", "namespace")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    group: str
    resource: str
    namespace: str
    def __init__(self, group: _Optional[str] = ..., resource: _Optional[str] = ..., namespace: _Optional[str] = ...) -> None: ...

class ReviewResponse(_message.Message):
    __slots__ = ("allowed", "cluster_uid", "unreachable", "epoch")
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_UID_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    allowed: _containers.RepeatedScalarFieldContainer[bool]
    cluster_uid: str
    unreachable: str
    epoch: bytes
    def __init__(self, allowed: _Optional[_Iterable[bool]] = ..., cluster_uid: _Optional[str] = ..., unreachable: _Optional[str] = ..., epoch: _Optional[bytes] = ...) -> None: ...
