from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Hello(_message.Message):
    __slots__ = ("versions", "role", "credential", "instance_id", "generation", "agent", "services", "limits")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedScalarFieldContainer[int]
    role: str
    credential: bytes
    instance_id: bytes
    generation: int
    agent: AgentMeta
    services: _containers.RepeatedScalarFieldContainer[str]
    limits: Limits
    def __init__(self, versions: _Optional[_Iterable[int]] = ..., role: _Optional[str] = ..., credential: _Optional[bytes] = ..., instance_id: _Optional[bytes] = ..., generation: _Optional[int] = ..., agent: _Optional[_Union[AgentMeta, _Mapping]] = ..., services: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("version", "agent_id", "agent_name", "services", "limits", "timing", "kas_id", "proof")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    KAS_ID_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    version: int
    agent_id: str
    agent_name: str
    services: _containers.RepeatedScalarFieldContainer[str]
    limits: Limits
    timing: Timing
    kas_id: bytes
    proof: bytes
    def __init__(self, version: _Optional[int] = ..., agent_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., services: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., kas_id: _Optional[bytes] = ..., proof: _Optional[bytes] = ...) -> None: ...

class AgentMeta(_message.Message):
    __slots__ = ("version", "commit_id", "pod_namespace", "pod_name", "kubernetes_version", "architecture", "installation_method", "helm_chart_version")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    POD_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POD_NAME_FIELD_NUMBER: _ClassVar[int]
    KUBERNETES_VERSION_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    INSTALLATION_METHOD_FIELD_NUMBER: _ClassVar[int]
    HELM_CHART_VERSION_FIELD_NUMBER: _ClassVar[int]
    version: str
    commit_id: str
    pod_namespace: str
    pod_name: str
    kubernetes_version: KubernetesVersion
    architecture: str
    installation_method: str
    helm_chart_version: str
    def __init__(self, version: _Optional[str] = ..., commit_id: _Optional[str] = ..., pod_namespace: _Optional[str] = ..., pod_name: _Optional[str] = ..., kubernetes_version: _Optional[_Union[KubernetesVersion, _Mapping]] = ..., architecture: _Optional[str] = ..., installation_method: _Optional[str] = ..., helm_chart_version: _Optional[str] = ...) -> None: ...

class KubernetesVersion(_message.Message):
    __slots__ = ("major", "minor", "git_version", "platform")
    MAJOR_FIELD_NUMBER: _ClassVar[int]
    MINOR_FIELD_NUMBER: _ClassVar[int]
    GIT_VERSION_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    major: str
    minor: str
    git_version: str
    platform: str
    def __init__(self, major: _Optional[str] = ..., minor: _Optional[str] = ..., git_version: _Optional[str] = ..., platform: _Optional[str] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_streams", "initial_window", "max_payload")
    MAX_STREAMS_FIELD_NUMBER: _ClassVar[int]
    INITIAL_WINDOW_FIELD_NUMBER: _ClassVar[int]
    MAX_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    max_streams: int
    initial_window: int
    max_payload: int
    def __init__(self, max_streams: _Optional[int] = ..., initial_window: _Optional[int] = ..., max_payload: _Optional[int] = ...) -> None: ...

class Timing(_message.Message):
    __slots__ = ("ping_interval_ms", "dead_after_ms", "reconnect_min_ms", "reconnect_max_ms", "resume_grace_ms")
    PING_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    RECONNECT_MIN_MS_FIELD_NUMBER: _ClassVar[int]
    RECONNECT_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    RESUME_GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    ping_interval_ms: int
    dead_after_ms: int
    reconnect_min_ms: int
    reconnect_max_ms: int
    resume_grace_ms: int
    def __init__(self, ping_interval_ms: _Optional[int] = ..., dead_after_ms: _Optional[int] = ..., reconnect_min_ms: _Optional[int] = ..., reconnect_max_ms: _Optional[int] = ..., resume_grace_ms: _Optional[int] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("method", "metadata", "timeout_ms", "resume_id", "target", "relayed_by")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    RESUME_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    RELAYED_BY_FIELD_NUMBER: _ClassVar[int]
    method: str
    metadata: bytes
    timeout_ms: int
    resume_id: bytes
    target: Target
    relayed_by: bytes
    def __init__(self, method: _Optional[str] = ..., metadata: _Optional[bytes] = ..., timeout_ms: _Optional[int] = ..., resume_id: _Optional[bytes] = ..., target: _Optional[_Union[Target, _Mapping]] = ..., relayed_by: _Optional[bytes] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("agent_id", "instance_id", "generation", "repeatable")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REPEATABLE_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    instance_id: bytes
    generation: int
    repeatable: bool
    def __init__(self, agent_id: _Optional[str] = ..., instance_id: _Optional[bytes] = ..., generation: _Optional[int] = ..., repeatable: bool = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("bytes",)
    BYTES_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    def __init__(self, bytes: _Optional[int] = ...) -> None: ...

class Reset(_message.Message):
    __slots__ = ("code", "message", "peer_closed")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PEER_CLOSED_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    peer_closed: bool
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., peer_closed: bool = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("token",)
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    token: int
    def __init__(self, token: _Optional[int] = ...) -> None: ...

class GoAway(_message.Message):
    __slots__ = ("code", "message", "last_stream", "deadline_ms", "elsewhere", "reconnect_within_ms")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LAST_STREAM_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    RECONNECT_WITHIN_MS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    last_stream: int
    deadline_ms: int
    elsewhere: bool
    reconnect_within_ms: int
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., last_stream: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., elsewhere: bool = ..., reconnect_within_ms: _Optional[int] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("resume_id", "received", "target")
    RESUME_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    resume_id: bytes
    received: int
    target: Target
    def __init__(self, resume_id: _Optional[bytes] = ..., received: _Optional[int] = ..., target: _Optional[_Union[Target, _Mapping]] = ...) -> None: ...

class Resumed(_message.Message):
    __slots__ = ("received",)
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    received: int
    def __init__(self, received: _Optional[int] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("received",)
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    received: int
    def __init__(self, received: _Optional[int] = ...) -> None: ...
