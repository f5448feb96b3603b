"""
What kas, agentk and modules know of Kubernetes' API.

    request_info.py     what a request asks, read as the API server reads it
    impersonation.py    the header fields that say as whom it comes
    own_namespace.py    what is not asked with agentk's own rights
    client.py           requests of an agent half to the API server next to agentk
    discovery.py        which kinds of objects there are, and their paths
    watch.py            a watch that goes on
    answers.py          answers, collected whole or taken line by line
"""

from tunnel.kubernetes.client import KubernetesClient, KubernetesClients
from tunnel.kubernetes.impersonation import impersonation_fields
from tunnel.kubernetes.own_namespace import OwnNamespace, OwnNamespaceRefusal
from tunnel.kubernetes.request_info import (
    Lasts,
    RequestInfo,
    climbs,
    lasts,
    only_reads,
    query_flag,
    query_value,
    request_info,
    why_refused,
)

__all__ = [
    "KubernetesClient",
    "KubernetesClients",
    "Lasts",
    "OwnNamespace",
    "OwnNamespaceRefusal",
    "RequestInfo",
    "climbs",
    "impersonation_fields",
    "lasts",
    "only_reads",
    "query_flag",
    "query_value",
    "request_info",
    "why_refused",
]
