"""
Kubernetes' API, for kas, agentk and modules.

    request_info.py     the parser of requests, by the rules of the API server
    impersonation.py    the header fields of impersonation
    own_namespace.py    requests that are refused with agentk's own rights
    guard.py            checks of the owner's policy before requests leave agentk
    access_review.py    whether a user has a right, as the API server decides
    reviewed_rights.py  the same, with recent answers
    label_selector.py   label selectors
    session_frames.py   lengths of the frames of exec and attach sessions
    session_reader.py   how the program of an exec or attach session ended
    statuses.py         errors as a Status
    client.py           requests of an agent half to the API server next to agentk
    services.py         addresses of Services for requests of modules
    discovery.py        kinds of objects and their paths
    watch.py            a watch that resumes
    shared_watches.py   one watch of a kind for all modules
    health.py           whether an object has reached the state of its specification
    answers.py          responses, complete or line by line
"""

from tunnel.kubernetes.access_review import Right, is_allowed
from tunnel.kubernetes.client import KubernetesClient, KubernetesClients
from tunnel.kubernetes.guard import (
    GuardedCluster,
    GuardedUpstream,
    OwnerDenial,
    Purpose,
    RequestGuard,
    RequestOrigin,
)
from tunnel.kubernetes.health import (
    HealthStatus,
    ObjectHealth,
    health_of,
    why_it_stays,
)
from tunnel.kubernetes.impersonation import impersonation_fields
from tunnel.kubernetes.label_selector import (
    MAX_SELECTOR,
    LabelRequirement,
    label_requirements,
)
from tunnel.kubernetes.own_namespace import OwnNamespace, OwnNamespaceRefusal
from tunnel.kubernetes.request_info import (
    Lasts,
    RequestInfo,
    escapes_root,
    excluded_namespace,
    is_discovery,
    is_self_review,
    lasts,
    only_reads,
    opens_session,
    query_flag,
    query_value,
    readings,
    request_info,
    why_refused,
)
from tunnel.kubernetes.reviewed_rights import ReviewedRights
from tunnel.kubernetes.session_frames import (
    SPDY_HEADER,
    spdy_frame,
    web_socket_frame,
)
from tunnel.kubernetes.session_reader import SessionReader
from tunnel.kubernetes.statuses import STATUS_REASONS, status_object

__all__ = [
    "MAX_SELECTOR",
    "SPDY_HEADER",
    "STATUS_REASONS",
    "GuardedCluster",
    "GuardedUpstream",
    "HealthStatus",
    "KubernetesClient",
    "KubernetesClients",
    "LabelRequirement",
    "Lasts",
    "ObjectHealth",
    "OwnNamespace",
    "OwnNamespaceRefusal",
    "OwnerDenial",
    "Purpose",
    "RequestGuard",
    "RequestInfo",
    "RequestOrigin",
    "ReviewedRights",
    "Right",
    "SessionReader",
    "escapes_root",
    "excluded_namespace",
    "health_of",
    "impersonation_fields",
    "is_allowed",
    "is_discovery",
    "is_self_review",
    "label_requirements",
    "lasts",
    "only_reads",
    "opens_session",
    "query_flag",
    "query_value",
    "readings",
    "request_info",
    "spdy_frame",
    "status_object",
    "web_socket_frame",
    "why_it_stays",
    "why_refused",
]
