from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Repository(_message.Message):
    __slots__ = ("storage_name", "relative_path", "git_object_directory", "git_alternate_object_directories", "gl_repository", "gl_project_path")
    STORAGE_NAME_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_PATH_FIELD_NUMBER: _ClassVar[int]
    GIT_OBJECT_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    GIT_ALTERNATE_OBJECT_DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    GL_REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    GL_PROJECT_PATH_FIELD_NUMBER: _ClassVar[int]
    storage_name: str
    relative_path: str
    git_object_directory: str
    git_alternate_object_directories: _containers.RepeatedScalarFieldContainer[str]
    gl_repository: str
    gl_project_path: str
    def __init__(self, storage_name: _Optional[str] = ..., relative_path: _Optional[str] = ..., git_object_directory: _Optional[str] = ..., git_alternate_object_directories: _Optional[_Iterable[str]] = ..., gl_repository: _Optional[str] = ..., gl_project_path: _Optional[str] = ...) -> None: ...

class InfoRefsRequest(_message.Message):
    __slots__ = ("repository",)
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    repository: Repository
    def __init__(self, repository: _Optional[_Union[Repository, _Mapping]] = ...) -> None: ...

class InfoRefsResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class TreeEntryRequest(_message.Message):
    __slots__ = ("repository", "revision", "path", "limit", "max_size")
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    MAX_SIZE_FIELD_NUMBER: _ClassVar[int]
    repository: Repository
    revision: bytes
    path: bytes
    limit: int
    max_size: int
    def __init__(self, repository: _Optional[_Union[Repository, _Mapping]] = ..., revision: _Optional[bytes] = ..., path: _Optional[bytes] = ..., limit: _Optional[int] = ..., max_size: _Optional[int] = ...) -> None: ...

class TreeEntryResponse(_message.Message):
    __slots__ = ("type", "oid", "size", "mode", "data")
    class ObjectType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        COMMIT: _ClassVar[TreeEntryResponse.ObjectType]
        BLOB: _ClassVar[TreeEntryResponse.ObjectType]
        TREE: _ClassVar[TreeEntryResponse.ObjectType]
        TAG: _ClassVar[TreeEntryResponse.ObjectType]
    COMMIT: TreeEntryResponse.ObjectType
    BLOB: TreeEntryResponse.ObjectType
    TREE: TreeEntryResponse.ObjectType
    TAG: TreeEntryResponse.ObjectType
    TYPE_FIELD_NUMBER: _ClassVar[int]
    OID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    type: TreeEntryResponse.ObjectType
    oid: str
    size: int
    mode: int
    data: bytes
    def __init__(self, type: _Optional[_Union[TreeEntryResponse.ObjectType, str]] = ..., oid: _Optional[str] = ..., size: _Optional[int] = ..., mode: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class TreeEntry(_message.Message):
    __slots__ = ("oid", "path", "type", "mode")
    class EntryType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BLOB: _ClassVar[TreeEntry.EntryType]
        TREE: _ClassVar[TreeEntry.EntryType]
        COMMIT: _ClassVar[TreeEntry.EntryType]
    BLOB: TreeEntry.EntryType
    TREE: TreeEntry.EntryType
    COMMIT: TreeEntry.EntryType
    OID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    oid: str
    path: bytes
    type: TreeEntry.EntryType
    mode: int
    def __init__(self, oid: _Optional[str] = ..., path: _Optional[bytes] = ..., type: _Optional[_Union[TreeEntry.EntryType, str]] = ..., mode: _Optional[int] = ...) -> None: ...

class GetTreeEntriesRequest(_message.Message):
    __slots__ = ("repository", "revision", "path", "recursive")
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    repository: Repository
    revision: bytes
    path: bytes
    recursive: bool
    def __init__(self, repository: _Optional[_Union[Repository, _Mapping]] = ..., revision: _Optional[bytes] = ..., path: _Optional[bytes] = ..., recursive: bool = ...) -> None: ...

class GetTreeEntriesResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[TreeEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[TreeEntry, _Mapping]]] = ...) -> None: ...

class CommitIsAncestorRequest(_message.Message):
    __slots__ = ("repository", "ancestor_id", "child_id")
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    ANCESTOR_ID_FIELD_NUMBER: _ClassVar[int]
    CHILD_ID_FIELD_NUMBER: _ClassVar[int]
    repository: Repository
    ancestor_id: str
    child_id: str
    def __init__(self, repository: _Optional[_Union[Repository, _Mapping]] = ..., ancestor_id: _Optional[str] = ..., child_id: _Optional[str] = ...) -> None: ...

class CommitIsAncestorResponse(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bool
    def __init__(self, value: bool = ...) -> None: ...

class CommitDeltaRequest(_message.Message):
    __slots__ = ("repository", "left_commit_id", "right_commit_id", "paths")
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    LEFT_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    RIGHT_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    repository: Repository
    left_commit_id: str
    right_commit_id: str
    paths: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, repository: _Optional[_Union[Repository, _Mapping]] = ..., left_commit_id: _Optional[str] = ..., right_commit_id: _Optional[str] = ..., paths: _Optional[_Iterable[bytes]] = ...) -> None: ...

class CommitDelta(_message.Message):
    __slots__ = ("from_path", "to_path")
    FROM_PATH_FIELD_NUMBER: _ClassVar[int]
    TO_PATH_FIELD_NUMBER: _ClassVar[int]
    from_path: bytes
    to_path: bytes
    def __init__(self, from_path: _Optional[bytes] = ..., to_path: _Optional[bytes] = ...) -> None: ...

class CommitDeltaResponse(_message.Message):
    __slots__ = ("deltas",)
    DELTAS_FIELD_NUMBER: _ClassVar[int]
    deltas: _containers.RepeatedCompositeFieldContainer[CommitDelta]
    def __init__(self, deltas: _Optional[_Iterable[_Union[CommitDelta, _Mapping]]] = ...) -> None: ...
