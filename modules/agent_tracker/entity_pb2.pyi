from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

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

class AgentMeta(_message.Message):
    __slots__ = ("version", "commit_id", "pod_namespace", "pod_name", "kubernetes_version")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    POD_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POD_NAME_FIELD_NUMBER: _ClassVar[int]
    KUBERNETES_VERSION_FIELD_NUMBER: _ClassVar[int]
    version: str
    commit_id: str
    pod_namespace: str
    pod_name: str
    kubernetes_version: KubernetesVersion
    def __init__(self, version: _Optional[str] = ..., commit_id: _Optional[str] = ..., pod_namespace: _Optional[str] = ..., pod_name: _Optional[str] = ..., kubernetes_version: _Optional[_Union[KubernetesVersion, _Mapping]] = ...) -> None: ...
