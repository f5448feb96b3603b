"""
Addresses of Services in the cluster, for requests of modules that others configure.

The configuration names a Service, and never an address: only the API server decides
where a request goes.  A Service with a selector leads to pods, so that no configuration
can make agentk send requests to its own machine, to the metadata of a cloud, or out of
the cluster.
"""

from __future__ import annotations

from ipaddress import ip_address

from tunnel.api import IKubernetesClient, KubernetesObject, KubernetesResource
from tunnel.errors import CallError, Status

__all__ = ["service_address"]

_SERVICE = KubernetesResource("", "v1", "Service", "services", True)

#: Maximum number of ports that an error names.
SHOWN = 10


async def service_address(
    client: IKubernetesClient, namespace: str, name: str, port: int, api_server: str
) -> str:
    """
    Return the ClusterIP of a Service that leads to pods.

    :param port: a TCP port of the Service.
    :param api_server: host of the API server, which is never the result.
    :raises CallError: NOT_FOUND if the Service does not exist; FAILED_PRECONDITION if
        modules may not send requests to it.
    """
    found = await client.get(_SERVICE, name, namespace)
    why = _why_refused(found, port, api_server)
    if why:
        text = f"Service {namespace}/{name} {why}"
        raise CallError(Status.FAILED_PRECONDITION, text)
    address: str = found["spec"]["clusterIP"]
    return address


def _why_refused(service: KubernetesObject, port: int, api_server: str) -> str:
    """Return why no request may go to a Service; empty if requests may."""
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return "is an ExternalName, which leads out of the cluster"
    if not spec.get("selector"):
        return "has no selector; only Services that select pods are used"
    text = str(spec.get("clusterIP") or "None")
    try:
        address = ip_address(text)
    except ValueError:
        return "has no ClusterIP; create another Service without 'clusterIP: None'"
    if (
        address.is_loopback
        or address.is_link_local
        or address.is_unspecified
        or address.is_multicast
    ):
        return f"has the address {address}, which is not an address of a Service"
    if text == api_server:
        return "is the API server"
    ports = [
        one.get("port")
        for one in spec.get("ports") or ()
        if one.get("protocol", "TCP") == "TCP"
    ]
    if port not in ports:
        known = ", ".join(map(str, ports[:SHOWN])) or "none"
        return f"has no TCP port {port}; it has: {known}"
    return ""
