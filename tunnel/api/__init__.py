"""
The API for modules, by subject: what a module implements, and what it can use.

A feature is one module with two halves: the server half runs in kas, the agent half in
agentk.  kas and agentk find each half by name through a dropin (`tunnel.plugin`), and
create it with one argument, the *module API* (`IServerModuleApi`, `IAgentModuleApi`). A
half can use the attributes of that API and nothing else.  docs/modules.rst explains a
complete module.

    modules.py        the halves of a module, their factories, and the API of each half
    calls.py          calls of protobuf services
    streams.py        raw streams: bytes and header blocks
    agents.py         agents that are connected to kas
    users.py          credentials, and the rights that they give
    sign_in.py        sign-in of users in a browser
    audit.py          events of the audit log
    events.py         events inside one program
    capabilities.py   objects that modules of one program offer to each other
    configuration.py  agents' configuration in Git
    agent_scope.py    namespaces that an agent works in
    git.py            Git repositories
    followed_refs.py  refs of repositories that a module follows
    gitlab.py         GitLab: projects of agents, and requests to GitLab
    kubernetes.py     the API server next to agentk
    leadership.py     work that only one replica may do
    stores.py         small durable values that all kas share
    cable.py          channels of ActionCable
    cluster_views.py  views of live data
    components.py     components that live data recognizes
    cluster_rows.py   changes of live data
    cached_watches.py  watches from the caches of agents
    agent_paths.py    paths of modules at the listener for kubectl
    page_callers.py   users of pages, by bearer token or by a session of kas' own page
    web.py            pages, webhooks and WebSockets
    network.py        listeners, and connections to other servers
    peers.py          the other kas of the fleet
    workers.py        limits that the workers of one kas share
    tracing.py        spans for OpenTelemetry
    repositories.py   sections of kas' configuration that name Git repositories

Import names from this package; the files that define them may change.
"""

from tunnel.api.agent_paths import (
    AgentPathRequest,
    AgentPathsStarted,
    IAgentPath,
    IAgentPathResponse,
    IAgentPaths,
)
from tunnel.api.agent_scope import MAX_SCOPE, SCOPE, AgentScope
from tunnel.api.agents import ConnectedAgent, IAgents, KubernetesVersion
from tunnel.api.audit import (
    AuditEvent,
    AuditLevel,
    AuditStage,
    EnforcedEvents,
    IAudit,
)
from tunnel.api.cable import (
    CableStarted,
    ICable,
    ICableCaller,
    ICableSubscription,
    IChannel,
)
from tunnel.api.cached_watches import ICachedWatches
from tunnel.api.calls import (
    CLIENT_ADDRESS,
    OPERATOR,
    IAgentCalls,
    ICalls,
    IClientCall,
    IServerCalls,
    IServiceClient,
)
from tunnel.api.capabilities import ICapabilities
from tunnel.api.cluster_rows import (
    ClusterRowsStarted,
    IClusterRows,
    IRowFollower,
    PublishingAgent,
)
from tunnel.api.cluster_views import (
    ClusterObject,
    ClusterView,
    ClusterViewsStarted,
    IClusterViews,
    ObjectKind,
    ViewRow,
    common_columns,
    shortened,
)
from tunnel.api.components import (
    IKnownComponents,
    KnownComponent,
    KnownComponentsStarted,
)
from tunnel.api.configuration import IConfigurationDelivery, ISections
from tunnel.api.events import (
    AgentChanged,
    AgentConnected,
    AgentDisconnected,
    AgentMoved,
    ConfigurationRead,
    ConfigurationRefused,
    CredentialRevoked,
    Draining,
    GitPushed,
    IEvents,
    TunnelConnected,
    TunnelDisconnected,
)
from tunnel.api.followed_refs import FollowedRef, FollowedRefs
from tunnel.api.git import (
    GitAddress,
    GitalyAddress,
    IRepositories,
    IRepository,
    TreeEntry,
    TreeEntryKind,
)
from tunnel.api.gitlab import AgentProject, IGitLab, IGitLabResponse, IProjects
from tunnel.api.kubernetes import (
    ICluster,
    IKubernetes,
    IKubernetesClient,
    IOwnNamespace,
    KubernetesMetadata,
    KubernetesObject,
    KubernetesResource,
    KubernetesResponse,
    KubernetesShape,
    KubernetesWrite,
    OwnerReference,
    PrintedObject,
    WatchEvent,
    WatchEventType,
)
from tunnel.api.leadership import ILeadership
from tunnel.api.modules import (
    IAgentModule,
    IAgentModuleApi,
    IAgentModuleFactory,
    IServerModule,
    IServerModuleApi,
    IServerModuleFactory,
)
from tunnel.api.network import IListeners, INetwork, IRedisPublisher
from tunnel.api.page_callers import (
    CSRF_FIELD,
    PAGE_COOKIE,
    PageCaller,
    is_page_csrf,
    page_csrf,
    page_session,
)
from tunnel.api.peers import IPeers, OtherKas
from tunnel.api.repositories import (
    RepositorySettings,
    agents_match,
    is_period,
    project_of,
    readable_repository,
)
from tunnel.api.sign_in import (
    ISignInProvider,
    LoggedOut,
    SignedIn,
    SignInBegun,
)
from tunnel.api.stores import IStore, IStores, StoredValue, StoreEvent, StoreEventType
from tunnel.api.streams import (
    DEFAULT_OPTIONS,
    IOpening,
    IPathReceiver,
    IStream,
    IStreamReceiver,
    IWaitingStream,
    StreamOptions,
)
from tunnel.api.tracing import ISpan, ITracer, SpanKind
from tunnel.api.users import (
    PAGE_SESSION,
    SESSION_COOKIE,
    Access,
    AgentIdentity,
    HasPeer,
    IAuthenticator,
    IListingAuthenticator,
    Impersonation,
    IUsers,
    Reach,
    ReachableAgent,
    Usage,
    program_of,
)
from tunnel.api.web import (
    AcceptedWebSocket,
    IWeb,
    IWebSocket,
    WebSocketReceiver,
    WebSocketRequest,
)
from tunnel.api.workers import ISharedCount, IWorkers

__all__ = [
    "CLIENT_ADDRESS",
    "CSRF_FIELD",
    "DEFAULT_OPTIONS",
    "MAX_SCOPE",
    "OPERATOR",
    "PAGE_COOKIE",
    "PAGE_SESSION",
    "SCOPE",
    "SESSION_COOKIE",
    "AcceptedWebSocket",
    "Access",
    "AgentChanged",
    "AgentConnected",
    "AgentDisconnected",
    "AgentIdentity",
    "AgentMoved",
    "AgentPathRequest",
    "AgentPathsStarted",
    "AgentProject",
    "AgentScope",
    "AuditEvent",
    "AuditLevel",
    "AuditStage",
    "CableStarted",
    "ClusterObject",
    "ClusterRowsStarted",
    "ClusterView",
    "ClusterViewsStarted",
    "ConfigurationRead",
    "ConfigurationRefused",
    "ConnectedAgent",
    "CredentialRevoked",
    "Draining",
    "EnforcedEvents",
    "FollowedRef",
    "FollowedRefs",
    "GitAddress",
    "GitPushed",
    "GitalyAddress",
    "HasPeer",
    "IAgentCalls",
    "IAgentModule",
    "IAgentModuleApi",
    "IAgentModuleFactory",
    "IAgentPath",
    "IAgentPathResponse",
    "IAgentPaths",
    "IAgents",
    "IAudit",
    "IAuthenticator",
    "ICable",
    "ICableCaller",
    "ICableSubscription",
    "ICachedWatches",
    "ICalls",
    "ICapabilities",
    "IChannel",
    "IClientCall",
    "ICluster",
    "IClusterRows",
    "IClusterViews",
    "IConfigurationDelivery",
    "IEvents",
    "IGitLab",
    "IGitLabResponse",
    "IKnownComponents",
    "IKubernetes",
    "IKubernetesClient",
    "ILeadership",
    "IListeners",
    "IListingAuthenticator",
    "INetwork",
    "IOpening",
    "IOwnNamespace",
    "IPathReceiver",
    "IPeers",
    "IProjects",
    "IRedisPublisher",
    "IRepositories",
    "IRepository",
    "IRowFollower",
    "ISections",
    "IServerCalls",
    "IServerModule",
    "IServerModuleApi",
    "IServerModuleFactory",
    "IServiceClient",
    "ISharedCount",
    "ISignInProvider",
    "ISpan",
    "IStore",
    "IStores",
    "IStream",
    "IStreamReceiver",
    "ITracer",
    "IUsers",
    "IWaitingStream",
    "IWeb",
    "IWebSocket",
    "IWorkers",
    "Impersonation",
    "KnownComponent",
    "KnownComponentsStarted",
    "KubernetesMetadata",
    "KubernetesObject",
    "KubernetesResource",
    "KubernetesResponse",
    "KubernetesShape",
    "KubernetesVersion",
    "KubernetesWrite",
    "LoggedOut",
    "ObjectKind",
    "OtherKas",
    "OwnerReference",
    "PageCaller",
    "PrintedObject",
    "PublishingAgent",
    "Reach",
    "ReachableAgent",
    "RepositorySettings",
    "SignInBegun",
    "SignedIn",
    "SpanKind",
    "StoreEvent",
    "StoreEventType",
    "StoredValue",
    "StreamOptions",
    "TreeEntry",
    "TreeEntryKind",
    "TunnelConnected",
    "TunnelDisconnected",
    "Usage",
    "ViewRow",
    "WatchEvent",
    "WatchEventType",
    "WebSocketReceiver",
    "WebSocketRequest",
    "agents_match",
    "common_columns",
    "is_page_csrf",
    "is_period",
    "page_csrf",
    "page_session",
    "program_of",
    "project_of",
    "readable_repository",
    "shortened",
]
