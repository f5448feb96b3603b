from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AgentRecord(_message.Message):
    __slots__ = ("agent_id", "agent_name", "instance_id", "generation", "project_id", "connected_at_ms", "version", "commit_id", "pod_namespace", "pod_name", "kubernetes_major", "kubernetes_minor", "kubernetes_git_version", "kubernetes_platform", "kas_id", "kas_url", "cluster_problem")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    POD_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POD_NAME_FIELD_NUMBER: _ClassVar[int]
    KUBERNETES_MAJOR_FIELD_NUMBER: _ClassVar[int]
    KUBERNETES_MINOR_FIELD_NUMBER: _ClassVar[int]
    KUBERNETES_GIT_VERSION_FIELD_NUMBER: _ClassVar[int]
    KUBERNETES_PLATFORM_FIELD_NUMBER: _ClassVar[int]
    KAS_ID_FIELD_NUMBER: _ClassVar[int]
    KAS_URL_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    agent_name: str
    instance_id: bytes
    generation: int
    project_id: int
    connected_at_ms: int
    version: str
    commit_id: str
    pod_namespace: str
    pod_name: str
    kubernetes_major: str
    kubernetes_minor: str
    kubernetes_git_version: str
    kubernetes_platform: str
    kas_id: bytes
    kas_url: str
    cluster_problem: str
    def __init__(self, agent_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., instance_id: _Optional[bytes] = ..., generation: _Optional[int] = ..., project_id: _Optional[int] = ..., connected_at_ms: _Optional[int] = ..., version: _Optional[str] = ..., commit_id: _Optional[str] = ..., pod_namespace: _Optional[str] = ..., pod_name: _Optional[str] = ..., kubernetes_major: _Optional[str] = ..., kubernetes_minor: _Optional[str] = ..., kubernetes_git_version: _Optional[str] = ..., kubernetes_platform: _Optional[str] = ..., kas_id: _Optional[bytes] = ..., kas_url: _Optional[str] = ..., cluster_problem: _Optional[str] = ...) -> None: ...

class KasRecord(_message.Message):
    __slots__ = ("kas_id", "url", "agents", "draining", "version")
    KAS_ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    kas_id: bytes
    url: str
    agents: int
    draining: bool
    version: str
    def __init__(self, kas_id: _Optional[bytes] = ..., url: _Optional[str] = ..., agents: _Optional[int] = ..., draining: bool = ..., version: _Optional[str] = ...) -> None: ...

class Events(_message.Message):
    __slots__ = ("connected", "disconnected", "left", "lost", "rewrote")
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    DISCONNECTED_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    REWROTE_FIELD_NUMBER: _ClassVar[int]
    connected: _containers.RepeatedCompositeFieldContainer[AgentRecord]
    disconnected: _containers.RepeatedCompositeFieldContainer[AgentRecord]
    left: _containers.RepeatedScalarFieldContainer[bytes]
    lost: _containers.RepeatedScalarFieldContainer[bytes]
    rewrote: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, connected: _Optional[_Iterable[_Union[AgentRecord, _Mapping]]] = ..., disconnected: _Optional[_Iterable[_Union[AgentRecord, _Mapping]]] = ..., left: _Optional[_Iterable[bytes]] = ..., lost: _Optional[_Iterable[bytes]] = ..., rewrote: _Optional[_Iterable[bytes]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("kas", "events", "stored", "uses")
    KAS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    USES_FIELD_NUMBER: _ClassVar[int]
    kas: KasRecord
    events: Events
    stored: _containers.RepeatedCompositeFieldContainer[StoreChange]
    uses: _containers.RepeatedCompositeFieldContainer[Use]
    def __init__(self, kas: _Optional[_Union[KasRecord, _Mapping]] = ..., events: _Optional[_Union[Events, _Mapping]] = ..., stored: _Optional[_Iterable[_Union[StoreChange, _Mapping]]] = ..., uses: _Optional[_Iterable[_Union[Use, _Mapping]]] = ...) -> None: ...

class StoreChange(_message.Message):
    __slots__ = ("name", "key", "version", "deleted")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    name: str
    key: str
    version: int
    deleted: bool
    def __init__(self, name: _Optional[str] = ..., key: _Optional[str] = ..., version: _Optional[int] = ..., deleted: bool = ...) -> None: ...

class Use(_message.Message):
    __slots__ = ("limit", "key", "amount")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_FIELD_NUMBER: _ClassVar[int]
    limit: str
    key: str
    amount: int
    def __init__(self, limit: _Optional[str] = ..., key: _Optional[str] = ..., amount: _Optional[int] = ...) -> None: ...

class FindRequest(_message.Message):
    __slots__ = ("agent_id", "project_id")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    project_id: int
    def __init__(self, agent_id: _Optional[str] = ..., project_id: _Optional[int] = ...) -> None: ...

class FindResponse(_message.Message):
    __slots__ = ("agents", "kas")
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    KAS_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[AgentRecord]
    kas: KasRecord
    def __init__(self, agents: _Optional[_Iterable[_Union[AgentRecord, _Mapping]]] = ..., kas: _Optional[_Union[KasRecord, _Mapping]] = ...) -> None: ...
