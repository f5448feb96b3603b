from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class AgentConfiguration(_message.Message):
    __slots__ = ("gitops", "observability", "agent_id", "project_id", "ci_access", "container_scanning", "project_path", "remote_development", "flux", "gitlab_external_url", "more")
    class MoreEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GITOPS_FIELD_NUMBER: _ClassVar[int]
    OBSERVABILITY_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    CI_ACCESS_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_SCANNING_FIELD_NUMBER: _ClassVar[int]
    PROJECT_PATH_FIELD_NUMBER: _ClassVar[int]
    REMOTE_DEVELOPMENT_FIELD_NUMBER: _ClassVar[int]
    FLUX_FIELD_NUMBER: _ClassVar[int]
    GITLAB_EXTERNAL_URL_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    gitops: str
    observability: str
    agent_id: int
    project_id: int
    ci_access: str
    container_scanning: str
    project_path: str
    remote_development: str
    flux: str
    gitlab_external_url: str
    more: _containers.ScalarMap[str, str]
    def __init__(self, gitops: _Optional[str] = ..., observability: _Optional[str] = ..., agent_id: _Optional[int] = ..., project_id: _Optional[int] = ..., ci_access: _Optional[str] = ..., container_scanning: _Optional[str] = ..., project_path: _Optional[str] = ..., remote_development: _Optional[str] = ..., flux: _Optional[str] = ..., gitlab_external_url: _Optional[str] = ..., more: _Optional[_Mapping[str, str]] = ...) -> None: ...
