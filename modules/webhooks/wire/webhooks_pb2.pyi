import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_UNSPECIFIED: _ClassVar[State]
    WAITING: _ClassVar[State]
    PENDING: _ClassVar[State]
    DELIVERED: _ClassVar[State]
    FAILED: _ClassVar[State]
    DISABLED: _ClassVar[State]
STATE_UNSPECIFIED: State
WAITING: State
PENDING: State
DELIVERED: State
FAILED: State
DISABLED: State

class Target(_message.Message):
    __slots__ = ("name", "repository", "repository_url", "refs", "address", "fingerprint")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_URL_FIELD_NUMBER: _ClassVar[int]
    REFS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    name: str
    repository: str
    repository_url: str
    refs: _containers.RepeatedScalarFieldContainer[str]
    address: str
    fingerprint: str
    def __init__(self, name: _Optional[str] = ..., repository: _Optional[str] = ..., repository_url: _Optional[str] = ..., refs: _Optional[_Iterable[str]] = ..., address: _Optional[str] = ..., fingerprint: _Optional[str] = ...) -> None: ...

class GetDeliveriesRequest(_message.Message):
    __slots__ = ("targets",)
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[Target]
    def __init__(self, targets: _Optional[_Iterable[_Union[Target, _Mapping]]] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("target", "ref", "id", "full_ref", "before", "after", "repository", "repository_url", "default_branch", "changed", "noticed_at")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    FULL_REF_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_URL_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BRANCH_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    NOTICED_AT_FIELD_NUMBER: _ClassVar[int]
    target: str
    ref: str
    id: str
    full_ref: str
    before: str
    after: str
    repository: str
    repository_url: str
    default_branch: str
    changed: _containers.RepeatedScalarFieldContainer[str]
    noticed_at: _timestamp_pb2.Timestamp
    def __init__(self, target: _Optional[str] = ..., ref: _Optional[str] = ..., id: _Optional[str] = ..., full_ref: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ..., repository: _Optional[str] = ..., repository_url: _Optional[str] = ..., default_branch: _Optional[str] = ..., changed: _Optional[_Iterable[str]] = ..., noticed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ReportAttemptRequest(_message.Message):
    __slots__ = ("target", "ref", "id", "status", "body", "error", "retry_after")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    target: str
    ref: str
    id: str
    status: int
    body: bytes
    error: str
    retry_after: int
    def __init__(self, target: _Optional[str] = ..., ref: _Optional[str] = ..., id: _Optional[str] = ..., status: _Optional[int] = ..., body: _Optional[bytes] = ..., error: _Optional[str] = ..., retry_after: _Optional[int] = ...) -> None: ...

class ReportAttemptResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeliveryState(_message.Message):
    __slots__ = ("agent_id", "agent_name", "target", "ref", "address", "fingerprint", "state", "full_ref", "before", "after", "id", "noticed_at", "attempts", "next_attempt", "last_attempt", "last_status", "last_body", "last_error", "problem", "stored_at", "project", "accepted")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FULL_REF_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NOTICED_AT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LAST_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LAST_STATUS_FIELD_NUMBER: _ClassVar[int]
    LAST_BODY_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    STORED_AT_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    agent_name: str
    target: str
    ref: str
    address: str
    fingerprint: str
    state: State
    full_ref: str
    before: str
    after: str
    id: str
    noticed_at: _timestamp_pb2.Timestamp
    attempts: int
    next_attempt: _timestamp_pb2.Timestamp
    last_attempt: _timestamp_pb2.Timestamp
    last_status: int
    last_body: bytes
    last_error: str
    problem: str
    stored_at: _timestamp_pb2.Timestamp
    project: str
    accepted: str
    def __init__(self, agent_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., target: _Optional[str] = ..., ref: _Optional[str] = ..., address: _Optional[str] = ..., fingerprint: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ..., full_ref: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ..., id: _Optional[str] = ..., noticed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attempts: _Optional[int] = ..., next_attempt: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_attempt: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_status: _Optional[int] = ..., last_body: _Optional[bytes] = ..., last_error: _Optional[str] = ..., problem: _Optional[str] = ..., stored_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., project: _Optional[str] = ..., accepted: _Optional[str] = ...) -> None: ...

class ListDeliveriesRequest(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: str
    def __init__(self, agent: _Optional[str] = ...) -> None: ...

class ListDeliveriesResponse(_message.Message):
    __slots__ = ("deliveries",)
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[DeliveryState]
    def __init__(self, deliveries: _Optional[_Iterable[_Union[DeliveryState, _Mapping]]] = ...) -> None: ...

class ResendRequest(_message.Message):
    __slots__ = ("agent", "target", "ref")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    agent: str
    target: str
    ref: str
    def __init__(self, agent: _Optional[str] = ..., target: _Optional[str] = ..., ref: _Optional[str] = ...) -> None: ...

class ResendResponse(_message.Message):
    __slots__ = ("deliveries",)
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[DeliveryState]
    def __init__(self, deliveries: _Optional[_Iterable[_Union[DeliveryState, _Mapping]]] = ...) -> None: ...
