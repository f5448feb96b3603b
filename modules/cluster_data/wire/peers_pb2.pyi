from modules.cluster_data.wire import fleet_pb2 as _fleet_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StoredClustersRequest(_message.Message):
    __slots__ = ("names", "silent_for")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    SILENT_FOR_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    silent_for: float
    def __init__(self, names: _Optional[_Iterable[str]] = ..., silent_for: _Optional[float] = ...) -> None: ...

class StoredClusters(_message.Message):
    __slots__ = ("store_id", "clusters", "count")
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    clusters: _containers.RepeatedCompositeFieldContainer[StoredCluster]
    count: int
    def __init__(self, store_id: _Optional[str] = ..., clusters: _Optional[_Iterable[_Union[StoredCluster, _Mapping]]] = ..., count: _Optional[int] = ...) -> None: ...

class StoredCluster(_message.Message):
    __slots__ = ("agent_id", "agent_name", "cluster_uid", "is_publishing", "age", "identity", "is_outdated")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_UID_FIELD_NUMBER: _ClassVar[int]
    IS_PUBLISHING_FIELD_NUMBER: _ClassVar[int]
    AGE_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    IS_OUTDATED_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    agent_name: str
    cluster_uid: str
    is_publishing: bool
    age: float
    identity: str
    is_outdated: bool
    def __init__(self, agent_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., cluster_uid: _Optional[str] = ..., is_publishing: bool = ..., age: _Optional[float] = ..., identity: _Optional[str] = ..., is_outdated: bool = ...) -> None: ...

class StoredQuery(_message.Message):
    __slots__ = ("view", "agents", "all_agents", "excluded", "kind", "namespace", "name", "label_selector", "image", "limit", "page", "reader", "identities")
    class IdentitiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VIEW_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    ALL_AGENTS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    READER_FIELD_NUMBER: _ClassVar[int]
    IDENTITIES_FIELD_NUMBER: _ClassVar[int]
    view: str
    agents: _containers.RepeatedScalarFieldContainer[str]
    all_agents: bool
    excluded: _containers.RepeatedScalarFieldContainer[str]
    kind: str
    namespace: str
    name: str
    label_selector: str
    image: str
    limit: int
    page: str
    reader: str
    identities: _containers.ScalarMap[str, str]
    def __init__(self, view: _Optional[str] = ..., agents: _Optional[_Iterable[str]] = ..., all_agents: bool = ..., excluded: _Optional[_Iterable[str]] = ..., kind: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., label_selector: _Optional[str] = ..., image: _Optional[str] = ..., limit: _Optional[int] = ..., page: _Optional[str] = ..., reader: _Optional[str] = ..., identities: _Optional[_Mapping[str, str]] = ...) -> None: ...

class StoredScope(_message.Message):
    __slots__ = ("agent_id", "group", "resource", "namespace")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    group: str
    resource: str
    namespace: str
    def __init__(self, agent_id: _Optional[str] = ..., group: _Optional[str] = ..., resource: _Optional[str] = ..., namespace: _Optional[str] = ...) -> None: ...

class StoredScopes(_message.Message):
    __slots__ = ("scopes",)
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    scopes: _containers.RepeatedCompositeFieldContainer[StoredScope]
    def __init__(self, scopes: _Optional[_Iterable[_Union[StoredScope, _Mapping]]] = ...) -> None: ...

class FindRequest(_message.Message):
    __slots__ = ("query", "scopes", "all_scopes")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    ALL_SCOPES_FIELD_NUMBER: _ClassVar[int]
    query: StoredQuery
    scopes: _containers.RepeatedCompositeFieldContainer[StoredScope]
    all_scopes: bool
    def __init__(self, query: _Optional[_Union[StoredQuery, _Mapping]] = ..., scopes: _Optional[_Iterable[_Union[StoredScope, _Mapping]]] = ..., all_scopes: bool = ...) -> None: ...

class StoredRows(_message.Message):
    __slots__ = ("rows", "next_page")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[_fleet_pb2.FoundRow]
    next_page: str
    def __init__(self, rows: _Optional[_Iterable[_Union[_fleet_pb2.FoundRow, _Mapping]]] = ..., next_page: _Optional[str] = ...) -> None: ...

class HasViewRequest(_message.Message):
    __slots__ = ("view", "agents", "only_agents")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    ONLY_AGENTS_FIELD_NUMBER: _ClassVar[int]
    view: str
    agents: _containers.RepeatedScalarFieldContainer[str]
    only_agents: bool
    def __init__(self, view: _Optional[str] = ..., agents: _Optional[_Iterable[str]] = ..., only_agents: bool = ...) -> None: ...

class HasViewResponse(_message.Message):
    __slots__ = ("found",)
    FOUND_FIELD_NUMBER: _ClassVar[int]
    found: bool
    def __init__(self, found: bool = ...) -> None: ...

class SummariesRequest(_message.Message):
    __slots__ = ("agents", "identities")
    class IdentitiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    IDENTITIES_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedScalarFieldContainer[str]
    identities: _containers.ScalarMap[str, str]
    def __init__(self, agents: _Optional[_Iterable[str]] = ..., identities: _Optional[_Mapping[str, str]] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("agents", "views")
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedScalarFieldContainer[str]
    views: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, agents: _Optional[_Iterable[str]] = ..., views: _Optional[_Iterable[str]] = ...) -> None: ...

class RowsChanged(_message.Message):
    __slots__ = ("agent_id", "rights")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    rights: bool
    def __init__(self, agent_id: _Optional[str] = ..., rights: bool = ...) -> None: ...
