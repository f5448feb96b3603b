from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class QueryRequest(_message.Message):
    __slots__ = ("view", "clusters", "kind", "namespace", "name", "label_selector", "image", "limit", "page")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    view: str
    clusters: _containers.RepeatedScalarFieldContainer[str]
    kind: str
    namespace: str
    name: str
    label_selector: str
    image: str
    limit: int
    page: str
    def __init__(self, view: _Optional[str] = ..., clusters: _Optional[_Iterable[str]] = ..., kind: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., label_selector: _Optional[str] = ..., image: _Optional[str] = ..., limit: _Optional[int] = ..., page: _Optional[str] = ...) -> None: ...

class QueryResponse(_message.Message):
    __slots__ = ("rows", "next_page", "incomplete", "queried", "as_of", "missing_kas")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_FIELD_NUMBER: _ClassVar[int]
    INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    QUERIED_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    MISSING_KAS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[FoundRow]
    next_page: str
    incomplete: _containers.RepeatedCompositeFieldContainer[ClusterState]
    queried: int
    as_of: float
    missing_kas: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, rows: _Optional[_Iterable[_Union[FoundRow, _Mapping]]] = ..., next_page: _Optional[str] = ..., incomplete: _Optional[_Iterable[_Union[ClusterState, _Mapping]]] = ..., queried: _Optional[int] = ..., as_of: _Optional[float] = ..., missing_kas: _Optional[_Iterable[str]] = ...) -> None: ...

class FoundRow(_message.Message):
    __slots__ = ("agent_id", "agent_name", "group", "kind", "resource", "namespace", "name", "columns", "part")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    agent_name: str
    group: str
    kind: str
    resource: str
    namespace: str
    name: str
    columns: str
    part: str
    def __init__(self, agent_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., group: _Optional[str] = ..., kind: _Optional[str] = ..., resource: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., columns: _Optional[str] = ..., part: _Optional[str] = ...) -> None: ...

class ClustersRequest(_message.Message):
    __slots__ = ("clusters",)
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    clusters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, clusters: _Optional[_Iterable[str]] = ...) -> None: ...

class ClustersResponse(_message.Message):
    __slots__ = ("clusters", "as_of", "missing_kas")
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    MISSING_KAS_FIELD_NUMBER: _ClassVar[int]
    clusters: _containers.RepeatedCompositeFieldContainer[ClusterState]
    as_of: float
    missing_kas: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, clusters: _Optional[_Iterable[_Union[ClusterState, _Mapping]]] = ..., as_of: _Optional[float] = ..., missing_kas: _Optional[_Iterable[str]] = ...) -> None: ...

class ClusterState(_message.Message):
    __slots__ = ("agent_id", "agent_name", "state", "last_seen", "reason", "cluster_uid", "summary")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_UID_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    agent_name: str
    state: str
    last_seen: float
    reason: str
    cluster_uid: str
    summary: str
    def __init__(self, agent_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., state: _Optional[str] = ..., last_seen: _Optional[float] = ..., reason: _Optional[str] = ..., cluster_uid: _Optional[str] = ..., summary: _Optional[str] = ...) -> None: ...

class ApplicationsRequest(_message.Message):
    __slots__ = ("clusters", "namespace")
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    clusters: _containers.RepeatedScalarFieldContainer[str]
    namespace: str
    def __init__(self, clusters: _Optional[_Iterable[str]] = ..., namespace: _Optional[str] = ...) -> None: ...

class ApplicationsResponse(_message.Message):
    __slots__ = ("applications", "completeness")
    APPLICATIONS_FIELD_NUMBER: _ClassVar[int]
    COMPLETENESS_FIELD_NUMBER: _ClassVar[int]
    applications: _containers.RepeatedCompositeFieldContainer[Application]
    completeness: Completeness
    def __init__(self, applications: _Optional[_Iterable[_Union[Application, _Mapping]]] = ..., completeness: _Optional[_Union[Completeness, _Mapping]] = ...) -> None: ...

class ComponentsResponse(_message.Message):
    __slots__ = ("components", "completeness")
    COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    COMPLETENESS_FIELD_NUMBER: _ClassVar[int]
    components: _containers.RepeatedCompositeFieldContainer[Component]
    completeness: Completeness
    def __init__(self, components: _Optional[_Iterable[_Union[Component, _Mapping]]] = ..., completeness: _Optional[_Union[Completeness, _Mapping]] = ...) -> None: ...

class Completeness(_message.Message):
    __slots__ = ("incomplete", "missing_kas", "cut", "queried", "as_of")
    INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    MISSING_KAS_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    QUERIED_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    incomplete: _containers.RepeatedCompositeFieldContainer[ClusterState]
    missing_kas: _containers.RepeatedScalarFieldContainer[str]
    cut: bool
    queried: int
    as_of: float
    def __init__(self, incomplete: _Optional[_Iterable[_Union[ClusterState, _Mapping]]] = ..., missing_kas: _Optional[_Iterable[str]] = ..., cut: bool = ..., queried: _Optional[int] = ..., as_of: _Optional[float] = ...) -> None: ...

class Application(_message.Message):
    __slots__ = ("agent_id", "agent_name", "namespace", "name", "source", "version", "health", "images", "workloads", "declarations")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    DECLARATIONS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    agent_name: str
    namespace: str
    name: str
    source: str
    version: str
    health: str
    images: _containers.RepeatedScalarFieldContainer[str]
    workloads: _containers.RepeatedCompositeFieldContainer[Workload]
    declarations: _containers.RepeatedCompositeFieldContainer[Declaration]
    def __init__(self, agent_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., source: _Optional[str] = ..., version: _Optional[str] = ..., health: _Optional[str] = ..., images: _Optional[_Iterable[str]] = ..., workloads: _Optional[_Iterable[_Union[Workload, _Mapping]]] = ..., declarations: _Optional[_Iterable[_Union[Declaration, _Mapping]]] = ...) -> None: ...

class Declaration(_message.Message):
    __slots__ = ("tool", "kind", "namespace", "name", "type", "version", "description", "problem", "repository", "path", "wanted", "revision", "target", "owners", "links", "info", "references", "stated", "unknown_components")
    class LinksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class InfoEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ReferencesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class StatedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOOL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    STATED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    tool: str
    kind: str
    namespace: str
    name: str
    type: str
    version: str
    description: str
    problem: str
    repository: str
    path: str
    wanted: str
    revision: str
    target: str
    owners: _containers.RepeatedScalarFieldContainer[str]
    links: _containers.ScalarMap[str, str]
    info: _containers.ScalarMap[str, str]
    references: _containers.ScalarMap[str, str]
    stated: _containers.ScalarMap[str, str]
    unknown_components: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tool: _Optional[str] = ..., kind: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., type: _Optional[str] = ..., version: _Optional[str] = ..., description: _Optional[str] = ..., problem: _Optional[str] = ..., repository: _Optional[str] = ..., path: _Optional[str] = ..., wanted: _Optional[str] = ..., revision: _Optional[str] = ..., target: _Optional[str] = ..., owners: _Optional[_Iterable[str]] = ..., links: _Optional[_Mapping[str, str]] = ..., info: _Optional[_Mapping[str, str]] = ..., references: _Optional[_Mapping[str, str]] = ..., stated: _Optional[_Mapping[str, str]] = ..., unknown_components: _Optional[_Iterable[str]] = ...) -> None: ...

class Workload(_message.Message):
    __slots__ = ("kind", "name", "health", "reason", "ready", "wanted")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    health: str
    reason: str
    ready: int
    wanted: int
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., health: _Optional[str] = ..., reason: _Optional[str] = ..., ready: _Optional[int] = ..., wanted: _Optional[int] = ...) -> None: ...

class Component(_message.Message):
    __slots__ = ("agent_id", "agent_name", "namespace", "name", "version", "recognized_by", "workload", "addresses")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RECOGNIZED_BY_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    agent_name: str
    namespace: str
    name: str
    version: str
    recognized_by: str
    workload: Workload
    addresses: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, agent_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., version: _Optional[str] = ..., recognized_by: _Optional[str] = ..., workload: _Optional[_Union[Workload, _Mapping]] = ..., addresses: _Optional[_Iterable[str]] = ...) -> None: ...
