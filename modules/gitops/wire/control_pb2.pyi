import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from modules.gitops.wire import rpc_pb2 as _rpc_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetStatusRequest(_message.Message):
    __slots__ = ("agent", "project", "objects")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    agent: str
    project: str
    objects: bool
    def __init__(self, agent: _Optional[str] = ..., project: _Optional[str] = ..., objects: bool = ...) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("projects", "receivers", "configuration_problems")
    PROJECTS_FIELD_NUMBER: _ClassVar[int]
    RECEIVERS_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    projects: _containers.RepeatedCompositeFieldContainer[ProjectStatus]
    receivers: _containers.RepeatedCompositeFieldContainer[ReceiverStatus]
    configuration_problems: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, projects: _Optional[_Iterable[_Union[ProjectStatus, _Mapping]]] = ..., receivers: _Optional[_Iterable[_Union[ReceiverStatus, _Mapping]]] = ..., configuration_problems: _Optional[_Iterable[str]] = ...) -> None: ...

class ReceiverStatus(_message.Message):
    __slots__ = ("project", "object", "commit", "problem", "health", "reason")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    project: str
    object: ObjectReference
    commit: str
    problem: str
    health: str
    reason: str
    def __init__(self, project: _Optional[str] = ..., object: _Optional[_Union[ObjectReference, _Mapping]] = ..., commit: _Optional[str] = ..., problem: _Optional[str] = ..., health: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ProjectStatus(_message.Message):
    __slots__ = ("id", "repository", "state", "commit", "worked_at", "next_commit", "objects_by_outcome", "problems", "release", "objects", "pinned", "ref", "drifted", "next_reason", "hands_over", "drift_delay", "notices")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[ProjectStatus.State]
        STATE_WAITING: _ClassVar[ProjectStatus.State]
        STATE_WORKING: _ClassVar[ProjectStatus.State]
        STATE_CURRENT: _ClassVar[ProjectStatus.State]
        STATE_FAILED: _ClassVar[ProjectStatus.State]
        STATE_HELD: _ClassVar[ProjectStatus.State]
        STATE_SUSPENDED: _ClassVar[ProjectStatus.State]
    STATE_UNSPECIFIED: ProjectStatus.State
    STATE_WAITING: ProjectStatus.State
    STATE_WORKING: ProjectStatus.State
    STATE_CURRENT: ProjectStatus.State
    STATE_FAILED: ProjectStatus.State
    STATE_HELD: ProjectStatus.State
    STATE_SUSPENDED: ProjectStatus.State
    class ObjectsByOutcomeEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    WORKED_AT_FIELD_NUMBER: _ClassVar[int]
    NEXT_COMMIT_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_BY_OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    DRIFTED_FIELD_NUMBER: _ClassVar[int]
    NEXT_REASON_FIELD_NUMBER: _ClassVar[int]
    HANDS_OVER_FIELD_NUMBER: _ClassVar[int]
    DRIFT_DELAY_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    id: str
    repository: str
    state: ProjectStatus.State
    commit: str
    worked_at: _timestamp_pb2.Timestamp
    next_commit: str
    objects_by_outcome: _containers.ScalarMap[str, int]
    problems: _containers.RepeatedScalarFieldContainer[str]
    release: str
    objects: _containers.RepeatedCompositeFieldContainer[ObjectStatus]
    pinned: str
    ref: _rpc_pb2.Ref
    drifted: int
    next_reason: str
    hands_over: bool
    drift_delay: str
    notices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., repository: _Optional[str] = ..., state: _Optional[_Union[ProjectStatus.State, str]] = ..., commit: _Optional[str] = ..., worked_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., next_commit: _Optional[str] = ..., objects_by_outcome: _Optional[_Mapping[str, int]] = ..., problems: _Optional[_Iterable[str]] = ..., release: _Optional[str] = ..., objects: _Optional[_Iterable[_Union[ObjectStatus, _Mapping]]] = ..., pinned: _Optional[str] = ..., ref: _Optional[_Union[_rpc_pb2.Ref, _Mapping]] = ..., drifted: _Optional[int] = ..., next_reason: _Optional[str] = ..., hands_over: bool = ..., drift_delay: _Optional[str] = ..., notices: _Optional[_Iterable[str]] = ...) -> None: ...

class ObjectReference(_message.Message):
    __slots__ = ("group", "kind", "namespace", "name")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    group: str
    kind: str
    namespace: str
    name: str
    def __init__(self, group: _Optional[str] = ..., kind: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ObjectStatus(_message.Message):
    __slots__ = ("object", "outcome", "reason", "place")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    object: ObjectReference
    outcome: str
    reason: str
    place: str
    def __init__(self, object: _Optional[_Union[ObjectReference, _Mapping]] = ..., outcome: _Optional[str] = ..., reason: _Optional[str] = ..., place: _Optional[str] = ...) -> None: ...

class ApproveRequest(_message.Message):
    __slots__ = ("agent", "project", "release", "operator")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    agent: str
    project: str
    release: str
    operator: str
    def __init__(self, agent: _Optional[str] = ..., project: _Optional[str] = ..., release: _Optional[str] = ..., operator: _Optional[str] = ...) -> None: ...

class ApproveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetKeptRequest(_message.Message):
    __slots__ = ("agent", "project", "id")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    agent: str
    project: str
    id: str
    def __init__(self, agent: _Optional[str] = ..., project: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class GetKeptResponse(_message.Message):
    __slots__ = ("states",)
    STATES_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedCompositeFieldContainer[KeptState]
    def __init__(self, states: _Optional[_Iterable[_Union[KeptState, _Mapping]]] = ...) -> None: ...

class KeptState(_message.Message):
    __slots__ = ("id", "at", "why", "object", "manifest")
    ID_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    id: str
    at: _timestamp_pb2.Timestamp
    why: str
    object: ObjectReference
    manifest: str
    def __init__(self, id: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., why: _Optional[str] = ..., object: _Optional[_Union[ObjectReference, _Mapping]] = ..., manifest: _Optional[str] = ...) -> None: ...

class GetHistoryRequest(_message.Message):
    __slots__ = ("agent", "project")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    agent: str
    project: str
    def __init__(self, agent: _Optional[str] = ..., project: _Optional[str] = ...) -> None: ...

class GetHistoryResponse(_message.Message):
    __slots__ = ("commits",)
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    commits: _containers.RepeatedCompositeFieldContainer[AppliedCommit]
    def __init__(self, commits: _Optional[_Iterable[_Union[AppliedCommit, _Mapping]]] = ...) -> None: ...

class AppliedCommit(_message.Message):
    __slots__ = ("commit", "at", "summary", "complete")
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    commit: str
    at: _timestamp_pb2.Timestamp
    summary: str
    complete: bool
    def __init__(self, commit: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., summary: _Optional[str] = ..., complete: bool = ...) -> None: ...

class UndoRequest(_message.Message):
    __slots__ = ("agent", "project", "commit")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    agent: str
    project: str
    commit: str
    def __init__(self, agent: _Optional[str] = ..., project: _Optional[str] = ..., commit: _Optional[str] = ...) -> None: ...

class UndoResponse(_message.Message):
    __slots__ = ("commit",)
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    commit: str
    def __init__(self, commit: _Optional[str] = ...) -> None: ...

class SuspendRequest(_message.Message):
    __slots__ = ("agent", "project")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    agent: str
    project: str
    def __init__(self, agent: _Optional[str] = ..., project: _Optional[str] = ...) -> None: ...

class SuspendResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("agent", "project")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    agent: str
    project: str
    def __init__(self, agent: _Optional[str] = ..., project: _Optional[str] = ...) -> None: ...

class ResumeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SyncRequest(_message.Message):
    __slots__ = ("agent", "project")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    agent: str
    project: str
    def __init__(self, agent: _Optional[str] = ..., project: _Optional[str] = ...) -> None: ...

class SyncResponse(_message.Message):
    __slots__ = ("commit",)
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    commit: str
    def __init__(self, commit: _Optional[str] = ...) -> None: ...

class RepairRequest(_message.Message):
    __slots__ = ("agent", "project", "objects")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    agent: str
    project: str
    objects: _containers.RepeatedCompositeFieldContainer[ObjectReference]
    def __init__(self, agent: _Optional[str] = ..., project: _Optional[str] = ..., objects: _Optional[_Iterable[_Union[ObjectReference, _Mapping]]] = ...) -> None: ...

class RepairResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetDriftRequest(_message.Message):
    __slots__ = ("agent", "project", "ended")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    agent: str
    project: str
    ended: bool
    def __init__(self, agent: _Optional[str] = ..., project: _Optional[str] = ..., ended: bool = ...) -> None: ...

class GetDriftResponse(_message.Message):
    __slots__ = ("drifts",)
    DRIFTS_FIELD_NUMBER: _ClassVar[int]
    drifts: _containers.RepeatedCompositeFieldContainer[ObjectDrift]
    def __init__(self, drifts: _Optional[_Iterable[_Union[ObjectDrift, _Mapping]]] = ...) -> None: ...

class ObjectDrift(_message.Message):
    __slots__ = ("project", "object", "kind", "state", "reason", "fields", "more_fields", "writers", "found_at", "commit", "place", "credentials")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[ObjectDrift.Kind]
        KIND_CHANGED: _ClassVar[ObjectDrift.Kind]
        KIND_DELETED: _ClassVar[ObjectDrift.Kind]
        KIND_DELETING: _ClassVar[ObjectDrift.Kind]
        KIND_REPLACED: _ClassVar[ObjectDrift.Kind]
    KIND_UNSPECIFIED: ObjectDrift.Kind
    KIND_CHANGED: ObjectDrift.Kind
    KIND_DELETED: ObjectDrift.Kind
    KIND_DELETING: ObjectDrift.Kind
    KIND_REPLACED: ObjectDrift.Kind
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[ObjectDrift.State]
        STATE_REPORTED: _ClassVar[ObjectDrift.State]
        STATE_DUE: _ClassVar[ObjectDrift.State]
        STATE_REPAIRED: _ClassVar[ObjectDrift.State]
        STATE_PAUSED: _ClassVar[ObjectDrift.State]
        STATE_FAILED: _ClassVar[ObjectDrift.State]
        STATE_ENDED: _ClassVar[ObjectDrift.State]
    STATE_UNSPECIFIED: ObjectDrift.State
    STATE_REPORTED: ObjectDrift.State
    STATE_DUE: ObjectDrift.State
    STATE_REPAIRED: ObjectDrift.State
    STATE_PAUSED: ObjectDrift.State
    STATE_FAILED: ObjectDrift.State
    STATE_ENDED: ObjectDrift.State
    class Field(_message.Message):
        __slots__ = ("path", "wanted", "live")
        PATH_FIELD_NUMBER: _ClassVar[int]
        WANTED_FIELD_NUMBER: _ClassVar[int]
        LIVE_FIELD_NUMBER: _ClassVar[int]
        path: str
        wanted: str
        live: str
        def __init__(self, path: _Optional[str] = ..., wanted: _Optional[str] = ..., live: _Optional[str] = ...) -> None: ...
    class Writer(_message.Message):
        __slots__ = ("manager", "operation", "subresource", "time")
        MANAGER_FIELD_NUMBER: _ClassVar[int]
        OPERATION_FIELD_NUMBER: _ClassVar[int]
        SUBRESOURCE_FIELD_NUMBER: _ClassVar[int]
        TIME_FIELD_NUMBER: _ClassVar[int]
        manager: str
        operation: str
        subresource: str
        time: _timestamp_pb2.Timestamp
        def __init__(self, manager: _Optional[str] = ..., operation: _Optional[str] = ..., subresource: _Optional[str] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELDS_FIELD_NUMBER: _ClassVar[int]
    WRITERS_FIELD_NUMBER: _ClassVar[int]
    FOUND_AT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    project: str
    object: ObjectReference
    kind: ObjectDrift.Kind
    state: ObjectDrift.State
    reason: str
    fields: _containers.RepeatedCompositeFieldContainer[ObjectDrift.Field]
    more_fields: int
    writers: _containers.RepeatedCompositeFieldContainer[ObjectDrift.Writer]
    found_at: _timestamp_pb2.Timestamp
    commit: str
    place: str
    credentials: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, project: _Optional[str] = ..., object: _Optional[_Union[ObjectReference, _Mapping]] = ..., kind: _Optional[_Union[ObjectDrift.Kind, str]] = ..., state: _Optional[_Union[ObjectDrift.State, str]] = ..., reason: _Optional[str] = ..., fields: _Optional[_Iterable[_Union[ObjectDrift.Field, _Mapping]]] = ..., more_fields: _Optional[int] = ..., writers: _Optional[_Iterable[_Union[ObjectDrift.Writer, _Mapping]]] = ..., found_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., commit: _Optional[str] = ..., place: _Optional[str] = ..., credentials: _Optional[_Iterable[str]] = ...) -> None: ...

class PreviewRequest(_message.Message):
    __slots__ = ("agent", "project", "ref", "path", "merge_request")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    MERGE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    agent: str
    project: str
    ref: _rpc_pb2.Ref
    path: str
    merge_request: bool
    def __init__(self, agent: _Optional[str] = ..., project: _Optional[str] = ..., ref: _Optional[_Union[_rpc_pb2.Ref, _Mapping]] = ..., path: _Optional[str] = ..., merge_request: bool = ...) -> None: ...

class PreviewResponse(_message.Message):
    __slots__ = ("commit", "problems", "objects")
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    commit: str
    problems: _containers.RepeatedScalarFieldContainer[str]
    objects: _containers.RepeatedCompositeFieldContainer[ObjectPreview]
    def __init__(self, commit: _Optional[str] = ..., problems: _Optional[_Iterable[str]] = ..., objects: _Optional[_Iterable[_Union[ObjectPreview, _Mapping]]] = ...) -> None: ...

class ObjectPreview(_message.Message):
    __slots__ = ("object", "effect", "reason", "place", "fields", "more_fields", "drift")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELDS_FIELD_NUMBER: _ClassVar[int]
    DRIFT_FIELD_NUMBER: _ClassVar[int]
    object: ObjectReference
    effect: str
    reason: str
    place: str
    fields: _containers.RepeatedCompositeFieldContainer[FieldPreview]
    more_fields: int
    drift: ObjectDrift
    def __init__(self, object: _Optional[_Union[ObjectReference, _Mapping]] = ..., effect: _Optional[str] = ..., reason: _Optional[str] = ..., place: _Optional[str] = ..., fields: _Optional[_Iterable[_Union[FieldPreview, _Mapping]]] = ..., more_fields: _Optional[int] = ..., drift: _Optional[_Union[ObjectDrift, _Mapping]] = ...) -> None: ...

class FieldPreview(_message.Message):
    __slots__ = ("path", "before", "after")
    PATH_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    path: str
    before: str
    after: str
    def __init__(self, path: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...
