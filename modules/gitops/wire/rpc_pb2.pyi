from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Path(_message.Message):
    __slots__ = ("glob", "file")
    GLOB_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    glob: str
    file: str
    def __init__(self, glob: _Optional[str] = ..., file: _Optional[str] = ...) -> None: ...

class Ref(_message.Message):
    __slots__ = ("tag", "branch", "commit", "name")
    TAG_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    tag: str
    branch: str
    commit: str
    name: str
    def __init__(self, tag: _Optional[str] = ..., branch: _Optional[str] = ..., commit: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ObjectsToSynchronizeRequest(_message.Message):
    __slots__ = ("project_id", "commit_id", "paths", "ref", "only_commit", "history_of", "hidden_folders", "only_repository")
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    ONLY_COMMIT_FIELD_NUMBER: _ClassVar[int]
    HISTORY_OF_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FOLDERS_FIELD_NUMBER: _ClassVar[int]
    ONLY_REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    project_id: str
    commit_id: str
    paths: _containers.RepeatedCompositeFieldContainer[Path]
    ref: Ref
    only_commit: bool
    history_of: Ref
    hidden_folders: bool
    only_repository: bool
    def __init__(self, project_id: _Optional[str] = ..., commit_id: _Optional[str] = ..., paths: _Optional[_Iterable[_Union[Path, _Mapping]]] = ..., ref: _Optional[_Union[Ref, _Mapping]] = ..., only_commit: bool = ..., history_of: _Optional[_Union[Ref, _Mapping]] = ..., hidden_folders: bool = ..., only_repository: bool = ...) -> None: ...

class ObjectsToSynchronizeResponse(_message.Message):
    __slots__ = ("header", "object", "trailer")
    class Header(_message.Message):
        __slots__ = ("commit_id", "project_id", "project_path", "ref", "repository")
        COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
        PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
        PROJECT_PATH_FIELD_NUMBER: _ClassVar[int]
        REF_FIELD_NUMBER: _ClassVar[int]
        REPOSITORY_FIELD_NUMBER: _ClassVar[int]
        commit_id: str
        project_id: int
        project_path: str
        ref: str
        repository: str
        def __init__(self, commit_id: _Optional[str] = ..., project_id: _Optional[int] = ..., project_path: _Optional[str] = ..., ref: _Optional[str] = ..., repository: _Optional[str] = ...) -> None: ...
    class Object(_message.Message):
        __slots__ = ("source", "data")
        SOURCE_FIELD_NUMBER: _ClassVar[int]
        DATA_FIELD_NUMBER: _ClassVar[int]
        source: str
        data: bytes
        def __init__(self, source: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...
    class Trailer(_message.Message):
        __slots__ = ("files", "sha256")
        FILES_FIELD_NUMBER: _ClassVar[int]
        SHA256_FIELD_NUMBER: _ClassVar[int]
        files: int
        sha256: bytes
        def __init__(self, files: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...
    HEADER_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    TRAILER_FIELD_NUMBER: _ClassVar[int]
    header: ObjectsToSynchronizeResponse.Header
    object: ObjectsToSynchronizeResponse.Object
    trailer: ObjectsToSynchronizeResponse.Trailer
    def __init__(self, header: _Optional[_Union[ObjectsToSynchronizeResponse.Header, _Mapping]] = ..., object: _Optional[_Union[ObjectsToSynchronizeResponse.Object, _Mapping]] = ..., trailer: _Optional[_Union[ObjectsToSynchronizeResponse.Trailer, _Mapping]] = ...) -> None: ...
